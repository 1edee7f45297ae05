//! The configuration of control: names, ports, limits, authorities, and how edges join.

use std::{
    ops::RangeInclusive,
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::Duration,
};

use sallyport_acme::{ChallengeKind, DirectoryConfig};
use sallyport_anycast::model::AllowList;
use sallyport_api::{EdgeBootstrap, EdgeCertificates};
use sallyport_audit::AuditLog;
use sallyport_bus::Asker;
use sallyport_geo::Geo;
use sallyport_http::page::Site;
use sallyport_model::{EdgeId, EdgeName, SocketRoute};
use sallyport_oidc::Reach;
use sallyport_policy::DialedNetworks;
use sallyport_ports::LeaseTimes;
use sallyport_resolver::Resolver;
use sallyport_ssh::UserAuthority;
use sallyport_store::HolderId;

use crate::mail::MailHook;

/// The ports that `tcp`, `tls` and `udp` sockets get for themselves, unless the operator gives others.
pub const DEFAULT_PORT_RANGE: RangeInclusive<u16> = 20_000..=20_999;

/// How often what steers clients of the name server is made anew, unless the operator turns that off.
pub const DNS_STEERING_EVERY: Duration = Duration::from_secs(30);

/// How many ports of this range one account may have, unless the operator sets the number: half of them, but no more
/// than 100 and no fewer than 10.
#[must_use]
pub fn default_ports_per_account(range: &RangeInclusive<u16>) -> usize {
    (range.len() / 2).clamp(10, 100)
}

/// The id of the edge of an installation on one machine.
pub const LONE_EDGE: EdgeId = EdgeId::from_bytes([0; 16]);
/// Its name and region.
pub(crate) const LONE_NAME: &str = "edge";
pub(crate) const LONE_REGION: &str = "local";

/// The ssh server for stock ssh clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshInfo {
    /// The host name of the ssh server.
    pub host: String,
    /// The port of the ssh server.
    pub port: u16,
    /// The host keys, as lines of a `known_hosts` file.
    pub known_hosts: Vec<String>,
}

/// The accounts that may be made without an invitation. The first account is always allowed, with the setup token where
/// there is one, because an installation without an account is of no use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignUp {
    /// Any account.
    Open,
    /// The first account alone.
    Closed,
}

/// The configuration of a control.
#[derive(Debug, Clone)]
pub struct ControlConfig {
    /// The id among the controls that share the store: stable over restarts, and unique.
    pub id: HolderId,
    /// The domain under which sockets get their names, such as `localhost`.
    pub domain: String,
    /// The name and icon on login pages.
    pub site: Site,
    /// The TCP port at which clients and connectors reach the edge.
    pub public_port: u16,
    /// The host that connectors dial.
    pub tunnel_host: String,
    /// The UDP port at which connectors reach the edge over QUIC; `None` without QUIC.
    pub quic_port: Option<u16>,
    /// The root certificate of the built-in certificate authority in PEM; `None` without one.
    pub ca_pem: Option<String>,
    /// The fingerprint of that certificate: `sha256:` and hexadecimal digits.
    pub ca_fingerprint: Option<String>,
    /// The accounts that may be made without an invitation.
    pub sign_up: SignUp,
    /// The ports that `tcp`, `tls` and `udp` sockets get for themselves.
    pub port_range: RangeInclusive<u16>,
    /// The number of these ports that one account may have, and that all clients without an account may have together.
    pub ports_per_account: usize,
    /// Whether all `udp` sockets have the amplification guard, whatever their settings.
    pub requires_amplification_guard: bool,
    /// The ssh server for stock ssh clients; `None` without one.
    pub ssh: Option<SshInfo>,
    /// The authority that signs ssh keys for one tunnel each; `None` without an ssh server.
    pub ssh_authority: Option<UserAuthority>,
    /// The networks that edges may dial for direct origins.
    pub direct_origins: DialedNetworks,
    /// The address databases of the edges. Control refuses rules that need another one.
    pub databases: AddressDatabases,
    /// The networks in which identity providers may be.
    pub provider_reach: Reach,
    /// The address databases of this process. A login meets the same rules as a request at an edge.
    pub geo: Option<Arc<Geo>>,
    /// The audit log; `None` without one.
    pub audit: Option<AuditLog>,
    /// Asks edges for what only they know.
    pub asker: Asker,
    /// How often the counts of edges are gathered into the catchment; `None`: never.
    pub catchment_every: Option<Duration>,
    /// The hook that sends messages to owners of accounts; `None` without one.
    pub mail_hook: Option<MailHook>,
    /// Makes lookups for domains; `None`: domains cannot be verified.
    pub resolver: Option<Resolver>,
    /// The ACME servers that sign certificates; `None`: no certificates are ordered.
    pub acme: Option<AcmeConfig>,
    /// Whether the edges answer DNS for the domain of the installation and for zones of organisations.
    pub has_name_server: bool,
    /// How often what steers clients of the name server is made from what was measured; `None`: nobody is steered.
    pub dns_steering_every: Option<Duration>,
    /// The prefixes that edges may announce.
    pub anycast_allow: AllowList,
    /// The times of leases of slices of egress addresses.
    pub egress_times: LeaseTimes,
    /// Whether browsers get the desk at `desk.<domain>`.
    pub has_desk: bool,
    /// The labels that owners may choose for their sockets.
    pub labels: ChosenLabels,
    /// The file for the setup token, which the first account takes; `None` where the first account takes no token.
    pub setup_token_file: Option<PathBuf>,
}

/// The ACME servers that sign certificates for names.
#[derive(Debug, Clone)]
pub struct AcmeConfig {
    /// The server of choice.
    pub primary: DirectoryConfig,
    /// The server for when the first fails.
    pub fallback: Option<DirectoryConfig>,
    /// The names of the servers in CAA records; empty: CAA records are not looked at before.
    pub identities: Vec<String>,
    /// The kinds of challenges that the edges answer at their ports. The name server answers DNS-01.
    pub challenges: Vec<ChallengeKind>,
    /// The most orders that run at a time.
    pub max_orders: u32,
    /// The most orders that begin in a minute, in the long run.
    pub max_orders_per_minute: u32,
}

impl Default for AcmeConfig {
    fn default() -> Self {
        Self {
            primary: DirectoryConfig::default(),
            fallback: None,
            identities: Vec::new(),
            challenges: vec![ChallengeKind::TlsAlpn01, ChallengeKind::Http01],
            max_orders: DEFAULT_MAX_ORDERS,
            max_orders_per_minute: DEFAULT_ORDERS_PER_MINUTE,
        }
    }
}

/// The most orders that run at a time, by default.
const DEFAULT_MAX_ORDERS: u32 = 10;
/// The most orders that begin in a minute, by default.
const DEFAULT_ORDERS_PER_MINUTE: u32 = 240;

/// The labels that owners may choose for their sockets, below the domain of the installation.
#[derive(Debug, Clone, Default)]
pub struct ChosenLabels {
    /// Whether owners may choose any.
    pub are_allowed: bool,
    /// Labels that nobody gets.
    pub reserved: Vec<String>,
}

impl ControlConfig {
    /// The route as edges serve it.
    pub(crate) fn served(&self, mut route: SocketRoute) -> SocketRoute {
        route.settings.amplification_guard |= self.requires_amplification_guard;
        route
    }
}

/// The address databases that are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AddressDatabases {
    /// Whether the country of an address is known.
    pub country: bool,
    /// Whether the autonomous system of an address is known.
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
    /// The certificate request is invalid: the reason, a sentence.
    #[error("{0}")]
    Request(String),
    /// Signing failed: the reason, a sentence.
    #[error("{0}")]
    Sign(String),
}

/// How edges join: the issuer of their certificates, and their configuration.
pub struct EdgesConfig {
    /// The issuer of certificates for edges.
    pub issuer: Arc<dyn EdgeIssuer>,
    /// The configuration that edges get.
    pub bootstrap: EdgeBootstrap,
    /// The fingerprint of the root of the installation's machines.
    pub fingerprint: String,
}

impl std::fmt::Debug for EdgesConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EdgesConfig(..)")
    }
}

/// How edges join; empty until control takes edges.
pub(crate) type Edges = OnceLock<EdgesConfig>;
