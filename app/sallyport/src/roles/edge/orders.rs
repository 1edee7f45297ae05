//! Control's orders to this edge: serve, or drain. A removed edge drains by itself.

use std::time::Duration;

use sallyport_bus::{Bus, EdgeCard, EdgeState};
use sallyport_model::EdgeId;
use tokio::{sync::watch, time::Instant};

use super::join::{self, ControlClock};

/// How long running work may continue at a removed edge.
const REMOVED_DRAIN: Duration = Duration::from_secs(300);

/// The tolerance for times that are read to the second and arrive with a delay.
const SLACK: Duration = Duration::from_secs(3);

/// Why an edge drains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DrainReason {
    /// Control's order, with the end of the drain in seconds since 1970.
    Order(i64),
    /// The edge was removed.
    Removed,
}

/// Puts the order into the edge's card. Returns the end of the drain, or `None` without one.
pub(super) fn follow(
    edge: EdgeId,
    bus: &Bus,
    card: watch::Sender<EdgeCard>,
    (mut removed, mut clock): (watch::Receiver<bool>, watch::Receiver<Option<ControlClock>>),
) -> watch::Receiver<Option<Instant>> {
    let orders = bus.orders.clone();
    let mut changes = orders.subscribe();
    let (drain_until, drain_times) = watch::channel(None);
    let mut known = None;
    let mut look = move |is_removed: bool, clock: Option<ControlClock>| {
        let why = match orders.get(edge) {
            _ if is_removed => Some(DrainReason::Removed),
            Some(orders) => orders.drain.map(|drain| DrainReason::Order(drain.until)),
            // Nothing is known: the last order stays valid until control reports the removal of this edge.
            None => known.filter(|known| *known != DrainReason::Removed),
        };
        let is_known = std::mem::replace(&mut known, why) == why;
        let state = if why.is_some() { EdgeState::Draining } else { EdgeState::Serving };
        card.send_if_modified(|card| std::mem::replace(&mut card.state, state) != state);
        let until = why.map(|why| match why {
            // By control's clock, as soon as it is known, because the clock of this machine may be wrong.
            DrainReason::Order(until) => clock.unwrap_or_else(|| ControlClock::new(join::now())).moment(until).into(),
            // Never later than the end of an earlier order.
            DrainReason::Removed => {
                let soon = Instant::now() + REMOVED_DRAIN;
                drain_until.borrow().map_or(soon, |until: Instant| until.min(soon))
            }
        });
        if !is_known || !is_same(*drain_until.borrow(), until, Instant::now()) {
            drain_until.send_replace(until);
        }
    };
    // The order of the last run applies from the start.
    look(false, None);
    tokio::spawn(async move {
        loop {
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                // The sender ends with the edge.
                Ok(()) = removed.changed() => {}
                Ok(()) = clock.changed() => {}
            }
            look(*removed.borrow_and_update(), *clock.borrow_and_update());
        }
    });
    drain_times
}

/// Whether both are the same moment within the tolerance; all past moments are the same.
fn is_same(one: Option<Instant>, other: Option<Instant>, now: Instant) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one.max(other) <= now || one.max(other) - one.min(other) <= SLACK,
        (one, other) => one == other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_those_of_controls_clock_and_what_is_over_stays_over() {
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        let clock = ControlClock::new(1_000);
        let left = Instant::from(clock.moment(1_300)) - now;
        assert!(left >= 300 * second && left < 310 * second, "{left:?}");
        assert!(Instant::from(clock.moment(999)) <= Instant::now());
        assert!(Instant::from(clock.moment(i64::MIN)) <= Instant::now());
        let (soon, later) = (Some(now + 10 * second), Some(now + 20 * second));
        assert!(is_same(soon, soon.map(|soon| soon + second), now) && !is_same(soon, later, now));
        assert!(is_same(soon, later, now + 30 * second) && !is_same(soon, later, now + 15 * second));
        assert!(is_same(None, None, now) && !is_same(None, soon, now) && !is_same(soon, None, now));
    }
}
