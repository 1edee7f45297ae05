//! Which region the name server answers whom.

use std::{collections::BTreeMap, net::IpAddr};

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// How much of what comes to a region by DNS stays there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AnycastDial {
    /// The percentage of clients that the region keeps; the others get the next best region.
    #[serde(default = "all")]
    #[schema(maximum = 100, default = 100)]
    pub dial: u8,
    /// The percentage of these that it keeps while it has too much load.
    #[serde(default = "all")]
    #[schema(maximum = 100, default = 100)]
    pub share: u8,
}

fn all() -> u8 {
    100
}

impl Default for AnycastDial {
    fn default() -> Self {
        Self { dial: 100, share: 100 }
    }
}

/// Which addresses the name server answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AnycastAnswers {
    /// Those of the edges of the region.
    Edges,
    /// The anycast address of the region where it has one, and the one of all regions for clients of which nothing is
    /// known.
    Anycast,
}

/// Replaces the dials of regions. `PUT /v1/anycast/dials`
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetAnycastDials {
    /// The dials by region, at most 64. A region without one keeps all.
    #[schema(example = json!({"eu": {"dial": 50}}))]
    pub dials: BTreeMap<String, AnycastDial>,
    /// Which addresses are answered; as before when absent, and those of edges by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<AnycastAnswers>,
}

/// The dials of regions. `GET /v1/anycast/dials`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AnycastDials {
    /// The dials by region.
    pub dials: BTreeMap<String, AnycastDial>,
    /// Which addresses are answered.
    pub answers: AnycastAnswers,
    /// Whether the name server steers at all.
    pub is_steering: bool,
    /// For how many networks of clients something was measured.
    pub networks: u64,
    /// Whether clients are steered by what was measured before, because somebody may be moving the catchment.
    pub is_frozen: bool,
    /// What has no effect at present.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// The query of `GET /v1/anycast/resolve`.
#[derive(Debug, Clone, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AnycastResolveQuery {
    /// The address of the client, or its network.
    #[param(example = "192.0.2.7")]
    pub client: String,
    /// The address of its resolver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(example = "198.51.100.53")]
    pub resolver: Option<String>,
    /// The name that it asks for; one with the addresses of all edges when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(example = "www.example.com")]
    pub name: Option<String>,
}

/// What a choice of the name server rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ResolutionReason {
    /// What was measured for the network of the client.
    Subnet,
    /// What was measured for the clients of the resolver.
    Resolver,
    /// What was measured for the network of the resolver.
    Network,
    /// Nothing: the addresses are those for everybody.
    Global,
}

/// A region of a ranking.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RankedRegion {
    /// Its name.
    pub region: String,
    /// Whether it has edges that clients are sent to.
    pub has_edges: bool,
    /// Its dial, in percent.
    pub dial: u8,
    /// Its share, in percent.
    pub share: u8,
}

/// Which region the name server would answer a client. `GET /v1/anycast/resolve`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AnycastResolution {
    /// The network of the client.
    pub client: String,
    /// The region; absent where the client gets the addresses for everybody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// The best region that has edges, which a dial may have passed by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nearest: Option<String>,
    /// What the choice rests on; absent where the name server does not steer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<ResolutionReason>,
    /// For how many bits of the client's network the answer holds.
    pub scope: u8,
    /// The ranking of regions, the best one first.
    pub regions: Vec<RankedRegion>,
    /// The addresses of the answer; of many, an answer has some.
    #[schema(value_type = Vec<String>)]
    pub addresses: Vec<IpAddr>,
    /// Why, in one sentence.
    pub why: String,
}
