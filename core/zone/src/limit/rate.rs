//! Response rate limiting: clients of one network get so many answers of one kind a second, and twice as many of all.
//!
//! A flood of queries with a forged sender would have the server send its answers to the victim. Past the rate the
//! server is silent, but for every second answer or so, which is cut short (TC): a real client asks again over TCP, and
//! a victim gets no more bytes than the forger sent. As long as the flood lasts the account of the network stays below
//! zero, so that no full answer leaves at all.
//!
//! A flood in the names of many networks stays below the rate of each. So the limiter counts networks that it has not
//! seen before: when too many come in a second, those of this *storm* get no full answers until it is over.

use std::{
    fmt,
    hash::Hasher as _,
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use ipnet::IpNet;
use siphasher::sip::SipHasher13;

/// The most networks and kinds that are counted at one time.
const MAX_ACCOUNTS: usize = 131_072;
/// The parts of a limiter that threads share.
const PARTS: usize = 16;
/// Accounts of one place in the table.
const WAYS: usize = 4;
/// Bits of an address that make its network.
const V4_PREFIX: u8 = 24;
const V6_PREFIX: u8 = 56;
/// Answers of all kinds together to one network, in rates of one kind.
const ALL_KINDS: i64 = 2;
/// How many seconds of answers an account may be below zero.
const WINDOW_SECONDS: u32 = 15;
/// A network is counted in thousandths of an answer.
const UNIT: i64 = 1_000;

/// Kinds of answers that are counted apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AnswerClass {
    /// Records.
    Records = 1,
    /// The name has no such records.
    NoData = 2,
    /// No such name.
    NoName = 3,
    /// A delegation.
    Referral = 4,
    /// A refusal, or an error.
    Error = 5,
}

/// How many answers strangers get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateConfig {
    /// Answers of one kind to one network, a second. 0: no limit.
    pub answers_per_second: u32,
    /// Past the rate every n-th answer is cut short, and the others are dropped. 0: all are dropped. 1: none is.
    pub slip: u8,
    /// Networks that are new, a second, beyond which they are part of a storm. 0: there is no storm.
    pub new_networks_per_second: u32,
    /// Networks without a limit.
    pub exempt: Vec<IpNet>,
}

impl Default for RateConfig {
    fn default() -> Self {
        Self { answers_per_second: 100, slip: 2, new_networks_per_second: 2_000, exempt: Vec::new() }
    }
}

/// What becomes of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RateVerdict {
    /// It is sent.
    Send,
    /// It is cut short.
    Truncate,
    /// It is dropped.
    Drop,
}

#[derive(Debug, Clone, Copy, Default)]
struct Account {
    /// Of network and kind; 0: free.
    id: u64,
    /// Milliseconds since the limiter's start.
    seen: u64,
    balance: i64,
    /// Answers past the rate, for the slip.
    over: u8,
    /// The storm in which the network came; 0: none.
    storm: u32,
    /// The second in which the storm has counted the network.
    counted: u64,
}

/// An account after an answer was counted.
struct Charge {
    place: usize,
    way: usize,
    is_new: bool,
    /// Whether the account paid for the answer.
    has_credit: bool,
}

/// New networks, second by second.
#[derive(Debug, Default)]
struct Storms {
    /// The current second, from 1 on.
    second: u64,
    /// Networks of this second that are new, or came in this storm.
    suspects: u32,
    /// Answers of the storm, for the slip.
    over: u8,
    /// Number of the current storm, or of the last one.
    number: u32,
    is_active: bool,
}

impl Storms {
    /// Counts a network that is new, or came in this storm. Returns whether it is part of a storm.
    fn record(&mut self, account: &mut Account, is_new: bool, millis: u64, most: u32) -> bool {
        let second = millis / 1_000 + 1;
        if second != self.second {
            // A storm is over when a second had few suspects, or nobody at all.
            let was_calm = self.suspects <= most || second > self.second + 1;
            self.is_active &= !was_calm;
            (self.second, self.suspects) = (second, 0);
        }
        let is_suspect = is_new || (self.is_active && account.storm == self.number);
        if most == 0 || !is_suspect {
            return false;
        }
        if account.counted != second {
            account.counted = second;
            self.suspects = self.suspects.saturating_add(1);
        }
        if !self.is_active && self.suspects > most {
            self.is_active = true;
            self.number = self.number.wrapping_add(1).max(1);
        }
        if is_new && self.is_active {
            account.storm = self.number;
        }
        self.is_active
    }
}

/// The accounts of networks.
pub struct RateLimiter {
    config: RateConfig,
    key: [u8; 16],
    start: Option<Instant>,
    storms: Storms,
    accounts: Vec<[Account; WAYS]>,
}

/// A limiter that threads share: each network has its accounts in one of several parts, each behind a lock.
#[derive(Debug)]
pub struct SharedRateLimiter {
    parts: Box<[Mutex<RateLimiter>]>,
    key: [u8; 16],
}

impl SharedRateLimiter {
    /// A limiter. The key is 16 secret random bytes.
    #[must_use]
    pub fn new(mut config: RateConfig, key: [u8; 16]) -> Self {
        let parts = if config.answers_per_second == 0 { 1 } else { PARTS };
        if config.new_networks_per_second > 0 {
            config.new_networks_per_second = (config.new_networks_per_second / parts as u32).max(1);
        }
        let part = |_| Mutex::new(RateLimiter::with_accounts(config.clone(), key, MAX_ACCOUNTS / parts));
        Self { parts: (0..parts).map(part).collect(), key }
    }

    /// Counts an answer to this address.
    pub fn record(&self, address: IpAddr, class: AnswerClass, now: Instant) -> RateVerdict {
        let place = network_id(&self.key, address.to_canonical(), None) as usize % self.parts.len();
        let mut part = self.parts[place].lock().unwrap_or_else(PoisonError::into_inner);
        part.record(address, class, now)
    }
}

impl RateLimiter {
    /// A limiter. The key is 16 secret random bytes: without them nobody finds networks that share a place.
    #[must_use]
    pub fn new(config: RateConfig, key: [u8; 16]) -> Self {
        Self::with_accounts(config, key, MAX_ACCOUNTS)
    }

    fn with_accounts(config: RateConfig, key: [u8; 16], most: usize) -> Self {
        let places = if config.answers_per_second == 0 { 0 } else { most / WAYS };
        Self { config, key, start: None, storms: Storms::default(), accounts: vec![[Account::default(); WAYS]; places] }
    }

    /// Counts an answer to this address.
    pub fn record(&mut self, address: IpAddr, class: AnswerClass, now: Instant) -> RateVerdict {
        let address = address.to_canonical();
        if self.accounts.is_empty() || self.config.exempt.iter().any(|net| net.contains(&address)) {
            return RateVerdict::Send;
        }
        let start = *self.start.get_or_insert(now);
        let millis = now.saturating_duration_since(start).as_millis() as u64;
        let rate = i64::from(self.config.answers_per_second);
        // Every answer counts here, also one that its kind has to pay for: a flood of several kinds must not find room
        // below the rate of each.
        let all = self.charge(network_id(&self.key, address, None), rate * ALL_KINDS, millis);
        let kind = self.charge(network_id(&self.key, address, Some(class)), rate, millis);
        let most = self.config.new_networks_per_second;
        let account = &mut self.accounts[kind.place][kind.way];
        let is_in_storm = self.storms.record(account, kind.is_new, millis, most);
        // Networks of a storm send a query or two each: they are counted together.
        let over = if is_in_storm {
            &mut self.storms.over
        } else if !kind.has_credit {
            &mut account.over
        } else {
            if all.has_credit {
                return RateVerdict::Send;
            }
            &mut self.accounts[all.place][all.way].over
        };
        *over = over.wrapping_add(1);
        match self.config.slip {
            0 => RateVerdict::Drop,
            slip if *over % slip == 0 => {
                *over = 0;
                RateVerdict::Truncate
            }
            _ => RateVerdict::Drop,
        }
    }

    /// Counts an answer in an account of so many answers a second.
    fn charge(&mut self, id: u64, rate: i64, millis: u64) -> Charge {
        let number = (id >> 32) as usize % self.accounts.len();
        let place = &mut self.accounts[number];
        let known = place.iter().position(|account| account.id == id);
        let way = known.unwrap_or_else(|| {
            // The account that was not used for the longest time.
            let way = (0..WAYS).min_by_key(|at| (place[*at].id != 0, place[*at].seen)).unwrap_or(0);
            place[way] = Account { id, seen: millis, balance: rate * UNIT, ..Account::default() };
            way
        });
        let account = &mut place[way];
        // A rate a second is as many thousandths a millisecond.
        let gained = (millis.saturating_sub(account.seen) as i64).saturating_mul(rate);
        account.seen = account.seen.max(millis);
        let lowest = -rate * UNIT * i64::from(WINDOW_SECONDS);
        account.balance = account.balance.saturating_add(gained).min(rate * UNIT).saturating_sub(UNIT).max(lowest);
        Charge { place: number, way, is_new: known.is_none(), has_credit: account.balance >= 0 }
    }

    /// The time until an account that went as low as it can is full again.
    #[must_use]
    pub const fn window() -> Duration {
        Duration::from_secs(WINDOW_SECONDS as u64 + 1)
    }
}

/// A number of a network, and of a kind of answers to it.
fn network_id(key: &[u8; 16], address: IpAddr, class: Option<AnswerClass>) -> u64 {
    let mut hasher = SipHasher13::new_with_key(key);
    hasher.write(&[class.map_or(0, |class| class as u8)]);
    match address {
        IpAddr::V4(address) => {
            hasher.write(&(u32::from(address) >> (32 - u32::from(V4_PREFIX))).to_be_bytes());
        }
        IpAddr::V6(address) => {
            hasher.write(&(u128::from(address) >> (128 - u32::from(V6_PREFIX))).to_be_bytes());
        }
    }
    hasher.finish().max(1)
}

impl fmt::Debug for RateLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimiter").field("config", &self.config).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limiter(answers_per_second: u32, slip: u8) -> RateLimiter {
        let exempt = vec!["10.0.0.0/8".parse().unwrap()];
        RateLimiter::new(RateConfig { answers_per_second, slip, exempt, new_networks_per_second: 500 }, [3; 16])
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_flood_gets_half_as_many_short_answers_after_a_second() {
        let (mut limiter, start) = (limiter(10, 2), Instant::now());
        let mut sent = [0; 3];
        for n in 0..3_000_u64 {
            let now = start + Duration::from_millis(n);
            let victim = address(&format!("192.0.2.{}", n % 256));
            let verdict = limiter.record(victim, AnswerClass::Records, now);
            if n >= 1_000 {
                sent[verdict as usize] += 1;
            }
        }
        assert_eq!(sent, [0, 1_000, 1_000], "none is full");
        // Other networks have accounts of their own. Other kinds of answers to this one wait with it.
        let now = start + Duration::from_secs(3);
        assert_eq!(limiter.record(address("192.0.3.1"), AnswerClass::Records, now), RateVerdict::Send);
        assert_ne!(limiter.record(address("192.0.2.1"), AnswerClass::NoName, now), RateVerdict::Send);
        let later = now + RateLimiter::window();
        assert_eq!(limiter.record(address("192.0.2.1"), AnswerClass::Records, later), RateVerdict::Send);
    }

    #[test]
    fn a_flood_of_all_kinds_gets_no_full_answers_either() {
        let (mut limiter, start) = (limiter(10, 2), Instant::now());
        let kinds =
            [AnswerClass::Records, AnswerClass::NoData, AnswerClass::NoName, AnswerClass::Referral, AnswerClass::Error];
        let mut sent = [0; 3];
        for n in 0..4_000_u64 {
            // Each kind but one stays below its own rate, and the others together below that of all.
            let now = start + Duration::from_millis(n * 1_000 / 40);
            let kind = kinds[if n % 2 == 0 { 0 } else { n as usize % kinds.len() }];
            let verdict = limiter.record(address("192.0.2.1"), kind, now);
            if n >= 80 {
                sent[verdict as usize] += 1;
            }
        }
        assert_eq!((sent[0], sent.iter().sum::<u32>()), (0, 3_920));
        assert!(sent[1].abs_diff(sent[2]) <= 5, "{sent:?}");
    }

    #[test]
    fn threads_share_the_rate_of_a_network() {
        let config = RateConfig { answers_per_second: 10, new_networks_per_second: 0, ..RateConfig::default() };
        let (shared, now) = (SharedRateLimiter::new(config, [3; 16]), Instant::now());
        let sent = std::thread::scope(|scope| {
            let thread = || {
                let ask = |n: u8| shared.record(address(&format!("192.0.2.{n}")), AnswerClass::Records, now);
                (0..50).filter(|n| ask(*n) == RateVerdict::Send).count()
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(thread)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
        });
        assert_eq!(sent, 10);
    }

    #[test]
    fn clients_within_the_rate_and_exempt_ones_get_every_answer() {
        let (mut limiter, start) = (limiter(10, 2), Instant::now());
        for n in 0..100 {
            let now = start + Duration::from_millis(100 * n);
            assert_eq!(limiter.record(address("2001:db8::1"), AnswerClass::Records, now), RateVerdict::Send);
        }
        for _ in 0..1_000 {
            assert_eq!(limiter.record(address("10.1.2.3"), AnswerClass::Records, start), RateVerdict::Send);
        }
        let mut none = RateLimiter::new(RateConfig { answers_per_second: 0, ..RateConfig::default() }, [0; 16]);
        for _ in 0..1_000 {
            assert_eq!(none.record(address("192.0.2.1"), AnswerClass::Records, start), RateVerdict::Send);
        }
    }

    #[test]
    fn a_storm_of_new_networks_gets_no_full_answers() {
        let (mut limiter, start) = (limiter(10, 2), Instant::now());
        let friend = address("192.0.2.1");
        let second = |limiter: &mut RateLimiter, at: u64, networks: u32, first: u32| {
            let mut sent = [0; 3];
            for n in 0..networks {
                let now = start + Duration::from_millis(at * 1_000 + u64::from(n) * 999 / u64::from(networks));
                let forged = IpAddr::V4(((first + n) << 8 | 7).into());
                sent[limiter.record(forged, AnswerClass::Records, now) as usize] += 1;
                if n % 1_000 == 0 {
                    assert_eq!(limiter.record(friend, AnswerClass::Records, now), RateVerdict::Send, "second {at}");
                }
            }
            sent
        };
        assert_eq!(second(&mut limiter, 0, 400, 0x20_0000), [400, 0, 0], "few are no storm");
        assert_eq!(second(&mut limiter, 1, 8_000, 0x30_0000)[0], 500);
        // The same networks again, and others.
        assert_eq!(second(&mut limiter, 2, 8_000, 0x30_0000)[0], 500, "those before the storm are known");
        assert_eq!(second(&mut limiter, 3, 8_000, 0x40_0000), [0, 4_000, 4_000]);
        // Over.
        second(&mut limiter, 4, 100, 0x50_0000);
        assert_eq!(second(&mut limiter, 5, 300, 0x40_0000), [300, 0, 0]);
    }

    #[test]
    fn slip_decides_what_is_cut_short() {
        for (slip, truncated) in [(0, 0), (1, 990), (10, 99)] {
            let (mut limiter, start) = (limiter(10, slip), Instant::now());
            let verdicts = (0..1_000).map(|_| limiter.record(address("192.0.2.1"), AnswerClass::Error, start));
            assert_eq!(verdicts.filter(|verdict| *verdict == RateVerdict::Truncate).count(), truncated);
        }
    }
}
