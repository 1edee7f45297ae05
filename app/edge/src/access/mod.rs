//! Admission: the identity of clients, whether they may enter a socket, and for how long.
//!
//! May use `util`, `lifecycle`, `config`, `metrics`, `client`, `policy`, `origins`, `state`, `record`.
//!
//! | file | what |
//! | --- | --- |
//! | `admit` | the access list and the limits of a socket, for requests and flows alike |
//! | `gate` | a request to a socket with an identity or policies: a cookie, a service token, a certificate |
//! | `cookies`, `fields`, `page` | cookies that only this edge sets, header fields for origins, pages for visitors |
//! | `own_paths`, `grants` | `/.sallyport/…`, to which a browser returns from its login; grants that were used |
//! | `certificates`, `refused_addresses` | client certificates in a TLS handshake, and what is recorded of refused ones |
//! | `revalidation`, `revocation` | the same decision again while a flow lasts, and where a request keeps it |
//!
//! Access fails closed: where data is missing or unreadable, no client enters.

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

pub(crate) use certificates::{RefusedCertificate, accepts_certificates, holder, http_server_config, server_config};
pub(crate) use denial::Denial;
pub(crate) use gate::{RequestSource, authorize_request, filter_response_cookies};
pub(crate) use own_paths::let_login_arrive;
pub(crate) use page::AccessPage;
pub(crate) use refused_addresses::refusal;
pub(crate) use revalidation::{AccessRevalidation, Whereabouts, follow};
pub(crate) use revocation::{RevocationCheck, RevocationSlot, UncheckedRequest};

/// Admission to the sockets of this edge: the state of the edge, and the logins.
pub(crate) struct Access {
    /// The state that all rooms share.
    pub(crate) state: Arc<EdgeState>,
    /// The logins.
    pub(crate) identity: IdentityState,
}

impl Access {
    /// Access to the sockets of this edge, without any login yet.
    pub(crate) fn new(state: Arc<EdgeState>) -> Arc<Self> {
        let identity = IdentityState::new(&state.config);
        Arc::new(Self { state, identity })
    }
}

/// What an edge remembers of logins, besides its configuration.
#[derive(Debug)]
pub(crate) struct IdentityState {
    parts: Option<EdgeIdentity>,
    /// `https://login.example.com`, with the port if it is not 443.
    login_url: String,
    grants: Mutex<grants::UsedGrants>,
    assertions: Mutex<fields::AssertionCache>,
    refused_addresses: Mutex<refused_addresses::RefusedAddresses>,
}

impl IdentityState {
    /// An empty state.
    pub(crate) fn new(config: &EdgeConfig) -> Self {
        let port = if config.public_port == 443 { String::new() } else { format!(":{}", config.public_port) };
        Self {
            parts: config.identity.clone(),
            login_url: format!("https://login.{}{port}", config.domain),
            grants: Mutex::default(),
            assertions: Mutex::default(),
            refused_addresses: Mutex::default(),
        }
    }

    /// Whether a refused certificate of this address is recorded: only a few of each address are.
    pub(crate) fn may_record_refusal(&self, address: IpAddr) -> bool {
        let mut addresses = self.refused_addresses.lock();
        addresses.may_record(address, Instant::now())
    }

    /// The keys and logins. `None`: no identity can be known, so sockets that need one admit no client.
    fn parts(&self) -> Option<&EdgeIdentity> {
        self.parts.as_ref()
    }
}

/// The time, in seconds since 1970 (UTC).
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
