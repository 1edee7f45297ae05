//! The phases in which connections end: all connections at a shutdown, existing ones at a drain.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

/// How long clients with kept-alive connections have to see that the connection will close.
pub(crate) const MAX_LINGER: Duration = Duration::from_secs(1);

/// Where a connection is between its start and its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// The connection is served.
    Serving,
    /// The edge accepts no further connections, and each response closes its connection.
    Lingering,
    /// Connectors are sent away, and idle connections are closed.
    Closing,
    /// Everything that still runs is cut off.
    Cut,
}

/// The phases of all connections, by cohort: the connections that came between two drains. At a drain, the edge ends
/// the earlier cohorts and serves new connections.
#[derive(Debug)]
pub(crate) struct Phases {
    /// The last cohort is that of new connections.
    cohorts: Mutex<Vec<watch::Sender<Phase>>>,
}

impl Phases {
    /// One cohort, which is served.
    pub(crate) fn new() -> Self {
        Self { cohorts: Mutex::new(vec![watch::Sender::new(Phase::Serving)]) }
    }

    /// The phase of a new connection.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Phase> {
        let cohorts = self.cohorts.lock();
        cohorts.last().map_or_else(|| watch::Sender::new(Phase::Cut).subscribe(), watch::Sender::subscribe)
    }

    /// Moves all cohorts into this phase, that of new connections included.
    pub(crate) fn all(&self, phase: Phase) {
        let cohorts = self.cohorts.lock();
        cohorts.iter().for_each(|cohort| forward(cohort, phase));
    }

    /// Moves existing connections into this phase, and begins a cohort that is served.
    pub(crate) fn turn(&self, phase: Phase) {
        let mut cohorts = self.cohorts.lock();
        cohorts.iter().for_each(|cohort| forward(cohort, phase));
        cohorts.retain(|cohort| cohort.receiver_count() > 0);
        cohorts.push(watch::Sender::new(Phase::Serving));
    }

    /// Moves the connections before the last [`Phases::turn`] into this phase.
    pub(crate) fn turned(&self, phase: Phase) {
        let cohorts = self.cohorts.lock();
        let before = cohorts.len().saturating_sub(1);
        cohorts.iter().take(before).for_each(|cohort| forward(cohort, phase));
    }

    /// Resolves when a connection without a request should close. At a drain, such a connection joins the new cohort
    /// instead.
    pub(crate) async fn closing_before_request(&self, phase: &mut watch::Receiver<Phase>) {
        loop {
            reached(phase, Phase::Closing).await;
            let of_new = self.subscribe();
            if *of_new.borrow() >= Phase::Closing {
                return;
            }
            *phase = of_new;
        }
    }
}

/// Moves a cohort forward; a cohort never goes back to an earlier phase.
fn forward(cohort: &watch::Sender<Phase>, wanted: Phase) {
    cohort.send_if_modified(|phase| {
        let is_later = wanted > *phase;
        *phase = wanted.max(*phase);
        is_later
    });
}

/// The outcome of a shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShutdownReport {
    /// How many connections and WebSockets ended by themselves.
    pub finished: usize,
    /// How many were cut off at the end of the grace period.
    pub cut: usize,
}

/// Resolves when the connection is in this phase or a later one.
pub(crate) async fn reached(phase: &mut watch::Receiver<Phase>, wanted: Phase) {
    if phase.wait_for(|phase| *phase >= wanted).await.is_err() {
        // The edge is gone, and with it every later phase.
        std::future::pending::<()>().await;
    }
}

/// Resolves when the connection is to be cut off.
pub(crate) async fn cut(phase: &mut watch::Receiver<Phase>) {
    reached(phase, Phase::Cut).await;
}

#[cfg(test)]
mod tests {
    use std::{
        future::Future,
        task::{Context, Waker},
    };

    use super::*;

    #[test]
    fn those_who_come_later_are_served_while_the_others_go() {
        let phases = Phases::new();
        let early = phases.subscribe();
        phases.turn(Phase::Lingering);
        let late = phases.subscribe();
        assert_eq!((*early.borrow(), *late.borrow()), (Phase::Lingering, Phase::Serving));
        phases.turn(Phase::Closing);
        let last = phases.subscribe();
        phases.turned(Phase::Cut);
        assert_eq!((*early.borrow(), *late.borrow(), *last.borrow()), (Phase::Cut, Phase::Cut, Phase::Serving));
        drop((early, late));
        phases.turn(Phase::Lingering);
        assert_eq!(phases.cohorts.lock().len(), 2, "those that are empty are forgotten");
        phases.all(Phase::Closing);
        assert_eq!((*last.borrow(), *phases.subscribe().borrow()), (Phase::Closing, Phase::Closing));
    }

    #[tokio::test]
    async fn who_asked_for_nothing_yet_stays_while_others_that_come_are_served() {
        let phases = Phases::new();
        let mut phase = phases.subscribe();
        let mut ends = std::pin::pin!(phases.closing_before_request(&mut phase));
        for _ in 0..2 {
            phases.turn(Phase::Closing);
            phases.turned(Phase::Cut);
            assert!(ends.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        phases.all(Phase::Closing);
        ends.await;
    }
}
