//! Counters of one socket for `socket stats`: durations, the last minute, and the use of each tunnel.

use std::{
    collections::{BTreeMap, HashMap},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use parking_lot::{Mutex, RwLock};
use sallyport_bus::OriginUse;
use sallyport_model::{MAX_TUNNELS_PER_SOCKET, OriginRef, SPAN_BUCKETS, SpanBounds, SpanCounts, span_bucket};

use crate::metrics::verdict::Verdict;

/// How many tunnels of a socket are counted separately, former ones included. The least recently used one is replaced.
const MAX_COUNTED_ORIGINS: usize = 2 * MAX_TUNNELS_PER_SOCKET;
/// The last minute is counted in ticks of this length.
const TICK: Duration = Duration::from_secs(5);
const TICKS_PER_MINUTE: u64 = 12;
/// One tick more than a minute has, because the current one is incomplete.
const TICKS: usize = 13;

/// The counters of one socket.
#[derive(Debug)]
pub(crate) struct SocketCounts {
    started: Instant,
    /// Since when the socket could have been counted; before its first use there was nothing to count.
    observed: Instant,
    verdicts: [AtomicU64; Verdict::ALL.len()],
    durations: Spans,
    first_bytes: Spans,
    /// In each entry the number of its tick and the count of the tick, 32 bits each.
    ticks: [AtomicU64; TICKS],
    refusals: Mutex<BTreeMap<&'static str, u64>>,
    origins: RwLock<HashMap<OriginRef, CountedOrigin>>,
}

#[derive(Debug)]
struct Spans {
    buckets: [AtomicU64; SPAN_BUCKETS],
    least_us: AtomicU64,
    most_us: AtomicU64,
}

impl Spans {
    fn new() -> Self {
        let buckets = std::array::from_fn(|_| AtomicU64::new(0));
        Self { buckets, least_us: AtomicU64::new(u64::MAX), most_us: AtomicU64::new(0) }
    }

    fn count(&self, span: Duration) {
        let us = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        self.buckets[span_bucket(us)].fetch_add(1, Relaxed);
        // Rare after the first few.
        if us < self.least_us.load(Relaxed) {
            self.least_us.fetch_min(us, Relaxed);
        }
        if us > self.most_us.load(Relaxed) {
            self.most_us.fetch_max(us, Relaxed);
        }
    }

    fn read(&self) -> CountedSpans {
        let counts = SpanCounts::of(self.buckets.iter().map(|count| count.load(Relaxed)));
        let bounds = SpanBounds { least_us: self.least_us.load(Relaxed), most_us: self.most_us.load(Relaxed) };
        CountedSpans { bounds: (counts.total() > 0).then_some(bounds), counts }
    }
}

/// A histogram of durations.
#[derive(Debug)]
pub(crate) struct CountedSpans {
    /// The counts of the buckets.
    pub(crate) counts: SpanCounts,
    /// The shortest and the longest duration.
    pub(crate) bounds: Option<SpanBounds>,
}

#[derive(Debug, Default)]
struct CountedOrigin {
    uses: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    /// The tick of its last use.
    last: AtomicU64,
}

/// A request or flow that has ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Use {
    /// When it ended.
    pub(crate) ended: Instant,
    /// How long it took; `None` for a WebSocket, because its duration means nothing.
    pub(crate) took: Option<Duration>,
    /// The time to the first byte of its response, if it had one.
    pub(crate) first_byte: Option<Duration>,
    /// The origin that took it, or that was tried last.
    pub(crate) origin: Option<OriginRef>,
    /// Bytes from the client, and to it.
    pub(crate) bytes: (u64, u64),
}

impl SocketCounts {
    /// Counters for a socket that could have been counted since `observed`.
    pub(crate) fn new(now: Instant, observed: Instant) -> Self {
        Self {
            started: now,
            observed: observed.min(now),
            verdicts: std::array::from_fn(|_| AtomicU64::new(0)),
            durations: Spans::new(),
            first_bytes: Spans::new(),
            ticks: std::array::from_fn(|_| AtomicU64::new(0)),
            refusals: Mutex::default(),
            origins: RwLock::default(),
        }
    }

    /// The number of the tick at this time, from 1.
    fn tick(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.started).as_secs() / TICK.as_secs() + 1
    }

    /// Counts a request or flow at its end.
    pub(crate) fn used(&self, over: &Use) {
        if let Some(took) = over.took {
            self.durations.count(took);
        }
        if let Some(first_byte) = over.first_byte {
            self.first_bytes.count(first_byte);
        }
        let now = self.tick(over.ended);
        self.count_in(now);
        if let Some(origin) = over.origin {
            self.count_origin(origin, over.bytes, now);
        }
    }

    /// Counts a flow with this verdict.
    pub(crate) fn flow_ended(&self, verdict: Verdict) {
        self.verdicts[verdict as usize].fetch_add(1, Relaxed);
    }

    /// Counts a request with an error response of the edge, for this reason.
    pub(crate) fn refused(&self, reason: &'static str) {
        *self.refusals.lock().entry(reason).or_default() += 1;
    }

    fn count_in(&self, tick: u64) {
        let slot = &self.ticks[usize::try_from(tick % TICKS as u64).unwrap_or_default()];
        let mut seen = slot.load(Relaxed);
        loop {
            let next = if seen >> 32 == tick { seen.saturating_add(1) } else { tick << 32 | 1 };
            match slot.compare_exchange_weak(seen, next, Relaxed, Relaxed) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    fn count_origin(&self, origin: OriginRef, (bytes_in, bytes_out): (u64, u64), now: u64) {
        let count = |counted: &CountedOrigin| {
            counted.uses.fetch_add(1, Relaxed);
            counted.bytes_in.fetch_add(bytes_in, Relaxed);
            counted.bytes_out.fetch_add(bytes_out, Relaxed);
            counted.last.store(now, Relaxed);
        };
        if let Some(counted) = self.origins.read().get(&origin) {
            return count(counted);
        }
        let mut origins = self.origins.write();
        if origins.len() >= MAX_COUNTED_ORIGINS && !origins.contains_key(&origin) {
            let oldest = origins.iter().min_by_key(|(_, counted)| counted.last.load(Relaxed)).map(|(id, _)| *id);
            oldest.and_then(|oldest| origins.remove(&oldest));
        }
        count(origins.entry(origin).or_default());
    }

    /// How many ended in the last minute, and for how many seconds of it the socket was observed.
    pub(crate) fn last_minute(&self, now: Instant) -> (u64, u64) {
        let tick = self.tick(now);
        let seen = self.ticks.iter().map(|slot| slot.load(Relaxed));
        // The current tick stands for the missing part of the first one.
        let count = seen.filter(|seen| (seen >> 32) + TICKS_PER_MINUTE > tick).map(|seen| seen & 0xffff_ffff).sum();
        let running = now.saturating_duration_since(self.started).as_secs() % TICK.as_secs();
        let counted = (TICKS_PER_MINUTE - 1) * TICK.as_secs() + running;
        let observed = now.saturating_duration_since(self.observed).as_secs();
        (count, counted.min(observed).max(1))
    }

    /// The flows by verdict.
    pub(crate) fn flows(&self) -> BTreeMap<String, u64> {
        let counts = Verdict::ALL.iter().map(|verdict| (verdict.as_str(), &self.verdicts[*verdict as usize]));
        let counts = counts.map(|(verdict, count)| (verdict.to_owned(), count.load(Relaxed)));
        counts.filter(|(_, count)| *count > 0).collect()
    }

    /// The requests with an error response of the edge, by reason.
    pub(crate) fn refusals(&self) -> BTreeMap<String, u64> {
        let refusals = self.refusals.lock();
        refusals.iter().map(|(reason, count)| ((*reason).to_owned(), *count)).collect()
    }

    /// The durations of requests and flows, and the times to the first byte.
    pub(crate) fn spans(&self) -> (CountedSpans, CountedSpans) {
        (self.durations.read(), self.first_bytes.read())
    }

    /// The use of each origin.
    pub(crate) fn origins(&self) -> Vec<OriginUse> {
        let origins = self.origins.read();
        let usage = |(origin, counted): (&OriginRef, &CountedOrigin)| OriginUse {
            tunnel: origin.tunnel(),
            direct_origin: origin.direct(),
            uses: counted.uses.load(Relaxed),
            bytes_in: counted.bytes_in.load(Relaxed),
            bytes_out: counted.bytes_out.load(Relaxed),
        };
        origins.iter().map(usage).collect()
    }
}

#[cfg(test)]
mod tests {
    use sallyport_model::TunnelId;

    use super::*;

    fn counts_from_now() -> SocketCounts {
        let now = Instant::now();
        SocketCounts::new(now, now)
    }

    fn over(counts: &SocketCounts, after: Duration, tunnel: u32) -> Use {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&tunnel.to_be_bytes());
        let origin = Some(TunnelId::from_random(id).into());
        let took = Some(Duration::from_millis(2));
        Use { ended: counts.started + after, took, first_byte: None, origin, bytes: (1, 2) }
    }

    #[test]
    fn the_last_minute_is_what_ended_in_it() {
        let counts = counts_from_now();
        let at = |seconds| counts.started + Duration::from_secs(seconds);
        for second in 0..600 {
            counts.used(&over(&counts, Duration::from_secs(second), 1));
            let (count, seconds) = counts.last_minute(at(second));
            assert_eq!(count, (second + 1).min(56 + second % 5), "{second}");
            assert!(count.abs_diff(seconds) <= 1, "one each second: {count} in {seconds} s at {second}");
        }
        assert_eq!(counts.last_minute(at(700)).0, 0);
    }

    #[test]
    fn a_rate_is_of_the_time_that_was_observed() {
        // The first use comes after an hour of the edge: the rest of the last minute was idle.
        let now = Instant::now() + Duration::from_secs(3_600);
        let counts = SocketCounts::new(now, now - Duration::from_secs(3_600));
        for _ in 0..3 {
            counts.used(&over(&counts, Duration::from_millis(100), 1));
        }
        let (count, seconds) = counts.last_minute(now + Duration::from_secs(1));
        assert!(count == 3 && (55..=60).contains(&seconds), "{count} in {seconds} s");
        // An edge that has just started has observed no more than its own time.
        let counts = SocketCounts::new(now, now - Duration::from_secs(4));
        counts.used(&over(&counts, Duration::ZERO, 1));
        assert_eq!(counts.last_minute(now + Duration::from_secs(4)), (1, 8));
    }

    #[test]
    fn the_shortest_and_the_longest_time_are_known() {
        let counts = counts_from_now();
        assert!(counts.spans().0.bounds.is_none());
        for seconds in [2, 60, 1] {
            let took = Some(Duration::from_secs(seconds));
            counts.used(&Use { took, ..over(&counts, Duration::ZERO, 1) });
        }
        let (took, first_byte) = counts.spans();
        assert_eq!(took.bounds, Some(SpanBounds { least_us: 1_000_000, most_us: 60_000_000 }));
        assert!(first_byte.bounds.is_none(), "no time was counted");
    }

    #[test]
    fn tunnels_that_come_and_go_are_counted_within_bounds() {
        let counts = counts_from_now();
        for number in 0..MAX_COUNTED_ORIGINS as u32 + 10 {
            let after = Duration::from_secs(u64::from(number) * 10);
            counts.used(&over(&counts, after, number));
            counts.used(&over(&counts, after, 0));
        }
        let origins = counts.origins();
        assert_eq!(origins.len(), MAX_COUNTED_ORIGINS);
        let first = over(&counts, Duration::ZERO, 0).origin.unwrap().tunnel();
        let first = origins.iter().find(|one| one.tunnel == first).expect("the one that is used stays");
        assert_eq!((first.uses, first.bytes_out), (MAX_COUNTED_ORIGINS as u64 + 11, 2 * first.uses));
        assert_eq!(counts.spans().0.counts.total(), 2 * (MAX_COUNTED_ORIGINS as u64 + 10));
    }

    #[test]
    fn every_way_to_end_has_a_place_of_its_own() {
        let counts = counts_from_now();
        for (at, verdict) in Verdict::ALL.into_iter().enumerate() {
            assert_eq!(verdict as usize, at);
            counts.flow_ended(verdict);
        }
        counts.refused("denied");
        counts.refused("denied");
        assert_eq!((counts.flows().len(), counts.refusals()["denied"]), (Verdict::ALL.len(), 2));
    }
}
