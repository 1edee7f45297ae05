//! What the program that runs control gives it: names, ports, limits, keys of others, and how edges join.

use std::{
    ops::RangeInclusive,
    path::PathBuf,
    sync::{Arc, OnceLock},
};

use sallyport_api::{EdgeBootstrap, EdgeCertificates};
use sallyport_audit::AuditLog;
use sallyport_bus::Asker;
use sallyport_geo::Geo;
use sallyport_http::page::Site;
use sallyport_model::{EdgeId, EdgeName, SocketRoute};
use sallyport_oidc::Reach;
use sallyport_policy::DialedNetworks;
use sallyport_ssh::UserAuthority;
use sallyport_store::HolderId;

use crate::mail::MailHook;

/// The ports that `tcp`, `tls` and `udp` sockets get for themselves, unless the operator gives others.
pub const DEFAULT_PORT_RANGE: RangeInclusive<u16> = 20_000..=20_999;

/// How many ports of this range one account may have, unless the operator says so: half of them, but no more than 100
/// and no fewer than 10.
#[must_use]
pub fn default_ports_per_account(range: &RangeInclusive<u16>) -> usize {
    (range.len() / 2).clamp(10, 100)
}

/// Where stock ssh clients log in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshInfo {
    /// The host name of the ssh server.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Its host keys, as lines of a `known_hosts` file.
    pub known_hosts: Vec<String>,
}

/// Who may make an account, besides those who are invited. The first account can always be made, by whoever has the
/// setup token where there is one: an installation without one is of no use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignUp {
    /// Everybody who reaches the API.
    Open,
    /// Nobody but the first.
    Closed,
}

/// What control tells others about where things are, and whom it takes.
#[derive(Debug, Clone)]
pub struct ControlConfig {
    /// What it is called among the processes that share its store: the same after a restart, and of no other.
    pub id: HolderId,
    /// The domain under which sockets get their names, such as `localhost`.
    pub domain: String,
    /// Whose pages people see where they log in.
    pub site: Site,
    /// The TCP port at which clients and connectors reach the edge.
    pub public_port: u16,
    /// The host that connectors dial.
    pub tunnel_host: String,
    /// The UDP port at which connectors reach the edge over QUIC, when they can.
    pub quic_port: Option<u16>,
    /// The root certificate of the built-in certificate authority in PEM, when there is one.
    pub ca_pem: Option<String>,
    /// Its fingerprint, `sha256:` and hexadecimal digits.
    pub ca_fingerprint: Option<String>,
    /// Who may make an account.
    pub sign_up: SignUp,
    /// The ports that `tcp`, `tls` and `udp` sockets get for themselves.
    pub port_range: RangeInclusive<u16>,
    /// How many of these ports one account may have, and all guests together.
    pub ports_per_account: usize,
    /// Whether all `udp` sockets have the amplification guard, whatever their owners have set or want.
    pub requires_amplification_guard: bool,
    /// Where stock ssh clients log in, when they can.
    pub ssh: Option<SshInfo>,
    /// Signs ssh keys for one tunnel each, where ssh clients can log in.
    pub ssh_authority: Option<UserAuthority>,
    /// Which networks edges dial into by themselves, for direct origins.
    pub direct_origins: DialedNetworks,
    /// Which databases of addresses the edges have; rules that need another one are refused.
    pub databases: AddressDatabases,
    /// Where identity providers may be.
    pub provider_reach: Reach,
    /// The databases themselves, where there are any: who logs in is asked the same questions as at an edge.
    pub geo: Option<Arc<Geo>>,
    /// Where it is recorded who did what.
    pub audit: Option<AuditLog>,
    /// Asks edges what only they know.
    pub asker: Asker,
    /// Sends messages to owners of accounts, where the operator has set one up.
    pub mail_hook: Option<MailHook>,
    /// Where the setup token is written that the first account takes; `None` where whoever comes first may make it.
    pub setup_token_file: Option<PathBuf>,
}

impl ControlConfig {
    /// The route as edges serve it.
    pub(crate) fn served(&self, mut route: SocketRoute) -> SocketRoute {
        route.settings.amplification_guard |= self.requires_amplification_guard;
        route
    }
}

/// What is known of clients' addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AddressDatabases {
    /// The country that an address is in.
    pub country: bool,
    /// The autonomous system that an address belongs to.
    pub asn: bool,
}

/// Signs certificates for edges.
pub trait EdgeIssuer: Send + Sync {
    /// Certificates for the key of this request (PKCS #10 in PEM): the edge's among machines, and the domain's for
    /// clients.
    ///
    /// # Errors
    /// The request is of no use, in a sentence; or no certificate can be signed.
    fn issue(&self, request: &str, id: EdgeId, name: &EdgeName) -> Result<EdgeCertificates, IssueFailure>;
}

/// Why an edge got no certificates.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IssueFailure {
    /// What it sent is of no use.
    #[error("{0}")]
    Request(String),
    /// It could not be signed.
    #[error("{0}")]
    Sign(String),
}

/// What control needs to take edges.
pub struct EdgesConfig {
    /// Signs their certificates.
    pub issuer: Arc<dyn EdgeIssuer>,
    /// What they are told.
    pub bootstrap: EdgeBootstrap,
    /// The fingerprint of the root of the installation's machines.
    pub fingerprint: String,
}

impl std::fmt::Debug for EdgesConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EdgesConfig(..)")
    }
}

/// What control has of edges, once it takes any.
pub(crate) type Edges = OnceLock<EdgesConfig>;
