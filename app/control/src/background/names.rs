//! Looking the records of domains up, in their turn.

use std::{sync::Weak, time::Duration};

use crate::state::{App, AppParts};

/// How often control looks for domains that are due.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// The most domains of one turn; they are looked up at once.
const MAX_CHECKS_AT_ONCE: u32 = 100;

/// Looks the records of due domains up, for as long as control lives.
pub(crate) async fn check_domains(app: Weak<AppParts>) {
    while let Some(app) = app.upgrade() {
        let app = App(app);
        if app.resolver.is_some()
            && let Err(error) = app.check_due_domains(MAX_CHECKS_AT_ONCE).await
        {
            tracing::debug!(error = error.sentence(), "the records of domains are looked up later");
        }
        drop(app);
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
