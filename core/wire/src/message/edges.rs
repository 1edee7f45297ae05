//! What an edge tells connectors of itself and of the others, so that they hold their tunnels at several.

use std::net::SocketAddr;

use sallyport_model::{EdgeName, RegionName};
use serde::{Deserialize, Serialize};

use super::{get_json, put_json};
use crate::{FrameType, Violation};

/// How many other edges a message names; what follows is left out.
pub const MAX_EDGE_PLACES: usize = 32;
/// How many addresses of an edge a message names; what follows is left out.
pub const MAX_EDGE_ADDRESSES: usize = 4;

/// An edge, and where connectors reach it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EdgePlace {
    /// Its name.
    pub name: EdgeName,
    /// The region that it is in.
    pub region: RegionName,
    /// Where it is reached, at most [`MAX_EDGE_ADDRESSES`].
    pub addresses: Vec<SocketAddr>,
}

/// An edge as its connectors know it. One that is alone says nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Neighbours {
    /// Its name.
    pub edge: Option<EdgeName>,
    /// The region that it is in.
    pub region: Option<RegionName>,
    /// Other edges that serve, those first that connectors had better take: at most [`MAX_EDGE_PLACES`].
    pub edges: Vec<EdgePlace>,
    /// Whether connectors shall go to others.
    pub leave: bool,
}

/// The edges that serve have changed, or connectors shall leave this one; only for connectors with the feature
/// [`EDGES`](super::feature::EDGES).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edges {
    /// The other edges that serve, at most [`MAX_EDGE_PLACES`].
    #[serde(default)]
    pub edges: Vec<EdgePlace>,
    /// The edge is emptied: the connector lets go of this session when it holds its tunnels elsewhere.
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

/// No more edges, and no more addresses of each, than a message may name.
pub(super) fn bounded(edges: &[EdgePlace]) -> Vec<EdgePlace> {
    let cut = |place: &EdgePlace| EdgePlace {
        addresses: place.addresses.iter().take(MAX_EDGE_ADDRESSES).copied().collect(),
        ..place.clone()
    };
    edges.iter().take(MAX_EDGE_PLACES).map(cut).collect()
}
