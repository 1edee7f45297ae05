//! Links of a tunnel.

use std::net::IpAddr;

use sallyport_model::{EdgeName, LinkReport};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A link that carries a tunnel, as its connector sees it. Counts are of all connections to the edge since the connector
/// began; tunnels of one connector share them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TunnelLink {
    /// The edge at the other end, where there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "eu-1")]
    pub edge: Option<EdgeName>,
    /// The name: the device, or the source address.
    #[schema(example = "eth0")]
    pub name: String,
    /// The source address of the connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "192.0.2.7")]
    pub local: Option<IpAddr>,
    /// `up`, `silent` (nothing comes back), `down`, or `unknown` for what a later connector reports.
    #[schema(example = "up")]
    pub status: String,
    /// The round trip in milliseconds, once measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 12.4)]
    pub round_trip_ms: Option<f64>,
    /// Packets that were lost or sent again, of 1,000 that were sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 1000)]
    pub loss_permille: Option<u16>,
    /// Bytes that the connector sent.
    pub bytes_sent: u64,
    /// Bytes that the connector received.
    pub bytes_received: u64,
    /// The largest packet of the path, in bytes, with its IP header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 1500)]
    pub path_mtu_bytes: Option<u32>,
    /// What headers below the tunnel's bytes take of such a packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 52)]
    pub header_bytes: Option<u32>,
    /// Whether bytes cost money.
    #[serde(default)]
    pub metered: bool,
    /// Whether the link is used only if no other is there.
    #[serde(default)]
    pub standby: bool,
}

impl TunnelLink {
    /// The link of a report about connections to this edge.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "round trips are far below 2^52 microseconds")]
    pub fn new(edge: Option<EdgeName>, report: &LinkReport) -> Self {
        Self {
            edge,
            name: report.name.clone(),
            local: report.local,
            status: report.status.as_str().to_owned(),
            round_trip_ms: report.rtt_us.map(|us| us as f64 / 1_000.0),
            loss_permille: report.loss_permille,
            bytes_sent: report.bytes_sent,
            bytes_received: report.bytes_received,
            path_mtu_bytes: report.path_mtu_bytes,
            header_bytes: report.header_bytes,
            metered: report.is_metered,
            standby: report.is_standby,
        }
    }
}
