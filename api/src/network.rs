//! Networks of machines: their ranges, machines and policies.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::{ConnectTo, Secret};

/// Makes a network of machines. `POST /v1/networks`
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateNetwork {
    /// The name: lower-case letters, digits and hyphens, of which the first is a letter.
    #[schema(max_length = 63, example = "office")]
    pub name: String,
    /// The ranges of its addresses, one of each family; free private ones when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 2, example = json!(["10.20.0.0/24", "fd00:20::/64"]))]
    pub ranges: Option<Vec<String>>,
}

/// A network of machines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Network {
    /// Its id.
    pub id: Uuid,
    /// Its organisation.
    pub organisation: Uuid,
    /// The name.
    #[schema(example = "office")]
    pub name: String,
    /// The ranges of its addresses, one of each family.
    #[schema(example = json!(["10.20.0.0/24", "fd00:20::/64"]))]
    pub ranges: Vec<String>,
    /// The domain of its machines: their names stand in front of it.
    #[schema(example = "office.tunnels.example.com")]
    pub domain: String,
    /// How many machines it has.
    pub machines: usize,
    /// Whether a policy is set. Without one, its machines may all talk to each other.
    pub has_policy: bool,
    /// When it was made.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
}

/// How to remove a network.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DeleteNetworkQuery {
    /// Whether to remove the network although it has machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force: Option<bool>,
}

/// Sets the policy of a network. `PUT /v1/networks/{network}/policy`
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetNetworkPolicy {
    /// The document in TOML, without endpoints: the machines of the network are these.
    #[schema(
        max_length = 49152,
        example = "network = \"office\"\n\n[[allow]]\nname = \"ping\"\nservices = [\"icmp\"]\n"
    )]
    pub document: String,
    /// Whether rules may name machines and groups that are not there yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}

/// The policy of a network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NetworkPolicy {
    /// The document in TOML, as it was set.
    pub document: String,
    /// How many rules it has.
    pub rules: usize,
}

/// Adds a machine to a network. `POST /v1/networks/{network}/machines`
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateMachine {
    /// The name: lower-case letters, digits and hyphens, of which the first is a letter.
    #[schema(max_length = 63, example = "web-1")]
    pub name: String,
    /// Groups that policies name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 256, example = json!(["web"]))]
    pub groups: Option<Vec<String>>,
    /// Networks that others reach through the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 256, example = json!(["10.30.0.0/16"]))]
    pub routes: Option<Vec<String>>,
    /// Whether others reach every address outside of the network through the machine.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_exit: bool,
}

/// A machine of a network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Machine {
    /// Its id.
    pub id: Uuid,
    /// The name.
    #[schema(example = "web-1")]
    pub name: String,
    /// Its addresses, one of each range of the network.
    #[schema(value_type = Vec<String>, example = json!(["10.20.0.1", "fd00:20::1"]))]
    pub addresses: Vec<IpAddr>,
    /// Networks that others reach through the machine.
    #[schema(example = json!(["10.30.0.0/16"]))]
    pub routes: Vec<String>,
    /// Groups that policies name.
    #[schema(example = json!(["web"]))]
    pub groups: Vec<String>,
    /// Whether others reach every address outside of the network through the machine.
    pub is_exit: bool,
    /// When it was added.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
}

/// A machine that was just added.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CreatedMachine {
    /// What it is.
    #[serde(flatten)]
    pub details: Machine,
    /// The credential with which the machine joins. Shown once.
    pub credential: Secret,
    /// The network.
    pub network: Network,
    /// The address that the machine dials.
    pub edge: ConnectTo,
}
