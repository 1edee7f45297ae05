//! Renewing and ending the leases of slices.

use std::{
    sync::Weak,
    time::{Duration, Instant},
};

use crate::state::{App, AppParts};

/// How often leases are looked at without news of an edge.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The shortest time between two looks.
const GATHER: Duration = Duration::from_millis(50);

/// Follows what edges do with their slices, for as long as control lives.
pub(crate) async fn follow(app: Weak<AppParts>) {
    let Some((mut cards, mut uses)) = app.upgrade().map(|app| (app.fleet.subscribe(), app.egress.uses())) else {
        return;
    };
    loop {
        tokio::select! {
            changed = cards.changed() => if changed.is_err() { return },
            changed = uses.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        tokio::time::sleep(GATHER).await;
        let Some(app) = app.upgrade().map(App) else { return };
        // Nothing is leased, as in most installations.
        if app.egress.get().addresses.is_empty() {
            continue;
        }
        if let Err(error) = app.renew_egress_leases(Instant::now()).await {
            tracing::debug!(error = error.sentence(), "the leases of slices stay as they are: trying again");
        }
    }
}
