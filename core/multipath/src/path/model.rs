//! The congestion control of a path: a model of its rate and its shortest round trip, in the manner of BBR.
//!
//! The rate is the greatest that acknowledgements have shown in the last ten round trips. The window is twice what the
//! path holds at this rate. Loss alone does not slow the sender; a rate that falls does. The sender now and then sends
//! faster for one round trip, to see whether there is more, and then slower, so that the queue it made drains.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use super::round_trip::RoundTrip;

/// Bytes that may be in flight before anything is known.
pub(crate) const INITIAL_WINDOW: u64 = 32 * 1200;
const MIN_WINDOW: u64 = 4 * 1500;
/// The rate is the greatest of this many round trips.
const RATE_ROUNDS: u64 = 10;
const STARTUP_GAIN: f64 = 2.77;
const DRAIN_GAIN: f64 = 0.35;
const WINDOW_GAIN: f64 = 2.0;
/// Paces of the steady state, each for one round trip.
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// Round trips without a rate greater by a quarter after which the path counts as full.
const FULL_ROUNDS: u8 = 3;
/// A round trip of the startup in which more than one packet of this many is lost ends the startup.
const STARTUP_LOSS: u64 = 10;
/// How long the window is halved to see the shortest round trip.
const PROBE_ROUND_TRIP: Duration = Duration::from_millis(100);
/// Acknowledgements come in groups; the window allows for what arrives meanwhile.
const ACK_GROUP: Duration = Duration::from_millis(5);

#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    Startup,
    Drain,
    Steady { step: usize, since: Instant },
    ProbeRoundTrip { until: Instant },
}

/// What the model knew when a packet was sent; comes back with the packet's acknowledgement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    sent_at: Instant,
    delivered: u64,
    delivered_at: Instant,
    first_sent_at: Instant,
    is_app_limited: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Model {
    phase: Phase,
    /// Rounds and rates, in bytes a second: each later and smaller than the one before.
    rates: VecDeque<(u64, f64)>,
    delivered: u64,
    delivered_at: Instant,
    first_sent_at: Instant,
    /// The sender had nothing to send while less than this was delivered.
    app_limited_until: u64,
    round: u64,
    round_ends_at: u64,
    round_lost: u64,
    round_acked: u64,
    full_rate: f64,
    full_rounds: u8,
    lost_in_step: bool,
    /// Where the cycle begins: differs by path, so that paths which share a link do not push together.
    first_step: usize,
}

impl Model {
    pub(crate) fn new(path: u16, now: Instant) -> Self {
        Self {
            phase: Phase::Startup,
            rates: VecDeque::new(),
            delivered: 0,
            delivered_at: now,
            first_sent_at: now,
            app_limited_until: 0,
            round: 0,
            round_ends_at: 0,
            round_lost: 0,
            round_acked: 0,
            full_rate: 0.0,
            full_rounds: 0,
            lost_in_step: false,
            first_step: 2 + usize::from(path) % 6,
        }
    }

    /// Forgets what was learnt. What was delivered goes on counting, because packets in flight have samples of it.
    pub(crate) fn restart(&mut self, path: u16, now: Instant) {
        let delivered = self.delivered;
        *self = Self { delivered, round_ends_at: delivered, ..Self::new(path, now) };
    }

    /// The rate that the path has shown, in bytes a second; 0 before the first acknowledgement.
    pub(crate) fn rate(&self) -> f64 {
        self.rates.front().map_or(0.0, |&(_, rate)| rate)
    }

    /// Bytes a second at which to send.
    pub(crate) fn pace(&self, round_trip: &RoundTrip) -> f64 {
        let gain = match self.phase {
            Phase::Startup => STARTUP_GAIN,
            Phase::Drain => DRAIN_GAIN,
            Phase::Steady { step, .. } => CYCLE[step],
            Phase::ProbeRoundTrip { .. } => 1.0,
        };
        let known = self.rate();
        if known == 0.0 || (self.phase == Phase::Startup && self.round < 2) {
            let round_trip = round_trip.smoothed().unwrap_or(Duration::from_millis(20)).max(Duration::from_millis(1));
            return (INITIAL_WINDOW as f64 / round_trip.as_secs_f64()).max(known * gain);
        }
        // Slightly less than the rate, so that no queue stays in the steady state.
        (known * gain * 0.99).max(MIN_WINDOW as f64)
    }

    /// Bytes that may be in flight.
    pub(crate) fn window(&self, round_trip: &RoundTrip) -> u64 {
        let held = self.held(round_trip);
        if held == 0 {
            return INITIAL_WINDOW;
        }
        let group = (self.rate() * ACK_GROUP.as_secs_f64()) as u64;
        let scaled = |gain: f64| (held as f64 * gain) as u64 + group;
        match self.phase {
            Phase::Startup => scaled(WINDOW_GAIN).max(INITIAL_WINDOW),
            Phase::ProbeRoundTrip { .. } => (held / 2).max(MIN_WINDOW),
            Phase::Drain | Phase::Steady { .. } => scaled(WINDOW_GAIN).max(MIN_WINDOW),
        }
    }

    /// Bytes that the path holds without a queue.
    fn held(&self, round_trip: &RoundTrip) -> u64 {
        (self.rate() * round_trip.min().as_secs_f64()) as u64
    }

    pub(crate) fn on_sent(&mut self, now: Instant, in_flight: u64) -> Sample {
        if in_flight == 0 {
            self.first_sent_at = now;
            self.delivered_at = now;
        }
        Sample {
            sent_at: now,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
            is_app_limited: self.delivered < self.app_limited_until || self.is_measuring(),
        }
    }

    /// Whether the window is small on purpose.
    fn is_measuring(&self) -> bool {
        matches!(self.phase, Phase::ProbeRoundTrip { .. })
    }

    /// There is room for more in flight, and nothing to send.
    pub(crate) fn mark_app_limited(&mut self, in_flight: u64) {
        self.app_limited_until = self.delivered + in_flight.max(1);
    }

    pub(crate) fn on_acked(&mut self, bytes: u64, now: Instant) {
        self.delivered += bytes;
        self.delivered_at = now;
        self.round_acked += 1;
    }

    pub(crate) fn on_lost(&mut self) {
        self.round_lost += 1;
        self.lost_in_step = true;
    }

    /// All packets of one acknowledgement are recorded; `newest` is the sample of the one sent last.
    pub(crate) fn on_acks_end(&mut self, newest: &Sample, in_flight: u64, round_trip: &mut RoundTrip, now: Instant) {
        let is_round = newest.delivered >= self.round_ends_at;
        if is_round {
            self.round += 1;
            self.round_ends_at = self.delivered;
        }
        self.record_rate(newest, round_trip, now);
        self.first_sent_at = newest.sent_at;
        if is_round {
            self.check_full(newest);
            (self.round_acked, self.round_lost) = (0, 0);
        }
        self.advance(in_flight, round_trip, now);
    }

    fn record_rate(&mut self, newest: &Sample, round_trip: &RoundTrip, now: Instant) {
        let sending = newest.sent_at.duration_since(newest.first_sent_at);
        let arriving = now.duration_since(newest.delivered_at);
        let interval = sending.max(arriving);
        if interval.is_zero() || interval < round_trip.min() / 2 {
            return;
        }
        let rate = (self.delivered - newest.delivered) as f64 / interval.as_secs_f64();
        if newest.is_app_limited && rate < self.rate() {
            return;
        }
        while self.rates.back().is_some_and(|&(_, last)| last <= rate) {
            self.rates.pop_back();
        }
        self.rates.push_back((self.round, rate));
        while self.rates.front().is_some_and(|&(round, _)| round + RATE_ROUNDS < self.round) {
            self.rates.pop_front();
        }
    }

    /// Ends the startup when the rate no longer grows, or when much is lost.
    fn check_full(&mut self, newest: &Sample) {
        if self.phase != Phase::Startup {
            return;
        }
        let is_lossy = self.round_lost >= 8 && self.round_lost * STARTUP_LOSS > self.round_acked + self.round_lost;
        if self.rate() >= self.full_rate * 1.25 && !is_lossy {
            self.full_rate = self.rate();
            self.full_rounds = 0;
        } else if !newest.is_app_limited || is_lossy {
            self.full_rounds += 1;
            if is_lossy || self.full_rounds >= FULL_ROUNDS {
                self.phase = Phase::Drain;
            }
        }
    }

    fn advance(&mut self, in_flight: u64, round_trip: &mut RoundTrip, now: Instant) {
        let held = self.held(round_trip);
        match self.phase {
            Phase::Startup => {}
            Phase::Drain if in_flight > held => {}
            Phase::Drain => self.phase = Phase::Steady { step: self.first_step, since: now },
            Phase::Steady { step, since } => {
                if round_trip.is_min_old(now) {
                    round_trip.begin_measurement();
                    self.phase = Phase::ProbeRoundTrip { until: now + PROBE_ROUND_TRIP.max(round_trip.min() * 2) };
                    return;
                }
                let is_over = now.duration_since(since) > round_trip.min();
                let is_next = match step {
                    0 => (is_over && in_flight > held) || self.lost_in_step,
                    1 => is_over || in_flight <= held,
                    _ => is_over,
                };
                if is_next {
                    self.phase = Phase::Steady { step: (step + 1) % CYCLE.len(), since: now };
                    self.lost_in_step = false;
                }
            }
            Phase::ProbeRoundTrip { until } if now < until => {}
            Phase::ProbeRoundTrip { .. } => {
                round_trip.end_measurement(now);
                self.phase = Phase::Steady { step: self.first_step, since: now };
            }
        }
    }
}
