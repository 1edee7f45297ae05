//! The configuration of identity providers.

use std::{fmt, net::IpAddr, str::FromStr};

use serde::{Deserialize, Serialize};

/// The longest issuer, in bytes.
pub const MAX_ISSUER_BYTES: usize = 512;
/// The longest client id, in bytes.
pub const MAX_CLIENT_ID_BYTES: usize = 512;
/// The longest client secret, in bytes.
pub const MAX_CLIENT_SECRET_BYTES: usize = 1_024;
/// The most additional scopes.
pub const MAX_PROVIDER_SCOPES: usize = 20;
/// The longest scope or name of a claim, in bytes.
pub const MAX_SCOPE_BYTES: usize = 128;
/// The most PEM of a provider's own CAs, in bytes.
pub const MAX_PROVIDER_CA_BYTES: usize = 32_768;

/// Default interval of checking logins at the provider, in minutes.
pub const DEFAULT_CHECK_MINUTES: u16 = 5;
/// The longest such interval, in minutes.
pub const MAX_CHECK_MINUTES: u16 = 1_440;
/// The longest URL of a hook, in bytes.
pub const MAX_HOOK_URL_BYTES: usize = 512;
/// The shortest secret of a hook, in bytes: a guessable secret would make signatures worthless.
pub const MIN_HOOK_SECRET_BYTES: usize = 16;

/// The protocol of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProviderKind {
    /// OpenID Connect, discovered by its issuer.
    Oidc,
    /// Google accounts.
    Google,
    /// Microsoft Entra ID, one tenant.
    Microsoft,
    /// GitHub: OAuth 2.0 and GitHub's API.
    Github,
    /// Facebook: OAuth 2.0 and the Graph API.
    Facebook,
    /// Persons whose passwords are stored in this installation.
    Local,
}

/// The text is not a kind of provider.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no kind of provider: known are oidc, google, microsoft, github, facebook and local")]
pub struct UnknownProviderKind(pub String);

impl ProviderKind {
    /// All kinds.
    pub const ALL: [Self; 6] = [Self::Oidc, Self::Google, Self::Microsoft, Self::Github, Self::Facebook, Self::Local];

    /// The kind as text.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Oidc => "oidc",
            Self::Google => "google",
            Self::Microsoft => "microsoft",
            Self::Github => "github",
            Self::Facebook => "facebook",
            Self::Local => "local",
        }
    }

    /// Whether it speaks OpenID Connect, with discovery and signed tokens.
    #[must_use]
    pub fn is_oidc(self) -> bool {
        matches!(self, Self::Oidc | Self::Google | Self::Microsoft)
    }
}

impl fmt::Display for ProviderKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for ProviderKind {
    type Err = UnknownProviderKind;
    fn from_str(text: &str) -> Result<Self, UnknownProviderKind> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.as_str() == text)
            .ok_or_else(|| UnknownProviderKind(text.chars().take(64).collect()))
    }
}

/// The configuration of a provider, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderConfig {
    /// The protocol.
    pub kind: ProviderKind,
    /// The issuer of `oidc`; for `microsoft`, `github` and `facebook` another host than the usual one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// The tenant's id; only for `microsoft`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The client id of this installation; empty for `local`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub client_id: String,
    /// Scopes that are requested in addition to the usual ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// The claim with a person's groups: its name, or a JSON pointer (RFC 6901) into the claims.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups_claim: Option<String>,
    /// Whether to accept an address whose verification the provider does not state. An address stated as unverified is
    /// never accepted.
    #[serde(default)]
    pub trust_email: bool,
    /// CAs in PEM for the provider's certificate, instead of the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_pem: Option<String>,
    /// URL that sends messages to persons: links are posted to it. Only for `local`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<String>,
    /// Whether persons need one-time codes in addition to their passwords. Only for `local`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub require_totp: bool,
    /// Interval of checking logins at the provider, in minutes, if it gave tokens for that; 0: never. Default:
    /// [`DEFAULT_CHECK_MINUTES`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check_minutes: Option<u16>,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// A field of a provider is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct ProviderConfigError {
    /// The field.
    pub field: &'static str,
    /// The problem and the remedy.
    pub reason: String,
}

fn wrong<T>(field: &'static str, reason: impl Into<String>) -> Result<T, ProviderConfigError> {
    Err(ProviderConfigError { field, reason: reason.into() })
}

impl ProviderConfig {
    /// Whether it provides groups of persons.
    #[must_use]
    pub fn states_groups(&self) -> bool {
        self.kind == ProviderKind::Local || self.groups_claim.is_some()
    }

    /// Interval of checking logins at the provider, in seconds; `None`: never.
    #[must_use]
    pub fn check_seconds(&self) -> Option<i64> {
        let minutes = self.check_minutes.unwrap_or(DEFAULT_CHECK_MINUTES);
        (self.kind.is_oidc() && minutes > 0).then_some(i64::from(minutes) * 60)
    }

    /// Checks the configuration, without contacting the provider.
    ///
    /// # Errors
    /// The first invalid field.
    pub fn check(&self) -> Result<(), ProviderConfigError> {
        let kind = self.kind;
        if kind == ProviderKind::Local {
            return self.check_local();
        }
        if self.hook.is_some() {
            return wrong("hook", "only a provider of kind local has one: leave it out");
        }
        if self.require_totp {
            return wrong("require_totp", "only a provider of kind local asks for codes: leave it out");
        }
        match (&self.issuer, kind) {
            (None, ProviderKind::Oidc) => {
                return wrong("issuer", "a provider of kind oidc needs its issuer, such as https://id.example.com");
            }
            (Some(_), ProviderKind::Google) => {
                return wrong("issuer", format!("a provider of kind {kind} has none: leave it out"));
            }
            (Some(issuer), _) => check_issuer(issuer)?,
            (None, _) => {}
        }
        match (&self.tenant, kind) {
            (Some(tenant), ProviderKind::Microsoft) if uuid::Uuid::try_parse(tenant).is_ok() => {}
            (_, ProviderKind::Microsoft) => {
                let reason = "the id of one tenant is needed, such as 8eaef023-2b34-4da1-9baa-8bc8c9d6a490: with \
                              `common` anybody's tenant could vouch for anybody";
                return wrong("tenant", reason);
            }
            (Some(_), _) => return wrong("tenant", "only a provider of kind microsoft has one: leave it out"),
            (None, _) => {}
        }
        let is_word = |text: &str, max: usize| {
            (1..=max).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
        };
        if !is_word(&self.client_id, MAX_CLIENT_ID_BYTES) {
            let reason = format!(
                "the client id that the provider gave is needed: 1 to {MAX_CLIENT_ID_BYTES} visible characters"
            );
            return wrong("client_id", reason);
        }
        if self.scopes.len() > MAX_PROVIDER_SCOPES || !self.scopes.iter().all(|scope| is_word(scope, MAX_SCOPE_BYTES)) {
            let reason = format!("at most {MAX_PROVIDER_SCOPES} words of 1 to {MAX_SCOPE_BYTES} visible characters");
            return wrong("scopes", reason);
        }
        match &self.groups_claim {
            Some(_) if !kind.is_oidc() => {
                return wrong("groups_claim", format!("a provider of kind {kind} has no claims: leave it out"));
            }
            Some(claim) if !is_word(claim, MAX_SCOPE_BYTES) => {
                return wrong(
                    "groups_claim",
                    format!("the name of a claim has 1 to {MAX_SCOPE_BYTES} visible characters"),
                );
            }
            _ => {}
        }
        if self.check_minutes.is_some() && !kind.is_oidc() {
            return wrong("check_minutes", format!("a provider of kind {kind} cannot be asked: leave it out"));
        }
        if self.check_minutes.is_some_and(|minutes| minutes > MAX_CHECK_MINUTES) {
            return wrong("check_minutes", format!("give at most {MAX_CHECK_MINUTES} minutes; 0: never"));
        }
        if kind == ProviderKind::Facebook && !self.trust_email {
            let reason = "facebook does not say whether an address is verified: say that its addresses are to be \
                          believed (trust_email), or use another provider";
            return wrong("trust_email", reason);
        }
        self.check_ca()
    }

    /// A local provider contacts no other machine, so connection settings are invalid.
    fn check_local(&self) -> Result<(), ProviderConfigError> {
        let leave_out = "a provider of kind local contacts no other machine: leave it out";
        let there = [
            ("issuer", self.issuer.is_some()),
            ("tenant", self.tenant.is_some()),
            ("client_id", !self.client_id.is_empty()),
            ("scopes", !self.scopes.is_empty()),
            ("groups_claim", self.groups_claim.is_some()),
            ("trust_email", self.trust_email),
            ("check_minutes", self.check_minutes.is_some()),
        ];
        if let Some((field, _)) = there.into_iter().find(|(_, is_there)| *is_there) {
            return wrong(field, leave_out);
        }
        match &self.hook {
            Some(hook) => check_hook(hook)?,
            None if self.ca_pem.is_some() => {
                return wrong("ca_pem", "it is for a hook, and there is none: leave it out");
            }
            None => {}
        }
        self.check_ca()
    }

    fn check_ca(&self) -> Result<(), ProviderConfigError> {
        match &self.ca_pem {
            Some(pem) if pem.len() > MAX_PROVIDER_CA_BYTES || !pem.contains("-----BEGIN CERTIFICATE-----") => {
                wrong("ca_pem", format!("certificates in PEM are needed, of at most {MAX_PROVIDER_CA_BYTES} bytes"))
            }
            _ => Ok(()),
        }
    }

    /// The issuer for discovery and for the `iss` of tokens (OpenID Connect Core 1.0 section 3.1.3.7), if it speaks
    /// OpenID Connect.
    #[must_use]
    pub fn oidc_issuer(&self) -> Option<String> {
        match self.kind {
            ProviderKind::Oidc => self.issuer.clone(),
            ProviderKind::Google => Some("https://accounts.google.com".to_owned()),
            ProviderKind::Microsoft => {
                let place = self.issuer.as_deref().unwrap_or("https://login.microsoftonline.com");
                Some(format!("{}/{}/v2.0", place.trim_end_matches('/'), self.tenant.as_deref()?.to_ascii_lowercase()))
            }
            ProviderKind::Github | ProviderKind::Facebook | ProviderKind::Local => None,
        }
    }
}

/// Whether the host is this machine.
#[must_use]
pub fn is_loopback_host(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || host.ends_with(".localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

fn check_issuer(issuer: &str) -> Result<(), ProviderConfigError> {
    if issuer.contains('?') {
        return wrong("issuer", NO_ADDRESS);
    }
    check_address("issuer", issuer, MAX_ISSUER_BYTES)
}

fn check_hook(hook: &str) -> Result<(), ProviderConfigError> {
    check_address("hook", hook, MAX_HOOK_URL_BYTES)
}

const NO_ADDRESS: &str = "it must be an address such as https://id.example.com";

fn check_address(field: &'static str, address: &str, max_bytes: usize) -> Result<(), ProviderConfigError> {
    if address.len() > max_bytes || !address.bytes().all(|byte| byte.is_ascii_graphic()) {
        return wrong(field, NO_ADDRESS);
    }
    let (rest, is_plain) = match (address.strip_prefix("https://"), address.strip_prefix("http://")) {
        (Some(rest), _) => (rest, false),
        (None, Some(rest)) => (rest, true),
        (None, None) => return wrong(field, "it must begin with https://"),
    };
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let is_host = !host.is_empty()
        && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._[]:".contains(&byte))
        && (host.starts_with('[') || !host.contains([':', '[', ']']));
    let is_port = port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port != 0));
    if !is_host || !is_port || rest.contains(['#', '\\', '@', '"', '<', '>']) {
        return wrong(field, NO_ADDRESS);
    }
    if is_plain && !is_loopback_host(host) {
        return wrong(field, "it must begin with https://, because an eavesdropper could read the secret");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn oidc(issuer: &str) -> ProviderConfig {
        ProviderConfig {
            kind: ProviderKind::Oidc,
            issuer: Some(issuer.to_owned()),
            tenant: None,
            client_id: "sallyport".to_owned(),
            scopes: Vec::new(),
            groups_claim: None,
            trust_email: false,
            ca_pem: None,
            hook: None,
            require_totp: false,
            check_minutes: None,
        }
    }

    fn wrong_field(config: ProviderConfig) -> &'static str {
        config.check().expect_err("refused").field
    }

    #[test]
    fn an_issuer_is_https_or_on_this_machine() {
        for good in [
            "https://id.example.com",
            "https://id.example.com:8443/realms/a",
            "http://127.0.0.1:5556/dex",
            "http://[::1]:5556",
            "http://localhost:1/",
        ] {
            assert_eq!(oidc(good).check(), Ok(()), "{good}");
        }
        for bad in [
            "",
            "id.example.com",
            "http://id.example.com",
            "http://127.0.0.1.evil.test",
            "http://localhost@evil.test",
            "ftp://localhost",
            "https://",
            "https://a b",
            "https://a?x=1",
            "https://a#b",
            "https://a:0",
            "https://a:99999",
            "https://a\\b",
            "https://\u{430}.com",
        ] {
            assert_eq!(oidc(bad).check().map_err(|error| error.field), Err("issuer"), "{bad}");
        }
    }

    #[test]
    fn each_kind_has_its_own_settings_and_no_others() {
        let none = ProviderConfig { issuer: None, ..oidc("") };
        assert_eq!(wrong_field(none.clone()), "issuer");
        let google = ProviderConfig { kind: ProviderKind::Google, ..none.clone() };
        assert_eq!(google.check(), Ok(()));
        assert_eq!(wrong_field(ProviderConfig { kind: ProviderKind::Google, ..oidc("https://a.example") }), "issuer");
        for tenant in [None, Some("common".to_owned()), Some("example.com".to_owned())] {
            assert_eq!(wrong_field(ProviderConfig { kind: ProviderKind::Microsoft, tenant, ..none.clone() }), "tenant");
        }
        let tenant = Some("8EAEF023-2b34-4da1-9baa-8bc8c9d6a490".to_owned());
        let microsoft = ProviderConfig { kind: ProviderKind::Microsoft, tenant, ..none.clone() };
        assert_eq!(microsoft.check(), Ok(()));
        let issuer = "https://login.microsoftonline.com/8eaef023-2b34-4da1-9baa-8bc8c9d6a490/v2.0";
        assert_eq!(microsoft.oidc_issuer().as_deref(), Some(issuer));
        let facebook = ProviderConfig { kind: ProviderKind::Facebook, ..none.clone() };
        assert_eq!(wrong_field(facebook.clone()), "trust_email");
        assert_eq!(ProviderConfig { trust_email: true, ..facebook }.check(), Ok(()));
        let github = ProviderConfig { kind: ProviderKind::Github, groups_claim: Some("g".into()), ..none.clone() };
        assert_eq!(wrong_field(github), "groups_claim");
        assert_eq!(wrong_field(ProviderConfig { client_id: "a b".into(), ..oidc("https://a.example") }), "client_id");
        assert_eq!(wrong_field(ProviderConfig { scopes: vec!["a b".into()], ..oidc("https://a.example") }), "scopes");
        assert_eq!(wrong_field(ProviderConfig { ca_pem: Some("x".into()), ..oidc("https://a.example") }), "ca_pem");
    }

    #[test]
    fn a_local_provider_has_a_hook_and_nothing_of_others() {
        let none = ProviderConfig {
            kind: ProviderKind::Local,
            issuer: None,
            client_id: String::new(),
            ..oidc("https://a.example")
        };
        assert_eq!(none.check(), Ok(()));
        for hook in ["https://mail.example/hook?for=x", "http://127.0.0.1:5000/"] {
            assert_eq!(ProviderConfig { hook: Some(hook.into()), ..none.clone() }.check(), Ok(()), "{hook}");
        }
        for hook in
            ["http://mail.example/", "mail.example", "https://a@b.example/", "https://b.example/#x", "https://?x"]
        {
            assert_eq!(wrong_field(ProviderConfig { hook: Some(hook.into()), ..none.clone() }), "hook", "{hook}");
        }
        assert_eq!(wrong_field(ProviderConfig { client_id: "x".into(), ..none.clone() }), "client_id");
        assert_eq!(wrong_field(ProviderConfig { trust_email: true, ..none.clone() }), "trust_email");
        assert_eq!(wrong_field(ProviderConfig { ca_pem: Some("x".into()), ..none }), "ca_pem");
        let hook = Some("https://mail.example/".to_owned());
        assert_eq!(wrong_field(ProviderConfig { hook, ..oidc("https://a.example") }), "hook");
        assert_eq!(wrong_field(ProviderConfig { require_totp: true, ..oidc("https://a.example") }), "require_totp");
    }
}
