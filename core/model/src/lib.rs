//! The domain model: ids, names, sockets, tunnels, accounts, routes.
//!
//! Plain data with validation. Nothing reads a clock, a file or a random source: randomness is an argument.

mod account;
mod addresses;
mod balancer;
mod capacity;
mod dns_steering;
mod domain;
mod edge;
mod header_rules;
mod health_failure;
mod identity;
mod ids;
mod labels;
mod link;
mod name;
mod organisation;
mod origin;
mod path_route;
mod provider;
mod route;
mod settings;
mod socket;
mod spans;
mod ssh;
mod zone;

pub use account::{
    Account, Email, EmailError, MAX_EMAIL_BYTES, MAX_PASSWORD_BYTES, MIN_PASSWORD_CHARS, PasswordError, Scope,
    ScopeSet, UnknownScope, check_password,
};
pub use addresses::{ClientAddr, Local, OriginAddr, OriginAddrError, Remote, ServerAddr, is_private};
pub use balancer::{
    Encapsulation, MAX_BALANCED_EDGES, MAX_BALANCED_SITES, MAX_BALANCERS, MAX_SHARE, MAX_VIRTUAL_ADDRESSES,
    SiteBalancer, SiteBalancerError, USUAL_SHARE, UnknownEncapsulation,
};
pub use capacity::{
    Capacity, CapacityError, CapacityName, CapacityNameError, MAX_CAPACITY_NAME_BYTES, MAX_ORIGIN_CONNECTIONS,
    MAX_ORIGIN_RPS, MaxRps, MaxRpsError,
};
pub use dns_steering::{
    CLIENT_BITS, DnsRegion, DnsSettings, DnsSteeringPart, MAX_NETWORKS_OF_PART, MAX_RANKED_REGIONS,
    MAX_STEERED_ADDRESSES, MAX_STEERED_NETWORKS, MAX_STEERED_REGIONS, MAX_STEERED_RESOLVERS, STEERING_PARTS,
    SteeredNetwork, SteeredResolver,
};
pub use domain::{
    AcmeChallenge, ChallengeKind, DomainName, DomainNameError, MAX_DOMAIN_BYTES, MAX_DOMAINS_PER_SOCKET,
    ServedCertificate, UnknownChallengeKind, acme_alias, challenge_name, wildcard_over,
};
pub use edge::{DrainOrder, EdgeName, EdgeNameError, EdgeOrders, RegionName};
pub use header_rules::{
    HeaderChanges, HeaderField, HeaderRules, HeaderRulesError, HostHeader, HostHeaderError, MAX_HEADER_CHANGES,
    MAX_HEADER_NAME_BYTES, MAX_HEADER_RULES_BYTES, MAX_HEADER_VALUE_BYTES,
};
pub use health_failure::{HealthFailure, HealthFailureCode, HealthRecord, MAX_HEALTH_MESSAGE_BYTES};
pub use identity::{
    AttachedPolicy, EmailDomain, EmailDomainError, Identity, IdentitySettings, LoginSession, MAX_GROUP_BYTES,
    MAX_GROUPS, MAX_IDENTITY_ENTRIES, MAX_PERSON_NAME_BYTES, MAX_SESSION_MINUTES, Person, PersonEmail,
    PersonEmailError, PolicyName, PolicyNameError, ProviderName, ProviderNameError, ServiceTokenRoute,
    ServiceTokenScope,
};
pub use ids::{
    AccountId, AnycastItemId, CertificateId, ChallengeId, DirectOriginId, DomainId, EdgeId, IdError, InvitationId,
    LoginSessionId, MachineId, NetworkId, PersonId, PolicyId, ProviderId, ServiceTokenId, ShortId, ShortIdError,
    SocketId, TokenId, TunnelId, ZoneId, ZoneRecordId,
};
pub use labels::{Label, LabelError, LabelSelector, Labels, MAX_LABEL_KEY_BYTES, MAX_LABEL_VALUE_BYTES, MAX_LABELS};
pub use link::{LinkReport, LinkStatus};
pub use name::{MAX_LABEL_BYTES, NameError, SocketName, name_combinations};
pub use organisation::{Role, UnknownRole};
pub use origin::{
    DirectOrigin, DirectOriginRoute, MAX_DIRECT_ORIGINS_PER_SOCKET, MAX_ORIGIN_CA_BYTES, OriginRef, OriginRefError,
    OriginTlsSettings, OriginTlsSettingsError,
};
pub use path_route::{MAX_PATH_PREFIX_BYTES, MAX_PATH_PREFIX_SEGMENTS, PathPrefix, PathPrefixError, PathRoute};
pub use provider::{
    DEFAULT_CHECK_MINUTES, MAX_CHECK_MINUTES, MAX_CLIENT_ID_BYTES, MAX_CLIENT_SECRET_BYTES, MAX_HOOK_URL_BYTES,
    MAX_ISSUER_BYTES, MAX_PROVIDER_CA_BYTES, MAX_PROVIDER_SCOPES, MAX_SCOPE_BYTES, MIN_HOOK_SECRET_BYTES,
    ProviderConfig, ProviderConfigError, ProviderKind, UnknownProviderKind, is_loopback_host,
};
pub use route::{
    BasicAuth, CredentialHash, FlowRecord, OriginHealth, RequestRecord, SocketRoute, TunnelPresence, TunnelRoute,
    socket_url,
};
pub use settings::{
    AccessRules, Affinity, DEFAULT_WEIGHT, EndpointGroup, FULL_DIAL, HealthCheck, Limits, MAX_ACCESS_RULES,
    MAX_ALPN_BYTES, MAX_ALPN_PROTOCOLS, MAX_REGIONS, MAX_WEIGHT, Probe, ProxyProtocol, SettingError, SocketSettings,
    TlsMode, UnknownAffinity, UnknownProxyProtocol,
};
pub use socket::{
    DisplayName, DisplayNameError, MAX_DISPLAY_NAME_CHARS, MAX_TUNNELS_PER_SOCKET, OriginProtocol, Socket, SocketType,
    Tunnel, UnknownOriginProtocol, UnknownSocketType, misleads,
};
pub use spans::{SPAN_BUCKETS, SpanBounds, SpanCounts, span_bucket};
pub use ssh::{SHA1_REFUSED, SshLogin, SshTunnelLogin, SshTunnelLoginError};
pub use zone::{ALL_EDGES, ServedZone, ZoneKey, ZoneKeyAlgorithm, ZoneKeyRole, ZoneRecord};
