//! Policies: named rules for access.

use std::net::IpAddr;

use sallyport_model::{Labels, PersonEmail, PolicyId, PolicyName, ProviderName, SocketId};
use sallyport_policy::Document;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;

use crate::schema;

/// Creates a policy, attached to nothing. `POST /v1/policies`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreatePolicy {
    /// What it is called within the organisation.
    #[schema(schema_with = schema::policy_name)]
    pub name: PolicyName,
    /// Its rules.
    #[schema(schema_with = schema::named::policy_document)]
    pub document: Document,
    /// Labels to find it again by: at most 32 keys with values.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    #[schema(value_type = std::collections::BTreeMap<String, String>, required = false, example = json!({"env": "prod"}))]
    pub labels: Labels,
}

/// Changes a policy; absent fields stay as they are. `PATCH /v1/policies/{id}`
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdatePolicy {
    /// The name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = schema::or_null::policy_name, required = false)]
    pub name: Option<PolicyName>,
    /// Its rules, all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = schema::named_or_null::policy_document, required = false)]
    pub document: Option<Document>,
    /// The labels, all of them; `null`: none.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "crate::socket::present")]
    #[schema(value_type = Option<std::collections::BTreeMap<String, String>>, example = json!({"env": "prod"}))]
    pub labels: Option<Option<Labels>>,
    /// Whether to change the policy although a socket would then deny every client.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}

/// The place to attach a policy to, or to detach it from: one socket, or all sockets. `POST /v1/policies/{id}/attach`
/// and `/detach`
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyPlace {
    /// The socket, by id or name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "wandering-shape-7752")]
    pub socket: Option<String>,
    /// All sockets of the organisation, future ones included.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub everywhere: bool,
    /// Whether to change the attachment although a socket would then admit every client, or deny every client.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}

/// A policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Policy {
    /// Its id.
    #[schema(value_type = uuid::Uuid)]
    pub id: PolicyId,
    /// The name.
    #[schema(schema_with = schema::policy_name)]
    pub name: PolicyName,
    /// Its rules.
    #[schema(schema_with = schema::named::policy_document)]
    pub document: Document,
    /// The labels that the owner gives it.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    #[schema(value_type = std::collections::BTreeMap<String, String>, required = false, example = json!({"env": "prod"}))]
    pub labels: Labels,
    /// Whether the policy applies to all sockets of the organisation.
    pub everywhere: bool,
    /// The sockets that the policy is attached to one by one.
    #[schema(value_type = Vec<uuid::Uuid>)]
    pub sockets: Vec<SocketId>,
    /// When it was made.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// When the name or the rules last changed.
    #[serde(with = "time::serde::rfc3339")]
    pub updated_at: OffsetDateTime,
}

/// Tests a policy, rules that are not stored yet, or a socket with all its policies and lists: one of the three. `POST
/// /v1/policy-test`
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
    /// The e-mail address of the person; no person when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "ann@example.com")]
    pub email: Option<PersonEmail>,
    /// The person's groups, as the provider gives them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 200)]
    pub groups: Vec<String>,
    /// The identity provider that authenticated the person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "google")]
    pub provider: Option<ProviderName>,
    /// The name of the service token of a machine, instead of a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_token: Option<String>,
    /// The client's address; needed where a rule asks for the client's place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "192.0.2.7")]
    pub address: Option<IpAddr>,
    /// The country of the address; unknown when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "CH")]
    pub country: Option<String>,
    /// The autonomous system of the address; unknown when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asn: Option<u32>,
    /// The time of the test; now when absent.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub at: Option<OffsetDateTime>,
    /// The HTTP method; GET when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// The path as a client would write it; / when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The port that the client uses; the socket's, or 443, when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 65535)]
    pub port: Option<u16>,
}

/// The result of a policy test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyTest {
    /// Whether the rules allow access.
    pub allowed: bool,
    /// The deciding rule, in words.
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

/// The result of one rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RuleTested {
    /// The policy.
    pub policy: String,
    /// The rule: its list and number, and its name where it has one.
    pub rule: String,
    /// The first condition that does not hold: `who`, `where`, `when`, `methods`, `paths` or `ports`; `null` when the
    /// rule matches.
    #[serde(default)]
    pub unmet: Option<String>,
}
