//! Direct origins: addresses that edges dial themselves.

use sallyport_model::{Capacity, DirectOriginId, OriginTlsSettings, PathPrefix, RegionName, SocketId};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;

use crate::{HealthFailure, schema, socket::present};

/// A new direct origin. `POST /v1/sockets/{id}/origins`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateDirectOrigin {
    /// The host name or address of the origin, which edges can reach, and its port.
    #[schema(example = "10.0.0.7:8080")]
    pub address: String,
    /// The region of the origin; when absent, the region of each edge that dials the origin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "eu")]
    pub region: Option<RegionName>,
    /// The origin's share of the socket's flows beside the other origins, 100 when absent; 0 takes no new ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1000)]
    pub weight: Option<u16>,
    /// How the origin proves its identity, at an `https` socket; when absent, by a certificate for its host, of an
    /// authority that the edges' machines trust.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = schema::named_or_null::origin_tls, required = false)]
    pub tls: Option<OriginTlsSettings>,
    /// The prefix of the paths that the origin serves: the path and everything beneath it; `/`, every path, when absent
    /// (`http` and `https` sockets). Of several prefixes that fit, the longest takes the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, max_length = 256, example = "/api")]
    pub path: Option<PathPrefix>,
    /// The replacement of `path` in requests to the origin: `/` removes the prefix. The path stays as it is when
    /// absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, max_length = 256, example = "/")]
    pub rewrite_path: Option<PathPrefix>,
    /// What the origin can carry: the most requests per second and at once; when absent, any amount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = schema::named_or_null::capacity, required = false)]
    pub capacity: Option<Capacity>,
}

/// Changes to a direct origin; absent fields stay as they are, `null` is the default again.
/// `PATCH /v1/sockets/{id}/origins/{origin_id}`
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdateDirectOrigin {
    /// Where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The region of the origin; `null`: that of each edge that dials the origin.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<String>)]
    pub region: Option<Option<RegionName>>,
    /// Its share of the socket's flows beside the other origins; 0 takes no new ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1000)]
    pub weight: Option<u16>,
    /// How the origin proves its identity; the settings change together.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(schema_with = schema::named_or_null::origin_tls, required = false)]
    pub tls: Option<Option<OriginTlsSettings>>,
    /// The prefix of the paths that the origin serves; `null`: every path.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<String>, max_length = 256, example = "/api")]
    pub path: Option<Option<PathPrefix>>,
    /// The replacement of `path` in requests to the origin; `null`: the path stays as it is.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<String>, max_length = 256, example = "/")]
    pub rewrite_path: Option<Option<PathPrefix>>,
    /// What the origin can carry; the settings change together. `null`: any amount.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(schema_with = schema::named_or_null::capacity, required = false)]
    pub capacity: Option<Option<Capacity>>,
}

impl UpdateDirectOrigin {
    /// Whether nothing is to change.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Self { address, region, weight, tls, path, rewrite_path, capacity } = self;
        let are_paths_kept = path.is_none() && rewrite_path.is_none();
        let is_place_kept = address.is_none() && region.is_none() && tls.is_none();
        is_place_kept && are_paths_kept && weight.is_none() && capacity.is_none()
    }
}

/// A direct origin: an address that edges dial themselves, for one socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DirectOrigin {
    /// Its id.
    #[schema(value_type = uuid::Uuid)]
    pub id: DirectOriginId,
    /// The socket of the origin.
    #[schema(value_type = uuid::Uuid)]
    pub socket_id: SocketId,
    /// The address of the origin.
    #[schema(example = "10.0.0.7:8080")]
    pub address: String,
    /// The region of the origin; `null`: the region of each edge that dials the origin.
    #[serde(default)]
    #[schema(value_type = Option<String>, example = "eu")]
    pub region: Option<RegionName>,
    /// The origin's share of the socket's flows beside the other origins; 0 takes no new ones.
    pub weight: u16,
    /// How the origin proves its identity; absent when nothing is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = schema::named_or_null::origin_tls, required = false)]
    pub tls: Option<OriginTlsSettings>,
    /// The prefix of the paths that the origin serves: the path and everything beneath it.
    #[serde(default)]
    #[schema(value_type = String, example = "/api")]
    pub path: PathPrefix,
    /// The replacement of `path` in requests to the origin; absent: the path stays as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "/")]
    pub rewrite_path: Option<PathPrefix>,
    /// What the origin can carry; absent: any amount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = schema::named_or_null::capacity, required = false)]
    pub capacity: Option<Capacity>,
    /// When it was made.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// Whether the origin passes the socket's health check; absent before the first check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healthy: Option<bool>,
    /// Why the origin gets no requests, and since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<HealthFailure>,
}
