//! Liveness of the peer and the round-trip time.

use std::time::{Duration, Instant};

/// The shortest interval of round-trip measurements while data flows.
const PROBE_PERIOD: Duration = Duration::from_secs(1);
/// Time that the shortest round trip is remembered: at least this long, at most twice as long.
const MIN_RTT_PERIOD: Duration = Duration::from_secs(30);
/// The longest plausible round trip; a longer one means that a machine was suspended.
const MAX_RTT: Duration = Duration::from_secs(60);
/// Interval of probes while a user waits for the peer.
const CHECK_PERIOD: Duration = Duration::from_secs(1);
/// A peer that sent bytes within this time is not probed.
const RECENT_INPUT: Duration = Duration::from_millis(500);

/// The PINGs of one end: they detect a dead peer and measure the round trip.
#[derive(Debug)]
pub(crate) struct Keepalive {
    every: Duration,
    missed_limit: u32,
    /// The later of the last input and the last PING that was sent because of silence.
    quiet_since: Instant,
    unanswered: u32,
    /// Whether a user waits for the peer and nothing has arrived since.
    is_checking: bool,
    next_value: u64,
    /// A PING to send.
    due: Option<u64>,
    /// A PING that measures the round trip, and its time of sending.
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
            is_checking: false,
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

    /// Records input from the peer.
    pub(crate) fn on_input(&mut self, now: Instant) {
        self.quiet_since = self.quiet_since.max(now);
        self.unanswered = 0;
        self.is_checking = false;
    }

    /// Probes the peer because a user waits for it: at once, and then every second until input arrives or the peer
    /// counts as dead. Without effect if the peer sent bytes just now, or is being probed.
    pub(crate) fn check_liveness(&mut self, now: Instant) {
        if self.is_checking || (self.unanswered == 0 && now < self.quiet_since + RECENT_INPUT) {
            return;
        }
        self.is_checking = true;
        if self.unanswered == 0 {
            self.unanswered = 1;
            self.quiet_since = now;
            self.ask();
        }
    }

    /// Whether a probe has been unanswered for longer than answers take.
    pub(crate) fn is_unresponsive(&self) -> bool {
        self.is_checking && self.unanswered > 1
    }

    /// Time of silence before the peer is probed.
    pub(crate) fn every(&self) -> Duration {
        self.every
    }

    /// When to call [`Self::on_timeout`].
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let every = if self.is_checking { self.every.min(CHECK_PERIOD) } else { self.every };
        self.quiet_since.checked_add(every)
    }

    /// Probes the peer. An error is the number of consecutive unanswered PINGs: the peer is dead.
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

    /// Measures the round trip, unless it was measured a moment ago. Called when the value matters.
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

    /// Whether a PING is to be sent.
    pub(crate) fn is_due(&self) -> bool {
        self.due.is_some()
    }

    /// The PING to send now.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<u64> {
        let value = self.due.take()?;
        if self.in_flight.is_none() {
            self.in_flight = Some((value, now));
        }
        Some(value)
    }

    /// Stops sending.
    pub(crate) fn stop(&mut self) {
        self.due = None;
    }

    /// Handles PONG.
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

    /// The smoothed round-trip time.
    pub(crate) fn smoothed_rtt(&self) -> Option<Duration> {
        self.smoothed_rtt
    }

    /// The shortest recent round trip: the path without queues caused by this session.
    pub(crate) fn path_rtt(&self) -> Option<Duration> {
        self.min_rtt.into_iter().chain(self.former_min_rtt).min()
    }
}
