//! Removing what has ended: logins at the edges, and old rows of the store.

use std::{sync::Weak, time::Duration};

use crate::state::{App, AppParts};

/// How often expired rows of the store are removed.
const TIDY_EVERY: Duration = Duration::from_secs(3_600);
/// How often ended logins are removed from the edges. Edges check the ends of logins themselves, too.
const SWEEP_EVERY: Duration = Duration::from_secs(30);

/// Removes ended logins from the edges, for as long as control lives.
pub(crate) async fn sweep(app: Weak<AppParts>) {
    while let Some(app) = app.upgrade() {
        let now = app.clock.now().unix_seconds;
        app.identities.end_sessions(|session| session.expires_at <= now);
        let app = App(app);
        if app.edges.get().is_some()
            && let Err(error) = app.sweep_and_publish().await
        {
            tracing::debug!(error = error.sentence(), "temporary sockets of gone ssh clients are removed later");
        }
        drop(app);
        tokio::time::sleep(SWEEP_EVERY).await;
    }
}

/// Removes expired rows of the store, for as long as control lives.
pub(crate) async fn tidy(app: Weak<AppParts>) {
    while let Some(app) = app.upgrade() {
        if let Err(error) = app.store.tidy(app.clock.now().unix_seconds).await {
            tracing::warn!(%error, "cannot tidy the store, trying again later");
        }
        let app = App(app);
        // The first account may have been made at another control.
        if app.config.setup_token_file.as_ref().is_some_and(|path| path.exists())
            && app.store.count_accounts().await.is_ok_and(|accounts| accounts > 0)
        {
            app.end_setup();
        }
        drop(app);
        tokio::time::sleep(TIDY_EVERY).await;
    }
}
