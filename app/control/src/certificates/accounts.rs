//! The accounts at ACME servers. Their keys are sealed in the store, and never leave control.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use sallyport_acme::{AcmeAccount, AcmeError, DirectoryConfig};
use sallyport_acme_schedule::{Authority, Directories, Directory, staging_url};
use sallyport_identity::Purpose;
use tokio::sync::Mutex;

use crate::{config::AcmeConfig, problem::ApiError, security::random, state::App};

/// How long a directory that did not answer is not asked for its names in CAA records.
const IDENTITIES_RETRY: Duration = Duration::from_secs(60);

/// The accounts in use, by the URL of their directory.
#[derive(Default)]
pub(super) struct Accounts {
    open: Mutex<HashMap<String, Arc<AcmeAccount>>>,
    /// The names of the authorities in CAA records, by the URL of their directory.
    identities: Mutex<HashMap<String, KnownIdentities>>,
}

/// What a directory said of its authority's names in CAA records.
struct KnownIdentities {
    /// The names; `None` if the directory did not answer.
    names: Option<Vec<String>>,
    asked: Instant,
}

/// Reason why there is no account.
pub(super) enum AccountFailure {
    /// The ACME server refuses, or cannot be reached.
    Acme(AcmeError),
    /// The store fails.
    Store(ApiError),
}

impl From<AcmeError> for AccountFailure {
    fn from(error: AcmeError) -> Self {
        Self::Acme(error)
    }
}

impl<E: Into<ApiError>> From<E> for AccountFailure {
    fn from(error: E) -> Self {
        Self::Store(error.into())
    }
}

/// The configuration of a directory; `None` if there is none in this place.
pub(super) fn directory_config(acme: &AcmeConfig, directory: Directory) -> Option<DirectoryConfig> {
    match directory {
        Directory::Primary => Some(acme.primary.clone()),
        Directory::Fallback => acme.fallback.clone(),
        Directory::Staging => staging_url(&acme.primary.url).map(|url| DirectoryConfig {
            url: url.to_owned(),
            contact: acme.primary.contact.clone(),
            profile: acme.primary.profile.clone(),
            ..DirectoryConfig::default()
        }),
    }
}

impl Accounts {
    /// The directories for the schedule, with the accounts that are open.
    pub(super) async fn directories(&self, acme: &AcmeConfig) -> Directories {
        let open = self.open.lock().await;
        let authority = |config: &DirectoryConfig| Authority {
            directory_url: config.url.clone(),
            account_url: open.get(&config.url).map(|account| account.id().to_owned()),
        };
        Directories::new(authority(&acme.primary), acme.fallback.as_ref().map(authority))
    }

    /// The names by which CAA records allow the configured authorities, of which any one is enough. Empty if that is
    /// not known of one of them.
    pub(super) async fn identities(&self, acme: &AcmeConfig) -> Vec<String> {
        let mut all = Vec::new();
        for config in std::iter::once(&acme.primary).chain(&acme.fallback) {
            match self.identities_at(config).await {
                Some(identities) if !identities.is_empty() => all.extend(identities),
                _ => return acme.identities.clone(),
            }
        }
        all
    }

    async fn identities_at(&self, config: &DirectoryConfig) -> Option<Vec<String>> {
        // One request at a time: many orders may be due at once.
        let mut known = self.identities.lock().await;
        if let Some(known) = known.get(&config.url)
            && (known.names.is_some() || known.asked.elapsed() < IDENTITIES_RETRY)
        {
            return known.names.clone();
        }
        let directory = sallyport_acme::Directory::fetch(config).await;
        let names = directory.ok().map(|directory| directory.caa_identities);
        known.insert(config.url.clone(), KnownIdentities { names: names.clone(), asked: Instant::now() });
        names
    }

    /// The account at a directory: the open one, the stored one, or a new one.
    pub(super) async fn account(
        &self,
        app: &App,
        config: &DirectoryConfig,
    ) -> Result<Arc<AcmeAccount>, AccountFailure> {
        let mut open = self.open.lock().await;
        if let Some(account) = open.get(&config.url) {
            return Ok(account.clone());
        }
        let credentials = match app.store.acme_account(&config.url).await? {
            Some(sealed) => app.acme_sealer.open::<String>(Purpose::AcmeAccount, &sealed),
            None => None,
        };
        let account = match credentials {
            Some(credentials) => AcmeAccount::restore(config, &credentials).await?,
            None => create(app, config).await?,
        };
        let account = Arc::new(account);
        open.insert(config.url.clone(), account.clone());
        Ok(account)
    }

    /// Forgets the account at a directory, which the server does not know any more.
    pub(super) async fn forget(&self, app: &App, config: &DirectoryConfig) -> Result<(), ApiError> {
        let mut open = self.open.lock().await;
        open.remove(&config.url);
        app.store.forget_acme_account(&config.url).await?;
        tracing::warn!(directory = config.url, "the ACME server does not know its account: making another one");
        Ok(())
    }
}

/// Makes an account. Of several controls that make one at a time, the first counts.
async fn create(app: &App, config: &DirectoryConfig) -> Result<AcmeAccount, AccountFailure> {
    let (account, credentials) = AcmeAccount::create(config).await?;
    let sealed = app.acme_sealer.seal(Purpose::AcmeAccount, &credentials, random::bytes()?);
    let sealed = sealed.ok_or_else(|| ApiError::internal("the key of an ACME account could not be sealed"))?;
    let kept = app.store.keep_acme_account(&config.url, &sealed, app.clock.now().unix_seconds).await?;
    if kept == sealed {
        tracing::info!(directory = config.url, account = account.id(), "account made at the ACME server");
        return Ok(account);
    }
    match app.acme_sealer.open::<String>(Purpose::AcmeAccount, &kept) {
        Some(credentials) => Ok(AcmeAccount::restore(config, &credentials).await?),
        None => Ok(account),
    }
}
