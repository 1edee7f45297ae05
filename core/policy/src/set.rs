//! The policies that concern one socket, in the form in which they are asked on every arrival.

use std::{fmt, net::IpAddr};

use sallyport_model::{EmailDomain, PersonEmail, SocketRoute};

use crate::{
    Asn, Country, Document, DocumentError, Effect, PathPattern, PolicyRule, What, When, Who, Zone, list::Matcher,
    path::PathView, times::Minutes,
};

/// What somebody wants who has come. All of it is borrowed, and none of it believed from the client: who asks has found
/// it out.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// The time, in seconds since 1970 (UTC).
    pub now_unix: i64,
    /// The client's address.
    pub address: IpAddr,
    /// Its country, when it is known.
    pub country: Option<Country>,
    /// Its autonomous system, when it is known.
    pub asn: Option<Asn>,
    /// The person, when one has logged in.
    pub person: Option<PersonView<'a>>,
    /// The name of the service token, when a machine has shown one.
    pub service: Option<&'a str>,
    /// The HTTP method; none below HTTP.
    pub method: Option<&'a str>,
    /// The path as the client wrote it, with or without its query; none below HTTP.
    pub path: Option<&'a str>,
    /// The port by which the client came.
    pub port: u16,
}

/// A person, as rules see them.
#[derive(Debug, Clone, Copy)]
pub struct PersonView<'a> {
    /// The verified e-mail address, in the form of [`PersonEmail`].
    pub email: &'a str,
    /// Its domain.
    pub domain: &'a str,
    /// The groups that the provider says.
    pub groups: &'a [String],
    /// The name of the provider.
    pub provider: &'a str,
}

impl<'a> From<&'a sallyport_model::Person> for PersonView<'a> {
    fn from(person: &'a sallyport_model::Person) -> Self {
        Self {
            email: person.email.as_str(),
            domain: person.email.domain(),
            groups: &person.groups,
            provider: person.provider.as_str(),
        }
    }
}

/// Whom a socket lets in by its own lists.
#[derive(Debug, Clone, Copy, Default)]
pub struct InlineAllow<'a> {
    /// By address.
    pub emails: &'a [PersonEmail],
    /// By the domain of the address.
    pub domains: &'a [EmailDomain],
}

/// What the policies say of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision<'a> {
    /// Whether the flow may go on.
    pub allowed: bool,
    /// What decided.
    pub by: DecidedBy<'a>,
}

/// What decided. Written out, it reads `policy "staff", deny rule 2 ("secrets")`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecidedBy<'a> {
    /// A rule of a policy.
    Rule {
        /// The name of the policy.
        policy: &'a str,
        /// The rule: its list and number, and its name where it has one.
        rule: &'a str,
    },
    /// The socket's own list of addresses.
    Addresses,
    /// The socket's own list of domains.
    Domains,
    /// No rule allows it.
    NoRule,
    /// Somebody must log in first.
    NoIdentity,
    /// Nothing is asked of anybody.
    NothingAsked,
    /// A policy cannot be read, so nobody may slip through.
    Unreadable,
}

impl fmt::Display for DecidedBy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule { policy, rule } => write!(f, "policy {policy:?}, {rule}"),
            Self::Addresses => f.write_str("the socket's allowed e-mail addresses"),
            Self::Domains => f.write_str("the socket's allowed e-mail domains"),
            Self::NoRule => f.write_str("no rule allows it"),
            Self::NoIdentity => f.write_str("nobody has logged in"),
            Self::NothingAsked => f.write_str("the socket asks nothing of anybody"),
            Self::Unreadable => f.write_str("a policy cannot be read"),
        }
    }
}

/// A policy that edges cannot keep to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("policy {name:?}: {reason}")]
pub struct PolicyError {
    /// The policy.
    pub name: String,
    /// What is wrong with it.
    #[source]
    pub reason: DocumentError,
}

/// The policies that concern one socket.
///
/// - Whoever a rule under `deny` means is kept out, whatever any other policy allows.
/// - When nobody has logged in and the socket asks for it, nobody is let in.
/// - Whoever the socket's own lists or a rule under `allow` mean is let in.
/// - Everybody else is let in only when no policy concerns the socket and it asks for no login.
#[derive(Debug, Clone)]
pub struct PolicySet {
    deny: Box<[Compiled]>,
    allow: Box<[Compiled]>,
    emails: Box<[PersonEmail]>,
    domains: Box<[EmailDomain]>,
    identity_required: bool,
    /// What is said of those of whom no rule says anything.
    otherwise: Decision<'static>,
    has_paths: bool,
    has_times: bool,
}

const NOBODY: Decision<'static> = Decision { allowed: false, by: DecidedBy::Unreadable };

impl PolicySet {
    /// The set of these policies, each with its name and its document. Rules that have run out are in it, and mean
    /// nobody.
    ///
    /// # Errors
    /// When a document cannot be read. Who serves the socket then must let nobody in: see [`PolicySet::nobody`].
    pub fn compile<N: AsRef<str>, D: AsRef<str>>(
        policies: &[(N, D)],
        inline: &InlineAllow<'_>,
        identity_required: bool,
    ) -> Result<Self, PolicyError> {
        let (mut deny, mut allow) = (Vec::new(), Vec::new());
        for (name, document) in policies {
            let name = name.as_ref();
            let document =
                Document::parse(document.as_ref()).map_err(|reason| PolicyError { name: name.to_owned(), reason })?;
            for (effect, number, rule) in document.rules() {
                let side = if effect == Effect::Deny { &mut deny } else { &mut allow };
                side.push(Compiled::new(name, effect, number, rule));
            }
        }
        let asks = identity_required || !policies.is_empty();
        let by = if asks { DecidedBy::NoRule } else { DecidedBy::NothingAsked };
        let rules = || deny.iter().chain(&allow);
        let (has_paths, has_times) =
            (rules().any(|rule| rule.paths.is_some()), rules().any(|rule| rule.when.is_some()));
        Ok(Self {
            has_paths,
            has_times,
            deny: deny.into_boxed_slice(),
            allow: allow.into_boxed_slice(),
            emails: sorted(inline.emails),
            domains: sorted(inline.domains),
            identity_required,
            otherwise: Decision { allowed: !asks, by },
        })
    }

    /// The set of the policies and settings of this socket.
    ///
    /// # Errors
    /// As [`PolicySet::compile`].
    pub fn of_route(route: &SocketRoute) -> Result<Self, PolicyError> {
        let policies: Vec<_> =
            route.policies.iter().map(|policy| (policy.name.as_str(), policy.document.as_str())).collect();
        let inline = route.settings.identity.as_ref().map_or_else(InlineAllow::default, |identity| InlineAllow {
            emails: &identity.email_addresses,
            domains: &identity.email_domains,
        });
        Self::compile(&policies, &inline, route.settings.identity.is_some())
    }

    /// The set that lets nobody in: for sockets whose policies cannot be read.
    #[must_use]
    pub fn nobody() -> Self {
        let none = || Box::new([]) as Box<[Compiled]>;
        let (emails, domains) = (Box::new([]), Box::new([]));
        let (deny, allow) = (none(), none());
        Self {
            deny,
            allow,
            emails,
            domains,
            identity_required: false,
            otherwise: NOBODY,
            has_paths: false,
            has_times: false,
        }
    }

    /// What the policies say. The time goes with the number of rules, and with the logarithm of the length of their
    /// lists. Allocates nothing, save for a path that is percent-encoded where a rule asks for paths.
    #[must_use]
    pub fn decide(&self, question: &Question<'_>) -> Decision<'_> {
        let has_identity = question.person.is_some() || question.service.is_some();
        if self.identity_required && !has_identity {
            return Decision { allowed: false, by: DecidedBy::NoIdentity };
        }
        let path = question.path.filter(|_| self.has_paths).map(PathView::of);
        let rule = |rules: &'_ [Compiled]| rules.iter().position(|rule| rule.means(question, path.as_ref()));
        if let Some(at) = rule(&self.deny) {
            return Decision { allowed: false, by: self.deny[at].name() };
        }
        if let Some(person) = &question.person {
            if self.emails.binary_search_by(|email| email.as_str().cmp(person.email)).is_ok() {
                return Decision { allowed: true, by: DecidedBy::Addresses };
            }
            if self.domains.binary_search_by(|domain| domain.as_str().cmp(person.domain)).is_ok() {
                return Decision { allowed: true, by: DecidedBy::Domains };
            }
        }
        match rule(&self.allow) {
            Some(at) => Decision { allowed: true, by: self.allow[at].name() },
            None => self.otherwise,
        }
    }

    /// Whether answers change with time alone: then flows that are open are to be judged again every few seconds.
    #[must_use]
    pub fn has_times(&self) -> bool {
        self.has_times
    }

    /// Whether an answer depends on the client's country: else it need not be looked up.
    #[must_use]
    pub fn needs_country(&self) -> bool {
        self.places().any(Matcher::needs_country)
    }

    /// Whether an answer depends on the client's autonomous system: else it need not be looked up.
    #[must_use]
    pub fn needs_asn(&self) -> bool {
        self.places().any(Matcher::needs_asn)
    }

    /// Whether nobody has to be asked anything: no login, and no policy.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.otherwise.allowed && self.deny.is_empty()
    }

    /// Whether there is anybody who could be let in. A socket that asks for no login knows nobody, so there only rules
    /// count that say nothing of who it is.
    #[must_use]
    pub fn lets_somebody_in(&self) -> bool {
        let inline = self.identity_required && !(self.emails.is_empty() && self.domains.is_empty());
        let by_rule = self.allow.iter().any(|rule| self.identity_required || rule.who.is_anybody());
        self.otherwise.allowed || inline || by_rule
    }

    fn places(&self) -> impl Iterator<Item = &Matcher> {
        self.deny.iter().chain(&self.allow).filter_map(|rule| rule.from.as_ref())
    }
}

/// A rule that answers quickly.
#[derive(Debug, Clone)]
struct Compiled {
    policy: Box<str>,
    called: Box<str>,
    effect: Effect,
    who: Persons,
    from: Option<Matcher>,
    when: Option<Times>,
    methods: Option<Box<[String]>>,
    paths: Option<Box<[PathPattern]>>,
    ports: Option<Box<[u16]>>,
}

/// Lists of those whom a rule means, sorted.
#[derive(Debug, Clone, Default)]
struct Persons {
    emails: Option<Box<[PersonEmail]>>,
    domains: Option<Box<[EmailDomain]>>,
    groups: Option<Box<[String]>>,
    providers: Option<Box<[sallyport_model::ProviderName]>>,
    services: Option<Box<[String]>>,
}

#[derive(Debug, Clone)]
struct Times {
    not_before: i64,
    not_after: i64,
    weekly: Option<(Zone, Minutes)>,
}

fn sorted<T: Ord + Clone>(entries: &[T]) -> Box<[T]> {
    let mut entries = entries.to_vec();
    entries.sort_unstable();
    entries.dedup();
    entries.into_boxed_slice()
}

fn sorted_list<T: Ord + Clone>(entries: &Option<Vec<T>>) -> Option<Box<[T]>> {
    entries.as_deref().map(sorted)
}

impl Compiled {
    fn new(policy: &str, effect: Effect, number: usize, rule: &PolicyRule) -> Self {
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
            paths: what.paths.as_deref().map(Into::into),
            ports: sorted_list(&what.ports),
        }
    }

    fn name(&self) -> DecidedBy<'_> {
        DecidedBy::Rule { policy: &self.policy, rule: &self.called }
    }

    fn means(&self, question: &Question<'_>, path: Option<&PathView<'_>>) -> bool {
        self.ports.as_ref().is_none_or(|ports| ports.binary_search(&question.port).is_ok())
            && self.who.means(question)
            && self.methods.as_ref().is_none_or(|methods| self.means_method(methods, question.method))
            && self.paths.as_ref().is_none_or(|paths| self.means_path(paths, path))
            && self
                .from
                .as_ref()
                .is_none_or(|from| from.find(question.address, question.country, question.asn).is_some())
            && self.when.as_ref().is_none_or(|when| when.mean(question.now_unix))
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
            (Some(PathView::Plain(path)), effect) => {
                paths.iter().any(|pattern| pattern.matches(path, effect == Effect::Deny))
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

    fn is_anybody(&self) -> bool {
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
