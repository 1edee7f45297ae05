//! The options of a socket, as far as annotations give them.

use std::collections::BTreeMap;

use sallyport_model::{
    Affinity, CapacityName, DisplayName, DomainName, EmailDomain, HeaderField, HostHeader, MaxRps, OriginProtocol,
    PathPrefix, PersonEmail, PolicyName, ProviderName, ProxyProtocol, RegionName, SocketName, SocketType,
};

/// The question of a health check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HealthProbe {
    /// None is asked.
    Off,
    /// Whether a connection is accepted.
    Tcp,
    /// Whether a path is answered with a good status.
    Http {
        /// The path.
        path: String,
        /// The lowest and the highest good status.
        status: Option<(u16, u16)>,
    },
}

/// Makes the struct, and the way in which one fills the gaps of another.
macro_rules! options {
    ($($(#[$doc:meta])* $field:ident: $kind:ty,)+) => {
        /// The options of a socket, as far as annotations give them.
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub struct Options {
            $($(#[$doc])* pub $field: Option<$kind>,)+
        }

        impl Options {
            /// These options, and those of `other` where these have none.
            #[must_use]
            pub fn or(self, other: &Self) -> Self {
                Self { $($field: self.$field.or_else(|| other.$field.clone()),)+ }
            }
        }
    };
}

options! {
    /// `port`: the ports to expose; empty: all.
    port: Vec<String>,
    /// `name`
    name: DisplayName,
    /// `name-label`
    name_label: SocketName,
    /// `label`
    label: BTreeMap<String, String>,
    /// `type`
    socket_type: SocketType,
    /// `origin-protocol`
    origin_protocol: OriginProtocol,
    /// `public-port`
    public_port: u16,
    /// `proxy-protocol`
    proxy_protocol: ProxyProtocol,
    /// `passthrough`, or not `no-passthrough`
    passthrough: bool,
    /// `alpn`
    alpn: Vec<String>,
    /// `health-check`
    health_check: HealthProbe,
    /// `health-interval`
    health_interval: u32,
    /// `health-timeout`
    health_timeout: u32,
    /// `healthy-threshold`
    healthy_threshold: u32,
    /// `unhealthy-threshold`
    unhealthy_threshold: u32,
    /// `affinity`
    affinity: Affinity,
    /// `max-connections`; the inner `None`: off.
    max_connections: Option<u64>,
    /// `requests-per-second`
    requests_per_second: Option<u64>,
    /// `bytes-per-second`
    bytes_per_second: Option<u64>,
    /// `queue`
    queue: Option<u64>,
    /// `allow`
    allow: Vec<String>,
    /// `deny`
    deny: Vec<String>,
    /// `amplification-guard`, or not `no-amplification-guard`
    amplification_guard: bool,
    /// `dial`
    dial: BTreeMap<RegionName, u8>,
    /// `region-max-rps`
    region_max_rps: BTreeMap<RegionName, MaxRps>,
    /// `region-max-connections`
    region_max_connections: BTreeMap<RegionName, u32>,
    /// `region-shared-capacity`
    region_shared_capacity: BTreeMap<RegionName, CapacityName>,
    /// `domain`
    domain: Vec<DomainName>,
    /// `host-header`; the inner `None`: off.
    host_header: Option<HostHeader>,
    /// `request-header`
    request_header: Vec<HeaderField>,
    /// `remove-request-header`
    remove_request_header: Vec<String>,
    /// `response-header`
    response_header: Vec<HeaderField>,
    /// `remove-response-header`
    remove_response_header: Vec<String>,
    /// `cloudauth`, or not `no-cloudauth`
    cloudauth: bool,
    /// `allowed-email-addresses`
    allowed_email_addresses: Vec<PersonEmail>,
    /// `allowed-email-domains`
    allowed_email_domains: Vec<EmailDomain>,
    /// `identity-provider`
    identity_provider: Vec<ProviderName>,
    /// `session-minutes`
    session_minutes: u32,
    /// `policy`
    policy: Vec<PolicyName>,
    /// `path`
    path: PathPrefix,
    /// `rewrite-path`
    rewrite_path: PathPrefix,
    /// `strip-path`
    strip_path: bool,
    /// `weight`
    weight: u16,
    /// `max-rps`; the inner `None`: off.
    max_rps: Option<MaxRps>,
    /// `origin-max-connections`
    origin_max_connections: Option<u32>,
    /// `shared-capacity`
    shared_capacity: Option<CapacityName>,
    /// `origin-pin`
    origin_pin: String,
    /// `origin-server-name`
    origin_server_name: String,
    /// `connect-timeout`, in milliseconds
    connect_timeout: u64,
}

impl Options {
    /// Whether no option is given.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
