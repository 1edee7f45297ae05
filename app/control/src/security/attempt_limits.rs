//! Rate limits of attempts that guess secrets or fill the store.

use std::{
    net::IpAddr,
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};
use sallyport_model::{AccountId, Email, PersonId};

use super::{
    client::Client,
    known_clients::KnownClients,
    token_bucket::{Limiter, Rate},
};
use crate::{
    cluster::attempt_gossip::{AttemptGossip, CountedAttempt},
    problem::ApiError,
};

/// Failed logins of one client: slows down guessing at many accounts.
const LOGINS_OF_CLIENT: Rate = Rate { burst: 20, every: Duration::from_secs(6) };
/// Failed logins of one client with one e-mail address: slows down guessing at one account, and only for the guesser.
const LOGINS_OF_PAIR: Rate = Rate { burst: 10, every: Duration::from_secs(30) };
/// Failed logins with one e-mail address, of all clients. Beyond, a client that failed with the address has to wait;
/// other clients do not, so that the owner cannot be locked out.
const LOGINS_OF_EMAIL: Rate = Rate { burst: 30, every: Duration::from_secs(10) };
/// New accounts of one client.
const ACCOUNTS_OF_CLIENT: Rate = Rate { burst: 30, every: Duration::from_secs(60) };
/// Refreshed or ended sessions of one client.
const REFRESHES_OF_CLIENT: Rate = Rate { burst: 60, every: Duration::from_secs(1) };

/// Messages to persons that one client requests.
const MESSAGES_OF_CLIENT: Rate = Rate { burst: 10, every: Duration::from_secs(60) };
/// Messages to one person, requested without a login.
const MESSAGES_OF_PERSON: Rate = Rate { burst: 3, every: Duration::from_secs(5 * 60) };
/// Messages to one address of an account or of an invitation, by all clients.
const MESSAGES_TO_ADDRESS: Rate = Rate { burst: 3, every: Duration::from_secs(5 * 60) };
/// Login steps of persons, of one client. High enough for an office behind one address.
const LOGIN_STEPS_OF_CLIENT: Rate = Rate { burst: 300, every: Duration::from_millis(200) };
/// Logouts that one client, a provider, reports. High enough for all people of a company at once.
const PROVIDER_LOGOUTS_OF_CLIENT: Rate = Rate { burst: 2_000, every: Duration::from_millis(20) };
/// Tests of identity providers, of one account.
const LOOKS_OF_ACCOUNT: Rate = Rate { burst: 20, every: Duration::from_secs(3) };
/// Sockets, tunnels and tokens that one account makes: far above any real need, to protect names and disk.
const CREATIONS_OF_ACCOUNT: Rate = Rate { burst: 2_000, every: Duration::from_secs(5) };

/// Invitations of one organisation: enough for a whole company, too few to flood mailboxes.
const INVITATIONS_OF_ORGANISATION: Rate = Rate { burst: 100, every: Duration::from_secs(30) };
/// Codes of invitations that one account tries.
const CODES_OF_ACCOUNT: Rate = Rate { burst: 20, every: Duration::from_secs(10) };
/// Recorded invalid tokens of one client: six a minute.
const BAD_TOKENS_OF_CLIENT: Rate = Rate { burst: 6, every: Duration::from_secs(10) };

/// An e-mail address in lower case, and a client that logs in with it.
type Pair = (String, IpAddr);

/// Rate limits of attempts. Limits against guessing apply to all controls together; limits against filling apply to
/// each process.
#[derive(Debug)]
pub(crate) struct AttemptLimits {
    logins_of_client: Mutex<Limiter<IpAddr>>,
    logins_of_pair: Mutex<Limiter<Pair>>,
    logins_of_email: Mutex<Limiter<String>>,
    /// Clients that have logged in before.
    known: Mutex<KnownClients<String>>,
    accounts_of_client: Mutex<Limiter<IpAddr>>,
    refreshes_of_client: Mutex<Limiter<IpAddr>>,
    creations_of_account: Mutex<Limiter<AccountId>>,
    login_steps_of_client: Mutex<Limiter<IpAddr>>,
    provider_logouts_of_client: Mutex<Limiter<IpAddr>>,
    looks_of_account: Mutex<Limiter<AccountId>>,
    invitations_of_organisation: Mutex<Limiter<AccountId>>,
    codes_of_account: Mutex<Limiter<AccountId>>,
    bad_tokens_of_client: Mutex<Limiter<IpAddr>>,
    messages_of_client: Mutex<Limiter<IpAddr>>,
    messages_of_person: Mutex<Limiter<PersonId>>,
    messages_to_address: Mutex<Limiter<String>>,
    attempt_gossip: AttemptGossip,
}

fn open<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock()
}

impl AttemptLimits {
    pub(crate) fn new(attempt_gossip: AttemptGossip) -> Self {
        Self {
            attempt_gossip,
            logins_of_client: Mutex::new(Limiter::new(LOGINS_OF_CLIENT)),
            logins_of_pair: Mutex::new(Limiter::new(LOGINS_OF_PAIR)),
            logins_of_email: Mutex::new(Limiter::new(LOGINS_OF_EMAIL)),
            known: Mutex::default(),
            accounts_of_client: Mutex::new(Limiter::new(ACCOUNTS_OF_CLIENT)),
            refreshes_of_client: Mutex::new(Limiter::new(REFRESHES_OF_CLIENT)),
            creations_of_account: Mutex::new(Limiter::new(CREATIONS_OF_ACCOUNT)),
            login_steps_of_client: Mutex::new(Limiter::new(LOGIN_STEPS_OF_CLIENT)),
            provider_logouts_of_client: Mutex::new(Limiter::new(PROVIDER_LOGOUTS_OF_CLIENT)),
            looks_of_account: Mutex::new(Limiter::new(LOOKS_OF_ACCOUNT)),
            invitations_of_organisation: Mutex::new(Limiter::new(INVITATIONS_OF_ORGANISATION)),
            codes_of_account: Mutex::new(Limiter::new(CODES_OF_ACCOUNT)),
            bad_tokens_of_client: Mutex::new(Limiter::new(BAD_TOKENS_OF_CLIENT)),
            messages_of_client: Mutex::new(Limiter::new(MESSAGES_OF_CLIENT)),
            messages_of_person: Mutex::new(Limiter::new(MESSAGES_OF_PERSON)),
            messages_to_address: Mutex::new(Limiter::new(MESSAGES_TO_ADDRESS)),
        }
    }

    /// Counts a login before its password is checked, so that concurrent attempts gain nothing.
    pub(crate) fn login(&self, client: Client, email: &Email, now: Instant) -> Result<(), ApiError> {
        open(&self.logins_of_client).take(&client.0, now).map_err(ApiError::limited)?;
        let pair = (email.as_str().to_lowercase(), client.0);
        self.attempt_gossip.send(|| CountedAttempt::Login { email: pair.0.clone(), client: client.0 });
        let failed_before = {
            let mut pairs = open(&self.logins_of_pair);
            let failed_before = pairs.has_tries(&pair, now);
            pairs.take(&pair, now).map_err(ApiError::limited)?;
            failed_before
        };
        let taken = open(&self.logins_of_email).take(&pair.0, now);
        let is_known = || open(&self.known).contains(&pair);
        match taken {
            Err(wait) if failed_before && !is_known() => Err(ApiError::limited(wait)),
            _ => Ok(()),
        }
    }

    /// Takes the attempt back, because the password was right.
    pub(crate) fn record_right_login(&self, client: Client, email: &Email, now: Instant) {
        let pair = (email.as_str().to_lowercase(), client.0);
        self.attempt_gossip.send(|| CountedAttempt::LoginRight { email: pair.0.clone(), client: client.0 });
        self.forgive_login(pair, now);
    }

    fn forgive_login(&self, pair: Pair, now: Instant) {
        open(&self.logins_of_client).give_back(&pair.1, now);
        open(&self.logins_of_pair).give_back(&pair, now);
        open(&self.logins_of_email).give_back(&pair.0, now);
        open(&self.known).remember(pair);
    }

    pub(crate) fn create_account(&self, client: Client, now: Instant) -> Result<(), ApiError> {
        open(&self.accounts_of_client).take(&client.0, now).map_err(ApiError::limited)?;
        self.attempt_gossip.send(|| CountedAttempt::Account { client: client.0 });
        Ok(())
    }

    pub(crate) fn create(&self, account: AccountId, now: Instant) -> Result<(), ApiError> {
        open(&self.creations_of_account).take(&account, now).map_err(ApiError::limited)
    }

    pub(crate) fn login_step(&self, client: Client, now: Instant) -> Result<(), ApiError> {
        open(&self.login_steps_of_client).take(&client.0, now).map_err(ApiError::limited)
    }

    pub(crate) fn provider_logout(&self, client: Client, now: Instant) -> Result<(), ApiError> {
        open(&self.provider_logouts_of_client).take(&client.0, now).map_err(ApiError::limited)
    }

    pub(crate) fn look(&self, account: AccountId, now: Instant) -> Result<(), ApiError> {
        open(&self.looks_of_account).take(&account, now).map_err(ApiError::limited)
    }

    /// Counts a request for a message, to any address.
    pub(crate) fn take_message_request(&self, client: Client, now: Instant) -> Result<(), ApiError> {
        open(&self.messages_of_client).take(&client.0, now).map_err(ApiError::limited)
    }

    /// Counts a message to this person. Returns false if the limit is reached.
    pub(crate) fn message(&self, person: PersonId, now: Instant) -> bool {
        let may = open(&self.messages_of_person).take(&person, now).is_ok();
        if may {
            self.attempt_gossip.send(|| CountedAttempt::Message { person });
        }
        may
    }

    /// Counts a message about an account to this address. Returns false if the limit is reached.
    pub(crate) fn message_to_account(&self, address: &str, now: Instant) -> bool {
        let address = address.to_lowercase();
        let may = open(&self.messages_to_address).take(&address, now).is_ok();
        if may {
            self.attempt_gossip.send(|| CountedAttempt::AccountMessage { address });
        }
        may
    }

    /// Counts an attempt with a person's password by this client.
    pub(crate) fn person_login(&self, client: Client, now: Instant) -> Result<(), ApiError> {
        open(&self.logins_of_client).take(&client.0, now).map_err(ApiError::limited)?;
        self.attempt_gossip.send(|| CountedAttempt::PersonLogin { client: client.0 });
        Ok(())
    }

    /// Takes the attempt back, because the password was right.
    pub(crate) fn record_right_person_login(&self, client: Client, now: Instant) {
        self.attempt_gossip.send(|| CountedAttempt::PersonLoginRight { client: client.0 });
        open(&self.logins_of_client).give_back(&client.0, now);
    }

    pub(crate) fn refresh(&self, client: Client, now: Instant) -> Result<(), ApiError> {
        open(&self.refreshes_of_client).take(&client.0, now).map_err(ApiError::limited)
    }

    pub(crate) fn invite(&self, organisation: AccountId, now: Instant) -> Result<(), ApiError> {
        open(&self.invitations_of_organisation).take(&organisation, now).map_err(ApiError::limited)
    }

    pub(crate) fn try_code(&self, account: AccountId, now: Instant) -> Result<(), ApiError> {
        open(&self.codes_of_account).take(&account, now).map_err(ApiError::limited)?;
        self.attempt_gossip.send(|| CountedAttempt::Code { account });
        Ok(())
    }

    /// Counts an attempt that another control has counted.
    pub(crate) fn record_remote(&self, counted: &CountedAttempt, now: Instant) {
        match counted {
            CountedAttempt::Login { email, client } => {
                let _ = open(&self.logins_of_client).take(client, now);
                let _ = open(&self.logins_of_pair).take(&(email.clone(), *client), now);
                let _ = open(&self.logins_of_email).take(email, now);
            }
            CountedAttempt::LoginRight { email, client } => self.forgive_login((email.clone(), *client), now),
            CountedAttempt::PersonLogin { client } => {
                let _ = open(&self.logins_of_client).take(client, now);
            }
            CountedAttempt::PersonLoginRight { client } => open(&self.logins_of_client).give_back(client, now),
            CountedAttempt::Account { client } => {
                let _ = open(&self.accounts_of_client).take(client, now);
            }
            CountedAttempt::Message { person } => {
                let _ = open(&self.messages_of_person).take(person, now);
            }
            CountedAttempt::AccountMessage { address } => {
                let _ = open(&self.messages_to_address).take(address, now);
            }
            CountedAttempt::Code { account } => {
                let _ = open(&self.codes_of_account).take(account, now);
            }
            _ => {}
        }
    }

    /// Whether one more invalid token is recorded.
    pub(crate) fn may_record_bad_token(&self, client: Client, now: Instant) -> bool {
        open(&self.bad_tokens_of_client).take(&client.0, now).is_ok()
    }
}
