//! Step 4 of a request's path: user names and passwords of protected sockets (RFC 7617).
//!
//! A password is checked with argon2id, which is slow on purpose, so valid credentials are remembered by a keyed hash.
//! Checks run on threads of their own, a few at a time. An address with many failures is blocked for a while.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use sallyport_http::basic::Credentials;
use sallyport_model::{BasicAuth, SocketId};
use sallyport_password::{PasswordMemory, PasswordUser};
use sha2::{Digest, Sha256};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::lifecycle::counts::party;

/// How many valid credentials are remembered.
const MAX_REMEMBERED: usize = 4_096;
/// How long valid credentials are remembered.
const MAX_REMEMBERED_AGE: Duration = Duration::from_secs(600);
/// How many checks run at once.
const MAX_CHECKS: usize = 2;
/// How many checks may run or wait, over all sockets.
const MAX_CHECKS_QUEUED: usize = 64;
/// How many failures an address may have at one socket within [`FAILURE_WINDOW`].
const MAX_FAILURES: u32 = 10;
/// How long failures count.
const FAILURE_WINDOW: Duration = Duration::from_secs(60);
/// For how many pairs of address and socket failures are remembered.
const MAX_FAILING_ADDRESSES: usize = 10_000;

/// The outcome for a request's credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// They are valid.
    Granted,
    /// They are missing or wrong.
    Denied,
    /// The address failed too often at this socket, and is blocked for this many seconds.
    TooManyFailures(u64),
    /// Too many checks run or wait.
    Busy,
}

/// Checks credentials.
#[derive(Debug)]
pub(crate) struct BasicAuthenticator {
    key: [u8; 32],
    good: Mutex<HashMap<[u8; 32], Instant>>,
    failures: Mutex<HashMap<(SocketId, IpAddr), Failures>>,
    queue: Arc<Semaphore>,
    checks: Arc<Semaphore>,
    memory: Arc<PasswordMemory>,
}

/// A place in the queue, the hasher, and a permit to run.
type Permits = (OwnedSemaphorePermit, PasswordUser, OwnedSemaphorePermit);

#[derive(Debug, Clone, Copy)]
struct Failures {
    count: u32,
    since: Instant,
}

impl BasicAuthenticator {
    /// A checker that remembers credentials under this random key.
    pub(crate) fn new(key: [u8; 32]) -> Self {
        Self {
            key,
            good: Mutex::default(),
            failures: Mutex::default(),
            queue: Arc::new(Semaphore::new(MAX_CHECKS_QUEUED)),
            checks: Arc::new(Semaphore::new(MAX_CHECKS)),
            memory: Arc::default(),
        }
    }

    /// Checks the credentials of a request, or their absence, against the rule.
    pub(crate) async fn check(
        &self,
        rule: &BasicAuth,
        socket: SocketId,
        given: Option<Credentials>,
        client: IpAddr,
    ) -> Access {
        let party = (socket, party(client));
        // Remembered credentials pass even from a blocked address, which many clients may share.
        let mark = given.as_ref().map(|given| self.mark(rule, socket, given));
        if mark.is_some_and(|mark| self.is_remembered(&mark, Instant::now())) {
            return Access::Granted;
        }
        if let Some(seconds) = self.blocked_for(party, Instant::now()) {
            return Access::TooManyFailures(seconds);
        }
        let (Some(given), Some(mark)) = (given, mark) else { return Access::Denied };
        let Ok(place) = self.queue.clone().try_acquire_owned() else { return Access::Busy };
        let user = self.memory.enter();
        let Ok(turn) = self.checks.clone().acquire_owned().await else { return Access::Busy };
        // Others of this address may have failed while this check waited.
        if let Some(seconds) = self.blocked_for(party, Instant::now()) {
            return Access::TooManyFailures(seconds);
        }
        if self.is_remembered(&mark, Instant::now()) {
            return Access::Granted;
        }
        let Some((is_good, permits)) = self.verify(rule, given, (place, user, turn)).await else { return Access::Busy };
        let access = if is_good {
            self.remember(mark, Instant::now());
            Access::Granted
        } else {
            self.failed(party, Instant::now());
            Access::Denied
        };
        // Released only now, so that the next check sees this outcome.
        drop(permits);
        access
    }

    /// Runs argon2id on a thread for blocking work. The permits are kept until it ends, even if the caller has gone.
    /// `None` if it cannot be run.
    async fn verify(&self, rule: &BasicAuth, given: Credentials, permits: Permits) -> Option<(bool, Permits)> {
        let rule = rule.clone();
        tokio::task::spawn_blocking(move || {
            // The password is checked whatever the name is, so that both kinds of failure take the same time.
            let is_password = permits.1.verify(given.password().as_bytes(), &rule.password_hash);
            (given.is_username(&rule.username) && is_password, permits)
        })
        .await
        .ok()
    }

    /// The key of remembered credentials. The rule is part of it, so a changed password invalidates them.
    fn mark(&self, rule: &BasicAuth, socket: SocketId, given: &Credentials) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update(self.key);
        hash.update(socket.as_bytes());
        for part in [&rule.username, &rule.password_hash, given.username(), given.password()] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        hash.finalize().into()
    }

    fn is_remembered(&self, mark: &[u8; 32], now: Instant) -> bool {
        let good = self.good.lock();
        good.get(mark).is_some_and(|since| now.saturating_duration_since(*since) < MAX_REMEMBERED_AGE)
    }

    fn remember(&self, mark: [u8; 32], now: Instant) {
        let mut good = self.good.lock();
        if good.len() >= MAX_REMEMBERED {
            good.retain(|_, since| now.saturating_duration_since(*since) < MAX_REMEMBERED_AGE);
        }
        if good.len() >= MAX_REMEMBERED {
            good.clear();
        }
        good.insert(mark, now);
    }

    fn blocked_for(&self, party: (SocketId, IpAddr), now: Instant) -> Option<u64> {
        let failures = self.failures.lock();
        let of_party = failures.get(&party).filter(|failures| failures.count >= MAX_FAILURES)?;
        let rest = FAILURE_WINDOW.checked_sub(now.saturating_duration_since(of_party.since))?;
        Some(rest.as_secs() + 1)
    }

    fn failed(&self, party: (SocketId, IpAddr), now: Instant) {
        let mut failures = self.failures.lock();
        let is_recent = |failures: &Failures| now.saturating_duration_since(failures.since) < FAILURE_WINDOW;
        if failures.len() >= MAX_FAILING_ADDRESSES {
            failures.retain(|_, failures| is_recent(failures));
        }
        if failures.len() >= MAX_FAILING_ADDRESSES {
            failures.clear();
        }
        let of_party = failures.entry(party).or_insert(Failures { count: 0, since: now });
        if !is_recent(of_party) {
            *of_party = Failures { count: 0, since: now };
        }
        of_party.count += 1;
    }
}

#[cfg(test)]
mod tests {
    use argon2::{Params, PasswordHasher};
    use base64::{Engine, engine::general_purpose::STANDARD};

    use super::*;

    fn rule(password: &str) -> BasicAuth {
        let cheap = Params::new(8, 1, 1, None).unwrap();
        let argon = argon2::Argon2::new(argon2::Algorithm::Argon2id, argon2::Version::V0x13, cheap);
        let hash = argon.hash_password_with_salt(password.as_bytes(), b"salt-for-tests").unwrap();
        BasicAuth { username: "ann".into(), password_hash: hash.to_string() }
    }

    fn given(name: &str, password: &str) -> Option<Credentials> {
        let value = format!("Basic {}", STANDARD.encode(format!("{name}:{password}")));
        Some(Credentials::parse(value.as_bytes()).unwrap())
    }

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    #[tokio::test]
    async fn good_credentials_pass_and_are_remembered_until_the_rule_changes() {
        let basic_auth = BasicAuthenticator::new([7; 32]);
        let socket = SocketId::from_random([1; 16]);
        let rule_now = rule("correct horse");
        let check = |rule: BasicAuth, given| {
            let basic_auth = &basic_auth;
            async move { basic_auth.check(&rule, socket, given, CLIENT).await }
        };
        assert_eq!(check(rule_now.clone(), None).await, Access::Denied);
        assert_eq!(check(rule_now.clone(), given("ann", "correct horse")).await, Access::Granted);
        assert_eq!(basic_auth.good.lock().len(), 1);
        assert_eq!(check(rule_now.clone(), given("ann", "correct horse")).await, Access::Granted);
        assert_eq!(check(rule_now.clone(), given("ann", "wrong")).await, Access::Denied);
        assert_eq!(check(rule_now, given("bob", "correct horse")).await, Access::Denied);
        assert_eq!(check(rule("another one"), given("ann", "correct horse")).await, Access::Denied);
    }

    #[tokio::test]
    async fn an_address_that_keeps_failing_is_blocked_and_others_are_not() {
        let basic_auth = BasicAuthenticator::new([7; 32]);
        let socket = SocketId::from_random([1; 16]);
        let rule = rule("correct horse");
        for _ in 0..MAX_FAILURES {
            assert_eq!(basic_auth.check(&rule, socket, given("ann", "wrong"), CLIENT).await, Access::Denied);
        }
        let blocked = basic_auth.check(&rule, socket, given("ann", "correct horse"), CLIENT).await;
        assert!(matches!(blocked, Access::TooManyFailures(1..=61)), "{blocked:?}");
        let other = basic_auth.check(&rule, socket, given("ann", "correct horse"), OTHER).await;
        assert_eq!(other, Access::Granted);
        let later = Instant::now() + FAILURE_WINDOW;
        assert_eq!(basic_auth.blocked_for((socket, CLIENT), later + Duration::from_secs(1)), None);
    }

    #[tokio::test]
    async fn failures_block_neither_what_is_remembered_nor_other_sockets() {
        let basic_auth = BasicAuthenticator::new([7; 32]);
        let (socket, other) = (SocketId::from_random([1; 16]), SocketId::from_random([2; 16]));
        let rule = rule("correct horse");
        let good = || given("ann", "correct horse");
        assert_eq!(basic_auth.check(&rule, socket, good(), CLIENT).await, Access::Granted);
        for _ in 0..MAX_FAILURES {
            assert_eq!(basic_auth.check(&rule, socket, given("ann", "wrong"), CLIENT).await, Access::Denied);
        }
        let blocked = basic_auth.check(&rule, socket, given("ann", "wrong"), CLIENT).await;
        assert!(matches!(blocked, Access::TooManyFailures(_)), "{blocked:?}");
        assert_eq!(basic_auth.check(&rule, socket, good(), CLIENT).await, Access::Granted, "the password is cached");
        assert_eq!(
            basic_auth.check(&rule, other, good(), CLIENT).await,
            Access::Granted,
            "another socket has its own limit"
        );
    }

    #[tokio::test]
    async fn guesses_that_come_all_at_once_are_bounded_like_any_others() {
        let basic_auth = Arc::new(BasicAuthenticator::new([7; 32]));
        let socket = SocketId::from_random([1; 16]);
        let mut guesses = tokio::task::JoinSet::new();
        for number in 0..MAX_CHECKS_QUEUED {
            let (basic_auth, rule) = (basic_auth.clone(), rule("correct horse"));
            let guess = given("ann", &number.to_string());
            guesses.spawn(async move { basic_auth.check(&rule, socket, guess, CLIENT).await });
        }
        let outcomes = guesses.join_all().await;
        let judged = outcomes.iter().filter(|outcome| **outcome == Access::Denied).count();
        // The failures up to the bound, and the checks that ran when it was reached.
        assert!(judged < MAX_FAILURES as usize + MAX_CHECKS, "{judged} of {} were judged", outcomes.len());
        assert_eq!(basic_auth.memory.spare_bytes(), 0, "no memory is held when no check waits");
    }
}
