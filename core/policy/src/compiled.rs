//! Rules in the form in which they are asked on every arrival.

use sallyport_model::{EmailDomain, PersonEmail, ProviderName};

use crate::{
    Condition, DecidedBy, Effect, PathPattern, PolicyRule, Question, SshGrant, What, When, Who, Zone, list::Matcher,
    path::PathView, times::Minutes,
};

/// A rule that answers quickly.
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

/// Lists of those whom a rule means, sorted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Persons {
    emails: Option<Box<[PersonEmail]>>,
    domains: Option<Box<[EmailDomain]>>,
    groups: Option<Box<[String]>>,
    providers: Option<Box<[ProviderName]>>,
    services: Option<Box<[String]>>,
}

/// When a rule holds.
#[derive(Debug, Clone)]
pub(crate) struct Times {
    not_before: i64,
    not_after: i64,
    weekly: Option<(Zone, Minutes)>,
}

/// The entries in their order, each once.
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

    /// Whether it is about what a request says of itself.
    pub(crate) fn is_about_requests(&self) -> bool {
        self.methods.is_some() || self.paths.is_some()
    }

    pub(crate) fn name(&self) -> DecidedBy<'_> {
        DecidedBy::Rule { policy: &self.policy, rule: &self.called }
    }

    pub(crate) fn means(&self, question: &Question<'_>, path: Option<&PathView<'_>>) -> bool {
        self.unmet(question, path).is_none()
    }

    /// The first condition that does not hold, those first that are cheap to look at.
    pub(crate) fn unmet(&self, question: &Question<'_>, path: Option<&PathView<'_>>) -> Option<Condition> {
        let ports = self.ports.as_ref().is_none_or(|ports| ports.binary_search(&question.port).is_ok());
        if !ports {
            return Some(Condition::Ports);
        }
        if !self.who.means(question) {
            return Some(Condition::Who);
        }
        if !self.methods.as_ref().is_none_or(|methods| self.means_method(methods, question.method)) {
            return Some(Condition::Methods);
        }
        if !self.paths.as_ref().is_none_or(|paths| self.means_path(paths, path)) {
            return Some(Condition::Paths);
        }
        let find = |from: &Matcher| from.find(question.address, question.country, question.asn).is_some();
        if !self.from.as_ref().is_none_or(find) {
            return Some(Condition::Where);
        }
        if !self.when.as_ref().is_none_or(|when| when.mean(question.now_unix)) {
            return Some(Condition::When);
        }
        None
    }

    /// Methods have a case (RFC 9110 section 9.1), and some programs do not look at it: what is denied is denied in every
    /// spelling.
    fn means_method(&self, methods: &[String], method: Option<&str>) -> bool {
        let Some(method) = method else { return false };
        let is = |wanted: &String| match self.effect {
            Effect::Allow => wanted == method || (wanted == "GET" && method == "HEAD"),
            Effect::Deny => {
                wanted.eq_ignore_ascii_case(method) || (wanted == "GET" && method.eq_ignore_ascii_case("HEAD"))
            }
        };
        methods.iter().any(is)
    }

    /// A path that programs read differently may be each of those that are denied, and none of those that are allowed.
    fn means_path(&self, paths: &[PathPattern], path: Option<&PathView<'_>>) -> bool {
        match (path, self.effect) {
            (None, _) | (Some(PathView::Odd), Effect::Allow) => false,
            (Some(PathView::Odd), Effect::Deny) => true,
            (Some(PathView::Plain { path, .. }), Effect::Allow) => paths.iter().any(|pattern| pattern.matches(path)),
            (Some(PathView::Plain { path, folded }), Effect::Deny) => {
                let path = folded.as_deref().unwrap_or(path);
                paths.iter().any(|pattern| pattern.matches(path))
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

    pub(crate) fn is_anybody(&self) -> bool {
        self.services.is_none() && !self.are_people()
    }

    fn are_people(&self) -> bool {
        self.emails.is_some() || self.domains.is_some() || self.groups.is_some() || self.providers.is_some()
    }

    fn means(&self, question: &Question<'_>) -> bool {
        if let Some(services) = &self.services {
            let is_named = |name: &str| services.binary_search_by(|service| service.as_str().cmp(name)).is_ok();
            return question.service.is_some_and(is_named);
        }
        if !self.are_people() {
            return true;
        }
        let Some(person) = &question.person else { return false };
        let group = |name: &String, groups: &[String]| groups.binary_search(name).is_ok();
        self.emails
            .as_ref()
            .is_none_or(|emails| emails.binary_search_by(|email| email.as_str().cmp(person.email)).is_ok())
            && self
                .domains
                .as_ref()
                .is_none_or(|domains| domains.binary_search_by(|domain| domain.as_str().cmp(person.domain)).is_ok())
            && self.groups.as_ref().is_none_or(|groups| person.groups.iter().any(|name| group(name, groups)))
            && self
                .providers
                .as_ref()
                .is_none_or(|all| all.binary_search_by(|provider| provider.as_str().cmp(person.provider)).is_ok())
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

    fn mean(&self, now: i64) -> bool {
        let in_week =
            |(zone, minutes): &(Zone, Minutes)| zone.minute_of_week(now).is_some_and(|minute| minutes.contains(minute));
        (self.not_before..self.not_after).contains(&now) && self.weekly.as_ref().is_none_or(in_week)
    }
}
