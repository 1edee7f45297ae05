//! Rules of policies from options and files.

use std::{
    fs::File,
    io::{self, IsTerminal as _, Read as _},
    path::{Path, PathBuf},
    str::FromStr,
};

use anyhow::Context as _;
use clap::Args;
use sallyport_model::{EmailDomain, PersonEmail, ProviderName};
use sallyport_policy::{
    Clock, Day, Document, MAX_DOCUMENT_BYTES, Moment, PathPattern, PolicyRule, Rule, SshExtension, SshGrant, What,
    When, Who, Window, Zone,
};

use crate::{
    args::port,
    failure::{self, Failure, Kind},
};

/// One rule, by its conditions.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "A rule: all conditions must hold; the entries of one are alternatives")]
pub(crate) struct RuleArgs {
    /// Deny what the rule matches, instead of allowing it
    #[arg(long)]
    deny: bool,
    /// The name of the rule in explanations of a decision
    #[arg(long, value_name = "NAME")]
    rule: Option<String>,
    /// Every client
    #[arg(long)]
    anyone: bool,
    /// People with these e-mail addresses
    #[arg(long, value_name = "EMAIL", value_delimiter = ',')]
    email: Option<Vec<PersonEmail>>,
    /// People whose e-mail addresses have these domains
    #[arg(long, value_name = "DOMAIN", value_delimiter = ',')]
    email_domain: Option<Vec<EmailDomain>>,
    /// People of this group of their provider, commas included; may be given several times
    #[arg(long, value_name = "GROUP")]
    group: Option<Vec<String>>,
    /// People who log in through these providers
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    provider: Option<Vec<ProviderName>>,
    /// Machines with the service token of this name; may be given several times
    #[arg(long, value_name = "NAME")]
    service_token: Option<Vec<String>>,
    /// Clients from these places: networks, country:CH, asn:64500
    #[arg(long, value_name = "PLACE", value_delimiter = ',')]
    from: Option<Vec<Rule>>,
    /// At these times of the week, such as "mon-fri 08:00-18:00"; may be given several times
    #[arg(long, value_name = "TIMES", requires = "time_zone")]
    weekly: Option<Vec<WeeklyArg>>,
    /// The time zone of --weekly, such as Europe/Zurich
    #[arg(long, value_name = "ZONE", requires = "weekly")]
    time_zone: Option<Zone>,
    /// Not before this time, such as 2027-03-01T08:00:00+01:00
    #[arg(long, value_name = "TIME")]
    not_before: Option<Moment>,
    /// Only before this time
    #[arg(long, value_name = "TIME")]
    not_after: Option<Moment>,
    /// These HTTP methods; GET includes HEAD
    #[arg(long, value_name = "METHOD", value_delimiter = ',')]
    method: Option<Vec<String>>,
    /// These paths and all paths beneath them, such as /admin or /*/edit
    #[arg(long, value_name = "PATH", value_delimiter = ',')]
    path: Option<Vec<PathPattern>>,
    /// These public ports
    #[arg(long, value_name = "PORT", value_delimiter = ',', value_parser = port::parse, allow_negative_numbers = true)]
    port: Option<Vec<u16>>,
    /// The extensions of ssh certificates that the rule grants, such as permit-pty, several with commas; none for no
    /// extension
    #[arg(long, value_name = "EXTENSION", value_delimiter = ',', conflicts_with = "deny")]
    ssh_extension: Option<Vec<ExtensionArg>>,
    /// The one command that ssh certificates of the rule allow
    #[arg(long, value_name = "COMMAND", conflicts_with = "deny")]
    ssh_force_command: Option<String>,
}

/// An extension in an option; `None` for the word `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExtensionArg(Option<SshExtension>);

impl FromStr for ExtensionArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" { Ok(Self(None)) } else { text.parse().map(|one| Self(Some(one))) }
    }
}

/// A weekly window in an option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WeeklyArg(Window);

impl FromStr for WeeklyArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} are no times of the week: expected such as \"mon-fri 08:00-18:00\"");
        let mut window: Window = serde_json::from_str("{}").map_err(|_| wrong())?;
        let mut words = text.split_whitespace().peekable();
        if let Some(days) = words.next_if(|word| !word.contains(':')) {
            window.days = days_of(days).ok_or_else(wrong)?;
        }
        if let Some(times) = words.next() {
            let (from, to) = times.split_once('-').ok_or_else(wrong)?;
            window.from = from.parse::<Clock>().map_err(|error| error.to_string())?;
            window.to = to.parse::<Clock>().map_err(|error| error.to_string())?;
        }
        if text.trim().is_empty() || words.next().is_some() {
            return Err(wrong());
        }
        Ok(Self(window))
    }
}

/// `mon-fri`, `sat,sun`, `sun-tue`.
fn days_of(text: &str) -> Option<Vec<Day>> {
    let all = Day::all();
    let place = |day: &str| day.parse::<Day>().ok().and_then(|day| all.iter().position(|one| *one == day));
    let mut wanted = [false; 7];
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (place(first)?, place(last)?);
        let count = (last + 7 - first) % 7;
        (0..=count).for_each(|step| wanted[(first + step) % 7] = true);
    }
    Some(all.into_iter().zip(wanted).filter(|(_, wanted)| *wanted).map(|(day, _)| day).collect())
}

impl RuleArgs {
    /// The rule, and whether it denies; `None` without any option.
    fn rule(self) -> Option<(bool, PolicyRule)> {
        let who = Who {
            anyone: self.anyone,
            emails: self.email,
            email_domains: self.email_domain,
            groups: self.group,
            providers: self.provider,
            service_tokens: self.service_token,
        };
        let weekly = self.weekly.map(|all| all.into_iter().map(|one| one.0).collect());
        let when = When { not_before: self.not_before, not_after: self.not_after, weekly, time_zone: self.time_zone };
        let methods = self.method.map(|all| all.iter().map(|one| one.to_ascii_uppercase()).collect());
        let what = What { methods, paths: self.path, ports: self.port };
        let extensions = self.ssh_extension.map(|all| all.into_iter().filter_map(|one| one.0).collect());
        let ssh = SshGrant { extensions, force_command: self.ssh_force_command };
        let rule = PolicyRule {
            ssh: (ssh != SshGrant::default()).then_some(ssh),
            name: self.rule,
            who: (who != Who::default()).then_some(who),
            from: self.from,
            when: (when != When::default()).then_some(when),
            what: (what != What::default()).then_some(what),
        };
        (self.deny || rule != PolicyRule::default()).then_some((self.deny, rule))
    }

    /// Adds the rule to a document.
    ///
    /// # Errors
    /// No option was given.
    pub(crate) fn add_to(self, document: Option<Document>) -> Result<Document, Failure> {
        let (denies, rule) = self.rule().ok_or_else(|| {
            Failure::usage("the policy has no rule")
                .next("give conditions such as --email-domain example.com, or a file with -f")
        })?;
        let mut document = document.unwrap_or(Document { allow: None, deny: Vec::new() });
        if denies {
            document.deny.push(rule);
        } else {
            document.allow.get_or_insert_default().push(rule);
        }
        Ok(document)
    }

    /// Whether any option was given.
    pub(crate) fn is_given(&self) -> bool {
        self.clone().rule().is_some()
    }
}

/// Reads a document from a file, or from the standard input for `-`.
///
/// # Errors
/// The file cannot be read, or is no document.
pub(crate) fn read(file: &Path) -> anyhow::Result<Document> {
    let mut text = String::new();
    let max = MAX_DOCUMENT_BYTES as u64 + 1;
    let from = if file == Path::new("-") {
        if io::stdin().is_terminal() {
            return Err(Failure::usage("the standard input is a terminal").next("name a file with -f").into());
        }
        io::stdin().lock().take(max).read_to_string(&mut text).context("cannot read the policy")?;
        "the standard input".to_owned()
    } else {
        let shown = file.display();
        let read = File::open(file).and_then(|opened| opened.take(max).read_to_string(&mut text));
        read.map_err(|error| failure::unreadable(file, &error))?;
        shown.to_string()
    };
    let read = Document::parse(&text);
    Ok(read.map_err(|error| {
        Failure::new(Kind::Refused, format!("{from}: {error}")).next("`sallyport help policies` has the words of rules")
    })?)
}

/// The source of a document: a file, or the options of one rule.
#[derive(Debug, Default, Args)]
pub(crate) struct DocumentArgs {
    /// The file with the rules as JSON, - for the standard input
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) rule: RuleArgs,
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        rule: RuleArgs,
    }

    fn json(words: &[&str]) -> String {
        let line = Line::try_parse_from(std::iter::once("x").chain(words.iter().copied()));
        line.unwrap_or_else(|error| panic!("{error}")).rule.add_to(None).unwrap().to_json()
    }

    #[test]
    fn options_make_the_rule_that_they_say() {
        assert_eq!(
            json(&[
                "--email-domain",
                "Example.com",
                "--from",
                "country:ch,10.0.0.0/8",
                "--method",
                "get",
                "--path",
                "/a"
            ]),
            r#"{"allow":[{"who":{"email_domains":["example.com"]},"where":["country:CH","10.0.0.0/8"],"what":{"methods":["GET"],"paths":["/a"]}}]}"#
        );
        assert_eq!(
            json(&[
                "--deny",
                "--anyone",
                "--weekly",
                "sat,sun",
                "--weekly",
                "mon-fri 18:00-08:00",
                "--time-zone",
                "UTC"
            ]),
            r#"{"deny":[{"who":{"anyone":true},"when":{"weekly":[{"days":["sat","sun"],"from":"00:00","to":"24:00"},{"days":["mon","tue","wed","thu","fri"],"from":"18:00","to":"08:00"}],"time_zone":"UTC"}}]}"#
        );
        let days = days_of("sat-mon").unwrap();
        assert_eq!(days.iter().map(ToString::to_string).collect::<Vec<_>>(), ["mon", "sat", "sun"]);
        let plain = Line::try_parse_from(["x"]).unwrap().rule;
        assert!(plain.add_to(None).unwrap_err().message.contains("has no rule"));
    }

    #[test]
    fn errors_name_the_expected_value() {
        for (words, says) in [
            (&["--weekly", "08:00-18:00"][..], "--time-zone"),
            (&["--weekly", "workdays", "--time-zone", "UTC"], "are no times of the week"),
            (&["--weekly", "mon 8-18", "--time-zone", "UTC"], "is not a time of day"),
            (&["--weekly", "mon-fri 08:00-18:00", "--time-zone", "CET+9"], "is not a known time zone"),
            (&["--not-after", "tomorrow"], "is not a moment"),
            (&["--path", "admin"], "is no path"),
            (&["--email", "ann"], "is no e-mail address"),
            (&["--from", "Mars"], "is not an access rule"),
        ] {
            let error = Line::try_parse_from(std::iter::once("x").chain(words.iter().copied())).err();
            let message = error.map(|error| error.to_string()).unwrap_or_default();
            assert!(message.contains(says), "{words:?}: {message}");
        }
    }

    #[test]
    fn a_file_is_read_and_its_errors_are_reported() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("p.json");
        std::fs::write(&file, r#"{"allow":[{"who":{"groups":["ops"]}}]}"#).unwrap();
        assert_eq!(read(&file).unwrap().rules().count(), 1);
        std::fs::write(&file, r#"{"allow":[]}"#).unwrap();
        assert!(read(&file).unwrap_err().to_string().contains("allow is empty"));
        assert!(read(&dir.path().join("none")).unwrap_err().to_string().contains("there is no file"));
    }
}
