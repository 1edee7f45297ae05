//! The messages by which an edge announces itself and the other edges, so that connectors hold their tunnels at several
//! edges.

use std::net::SocketAddr;

use sallyport_model::{EdgeName, RegionName};
use serde::{Deserialize, Serialize};

use super::{get_json, put_json};
use crate::{FrameType, Violation};

/// The most other edges of a message; further ones are ignored.
pub const MAX_EDGE_PLACES: usize = 32;
/// The most addresses of an edge in a message; further ones are ignored.
pub const MAX_EDGE_ADDRESSES: usize = 4;

/// An edge and its addresses.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EdgePlace {
    /// Its name.
    pub name: EdgeName,
    /// Its region.
    pub region: RegionName,
    /// Its addresses for connectors, at most [`MAX_EDGE_ADDRESSES`].
    pub addresses: Vec<SocketAddr>,
}

/// An edge's description of itself and of the other edges, for connectors. Empty for a single edge.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Neighbours {
    /// Its name.
    pub edge: Option<EdgeName>,
    /// Its region.
    pub region: Option<RegionName>,
    /// The other edges, preferred ones first: at most [`MAX_EDGE_PLACES`].
    pub edges: Vec<EdgePlace>,
    /// Whether connectors should move to other edges.
    pub leave: bool,
}

/// A change of the list of edges, or the request to leave this edge; only for connectors with the feature
/// [`EDGES`](super::feature::EDGES).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edges {
    /// The other edges, at most [`MAX_EDGE_PLACES`].
    #[serde(default)]
    pub edges: Vec<EdgePlace>,
    /// Whether the edge is being drained: the connector leaves this session once other edges hold its tunnels.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leave: bool,
}

impl Edges {
    /// Appends the message as a whole EDGES frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_json(out, FrameType::Edges, &Self { edges: bounded(&self.edges), leave: self.leave });
    }

    /// Reads the payload of such a frame.
    pub fn decode(payload: &[u8]) -> Result<Self, Violation> {
        let message: Self = get_json(FrameType::Edges, payload)?;
        Ok(Self { edges: bounded(&message.edges), leave: message.leave })
    }
}

/// The list, cut to the bounds of a message.
pub(super) fn bounded(edges: &[EdgePlace]) -> Vec<EdgePlace> {
    let cut = |place: &EdgePlace| EdgePlace {
        addresses: place.addresses.iter().take(MAX_EDGE_ADDRESSES).copied().collect(),
        ..place.clone()
    };
    edges.iter().take(MAX_EDGE_PLACES).map(cut).collect()
}
