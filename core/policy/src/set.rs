//! The compiled policies of one socket, which are evaluated for every request.

use std::{fmt, net::IpAddr};

use sallyport_model::{AttachedPolicy, EmailDomain, IdentitySettings, PersonEmail, SocketRoute};

use crate::{
    Asn, Country, Document, DocumentError, Effect, SshGrant,
    compiled::{Compiled, sorted},
    list::Matcher,
    path::PathView,
};

/// A request to decide about. All fields are borrowed, and verified by the caller.
#[derive(Debug, Clone, Copy)]
pub struct PolicyRequest<'a> {
    /// The time, in seconds since 1970 (UTC).
    pub now_unix: i64,
    /// The client's address.
    pub address: IpAddr,
    /// Its country, if known.
    pub country: Option<Country>,
    /// Its autonomous system, if known.
    pub asn: Option<Asn>,
    /// The person, if one has logged in.
    pub person: Option<PersonView<'a>>,
    /// The name of the service token, if a machine has presented one.
    pub service: Option<&'a str>,
    /// The HTTP method; `None` below HTTP.
    pub method: Option<&'a str>,
    /// The path as received, with or without its query; `None` below HTTP.
    pub path: Option<&'a str>,
    /// The port that the client connected to.
    pub port: u16,
}

/// A person as rules evaluate it.
#[derive(Debug, Clone, Copy)]
pub struct PersonView<'a> {
    /// The verified e-mail address, in the form of [`PersonEmail`].
    pub email: &'a str,
    /// Its domain.
    pub domain: &'a str,
    /// The groups from the provider.
    pub groups: &'a [String],
    /// Whether the provider states groups at all.
    pub groups_stated: bool,
    /// The name of the provider.
    pub provider: &'a str,
}

impl<'a> From<&'a sallyport_model::Person> for PersonView<'a> {
    fn from(person: &'a sallyport_model::Person) -> Self {
        Self {
            email: person.email.as_str(),
            domain: person.email.domain(),
            groups: &person.groups,
            groups_stated: person.groups_stated,
            provider: person.provider.as_str(),
        }
    }
}

/// The persons that a socket's own lists admit.
#[derive(Debug, Clone, Copy, Default)]
pub struct InlineAllow<'a> {
    /// By e-mail address.
    pub emails: &'a [PersonEmail],
    /// By e-mail domain.
    pub domains: &'a [EmailDomain],
}

/// A decision of the policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision<'a> {
    /// Whether the flow is allowed.
    pub allowed: bool,
    /// The reason.
    pub by: DecidedBy<'a>,
}

/// The reason of a decision. As text: `policy "staff", deny rule 2 ("secrets")`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecidedBy<'a> {
    /// A rule of a policy.
    Rule {
        /// The name of the policy.
        policy: &'a str,
        /// The rule: its list and number, and its name, if any.
        rule: &'a str,
        /// The condition that could not be evaluated, if a rule denies because of it.
        unjudged: Option<Condition>,
    },
    /// The socket's own list of addresses.
    Addresses,
    /// The socket's own list of e-mail domains.
    Domains,
    /// No rule allows it.
    NoRule,
    /// A login is required.
    NoIdentity,
    /// The socket has no requirements.
    NothingAsked,
    /// A policy cannot be read, so every client is denied.
    Unreadable,
}

impl fmt::Display for DecidedBy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule { policy, rule, unjudged: None } => write!(f, "policy {policy:?}, {rule}"),
            Self::Rule { policy, rule, unjudged: Some(condition) } => {
                write!(f, "policy {policy:?}, {rule}: unknown {}, so it denies", condition.unknown())
            }
            Self::Addresses => f.write_str("the socket's allowed e-mail addresses"),
            Self::Domains => f.write_str("the socket's allowed e-mail domains"),
            Self::NoRule => f.write_str("no rule allows it"),
            Self::NoIdentity => f.write_str("no login"),
            Self::NothingAsked => f.write_str("the socket has no access requirements"),
            Self::Unreadable => f.write_str("a policy cannot be read"),
        }
    }
}

/// A condition of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// The identity.
    Who,
    /// The address.
    Where,
    /// The time.
    When,
    /// The method.
    Methods,
    /// The path.
    Paths,
    /// The port.
    Ports,
}

impl Condition {
    /// The condition as in documents.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Who => "who",
            Self::Where => "where",
            Self::When => "when",
            Self::Methods => "methods",
            Self::Paths => "paths",
            Self::Ports => "ports",
        }
    }

    /// The unknown fact, for messages.
    fn unknown(self) -> &'static str {
        match self {
            Self::Who => "identity or groups (no login, or the provider states no groups)",
            Self::Where => "location of the address",
            Self::When => "local time",
            Self::Methods => "method of the request",
            Self::Paths => "path of the request",
            Self::Ports => "port of the connection",
        }
    }
}

/// The result of one rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Explained<'a> {
    /// The name of the policy.
    pub policy: &'a str,
    /// The rule: its list and number, and its name, if any.
    pub rule: &'a str,
    /// Its effect.
    pub effect: Effect,
    /// The first condition that does not hold; `None` if the rule matches.
    pub unmet: Option<Condition>,
}

/// A policy that cannot be compiled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("policy {name:?}: {reason}")]
pub struct PolicyError {
    /// The policy's name.
    pub name: String,
    /// The cause.
    #[source]
    pub reason: DocumentError,
}

/// The policies of one socket.
///
/// - A client that matches, or may match, a rule under `deny` is refused, whatever any policy allows. It may match if a
///   property is unknown: the provider states no groups, the country of the address is unknown, there is no path.
/// - If a login is required, a client without an identity is refused.
/// - A client that matches the socket's own lists or a rule under `allow` is admitted.
/// - Any other client is admitted only if the socket has no policies and requires no login.
#[derive(Debug, Clone)]
pub struct PolicySet {
    deny: Box<[Compiled]>,
    allow: Box<[Compiled]>,
    emails: Box<[PersonEmail]>,
    domains: Box<[EmailDomain]>,
    identity_required: bool,
    /// The decision if no rule matches.
    otherwise: Decision<'static>,
    has_paths: bool,
    has_requests: bool,
    has_times: bool,
}

const DENIED: Decision<'static> = Decision { allowed: false, by: DecidedBy::Unreadable };

impl PolicySet {
    /// Compiles policies, given by name and document. Expired rules are included, and never match.
    ///
    /// # Errors
    /// A document cannot be read. The caller must then deny every client: see [`PolicySet::deny_all`].
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
            has_requests: rules().any(Compiled::is_about_requests),
            has_times,
            deny: deny.into_boxed_slice(),
            allow: allow.into_boxed_slice(),
            emails: sorted(inline.emails),
            domains: sorted(inline.domains),
            identity_required,
            otherwise: Decision { allowed: !asks, by },
        })
    }

    /// Compiles the policies and settings of this socket.
    ///
    /// # Errors
    /// As [`PolicySet::compile`].
    pub fn of_route(route: &SocketRoute) -> Result<Self, PolicyError> {
        Self::of(&route.policies, route.settings.identity.as_ref())
    }

    /// Compiles these policies and identity settings.
    ///
    /// # Errors
    /// As [`PolicySet::compile`].
    pub fn of(policies: &[AttachedPolicy], identity: Option<&IdentitySettings>) -> Result<Self, PolicyError> {
        let policies: Vec<_> = policies.iter().map(|policy| (policy.name.as_str(), policy.document.as_str())).collect();
        let inline = identity.map_or_else(InlineAllow::default, |identity| InlineAllow {
            emails: &identity.email_addresses,
            domains: &identity.email_domains,
        });
        Self::compile(&policies, &inline, identity.is_some())
    }

    /// The set that denies every client, for sockets with unreadable policies.
    #[must_use]
    pub fn deny_all() -> Self {
        let none = || Box::new([]) as Box<[Compiled]>;
        let (emails, domains) = (Box::new([]), Box::new([]));
        let (deny, allow) = (none(), none());
        Self {
            deny,
            allow,
            emails,
            domains,
            identity_required: false,
            otherwise: DENIED,
            has_paths: false,
            has_requests: false,
            has_times: false,
        }
    }

    /// Decides. Takes linear time in the number of rules, and logarithmic time in the length of their lists. Allocates
    /// nothing, except for a path that is percent-encoded or has capitals, if a rule has paths.
    #[must_use]
    pub fn decide(&self, question: &PolicyRequest<'_>) -> Decision<'_> {
        let has_identity = question.person.is_some() || question.service.is_some();
        if self.identity_required && !has_identity {
            return Decision { allowed: false, by: DecidedBy::NoIdentity };
        }
        let path = question.path.filter(|_| self.has_paths).map(PathView::of);
        let denied = self.deny.iter().find_map(|rule| Some(rule.decides(rule.ask(question, path.as_ref()).ok()?)));
        if let Some(by) = denied {
            return Decision { allowed: false, by };
        }
        if let Some(person) = &question.person {
            if self.emails.binary_search_by(|email| email.as_str().cmp(person.email)).is_ok() {
                return Decision { allowed: true, by: DecidedBy::Addresses };
            }
            if self.domains.binary_search_by(|domain| domain.as_str().cmp(person.domain)).is_ok() {
                return Decision { allowed: true, by: DecidedBy::Domains };
            }
        }
        match self.allow.iter().find(|rule| rule.means(question, path.as_ref())) {
            Some(rule) => Decision { allowed: true, by: rule.decides(None) },
            None => self.otherwise,
        }
    }

    /// The ssh permissions of the rule that admits this person. `None`: no rule admits, or the rule has none.
    #[must_use]
    pub fn ssh_grant(&self, question: &PolicyRequest<'_>) -> Option<&SshGrant> {
        let decision = self.decide(question);
        if !decision.allowed {
            return None;
        }
        self.allow.iter().find(|rule| rule.decides(None) == decision.by)?.ssh.as_deref()
    }

    /// Every rule, those that deny first, with its first condition that does not hold, as an explanation for people.
    /// The first rule without such a condition decides, unless the socket's own lists decide.
    #[must_use]
    pub fn explain(&self, question: &PolicyRequest<'_>) -> Vec<Explained<'_>> {
        let path = question.path.map(PathView::of);
        let rules = self.deny.iter().chain(&self.allow);
        rules
            .map(|rule| Explained {
                policy: &rule.policy,
                rule: &rule.called,
                effect: rule.effect,
                unmet: rule.ask(question, path.as_ref()).err(),
            })
            .collect()
    }

    /// Whether decisions change with time alone: then open flows are to be evaluated again every few seconds.
    #[must_use]
    pub fn has_times(&self) -> bool {
        self.has_times
    }

    /// Whether decisions depend on the client's country, so that it must be looked up.
    #[must_use]
    pub fn needs_country(&self) -> bool {
        self.places().any(Matcher::needs_country)
    }

    /// Whether decisions depend on the client's autonomous system, so that it must be looked up.
    #[must_use]
    pub fn needs_asn(&self) -> bool {
        self.places().any(Matcher::needs_asn)
    }

    /// Whether every client is admitted: no login and no policies.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.otherwise.allowed && self.deny.is_empty()
    }

    /// Whether any client can be admitted. Without a login all clients are unknown, so only rules without identity
    /// conditions allow, and a rule that denies one person may deny every client.
    #[must_use]
    pub fn can_admit(&self) -> bool {
        if !self.identity_required && self.deny.iter().any(Compiled::denies_all_strangers) {
            return false;
        }
        let inline = self.identity_required && !(self.emails.is_empty() && self.domains.is_empty());
        let by_rule = self.allow.iter().any(|rule| self.identity_required || rule.who.is_unconditional());
        self.otherwise.allowed || inline || by_rule
    }

    /// Whether decisions depend on the method or the path of a request. They must then be those of the request itself,
    /// not of a header field.
    #[must_use]
    pub fn has_requests(&self) -> bool {
        self.has_requests
    }

    /// Whether decisions depend on the client's location.
    #[must_use]
    pub fn has_places(&self) -> bool {
        self.places().next().is_some()
    }

    fn places(&self) -> impl Iterator<Item = &Matcher> {
        self.deny.iter().chain(&self.allow).filter_map(|rule| rule.from.as_ref())
    }
}
