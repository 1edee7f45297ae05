//! Policies: named rules about who may come.

use std::net::IpAddr;

use sallyport_model::{PersonEmail, PolicyId, PolicyName, ProviderName, SocketId};
use sallyport_policy::Document;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;

use crate::schema;

/// A new policy, attached to nothing. `POST /v1/policies`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreatePolicy {
    /// What it is called within the organisation.
    #[schema(schema_with = schema::policy_name)]
    pub name: PolicyName,
    /// Its rules.
    #[schema(schema_with = schema::named::policy_document)]
    pub document: Document,
}

/// Changes to a policy; absent fields stay as they are. `PATCH /v1/policies/{id}`
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdatePolicy {
    /// What it is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = schema::or_null::policy_name, required = false)]
    pub name: Option<PolicyName>,
    /// Its rules, all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = schema::named_or_null::policy_document, required = false)]
    pub document: Option<Document>,
    /// Whether it is changed although nobody could use a socket then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}

/// Where a policy is to say who may come in, or no longer: at one socket, or everywhere.
/// `POST /v1/policies/{id}/attach` and `/detach`
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyPlace {
    /// The socket, by id or name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "wandering-shape-7752")]
    pub socket: Option<String>,
    /// All sockets of the organisation, those included that come later.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub everywhere: bool,
    /// Whether it is done although a socket would be open to everybody then, or nobody could use it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}

/// A policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Policy {
    /// Its id.
    #[schema(value_type = uuid::Uuid)]
    pub id: PolicyId,
    /// What it is called.
    #[schema(schema_with = schema::policy_name)]
    pub name: PolicyName,
    /// Its rules.
    #[schema(schema_with = schema::named::policy_document)]
    pub document: Document,
    /// Whether it concerns all sockets of the organisation.
    pub everywhere: bool,
    /// The sockets that it is attached to by themselves.
    #[schema(value_type = Vec<uuid::Uuid>)]
    pub sockets: Vec<SocketId>,
    /// When it was made.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// When its name or its rules were changed last.
    #[serde(with = "time::serde::rfc3339")]
    pub updated_at: OffsetDateTime,
}

/// A question to a policy, to rules that are not stored yet, or to a socket with all its policies and lists; one of the
/// three. `POST /v1/policy-test`
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TestPolicy {
    /// The policy, by name or id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Rules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = schema::named_or_null::policy_document, required = false)]
    pub document: Option<Document>,
    /// The socket, by id or name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<String>,
    /// Who has logged in; nobody when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "ann@example.com")]
    pub email: Option<PersonEmail>,
    /// The groups that the provider says of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 200)]
    pub groups: Vec<String>,
    /// Who vouches for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "google")]
    pub provider: Option<ProviderName>,
    /// The name of the service token that a machine shows, instead of a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_token: Option<String>,
    /// The client's address; needed where a rule asks where clients come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "192.0.2.7")]
    pub address: Option<IpAddr>,
    /// Its country; not known when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "CH")]
    pub country: Option<String>,
    /// Its autonomous system; not known when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asn: Option<u32>,
    /// When; now when absent.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub at: Option<OffsetDateTime>,
    /// The HTTP method; GET when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// The path as a client would write it; / when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The port by which the client comes; the socket's, or 443, when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 65535)]
    pub port: Option<u16>,
}

/// The answer, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyTest {
    /// Whether they may come in.
    pub allowed: bool,
    /// What decided, in words.
    #[schema(example = "policy \"staff\", allow rule 1 (\"at work\")")]
    pub by: String,
    /// The policy of the rule that decided, if one did.
    #[serde(default)]
    pub policy: Option<String>,
    /// The rule that decided, if one did.
    #[serde(default)]
    pub rule: Option<String>,
    /// Every rule, those that deny first.
    pub rules: Vec<RuleTested>,
}

/// What became of one rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RuleTested {
    /// The policy.
    pub policy: String,
    /// The rule: its list and number, and its name where it has one.
    pub rule: String,
    /// The first condition that does not hold: `who`, `where`, `when`, `methods`, `paths` or `ports`; `null` when the rule
    /// means the question.
    #[serde(default)]
    pub unmet: Option<String>,
}
