//! Whether the peer is there, and how far away it is.

use std::time::{Duration, Instant};

/// How often the round trip is measured while data flows, at most.
const PROBE_PERIOD: Duration = Duration::from_secs(1);
/// How long the shortest round trip is remembered: for this long at least, for twice as long at most.
const MIN_RTT_PERIOD: Duration = Duration::from_secs(30);
/// The longest round trip that is believed; a longer one is a machine that slept.
const MAX_RTT: Duration = Duration::from_secs(60);
/// How often a peer is asked that somebody waits for in vain, where it is not asked more often anyway.
const DOUBT_PERIOD: Duration = Duration::from_secs(1);
/// Whoever was heard this lately is not asked.
const HEARD_LATELY: Duration = Duration::from_millis(500);

/// The PINGs of one end. They keep the session known to be alive, and measure the round trip.
#[derive(Debug)]
pub(crate) struct Keepalive {
    every: Duration,
    missed_limit: u32,
    /// The latest of the last input and the last PING sent for the lack of it.
    quiet_since: Instant,
    unanswered: u32,
    /// Somebody waits for the peer in vain, and nothing has come since that was said.
    is_doubted: bool,
    next_value: u64,
    /// A PING to be sent.
    due: Option<u64>,
    /// A PING whose answer gives the round trip, and when it was sent.
    in_flight: Option<(u64, Instant)>,
    last_probe: Option<Instant>,
    smoothed_rtt: Option<Duration>,
    min_rtt: Option<Duration>,
    former_min_rtt: Option<Duration>,
    min_rtt_since: Instant,
}

impl Keepalive {
    pub(crate) fn new(every: Duration, missed_limit: u32, now: Instant) -> Self {
        Self {
            every,
            missed_limit,
            quiet_since: now,
            unanswered: 0,
            is_doubted: false,
            next_value: 1,
            due: None,
            in_flight: None,
            last_probe: None,
            smoothed_rtt: None,
            min_rtt: None,
            former_min_rtt: None,
            min_rtt_since: now,
        }
    }

    /// Anything came from the peer.
    pub(crate) fn on_input(&mut self, now: Instant) {
        self.quiet_since = self.quiet_since.max(now);
        self.unanswered = 0;
        self.is_doubted = false;
    }

    /// Somebody waits for the peer in vain: it is asked at once whether it is there, and then every second, until anything
    /// comes or it counts as dead. Not when it was heard just now, or is asked already.
    pub(crate) fn doubt(&mut self, now: Instant) {
        if self.is_doubted || (self.unanswered == 0 && now < self.quiet_since + HEARD_LATELY) {
            return;
        }
        self.is_doubted = true;
        if self.unanswered == 0 {
            self.unanswered = 1;
            self.quiet_since = now;
            self.ask();
        }
    }

    /// Whether it has left somebody's question unanswered for longer than answers take.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.is_doubted && self.unanswered > 1
    }

    /// After how much silence the peer is asked whether it is there.
    pub(crate) fn every(&self) -> Duration {
        self.every
    }

    /// When [`Self::on_timeout`] is due.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let every = if self.is_doubted { self.every.min(DOUBT_PERIOD) } else { self.every };
        self.quiet_since.checked_add(every)
    }

    /// Asks the peer whether it is there. An error says how many PINGs in a row it has not answered: it is dead.
    pub(crate) fn on_timeout(&mut self, now: Instant) -> Result<(), u32> {
        if self.deadline().is_none_or(|deadline| now < deadline) {
            return Ok(());
        }
        if self.unanswered >= self.missed_limit {
            return Err(self.unanswered);
        }
        self.unanswered += 1;
        self.quiet_since = now;
        self.ask();
        Ok(())
    }

    /// Measures the round trip, unless that was done a moment ago. Called when the figure matters.
    pub(crate) fn probe(&mut self, now: Instant) {
        let recent = self.last_probe.is_some_and(|last| now.saturating_duration_since(last) < PROBE_PERIOD);
        if !recent && self.in_flight.is_none() {
            self.last_probe = Some(now);
            self.ask();
        }
    }

    fn ask(&mut self) {
        if self.due.is_none() {
            self.due = Some(self.next_value);
            self.next_value = self.next_value.wrapping_add(1);
        }
    }

    /// A PING waits to be sent.
    pub(crate) fn is_due(&self) -> bool {
        self.due.is_some()
    }

    /// The PING to be sent now.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<u64> {
        let value = self.due.take()?;
        if self.in_flight.is_none() {
            self.in_flight = Some((value, now));
        }
        Some(value)
    }

    /// Nothing more is to be sent.
    pub(crate) fn stop(&mut self) {
        self.due = None;
    }

    /// PONG came.
    pub(crate) fn on_pong(&mut self, value: u64, now: Instant) {
        let Some((_, sent_at)) = self.in_flight.take_if(|(sent, _)| *sent == value) else {
            return;
        };
        let rtt = now.saturating_duration_since(sent_at).min(MAX_RTT);
        // RFC 6298 section 2.3: the smoothed round trip moves by an eighth of the difference.
        self.smoothed_rtt = Some(self.smoothed_rtt.map_or(rtt, |smoothed| (smoothed * 7 + rtt) / 8));
        if now.saturating_duration_since(self.min_rtt_since) >= MIN_RTT_PERIOD {
            self.former_min_rtt = self.min_rtt.take();
            self.min_rtt_since = now;
        }
        self.min_rtt = Some(self.min_rtt.map_or(rtt, |min| min.min(rtt)));
    }

    /// The round trip, smoothed.
    pub(crate) fn smoothed_rtt(&self) -> Option<Duration> {
        self.smoothed_rtt
    }

    /// The shortest round trip of late: the path without the queues that we fill ourselves.
    pub(crate) fn path_rtt(&self) -> Option<Duration> {
        self.min_rtt.into_iter().chain(self.former_min_rtt).min()
    }
}
