//! A reliable sender with the window of CUBIC (RFC 9438) and selective acknowledgements, as an inner flow.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use bytes::Bytes;
use sallyport_multipath::Association;

use crate::simulator::{CONNECTOR, Program};

const SEGMENT: usize = 1400;

/// The connector's side sends without end; the edge's side acknowledges every segment. Times are in seconds.
#[derive(Debug)]
pub(crate) struct Tcp {
    window: f64,
    threshold: f64,
    window_max: f64,
    epoch: Option<Instant>,
    next: u64,
    in_flight: BTreeMap<u64, Instant>,
    lost: BTreeSet<u64>,
    largest_acked: u64,
    /// Losses of segments below this are of the same event.
    recovery: u64,
    round_trip: Duration,
    last_ack: Option<Instant>,
    pub(crate) events: u64,
    pub(crate) timeouts: u64,
    /// What the receiver has in order, and what it has beyond.
    expected: u64,
    beyond: BTreeSet<u64>,
    acks: Vec<u64>,
    pub(crate) delivered_bytes: u64,
}

impl Default for Tcp {
    fn default() -> Self {
        Self {
            window: 10.0,
            threshold: f64::MAX,
            window_max: 0.0,
            epoch: None,
            next: 0,
            in_flight: BTreeMap::new(),
            lost: BTreeSet::new(),
            largest_acked: 0,
            recovery: 0,
            round_trip: Duration::from_millis(200),
            last_ack: None,
            events: 0,
            timeouts: 0,
            expected: 0,
            beyond: BTreeSet::new(),
            acks: Vec::new(),
            delivered_bytes: 0,
        }
    }
}

impl Tcp {
    fn reduce(&mut self) {
        self.events += 1;
        self.window_max = self.window;
        self.window = (self.window * 0.7).max(2.0);
        self.threshold = self.window;
        self.epoch = None;
        self.recovery = self.next;
    }

    fn on_ack(&mut self, number: u64, now: Instant) {
        self.last_ack = Some(now);
        self.lost.remove(&number);
        let Some(at) = self.in_flight.remove(&number) else { return };
        self.round_trip = (self.round_trip * 7 + (now - at)) / 8;
        self.largest_acked = self.largest_acked.max(number);
        if self.window < self.threshold {
            self.window += 1.0;
        } else {
            let epoch = *self.epoch.get_or_insert(now);
            let k = (self.window_max * 0.3 / 0.4).max(0.0).cbrt();
            let t = (now - epoch + self.round_trip).as_secs_f64() - k;
            let target = (0.4 * t * t * t + self.window_max).min(self.window * 1.5);
            self.window += ((target - self.window) / self.window).max(0.01 / self.window);
        }
        let bound = self.largest_acked.saturating_sub(3);
        let missing: Vec<u64> = self.in_flight.range(..bound).map(|(&number, _)| number).collect();
        for number in missing {
            // A segment that was sent again is lost only after another round trip.
            if now - self.in_flight[&number] > self.round_trip {
                self.in_flight.remove(&number);
                self.lost.insert(number);
                if number >= self.recovery {
                    self.reduce();
                }
            }
        }
    }
}

impl Program for Tcp {
    fn run(&mut self, end: usize, association: &mut Association, now: Instant) -> Option<Instant> {
        if end != CONNECTOR {
            for number in std::mem::take(&mut self.acks) {
                // An acknowledgement that finds no room is lost, as at a full queue.
                let _ = association.send(Bytes::copy_from_slice(&number.to_be_bytes()), now);
            }
            return None;
        }
        let patience = (self.round_trip * 2).max(Duration::from_millis(200));
        if self.last_ack.is_some_and(|at| now >= at + patience) && !self.in_flight.is_empty() {
            self.timeouts += 1;
            self.last_ack = Some(now);
            self.lost.extend(std::mem::take(&mut self.in_flight).into_keys());
            self.reduce();
            self.window = 2.0;
        }
        while (self.in_flight.len() as f64) < self.window {
            let number = self.lost.pop_first().unwrap_or_else(|| {
                self.next += 1;
                self.next - 1
            });
            let mut segment = vec![0; SEGMENT];
            segment[..8].copy_from_slice(&number.to_be_bytes());
            // A segment that finds no room is lost, as at a full queue.
            let _ = association.send(Bytes::from(segment), now);
            self.in_flight.insert(number, now);
        }
        Some(self.last_ack.unwrap_or(now).max(now) + patience)
    }

    fn receive(&mut self, end: usize, datagram: Bytes, now: Instant) {
        let number = u64::from_be_bytes(datagram[..8].try_into().expect("eight bytes"));
        if end == CONNECTOR {
            self.on_ack(number, now);
            return;
        }
        self.acks.push(number);
        if number >= self.expected {
            self.beyond.insert(number);
        }
        while self.beyond.remove(&self.expected) {
            self.expected += 1;
            self.delivered_bytes += SEGMENT as u64;
        }
    }
}
