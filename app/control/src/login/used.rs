//! Which logins have come back: none does twice.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, PoisonError},
};

use sallyport_identity::{CLOCK_LEEWAY_SECONDS, LOGIN_SECONDS};

/// How many are remembered; when there are more, the oldest are forgotten before their time.
const MAX_USED_STATES: usize = 65_536;

/// The states of logins that came back, as long as they could come back again.
#[derive(Debug, Default)]
pub(crate) struct UsedStates(Mutex<Used>);

#[derive(Debug, Default)]
struct Used {
    until: HashMap<[u8; 16], i64>,
    order: VecDeque<[u8; 16]>,
}

impl UsedStates {
    /// Whether this one comes for the first time.
    pub(super) fn take(&self, state: [u8; 16], now: i64) -> bool {
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(oldest) = used.order.front().copied()
            && (used.order.len() >= MAX_USED_STATES || used.until.get(&oldest).is_none_or(|until| *until < now))
        {
            used.order.pop_front();
            used.until.remove(&oldest);
        }
        if used.until.contains_key(&state) {
            return false;
        }
        used.until.insert(state, now + LOGIN_SECONDS + CLOCK_LEEWAY_SECONDS);
        used.order.push_back(state);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_taken_once_and_the_map_stays_bounded() {
        let used = UsedStates::default();
        assert!(used.take([1; 16], 0) && !used.take([1; 16], 1) && !used.take([1; 16], LOGIN_SECONDS));
        for n in 0..70_000_u32 {
            let mut state = [2; 16];
            state[..4].copy_from_slice(&n.to_be_bytes());
            assert!(used.take(state, 2));
        }
        assert!(used.0.lock().unwrap().until.len() <= MAX_USED_STATES);
        assert!(used.take([3; 16], 10_000));
        assert_eq!(used.0.lock().unwrap().until.len(), 1, "those that could not come back are forgotten");
    }
}
