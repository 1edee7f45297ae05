//! Saved sessions, and their renewal.

use std::{any::Any, time::Duration};

use sallyport_api::{Refresh, Session};
use time::OffsetDateTime;

use crate::{ApiClient, ClientError};

/// An access token is renewed this long before its expiry.
const RENEW_BEFORE: time::Duration = time::Duration::seconds(30);
/// Time that another program has to renew the shared session.
const LOCK_TIMEOUT: Duration = Duration::from_secs(35);
const LOCK_RETRY: Duration = Duration::from_millis(50);

/// A held lock; dropping it releases the lock.
pub type SessionLock = Box<dyn Any + Send>;

/// Storage of the session between runs of the program.
///
/// A refresh token works once, and using it twice ends the session. So concurrent programs take the lock, load the
/// session again, and only then renew it.
pub trait SessionStore: Send + Sync {
    /// Loads the saved session.
    ///
    /// # Errors
    /// The session cannot be read.
    fn load(&self) -> Result<Option<Session>, SessionStoreError>;

    /// Replaces the saved session atomically.
    ///
    /// # Errors
    /// The session cannot be written.
    fn save(&self, session: &Session) -> Result<(), SessionStoreError>;

    /// Takes the lock among all programs with this storage; `None` if another one holds it.
    ///
    /// # Errors
    /// Locking is not possible.
    fn try_lock(&self) -> Result<Option<SessionLock>, SessionStoreError>;
}

/// The saved session cannot be read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SessionStoreError(pub String);

/// Whether the session's access token is still valid.
pub(crate) fn is_fresh(session: &Session, now: OffsetDateTime) -> bool {
    session.expires_at - now > RENEW_BEFORE
}

/// Renews and saves the session, or returns the one that another program has renewed in the meantime.
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
        Err(SessionStoreError("another sallyport process has been renewing the login for too long: try again".into())
            .into())
    })
}
