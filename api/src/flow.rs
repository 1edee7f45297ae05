//! Flows of all edges: those that run, and those that ended lately.

use std::net::SocketAddr;

use sallyport_model::{DirectOriginId, EdgeName, RegionName, SocketId, TunnelId};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::{IntoParams, ToSchema};

/// An edge that did not respond in time, so that the response lacks its part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SilentEdge {
    /// Its name.
    #[schema(value_type = String, example = "eu-1")]
    pub edge: EdgeName,
    /// The reason, in a few words.
    pub why: String,
}

/// One page of the flows that run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FlowPage {
    /// The flows.
    pub items: Vec<Flow>,
    /// Where the next page starts (goes into `?after=`); absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// The edges whose flows are missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silent: Vec<SilentEdge>,
}

/// A flow that runs. `GET /v1/flows`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Flow {
    /// Its id, under which it is in the audit log when it has ended.
    pub id: String,
    /// The edge that it runs at; absent on one machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "eu-1")]
    pub edge: Option<EdgeName>,
    /// The socket.
    #[schema(value_type = uuid::Uuid)]
    pub socket: SocketId,
    /// The label of its DNS name.
    pub socket_name: String,
    /// The type of the socket.
    pub transport: String,
    /// The tunnel that took the flow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<uuid::Uuid>)]
    pub tunnel: Option<TunnelId>,
    /// The direct origin that took the flow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<uuid::Uuid>)]
    pub direct_origin: Option<DirectOriginId>,
    /// The address of that origin, as long as the socket has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "10.0.0.7:8080")]
    pub direct_origin_address: Option<String>,
    /// The identity of the client, where the socket requires one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// The address of the client.
    #[schema(value_type = String, example = "192.0.2.1:40000")]
    pub client: SocketAddr,
    /// When it began.
    #[serde(with = "time::serde::rfc3339")]
    pub began: OffsetDateTime,
    /// How many bytes went either way so far.
    pub bytes: u64,
}

/// A flow or request that ended recently. `GET /v1/flows/log`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EndedFlow {
    /// Its id: the request's id of an HTTP request.
    pub id: String,
    /// The name of the edge; absent on one machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "eu-1")]
    pub edge: Option<EdgeName>,
    /// The region of that edge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "eu")]
    pub region: Option<RegionName>,
    /// The socket.
    #[schema(value_type = uuid::Uuid)]
    pub socket: SocketId,
    /// The label of its DNS name.
    #[schema(example = "calm-bay-1000")]
    pub socket_name: String,
    /// The type of the socket.
    #[schema(example = "http")]
    pub transport: String,
    /// The tunnel that took the flow, or that the edge tried last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<uuid::Uuid>)]
    pub tunnel: Option<TunnelId>,
    /// The direct origin that took the flow, or that the edge tried last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<uuid::Uuid>)]
    pub direct_origin: Option<DirectOriginId>,
    /// The address of that origin, as long as the socket has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "10.0.0.7:8080")]
    pub direct_origin_address: Option<String>,
    /// When the flow ended, by the edge's clock.
    #[serde(with = "time::serde::rfc3339")]
    pub ended: OffsetDateTime,
    /// The duration in milliseconds.
    pub duration_ms: f64,
    /// The time to the first byte of the service's response, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_byte_ms: Option<f64>,
    /// Bytes from the client.
    pub bytes_in: u64,
    /// Bytes to the client.
    pub bytes_out: u64,
    /// How it ended, or why it was refused: complete, denied, no-tunnel ...
    pub verdict: String,
    /// The method of an HTTP request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Its path, without the query, cut to 256 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The status of the response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The address of the client; for tokens that may read the audit log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "192.0.2.1:40000")]
    pub client: Option<SocketAddr>,
    /// The identity of the client, where the socket asks for one; for tokens that may read the audit log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// The rule that decided about access; for tokens that may read the audit log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The number of flows before this one that were left out, because flows ended faster than the limit.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted_before: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// The flows and requests that ended recently.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EndedFlowPage {
    /// In the order in which they ended.
    pub items: Vec<EndedFlow>,
    /// Where later flows and requests begin (goes into `?after=`). Opaque: its form may change.
    pub next: String,
    /// Edges that did not respond, so that their flows and requests are missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silent: Vec<SilentEdge>,
}

/// What of that which ended lately.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EndedFlowQuery {
    /// Of the socket with this id, DNS name or name; of all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<String>,
    /// How many at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 100, default = 50)]
    pub limit: Option<u32>,
    /// `next` of a former response: what ended after that. The newest ones when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}
