//! Waits after wrong passwords and codes of persons, longer after each wrong attempt. Pure: time is an argument.
//!
//! A wait belongs to the typed address, whether or not a person has it, so that it reveals nothing. Waits are short at
//! first, and for one client. If many clients fail with one address, all clients wait that have not logged in as this
//! person before.

use std::{
    collections::HashMap,
    hash::Hash,
    net::IpAddr,
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};
use sallyport_model::AccountId;

use super::{client::Client, known_clients::KnownClients};
use crate::cluster::attempt_gossip::{AttemptGossip, CountedAttempt};

/// How many keys one map keeps.
const MAX_KEYS: usize = 16_384;
/// How many wrong attempts one client has as one person before it waits.
const FREE_OF_PAIR: u32 = 5;
/// How many wrong attempts all clients have as one person before unknown clients wait.
const FREE_OF_PERSON: u32 = 20;
/// The first wait; each is twice as long as the one before.
const FIRST_WAIT: Duration = Duration::from_secs(2);
/// The longest wait.
const MAX_WAIT: Duration = Duration::from_secs(15 * 60);
/// After how long without an attempt a key is forgotten; longer than the longest wait.
const FORGET_AFTER: Duration = Duration::from_secs(60 * 60);
/// The longest text of an address that is compared, in bytes.
const MAX_ADDRESS_BYTES: usize = 254;

/// An address at an organisation.
type PersonKey = (AccountId, String);

#[derive(Debug, Clone, Copy)]
struct Tries {
    wrong: u32,
    wait_until: Instant,
    forget_at: Instant,
}

/// The waits of each key, which grow with every wrong try.
#[derive(Debug)]
struct Waits<K> {
    free: u32,
    max_keys: usize,
    tries: HashMap<K, Tries>,
}

impl<K: Hash + Eq + Clone> Waits<K> {
    fn new(free: u32) -> Self {
        Self { free, max_keys: MAX_KEYS, tries: HashMap::new() }
    }

    /// The time until the next try.
    fn wait(&self, key: &K, now: Instant) -> Option<Duration> {
        let wait = self.tries.get(key)?.wait_until.saturating_duration_since(now);
        (!wait.is_zero()).then_some(wait)
    }

    /// Counts an attempt as wrong until it is known to be right. Returns the wait that follows.
    fn count(&mut self, key: &K, now: Instant) -> Option<Duration> {
        let former = self.tries.get(key).filter(|tries| tries.forget_at > now);
        let wrong = former.map_or(0, |tries| tries.wrong).saturating_add(1);
        if former.is_none() && self.tries.len() >= self.max_keys {
            self.make_room(now);
        }
        let over = wrong.checked_sub(self.free);
        let wait = over.map(|over| FIRST_WAIT.saturating_mul(1 << over.min(16)).min(MAX_WAIT));
        let tries = Tries { wrong, wait_until: now + wait.unwrap_or_default(), forget_at: now + FORGET_AFTER };
        self.tries.insert(key.clone(), tries);
        wait
    }

    /// Takes back the last attempt, which was not wrong, but proves nothing.
    fn take_back(&mut self, key: &K, now: Instant) {
        if let Some(tries) = self.tries.get_mut(key) {
            tries.wrong = tries.wrong.saturating_sub(1);
            tries.wait_until = now;
        }
    }

    /// Removes expired keys. If that is not enough, removes the half with the fewest attempts: a client with very many
    /// addresses gains a few attempts, but cannot lock others out.
    fn make_room(&mut self, now: Instant) {
        self.tries.retain(|_, tries| tries.forget_at > now);
        if self.tries.len() < self.max_keys {
            return;
        }
        let mut counts: Vec<u32> = self.tries.values().map(|tries| tries.wrong).collect();
        let (_, limit, _) = counts.select_nth_unstable(self.max_keys / 2);
        let limit = *limit;
        self.tries.retain(|_, tries| tries.wrong > limit);
    }
}

#[derive(Debug)]
struct AttemptState {
    of_pair: Waits<(PersonKey, IpAddr)>,
    of_person: Waits<PersonKey>,
    /// Clients that have logged in as the person before; other clients cannot make them wait.
    known: KnownClients<PersonKey>,
}

/// The attempts of all clients to log in as persons.
#[derive(Debug)]
pub(crate) struct Attempts(Mutex<AttemptState>, AttemptGossip);

/// An attempt that may go on.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    person: PersonKey,
    client: IpAddr,
    /// The wait of this client when the attempt is wrong.
    pub(crate) waits_for: Option<Duration>,
    /// The wait of all unknown clients when the attempt is wrong.
    pub(crate) locks_for: Option<Duration>,
}

impl Attempts {
    pub(crate) fn new(attempt_gossip: AttemptGossip) -> Self {
        let (of_pair, of_person) = (Waits::new(FREE_OF_PAIR), Waits::new(FREE_OF_PERSON));
        Self(Mutex::new(AttemptState { of_pair, of_person, known: KnownClients::default() }), attempt_gossip)
    }

    fn parts(&self) -> MutexGuard<'_, AttemptState> {
        self.0.lock()
    }

    /// Begins an attempt as the person with this address. The error is the time to wait.
    pub(crate) fn begin(
        &self,
        organisation: AccountId,
        address: &str,
        client: Client,
        now: Instant,
    ) -> Result<Attempt, Duration> {
        let person = key(organisation, address);
        let pair = (person.clone(), client.0);
        let mut parts = self.parts();
        if let Some(wait) = parts.of_pair.wait(&pair, now) {
            return Err(wait);
        }
        if let Some(wait) = parts.of_person.wait(&person, now)
            && !parts.known.contains(&pair)
        {
            return Err(wait);
        }
        let (waits_for, locks_for) = parts.count(&pair, now);
        let address = || person.1.clone();
        self.1.send(|| CountedAttempt::Attempt { organisation, address: address(), client: client.0 });
        Ok(Attempt { person, client: client.0, waits_for, locks_for })
    }

    /// The password was right, and a code has to follow.
    pub(crate) fn record_step(&self, attempt: Attempt, now: Instant) {
        self.1.send(|| {
            let (organisation, address) = attempt.person.clone();
            CountedAttempt::AttemptGoesOn { organisation, address, client: attempt.client }
        });
        self.parts().take_back(attempt.person, attempt.client, now);
    }

    /// The attempt succeeded.
    pub(crate) fn record_success(&self, attempt: Attempt) {
        self.1.send(|| {
            let (organisation, address) = attempt.person.clone();
            CountedAttempt::AttemptRight { organisation, address, client: attempt.client }
        });
        self.parts().forgive((attempt.person, attempt.client));
    }

    /// The time for which unknown clients cannot log in as this person.
    pub(crate) fn locked_for(&self, organisation: AccountId, address: &str, now: Instant) -> Option<Duration> {
        self.parts().of_person.wait(&key(organisation, address), now)
    }

    /// The person proved from this client to own the address: all waits end, and the client is known from now on.
    pub(crate) fn record_proof(&self, organisation: AccountId, address: &str, client: Client) {
        let person = key(organisation, address);
        self.1.send(|| CountedAttempt::Proved { organisation, address: person.1.clone(), client: client.0 });
        let mut parts = self.parts();
        parts.unlock(&person);
        parts.known.remember((person, client.0));
    }

    /// Ends all waits of this person.
    pub(crate) fn unlock(&self, organisation: AccountId, address: &str) {
        let person = key(organisation, address);
        self.1.send(|| CountedAttempt::Unlocked { organisation, address: person.1.clone() });
        self.parts().unlock(&person);
    }

    /// Counts an attempt that another control has counted.
    pub(crate) fn record_remote(&self, counted: &CountedAttempt, now: Instant) {
        let mut parts = self.parts();
        match counted {
            CountedAttempt::Attempt { organisation, address, client } => {
                parts.count(&(key(*organisation, address), *client), now);
            }
            CountedAttempt::AttemptGoesOn { organisation, address, client } => {
                parts.take_back(key(*organisation, address), *client, now);
            }
            CountedAttempt::AttemptRight { organisation, address, client } => {
                parts.forgive((key(*organisation, address), *client));
            }
            CountedAttempt::Proved { organisation, address, client } => {
                let person = key(*organisation, address);
                parts.unlock(&person);
                parts.known.remember((person, *client));
            }
            CountedAttempt::Unlocked { organisation, address } => parts.unlock(&key(*organisation, address)),
            _ => {}
        }
    }
}

impl AttemptState {
    fn count(&mut self, pair: &(PersonKey, IpAddr), now: Instant) -> (Option<Duration>, Option<Duration>) {
        (self.of_pair.count(pair, now), self.of_person.count(&pair.0, now))
    }

    fn take_back(&mut self, person: PersonKey, client: IpAddr, now: Instant) {
        self.of_person.take_back(&person, now);
        self.of_pair.take_back(&(person, client), now);
    }

    fn forgive(&mut self, pair: (PersonKey, IpAddr)) {
        self.of_person.tries.remove(&pair.0);
        self.of_pair.tries.remove(&pair);
        self.known.remember(pair);
    }

    fn unlock(&mut self, person: &PersonKey) {
        self.of_pair.tries.retain(|(other, _), _| other != person);
        self.of_person.tries.remove(person);
    }
}

fn key(organisation: AccountId, address: &str) -> PersonKey {
    let end = address.floor_char_boundary(MAX_ADDRESS_BYTES);
    (organisation, address[..end].to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn organisation() -> AccountId {
        AccountId::from_random([1; 16])
    }

    fn client(last: u8) -> Client {
        Client([192, 0, 2, last].into())
    }

    #[test]
    fn waits_grow_and_end_with_what_is_right() {
        let (attempts, mut now) = (Attempts::new(AttemptGossip::default()), Instant::now());
        let begin = |now| attempts.begin(organisation(), "Ann@example.com", client(1), now);
        for _ in 0..FREE_OF_PAIR {
            begin(now).unwrap();
        }
        let mut waits = Vec::new();
        for _ in 0..12 {
            let wait = begin(now).unwrap_err();
            assert!(attempts.begin(organisation(), "ann@example.com", client(1), now).is_err(), "capitals do not help");
            waits.push(wait.as_secs());
            now += wait;
            begin(now).unwrap();
        }
        assert_eq!(waits, [2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900, 900]);
        now += MAX_WAIT;
        attempts.record_success(begin(now).unwrap());
        assert!(begin(now).is_ok());
    }

    #[test]
    fn many_clients_lock_a_person_except_for_known_clients() {
        let (attempts, now) = (Attempts::new(AttemptGossip::default()), Instant::now());
        let begin = |n: u8| attempts.begin(organisation(), "ann@example.com", client(n), now);
        attempts.record_success(begin(1).unwrap());
        for n in 2..1 + FREE_OF_PERSON as u8 {
            assert!(begin(n).unwrap().locks_for.is_none());
        }
        assert_eq!(begin(100).unwrap().locks_for, Some(FIRST_WAIT));
        assert!(begin(101).is_err() && attempts.locked_for(organisation(), "ann@example.com", now).is_some());
        assert!(begin(1).is_ok(), "her usual client is not locked");
        assert!(attempts.begin(organisation(), "bob@example.com", client(101), now).is_ok());
        assert!(attempts.begin(AccountId::from_random([2; 16]), "ann@example.com", client(101), now).is_ok());
        attempts.unlock(organisation(), "ann@example.com");
        assert!(begin(101).is_ok() && attempts.locked_for(organisation(), "ann@example.com", now).is_none());
    }

    #[test]
    fn a_right_password_alone_gives_no_more_tries_of_codes() {
        let (attempts, now) = (Attempts::new(AttemptGossip::default()), Instant::now());
        let begin = || attempts.begin(organisation(), "ann@example.com", client(1), now);
        for _ in 1..FREE_OF_PAIR {
            attempts.record_step(begin().unwrap(), now);
            begin().unwrap();
        }
        attempts.record_step(begin().unwrap(), now);
        begin().unwrap();
        assert!(begin().is_err());
    }

    #[test]
    fn what_another_control_counted_counts_here() {
        let attempt_gossip = AttemptGossip::default();
        let mut sent = attempt_gossip.begin().unwrap();
        let (one, two, now) = (Attempts::new(attempt_gossip), Attempts::new(AttemptGossip::default()), Instant::now());
        let receive = |sent: &mut tokio::sync::mpsc::Receiver<Vec<u8>>| {
            while let Ok(word) = sent.try_recv() {
                two.record_remote(&serde_json::from_slice(&word).unwrap(), now);
            }
        };
        let begin = |at: &Attempts| at.begin(organisation(), "ann@example.com", client(1), now);
        for _ in 0..FREE_OF_PAIR {
            begin(&one).unwrap();
        }
        begin(&two).unwrap();
        let fresh = begin(&two).unwrap();
        receive(&mut sent);
        assert!(begin(&two).is_err(), "the tries of both together are too many");
        one.unlock(organisation(), "Ann@example.com");
        receive(&mut sent);
        assert!(begin(&two).is_ok(), "a lock that ends there ends here");
        drop(fresh);
        one.record_success(begin(&one).unwrap());
        receive(&mut sent);
        for n in 2..2 + FREE_OF_PERSON as u8 {
            two.begin(organisation(), "ann@example.com", client(n), now).unwrap();
        }
        assert!(two.begin(organisation(), "ann@example.com", client(200), now).is_err());
        assert!(begin(&two).is_ok(), "a client that logged in at one is known at the other");
    }

    #[test]
    fn the_maps_stay_bounded_and_keep_the_worst() {
        let mut waits = Waits { max_keys: 64, ..Waits::new(2) };
        let now = Instant::now();
        for _ in 0..5 {
            waits.count(&u32::MAX, now);
        }
        for key in 0..10_000 {
            waits.count(&key, now);
            assert!(waits.tries.len() <= 64);
        }
        assert!(waits.wait(&u32::MAX, now).is_some());
        waits.count(&1, now + 2 * FORGET_AFTER);
        assert!(waits.tries.len() <= 64 && waits.count(&u32::MAX, now + 2 * FORGET_AFTER).is_none());
    }
}
