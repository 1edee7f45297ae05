//! What a flow has shown of its client, and what follows from it: who makes way, how long a flow is kept, and how much
//! may be sent to an address that may never have asked. Pure: time is an argument.
//!
//! Anybody can write any address on a datagram, and no passive look at plain UDP proves one. What can be counted is
//! *exchanges*: times that a client went on after it was answered. A forger, who does not see the answers, can guess when
//! they come; so exchanges only make a flow dearer to pretend, and each [`Level`] of them is worth a bounded amount.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use sallyport_balance::limits::{RateLimit, TokenBucket};

use crate::limits::party;

/// How many times what it got a flow may send in any case (RFC 9000 section 8.1).
const FACTOR: u64 = 3;
/// What each datagram of a client is worth beyond that, in bytes, by level. At the highest it is an acknowledgement of 64
/// full datagrams that were received with one system call.
const BYTES_PER_DATAGRAM: [u64; Level::COUNT] = [0, 8_192, 32_768, 131_072];
/// What all flows of one address and level may send beyond that, in bytes a second, on all ports of the edge together: from
/// the first level on enough for a video of 50 Mbit/s whose receiver reports once a second.
const BYTES_PER_SECOND: [u64; Level::COUNT] = [262_144, 8_388_608, 8_388_608, 16_777_216];
/// How much of what a flow may send it can save up, in bytes.
const MAX_CREDIT_BYTES: u64 = 16 * 1024 * 1024;
/// How long after its client's last datagram a flow counts as active.
const ACTIVE_TIME: Duration = Duration::from_secs(10);
/// How long a flow lasts in which nothing moves, by level; the last two for as long as the edge is told.
const MAX_IDLE: [Duration; Level::COUNT] =
    [Duration::from_secs(10), Duration::from_secs(30), Duration::MAX, Duration::MAX];
/// How many addresses have an allowance of their own; those beyond share one.
const MAX_ADDRESSES: usize = 131_072;
/// How many addresses there are before it is looked for those that can be forgotten.
const MIN_ADDRESSES_TO_LOOK: usize = 1_024;

/// How many exchanges a flow has had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// None: a client that has only asked, as resolvers do, or one that does not exist.
    New,
    /// Up to 3.
    Few,
    /// Up to 15.
    Some,
    /// 16 and more.
    Many,
}

impl Level {
    /// How many there are.
    pub(crate) const COUNT: usize = 4;
    /// All of them, the lowest first.
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

/// What one flow has shown.
#[derive(Debug, Clone, Default)]
pub(crate) struct Standing {
    exchanges: u32,
    /// Something was sent to the client after it last said something.
    is_answered: bool,
    credit_bytes: u64,
}

impl Standing {
    /// The client sent datagrams.
    pub(crate) fn heard(&mut self, datagrams: usize, bytes: u64) {
        if std::mem::take(&mut self.is_answered) {
            self.exchanges = self.exchanges.saturating_add(1);
        }
        let each = BYTES_PER_DATAGRAM[self.level() as usize];
        let more = (datagrams as u64).saturating_mul(each).saturating_add(bytes.saturating_mul(FACTOR));
        self.credit_bytes = self.credit_bytes.saturating_add(more).min(MAX_CREDIT_BYTES);
    }

    /// Whether a datagram of so many bytes may go to the client; then it counts as sent. What the flow has not earned
    /// itself comes from `allowance`, which its address has.
    pub(crate) fn may_send(&mut self, bytes: u64, allowance: &Allowance, now: Instant) -> bool {
        let beyond = bytes.saturating_sub(self.credit_bytes);
        if beyond > 0 && !allowance.take(self.level(), beyond, now) {
            return false;
        }
        self.credit_bytes -= bytes - beyond;
        self.is_answered = true;
        true
    }

    /// A datagram goes to the client without being asked for.
    pub(crate) fn sends(&mut self) {
        self.is_answered = true;
    }

    /// How much it has shown.
    pub(crate) fn level(&self) -> Level {
        Level::of(self.exchanges)
    }

    /// How late it makes way for others, when its client was last heard so long ago: a flow that rests is not worth as
    /// much as one that is used.
    pub(crate) fn rank(&self, silence: Duration) -> Level {
        if silence < ACTIVE_TIME { self.level() } else { self.level().min(Level::Some) }
    }

    /// How long it lasts while nothing moves in either direction, where the longest is so long.
    pub(crate) fn max_idle(&self, longest: Duration) -> Duration {
        MAX_IDLE[self.level() as usize].min(longest)
    }
}

/// What may be sent to one address beyond what its flows have earned, on all ports together.
#[derive(Debug)]
pub(crate) struct Allowance {
    /// By level; each holds what one second brings.
    buckets: Mutex<[Option<TokenBucket>; Level::COUNT]>,
}

impl Allowance {
    /// The whole of it, from this moment on.
    pub(crate) fn new(now: Instant) -> Self {
        let bucket = |bytes| RateLimit::new(bytes, bytes).ok().map(|limit| TokenBucket::new(limit, now));
        Self { buckets: Mutex::new(BYTES_PER_SECOND.map(bucket)) }
    }

    fn lock(&self) -> MutexGuard<'_, [Option<TokenBucket>; Level::COUNT]> {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, level: Level, bytes: u64, now: Instant) -> bool {
        self.lock()[level as usize].as_mut().is_some_and(|bucket| bucket.take(bytes, now).is_ok())
    }

    /// Whether nothing of it is used: one that begins anew would be the same.
    fn is_whole(&self, now: Instant) -> bool {
        let buckets = self.lock();
        let is_full = |bucket: &TokenBucket| bucket.clone().take(bucket.limit().burst(), now).is_ok();
        buckets.iter().flatten().all(is_full)
    }
}

/// The allowances of all addresses; in IPv6, of all networks of 64 bits.
#[derive(Debug)]
pub(crate) struct Allowances {
    by_party: HashMap<IpAddr, Arc<Allowance>>,
    /// What those share for whom there is no room.
    others: Arc<Allowance>,
    look_at: usize,
}

impl Allowances {
    /// None is used yet.
    pub(crate) fn new(now: Instant) -> Self {
        Self { by_party: HashMap::new(), others: Arc::new(Allowance::new(now)), look_at: MIN_ADDRESSES_TO_LOOK }
    }

    /// That of this address. It is remembered while anybody holds it, and until it is whole again: whoever ends flows and
    /// begins new ones gets no more.
    pub(crate) fn of(&mut self, client: IpAddr, now: Instant) -> Arc<Allowance> {
        let party = party(client);
        if let Some(known) = self.by_party.get(&party) {
            return known.clone();
        }
        if self.by_party.len() >= self.look_at {
            self.by_party.retain(|_, allowance| Arc::strong_count(allowance) > 1 || !allowance.is_whole(now));
            self.look_at = (self.by_party.len() * 2).clamp(MIN_ADDRESSES_TO_LOOK, MAX_ADDRESSES);
        }
        if self.by_party.len() >= MAX_ADDRESSES {
            return self.others.clone();
        }
        self.by_party.entry(party).or_insert_with(|| Arc::new(Allowance::new(now))).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1_048_576;

    fn client(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    /// A flow that has had so many exchanges.
    fn after(exchanges: u32) -> Standing {
        Standing { exchanges, ..Standing::default() }
    }

    #[test]
    fn exchanges_are_counted_by_turns_and_not_by_datagrams() {
        let (now, mut flow) = (Instant::now(), Standing::default());
        let allowance = Allowance::new(now);
        for _ in 0..100 {
            flow.heard(10, 1_000);
        }
        assert_eq!(flow.level(), Level::New, "nobody has answered");
        for (exchanges, level) in [(1, Level::Few), (4, Level::Some), (16, Level::Many)] {
            while flow.exchanges < exchanges {
                assert!(flow.level() < level);
                assert!(flow.may_send(10, &allowance, now) && flow.may_send(10, &allowance, now));
                flow.heard(1, 10);
                flow.heard(1, 10);
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

    /// How many of so many bytes a second reach the client in the second, in datagrams of 1,350.
    fn stream(flow: &mut Standing, allowance: &Allowance, bytes: u64, from: Instant) -> u64 {
        let datagrams = bytes / 1_350;
        let at = |n: u64| from + Duration::from_micros(1_000_000 * n / datagrams);
        (0..datagrams).filter(|n| flow.may_send(1_350, allowance, at(*n))).count() as u64 * 1_350
    }

    #[test]
    fn a_video_of_50_mbit_with_one_report_a_second_passes_from_its_first_report_on() {
        let began = Instant::now();
        let (mut flow, allowance) = (Standing::default(), Allowance::new(began));
        flow.heard(1, 100);
        for second in 0..60 {
            let passed = stream(&mut flow, &allowance, 6_250_000, began + Duration::from_secs(second));
            let all = 6_250_000 / 1_350 * 1_350;
            assert!(
                if second == 0 { (250_000..600_000).contains(&passed) } else { passed == all },
                "{second}: {passed}"
            );
            flow.heard(1, 100);
        }
    }

    #[test]
    fn a_quic_download_is_not_held_back_from_its_first_flight_on() {
        let now = Instant::now();
        let (mut flow, allowance) = (Standing::default(), Allowance::new(now));
        // The client's first flight, the server's; the client's end of the handshake with its question.
        flow.heard(1, 1_200);
        assert!((0..3).all(|_| flow.may_send(1_200, &allowance, now)));
        flow.heard(2, 1_300);
        // Twice as much in each round trip, all of them in one moment, with an acknowledgement of 35 bytes for each ten;
        // at last for each 64, as where the client's system joins them.
        for (round, each) in [(1, 10), (2, 10), (3, 10), (4, 10), (5, 10), (6, 64), (7, 64), (8, 64)] {
            for _ in 0..(10_u64 << round) / each + 1 {
                assert!((0..each).all(|_| flow.may_send(1_452, &allowance, now)), "round {round}");
                flow.heard(1, 35);
            }
        }
        assert_eq!(flow.level(), Level::Many);
    }

    #[test]
    fn an_address_that_only_asks_gets_little_from_all_ports_and_flows_together() {
        let now = Instant::now();
        let mut allowances = Allowances::new(now);
        let mut got = 0;
        for _port in 0..1_000 {
            let (mut flow, allowance) = (Standing::default(), allowances.of(client(1), now));
            flow.heard(1, 60);
            got += (0..100).filter(|_| flow.may_send(4_000, &allowance, now)).count() * 4_000;
        }
        let asked = 1_000 * 60;
        assert!(got <= 3 * asked + 262_144 + 4_000, "{got}");
        let (mut flow, other) = (Standing::default(), allowances.of(client(2), now));
        assert!(flow.may_send(4_000, &other, now), "another address has its own");
        let later = allowances.of(client(1), now + Duration::from_secs(1));
        assert!(flow.may_send(4_000, &later, now + Duration::from_secs(1)));
    }

    #[test]
    fn a_blind_forger_gains_a_bounded_factor_whatever_the_service_sends() {
        let began = Instant::now();
        let mut allowances = Allowances::new(began);
        let allowance = allowances.of(client(1), began);
        let (mut flows, mut got): (Vec<Standing>, u64) = (vec![Standing::default(); 20], 0);
        // Twenty flows of the victim's address, a datagram each ten times a second, from a service without measure.
        for tick in 0..100_u64 {
            let now = began + Duration::from_millis(100 * tick);
            for flow in &mut flows {
                flow.heard(1, 30);
                got += (0..500).filter(|_| flow.may_send(1_350, &allowance, now)).count() as u64 * 1_350;
            }
        }
        let datagrams = 20 * 100;
        let by_time = 11 * (BYTES_PER_SECOND.iter().sum::<u64>());
        assert!(got <= datagrams * (131_072 + 90) + by_time, "{got}");
        // Hardly any datagrams: then only the rate counts.
        let (mut flow, allowance) = (after(100), allowances.of(client(2), began));
        flow.heard(1, 30);
        let got = (0..100_000).filter(|_| flow.may_send(1_350, &allowance, began)).count() as u64 * 1_350;
        assert!((16 * MIB..17 * MIB).contains(&got), "{got}");
    }

    #[test]
    fn what_was_earned_is_saved_up_to_a_bound() {
        let now = Instant::now();
        let (mut flow, allowance) = (after(16), Allowance::new(now));
        (0..10_000).for_each(|_| flow.heard(1, 1_400));
        assert_eq!(flow.credit_bytes, MAX_CREDIT_BYTES);
        let passed = (0..1_000).filter(|_| flow.may_send(65_507, &allowance, now)).count() as u64 * 65_507;
        assert!(passed <= MAX_CREDIT_BYTES + 16 * MIB + 65_507);
    }

    #[test]
    fn addresses_are_forgotten_when_their_allowance_is_whole_and_never_before() {
        let now = Instant::now();
        let mut allowances = Allowances::new(now);
        let used = allowances.of(client(1), now);
        assert!(used.take(Level::New, 262_144, now) && !used.take(Level::New, 1, now));
        drop(used);
        let held = allowances.of(client(2), now);
        for n in 0..200_000_u32 {
            allowances.of(IpAddr::V4((n + 1).into()), now);
        }
        assert!(allowances.by_party.len() <= MAX_ADDRESSES);
        assert!(!allowances.of(client(1), now).take(Level::New, 1, now), "a new flow does not get it anew");
        assert!(Arc::ptr_eq(&held, &allowances.of(client(2), now)));
        let later = now + Duration::from_secs(2);
        allowances.look_at = 0;
        allowances.of(client(3), later);
        assert!(!allowances.by_party.contains_key(&client(1)), "it is whole again");
    }
}
