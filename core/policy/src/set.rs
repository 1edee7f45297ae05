//! The policies that concern one socket, in the form in which they are asked on every arrival.

use std::{fmt, net::IpAddr};

use sallyport_model::{AttachedPolicy, EmailDomain, IdentitySettings, PersonEmail, SocketRoute};

use crate::{
    Asn, Country, Document, DocumentError, Effect, SshGrant,
    compiled::{Compiled, sorted},
    list::Matcher,
    path::PathView,
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
    /// Whether it states groups at all.
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
        /// The condition of which nobody can tell whether it holds, where a rule denies for that.
        unjudged: Option<Condition>,
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
            Self::Rule { policy, rule, unjudged: None } => write!(f, "policy {policy:?}, {rule}"),
            Self::Rule { policy, rule, unjudged: Some(condition) } => {
                write!(f, "policy {policy:?}, {rule}: it cannot be told {}, so it denies", condition.unknown())
            }
            Self::Addresses => f.write_str("the socket's allowed e-mail addresses"),
            Self::Domains => f.write_str("the socket's allowed e-mail domains"),
            Self::NoRule => f.write_str("no rule allows it"),
            Self::NoIdentity => f.write_str("nobody has logged in"),
            Self::NothingAsked => f.write_str("the socket asks nothing of anybody"),
            Self::Unreadable => f.write_str("a policy cannot be read"),
        }
    }
}

/// A condition of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// Who it is.
    Who,
    /// Where they come from.
    Where,
    /// When it is.
    When,
    /// Which method they use.
    Methods,
    /// Which path they ask for.
    Paths,
    /// By which port they come.
    Ports,
}

impl Condition {
    /// The condition as documents have it.
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

    /// What is not known where nobody can tell whether it holds.
    fn unknown(self) -> &'static str {
        match self {
            Self::Who => "whether it means who came (nobody is known, or the provider states no groups)",
            Self::Where => "where the address is",
            Self::When => "what time it is there",
            Self::Methods => "by which method this is asked",
            Self::Paths => "which path this asks for",
            Self::Ports => "by which port this came",
        }
    }
}

/// What became of one rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Explained<'a> {
    /// The name of the policy.
    pub policy: &'a str,
    /// The rule: its list and number, and its name where it has one.
    pub rule: &'a str,
    /// What it does.
    pub effect: Effect,
    /// The first condition that does not hold; None when the rule means the question.
    pub unmet: Option<Condition>,
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
/// - Whoever a rule under `deny` means is kept out, whatever any other policy allows; and so is whoever it may mean, where
///   nobody can tell: the provider states no groups, the country of the address is not known, there is no path.
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
    has_requests: bool,
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

    /// The set of the policies and settings of this socket.
    ///
    /// # Errors
    /// As [`PolicySet::compile`].
    pub fn of_route(route: &SocketRoute) -> Result<Self, PolicyError> {
        Self::of(&route.policies, route.settings.identity.as_ref())
    }

    /// The set of a socket that these policies concern, and that asks this of those who come.
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
            has_requests: false,
            has_times: false,
        }
    }

    /// What the policies say. The time goes with the number of rules, and with the logarithm of the length of their
    /// lists. Allocates nothing, save for a
    /// path that is percent-encoded or has capitals, where a rule asks for paths.
    #[must_use]
    pub fn decide(&self, question: &Question<'_>) -> Decision<'_> {
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

    /// What an ssh certificate of the person allows who asks this and is let in: as the rule says that lets them in. `None`:
    /// no rule does, or it says nothing of that.
    #[must_use]
    pub fn ssh_grant(&self, question: &Question<'_>) -> Option<&SshGrant> {
        let decision = self.decide(question);
        if !decision.allowed {
            return None;
        }
        self.allow.iter().find(|rule| rule.decides(None) == decision.by)?.ssh.as_deref()
    }

    /// Every rule, those that deny first, with the first of its conditions that does not hold: for people who want to know
    /// why. The rule that decides is the first of which all hold, unless the socket's own lists decide.
    #[must_use]
    pub fn explain(&self, question: &Question<'_>) -> Vec<Explained<'_>> {
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
    /// allow that say nothing of who it is, and a rule that denies somebody may mean everybody.
    #[must_use]
    pub fn lets_somebody_in(&self) -> bool {
        if !self.identity_required && self.deny.iter().any(Compiled::denies_all_strangers) {
            return false;
        }
        let inline = self.identity_required && !(self.emails.is_empty() && self.domains.is_empty());
        let by_rule = self.allow.iter().any(|rule| self.identity_required || rule.who.is_anybody());
        self.otherwise.allowed || inline || by_rule
    }

    /// Whether an answer depends on the method or the path of a request. What follows a request must then take both as they
    /// are, and not as a header field says.
    #[must_use]
    pub fn has_requests(&self) -> bool {
        self.has_requests
    }

    /// Whether an answer depends on where the client comes from.
    #[must_use]
    pub fn has_places(&self) -> bool {
        self.places().next().is_some()
    }

    fn places(&self) -> impl Iterator<Item = &Matcher> {
        self.deny.iter().chain(&self.allow).filter_map(|rule| rule.from.as_ref())
    }
}
