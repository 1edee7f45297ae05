//! The controls that live over one store, as each of them sees it. Pure: time is an argument.
//!
//! Each control increments a number in the store. A control whose number has not grown for a while is gone. Clocks of
//! different machines are never compared, and times without access to the store do not count.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};
use sallyport_store::{HolderId, StoredControl};
use tokio::sync::Notify;

/// How often a control increments its number.
pub(crate) const BEAT_EVERY: Duration = Duration::from_secs(5);
/// After how long without an increment a control is gone.
pub(crate) const GONE_AFTER: Duration = Duration::from_secs(30);
/// After a longer gap in reading the store, earlier observations do not count.
const MAX_GAP: Duration = Duration::from_secs(12);

#[derive(Debug, Clone)]
struct LastBeat {
    beat: i64,
    /// When this number was first seen.
    since: Instant,
    addresses: String,
}

/// The controls that share the store, as their heartbeats show them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Peers {
    seen: HashMap<HolderId, LastBeat>,
    read_at: Option<Instant>,
}

impl Peers {
    /// Takes the rows of the store at this time. Returns the controls that are gone, each with its last beat.
    pub(crate) fn observe(&mut self, stored: Vec<StoredControl>, now: Instant) -> Vec<(HolderId, i64)> {
        let is_gap = self.read_at.is_none_or(|at| now.saturating_duration_since(at) > MAX_GAP);
        self.read_at = Some(now);
        let former = std::mem::take(&mut self.seen);
        for StoredControl { id, beat, addresses, .. } in stored {
            let since = former.get(&id).filter(|seen| seen.beat == beat && !is_gap).map_or(now, |seen| seen.since);
            self.seen.insert(id, LastBeat { beat, since, addresses });
        }
        let is_gone = |seen: &LastBeat| now.saturating_duration_since(seen.since) > GONE_AFTER;
        let gone = self.seen.iter().filter(|(_, seen)| is_gone(seen)).map(|(id, seen)| (*id, seen.beat));
        let gone: Vec<_> = gone.collect();
        self.seen.retain(|_, seen| !is_gone(seen));
        gone
    }

    /// Whether the control lives, as far as is known; before the first observation every control may.
    pub(crate) fn may_live(&self, id: HolderId) -> bool {
        self.read_at.is_none() || self.seen.contains_key(&id)
    }

    /// The addresses for edges of the controls that live, each once.
    pub(crate) fn addresses(&self) -> Vec<String> {
        let all = self.seen.values().flat_map(|seen| seen.addresses.split(',')).filter(|address| !address.is_empty());
        let mut all: Vec<String> = all.map(str::to_owned).collect();
        all.sort();
        all.dedup();
        all
    }
}

/// The controls that share the store, and a signal for the next heartbeat.
#[derive(Default)]
pub(crate) struct PeerWatch {
    known: Mutex<Peers>,
    /// Wakes the heartbeat: the addresses of this control changed.
    pub(crate) changed: Notify,
}

impl PeerWatch {
    pub(crate) fn known(&self) -> MutexGuard<'_, Peers> {
        self.known.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control(id: u8, beat: i64) -> StoredControl {
        let addresses = format!("10.0.0.{id}:8444");
        StoredControl { id: [id; 16], beat, addresses, program: "1".to_owned() }
    }

    #[test]
    fn a_control_that_stops_counting_is_gone() {
        let (mut peers, start) = (Peers::default(), Instant::now());
        assert!(peers.may_live([2; 16]), "nothing is known yet");
        let mut at = start;
        for beat in 1..=6 {
            at += BEAT_EVERY;
            assert_eq!(peers.observe(vec![control(1, beat), control(2, 7)], at), []);
        }
        assert!(peers.may_live([2; 16]) && !peers.may_live([3; 16]));
        assert_eq!(peers.addresses(), ["10.0.0.1:8444", "10.0.0.2:8444"]);
        at += 2 * BEAT_EVERY;
        assert_eq!(peers.observe(vec![control(1, 8), control(2, 7)], at), [([2; 16], 7)]);
        assert!(!peers.may_live([2; 16]) && peers.addresses() == ["10.0.0.1:8444"]);
        // The control comes back.
        peers.observe(vec![control(1, 9), control(2, 8)], at + BEAT_EVERY);
        assert!(peers.may_live([2; 16]));
    }

    #[test]
    fn a_store_that_was_away_is_nobodys_end() {
        let (mut peers, start) = (Peers::default(), Instant::now());
        peers.observe(vec![control(1, 1), control(2, 1)], start);
        let later = start + 10 * GONE_AFTER;
        assert_eq!(peers.observe(vec![control(1, 2), control(2, 1)], later), []);
        assert!(peers.may_live([2; 16]));
    }
}
