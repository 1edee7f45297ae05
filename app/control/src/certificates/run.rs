//! Makes the steps of all certificates that are due, a few at a time.

use std::{
    collections::HashSet,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use sallyport_acme_schedule::{Pacer, PacerConfig, PacerWait};
use tokio::task::JoinSet;

use super::{accounts::Accounts, order::OrderStep};
use crate::{
    config::AcmeConfig,
    state::{App, AppParts},
};

/// How often control looks for certificates that are due.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How often control looks whether the domain is delegated to its name server.
const LOOK_AT_DELEGATION: Duration = Duration::from_secs(60);
/// How often the certificates are counted.
const COUNT_EVERY: Duration = Duration::from_secs(15);
/// How long the first orders wait, until the ports of this process are open.
const START_DELAY: Duration = Duration::from_millis(500);

/// Orders and renews certificates, for as long as control lives.
pub(crate) async fn run(app: Weak<AppParts>, acme: AcmeConfig) {
    let (acme, accounts) = (Arc::new(acme), Arc::new(Accounts::default()));
    let mut pacer =
        Pacer::new(PacerConfig { max_running: acme.max_orders, max_starts_per_minute: acme.max_orders_per_minute });
    tokio::time::sleep(START_DELAY).await;
    let mut running = JoinSet::new();
    let mut busy = HashSet::new();
    let (mut looked_at, mut counted_at): (Option<Instant>, Option<Instant>) = (None, None);
    let mut are_names_new = true;
    while let Some(app) = app.upgrade() {
        let app = App(app);
        if looked_at.is_none_or(|at| at.elapsed() >= LOOK_AT_DELEGATION) {
            app.look_at_delegation().await;
            looked_at = Some(Instant::now());
        }
        if are_names_new && let Err(error) = app.want_certificates().await {
            tracing::warn!(error = error.sentence(), "the certificates that are needed are found out later");
        }
        let now = app.clock.now().unix_seconds;
        if counted_at.is_none_or(|at| at.elapsed() >= COUNT_EVERY) {
            match app.store.count_certificates(now).await {
                Ok(counts) => app.metrics.set_certificates(counts),
                Err(error) => tracing::warn!(%error, "the certificates are counted later"),
            }
            counted_at = Some(Instant::now());
        }
        // Without an edge nothing answers challenges.
        let has_edges = app.edges.get().is_none() || !app.fleet.edges().is_empty();
        let max_due = acme.max_orders.saturating_add(u32::try_from(busy.len()).unwrap_or(u32::MAX));
        let due = match app.store.due_certificates(app.config.id, now, max_due).await {
            Ok(due) => due,
            Err(error) => {
                tracing::warn!(%error, "the certificates that are due are read later");
                Vec::new()
            }
        };
        let mut wait = LOOK_EVERY;
        for row in due.into_iter().filter(|row| has_edges && !busy.contains(&row.id)).collect::<Vec<_>>() {
            match pacer.start(Instant::now()) {
                Ok(()) => {}
                Err(PacerWait::Full) => break,
                Err(PacerWait::Until(at)) => {
                    wait = wait.min(at.saturating_duration_since(Instant::now()));
                    break;
                }
            }
            busy.insert(row.id);
            let (app, acme, accounts) = (app.clone(), acme.clone(), accounts.clone());
            running.spawn(async move {
                let step = OrderStep { app: &app, acme: &acme, accounts: &accounts };
                if let Err(error) = step.run(&row).await {
                    let inner = error.inner().unwrap_or(error.sentence());
                    tracing::warn!(name = %row.names[0], error = inner, "a certificate is looked at later");
                }
                row.id
            });
        }
        are_names_new = tokio::select! {
            Some(ended) = running.join_next() => {
                pacer.end();
                if let Ok(id) = ended {
                    busy.remove(&id);
                    // The outcome is shown at once, unless many orders end.
                    counted_at = counted_at.filter(|_| running.len() > 1);
                }
                // One certificate may take the place of others.
                running.is_empty()
            }
            () = app.names_changed.notified() => true,
            () = tokio::time::sleep(wait) => true,
        };
    }
}
