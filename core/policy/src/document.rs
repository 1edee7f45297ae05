//! What people write: the rules of one policy.

use sallyport_model::{EmailDomain, MAX_GROUP_BYTES, PersonEmail, ProviderName};
use serde::{Deserialize, Deserializer, Serialize, de::IgnoredAny};

use crate::{Flaw, Moment, PathPattern, Rule, Window, Zone};

/// The longest document, in bytes of JSON.
pub const MAX_DOCUMENT_BYTES: usize = 32 * 1024;
/// How many rules a document has at most, allowing and denying ones together.
pub const MAX_POLICY_RULES: usize = 100;
/// How many entries one condition has at most.
pub const MAX_CONDITION_ENTRIES: usize = 1_000;
/// How many weekly windows a rule has at most.
pub const MAX_WINDOWS: usize = 50;
/// The longest name of a rule, in characters.
pub const MAX_RULE_NAME_CHARS: usize = 64;
/// The longest command that a rule has ssh run, in bytes.
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
/// Deny wins over allow. A document without `allow` only denies: it lets nobody in by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// Who is let in: whoever one of the rules means.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<PolicyRule>>,
    /// Who is kept out, whatever any policy allows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<PolicyRule>,
}

/// A rule means those of whom all its conditions hold. The entries of one list are alternatives.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyRule {
    /// What it is called where a decision is explained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Who it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<Who>,
    /// Where they come from. What is not known of an address matches no rule about it.
    #[serde(rename = "where", default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub from: Option<Vec<Rule>>,
    /// When it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<When>,
    /// What they ask for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub what: Option<What>,
    /// What an ssh certificate of those allows whom it lets in; no condition. Only of a rule that allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssh: Option<SshGrant>,
}

/// What an ssh certificate allows. What is absent is as the organisation's authority has it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SshGrant {
    /// The extensions; an empty list for none.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub extensions: Option<Vec<SshExtension>>,
    /// The one command that may be run.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "said")]
    pub force_command: Option<String>,
}

/// An extension of ssh certificates (ssh-keygen(1) `-O`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SshExtension {
    /// Programs with windows.
    #[serde(rename = "permit-X11-forwarding")]
    PermitX11Forwarding,
    /// The agent with the keys.
    PermitAgentForwarding,
    /// Ports.
    PermitPortForwarding,
    /// A terminal.
    PermitPty,
    /// The user's own start script.
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

    /// The extension as certificates have it.
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
        Self::ALL
            .into_iter()
            .find(|known| known.as_str() == text)
            .ok_or_else(|| format!("there is no such extension; known are {}", Self::ALL.map(Self::as_str).join(", ")))
    }
}

/// Who somebody is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Who {
    /// Everybody, said so that nobody says it by mistake. With nothing beside it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub anyone: bool,
    /// People by their e-mail addresses.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub emails: Option<Vec<PersonEmail>>,
    /// People by the domains of these. A domain says nothing of those beneath it.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub email_domains: Option<Vec<EmailDomain>>,
    /// People by groups that their provider says, letter by letter.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub groups: Option<Vec<String>>,
    /// People by who vouches for them.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub providers: Option<Vec<ProviderName>>,
    /// Machines by the names of their service tokens.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub service_tokens: Option<Vec<String>>,
}

/// When a rule holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct When {
    /// From when on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Moment>,
    /// Until before when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_after: Option<Moment>,
    /// At which times of the week.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub weekly: Option<Vec<Window>>,
    /// On whose clocks; asked for with `weekly`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<Zone>,
}

/// What somebody asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct What {
    /// HTTP methods, in capitals. `GET` stands for `HEAD`, too.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "methods")]
    pub methods: Option<Vec<String>>,
    /// HTTP paths.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub paths: Option<Vec<PathPattern>>,
    /// Ports by which clients come.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub ports: Option<Vec<u16>>,
}

/// A list that is there, not `null`: nothing must read as "no condition" that was written as one.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<Vec<T>>, D::Error> {
    Vec::deserialize(deserializer).map(Some)
}

/// A text that is there, not `null`.
fn said<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
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
            Err(serde::de::Error::custom(format!("{bad:?} is no HTTP method such as GET or POST")))
        }
        None => Ok(Some(methods.iter().map(|method| method.to_ascii_uppercase()).collect())),
    }
}

/// What a rule does to those whom it means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It lets them in.
    Allow,
    /// It keeps them out.
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

/// The text is no policy that can be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// More than a document may have.
    #[error("the policy has {bytes} bytes and may have {MAX_DOCUMENT_BYTES}: make two of it")]
    TooLong {
        /// How many it has.
        bytes: usize,
    },
    /// It does not read as one.
    #[error("the policy cannot be read: {0}")]
    Syntax(String),
    /// Nothing is in it.
    #[error("the policy has no rule: give at least one under allow or deny")]
    Empty,
    /// The list is there, and nobody is on it.
    #[error(
        "allow is empty, so nobody could meet the policy: give a rule, or leave allow out of a policy that only denies"
    )]
    EmptyAllow,
    /// More rules than a document may have.
    #[error(
        "the policy has {count} rules and may have {MAX_POLICY_RULES}: a rule may list many people, networks and paths"
    )]
    TooManyRules {
        /// How many it has.
        count: usize,
    },
    /// Something is wrong with one rule.
    #[error("{rule}: {flaw}")]
    Rule {
        /// Which: its list and number, and its name where it has one.
        rule: String,
        /// What.
        flaw: Flaw,
    },
    /// Everybody who is allowed is denied.
    #[error(
        "the policy denies everybody whom it allows, so nobody could meet it: {deny} covers {allow}, and deny wins"
    )]
    AllowsNobody {
        /// A rule that denies.
        deny: String,
        /// The rule that allows and that it covers.
        allow: String,
    },
}

/// As much of a document as says whether people are meant.
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
    /// Reads a document, whether or not anybody can still meet it: a rule may have run out since it was written.
    ///
    /// # Errors
    /// When it is no document, goes over a bound, or has a rule that never could mean anybody.
    pub fn parse(json: &str) -> Result<Self, DocumentError> {
        if json.len() > MAX_DOCUMENT_BYTES {
            return Err(DocumentError::TooLong { bytes: json.len() });
        }
        let document: Self = serde_json::from_str(json).map_err(|error| DocumentError::Syntax(error.to_string()))?;
        document.check_shape()?;
        Ok(document)
    }

    /// Whether people are among those whom a document allows something, and not machines alone. Reads no more than that of
    /// what was checked when it was written: at a fraction of what [`Document::parse`] takes, for lists.
    #[must_use]
    pub fn allows_people(json: &str) -> bool {
        let sketch = serde_json::from_str::<Sketch>(json).unwrap_or_default();
        sketch.allow.iter().any(|rule| rule.who.as_ref().is_none_or(|who| who.service_tokens.is_none()))
    }

    /// Whether the document is fit to be written at this time.
    ///
    /// # Errors
    /// As [`Document::parse`]; and when a rule has run out already, or nobody could meet what it allows.
    pub fn check(&self, now_unix: i64) -> Result<(), DocumentError> {
        self.check_shape()?;
        for (effect, number, rule) in self.rules() {
            rule.check_times(now_unix)
                .map_err(|flaw| DocumentError::Rule { rule: rule.called(effect, number), flaw })?;
        }
        self.check_that_somebody_is_left()
    }

    /// The document as JSON, the same for the same rules.
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
    /// How a rule is spoken of: `allow rule 2 ("staff")`.
    pub(crate) fn called(&self, effect: Effect, number: usize) -> String {
        let name = self.name.as_ref().map(|name| format!(" ({name:?})")).unwrap_or_default();
        format!("{} rule {number}{name}", effect.as_str())
    }

    /// Whether it says something of who it is.
    #[must_use]
    pub fn names_somebody(&self) -> bool {
        self.who.as_ref().is_some_and(|who| !who.anyone)
    }

    /// Whether it means people only, by something that is known of them.
    #[must_use]
    pub fn is_about_people(&self) -> bool {
        self.who.as_ref().is_some_and(Who::is_about_people)
    }
}

impl Who {
    /// Whether it means people only, by something that is known of them.
    pub(crate) fn is_about_people(&self) -> bool {
        self.emails.is_some() || self.email_domains.is_some() || self.groups.is_some() || self.providers.is_some()
    }
}

/// Whether the text can be the name of a group.
pub(crate) fn is_group(text: &str) -> bool {
    (1..=MAX_GROUP_BYTES).contains(&text.len()) && !text.chars().any(char::is_control)
}
