//! An account at one directory.

use std::{fmt, time::Duration};

use instant_acme::{Account, AccountCredentials, CertificateIdentifier, NewAccount};
use sallyport_acme_schedule::RenewalAnswer;
use time::OffsetDateTime;

use crate::{
    AcmeError, DirectoryConfig,
    certificate::leaf_der,
    directory::check_url,
    error::harmless,
    http::{Http, MAX_TRIES_WITH_NONCES},
};

/// Bound on stored credentials, in bytes.
const MAX_CREDENTIALS_BYTES: usize = 16 * 1_024;
/// Bound on the URL of an explanation, in bytes.
const MAX_EXPLANATION_BYTES: usize = 2_048;

/// An account at one directory. Clones share it.
#[derive(Clone)]
pub struct AcmeAccount {
    pub(crate) account: Account,
    directory_url: String,
    pub(crate) profile: Option<String>,
}

/// When a CA suggests to replace a certificate (RFC 9773).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenewalWindow {
    /// The window begins.
    pub start: OffsetDateTime,
    /// The window ends. It may precede the start: the schedule ignores such a window.
    pub end: OffsetDateTime,
    /// A page with the reason for this window.
    pub explanation_url: Option<String>,
    /// When to ask again, from now. The schedule has bounds on it.
    pub ask_again_after: Duration,
}

impl From<RenewalWindow> for RenewalAnswer {
    fn from(window: RenewalWindow) -> Self {
        let ask_again_after = window.ask_again_after.try_into().unwrap_or(time::Duration::MAX);
        let RenewalWindow { start, end, explanation_url, .. } = window;
        Self::Window { window: sallyport_acme_schedule::RenewalWindow { start, end }, explanation_url, ask_again_after }
    }
}

impl fmt::Debug for AcmeAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcmeAccount").field("id", &self.id()).field("directory_url", &self.directory_url).finish()
    }
}

impl AcmeAccount {
    /// Creates an account with a new key. By this the operator agrees to the terms of the CA.
    ///
    /// The second value is the account's credentials in JSON: a secret, for [`AcmeAccount::restore`].
    ///
    /// # Errors
    /// The configuration cannot be used, or the call fails: see [`AcmeError`].
    pub async fn create(config: &DirectoryConfig) -> Result<(Self, String), AcmeError> {
        let contact = config.contact_url()?;
        let contact: Vec<&str> = contact.as_deref().into_iter().collect();
        let new = NewAccount { contact: &contact, terms_of_service_agreed: true, only_return_existing: false };
        let external = config.external_account.as_ref().map(crate::ExternalAccount::key);
        let http = Http::of(config).await?;
        let create = async || {
            let builder = Account::builder_with_http(Box::new(http.clone()));
            builder.create(&new, config.url.clone(), external.as_ref()).await.map_err(AcmeError::from)
        };
        let mut created = create().await;
        for _ in 1..MAX_TRIES_WITH_NONCES {
            match &created {
                Err(error) if error.is_nonce_refused() => created = create().await,
                _ => break,
            }
        }
        let (account, credentials) = created?;
        let text = serde_json::to_string(&credentials)
            .map_err(|_| AcmeError::Config("the credentials of the ACME account cannot be written".to_owned()))?;
        Ok((Self::of(account, config), text))
    }

    /// Restores the account of [`AcmeAccount::create`]. Reads the directory, and does not look whether the account is
    /// still valid.
    ///
    /// # Errors
    /// The credentials are damaged or of another directory, or the call fails: see [`AcmeError`].
    pub async fn restore(config: &DirectoryConfig, credentials: &str) -> Result<Self, AcmeError> {
        let damaged = || AcmeError::Config("the stored credentials of the ACME account cannot be read".to_owned());
        if credentials.len() > MAX_CREDENTIALS_BYTES {
            return Err(damaged());
        }
        let stored: serde_json::Value = serde_json::from_str(credentials).map_err(|_| damaged())?;
        let directory_url = stored.get("directory").and_then(|url| url.as_str()).ok_or_else(damaged)?;
        if directory_url != config.url {
            let found = harmless(directory_url);
            return Err(AcmeError::Config(format!("the stored ACME account belongs to another directory, {found}")));
        }
        let parsed: AccountCredentials = serde_json::from_str(credentials).map_err(|_| damaged())?;
        let builder = Account::builder_with_http(Box::new(Http::of(config).await?));
        Ok(Self::of(builder.from_credentials(parsed).await?, config))
    }

    fn of(account: Account, config: &DirectoryConfig) -> Self {
        Self { account, directory_url: config.url.clone(), profile: config.profile.clone() }
    }

    /// The URL of the account, which identifies it.
    #[must_use]
    pub fn id(&self) -> &str {
        self.account.id()
    }

    /// Whether a stored URL can be called at all.
    pub(crate) fn is_callable(&self, url: &str) -> bool {
        check_url(url, self.directory_url.starts_with("http://")).is_some()
    }

    /// The URL of the directory.
    #[must_use]
    pub fn directory_url(&self) -> &str {
        &self.directory_url
    }

    /// The names of the profiles that the CA offers.
    #[must_use]
    pub fn profiles(&self) -> Vec<String> {
        self.account.profiles().map(|profile| harmless(profile.name)).collect()
    }

    /// Asks when to replace a certificate: a chain in PEM, or the certificate in DER. `None` if the CA has no renewal
    /// information.
    ///
    /// # Errors
    /// The certificate cannot be read, or the call fails: see [`AcmeError`].
    pub async fn renewal_info(&self, certificate: &[u8]) -> Result<Option<RenewalWindow>, AcmeError> {
        let leaf = leaf_der(certificate)?;
        let Ok(identifier) = CertificateIdentifier::try_from(&leaf) else {
            return Err(AcmeError::Config("the certificate does not name its CA's key".to_owned()));
        };
        match self.account.renewal_info(&identifier).await {
            Ok((info, ask_again_after)) => Ok(Some(RenewalWindow {
                start: info.suggested_window.start,
                end: info.suggested_window.end,
                explanation_url: info.explanation_url.filter(|url| is_explanation(url)),
                ask_again_after,
            })),
            Err(instant_acme::Error::Unsupported(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether a person can be shown the URL.
fn is_explanation(url: &str) -> bool {
    url.len() <= MAX_EXPLANATION_BYTES
        && url.bytes().all(|byte| byte.is_ascii_graphic())
        && (url.starts_with("https://") || url.starts_with("http://"))
}
