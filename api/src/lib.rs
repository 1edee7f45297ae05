//! The REST API of Sallyport as types: what a client sends to `/v1/...` and what it gets back.
//!
//! Server and client share these types, so that neither can drift from the other; `openapi.json` beside this crate is
//! generated from them. One file per noun.
//!
//! - Requests refuse fields that they do not know, so that a misspelt option is never silently ignored.
//! - Answers may grow new fields: clients ignore those that they do not know.
//! - Times are RFC 3339 in UTC, ids are UUIDs, errors are [`Problem`]s (RFC 9457).
//! - Passwords, credentials and tokens travel in [`Secret`], which never shows itself in logs.

mod account;
mod anycast;
mod audit;
mod balancer;
mod catchment;
mod certificate;
mod client;
mod dns_steering;
mod domain;
mod edge;
mod egress;
mod flow;
mod health;
mod info;
mod landing;
mod link;
mod login;
mod login_session;
mod network;
mod organisation;
mod origin;
mod page;
mod person;
mod plan;
mod policy;
mod problem;
mod provider;
mod schema;
mod secret;
mod service_token;
mod socket;
mod ssh_key;
mod stats;
mod token;
mod tunnel;
mod way;
mod zone;

pub use account::{
    Account, AccountReset, AccountSession, BeginTotp, BegunTotp, ChangePassword, ConfirmTotp, CreateAccount,
    EndedAccountSessions, ForgotPassword, ProveTotp, RecoveryCodes, ResetAccount, SetPassword,
};
pub use anycast::{
    AnycastBfd, AnycastEdge, AnycastEdgePeer, AnycastEdgePrefix, AnycastEdgePreview, AnycastOrder, AnycastOrderKind,
    AnycastPeer, AnycastPrefix, AnycastPreview, AnycastRoute, AnycastRouteQuery, AnycastRoutes, AnycastSession,
    AnycastState, AnycastStatus, CreateAnycastOrder, CreateAnycastPeer, CreateAnycastPrefix,
};
pub use audit::{
    AuditAdmin, AuditAnycast, AuditCertificate, AuditEvent, AuditFlow, AuditGap, AuditKind, AuditLogin, AuditNode,
    AuditOrder, AuditProblem, AuditQuery, AuditVerification, MAX_AUDIT_WAIT_SECONDS, to_millisecond,
};
pub use balancer::{
    BalancedEdge, BalancedEdgeState, BalancedProtocol, BalancedService, Balancer, BalancerEncapsulation, SetBalancer,
};
pub use catchment::{ClientGroup, ClientPage, ClientQuery, ClientsBy};
pub use certificate::{Certificate, CertificateState, ImportCertificate};
pub use client::{
    BeginDeviceLogin, ClientCertificate, ClientLogin, ClientSshCertificate, ClientToken, CreateClientCertificate,
    CreateClientSshCertificate, CreateSshHostCertificate, DeviceLogin, ExchangeClientCode, ExchangeDeviceCode,
    SshAuthority, SshHostCertificate, UpdateSshAuthority,
};
pub use dns_steering::{
    AnycastAnswers, AnycastDial, AnycastDials, AnycastResolution, AnycastResolveQuery, RankedRegion, ResolutionReason,
    SetAnycastDials,
};
pub use domain::{CreateDomain, Domain, DomainRecord, DomainState};
pub use edge::{
    Acknowledgement, BootstrapRequest, BootstrapResponse, CreateEdgeToken, CreatedEdgeToken, DrainEdge, Edge,
    EdgeBootstrap, EdgeCertificates, EdgeSsh, EdgeState, EdgeToken, EdgeTokenState, ForwardRequest, ForwardTarget,
    HandOver, JOIN_SECRET_PREFIX, JoinEdge, JoinToken, JoinTokenError, JoinedEdge, RenewEdge, TunnelCheck,
    TunnelCheckRequest,
};
pub use egress::{
    CreateEgressAddress, CreateEgressSlice, EgressAddress, EgressSlice, EgressSliceState, MoveEgressSlice,
    ReleaseEgressSliceQuery,
};
pub use flow::{EndedFlow, EndedFlowPage, EndedFlowQuery, Flow, FlowPage, SilentEdge};
pub use health::{HealthCheck, HealthFailure, ProbeType};
pub use info::Info;
pub use landing::{
    CatchmentSuggestion, ImportCatchment, ImportedCatchment, ImportedLanding, Landing, LandingPage, LandingQuery,
    LandingSource, LandingsBy, MAX_IMPORT_ITEMS, MAX_LANDINGS, MAX_MEASUREMENT_RATE, Measurement, MeasurementPage,
    MeasurementState, MeasuringEdge, StartMeasurement, SuggestedChange,
};
pub use link::TunnelLink;
pub use login::{Login, Logout, Refresh, Session};
pub use login_session::{EndLoginSessions, EndedLoginSessions, LoginSession};
pub use network::{
    CreateMachine, CreateNetwork, CreatedMachine, DeleteNetworkQuery, Machine, Network, NetworkPolicy, SetNetworkPolicy,
};
pub use organisation::{
    AcceptInvitation, CreateInvitation, CreatedInvitation, Invitation, Member, Organisation, ReceivedInvitation,
    UpdateMember, UpdateOrganisation,
};
pub use origin::{CreateDirectOrigin, DirectOrigin, UpdateDirectOrigin};
pub use page::{DEFAULT_PAGE_ITEMS, LabelQuery, MAX_PAGE_ITEMS, Page, PageQuery};
pub use person::{CreatePerson, InvitedPerson, LocalPerson, PersonState, ResetPerson, UpdatePerson};
pub use plan::{PlanSample, PlanSampleOrigin, PlannedEdge, PlannedOrigin, PlannedShare, PreviewPlan, SocketPlan};
pub use policy::{CreatePolicy, Policy, PolicyPlace, PolicyTest, RuleTested, TestPolicy, UpdatePolicy};
pub use problem::{FieldError, PROBLEM_JSON, Problem};
pub use provider::{CreateProvider, Provider, ProviderFound, UpdateProvider};
pub use schema::named_objects;
pub use secret::Secret;
pub use service_token::{
    CreateServiceToken, CreateServiceTokenCertificate, CreatedServiceToken, ServiceToken, ServiceTokenCertificate,
};
pub use socket::{CreateSocket, Protect, Protected, Socket, SshAccess, UpdateSocket};
pub use ssh_key::{CreateSshCertificate, CreateSshKey, SshCertificate, SshKey};
pub use stats::{Counts, EdgeCounts, OriginCounts, Quantiles, RegionCounts, SocketStats};
pub use token::{CreateToken, CreatedToken, Token};
pub use tunnel::{
    ConnectEdge, ConnectTo, CreateTunnel, CreatedTunnel, Tunnel, TunnelHolder, TunnelStatus, UpdateTunnel,
};

/// The header with the organisation of a request: its id, or its name. Without the header, a request is for the
/// organisation of the token. The token of a login is for the account's own organisation.
pub const ORGANISATION: &str = "sallyport-organisation";
/// The longest value of [`ORGANISATION`], in bytes: a name of 100 characters.
pub const MAX_ORGANISATION_BYTES: usize = 400;
/// The header that makes a creation repeatable: the same key with the same body gets the first response again.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// The longest idempotency key, in bytes.
pub const MAX_IDEMPOTENCY_KEY_BYTES: usize = 128;
/// The largest request body that the API reads, in bytes.
pub const MAX_BODY_BYTES: usize = 65_536;
pub use way::{EdgeQuery, MeasureWay, Way, WayKind, WayMethod, WayNote, WayPage};
pub use zone::{CreateZone, CreateZoneRecord, Zone, ZoneKey, ZoneRecord};
