//! How far the address of a UDP client is validated, and what follows: which flow is evicted first, how long a flow
//! lasts, and how many bytes its client may get. Pure: time is an argument.
//!
//! The source address of a datagram can be forged, and passive observation of plain UDP proves none. What can be
//! counted is *exchanges*: datagrams of the client that follow an answer. A forger sees no answers, but can guess their
//! time. So exchanges only make forging dearer, and each [`Level`] allows a bounded amount.

use std::{
    collections::HashMap,
    hash::Hash,
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};
use sallyport_balance::limits::{RateLimit, TokenBucket};
use sallyport_model::SocketId;

use crate::lifecycle::counts::party;

/// The amplification limit: how many times the received bytes a flow may always send (RFC 9000 section 8.1).
const FACTOR: u64 = 3;
/// The credit for each datagram of a client beyond that, in bytes, by level. The highest level covers an
/// acknowledgement of 64 full datagrams that one system call received.
const BYTES_PER_DATAGRAM: [u64; Level::COUNT] = [0, 8_192, 32_768, 131_072];
/// How much all flows of one address and level may get beyond their credit from one socket, in bytes a second. From the
/// second level on this carries a video of 50 Mbit/s with one report of the receiver a second.
const BYTES_PER_SECOND: [u64; Level::COUNT] = [262_144, 8_388_608, 8_388_608, 16_777_216];
/// How many sockets may use the full amount towards one address. A client that forges addresses at one socket so leaves
/// room for the other sockets.
const SOCKETS_PER_ADDRESS: u64 = 16;
/// How much credit a flow can save up, in bytes.
const MAX_CREDIT_BYTES: u64 = 16 * 1024 * 1024;
/// How long after its client's last datagram a flow counts as active.
const ACTIVE_TIME: Duration = Duration::from_secs(10);
/// How long after its client's last datagram a guarded flow ends, whatever the origin sends. A longer configured idle
/// timeout extends this.
const MAX_SILENCE: Duration = Duration::from_secs(300);
/// The idle timeout by level; the last two levels have the configured one.
const MAX_IDLE: [Duration; Level::COUNT] =
    [Duration::from_secs(10), Duration::from_secs(30), Duration::MAX, Duration::MAX];
/// How many allowances exist for addresses at sockets, and how many for addresses; further addresses share one.
const MAX_ALLOWANCES: usize = 131_072;
/// From how many allowances on unused ones are searched for.
const MIN_ALLOWANCES_TO_LOOK: usize = 1_024;
/// The least time between two searches, each of which reads all allowances.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// How many exchanges a flow has had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// None: a client that sends one request, as resolvers do, or a forged address.
    New,
    /// 1 to 3.
    Few,
    /// 4 to 15.
    Some,
    /// 16 and more.
    Many,
}

impl Level {
    /// How many levels there are.
    pub(crate) const COUNT: usize = 4;
    /// All levels, the lowest first.
    pub(crate) const ALL: [Self; Self::COUNT] = [Self::New, Self::Few, Self::Some, Self::Many];

    fn of(exchanges: u32) -> Self {
        match exchanges {
            0 => Self::New,
            1..4 => Self::Few,
            4..16 => Self::Some,
            _ => Self::Many,
        }
    }
}

/// The validation of one flow's address.
#[derive(Debug, Clone, Default)]
pub(crate) struct AddressValidation {
    exchanges: u32,
    /// A datagram was sent since the client's last one.
    is_answered: bool,
    /// When the client's last datagram arrived.
    last_received: Option<Instant>,
    /// The credit for the client's bytes.
    asked_bytes: u64,
    /// The credit for the client's datagrams, while the flow is active.
    earned_bytes: u64,
}

impl AddressValidation {
    /// Records datagrams of the client.
    pub(crate) fn received(&mut self, datagrams: usize, bytes: u64, now: Instant) {
        if std::mem::take(&mut self.is_answered) {
            self.exchanges = self.exchanges.saturating_add(1);
        }
        if self.is_silent(now) {
            self.earned_bytes = 0;
        }
        self.last_received = Some(now);
        let each = BYTES_PER_DATAGRAM[self.level() as usize];
        let more = (datagrams as u64).saturating_mul(each);
        self.earned_bytes = self.earned_bytes.saturating_add(more).min(MAX_CREDIT_BYTES);
        let more = bytes.saturating_mul(FACTOR);
        self.asked_bytes = self.asked_bytes.saturating_add(more).min(MAX_CREDIT_BYTES - self.earned_bytes);
    }

    /// Whether a datagram of this size may go to the client; if so, it counts as sent. What exceeds the flow's credit
    /// is taken from `allowance`. After a silence of the client, earlier exchanges do not count.
    pub(crate) fn may_send(&mut self, bytes: u64, allowance: &Allowance, now: Instant) -> bool {
        let is_silent = self.is_silent(now);
        let level = if is_silent { Level::New } else { self.level() };
        if is_silent {
            self.earned_bytes = 0;
        }
        let of_earned = bytes.min(self.earned_bytes);
        let of_asked = (bytes - of_earned).min(self.asked_bytes);
        let beyond = bytes - of_earned - of_asked;
        if beyond > 0 && !allowance.take(level, beyond, now) {
            return false;
        }
        self.earned_bytes -= of_earned;
        self.asked_bytes -= of_asked;
        self.is_answered = true;
        true
    }

    fn is_silent(&self, now: Instant) -> bool {
        self.last_received.is_none_or(|at| now.saturating_duration_since(at) >= ACTIVE_TIME)
    }

    /// Records a datagram to the client that needs no credit.
    pub(crate) fn sends(&mut self) {
        self.is_answered = true;
    }

    /// The level.
    pub(crate) fn level(&self) -> Level {
        Level::of(self.exchanges)
    }

    /// The rank for eviction, after this silence of the client: an idle flow never has the highest rank.
    pub(crate) fn rank(&self, silence: Duration) -> Level {
        if silence < ACTIVE_TIME { self.level() } else { self.level().min(Level::Some) }
    }

    /// The idle timeout of the flow, where `longest` is the configured one.
    pub(crate) fn max_idle(&self, longest: Duration) -> Duration {
        MAX_IDLE[self.level() as usize].min(longest)
    }

    /// Whether the flow has ended: nothing moved for `rest`, and the client was silent for `silence`.
    pub(crate) fn is_over(&self, rest: Duration, silence: Duration, longest: Duration, is_guarded: bool) -> bool {
        rest >= self.max_idle(longest) || (is_guarded && silence >= MAX_SILENCE.max(longest))
    }
}

/// What one address may get beyond the credit of its flows.
#[derive(Debug)]
pub(crate) struct Allowance {
    /// By level; each bucket holds the amount of one second.
    buckets: Mutex<[Option<TokenBucket>; Level::COUNT]>,
    /// The allowance of which this one is a part.
    whole: Option<Arc<Self>>,
}

impl Allowance {
    /// An unused allowance, as large as that of this many sockets.
    fn new(sockets: u64, whole: Option<Arc<Self>>, now: Instant) -> Self {
        let bucket = |bytes: u64| {
            let bytes = bytes.saturating_mul(sockets);
            RateLimit::new(bytes, bytes).ok().map(|limit| TokenBucket::new(limit, now))
        };
        Self { buckets: Mutex::new(BYTES_PER_SECOND.map(bucket)), whole }
    }

    fn lock(&self) -> MutexGuard<'_, [Option<TokenBucket>; Level::COUNT]> {
        self.buckets.lock()
    }

    fn take(&self, level: Level, bytes: u64, now: Instant) -> bool {
        let may = self.lock()[level as usize].as_mut().is_some_and(|bucket| bucket.take(bytes, now).is_ok());
        // A refusal here takes nothing from the whole.
        may && self.whole.as_ref().is_none_or(|whole| whole.take(level, bytes, now))
    }

    /// Whether all buckets are full, so that a new allowance would be the same.
    fn is_whole(&self, now: Instant) -> bool {
        let buckets = self.lock();
        let is_full = |bucket: &TokenBucket| bucket.clone().take(bucket.limit().burst(), now).is_ok();
        buckets.iter().flatten().all(is_full)
    }
}

/// The allowances of all addresses; in IPv6, of networks of 64 bits.
#[derive(Debug)]
pub(crate) struct Allowances {
    /// For each address at each socket.
    at_sockets: AllowanceMap<(SocketId, IpAddr)>,
    /// For each address over all sockets.
    in_all: AllowanceMap<IpAddr>,
    /// The one that further addresses share when there is no room.
    others: Arc<Allowance>,
}

impl Allowances {
    /// No allowance yet.
    pub(crate) fn new(now: Instant) -> Self {
        let others = Arc::new(Allowance::new(1, None, now));
        Self { at_sockets: AllowanceMap::default(), in_all: AllowanceMap::default(), others }
    }

    /// The allowance of this address at this socket. Kept while a flow uses it and until it is full again, so that
    /// ending and beginning flows gains nothing.
    pub(crate) fn of(&mut self, socket: SocketId, client: IpAddr, now: Instant) -> Arc<Allowance> {
        let party = party(client);
        let at_socket = self.at_sockets.get(&(socket, party), now, || {
            let in_all = self.in_all.get(&party, now, || Some(Allowance::new(SOCKETS_PER_ADDRESS, None, now)))?;
            Some(Allowance::new(1, Some(in_all), now))
        });
        at_socket.unwrap_or_else(|| self.others.clone())
    }
}

/// Allowances by key, up to [`MAX_ALLOWANCES`].
#[derive(Debug)]
struct AllowanceMap<K> {
    allowances: HashMap<K, Arc<Allowance>>,
    look_at: usize,
    looked: Option<Instant>,
}

impl<K> Default for AllowanceMap<K> {
    fn default() -> Self {
        Self { allowances: HashMap::new(), look_at: MIN_ALLOWANCES_TO_LOOK, looked: None }
    }
}

impl<K: Copy + Eq + Hash> AllowanceMap<K> {
    fn get(&mut self, key: &K, now: Instant, new: impl FnOnce() -> Option<Allowance>) -> Option<Arc<Allowance>> {
        if let Some(known) = self.allowances.get(key) {
            return Some(known.clone());
        }
        if self.allowances.len() >= self.look_at {
            self.look(now);
        }
        if self.allowances.len() >= MAX_ALLOWANCES {
            return None;
        }
        let new = Arc::new(new()?);
        self.allowances.insert(*key, new.clone());
        Some(new)
    }

    /// Removes unused allowances, at most once in each [`LOOK_INTERVAL`].
    fn look(&mut self, now: Instant) {
        if self.looked.is_some_and(|looked| now.saturating_duration_since(looked) < LOOK_INTERVAL) {
            return;
        }
        self.looked = Some(now);
        self.allowances.retain(|_, allowance| Arc::strong_count(allowance) > 1 || !allowance.is_whole(now));
        self.look_at = (self.allowances.len() * 2).clamp(MIN_ALLOWANCES_TO_LOOK, MAX_ALLOWANCES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1_048_576;

    fn socket(number: u8) -> SocketId {
        SocketId::from_bytes([number; 16])
    }

    fn client(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    /// A flow after this many exchanges.
    fn after(exchanges: u32) -> AddressValidation {
        AddressValidation { exchanges, ..AddressValidation::default() }
    }

    #[test]
    fn exchanges_are_counted_by_turns_and_not_by_datagrams() {
        let (now, mut flow) = (Instant::now(), AddressValidation::default());
        let allowance = Allowance::new(1, None, now);
        for _ in 0..100 {
            flow.received(10, 1_000, now);
        }
        assert_eq!(flow.level(), Level::New, "no datagram was sent to the client");
        for (exchanges, level) in [(1, Level::Few), (4, Level::Some), (16, Level::Many)] {
            while flow.exchanges < exchanges {
                assert!(flow.level() < level);
                assert!(flow.may_send(10, &allowance, now) && flow.may_send(10, &allowance, now));
                flow.received(1, 10, now);
                flow.received(1, 10, now);
            }
            assert_eq!(flow.level(), level);
        }
    }

    #[test]
    fn a_flow_that_rests_is_not_safe_and_a_question_is_forgotten_soon() {
        let minute = Duration::from_secs(60);
        assert_eq!(after(16).rank(Duration::from_secs(9)), Level::Many);
        assert_eq!(after(16).rank(Duration::from_secs(10)), Level::Some);
        assert_eq!(after(1).rank(minute), Level::Few);
        assert_eq!([0, 1, 4, 16].map(|exchanges| after(exchanges).max_idle(minute).as_secs()), [10, 30, 60, 60]);
        assert_eq!(after(0).max_idle(Duration::from_secs(1)).as_secs(), 1);
    }

    /// How many of this many bytes a second reach the client in a second, in datagrams of 1,350.
    fn stream(flow: &mut AddressValidation, allowance: &Allowance, bytes: u64, from: Instant) -> u64 {
        let datagrams = bytes / 1_350;
        let at = |n: u64| from + Duration::from_micros(1_000_000 * n / datagrams);
        (0..datagrams).filter(|n| flow.may_send(1_350, allowance, at(*n))).count() as u64 * 1_350
    }

    #[test]
    fn a_video_of_50_mbit_with_one_report_a_second_passes_from_its_first_report_on() {
        let began = Instant::now();
        let (mut flow, allowance) = (AddressValidation::default(), Allowance::new(1, None, began));
        flow.received(1, 100, began);
        for second in 0..60 {
            let passed = stream(&mut flow, &allowance, 6_250_000, began + Duration::from_secs(second));
            let all = 6_250_000 / 1_350 * 1_350;
            assert!(
                if second == 0 { (250_000..600_000).contains(&passed) } else { passed == all },
                "{second}: {passed}"
            );
            flow.received(1, 100, began + Duration::from_secs(second + 1));
        }
    }

    #[test]
    fn a_quic_download_is_not_held_back_from_its_first_flight_on() {
        let now = Instant::now();
        let (mut flow, allowance) = (AddressValidation::default(), Allowance::new(1, None, now));
        // The client's first flight, the server's, then the end of the client's handshake with its request.
        flow.received(1, 1_200, now);
        assert!((0..3).all(|_| flow.may_send(1_200, &allowance, now)));
        flow.received(2, 1_300, now);
        // Twice as much in each round trip, sent at once. The client acknowledges every ten datagrams with 35 bytes, at
        // last every 64, as with receive offload.
        for (round, each) in [(1, 10), (2, 10), (3, 10), (4, 10), (5, 10), (6, 64), (7, 64), (8, 64)] {
            for _ in 0..(10_u64 << round) / each + 1 {
                assert!((0..each).all(|_| flow.may_send(1_452, &allowance, now)), "round {round}");
                flow.received(1, 35, now);
            }
        }
        assert_eq!(flow.level(), Level::Many);
    }

    /// How many bytes reach an address that sends this many requests to each of this many sockets, each in a new flow.
    fn bytes_to_requester(allowances: &mut Allowances, sockets: u8, flows: u64, now: Instant) -> u64 {
        let mut got = 0;
        for (at, _) in (0..sockets).flat_map(|at| (0..flows).map(move |flow| (at, flow))) {
            let (mut flow, allowance) = (AddressValidation::default(), allowances.of(socket(at), client(1), now));
            flow.received(1, 60, now);
            got += (0..100).filter(|_| flow.may_send(4_000, &allowance, now)).count() as u64 * 4_000;
        }
        got
    }

    #[test]
    fn an_address_without_exchanges_gets_little_from_a_socket_and_from_all_sockets() {
        let now = Instant::now();
        let mut allowances = Allowances::new(now);
        let got = bytes_to_requester(&mut allowances, 1, 1_000, now);
        assert!(got <= 1_000 * 3 * 60 + 262_144, "{got}");
        let got = bytes_to_requester(&mut allowances, 100, 100, now);
        assert!(got <= 100 * 100 * 3 * 60 + SOCKETS_PER_ADDRESS * 262_144, "{got}");
        let (mut flow, other) = (AddressValidation::default(), allowances.of(socket(1), client(2), now));
        assert!(flow.may_send(4_000, &other, now), "another address has its own");
        let later = now + Duration::from_secs(1);
        assert!(flow.may_send(4_000, &allowances.of(socket(1), client(1), later), later));
    }

    #[test]
    fn a_socket_that_floods_an_address_takes_nothing_from_the_address_at_other_sockets() {
        let began = Instant::now();
        let mut allowances = Allowances::new(began);
        let (mut flood, of_flood) = (AddressValidation::default(), allowances.of(socket(1), client(1), began));
        flood.received(1, 30, began);
        for second in 0..60 {
            let from = began + Duration::from_secs(second);
            let passed = stream(&mut flood, &of_flood, 100_000_000, from);
            assert!(passed < 600_000, "{passed}");
            let at = from + Duration::from_millis(999);
            let (mut victim, of_victim) = (AddressValidation::default(), allowances.of(socket(2), client(1), at));
            victim.received(1, 60, at);
            assert!((0..50).all(|_| victim.may_send(4_000, &of_victim, at)));
        }
    }

    #[test]
    fn a_silent_client_falls_back_to_the_lowest_level() {
        let began = Instant::now();
        let (mut flow, allowance) = (after(16), Allowance::new(1, None, began));
        (0..1_000).for_each(|_| flow.received(1, 10, began));
        let active = began + ACTIVE_TIME - Duration::from_millis(1);
        let passed = stream(&mut flow, &allowance, 1_000_000_000, active - Duration::from_secs(1));
        assert!(passed > 32 * MIB, "{passed}");
        for second in 0..100 {
            let passed = stream(&mut flow, &allowance, 100_000_000, began + ACTIVE_TIME + Duration::from_secs(second));
            assert!(passed < 600_000, "{second}: {passed}");
        }
        assert_eq!(flow.level(), Level::Many, "the level returns when the client sends again");
        let again = began + Duration::from_secs(200);
        flow.received(1, 10, again);
        assert!(stream(&mut flow, &allowance, 10_000_000, again) > 9_000_000);
    }

    #[test]
    fn a_guarded_flow_ends_when_its_client_is_silent_whatever_the_service_sends() {
        let (moment, minute) = (Duration::from_millis(1), Duration::from_secs(60));
        for flow in [after(0), after(100)] {
            assert!(!flow.is_over(moment, 5 * minute - moment, minute, true));
            assert!(flow.is_over(moment, 5 * minute, minute, true));
            assert!(!flow.is_over(moment, 500 * minute, minute, false));
            assert!(flow.is_over(minute, minute, minute, false));
        }
        assert!(!after(100).is_over(moment, 9 * minute, 10 * minute, true), "as configured");
    }

    #[test]
    fn a_blind_forger_gains_a_bounded_factor_whatever_the_service_sends() {
        let began = Instant::now();
        let mut allowances = Allowances::new(began);
        let allowance = allowances.of(socket(1), client(1), began);
        let (mut flows, mut got): (Vec<AddressValidation>, u64) = (vec![AddressValidation::default(); 20], 0);
        // Twenty flows of the victim's address, each with a datagram ten times a second, from an origin without a
        // limit.
        for tick in 0..100_u64 {
            let now = began + Duration::from_millis(100 * tick);
            for flow in &mut flows {
                flow.received(1, 30, now);
                got += (0..500).filter(|_| flow.may_send(1_350, &allowance, now)).count() as u64 * 1_350;
            }
        }
        let datagrams = 20 * 100;
        let by_time = 11 * (BYTES_PER_SECOND.iter().sum::<u64>());
        assert!(got <= datagrams * (131_072 + 90) + by_time, "{got}");
        // With few datagrams, only the rate counts.
        let (mut flow, allowance) = (after(100), allowances.of(socket(1), client(2), began));
        flow.received(1, 30, began);
        let got = (0..100_000).filter(|_| flow.may_send(1_350, &allowance, began)).count() as u64 * 1_350;
        assert!((16 * MIB..17 * MIB).contains(&got), "{got}");
    }

    #[test]
    fn what_was_earned_is_saved_up_to_a_bound() {
        let now = Instant::now();
        let (mut flow, allowance) = (after(16), Allowance::new(1, None, now));
        (0..10_000).for_each(|_| flow.received(1, 1_400, now));
        assert_eq!(flow.earned_bytes + flow.asked_bytes, MAX_CREDIT_BYTES);
        let passed = (0..1_000).filter(|_| flow.may_send(65_507, &allowance, now)).count() as u64 * 65_507;
        assert!(passed <= MAX_CREDIT_BYTES + 16 * MIB + 65_507);
    }

    #[test]
    fn addresses_are_forgotten_when_their_allowance_is_whole_and_never_before() {
        let now = Instant::now();
        let mut allowances = Allowances::new(now);
        let used = allowances.of(socket(1), client(1), now);
        assert!(used.take(Level::New, 262_144, now) && !used.take(Level::New, 1, now));
        drop(used);
        let used = allowances.of(socket(1), client(2), now);
        for n in 0..200_000_u32 {
            allowances.of(socket(1), IpAddr::V4((n + 1).into()), now);
        }
        assert!(allowances.at_sockets.allowances.len() <= MAX_ALLOWANCES);
        assert!(!allowances.of(socket(1), client(1), now).take(Level::New, 1, now), "a new flow does not get it anew");
        assert!(Arc::ptr_eq(&used, &allowances.of(socket(1), client(2), now)));
        let later = now + Duration::from_secs(2);
        allowances.of(socket(1), client(3), later);
        assert!(!allowances.at_sockets.allowances.contains_key(&(socket(1), client(1))), "a full allowance is dropped");
        assert!(allowances.in_all.allowances.len() <= MAX_ALLOWANCES);
    }

    #[test]
    fn when_there_is_no_room_it_is_looked_for_some_once_a_second_and_not_for_each_stranger() {
        let now = Instant::now();
        let mut known = AllowanceMap::default();
        let allowance = |now| Some(Allowance::new(1, None, now));
        let used: Vec<_> = (0..MAX_ALLOWANCES).map(|n| known.get(&n, now, || allowance(now))).collect();
        assert!(known.get(&MAX_ALLOWANCES, now + LOOK_INTERVAL, || allowance(now)).is_none());
        drop(used);
        let soon = now + LOOK_INTERVAL * 2 - Duration::from_millis(1);
        assert!(known.get(&MAX_ALLOWANCES, soon, || allowance(now)).is_none(), "the last search was a moment ago");
        assert!(known.get(&MAX_ALLOWANCES, now + LOOK_INTERVAL * 2, || allowance(now)).is_some());
        assert_eq!(known.allowances.len(), 1);
    }
}
