//! Who did what: the events of the audit log.

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
    /// Somebody used a socket: a connection, a flow of datagrams, a request.
    Flow,
    /// Somebody changed something, or was not allowed to.
    Admin,
    /// Somebody logged in, or tried to.
    Login,
    /// A certificate was issued.
    Certificate,
    /// Events are missing before this one, and why.
    Gap,
}

impl AuditKind {
    /// Every kind.
    pub const ALL: [Self; 5] = [Self::Flow, Self::Admin, Self::Login, Self::Certificate, Self::Gap];

    /// The kind as it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Flow => "flow",
            Self::Admin => "admin",
            Self::Login => "login",
            Self::Certificate => "certificate",
            Self::Gap => "gap",
        }
    }
}

/// One event of the audit log, as it stands there. `hash` is SHA-256 over the line up to `,"hash"`; that contains `prev`,
/// the hash of the event before, so that no event can be changed, removed or put in without a trace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditEvent {
    /// Its number: one more than that of the event before.
    pub seq: u64,
    /// When it was recorded, to the millisecond.
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    /// What it is about: the field of this name has the rest.
    pub kind: AuditKind,
    /// Whose it is; a gap is everybody's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<uuid::Uuid>)]
    pub organisation: Option<AccountId>,
    /// Where it was recorded first, when that was another machine of the installation.
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
    /// What is missing.
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
    /// What the machine is called: the name of an edge, or `control-` and digits.
    #[schema(example = "eu-1")]
    pub name: String,
    /// Its number in that log; of a gap, that of the last event before it that came.
    pub seq: u64,
    /// The how many-th event it is that this machine has passed on.
    pub number: u64,
    /// Its hash in that log; empty for a gap.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hash: String,
}

/// A use of a socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditFlow {
    /// Its id: the request's id of an HTTP request.
    pub id: String,
    /// The socket.
    #[schema(value_type = uuid::Uuid)]
    pub socket: SocketId,
    /// The label of its DNS name.
    #[schema(example = "calm-bay-1000")]
    pub socket_name: String,
    /// The tunnel that took it, or was asked last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<uuid::Uuid>)]
    pub tunnel: Option<TunnelId>,
    /// Where the tunnel comes from: the address of what stands beside the origin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub origin: Option<SocketAddr>,
    /// Where the direct origin is that took it, or was asked last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "10.0.0.7:8080")]
    pub direct_origin: Option<String>,
    /// The type of the socket: http, https, tcp, tls or udp.
    #[schema(example = "http")]
    pub transport: String,
    /// Who it was: an e-mail address, or `service:` and the name of a service token. Absent where nobody asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// Who vouches for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The address that it came from.
    #[schema(value_type = String, example = "192.0.2.1:40000")]
    pub client: SocketAddr,
    /// When it began.
    #[serde(with = "time::serde::rfc3339")]
    pub began: OffsetDateTime,
    /// When it ended.
    #[serde(with = "time::serde::rfc3339")]
    pub ended: OffsetDateTime,
    /// Bytes from the client.
    pub bytes_in: u64,
    /// Bytes to the client.
    pub bytes_out: u64,
    /// How it ended, such as complete, denied or revoked.
    pub verdict: String,
    /// The rule that decided whether they may come in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The method of an HTTP request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Its path, without the query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The status of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
}

/// A change that somebody asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditAdmin {
    /// Who: the e-mail address of a login, `token:` and the name of an API token, `person:` and the address of a person who
    /// changed what lets them in, or `ssh:` and the fingerprint of the key of an ssh client (`ssh:guest` without one).
    pub actor: String,
    /// Whose account that is: not always the organisation's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<uuid::Uuid>)]
    pub account: Option<AccountId>,
    /// What, such as socket.create.
    #[schema(example = "socket.create")]
    pub action: String,
    /// Of what: an id or a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Which fields a change of a socket was about, without what they say; behind those that were taken away stands `=null`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<String>,
    /// `done`, or `refused` where it was not allowed: by the token, by the role, or by a rule.
    pub outcome: String,
    /// Why not, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The id of the request.
    pub request_id: String,
    /// The address that it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "192.0.2.1:40000")]
    pub client: Option<SocketAddr>,
}

/// A login.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditLogin {
    /// Who: an e-mail address.
    pub identity: String,
    /// Who vouches; `account` for an account's password at the API.
    pub provider: String,
    /// `done`, `refused`, or `ended` for a logout.
    pub outcome: String,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The address that it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "192.0.2.1:40000")]
    pub client: Option<SocketAddr>,
}

/// A certificate that was issued.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditCertificate {
    /// For whom.
    pub identity: String,
    /// The DNS name of the socket that it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<String>,
    /// What it is: tls-client, tls-service, ssh-user, ssh-host or ssh-tunnel.
    #[serde(rename = "type")]
    pub certificate_type: String,
    /// Its serial number.
    pub serial: String,
    /// Until when it is valid.
    #[serde(with = "time::serde::rfc3339")]
    pub not_after: OffsetDateTime,
    /// The address that asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "192.0.2.1:40000")]
    pub client: Option<SocketAddr>,
}

/// Something is missing before this event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditGap {
    /// Why: overflow, write-error, half-line, damaged, missing, no-head, spool, ended or stream.
    pub reason: String,
    /// How many events, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<u64>,
    /// How many bytes, where that is known.
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
            gap: None,
            prev: String::new(),
            hash: String::new(),
        }
    }

    /// Who it was, where somebody was.
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
    }
}

/// The moment without what is below a millisecond.
#[must_use]
pub fn to_millisecond(at: OffsetDateTime) -> OffsetDateTime {
    at.replace_millisecond(at.millisecond()).unwrap_or(at)
}

/// In which order events come.
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
    /// In which order: the newest first when absent.
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
    /// For how many seconds to wait for an event where there is none yet, oldest first; `next` is there in any case then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(minimum = 0, maximum = 20)]
    pub wait: Option<u32>,
}

/// What a look through the whole log found. `GET /v1/audit/verify`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditVerification {
    /// Whether every event is as it was written, and none is missing.
    pub is_good: bool,
    /// How many events there are.
    pub events: u64,
    /// The number of the first one that is kept; those before were removed when their time was over.
    pub first: u64,
    /// The number of the last one.
    pub last: u64,
    /// The hash of the last one: kept elsewhere, it proves later that all of this is still there.
    pub hash: String,
    /// How many gaps the log itself tells of: `kind` gap has their reasons.
    pub gaps: u64,
    /// What is wrong, at most 100 of it.
    pub problems: Vec<AuditProblem>,
}

/// Something in the log that is not as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditProblem {
    /// The file, and the line in it, counted from 1.
    #[schema(example = "0000000001.jsonl:17")]
    pub place: String,
    /// What is wrong there.
    pub what: String,
}
