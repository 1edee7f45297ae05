//! Programs on the machines of persons: how they log in for them, and the certificates that they get.
//!
//! A program never sees a password or a cookie. It opens the browser at `/client` of the login host (RFC 8252), where
//! the person logs in and agrees; the code that comes back to the program's own port is exchanged for a token with the
//! verifier that only the program knows (PKCE, RFC 7636). Where there is no browser, the person types a code elsewhere
//! (RFC 8628). The token is good as long as the login, and buys certificates: each for one socket, for minutes, and only
//! while the socket's policies let the person in.

mod admission;
mod api;
mod device;
mod grants;
mod hosts;
mod pages;

use std::{
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::{
    Router,
    routing::{get, post},
};
use sallyport_model::{AccountId, LoginSessionId};

pub(crate) use admission::ClientAddress;
pub(crate) use api::*;
pub(crate) use grants::{MysocketClient, MysocketClientTokens};
pub(crate) use hosts::*;

use self::device::Paces;
use crate::{
    App,
    counted::{Counted, Telling},
    limit::{Limiter, Rate, client_of},
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
/// User codes of device logins that one client gets wrong: with 20^8 codes and these tries, nobody finds one.
const GUESSES_OF_CLIENT: Rate = Rate { burst: 10, every: Duration::from_secs(60) };
/// User codes that all clients together get wrong.
const GUESSES_OF_ALL: Rate = Rate { burst: 1_000, every: Duration::from_secs(1) };

/// The pages of the login host that come back to themselves when they have sent a browser to log in.
pub(crate) const PAGES: [&str; 3] = ["/client", "/device", "/account"];

/// How often programs ask; in memory, for minutes.
#[derive(Debug)]
pub(crate) struct ClientLogins {
    paces: Mutex<Paces>,
    certificates: Mutex<Limiter<LoginSessionId>>,
    devices_of_client: Mutex<Limiter<IpAddr>>,
    devices_of_organisation: Mutex<Limiter<AccountId>>,
    codes_of_organisation: Mutex<Limiter<AccountId>>,
    guesses_of_client: Mutex<Limiter<IpAddr>>,
    guesses_of_all: Mutex<Limiter<()>>,
    telling: Telling,
}

fn open<T>(what: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ClientLogins {
    pub(crate) fn new(telling: Telling) -> Self {
        Self {
            telling,
            paces: Mutex::default(),
            certificates: Mutex::new(Limiter::new(CERTIFICATES_OF_SESSION)),
            devices_of_client: Mutex::new(Limiter::new(DEVICES_OF_CLIENT)),
            devices_of_organisation: Mutex::new(Limiter::new(DEVICES_OF_ORGANISATION)),
            codes_of_organisation: Mutex::new(Limiter::new(CODES_OF_ORGANISATION)),
            guesses_of_client: Mutex::new(Limiter::new(GUESSES_OF_CLIENT)),
            guesses_of_all: Mutex::new(Limiter::new(GUESSES_OF_ALL)),
        }
    }

    fn certificate(&self, session: LoginSessionId, now: Instant) -> Result<(), ApiError> {
        open(&self.certificates).take(&session, now).map_err(ApiError::limited)
    }

    fn begin_device(&self, client: IpAddr, now: Instant) -> Result<(), ApiError> {
        open(&self.devices_of_client).take(&client_of(client), now).map_err(ApiError::limited)
    }

    fn begin_device_at(&self, organisation: AccountId, now: Instant) -> Result<(), ApiError> {
        open(&self.devices_of_organisation).take(&organisation, now).map_err(ApiError::limited)
    }

    fn code(&self, organisation: AccountId, now: Instant) -> Result<(), ApiError> {
        open(&self.codes_of_organisation).take(&organisation, now).map_err(ApiError::limited)
    }

    /// Counts a user code that is to be looked at; a right one does not count.
    fn guess(&self, client: IpAddr, now: Instant) -> Result<(), Duration> {
        open(&self.guesses_of_client).take(&client_of(client), now)?;
        open(&self.guesses_of_all).take(&(), now)?;
        self.telling.tell(|| Counted::Guess { client: client_of(client) });
        Ok(())
    }

    fn guess_was_right(&self, client: IpAddr, now: Instant) {
        self.forgive_guess(client_of(client), now);
        self.telling.tell(|| Counted::GuessRight { client: client_of(client) });
    }

    fn forgive_guess(&self, client: IpAddr, now: Instant) {
        open(&self.guesses_of_client).give_back(&client, now);
        open(&self.guesses_of_all).give_back(&(), now);
    }

    /// Counts what another control has counted.
    pub(crate) fn hear(&self, counted: &Counted, now: Instant) {
        match counted {
            Counted::Guess { client } => {
                let _ = open(&self.guesses_of_client).take(client, now);
                let _ = open(&self.guesses_of_all).take(&(), now);
            }
            Counted::GuessRight { client } => self.forgive_guess(*client, now),
            _ => {}
        }
    }
}

/// The paths of the API.
pub(crate) fn routes() -> Router<App> {
    Router::new()
        .route("/v1/client", get(api::show).delete(api::end))
        .route("/v1/client/token", post(api::exchange_code))
        .route("/v1/client/device", post(api::begin_device))
        .route("/v1/client/device/token", post(api::exchange_device))
        .route("/v1/client/tls-certificate", post(api::tls_certificate))
        .route("/v1/client/ssh-certificate", post(api::ssh_certificate))
        .route("/v1/sockets/{id}/ssh-host-certificate", post(hosts::sign_host_key))
        .route("/v1/ssh-authority", get(hosts::show_ssh_authority).patch(hosts::update_ssh_authority))
}

/// The pages of the login host.
pub(crate) fn pages() -> Router<App> {
    Router::new()
        .route("/client", get(pages::client).post(pages::agree))
        .route("/client/mysocket", get(pages::mysocket).post(pages::agree))
        .route("/device", get(pages::device).post(pages::agree))
}
