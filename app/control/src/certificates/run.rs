//! Makes the steps of all certificates that are due, a few at a time.

use std::{
    collections::HashSet,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use sallyport_acme_schedule::PacerConfig;
use tokio::task::JoinSet;

use super::{accounts::Accounts, gate::OrderGate, order::OrderStep};
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
/// The most certificates that are looked at in one go. Most looks are lookups of records; orders pass a gate.
const MAX_LOOKS: usize = 60;
/// How many looks are free before the store is asked for more. A burst of names costs a query for each batch, and not
/// for each name.
const MIN_FREE_LOOKS: usize = 15;
/// How long after the names were compared with the store they are compared again. The comparison reads all names, and
/// a script may make thousands of sockets.
const COMPARE_NAMES_EVERY: Duration = Duration::from_millis(500);
/// How long a certificate rests after a failure of the store.
const STORE_WAIT: Duration = Duration::from_secs(30);
/// How often the due times of the store are compared with the schedules.
const COMPARE_EVERY: Duration = Duration::from_secs(3_600);
/// How long the first orders wait, until the ports of this process are open.
const START_DELAY: Duration = Duration::from_millis(500);

/// Orders and renews certificates, for as long as control lives.
pub(crate) async fn run(app: Weak<AppParts>, acme: AcmeConfig) {
    let (acme, accounts) = (Arc::new(acme), Arc::new(Accounts::default()));
    let pace = PacerConfig { max_running: acme.max_orders, max_starts_per_minute: acme.max_orders_per_minute };
    let gate = Arc::new(OrderGate::new(pace));
    tokio::time::sleep(START_DELAY).await;
    let mut running = JoinSet::new();
    let mut busy = HashSet::new();
    let (mut looked_at, mut counted_at): (Option<Instant>, Option<Instant>) = (None, None);
    let mut compared_at: Option<Instant> = None;
    let mut names_compared_at: Option<Instant> = None;
    let mut are_names_new = true;
    // Whether something may have become due since the store was asked.
    let mut is_due = true;
    while let Some(app) = app.upgrade() {
        let app = App(app);
        if is_past(looked_at, LOOK_AT_DELEGATION) {
            app.look_at_delegation().await;
            looked_at = Some(Instant::now());
        }
        if are_names_new && is_past(names_compared_at, COMPARE_NAMES_EVERY) {
            if let Err(error) = app.want_certificates().await {
                tracing::warn!(error = error.sentence(), "the certificates that are needed are found out later");
            }
            names_compared_at = Some(Instant::now());
            are_names_new = false;
            is_due = true;
        }
        let now = app.clock.now().unix_seconds;
        if is_past(counted_at, COUNT_EVERY) {
            match app.store.count_certificates(now).await {
                Ok(counts) => app.metrics.set_certificates(counts),
                Err(error) => tracing::warn!(%error, "the certificates are counted later"),
            }
            counted_at = Some(Instant::now());
        }
        if is_past(compared_at, COMPARE_EVERY) {
            if let Err(error) = app.mend_due_times(&acme).await {
                tracing::warn!(error = error.sentence(), "the due times of certificates are compared later");
            }
            compared_at = Some(Instant::now());
        }
        // Without an edge nothing answers challenges.
        let has_edges = app.edges.get().is_none() || !app.fleet.edges().is_empty();
        let room = if has_edges { MAX_LOOKS.saturating_sub(busy.len()) } else { 0 };
        let max_due = u32::try_from(busy.len() + room).unwrap_or(u32::MAX);
        let due = match room {
            MIN_FREE_LOOKS.. if is_due => app.store.due_certificates(app.config.id, now, max_due).await,
            _ => Ok(Vec::new()),
        };
        let due = due.unwrap_or_else(|error| {
            tracing::warn!(%error, "the certificates that are due are read later");
            Vec::new()
        });
        for row in due.into_iter().filter(|row| !busy.contains(&row.id)).take(room).collect::<Vec<_>>() {
            busy.insert(row.id);
            let (app, acme, accounts, gate) = (app.clone(), acme.clone(), accounts.clone(), gate.clone());
            running.spawn(async move {
                let step = OrderStep { app: &app, acme: &acme, accounts: &accounts, gate: &gate };
                if let Err(error) = step.run(&row).await {
                    let inner = error.inner().unwrap_or(error.sentence());
                    tracing::warn!(name = %row.names[0], error = inner, "a certificate is looked at later");
                    tokio::time::sleep(STORE_WAIT).await;
                }
                row.id
            });
        }
        let is_new;
        (is_new, is_due) = tokio::select! {
            Some(ended) = running.join_next() => {
                if let Ok(id) = ended {
                    busy.remove(&id);
                    // The outcome is shown at once, unless many orders end.
                    counted_at = counted_at.filter(|_| running.len() > 1);
                }
                // One certificate may take the place of others.
                (running.is_empty(), true)
            }
            () = app.names_changed.notified() => (true, false),
            () = tokio::time::sleep(if are_names_new { COMPARE_NAMES_EVERY } else { LOOK_EVERY }) => (true, true),
        };
        are_names_new |= is_new;
    }
}

/// Whether something was last done so long ago, or never.
fn is_past(at: Option<Instant>, time: Duration) -> bool {
    at.is_none_or(|at| at.elapsed() >= time)
}
