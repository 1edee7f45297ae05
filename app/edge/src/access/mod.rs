//! Who comes to a socket that asks, and whether they may.
//!
//! `judge` is what a socket's owner has said, ready to be asked. `gate` asks it about a request: who is it, by a cookie or a
//! machine's token; and what becomes of those who may not. `own_paths` are those under `/.sallyport/`, where a login comes
//! back. `fields` are what the origin is told. `holders` asks about a TLS connection with a client certificate. `standing`
//! asks again for as long as a flow lasts, and a `stake` is where that lies while an answer is under way.
//!
//! Wherever something is missing or cannot be read, nobody enters.

pub(crate) mod admit;
mod cookies;
mod fields;
mod gate;
mod grants;
mod holders;
mod own_paths;
mod stake;
mod standing;
mod strangers;
mod words;

use std::{
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use sallyport_bus::Identities;
use sallyport_identity::{AssertionKey, Purpose, Sealer};
use serde::Serialize;

use crate::{EdgeConfig, util::ids};

pub(crate) use crate::policy::judge::{Asked, Judge, Ruling};
pub(crate) use gate::{is_answered, may_enter};
pub(crate) use holders::{Shown, ShownCertificates, holder, http_server_config, server_config};
pub(crate) use own_paths::let_login_arrive;
pub(crate) use stake::{Stake, StakeSlot, Unasked};
pub(crate) use standing::{Standing, follow};
pub(crate) use strangers::refusal;
pub(crate) use words::OwnAnswer;

/// What an edge needs to know who comes. An edge without it lets nobody into sockets that ask.
#[derive(Debug, Clone)]
pub struct EdgeIdentity {
    /// Seals and opens what browsers carry; control has the same.
    pub sealer: Arc<Sealer>,
    /// Who has logged in, and which tokens are good.
    pub identities: Identities,
    /// Signs what origins are told.
    pub assertions: Arc<AssertionKey>,
}

/// What an edge remembers of logins, beside its configuration.
#[derive(Debug)]
pub(crate) struct Reception {
    parts: Option<EdgeIdentity>,
    /// `https://login.example.com`, with the port where it is another than 443.
    login_url: String,
    grants: Mutex<grants::UsedGrants>,
    told: Mutex<fields::Told>,
    strangers: Mutex<strangers::Strangers>,
}

impl Reception {
    /// One that remembers nothing yet.
    pub(crate) fn new(config: &EdgeConfig) -> Self {
        let port = if config.public_port == 443 { String::new() } else { format!(":{}", config.public_port) };
        Self {
            parts: config.identity.clone(),
            login_url: format!("https://login.{}{port}", config.domain),
            grants: Mutex::default(),
            told: Mutex::default(),
            strangers: Mutex::default(),
        }
    }

    /// Whether it is recorded that a certificate of this address was refused: a few times for each.
    pub(crate) fn tells_of_stranger(&self, address: IpAddr) -> bool {
        let mut strangers = self.strangers.lock().unwrap_or_else(PoisonError::into_inner);
        strangers.may_be_told(address, Instant::now())
    }

    /// What it needs; `None`: nobody enters where somebody has to be known.
    fn parts(&self) -> Option<&EdgeIdentity> {
        self.parts.as_ref()
    }
}

impl EdgeIdentity {
    fn seal(&self, purpose: Purpose, value: &impl Serialize) -> Option<String> {
        self.sealer.seal(purpose, value, ids::random())
    }
}

/// The time, in seconds since 1970 (UTC).
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
