//! One path: its settings, its packets in flight, its model, its MTU, and whether it answers. Uses `packet` and `pmtu`.

mod model;
mod received;
mod round_trip;
mod sent;
mod settings;
mod validation;

use std::time::{Duration, Instant};

pub use self::settings::{PathSettings, PathState, PathStats};
use self::{
    model::Model,
    received::MAX_ACK_DELAY,
    round_trip::RoundTrip,
    sent::{Sent, SentPackets},
    validation::{SMALLEST_PACKET_BYTES, Validation},
};
pub(crate) use self::{
    received::Received,
    sent::{Content, Piece},
};
use crate::{
    packet::{Ack, Challenge, PathId, Status},
    pmtu::{BASE_BYTES, PathMtu},
};

/// The round trip of a path that has not shown any.
const UNKNOWN_ROUND_TRIP: Duration = Duration::from_millis(100);
/// A silent path sends a question after this time, so that NAT keeps its mapping and a dead link is known for one.
const KEEPALIVE: Duration = Duration::from_secs(5);
/// The same for a metered path.
const METERED_KEEPALIVE: Duration = Duration::from_secs(25);
/// Probes of a path that does not answer: the first interval and the greatest.
const PROBE_INTERVAL: Duration = Duration::from_millis(50);
const MAX_PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// How late packets may come on a path that reorders before they count as lost.
const MAX_LATENESS: Duration = Duration::from_millis(250);
/// Of this, what the suspicion allows for.
const MAX_SUSPICION_LATENESS: Duration = Duration::from_millis(100);
/// After this time without a packet that was late, the path is trusted more again.
const LATENESS_HALVES: Duration = Duration::from_secs(10);
/// A packet is lost that so many later ones have overtaken (RFC 9002 section 6.1.1), unless the path reorders.
const PACKET_THRESHOLD: u64 = 3;
/// What may be sent at once after a wake-up that came late.
const BURST: Duration = Duration::from_millis(2);
/// A path that was silent for longer than this begins with a new model.
const FORGET_MODEL: Duration = Duration::from_secs(1);

/// One path of an association.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) id: PathId,
    settings: PathSettings,
    /// What the peer wishes.
    peer: Option<Status>,
    status_sequence: u32,
    pub(crate) state: PathState,
    pub(crate) sent: SentPackets,
    pub(crate) received: Received,
    round_trip: RoundTrip,
    model: Model,
    pub(crate) mtu: PathMtu,
    pub(crate) validation: Validation,
    /// A challenge of the peer that has to be answered.
    pub(crate) response: Option<Challenge>,
    /// When the pace allows the next packet.
    next_send: Instant,
    /// How much later than expected packets came that counted as lost.
    lateness: Duration,
    late_at: Option<Instant>,
    /// When a question is due; `None` if the link is not there.
    ping_at: Option<Instant>,
    probe_interval: Duration,
    mtu_probe_at: Option<Instant>,
    /// When the newest packet was sent that was longer than the base and arrived.
    long_arrived: Option<Instant>,
    silent_since: Option<Instant>,
    pub(crate) numbers: Numbers,
}

/// What the path counts.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    pub(crate) sent_packets: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) received_packets: u64,
    pub(crate) received_bytes: u64,
    lost_packets: u64,
    spurious_losses: u64,
    suspicions: u64,
}

impl Path {
    pub(crate) fn new(id: PathId, settings: PathSettings, now: Instant) -> Self {
        let mut path = Self {
            id,
            settings,
            peer: None,
            status_sequence: 0,
            state: PathState::Unavailable,
            sent: SentPackets::default(),
            received: Received::default(),
            round_trip: RoundTrip::default(),
            model: Model::new(id.0, now),
            mtu: PathMtu::new(settings.max_payload_bytes),
            validation: Validation::default(),
            response: None,
            next_send: now,
            lateness: Duration::ZERO,
            late_at: None,
            ping_at: None,
            probe_interval: PROBE_INTERVAL,
            mtu_probe_at: None,
            long_arrived: None,
            silent_since: None,
            numbers: Numbers::default(),
        };
        path.settle(now);
        path
    }

    /// The settings of both sides together: the stricter of each.
    pub(crate) fn effective(&self) -> PathSettings {
        let Some(peer) = &self.peer else { return self.settings };
        PathSettings {
            weight: self.settings.weight.min(peer.weight),
            is_standby: self.settings.is_standby || peer.is_standby,
            is_metered: self.settings.is_metered || peer.is_metered,
            is_available: self.settings.is_available && peer.is_available,
            max_payload_bytes: self.settings.max_payload_bytes,
        }
    }

    /// Takes new settings of this side. What was in flight on a link that went away goes to `lost`.
    pub(crate) fn set(&mut self, settings: PathSettings, now: Instant, lost: &mut Vec<Content>) {
        self.settings = PathSettings { weight: settings.weight.clamp(1, 100), ..settings };
        self.mtu.set_max(settings.max_payload_bytes);
        self.status_sequence += 1;
        self.settle_or_stop(now, lost);
    }

    /// Takes the wishes of the peer, unless they are older than others.
    pub(crate) fn set_peer(&mut self, status: Status, now: Instant, lost: &mut Vec<Content>) {
        if self.peer.is_none_or(|before| status.sequence > before.sequence) {
            self.peer = Some(status);
            self.settle_or_stop(now, lost);
        }
    }

    /// The wishes of this side, for the peer.
    pub(crate) fn status(&self) -> Status {
        Status {
            path: self.id,
            sequence: self.status_sequence,
            weight: self.settings.weight,
            is_standby: self.settings.is_standby,
            is_metered: self.settings.is_metered,
            is_available: self.settings.is_available,
            is_removed: false,
        }
    }

    fn settle_or_stop(&mut self, now: Instant, lost: &mut Vec<Content>) {
        if self.effective().is_available {
            self.settle(now);
        } else if self.state != PathState::Unavailable {
            self.state = PathState::Unavailable;
            self.ping_at = None;
            self.lose_all(now, lost);
        }
    }

    /// A link that was not there begins anew: it may be another network now.
    fn settle(&mut self, now: Instant) {
        if self.state == PathState::Unavailable && self.effective().is_available {
            self.state = PathState::Opening;
            self.round_trip = RoundTrip::default();
            self.model.restart(self.id.0, now);
            self.lateness = Duration::ZERO;
            self.next_send = now.checked_sub(BURST).unwrap_or(now);
            self.ping_at = Some(now);
            self.probe_interval = PROBE_INTERVAL;
        }
    }

    /// Takes back all that is in flight.
    pub(crate) fn lose_all(&mut self, now: Instant, lost: &mut Vec<Content>) {
        let (mtu, numbers, long_arrived) = (&mut self.mtu, &mut self.numbers, self.long_arrived);
        self.response = None;
        self.sent.mark_all_lost(now, |sent| {
            if sent.is_probe {
                mtu.cancel_probe();
            } else {
                if long_arrived.is_none_or(|at| sent.at > at) {
                    mtu.on_lost(sent.bytes);
                }
                numbers.lost_packets += 1;
            }
            lost.push(std::mem::take(&mut sent.content));
        });
        self.mtu_probe_at = None;
    }

    fn loss_delay(&self) -> Duration {
        let round_trip = self.round_trip.smoothed().unwrap_or(UNKNOWN_ROUND_TRIP);
        round_trip + round_trip / 8 + Duration::from_millis(1) + self.lateness
    }

    /// How long an acknowledgement may take before the path is suspected.
    fn patience(&self) -> Duration {
        let round_trip = self.round_trip.smoothed().unwrap_or(UNKNOWN_ROUND_TRIP);
        let margin = (self.round_trip.variation() * 4).max(round_trip / 4).max(Duration::from_millis(10));
        round_trip + margin + MAX_ACK_DELAY + self.lateness.min(MAX_SUSPICION_LATENESS)
    }

    /// Takes an acknowledgement. What is lost goes to `lost`.
    pub(crate) fn on_ack(&mut self, ack: &Ack, now: Instant, lost: &mut Vec<Content>) {
        let largest = self.sent.largest_acked();
        let acked = self.sent.take_acked(ack);
        let Some(newest) = acked.last().map(|sent| sent.sample) else { return };
        let is_sample = largest.is_none_or(|largest| ack.ranges[0].1 > largest);
        let delay = Duration::from_micros(ack.delay_micros.into()).min(MAX_ACK_DELAY * 4);
        for (at, sent) in acked.iter().enumerate() {
            let took = now.duration_since(sent.at);
            if sent.lost_at.is_some() {
                self.record_late(took, now);
            } else if is_sample && at + 1 == acked.len() {
                self.round_trip.record(took.checked_sub(delay).unwrap_or(took), now);
            }
            self.model.on_acked(sent.bytes.into(), now);
            if sent.is_probe {
                self.mtu.on_probe_acked(sent.bytes, now);
                self.mtu_probe_at = None;
            } else {
                self.mtu.on_acked(sent.bytes);
            }
            if sent.bytes > BASE_BYTES {
                self.long_arrived = self.long_arrived.max(Some(sent.at));
            }
        }
        self.model.on_acks_end(&newest, self.sent.in_flight, &mut self.round_trip, now);
        if matches!(self.state, PathState::Opening | PathState::Suspected) {
            self.revive(now);
        }
        self.find_lost(now, lost);
    }

    fn record_late(&mut self, took: Duration, now: Instant) {
        self.numbers.spurious_losses += 1;
        let expected = self.round_trip.smoothed().unwrap_or(UNKNOWN_ROUND_TRIP);
        let late = took.saturating_sub(expected).min(MAX_LATENESS);
        self.lateness = self.lateness.max(late);
        self.late_at = Some(now);
    }

    fn revive(&mut self, now: Instant) {
        if self.silent_since.take().is_some_and(|since| now.duration_since(since) > FORGET_MODEL) {
            self.model.restart(self.id.0, now);
        }
        self.state = PathState::Active;
        self.probe_interval = PROBE_INTERVAL;
        self.ping_at = Some(now + self.keepalive());
    }

    fn keepalive(&self) -> Duration {
        if self.effective().is_metered { METERED_KEEPALIVE } else { KEEPALIVE }
    }

    fn find_lost(&mut self, now: Instant, lost: &mut Vec<Content>) {
        let delay = self.loss_delay();
        let threshold = self.lateness.is_zero().then_some(PACKET_THRESHOLD);
        let (mtu, numbers, model) = (&mut self.mtu, &mut self.numbers, &mut self.model);
        let (mtu_probe_at, mut has_challenge) = (&mut self.mtu_probe_at, false);
        let long_arrived = self.long_arrived;
        self.sent.mark_lost(delay, threshold, now, |sent| {
            if sent.is_probe {
                mtu.on_probe_lost(sent.bytes, now);
                *mtu_probe_at = None;
            } else {
                // A queue that overflows loses many in a row, and a long packet after them arrives.
                if long_arrived.is_none_or(|at| sent.at > at) {
                    mtu.on_lost(sent.bytes);
                }
                model.on_lost();
                numbers.lost_packets += 1;
            }
            has_challenge |= sent.content.has_challenge;
            lost.push(std::mem::take(&mut sent.content));
        });
        if has_challenge && !self.validation.is_complete() {
            self.ping_at = Some(now);
        }
    }

    /// The peer has a new address, from which `received` bytes came. The path sends little until the peer has answered.
    pub(crate) fn validate(&mut self, challenge: Challenge, received: u64, now: Instant) {
        self.validation.begin(challenge, received);
        if self.state != PathState::Unavailable {
            self.ping_at = Some(now);
        }
    }

    /// Whether packets without datagrams may be sent.
    pub(crate) fn may_send(&self) -> bool {
        self.state != PathState::Unavailable && self.validation.room() >= SMALLEST_PACKET_BYTES
    }

    /// The greatest packet that may be sent.
    pub(crate) fn packet_bytes(&self) -> usize {
        usize::from(self.mtu.current()).min(self.validation.room())
    }

    /// Whether the greatest packet may be sent.
    pub(crate) fn may_send_datagrams(&self) -> bool {
        self.validation.room() >= usize::from(self.mtu.current())
    }

    /// Does what is due: lost packets, lost probes, suspicion.
    pub(crate) fn handle_timeout(&mut self, now: Instant, lost: &mut Vec<Content>) {
        if self.late_at.is_some_and(|at| now.duration_since(at) >= LATENESS_HALVES) {
            self.lateness = (self.lateness / 2).checked_sub(Duration::from_millis(1)).unwrap_or_default();
            self.late_at = (!self.lateness.is_zero()).then_some(now);
        }
        if self.sent.loss_at(self.loss_delay()).is_some_and(|at| at <= now) {
            self.find_lost(now, lost);
        }
        let patience = self.patience();
        if let Some(at) = self.mtu_probe_at.filter(|&at| at + patience <= now) {
            self.mtu_probe_at = None;
            let mtu = &mut self.mtu;
            self.sent.mark_probes_lost(at, now, |sent| mtu.on_probe_lost(sent.bytes, now));
        }
        let is_owed = self.sent.owed_since().is_some_and(|since| since + patience <= now);
        if self.state == PathState::Active && is_owed {
            self.state = PathState::Suspected;
            self.silent_since = Some(now);
            self.numbers.suspicions += 1;
            self.ping_at = Some(now);
        }
        // A path that is not trusted keeps nothing for itself.
        if is_owed && matches!(self.state, PathState::Suspected | PathState::Opening) {
            self.lose_all(now, lost);
        }
    }

    /// When something is due, and that the pace and the queue of datagrams are not part of.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let (may_send, patience) = (self.may_send(), self.patience());
        let times = [
            self.received.ack_at().filter(|_| may_send),
            self.ping_at.filter(|_| may_send),
            self.sent.loss_at(self.loss_delay()),
            self.sent.owed_since().map(|since| since + patience),
            self.mtu_probe_at.map(|at| at + patience),
            self.mtu.poll_timeout().filter(|_| self.may_probe_mtu()),
        ];
        times.into_iter().flatten().min()
    }

    /// Whether packets that ask for the MTU may be sent.
    pub(crate) fn may_probe_mtu(&self) -> bool {
        self.state == PathState::Active && self.validation.is_complete()
    }

    /// Whether a question is due.
    pub(crate) fn has_ping(&self, now: Instant) -> bool {
        self.ping_at.is_some_and(|at| at <= now)
    }

    /// Records a packet: `content` is `None` if it asks for no acknowledgement.
    pub(crate) fn record_sent(&mut self, bytes: usize, content: Option<Content>, is_probe: bool, now: Instant) {
        self.numbers.sent_packets += 1;
        self.numbers.sent_bytes += bytes as u64;
        self.validation.record_sent(bytes as u64);
        let Some(content) = content else { return self.sent.push(None) };
        if self.sent.in_flight == 0 {
            self.silent_since = self.silent_since.filter(|_| self.state != PathState::Active);
        }
        let sample = self.model.on_sent(now, self.sent.in_flight);
        self.sent.push(Some(Sent { at: now, bytes: bytes as u16, content, sample, is_probe, lost_at: None }));
        if is_probe {
            self.mtu_probe_at = Some(now);
        } else {
            let pace = self.pace();
            let earliest = now.checked_sub(BURST).unwrap_or(now);
            self.next_send = self.next_send.max(earliest) + Duration::from_secs_f64(bytes as f64 / pace);
        }
        self.ping_at = match self.state {
            PathState::Active => Some(now + self.keepalive()),
            PathState::Opening | PathState::Suspected if self.has_ping(now) => {
                let interval = self.probe_interval;
                self.probe_interval = (interval * 2).min(MAX_PROBE_INTERVAL);
                Some(now + interval)
            }
            _ => self.ping_at,
        };
    }

    /// Bytes a second that datagrams may take now.
    fn pace(&self) -> f64 {
        self.model.pace(&self.round_trip) * f64::from(self.effective().weight) / 100.0
    }

    /// Bytes a second that the path is expected to carry.
    pub(crate) fn rate(&self) -> f64 {
        let known = self.model.rate();
        let rate = if known > 0.0 { known } else { self.model.pace(&self.round_trip) };
        rate * f64::from(self.effective().weight) / 100.0
    }

    /// How long a packet takes from here to the peer.
    pub(crate) fn delay(&self) -> Duration {
        self.round_trip.smoothed().unwrap_or(UNKNOWN_ROUND_TRIP) / 2
    }

    /// When the pace allows a packet; `None` if the window is full.
    pub(crate) fn free_at(&self) -> Option<Instant> {
        (self.sent.in_flight < self.model.window(&self.round_trip)).then_some(self.next_send)
    }

    /// How long until the window has room for a packet, if the path goes on as before.
    pub(crate) fn until_window(&self) -> Duration {
        let excess = (self.sent.in_flight + 1500).saturating_sub(self.model.window(&self.round_trip));
        Duration::from_secs_f64(excess as f64 / self.rate().max(1.0)).max(Duration::from_micros(100))
    }

    /// Nothing is left to send although this path could.
    pub(crate) fn mark_app_limited(&mut self) {
        self.model.mark_app_limited(self.sent.in_flight);
    }

    pub(crate) fn stats(&self) -> PathStats {
        PathStats {
            settings: self.settings,
            state: self.state,
            round_trip: self.round_trip.smoothed().unwrap_or_default(),
            min_round_trip: self.round_trip.min(),
            rate: self.model.rate() as u64,
            window: self.model.window(&self.round_trip),
            in_flight: self.sent.in_flight,
            mtu: self.mtu.current(),
            sent_packets: self.numbers.sent_packets,
            sent_bytes: self.numbers.sent_bytes,
            received_packets: self.numbers.received_packets,
            received_bytes: self.numbers.received_bytes,
            lost_packets: self.numbers.lost_packets,
            spurious_losses: self.numbers.spurious_losses,
            suspicions: self.numbers.suspicions,
        }
    }
}
