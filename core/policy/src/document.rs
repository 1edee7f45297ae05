//! Policy documents: the rules of one policy, as written by people.

use sallyport_model::{EmailDomain, MAX_GROUP_BYTES, PersonEmail, ProviderName};
use serde::{Deserialize, Deserializer, Serialize, de::IgnoredAny};

use crate::{Flaw, Moment, PathPattern, Rule, Window, Zone};

/// The longest document, in bytes of JSON.
pub const MAX_DOCUMENT_BYTES: usize = 32 * 1024;
/// The most rules of a document, both kinds together.
pub const MAX_POLICY_RULES: usize = 100;
/// The most entries of one condition.
pub const MAX_CONDITION_ENTRIES: usize = 1_000;
/// The most weekly windows of a rule.
pub const MAX_WINDOWS: usize = 50;
/// The longest name of a rule, in characters.
pub const MAX_RULE_NAME_CHARS: usize = 64;
/// The longest forced ssh command of a rule, in bytes.
pub const MAX_SSH_COMMAND_BYTES: usize = 1_024;
/// The longest method, in bytes.
pub const MAX_METHOD_BYTES: usize = 32;

/// The rules of one policy. Written as JSON:
///
/// ```json
/// {
///   "allow": [{
///     "name": "staff, at work",
///     "who": {"email_domains": ["example.com"]},
///     "where": ["country:CH"],
///     "when": {"time_zone": "Europe/Zurich", "weekly": [{"days": ["mon", "fri"], "from": "08:00", "to": "18:00"}]},
///     "what": {"methods": ["GET"], "paths": ["/reports"]}
///   }],
///   "deny": [{"what": {"paths": ["/reports/secret"]}}]
/// }
/// ```
///
/// Deny wins over allow. A document without `allow` only denies, and admits no client by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// Rules that admit: one matching rule is enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<PolicyRule>>,
    /// Rules that refuse, whatever any policy allows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<PolicyRule>,
}

/// A rule matches if all its conditions hold. The entries of one list are alternatives.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyRule {
    /// The name of the rule in explanations of decisions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Conditions about the identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<Who>,
    /// Conditions about the client's address. An unknown property of an address matches no condition about it.
    #[serde(rename = "where", default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub from: Option<Vec<Rule>>,
    /// Conditions about the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<When>,
    /// Conditions about the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub what: Option<What>,
    /// Permissions of ssh certificates of the persons that the rule admits; not a condition. Only in rules that allow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssh: Option<SshGrant>,
}

/// Permissions of an ssh certificate. Absent fields are as configured for the organisation's authority.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SshGrant {
    /// The extensions; an empty list means none.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub extensions: Option<Vec<SshExtension>>,
    /// The forced command, if any.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given_text")]
    pub force_command: Option<String>,
}

/// An extension of ssh certificates (ssh-keygen(1) `-O`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SshExtension {
    /// X11 forwarding.
    #[serde(rename = "permit-X11-forwarding")]
    PermitX11Forwarding,
    /// Agent forwarding.
    PermitAgentForwarding,
    /// Port forwarding.
    PermitPortForwarding,
    /// A terminal.
    PermitPty,
    /// The user's rc file.
    PermitUserRc,
}

impl SshExtension {
    /// Every extension.
    pub const ALL: [Self; 5] = [
        Self::PermitX11Forwarding,
        Self::PermitAgentForwarding,
        Self::PermitPortForwarding,
        Self::PermitPty,
        Self::PermitUserRc,
    ];

    /// The extension as in certificates.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PermitX11Forwarding => "permit-X11-forwarding",
            Self::PermitAgentForwarding => "permit-agent-forwarding",
            Self::PermitPortForwarding => "permit-port-forwarding",
            Self::PermitPty => "permit-pty",
            Self::PermitUserRc => "permit-user-rc",
        }
    }
}

impl std::str::FromStr for SshExtension {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|known| known.as_str() == text).ok_or_else(|| {
            format!("there is no such extension: expected one of {}", Self::ALL.map(Self::as_str).join(", "))
        })
    }
}

/// Conditions about the identity.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Who {
    /// Everybody, stated explicitly. Cannot be combined with other fields.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub anyone: bool,
    /// Persons by e-mail address.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub emails: Option<Vec<PersonEmail>>,
    /// Persons by e-mail domain, without subdomains.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub email_domains: Option<Vec<EmailDomain>>,
    /// Persons by groups of their provider, compared exactly.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub groups: Option<Vec<String>>,
    /// Persons by identity provider.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub providers: Option<Vec<ProviderName>>,
    /// Machines by the names of their service tokens.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub service_tokens: Option<Vec<String>>,
}

/// Conditions about the time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct When {
    /// Start, inclusive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Moment>,
    /// End, exclusive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_after: Option<Moment>,
    /// Weekly windows.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub weekly: Option<Vec<Window>>,
    /// The time zone of the windows; required with `weekly`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<Zone>,
}

/// Conditions about the request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct What {
    /// HTTP methods, in capitals. `GET` includes `HEAD`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "methods")]
    pub methods: Option<Vec<String>>,
    /// HTTP paths.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub paths: Option<Vec<PathPattern>>,
    /// Ports that clients connect to.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub ports: Option<Vec<u16>>,
}

/// A list that is present and not `null`: `null` must not read as "no condition".
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<Vec<T>>, D::Error> {
    Vec::deserialize(deserializer).map(Some)
}

/// A text that is present and not `null`.
fn given_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    String::deserialize(deserializer).map(Some)
}

fn methods<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<String>>, D::Error> {
    let methods = Vec::<String>::deserialize(deserializer)?;
    let token = |method: &String| {
        let is_letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'-' || byte == b'_';
        (1..=MAX_METHOD_BYTES).contains(&method.len()) && method.bytes().all(is_letter)
    };
    match methods.iter().find(|method| !token(method)) {
        Some(bad) => {
            let bad: String = bad.chars().take(MAX_METHOD_BYTES).collect();
            Err(serde::de::Error::custom(format!("{bad:?} is not an HTTP method such as GET or POST")))
        }
        None => Ok(Some(methods.iter().map(|method| method.to_ascii_uppercase()).collect())),
    }
}

/// The effect of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Admit.
    Allow,
    /// Refuse.
    Deny,
}

impl Effect {
    /// `allow` or `deny`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}

/// Reason why a policy document is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// The document is too long.
    #[error("the policy has {bytes} bytes and may have {MAX_DOCUMENT_BYTES}: split it")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// The document cannot be parsed.
    #[error("the policy cannot be read: {0}")]
    Syntax(String),
    /// There are no rules.
    #[error("the policy has no rule: give at least one under allow or deny")]
    Empty,
    /// `allow` is present but empty.
    #[error(
        "allow is empty, so nobody could meet the policy: give a rule, or leave allow out of a policy that only denies"
    )]
    EmptyAllow,
    /// There are too many rules.
    #[error(
        "the policy has {count} rules and may have {MAX_POLICY_RULES}: a rule may list many people, networks and paths"
    )]
    TooManyRules {
        /// The number of rules.
        count: usize,
    },
    /// A rule is invalid.
    #[error("{rule}: {flaw}")]
    Rule {
        /// The rule: its list, number, and name, if any.
        rule: String,
        /// The defect.
        flaw: Flaw,
    },
    /// The denials cover everything that is allowed.
    #[error("the policy denies every client that it allows: {deny} covers {allow}, and deny wins")]
    AllowsNobody {
        /// The rule that denies.
        deny: String,
        /// The covered rule that allows.
        allow: String,
    },
}

/// The part of a document that shows whether persons can be admitted.
#[derive(Default, Deserialize)]
struct Sketch {
    #[serde(default)]
    allow: Vec<SketchedRule>,
}

#[derive(Deserialize)]
struct SketchedRule {
    who: Option<SketchedWho>,
}

#[derive(Deserialize)]
struct SketchedWho {
    service_tokens: Option<IgnoredAny>,
}

impl Document {
    /// Parses a document. Expired rules are accepted, because they may have expired since it was written.
    ///
    /// # Errors
    /// It is malformed, exceeds a limit, or has a rule that could never match.
    pub fn parse(json: &str) -> Result<Self, DocumentError> {
        if json.len() > MAX_DOCUMENT_BYTES {
            return Err(DocumentError::TooLong { bytes: json.len() });
        }
        let document: Self = serde_json::from_str(json).map_err(|error| DocumentError::Syntax(error.to_string()))?;
        document.check_shape()?;
        Ok(document)
    }

    /// Whether the document can admit persons, and not only machines. Reads only what this needs, in a fraction of the
    /// time of [`Document::parse`], for listings.
    #[must_use]
    pub fn allows_people(json: &str) -> bool {
        let sketch = serde_json::from_str::<Sketch>(json).unwrap_or_default();
        sketch.allow.iter().any(|rule| rule.who.as_ref().is_none_or(|who| who.service_tokens.is_none()))
    }

    /// Checks that the document may be stored at this time.
    ///
    /// # Errors
    /// As [`Document::parse`]; also if a rule has expired already, or its allow rules can admit no client.
    pub fn check(&self, now_unix: i64) -> Result<(), DocumentError> {
        self.check_shape()?;
        for (effect, number, rule) in self.rules() {
            rule.check_times(now_unix)
                .map_err(|flaw| DocumentError::Rule { rule: rule.called(effect, number), flaw })?;
        }
        self.check_not_all_denied()
    }

    /// The document as normalised JSON, equal for equal rules.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The rules, those that deny first, each with its number from 1.
    pub fn rules(&self) -> impl Iterator<Item = (Effect, usize, &PolicyRule)> {
        let numbered = |effect| move |(at, rule)| (effect, at + 1, rule);
        let deny = self.deny.iter().enumerate().map(numbered(Effect::Deny));
        deny.chain(self.allow.iter().flatten().enumerate().map(numbered(Effect::Allow)))
    }

    fn check_shape(&self) -> Result<(), DocumentError> {
        if self.allow.as_ref().is_some_and(Vec::is_empty) {
            return Err(DocumentError::EmptyAllow);
        }
        let count = self.rules().count();
        if count == 0 {
            return Err(DocumentError::Empty);
        }
        if count > MAX_POLICY_RULES {
            return Err(DocumentError::TooManyRules { count });
        }
        for (effect, number, rule) in self.rules() {
            if rule.ssh.is_some() && effect == Effect::Deny {
                return Err(DocumentError::Rule { rule: rule.called(effect, number), flaw: Flaw::SshOfDenial });
            }
            rule.check_shape().map_err(|flaw| DocumentError::Rule { rule: rule.called(effect, number), flaw })?;
        }
        Ok(())
    }
}

impl PolicyRule {
    /// The rule in messages: `allow rule 2 ("staff")`.
    pub(crate) fn called(&self, effect: Effect, number: usize) -> String {
        let name = self.name.as_ref().map(|name| format!(" ({name:?})")).unwrap_or_default();
        format!("{} rule {number}{name}", effect.as_str())
    }

    /// Whether the rule has conditions about the identity.
    #[must_use]
    pub fn has_identity_conditions(&self) -> bool {
        self.who.as_ref().is_some_and(|who| !who.anyone)
    }

    /// Whether the rule matches only persons, by a known property.
    #[must_use]
    pub fn is_about_people(&self) -> bool {
        self.who.as_ref().is_some_and(Who::is_about_people)
    }
}

impl Who {
    /// Whether the conditions match only persons, by a known property.
    pub(crate) fn is_about_people(&self) -> bool {
        self.emails.is_some() || self.email_domains.is_some() || self.groups.is_some() || self.providers.is_some()
    }
}

/// Whether the text is a valid name of a group.
pub(crate) fn is_group(text: &str) -> bool {
    (1..=MAX_GROUP_BYTES).contains(&text.len()) && !text.chars().any(char::is_control)
}
