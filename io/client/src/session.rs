//! A session that outlives the program, and its renewal.

use std::{any::Any, time::Duration};

use sallyport_api::{Refresh, Session};
use time::OffsetDateTime;

use crate::{ApiClient, ClientError};

/// An access token that ends so soon is renewed before it is used.
const RENEW_BEFORE: time::Duration = time::Duration::seconds(30);
/// How long another program may take to renew the session that both use.
const LOCK_TIMEOUT: Duration = Duration::from_secs(35);
const LOCK_RETRY: Duration = Duration::from_millis(50);

/// Held while a session is renewed; dropping it lets others in.
pub type SessionLock = Box<dyn Any + Send>;

/// Where the session is kept between runs of the program.
///
/// A refresh token works once, and using it twice ends the session. Programs that run side by side therefore take the
/// lock, look again, and only then renew.
pub trait SessionStore: Send + Sync {
    /// The session as it is saved now.
    ///
    /// # Errors
    /// It cannot be read.
    fn load(&self) -> Result<Option<Session>, SessionStoreError>;

    /// Replaces the saved session, at once or not at all.
    ///
    /// # Errors
    /// It cannot be written.
    fn save(&self, session: &Session) -> Result<(), SessionStoreError>;

    /// Takes the lock among all programs that use this store; nothing when another holds it.
    ///
    /// # Errors
    /// There can be no lock.
    fn try_lock(&self) -> Result<Option<SessionLock>, SessionStoreError>;
}

/// The saved session cannot be read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SessionStoreError(pub String);

/// Whether the session's access token can still be used.
pub(crate) fn is_fresh(session: &Session, now: OffsetDateTime) -> bool {
    session.expires_at - now > RENEW_BEFORE
}

/// Gets the session after `old` and saves it, or takes the one that another program has got meanwhile.
pub(crate) async fn renew(client: &ApiClient, store: &dyn SessionStore, old: &Session) -> Result<Session, ClientError> {
    let _lock = lock(store).await?;
    let not_logged_in = || ClientError::NotLoggedIn { api: client.address().clone() };
    let saved = store.load()?.ok_or_else(not_logged_in)?;
    if saved.access_token != old.access_token {
        return Ok(saved);
    }
    tracing::debug!("renewing the session");
    match client.refresh(&Refresh { refresh_token: saved.refresh_token }).await {
        Ok(session) => {
            store.save(&session)?;
            Ok(session)
        }
        Err(error) if matches!(error.status(), Some(400 | 401 | 403)) => Err(not_logged_in()),
        Err(error) => Err(error),
    }
}

async fn lock(store: &dyn SessionStore) -> Result<SessionLock, ClientError> {
    let wait = async {
        loop {
            if let Some(lock) = store.try_lock()? {
                return Ok(lock);
            }
            tokio::time::sleep(LOCK_RETRY).await;
        }
    };
    tokio::time::timeout(LOCK_TIMEOUT, wait).await.unwrap_or_else(|_| {
        Err(SessionStoreError("another sallyport has been renewing the login for too long: try again".into()).into())
    })
}
