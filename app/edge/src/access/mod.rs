//! Admission: who comes to a socket, whether they may enter, and for how long.
//!
//! May use `util`, `lifecycle`, `config`, `metrics`, `client`, `policy`, `origins`, `state`, `record`.
//!
//! | file | what |
//! | --- | --- |
//! | `admit` | the access list and the limits of a socket, for requests and flows alike |
//! | `gate` | a request to a socket with an identity or policies: a cookie, a service token, a certificate |
//! | `cookies`, `fields`, `page` | cookies that only this edge sets, header fields for origins, pages for visitors |
//! | `own_paths`, `grants` | `/.sallyport/…`, where a browser comes back from its login; grants that were used |
//! | `certificates`, `refused_addresses` | client certificates in a TLS handshake, and what is recorded of refused ones |
//! | `revalidation`, `revocation` | the same decision again while a flow lasts, and where a request keeps it |
//!
//! Nobody enters where something is missing or cannot be read.

pub(crate) mod admit;
mod certificates;
mod cookies;
mod denial;
mod fields;
mod gate;
mod grants;
mod own_paths;
mod page;
mod refused_addresses;
mod revalidation;
mod revocation;

use std::{
    net::IpAddr,
    sync::Arc,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use parking_lot::Mutex;

use crate::{
    config::{EdgeConfig, EdgeIdentity},
    policy::judge::{AccessRequest, Ruling},
    state::EdgeState,
};

pub(crate) use certificates::{RefusedCertificate, holder, http_server_config, server_config};
pub(crate) use denial::Denial;
pub(crate) use gate::{Arrival, filter_answer_cookies, may_enter};
pub(crate) use own_paths::let_login_arrive;
pub(crate) use page::AccessPage;
pub(crate) use refused_addresses::refusal;
pub(crate) use revalidation::{AccessRevalidation, follow};
pub(crate) use revocation::{RevocationCheck, RevocationSlot, UncheckedRequest};

/// Who may come in: the state of the edge, and what it knows of logins.
pub(crate) struct Access {
    /// The state that all share.
    pub(crate) state: Arc<EdgeState>,
    /// What is known of logins.
    pub(crate) identity: IdentityState,
}

impl Access {
    /// Access to the sockets of this edge; nothing is known of logins yet.
    pub(crate) fn new(state: Arc<EdgeState>) -> Arc<Self> {
        let identity = IdentityState::new(&state.config);
        Arc::new(Self { state, identity })
    }
}

/// What an edge remembers of logins, beside its configuration.
#[derive(Debug)]
pub(crate) struct IdentityState {
    parts: Option<EdgeIdentity>,
    /// `https://login.example.com`, with the port where it is another than 443.
    login_url: String,
    grants: Mutex<grants::UsedGrants>,
    told: Mutex<fields::AssertionCache>,
    strangers: Mutex<refused_addresses::RefusedAddresses>,
}

impl IdentityState {
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
        let mut strangers = self.strangers.lock();
        strangers.may_be_told(address, Instant::now())
    }

    /// What it needs; `None`: nobody enters where somebody has to be known.
    fn parts(&self) -> Option<&EdgeIdentity> {
        self.parts.as_ref()
    }
}

/// The time, in seconds since 1970 (UTC).
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
