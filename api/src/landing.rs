//! Where clients land: the catchment of each site.

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::{IntoParams, ToSchema};

/// The most items of one request for the catchment.
pub const MAX_LANDINGS: usize = 10_000;
/// The most rows, addresses or networks in one import.
pub const MAX_IMPORT_ITEMS: usize = 400;
/// The most requests a second of a measurement, of each edge.
pub const MAX_MEASUREMENT_RATE: u32 = 5_000;

/// How networks are put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LandingsBy {
    /// By network: 24 bits of IPv4 addresses, 48 bits of IPv6 addresses.
    #[default]
    Prefix,
    /// By autonomous system.
    As,
    /// By country.
    Country,
    /// By site.
    Site,
}

/// Where knowledge of a network comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LandingSource {
    /// Connections of clients.
    Clients,
    /// Pings from the anycast address, and from each site.
    Ping,
    /// Answers of the name server that say which server answered.
    Chaos,
    /// Results of RIPE Atlas.
    Atlas,
}

/// The networks of a group that land at one site.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Landing {
    /// The network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "192.0.2.0/24")]
    pub prefix: Option<String>,
    /// The autonomous system, if all networks are of one.
    #[serde(default, rename = "as", skip_serializing_if = "Option::is_none")]
    #[schema(example = 64500)]
    pub system: Option<u32>,
    /// The country, if all networks are in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "CH")]
    pub country: Option<String>,
    /// The site: a region of edges.
    #[schema(example = "eu")]
    pub site: String,
    /// How many networks there are.
    pub networks: u64,
    /// Requests, of which old ones count less: half after ten minutes.
    pub requests: u64,
    /// The mean round trip of requests, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_ms: Option<f64>,
    /// The site that is nearer for the most of what is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub better: Option<String>,
    /// The mean round trip to nearer sites, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub better_ms: Option<f64>,
    /// Requests times the excess of their round trip, in milliseconds.
    pub lost_ms: f64,
    /// What tells where the networks land, if it is one source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<LandingSource>,
    /// When a request was last seen.
    #[serde(with = "time::serde::rfc3339")]
    pub last_seen: OffsetDateTime,
}

/// Where clients land. `GET /v1/catchment`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LandingPage {
    /// Those that lose the most first, then those with the most requests.
    pub items: Vec<Landing>,
    /// Whether there are more.
    pub has_more: bool,
    /// How many networks are known.
    pub networks: u64,
    /// Why steering does not follow the catchment now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frozen: Option<String>,
}

/// Which part of the catchment to list.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct LandingQuery {
    /// How networks are put together; by prefix if absent.
    #[serde(default)]
    #[param(inline)]
    pub by: Option<LandingsBy>,
    /// The most items; 100 if absent.
    #[serde(default)]
    #[param(minimum = 1, maximum = 10_000)]
    pub limit: Option<u32>,
}

/// One change that would gain the most. Nothing is changed by itself. `GET /v1/catchment/suggestion`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CatchmentSuggestion {
    /// The change; absent if none gains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<SuggestedChange>,
    /// Why steering does not follow the catchment now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frozen: Option<String>,
}

/// A change: networks of a group that land at one site are to land at another one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SuggestedChange {
    /// The change as a sentence.
    #[schema(example = "steer AS64500 from us to eu by DNS")]
    pub action: String,
    /// Another way to the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alternative: Option<String>,
    /// The group: a country, an autonomous system, or a network.
    #[schema(example = "AS64500")]
    pub group: String,
    /// Where the networks land.
    pub from: String,
    /// Where they should land.
    pub to: String,
    /// How many networks were measured from both sites.
    pub networks: u64,
    /// How many networks of the group land there too, and were not measured from both sites.
    pub unmeasured: u64,
    /// Their requests.
    pub requests: u64,
    /// The mean round trip of their requests now, in milliseconds.
    pub before_ms: f64,
    /// The mean round trip that is predicted, in milliseconds.
    pub after_ms: f64,
    /// Requests times the predicted gain, in milliseconds.
    pub gain_ms: f64,
}

/// Starts a measurement by pings. `POST /v1/catchment/measurements`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StartMeasurement {
    /// The anycast address. Edges without it measure only their own round trips.
    #[schema(example = "198.51.100.1")]
    pub address: String,
    /// The name of the edge that sends the pings; the first one that can, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The most requests a second, of each edge; 500 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 5_000)]
    pub rate: Option<u32>,
    /// How long replies may be on their way after the last request, in seconds; 3 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 30)]
    pub wait_seconds: Option<u32>,
    /// Whether edges do not measure their own round trips.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub landings_only: bool,
}

/// Where a measurement stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MeasurementState {
    /// It runs.
    Running,
    /// It has ended, and its results are in the catchment.
    Done,
    /// It has ended without results.
    Failed,
}

/// A measurement by pings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Measurement {
    /// The id.
    pub id: String,
    /// The anycast address.
    pub address: String,
    /// Where it stands.
    pub state: MeasurementState,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// When it started.
    #[serde(with = "time::serde::rfc3339")]
    pub started_at: OffsetDateTime,
    /// The edge that sends the pings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// How many networks are measured.
    pub targets: u64,
    /// How many networks were left out, since they want no pings.
    pub opted_out: u64,
    /// How many networks have replied to the anycast address.
    pub landed: u64,
    /// How many networks have replied to more than one site: routing is about to change, or splits them.
    pub split: u64,
    /// What each edge did.
    pub edges: Vec<MeasuringEdge>,
}

/// What an edge did for a measurement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MeasuringEdge {
    /// The name of the edge; `edge` on one machine.
    pub edge: String,
    /// The site.
    pub site: String,
    /// Why the edge takes no part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Pings that it sent from the anycast address.
    pub sent: u64,
    /// Pings that its system did not send.
    pub unsent: u64,
    /// Targets that it may not ping: private addresses.
    pub refused: u64,
    /// Networks whose replies came to it.
    pub landed: u64,
    /// Networks of which it knows the round trip.
    pub timed: u64,
    /// Right replies that came again.
    pub duplicates: u64,
    /// Replies that no target has sent to these pings.
    pub forged: u64,
}

/// The last measurements. `GET /v1/catchment/measurements`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MeasurementPage {
    /// The newest first.
    pub items: Vec<Measurement>,
}

/// Adds what others have measured, and which networks may be pinged. `POST /v1/catchment/imports`
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportCatchment {
    /// Rows of the catchment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 400)]
    pub rows: Vec<ImportedLanding>,
    /// Addresses to ping: one of each network, the last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 400, example = json!(["192.0.2.7"]))]
    pub targets: Vec<String>,
    /// Networks that want no pings, or addresses in them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 400, example = json!(["192.0.2.0/24"]))]
    pub opt_outs: Vec<String>,
    /// Whether all former addresses to ping are removed before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replaces_targets: bool,
    /// Whether all former networks that want no pings are removed before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replaces_opt_outs: bool,
}

/// A row of the catchment that others have measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportedLanding {
    /// The network.
    #[schema(example = "192.0.2.0/24")]
    pub prefix: String,
    /// The site: a region of edges.
    #[schema(example = "eu")]
    pub site: String,
    /// The source: `chaos` or `atlas`.
    pub source: LandingSource,
    /// How often the network landed there; 0 if only the round trip is known.
    #[serde(default)]
    pub requests: u32,
    /// The shortest round trip, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip_ms: Option<f64>,
    /// When it was measured; now if absent.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub seen: Option<OffsetDateTime>,
}

/// What an import has added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImportedCatchment {
    /// Rows.
    pub rows: u64,
    /// Addresses to ping, all together.
    pub targets: u64,
    /// Networks that want no pings, all together.
    pub opt_outs: u64,
}
