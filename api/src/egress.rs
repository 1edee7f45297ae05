//! Egress: addresses that edges share by slices of ports, and who has which slice.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

/// An address that edges share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EgressAddress {
    /// The address.
    #[schema(value_type = String, example = "198.51.100.7")]
    pub address: IpAddr,
    /// The country whose visitors leave by it, by ISO 3166.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "CH")]
    pub country: Option<String>,
    /// The subdivision of the country by ISO 3166-2, for the geofeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "CH-ZH")]
    pub subdivision: Option<String>,
    /// The city, for the geofeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "Zurich")]
    pub city: Option<String>,
    /// What it is for; empty: everything.
    #[serde(default)]
    pub purposes: Vec<String>,
    /// The site to which its packets come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "eu")]
    pub site: Option<String>,
    /// How many of its slices edges have.
    pub slices: usize,
    /// How many of its slices are free.
    pub free_slices: usize,
    /// When it was added.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// What is odd about it at present.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Adds an address that edges share. `POST /v1/egress/addresses`
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateEgressAddress {
    /// The address, of IPv4 or IPv6.
    #[schema(max_length = 64, example = "198.51.100.7")]
    pub address: String,
    /// The country whose visitors leave by it: two letters of ISO 3166; no country when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 16, example = "CH")]
    pub country: Option<String>,
    /// The subdivision of the country by ISO 3166-2, for the geofeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 16, example = "CH-ZH")]
    pub subdivision: Option<String>,
    /// The city, for the geofeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 256, example = "Zurich")]
    pub city: Option<String>,
    /// What it is for, such as `origins`; everything when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 8, example = json!(["origins"]))]
    pub purposes: Option<Vec<String>>,
    /// The site to which its packets come: a region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 64, example = "eu")]
    pub site: Option<String>,
}

/// How the lease of a slice stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EgressSliceState {
    /// The edge opens connections from the slice.
    Held,
    /// The edge opens no more connections. Its flows go on, and another edge gets the slice then.
    Moving,
    /// The edge opens no more connections. Its flows go on, and the slice is free then.
    Releasing,
    /// The edge was silent for too long. It gets the slice again when it is back, unless another one has it by then.
    Lapsed,
}

/// A slice of an egress address that an edge has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EgressSlice {
    /// Its id: the address, a hyphen, and the number of the slice.
    #[schema(example = "198.51.100.7-3")]
    pub id: String,
    /// The address.
    #[schema(value_type = String, example = "198.51.100.7")]
    pub address: IpAddr,
    /// The number of the slice.
    #[schema(minimum = 1, maximum = 31, example = 3)]
    pub slice: u8,
    /// Its first port.
    #[schema(example = 6144)]
    pub first_port: u16,
    /// Its last port.
    #[schema(example = 8191)]
    pub last_port: u16,
    /// How its lease stands.
    pub state: EgressSliceState,
    /// The edge to which packets for the slice go.
    #[schema(example = "eu-1")]
    pub edge: String,
    /// The id of this edge.
    pub edge_id: Uuid,
    /// The addresses of this edge, without ports; empty while they are not known.
    #[schema(value_type = Vec<String>, example = json!(["192.0.2.7"]))]
    pub edge_addresses: Vec<IpAddr>,
    /// The site of this edge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "eu")]
    pub site: Option<String>,
    /// The site to which packets for the address come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "eu")]
    pub address_site: Option<String>,
    /// The edge that gets the slice next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "eu-2")]
    pub next_edge: Option<String>,
    /// Number of the lease among those of the slice.
    pub term: u64,
    /// Whether the edge opens connections from it now; absent if the edge says nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_open: Option<bool>,
    /// What is odd about it at present.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Gives an edge a slice. `POST /v1/egress/slices`
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateEgressSlice {
    /// The address.
    #[schema(max_length = 64, example = "198.51.100.7")]
    pub address: String,
    /// The edge: its name or id.
    #[schema(max_length = 64, example = "eu-1")]
    pub edge: String,
    /// The number of the slice; the first free one when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 31)]
    pub slice: Option<u8>,
}

/// Moves a slice to another edge. `POST /v1/egress/slices/{id}/move`
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MoveEgressSlice {
    /// The edge that gets it: its name or id.
    #[schema(max_length = 64, example = "eu-2")]
    pub edge: String,
    /// How long flows of the former edge may go on, in seconds, once it has stopped opening new ones; 600 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 86400, default = 600)]
    pub within_seconds: Option<u32>,
    /// Whether the former edge is off for certain, so that nobody waits for it.
    #[serde(default)]
    pub is_off: bool,
}

/// How a slice is taken from its edge. `DELETE /v1/egress/slices/{id}`
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ReleaseEgressSliceQuery {
    /// How long flows of the edge may go on, in seconds, once it has stopped opening new ones; 600 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(maximum = 86400, default = 600)]
    pub within_seconds: Option<u32>,
    /// Whether the edge is off for certain, so that nobody waits for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_off: Option<bool>,
}
