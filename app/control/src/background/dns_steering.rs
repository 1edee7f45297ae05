//! Making anew what steers clients of the name server.

use std::sync::Weak;

use crate::state::{App, AppParts};

/// Makes it anew from what was measured, for as long as control lives.
pub(crate) async fn renew(app: Weak<AppParts>) {
    loop {
        let every = match app.upgrade() {
            Some(app) => app.config.dns_steering_every,
            None => return,
        };
        let Some(every) = every else { return };
        tokio::time::sleep(every).await;
        let Some(app) = app.upgrade().map(App) else { return };
        if let Err(error) = app.renew_dns_steering().await {
            tracing::debug!(error = error.sentence(), "clients of the name server are steered as before");
        }
    }
}
