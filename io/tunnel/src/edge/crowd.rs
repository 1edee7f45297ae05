//! The requests of a session that are under way: whether they are so many that a further one had better share a connection.

use std::sync::atomic::{AtomicU32, Ordering};

/// How many requests are under way when a further one may share the control connection: with fewer there is little to be
/// put in one record, and a leg answers sooner.
const MIN_REQUESTS: u32 = 8;
/// How many requests more share after that, though few are under way. Answers come together as requests do, so a client
/// with many streams has none under way between two such waves: the first of each would take legs, be answered apart
/// from the others, and keep the waves from running into one another.
const LINGERS: u32 = 64;

/// Counts the requests under way. Its numbers are hints, and nothing else hangs on them.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    under_way: AtomicU32,
    lingers: AtomicU32,
}

impl Crowd {
    /// One more is under way, until [`Self::ended`].
    pub(super) fn began(&self) {
        self.under_way.fetch_add(1, Ordering::Relaxed);
    }

    /// One of them is over.
    pub(super) fn ended(&self) {
        self.under_way.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether the request that asks, itself counted already, is one of many.
    pub(super) fn is_crowded(&self) -> bool {
        let lingers = self.lingers.load(Ordering::Relaxed);
        if self.under_way.load(Ordering::Relaxed) >= MIN_REQUESTS {
            if lingers < LINGERS {
                self.lingers.store(LINGERS, Ordering::Relaxed);
            }
            return true;
        }
        if lingers > 0 {
            self.lingers.store(lingers - 1, Ordering::Relaxed);
        }
        lingers > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_are_a_crowd_and_those_that_follow_soon_belong_to_it() {
        let crowd = Crowd::default();
        for _ in 1..MIN_REQUESTS {
            crowd.began();
            assert!(!crowd.is_crowded());
        }
        crowd.began();
        assert!(crowd.is_crowded());
        for _ in 0..MIN_REQUESTS {
            crowd.ended();
        }
        for _ in 0..LINGERS {
            crowd.began();
            assert!(crowd.is_crowded(), "the next wave begins");
            crowd.ended();
        }
        crowd.began();
        assert!(!crowd.is_crowded(), "one after the other, for a long time");
    }

    #[test]
    fn each_wave_makes_the_crowd_last() {
        let crowd = Crowd::default();
        for wave in 0..100 {
            for number in 1..=MIN_REQUESTS {
                crowd.began();
                assert_eq!(crowd.is_crowded(), wave > 0 || number == MIN_REQUESTS);
            }
            for _ in 0..MIN_REQUESTS {
                crowd.ended();
            }
        }
    }
}
