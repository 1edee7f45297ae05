//! Rate limits of programs of persons: certificates, device logins and their codes. In memory, for minutes.

use std::{
    collections::HashMap,
    net::IpAddr,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use sallyport_model::{AccountId, LoginSessionId};
use sallyport_store::{MAX_DEVICE_LOGINS, SecretHash};

use super::{
    client::client_of,
    token_bucket::{Limiter, Rate},
};
use crate::{
    cluster::attempt_gossip::{AttemptGossip, CountedAttempt},
    problem::ApiError,
};

/// Certificates of one login.
const CERTIFICATES_OF_SESSION: Rate = Rate { burst: 60, every: Duration::from_secs(2) };
/// Device logins that one client begins.
const DEVICES_OF_CLIENT: Rate = Rate { burst: 10, every: Duration::from_secs(10) };
/// Device logins of one organisation, by all clients together.
const DEVICES_OF_ORGANISATION: Rate = Rate { burst: 256, every: Duration::from_secs(1) };
/// Codes for programs of one organisation.
const CODES_OF_ORGANISATION: Rate = Rate { burst: 256, every: Duration::from_millis(250) };
/// Wrong user codes of one client: with 20^8 codes, guessing is hopeless.
const GUESSES_OF_CLIENT: Rate = Rate { burst: 10, every: Duration::from_secs(60) };
/// Wrong user codes of all clients together.
const GUESSES_OF_ALL: Rate = Rate { burst: 1_000, every: Duration::from_secs(1) };

/// How long a device login may take.
pub(crate) const DEVICE_TIME: Duration = Duration::from_secs(600);
/// The first polling interval of a program.
pub(crate) const INTERVAL: Duration = Duration::from_secs(5);
/// How much longer the interval becomes after each early request (RFC 8628 section 3.5).
const SLOW_DOWN: Duration = Duration::from_secs(5);
/// The tolerance for early requests, because network delays vary.
const EARLY: Duration = Duration::from_secs(1);
/// Rate limits of programs of persons. They are kept in memory, for minutes.
#[derive(Debug)]
pub(crate) struct DeviceLimits {
    paces: Mutex<Paces>,
    certificates: Mutex<Limiter<LoginSessionId>>,
    devices_of_client: Mutex<Limiter<IpAddr>>,
    devices_of_organisation: Mutex<Limiter<AccountId>>,
    codes_of_organisation: Mutex<Limiter<AccountId>>,
    guesses_of_client: Mutex<Limiter<IpAddr>>,
    guesses_of_all: Mutex<Limiter<()>>,
    attempt_gossip: AttemptGossip,
}

fn open<T>(what: &Mutex<T>) -> parking_lot::MutexGuard<'_, T> {
    what.lock()
}

impl DeviceLimits {
    pub(crate) fn new(attempt_gossip: AttemptGossip) -> Self {
        Self {
            attempt_gossip,
            paces: Mutex::default(),
            certificates: Mutex::new(Limiter::new(CERTIFICATES_OF_SESSION)),
            devices_of_client: Mutex::new(Limiter::new(DEVICES_OF_CLIENT)),
            devices_of_organisation: Mutex::new(Limiter::new(DEVICES_OF_ORGANISATION)),
            codes_of_organisation: Mutex::new(Limiter::new(CODES_OF_ORGANISATION)),
            guesses_of_client: Mutex::new(Limiter::new(GUESSES_OF_CLIENT)),
            guesses_of_all: Mutex::new(Limiter::new(GUESSES_OF_ALL)),
        }
    }

    pub(crate) fn certificate(&self, session: LoginSessionId, now: Instant) -> Result<(), ApiError> {
        open(&self.certificates).take(&session, now).map_err(ApiError::limited)
    }

    pub(crate) fn begin_device(&self, client: IpAddr, now: Instant) -> Result<(), ApiError> {
        open(&self.devices_of_client).take(&client_of(client), now).map_err(ApiError::limited)
    }

    pub(crate) fn begin_device_at(&self, organisation: AccountId, now: Instant) -> Result<(), ApiError> {
        open(&self.devices_of_organisation).take(&organisation, now).map_err(ApiError::limited)
    }

    pub(crate) fn code(&self, organisation: AccountId, now: Instant) -> Result<(), ApiError> {
        open(&self.codes_of_organisation).take(&organisation, now).map_err(ApiError::limited)
    }

    /// Counts a user code before it is checked; a right one is taken back later.
    pub(crate) fn guess(&self, client: IpAddr, now: Instant) -> Result<(), Duration> {
        open(&self.guesses_of_client).take(&client_of(client), now)?;
        open(&self.guesses_of_all).take(&(), now)?;
        self.attempt_gossip.send(|| CountedAttempt::Guess { client: client_of(client) });
        Ok(())
    }

    pub(crate) fn record_right_guess(&self, client: IpAddr, now: Instant) {
        self.forgive_guess(client_of(client), now);
        self.attempt_gossip.send(|| CountedAttempt::GuessRight { client: client_of(client) });
    }

    fn forgive_guess(&self, client: IpAddr, now: Instant) {
        open(&self.guesses_of_client).give_back(&client, now);
        open(&self.guesses_of_all).give_back(&(), now);
    }

    /// Starts the polling of a device login.
    pub(crate) fn begin_polling(&self, device: SecretHash, now: Instant) {
        open(&self.paces).begin(device, now);
    }

    /// The interval from now on if the program asked too early (RFC 8628 section 3.5).
    pub(crate) fn slow_down(&self, device: SecretHash, now: Instant) -> Option<Duration> {
        open(&self.paces).slow_down(device, now)
    }

    /// Ends the polling of a device login.
    pub(crate) fn end_polling(&self, device: SecretHash) {
        open(&self.paces).end(device);
    }

    /// Counts a guess that another control has counted.
    pub(crate) fn record_remote(&self, counted: &CountedAttempt, now: Instant) {
        match counted {
            CountedAttempt::Guess { client } => {
                let _ = open(&self.guesses_of_client).take(client, now);
                let _ = open(&self.guesses_of_all).take(&(), now);
            }
            CountedAttempt::GuessRight { client } => self.forgive_guess(*client, now),
            _ => {}
        }
    }
}

/// The polling interval of one program.
#[derive(Debug, Clone, Copy)]
struct Pace {
    interval: Duration,
    next: Instant,
    ends: Instant,
}

/// The polling intervals of programs at this control. Each control slows down its own.
#[derive(Debug, Default)]
struct Paces(HashMap<SecretHash, Pace>);

impl Paces {
    /// Starts the polling of a program.
    fn begin(&mut self, device: SecretHash, now: Instant) {
        if self.0.len() >= MAX_DEVICE_LOGINS {
            self.0.retain(|_, pace| pace.ends > now);
        }
        if self.0.len() < MAX_DEVICE_LOGINS {
            self.0.insert(device, Pace { interval: INTERVAL, next: now + INTERVAL, ends: now + DEVICE_TIME });
        }
    }

    /// The interval from now on if the request comes too early.
    fn slow_down(&mut self, device: SecretHash, now: Instant) -> Option<Duration> {
        let pace = self.0.get_mut(&device)?;
        let is_early = now + EARLY < pace.next;
        if is_early {
            pace.interval += SLOW_DOWN;
        }
        pace.next = now + pace.interval;
        is_early.then_some(pace.interval)
    }

    /// Forgets the program.
    fn end(&mut self, device: SecretHash) {
        self.0.remove(&device);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_must_not_hurry() {
        let (mut paces, start) = (Paces::default(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        paces.begin([7; 32], start);
        assert_eq!(paces.slow_down([7; 32], after(5)), None);
        assert_eq!(paces.slow_down([7; 32], after(6)), Some(Duration::from_secs(10)));
        assert_eq!(paces.slow_down([7; 32], after(7)), Some(Duration::from_secs(15)));
        assert_eq!(paces.slow_down([7; 32], after(22)), None);
        assert_eq!(paces.slow_down([9; 32], start), None, "one that began elsewhere");
        paces.end([7; 32]);
        for n in 0..2 * MAX_DEVICE_LOGINS {
            let mut device = [0; 32];
            device[..8].copy_from_slice(&n.to_be_bytes());
            paces.begin(device, start);
        }
        assert_eq!(paces.0.len(), MAX_DEVICE_LOGINS);
        paces.begin([8; 32], start + DEVICE_TIME);
        assert_eq!(paces.0.len(), 1, "those that ended make room");
    }
}
