//! What is wrong with a rule that nobody could meet.

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

/// How many comparisons of entries may be spent on looking for denials that cover everything that is allowed.
const MAX_COVER_STEPS: usize = 2_000_000;
const DAY_SECONDS: i64 = 24 * 60 * 60;
const MINUTE_SECONDS: i64 = 60;
/// A span as long as this has every minute of the week in it, wherever clocks are changed.
const WEEK_SECONDS: i64 = 8 * DAY_SECONDS;

/// What is wrong with a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// No condition, and not said that this is meant.
    #[error("it has no condition and so means everybody: write \"who\": {{\"anyone\": true}} if that is meant")]
    NoCondition,
    /// The name is not one.
    #[error("its name is empty, longer than {MAX_RULE_NAME_CHARS} characters, or has control characters")]
    Name,
    /// An empty list.
    #[error("{0} is empty, so nobody could meet it: list something, or leave it out")]
    EmptyList(&'static str),
    /// A group of conditions without a condition.
    #[error("{0} has no condition in it: give one, or leave it out")]
    EmptyGroup(&'static str),
    /// More entries than a condition may have.
    #[error("{list} has {count} entries and may have {max}: make two rules of it")]
    TooMany {
        /// Which list.
        list: &'static str,
        /// How many it has.
        count: usize,
        /// How many it may have.
        max: usize,
    },
    /// `anyone` beside something else.
    #[error("\"anyone\" stands beside other conditions of who it is: take one of them out")]
    AnyoneAndSomebody,
    /// Machines and people at once.
    #[error("nobody is a person and a service token at once: make two rules of it")]
    PersonAndService,
    /// An address outside the domains.
    #[error("{email} is in none of its email_domains, so nobody could be both: make two rules of it")]
    EmailOutsideDomains {
        /// The address.
        email: String,
    },
    /// The name of a group or token that none can have.
    #[error("{text:?} in {list} is no name: use 1 to 128 bytes without control characters")]
    Entry {
        /// Which list.
        list: &'static str,
        /// The text, cut to 64 characters.
        text: String,
    },
    /// Port 0.
    #[error("0 is no port")]
    Port,
    /// What an ssh certificate allows, of those who get none.
    #[error("ssh stands in a rule that denies: whoever it means gets no certificate")]
    SshOfDenial,
    /// A command that cannot be forced.
    #[error("force_command of ssh is one line of 1 to {MAX_SSH_COMMAND_BYTES} bytes")]
    SshCommand,
    /// An extension twice.
    #[error("extensions of ssh has {0} twice")]
    SshTwice(&'static str),
    /// No time is in the window.
    #[error("the weekly window from {from} to {to} has no day, or no time in it; a whole day is from 00:00 to 24:00")]
    EmptyWindow {
        /// Its beginning.
        from: String,
        /// Its end.
        to: String,
    },
    /// A window without a time zone.
    #[error("weekly windows need a time_zone, such as Europe/Zurich or UTC")]
    NoZone,
    /// A time zone for nothing.
    #[error("time_zone says nothing without weekly windows; not_before and not_after have their own offset")]
    ZoneAlone,
    /// The end is not behind the beginning.
    #[error("not_after ({not_after}) is not later than not_before ({not_before}), so there is no time between them")]
    EndsBeforeItBegins {
        /// The beginning.
        not_before: String,
        /// The end.
        not_after: String,
    },
    /// It has run out.
    #[error("not_after ({not_after}) is in the past, so it means nobody any more: take it out or move it")]
    Past {
        /// The end.
        not_after: String,
    },
    /// No window is in the span.
    #[error("none of its weekly windows comes between now or not_before and not_after, so it means nobody")]
    NoWindowInSpan,
}

impl PolicyRule {
    /// What could be said of the rule at any time.
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

    /// What is wrong with the rule at this time.
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
        // Every minute of at most eight days, and the last second: it may be the only one of its minute.
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
    /// Whether somebody is left of those who are allowed.
    pub(crate) fn check_that_somebody_is_left(&self) -> Result<(), DocumentError> {
        // A rule that keeps everybody out whatever there is: nobody has use for it, in whichever policy.
        let everybody = PolicyRule::default();
        let denies: Vec<PolicyRule> = self.deny.iter().map(plain).collect();
        // Long lists are not worth more time than this: whoever writes rules decides how long they are.
        let budget = Cell::new(MAX_COVER_STEPS);
        let covering = |rule: &PolicyRule| {
            denies.iter().position(|deny| {
                let Some(left) = budget.get().checked_sub(steps(deny, rule)) else { return false };
                budget.set(left);
                covers(deny, rule)
            })
        };
        let deny_name = |at: usize| self.deny[at].called(Effect::Deny, at + 1);
        if let Some(at) = covering(&everybody) {
            return Err(DocumentError::AllowsNobody { deny: deny_name(at), allow: "everybody".to_owned() });
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

/// The rule without conditions that everybody meets.
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
