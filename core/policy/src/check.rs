//! Checks for rules that can never apply.

use std::cell::Cell;

use crate::{
    Document, DocumentError, Effect, MAX_CONDITION_ENTRIES, MAX_RULE_NAME_CHARS, MAX_SSH_COMMAND_BYTES, MAX_WINDOWS,
    PolicyRule, SshGrant, When, Who,
    covers::{covers, is_covered_in_parts, steps},
    document::is_group,
    ranges::Ranges,
    rule::networks,
    times::Minutes,
};

/// Bound on compared entries in the search for denials that cover everything allowed.
const MAX_COVER_STEPS: usize = 2_000_000;
const DAY_SECONDS: i64 = 24 * 60 * 60;
const MINUTE_SECONDS: i64 = 60;
/// A span of this length includes every minute of the week, also around clock changes.
const WEEK_SECONDS: i64 = 8 * DAY_SECONDS;

/// A defect of a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// There is no condition, and no explicit `anyone`.
    #[error("it has no condition and would apply to everybody: write \"who\": {{\"anyone\": true}} if that is meant")]
    NoCondition,
    /// The name is malformed.
    #[error("its name is empty, longer than {MAX_RULE_NAME_CHARS} characters, or has control characters")]
    Name,
    /// A list is empty.
    #[error("{0} is empty, so nobody could meet it: list something, or leave it out")]
    EmptyList(&'static str),
    /// A group of conditions is empty.
    #[error("{0} has no condition in it: give one, or leave it out")]
    EmptyGroup(&'static str),
    /// A condition has too many entries.
    #[error("{list} has {count} entries and may have {max}: make two rules of it")]
    TooMany {
        /// The list.
        list: &'static str,
        /// The number of entries.
        count: usize,
        /// The limit.
        max: usize,
    },
    /// `anyone` beside other conditions.
    #[error("\"anyone\" cannot be combined with other conditions of who: remove one of them")]
    AnyoneAndSomebody,
    /// Both machines and people.
    #[error("nobody is a person and a service token at once: make two rules of it")]
    PersonAndService,
    /// An address outside of the domains.
    #[error("{email} is in none of the email_domains, so nobody could match both: make two rules")]
    EmailOutsideDomains {
        /// The address.
        email: String,
    },
    /// An invalid name of a group or token.
    #[error("{text:?} in {list} is not a valid name: use 1 to 128 bytes without control characters")]
    Entry {
        /// The list.
        list: &'static str,
        /// The text, cut to 64 characters.
        text: String,
    },
    /// Port 0.
    #[error("0 is not a port")]
    Port,
    /// SSH permissions in a rule that denies.
    #[error("ssh cannot be in a rule that denies: denied persons get no certificate")]
    SshOfDenial,
    /// A forced command is malformed.
    #[error("force_command of ssh must be one line of 1 to {MAX_SSH_COMMAND_BYTES} bytes")]
    SshCommand,
    /// A duplicate extension.
    #[error("extensions of ssh has {0} twice")]
    SshTwice(&'static str),
    /// A weekly window is empty.
    #[error("the weekly window from {from} to {to} has no day, or no time in it; a whole day is from 00:00 to 24:00")]
    EmptyWindow {
        /// The start.
        from: String,
        /// Its end.
        to: String,
    },
    /// A weekly window without a time zone.
    #[error("weekly windows need a time_zone, such as Europe/Zurich or UTC")]
    NoZone,
    /// A time zone without a weekly window.
    #[error("time_zone has no effect without weekly windows; not_before and not_after have their own offset")]
    ZoneAlone,
    /// The end is not after the start.
    #[error("not_after ({not_after}) is not later than not_before ({not_before}), so there is no time between them")]
    EndsBeforeItBegins {
        /// The start.
        not_before: String,
        /// The end.
        not_after: String,
    },
    /// The rule has expired.
    #[error("not_after ({not_after}) is in the past, so it applies to nobody: remove or change it")]
    Past {
        /// The end.
        not_after: String,
    },
    /// No window is within the span.
    #[error("none of its weekly windows is between now or not_before and not_after, so it applies to nobody")]
    NoWindowInSpan,
}

impl PolicyRule {
    /// Checks that do not depend on the time.
    pub(crate) fn check_shape(&self) -> Result<(), Flaw> {
        let is_name = |name: &String| {
            !name.trim().is_empty()
                && name.chars().count() <= MAX_RULE_NAME_CHARS
                && !name.chars().any(char::is_control)
        };
        if self.name.as_ref().is_some_and(|name| !is_name(name)) {
            return Err(Flaw::Name);
        }
        if self.who.is_none() && self.from.is_none() && self.when.is_none() && self.what.is_none() {
            return Err(Flaw::NoCondition);
        }
        list("where", &self.from)?;
        self.who.as_ref().map_or(Ok(()), Who::check)?;
        self.when.as_ref().map_or(Ok(()), When::check)?;
        self.ssh.as_ref().map_or(Ok(()), SshGrant::check)?;
        let Some(what) = &self.what else { return Ok(()) };
        if what.methods.is_none() && what.paths.is_none() && what.ports.is_none() {
            return Err(Flaw::EmptyGroup("what"));
        }
        list("methods", &what.methods)?;
        list("paths", &what.paths)?;
        list("ports", &what.ports)?;
        if what.ports.as_ref().is_some_and(|ports| ports.contains(&0)) { Err(Flaw::Port) } else { Ok(()) }
    }

    /// Checks that depend on the time.
    pub(crate) fn check_times(&self, now: i64) -> Result<(), Flaw> {
        let Some(when) = &self.when else { return Ok(()) };
        let Some(not_after) = when.not_after else { return Ok(()) };
        if not_after.unix() <= now {
            return Err(Flaw::Past { not_after: not_after.to_string() });
        }
        let first = when.not_before.map_or(now, |moment| moment.unix().max(now));
        let (Some(weekly), Some(zone)) = (&when.weekly, &when.time_zone) else { return Ok(()) };
        if not_after.unix() - first >= WEEK_SECONDS {
            return Ok(());
        }
        let minutes = Minutes::of(weekly);
        let is_open = |unix: i64| zone.minute_of_week(unix).is_some_and(|minute| minutes.contains(minute));
        // Every minute of at most eight days, and the last second, which may be the only one of its minute.
        let mut at = first;
        while at < not_after.unix() {
            if is_open(at) {
                return Ok(());
            }
            at += MINUTE_SECONDS - at.rem_euclid(MINUTE_SECONDS);
        }
        Err(Flaw::NoWindowInSpan)
    }
}

impl SshGrant {
    fn check(&self) -> Result<(), Flaw> {
        if self.extensions.is_none() && self.force_command.is_none() {
            return Err(Flaw::EmptyGroup("ssh"));
        }
        let extensions = self.extensions.as_deref().unwrap_or_default();
        if let Some(twice) = (1..extensions.len()).find(|at| extensions[..*at].contains(&extensions[*at])) {
            return Err(Flaw::SshTwice(extensions[twice].as_str()));
        }
        let is_command = |command: &String| {
            (1..=MAX_SSH_COMMAND_BYTES).contains(&command.len()) && !command.chars().any(char::is_control)
        };
        if self.force_command.as_ref().is_none_or(is_command) { Ok(()) } else { Err(Flaw::SshCommand) }
    }
}

impl Who {
    fn check(&self) -> Result<(), Flaw> {
        list("emails", &self.emails)?;
        list("email_domains", &self.email_domains)?;
        list("groups", &self.groups)?;
        list("providers", &self.providers)?;
        list("service_tokens", &self.service_tokens)?;
        names("groups", &self.groups)?;
        names("service_tokens", &self.service_tokens)?;
        let (people, services) = (self.is_about_people(), self.service_tokens.is_some());
        if !self.anyone && !people && !services {
            return Err(Flaw::EmptyGroup("who"));
        }
        if self.anyone && (people || services) {
            return Err(Flaw::AnyoneAndSomebody);
        }
        if people && services {
            return Err(Flaw::PersonAndService);
        }
        let (Some(emails), Some(domains)) = (&self.emails, &self.email_domains) else { return Ok(()) };
        let is_outside = |email: &str| !domains.iter().any(|domain| domain.as_str() == email);
        match emails.iter().find(|email| is_outside(email.domain())) {
            Some(email) => Err(Flaw::EmailOutsideDomains { email: email.to_string() }),
            None => Ok(()),
        }
    }
}

impl When {
    fn check(&self) -> Result<(), Flaw> {
        if self.not_before.is_none() && self.not_after.is_none() && self.weekly.is_none() {
            return Err(if self.time_zone.is_some() { Flaw::ZoneAlone } else { Flaw::EmptyGroup("when") });
        }
        if let (Some(not_before), Some(not_after)) = (self.not_before, self.not_after)
            && not_after <= not_before
        {
            let (not_before, not_after) = (not_before.to_string(), not_after.to_string());
            return Err(Flaw::EndsBeforeItBegins { not_before, not_after });
        }
        match (&self.weekly, &self.time_zone) {
            (Some(_), None) => return Err(Flaw::NoZone),
            (None, Some(_)) => return Err(Flaw::ZoneAlone),
            _ => {}
        }
        let Some(weekly) = &self.weekly else { return Ok(()) };
        list_of("weekly", weekly.len(), MAX_WINDOWS)?;
        match weekly.iter().find(|window| window.is_empty()) {
            Some(window) => Err(Flaw::EmptyWindow { from: window.from.to_string(), to: window.to.to_string() }),
            None => Ok(()),
        }
    }
}

fn list<T>(name: &'static str, entries: &Option<Vec<T>>) -> Result<(), Flaw> {
    entries.as_ref().map_or(Ok(()), |entries| list_of(name, entries.len(), MAX_CONDITION_ENTRIES))
}

fn list_of(list: &'static str, count: usize, max: usize) -> Result<(), Flaw> {
    match count {
        0 => Err(Flaw::EmptyList(list)),
        count if count > max => Err(Flaw::TooMany { list, count, max }),
        _ => Ok(()),
    }
}

fn names(list: &'static str, entries: &Option<Vec<String>>) -> Result<(), Flaw> {
    match entries.iter().flatten().find(|entry| !is_group(entry)) {
        Some(bad) => Err(Flaw::Entry { list, text: bad.chars().take(64).collect() }),
        None => Ok(()),
    }
}

impl Document {
    /// Checks that the rules do not deny every client that they allow.
    pub(crate) fn check_not_all_denied(&self) -> Result<(), DocumentError> {
        // A rule that denies every client is useless in any policy.
        let unconditional = PolicyRule::default();
        let denies: Vec<PolicyRule> = self.deny.iter().map(plain).collect();
        // The budget bounds the work, because authors of rules choose the length of lists.
        let budget = Cell::new(MAX_COVER_STEPS);
        let covering = |rule: &PolicyRule| {
            denies.iter().position(|deny| {
                let Some(left) = budget.get().checked_sub(steps(deny, rule)) else { return false };
                budget.set(left);
                covers(deny, rule)
            })
        };
        let deny_name = |at: usize| self.deny[at].called(Effect::Deny, at + 1);
        if let Some(at) = covering(&unconditional) {
            return Err(DocumentError::AllowsNobody { deny: deny_name(at), allow: "every client".to_owned() });
        }
        let mut first = None;
        for (at, rule) in self.allow.iter().flatten().enumerate() {
            let mut last = None;
            let is_covered = is_covered_in_parts(rule, |part| {
                last = covering(part);
                last.is_some()
            });
            match (is_covered, last) {
                (true, Some(deny)) => {
                    first.get_or_insert((deny, rule.called(Effect::Allow, at + 1)));
                }
                _ => return Ok(()),
            }
        }
        match first {
            Some((deny, allow)) => Err(DocumentError::AllowsNobody { deny: deny_name(deny), allow }),
            None => Ok(()),
        }
    }
}

/// Whether the rule has no conditions, so that it applies to every client.
fn plain(rule: &PolicyRule) -> PolicyRule {
    let mut rule = rule.clone();
    rule.from = rule.from.filter(|from| !Ranges::new(networks(from)).cover_everything());
    rule.who = rule.who.filter(|who| !who.anyone);
    if let Some(what) = &mut rule.what {
        what.paths = what.paths.take().filter(|paths| !paths.iter().any(crate::PathPattern::is_everything));
    }
    if let Some(when) = &mut rule.when {
        when.weekly = when.weekly.take().filter(|weekly| !Minutes::of(weekly).is_everything());
    }
    rule
}
