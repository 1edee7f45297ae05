//! Looking the records of domains up, in their turn.

use std::{sync::Weak, time::Duration};

use crate::state::{App, AppParts};

/// How often control looks for domains that are due.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// The most domains of one turn; they are looked up at once.
const MAX_CHECKS_AT_ONCE: u32 = 100;
/// How often the serial numbers of signed zones are looked at.
const SERIALS_EVERY: Duration = Duration::from_secs(600);

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

/// Gives signed zones new serial numbers in time, for as long as control lives.
pub(crate) async fn renew_serials(app: Weak<AppParts>) {
    while let Some(app) = app.upgrade() {
        let app = App(app);
        if app.config.has_name_server
            && let Err(error) = app.renew_serials().await
        {
            tracing::debug!(error = error.sentence(), "the serial numbers of zones are looked at later");
        }
        drop(app);
        tokio::time::sleep(SERIALS_EVERY).await;
    }
}
