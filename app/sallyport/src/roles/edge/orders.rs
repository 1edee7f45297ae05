//! Orders of control to this edge: serve, or drain. An edge that was removed drains by itself.

use std::time::Duration;

use sallyport_bus::{Bus, EdgeCard, EdgeState};
use sallyport_model::EdgeId;
use tokio::{sync::watch, time::Instant};

use super::join::{self, ControlClock};

/// How long what runs may go on at an edge that was removed.
const REMOVED_DRAIN: Duration = Duration::from_secs(300);

/// What clocks that are read to the second, and the time that an answer takes, may make of a moment.
const SLACK: Duration = Duration::from_secs(3);

/// Why an edge is drain_until.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DrainReason {
    /// Control wants it, with time until then, in seconds since 1970.
    Order(i64),
    /// It was removed.
    Removed,
}

/// Has the edge's card say what is wanted of it, from now on. Gives until when what runs may go on, when it is to be
/// drain_until.
pub(super) fn follow(
    edge: EdgeId,
    bus: &Bus,
    card: watch::Sender<EdgeCard>,
    (mut removed, mut clock): (watch::Receiver<bool>, watch::Receiver<Option<ControlClock>>),
) -> watch::Receiver<Option<Instant>> {
    let orders = bus.orders.clone();
    let mut changes = orders.subscribe();
    let (drain_until, told) = watch::channel(None);
    let mut known = None;
    let mut look = move |is_removed: bool, clock: Option<ControlClock>| {
        let why = match orders.get(edge) {
            _ if is_removed => Some(DrainReason::Removed),
            Some(orders) => orders.drain.map(|drain| DrainReason::Order(drain.until)),
            // Nothing is known: what was wanted is wanted on, until control says that this edge was removed.
            None => known.filter(|known| *known != DrainReason::Removed),
        };
        let is_known = std::mem::replace(&mut known, why) == why;
        let state = if why.is_some() { EdgeState::Draining } else { EdgeState::Serving };
        card.send_if_modified(|card| std::mem::replace(&mut card.state, state) != state);
        let until = why.map(|why| match why {
            // By control's clock, as soon as it was heard: that of this machine may be hours off.
            DrainReason::Order(until) => clock.unwrap_or_else(|| ControlClock::new(join::now())).moment(until).into(),
            // No later than it was to be empty before.
            DrainReason::Removed => {
                let soon = Instant::now() + REMOVED_DRAIN;
                drain_until.borrow().map_or(soon, |until: Instant| until.min(soon))
            }
        });
        if !is_known || !is_same(*drain_until.borrow(), until, Instant::now()) {
            drain_until.send_replace(until);
        }
    };
    // What was known when this edge last ran holds from the beginning.
    look(false, None);
    tokio::spawn(async move {
        loop {
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                // Whoever says it ends with the edge.
                Ok(()) = removed.changed() => {}
                Ok(()) = clock.changed() => {}
            }
            look(*removed.borrow_and_update(), *clock.borrow_and_update());
        }
    });
    told
}

/// Whether both are the same moment, as far as clocks tell; what is over is over.
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
