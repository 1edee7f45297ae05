//! Events of the audit log.

use std::net::SocketAddr;

use sallyport_model::{AccountId, SocketId, TunnelId};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

/// The longest that a request for events may wait for one, in seconds.
pub const MAX_AUDIT_WAIT_SECONDS: u32 = 20;

/// What an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AuditKind {
    /// A use of a socket: a connection, a flow of datagrams, a request.
    Flow,
    /// A change, done or refused.
    Admin,
    /// A login or logout, done or refused.
    Login,
    /// A certificate was issued.
    Certificate,
    /// An edge announces a prefix, or no longer.
    Anycast,
    /// Events are missing before this one, and why.
    Gap,
}

impl AuditKind {
    /// Every kind.
    pub const ALL: [Self; 6] = [Self::Flow, Self::Admin, Self::Login, Self::Certificate, Self::Anycast, Self::Gap];

    /// The kind as it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Flow => "flow",
            Self::Admin => "admin",
            Self::Login => "login",
            Self::Certificate => "certificate",
            Self::Anycast => "anycast",
            Self::Gap => "gap",
        }
    }
}

/// One event of the audit log, as it stands there. `hash` is SHA-256 over the line up to `,"hash"`. The line contains
/// `prev`, the hash of the event before, so that no event can be changed, removed or inserted without a trace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditEvent {
    /// The number of the event: one more than that of the event before.
    pub seq: u64,
    /// When the event was recorded, to the millisecond.
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    /// The kind of event: the field of this name has the rest.
    pub kind: AuditKind,
    /// The organisation of the event; absent for a gap, which concerns all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<uuid::Uuid>)]
    pub organisation: Option<AccountId>,
    /// The machine that recorded the event first, when that is another machine of the installation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Box<AuditNode>>,
    /// A use of a socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow: Option<Box<AuditFlow>>,
    /// A change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin: Option<Box<AuditAdmin>>,
    /// A login.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<Box<AuditLogin>>,
    /// A certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<Box<AuditCertificate>>,
    /// A change of an announcement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anycast: Option<Box<AuditAnycast>>,
    /// A gap in the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap: Option<Box<AuditGap>>,
    /// The hash of the event before, in hexadecimal digits; zeros for the first one of all.
    pub prev: String,
    /// The hash of this event, in hexadecimal digits.
    pub hash: String,
}

/// The machine whose log an event comes from, and its place there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditNode {
    /// The id of that log.
    pub id: Uuid,
    /// The name of the machine: the name of an edge, or `control-` and digits.
    #[schema(example = "eu-1")]
    pub name: String,
    /// The number of the event in that log; for a gap, the number of the last event before the gap.
    pub seq: u64,
    /// The position of the event among those that this machine sent to control, counted from 1.
    pub number: u64,
    /// The hash of the event in that log; empty for a gap.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hash: String,
}

/// A use of a socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditFlow {
    /// The id of the flow; for an HTTP request, the id of the request.
    pub id: String,
    /// The socket.
    #[schema(value_type = uuid::Uuid)]
    pub socket: SocketId,
    /// The label of the socket's DNS name.
    #[schema(example = "calm-bay-1000")]
    pub socket_name: String,
    /// The tunnel that took the flow, or that the edge tried last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<uuid::Uuid>)]
    pub tunnel: Option<TunnelId>,
    /// The address of the connector of the tunnel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub origin: Option<SocketAddr>,
    /// The address of the direct origin that took the flow, or that the edge tried last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "10.0.0.7:8080")]
    pub direct_origin: Option<String>,
    /// The type of the socket: http, https, tcp, tls or udp.
    #[schema(example = "http")]
    pub transport: String,
    /// The identity of the client: an e-mail address, or `service:` and the name of a service token. Absent where the
    /// socket asks for no identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// The identity provider that authenticated the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The address of the client.
    #[schema(value_type = String, example = "192.0.2.1:40000")]
    pub client: SocketAddr,
    /// When it began.
    #[serde(with = "time::serde::rfc3339")]
    pub began: OffsetDateTime,
    /// When the flow ended.
    #[serde(with = "time::serde::rfc3339")]
    pub ended: OffsetDateTime,
    /// Bytes from the client.
    pub bytes_in: u64,
    /// Bytes to the client.
    pub bytes_out: u64,
    /// How the flow ended, such as complete, denied or revoked.
    pub verdict: String,
    /// The rule that decided about access.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The method of an HTTP request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// The path of an HTTP request, without the query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The status of the response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
}

/// A change that an account, a person or an ssh client asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditAdmin {
    /// The actor: the e-mail address of a login, `token:` and the name of an API token, `person:` and the address of a
    /// person whose own password or codes changed, or `ssh:` and the fingerprint of the key of an ssh client
    /// (`ssh:guest` without one).
    pub actor: String,
    /// The account of the actor: not always the organisation's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<uuid::Uuid>)]
    pub account: Option<AccountId>,
    /// The action, such as `socket.create`.
    #[schema(example = "socket.create")]
    pub action: String,
    /// The id or name of the thing that the change is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The fields that a change of a socket names, without their values; `=null` follows a field that the change
    /// removes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<String>,
    /// `done`, or `refused` where the token, the role or a rule did not allow it.
    pub outcome: String,
    /// Why the change was refused, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The id of the request.
    pub request_id: String,
    /// The address of the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "192.0.2.1:40000")]
    pub client: Option<SocketAddr>,
}

/// A login.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditLogin {
    /// The e-mail address of the login.
    pub identity: String,
    /// The identity provider; `account` for an account's password at the API.
    pub provider: String,
    /// `done`, `refused`, or `ended` for a logout.
    pub outcome: String,
    /// Why the login was refused or ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The address of the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "192.0.2.1:40000")]
    pub client: Option<SocketAddr>,
}

/// A certificate that was issued.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditCertificate {
    /// The identity in the certificate.
    pub identity: String,
    /// The DNS name of the socket that the certificate is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<String>,
    /// The kind of certificate: tls-client, tls-service, ssh-user, ssh-host or ssh-tunnel.
    #[serde(rename = "type")]
    pub certificate_type: String,
    /// The serial number of the certificate.
    pub serial: String,
    /// The end of the certificate's validity.
    #[serde(with = "time::serde::rfc3339")]
    pub not_after: OffsetDateTime,
    /// The address that asked for the certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "192.0.2.1:40000")]
    pub client: Option<SocketAddr>,
}

/// A prefix that an edge announces from now on, deprioritises, or withdraws.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditAnycast {
    /// The prefix.
    #[schema(example = "198.51.100.0/24")]
    pub prefix: String,
    /// The name of the edge; `edge` on one machine.
    #[schema(example = "eu-1")]
    pub edge: String,
    /// announced, deprioritised or withdrawn.
    #[schema(example = "announced")]
    pub state: String,
    /// Why.
    pub why: String,
}

/// Something is missing before this event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditGap {
    /// The reason: overflow, write-error, half-line, damaged, missing, no-head, spool, ended or stream.
    pub reason: String,
    /// The number of events that are missing, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<u64>,
    /// The number of bytes that are missing, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

macro_rules! of_kind {
    ($($(#[$doc:meta])* $name:ident: $kind:ident($content:ident)),* $(,)?) => {
        impl AuditEvent {
            $($(#[$doc])*
            #[must_use]
            pub fn $name(at: OffsetDateTime, organisation: Option<AccountId>, content: $content) -> Self {
                Self { $name: Some(Box::new(content)), ..Self::empty(at, AuditKind::$kind, organisation) }
            })*
        }
    };
}

of_kind! {
    /// A use of a socket, that is not in the log yet.
    flow: Flow(AuditFlow),
    /// A change, that is not in the log yet.
    admin: Admin(AuditAdmin),
    /// A login, that is not in the log yet.
    login: Login(AuditLogin),
    /// A certificate, that is not in the log yet.
    certificate: Certificate(AuditCertificate),
    /// A change of an announcement, that is not in the log yet.
    anycast: Anycast(AuditAnycast),
    /// A gap, that is not in the log yet.
    gap: Gap(AuditGap),
}

impl AuditEvent {
    fn empty(at: OffsetDateTime, kind: AuditKind, organisation: Option<AccountId>) -> Self {
        Self {
            seq: 0,
            at: to_millisecond(at),
            kind,
            organisation,
            node: None,
            flow: None,
            admin: None,
            login: None,
            certificate: None,
            anycast: None,
            gap: None,
            prev: String::new(),
            hash: String::new(),
        }
    }

    /// The identity of the client, where the client had one.
    #[must_use]
    pub fn identity(&self) -> Option<&str> {
        let of_flow = self.flow.as_ref().and_then(|flow| flow.identity.as_deref());
        of_flow
            .or(self.admin.as_ref().map(|admin| admin.actor.as_str()))
            .or(self.login.as_ref().map(|login| login.identity.as_str()))
            .or(self.certificate.as_ref().map(|certificate| certificate.identity.as_str()))
    }

    /// How it went.
    #[must_use]
    pub fn verdict(&self) -> Option<&str> {
        let of_flow = self.flow.as_ref().map(|flow| flow.verdict.as_str());
        of_flow
            .or(self.admin.as_ref().map(|admin| admin.outcome.as_str()))
            .or(self.login.as_ref().map(|login| login.outcome.as_str()))
            .or(self.anycast.as_ref().map(|anycast| anycast.state.as_str()))
    }
}

/// The moment without what is below a millisecond.
#[must_use]
pub fn to_millisecond(at: OffsetDateTime) -> OffsetDateTime {
    at.replace_millisecond(at.millisecond()).unwrap_or(at)
}

/// The order of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AuditOrder {
    /// The newest first.
    #[default]
    Newest,
    /// The oldest first.
    Oldest,
}

impl AuditOrder {
    /// The order as it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Newest => "newest",
            Self::Oldest => "oldest",
        }
    }
}

/// Which events. `GET /v1/audit`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AuditQuery {
    /// From this moment on.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub since: Option<OffsetDateTime>,
    /// Before this moment.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub until: Option<OffsetDateTime>,
    /// Of this kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<AuditKind>,
    /// Of this person or token, whatever the case of letters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// About the socket with this id, name, DNS name or URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<String>,
    /// With this verdict or outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<String>,
    /// The order of events: the newest first when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(inline)]
    pub order: Option<AuditOrder>,
    /// How many at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 100, default = 50)]
    pub limit: Option<u32>,
    /// `next` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// The seconds to wait for an event where there is none yet, with the oldest first; `next` is present in any case
    /// then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(minimum = 0, maximum = 20)]
    pub wait: Option<u32>,
}

/// The result of checking the whole log. `GET /v1/audit/verify`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditVerification {
    /// Whether every event is as it was written, and none is missing.
    pub is_good: bool,
    /// The number of events.
    pub events: u64,
    /// The number of the first event that is kept; older ones were removed at the end of their time.
    pub first: u64,
    /// The number of the last event.
    pub last: u64,
    /// The hash of the last event. A copy of the hash elsewhere proves later that these events are still there.
    pub hash: String,
    /// The number of gaps that the log records; events of kind `gap` have the reasons.
    pub gaps: u64,
    /// The problems that were found, at most 100.
    pub problems: Vec<AuditProblem>,
}

/// A place of the log whose content has changed since the write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditProblem {
    /// The file, and the line in it, counted from 1.
    #[schema(example = "0000000001.jsonl:17")]
    pub place: String,
    /// What is wrong there.
    pub what: String,
}
