//! Avoids stalls of services that write a response in pieces with Nagle's algorithm (RFC 896).
//!
//! Such a service sends the next piece when the last one is acknowledged. The kernel here delays the acknowledgement,
//! in the hope of data to send with it (RFC 1122 section 4.2.3.2). Immediate acknowledgements cost a packet for each
//! response, so they are used only for services that were seen to stall.

use std::{
    ops::RangeInclusive,
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

/// How long Linux delays an acknowledgement, with a margin for a busy machine.
const DELAY: RangeInclusive<Duration> = Duration::from_millis(35)..=Duration::from_millis(90);
/// How many stalls are needed to rule out chance.
const ENOUGH: u32 = 2;

/// The stalls of a service so far.
#[derive(Debug, Default)]
pub(crate) struct Stalls {
    seen: AtomicU32,
}

impl Stalls {
    fn are_known(&self) -> bool {
        self.seen.load(Ordering::Relaxed) >= ENOUGH
    }
}

/// One connection to the service.
#[derive(Debug)]
pub(crate) struct QuickAck<'a> {
    stalls: &'a Stalls,
    /// When the last bytes of the service came, and how many bytes had been sent by then.
    last: Option<(Instant, u64)>,
    received: u64,
}

impl<'a> QuickAck<'a> {
    pub(crate) fn new(stalls: &'a Stalls) -> Self {
        Self { stalls, last: None, received: 0 }
    }

    /// Records how many bytes went to the service and came from it so far. Returns true if what came should be
    /// acknowledged at once.
    pub(crate) fn wants(&mut self, sent: u64, received: u64, now: impl FnOnce() -> Instant) -> bool {
        if received == self.received {
            return false;
        }
        self.received = received;
        if self.stalls.are_known() {
            return true;
        }
        let now = now();
        // A pause of that length in the middle of a response: no further request was sent meanwhile.
        if let Some((at, sent_then)) = self.last.replace((now, sent))
            && sent_then == sent
            && DELAY.contains(&now.saturating_duration_since(at))
        {
            self.stalls.seen.fetch_add(1, Ordering::Relaxed);
        }
        self.stalls.are_known()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pauses_of_that_length_within_a_response_count() {
        let (stalls, start) = (Stalls::default(), Instant::now());
        let at = |ms| move || start + Duration::from_millis(ms);
        let mut connection = QuickAck::new(&stalls);
        assert!(!connection.wants(0, 0, at(0)));
        for answer in 0..20 {
            let (sent, base) = (100 * (answer + 1), answer * 1_000);
            assert!(!connection.wants(sent, answer * 30 + 10, at(base)));
            assert!(!connection.wants(sent, answer * 30 + 20, at(base + 3)), "no stall");
            assert!(!connection.wants(sent, answer * 30 + 30, at(base + 400)), "it thinks");
        }
        // A response to a request that was sent 40 ms later is no stall either.
        assert!(!connection.wants(5_000, 2_000, at(30_000)));
        assert!(!connection.wants(5_001, 2_001, at(30_040)));
        assert!(!connection.wants(5_001, 2_002, at(30_081)), "the first stall");
        let mut other = QuickAck::new(&stalls);
        assert!(!other.wants(10, 1, at(40_000)));
        assert!(other.wants(10, 2, at(40_041)), "the second one, of whatever connection");
        assert!(connection.wants(5_001, 2_003, at(50_000)));
        assert!(!connection.wants(5_001, 2_003, at(50_001)), "nothing arrived");
    }
}
