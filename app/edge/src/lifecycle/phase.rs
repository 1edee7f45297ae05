//! The end of connections, phase by phase: of all when the edge ends, of those that there are when it is emptied.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

/// How long clients that keep their connections get to hear that they should not.
pub(crate) const MAX_LINGER: Duration = Duration::from_secs(1);

/// Where the edge is between start and end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// It serves.
    Serving,
    /// It takes no new connections; each answer on those that stand says that it is the last.
    Lingering,
    /// Connectors are sent away, and idle connections are closed.
    Draining,
    /// Whatever still runs is cut off.
    Cut,
}

/// In which phase connections are: those that came at one time together. An edge that is emptied serves who comes all the same,
/// while those who came before are asked to go.
#[derive(Debug)]
pub(crate) struct Phases {
    /// The last one is that of connections that come.
    cohorts: Mutex<Vec<watch::Sender<Phase>>>,
}

impl Phases {
    /// All is served.
    pub(crate) fn new() -> Self {
        Self { cohorts: Mutex::new(vec![watch::Sender::new(Phase::Serving)]) }
    }

    /// The phase of a connection that comes now.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Phase> {
        let cohorts = self.cohorts.lock();
        cohorts.last().map_or_else(|| watch::Sender::new(Phase::Cut).subscribe(), watch::Sender::subscribe)
    }

    /// All connections, those to come among them, are in this phase.
    pub(crate) fn all(&self, phase: Phase) {
        let cohorts = self.cohorts.lock();
        cohorts.iter().for_each(|cohort| forward(cohort, phase));
    }

    /// The connections that there are are in this phase; those to come are served.
    pub(crate) fn turn(&self, phase: Phase) {
        let mut cohorts = self.cohorts.lock();
        cohorts.iter().for_each(|cohort| forward(cohort, phase));
        cohorts.retain(|cohort| cohort.receiver_count() > 0);
        cohorts.push(watch::Sender::new(Phase::Serving));
    }

    /// The connections that were there at the last turn are in this phase.
    pub(crate) fn turned(&self, phase: Phase) {
        let cohorts = self.cohorts.lock();
        let before = cohorts.len().saturating_sub(1);
        cohorts.iter().take(before).for_each(|cohort| forward(cohort, phase));
    }

    /// Resolves when a connection on which nothing was asked yet is to end. One that is among those who are asked to go, while others
    /// that come are served, is one of these from then on.
    pub(crate) async fn unasked_ends(&self, phase: &mut watch::Receiver<Phase>) {
        loop {
            reached(phase, Phase::Draining).await;
            let of_those_to_come = self.subscribe();
            if *of_those_to_come.borrow() >= Phase::Draining {
                return;
            }
            *phase = of_those_to_come;
        }
    }
}

/// Nobody goes back.
fn forward(cohort: &watch::Sender<Phase>, wanted: Phase) {
    cohort.send_if_modified(|phase| {
        let is_later = wanted > *phase;
        *phase = wanted.max(*phase);
        is_later
    });
}

/// What a drain came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrainReport {
    /// How many connections and WebSockets ended by themselves.
    pub finished: usize,
    /// How many were cut off because the time was over.
    pub cut: usize,
}

/// Resolves when the edge is in this phase or a later one.
pub(crate) async fn reached(phase: &mut watch::Receiver<Phase>, wanted: Phase) {
    if phase.wait_for(|phase| *phase >= wanted).await.is_err() {
        // The edge is gone altogether; nobody is left to tell.
        std::future::pending::<()>().await;
    }
}

/// Resolves when whatever still runs is to be cut off.
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
        phases.turn(Phase::Draining);
        let last = phases.subscribe();
        phases.turned(Phase::Cut);
        assert_eq!((*early.borrow(), *late.borrow(), *last.borrow()), (Phase::Cut, Phase::Cut, Phase::Serving));
        drop((early, late));
        phases.turn(Phase::Lingering);
        assert_eq!(phases.cohorts.lock().len(), 2, "those that are empty are forgotten");
        phases.all(Phase::Draining);
        assert_eq!((*last.borrow(), *phases.subscribe().borrow()), (Phase::Draining, Phase::Draining));
    }

    #[tokio::test]
    async fn who_asked_for_nothing_yet_stays_while_others_that_come_are_served() {
        let phases = Phases::new();
        let mut phase = phases.subscribe();
        let mut ends = std::pin::pin!(phases.unasked_ends(&mut phase));
        for _ in 0..2 {
            phases.turn(Phase::Draining);
            phases.turned(Phase::Cut);
            assert!(ends.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        phases.all(Phase::Draining);
        ends.await;
    }
}
