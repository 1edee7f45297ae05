//! Compiled rules, which are evaluated for every request.

use sallyport_model::{EmailDomain, PersonEmail, ProviderName};

use crate::{
    Condition, DecidedBy, Effect, PathPattern, PolicyRequest, PolicyRule, SshGrant, What, When, Who, Zone,
    list::Matcher, path::PathView, times::Minutes,
};

/// A compiled rule.
#[derive(Debug, Clone)]
pub(crate) struct Compiled {
    pub(crate) policy: Box<str>,
    pub(crate) called: Box<str>,
    pub(crate) effect: Effect,
    pub(crate) who: Persons,
    pub(crate) from: Option<Matcher>,
    pub(crate) when: Option<Times>,
    methods: Option<Box<[String]>>,
    pub(crate) paths: Option<Box<[PathPattern]>>,
    ports: Option<Box<[u16]>>,
    pub(crate) ssh: Option<Box<SshGrant>>,
}

/// Sorted lists of persons.
#[derive(Debug, Clone, Default)]
pub(crate) struct Persons {
    emails: Option<Box<[PersonEmail]>>,
    domains: Option<Box<[EmailDomain]>>,
    groups: Option<Box<[String]>>,
    providers: Option<Box<[ProviderName]>>,
    services: Option<Box<[String]>>,
}

/// The times at which a rule applies.
#[derive(Debug, Clone)]
pub(crate) struct Times {
    not_before: i64,
    not_after: i64,
    weekly: Option<(Zone, Minutes)>,
}

/// The entries sorted and without duplicates.
pub(crate) fn sorted<T: Ord + Clone>(entries: &[T]) -> Box<[T]> {
    let mut entries = entries.to_vec();
    entries.sort_unstable();
    entries.dedup();
    entries.into_boxed_slice()
}

fn sorted_list<T: Ord + Clone>(entries: &Option<Vec<T>>) -> Option<Box<[T]>> {
    entries.as_deref().map(sorted)
}

impl Compiled {
    pub(crate) fn new(policy: &str, effect: Effect, number: usize, rule: &PolicyRule) -> Self {
        let nothing = What::default();
        let what = rule.what.as_ref().unwrap_or(&nothing);
        Self {
            policy: policy.into(),
            called: rule.called(effect, number).into(),
            effect,
            who: rule.who.as_ref().map(Persons::new).unwrap_or_default(),
            from: rule.from.as_deref().map(Matcher::new),
            when: rule.when.as_ref().map(Times::new),
            methods: sorted_list(&what.methods),
            paths: what.paths.as_deref().map(|paths| {
                let fold = |path: &PathPattern| if effect == Effect::Deny { path.folded() } else { path.clone() };
                paths.iter().map(fold).collect()
            }),
            ports: sorted_list(&what.ports),
            ssh: rule.ssh.clone().map(Box::new),
        }
    }

    /// Whether the rule has conditions about requests.
    pub(crate) fn is_about_requests(&self) -> bool {
        self.methods.is_some() || self.paths.is_some()
    }

    /// The reason of a decision by this rule; `unjudged`: the condition that could not be evaluated, if any.
    pub(crate) fn decides(&self, unjudged: Option<Condition>) -> DecidedBy<'_> {
        DecidedBy::Rule { policy: &self.policy, rule: &self.called, unjudged }
    }

    pub(crate) fn means(&self, question: &PolicyRequest<'_>, path: Option<&PathView<'_>>) -> bool {
        self.ask(question, path).is_ok()
    }

    /// Evaluates the conditions, cheap ones first. Returns the first that does not hold, or else the first that cannot
    /// be evaluated, if any. A condition that cannot be evaluated counts as true in a rule that denies, and as false in
    /// a rule that allows.
    pub(crate) fn ask(
        &self,
        question: &PolicyRequest<'_>,
        path: Option<&PathView<'_>>,
    ) -> Result<Option<Condition>, Condition> {
        let mut unjudged = None;
        let mut look = |condition, holds: Option<bool>| match holds {
            Some(true) => Ok(()),
            None if self.effect == Effect::Deny => {
                unjudged.get_or_insert(condition);
                Ok(())
            }
            Some(false) | None => Err(condition),
        };
        if let Some(ports) = &self.ports {
            look(Condition::Ports, Some(ports.binary_search(&question.port).is_ok()))?;
        }
        look(Condition::Who, self.who.means(question))?;
        if let Some(methods) = &self.methods {
            look(Condition::Methods, self.means_method(methods, question.method))?;
        }
        if let Some(paths) = &self.paths {
            look(Condition::Paths, self.means_path(paths, path))?;
        }
        if let Some(from) = &self.from {
            look(Condition::Where, from.means(question.address, question.country, question.asn))?;
        }
        if let Some(when) = &self.when {
            look(Condition::When, when.mean(question.now_unix))?;
        }
        Ok(unjudged)
    }

    /// Whether the rule denies everything, or everything with one method or path, while the client has no identity,
    /// because conditions about the identity cannot be evaluated.
    pub(crate) fn denies_all_strangers(&self) -> bool {
        let is_bound = self.ports.is_some() || self.from.is_some() || self.when.is_some();
        self.effect == Effect::Deny && !self.who.is_unconditional() && !is_bound && !self.is_about_requests()
    }

    /// Methods are case-sensitive (RFC 9110 section 9.1), but some programs ignore the case: a denied method is denied
    /// in every spelling.
    fn means_method(&self, methods: &[String], method: Option<&str>) -> Option<bool> {
        let method = method?;
        let is = |wanted: &String| match self.effect {
            Effect::Allow => wanted == method || (wanted == "GET" && method == "HEAD"),
            Effect::Deny => {
                wanted.eq_ignore_ascii_case(method) || (wanted == "GET" && method.eq_ignore_ascii_case("HEAD"))
            }
        };
        Some(methods.iter().any(is))
    }

    /// A path that programs interpret differently may be any path; below HTTP the path is unknown.
    fn means_path(&self, paths: &[PathPattern], path: Option<&PathView<'_>>) -> Option<bool> {
        match (path, self.effect) {
            (None | Some(PathView::Odd), _) => None,
            (Some(PathView::Plain { path, .. }), Effect::Allow) => {
                Some(paths.iter().any(|pattern| pattern.matches(path)))
            }
            (Some(PathView::Plain { path, folded }), Effect::Deny) => {
                let path = folded.as_deref().unwrap_or(path);
                Some(paths.iter().any(|pattern| pattern.matches(path)))
            }
        }
    }
}

impl Persons {
    fn new(who: &Who) -> Self {
        Self {
            emails: sorted_list(&who.emails),
            domains: sorted_list(&who.email_domains),
            groups: sorted_list(&who.groups),
            providers: sorted_list(&who.providers),
            services: sorted_list(&who.service_tokens),
        }
    }

    pub(crate) fn is_unconditional(&self) -> bool {
        self.services.is_none() && !self.are_people()
    }

    fn are_people(&self) -> bool {
        self.emails.is_some() || self.domains.is_some() || self.groups.is_some() || self.providers.is_some()
    }

    /// Whether the client matches; `None` if that is unknown: there is no identity, or the provider does not state
    /// groups.
    fn means(&self, question: &PolicyRequest<'_>) -> Option<bool> {
        if let Some(services) = &self.services {
            let is_named = |name: &str| services.binary_search_by(|service| service.as_str().cmp(name)).is_ok();
            return match (question.service, &question.person) {
                (Some(name), _) => Some(is_named(name)),
                (None, Some(_)) => Some(false),
                (None, None) => None,
            };
        }
        if !self.are_people() {
            return Some(true);
        }
        let Some(person) = &question.person else { return question.service.map(|_| false) };
        let is_in = |name: &String, groups: &[String]| groups.binary_search(name).is_ok();
        let by_group = match &self.groups {
            None => Some(true),
            Some(groups) if person.groups.iter().any(|name| is_in(name, groups)) => Some(true),
            Some(_) => person.groups_stated.then_some(false),
        };
        let by_the_rest =
            self.emails
                .as_ref()
                .is_none_or(|emails| emails.binary_search_by(|email| email.as_str().cmp(person.email)).is_ok())
                && self.domains.as_ref().is_none_or(|domains| {
                    domains.binary_search_by(|domain| domain.as_str().cmp(person.domain)).is_ok()
                })
                && self
                    .providers
                    .as_ref()
                    .is_none_or(|all| all.binary_search_by(|provider| provider.as_str().cmp(person.provider)).is_ok());
        if by_the_rest { by_group } else { Some(false) }
    }
}

impl Times {
    fn new(when: &When) -> Self {
        Self {
            not_before: when.not_before.map_or(i64::MIN, |moment| moment.unix()),
            not_after: when.not_after.map_or(i64::MAX, |moment| moment.unix()),
            weekly: when.time_zone.clone().zip(when.weekly.as_deref().map(Minutes::of)),
        }
    }

    /// Whether the time matches; `None` if no calendar has the time.
    fn mean(&self, now: i64) -> Option<bool> {
        if !(self.not_before..self.not_after).contains(&now) {
            return Some(false);
        }
        let Some((zone, minutes)) = &self.weekly else { return Some(true) };
        zone.minute_of_week(now).map(|minute| minutes.contains(minute))
    }
}
