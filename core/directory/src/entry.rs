//! The entries that edges write: leases and tunnels, as JSON with a schema number.

use std::{
    hash::Hasher as _,
    net::{IpAddr, SocketAddr},
};

use sallyport_model::{EdgeId, EdgeName, RegionName, TunnelId, TunnelPresence};
use sallyport_ports::SliceUse;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use siphasher::sip::SipHasher24;

/// The schema version written, and the only one read. Fields may be added; a change of meaning needs a new version.
pub const SCHEMA: u32 = 1;

/// Whether an edge accepts new clients and connectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EdgeState {
    /// The edge accepts clients and connectors.
    #[default]
    Serving,
    /// The edge is being drained: connectors are not sent to it, and other edges are preferred.
    Draining,
}

/// An edge's description of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgeCard {
    /// Its id.
    pub edge: EdgeId,
    /// Its name.
    pub name: EdgeName,
    /// Its region.
    pub region: RegionName,
    /// Its addresses for clients and connectors.
    pub addresses: Vec<SocketAddr>,
    /// The version of its program.
    pub program: String,
    /// Start time in seconds since 1970 (UTC), by the edge's clock: for display, never for comparison.
    pub since: i64,
    /// Whether it accepts new clients and connectors.
    #[serde(default)]
    pub state: EdgeState,
    /// The UDP port at which clients are offered HTTP/3; `None` while there is no offer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http3_port: Option<u16>,
    /// The service addresses of the prefixes that the edge announces now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub anycast: Vec<IpAddr>,
    /// What it does with its slices of egress addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub egress: Vec<SliceUse>,
    /// How balancers of the region reach the edge; `None` for an edge that is behind none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub balanced: Option<BalancedEdge>,
}

/// How balancers reach an edge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BalancedEdge {
    /// The address to which balancers send encapsulated packets.
    pub address: IpAddr,
    /// The ports of its own at which the edge serves TCP.
    pub tcp: Vec<u16>,
    /// The ports of its own at which the edge serves UDP.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub udp: Vec<u16>,
    /// Why balancers must not send to it, in one sentence; `None`: they may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

/// A renewal of an edge's lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The edge.
    #[serde(flatten)]
    pub card: EdgeCard,
    /// Number of the edge's run: a later run has a greater number.
    pub epoch: u64,
    /// Number of the beat in this epoch, from 1.
    pub beat: u64,
    /// The version of the latest written tunnel entry.
    pub latest: u64,
    /// Number of held tunnels.
    pub tunnels: u32,
    /// The digest of these tunnels and their versions.
    pub digest: u64,
    /// Whether this is the last lease: the edge stops.
    #[serde(default)]
    pub is_last: bool,
}

/// The entry of a tunnel that an edge holds or has held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelEntry {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The edge.
    pub edge: EdgeId,
    /// The edge's run.
    pub epoch: u64,
    /// Number of the change among those of the edge's tunnels, from 1.
    pub version: u64,
    /// The tunnel.
    pub tunnel: TunnelId,
    /// The tunnel's presence; `None`: no longer held.
    pub presence: Option<TunnelPresence>,
}

/// Reason why an entry is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum EntryError {
    /// The entry is of another version of this program.
    #[error("the entry has schema {found}, and this program reads schema {SCHEMA}: bring all machines to one version")]
    Schema {
        /// The schema version of the entry.
        found: u32,
    },
    /// The entry is damaged.
    #[error("the entry is damaged: {0}")]
    Damaged(serde_json::Error),
}

#[derive(Deserialize)]
struct Schema {
    schema: u32,
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, EntryError> {
    let Schema { schema } = serde_json::from_slice(bytes).map_err(EntryError::Damaged)?;
    if schema != SCHEMA {
        return Err(EntryError::Schema { found: schema });
    }
    serde_json::from_slice(bytes).map_err(EntryError::Damaged)
}

impl Lease {
    /// Encodes the lease as JSON.
    ///
    /// # Errors
    /// Serialization failed; not expected.
    pub fn to_bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(self)
    }

    /// Decodes a lease. Unknown fields are ignored.
    ///
    /// # Errors
    /// The lease has another schema, or is damaged.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, EntryError> {
        read(bytes)
    }
}

impl TunnelEntry {
    /// Encodes the entry as JSON.
    ///
    /// # Errors
    /// Serialization failed; not expected.
    pub fn to_bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(self)
    }

    /// Decodes an entry. Unknown fields are ignored.
    ///
    /// # Errors
    /// The entry has another schema, or is damaged.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, EntryError> {
        read(bytes)
    }
}

/// The part of one tunnel in the digest of all tunnels. Parts are combined by exclusive or, in any order.
pub(crate) fn digest(tunnel: TunnelId, version: u64) -> u64 {
    let mut hash = SipHasher24::new();
    hash.write(tunnel.as_bytes());
    hash.write_u64(version);
    hash.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> TunnelEntry {
        TunnelEntry {
            schema: SCHEMA,
            edge: EdgeId::from_random([1; 16]),
            epoch: 2,
            version: 3,
            tunnel: TunnelId::from_random([4; 16]),
            presence: None,
        }
    }

    #[test]
    fn unknown_fields_are_ignored_and_another_schema_is_an_error() {
        let mut json: serde_json::Value = serde_json::from_slice(&entry().to_bytes().unwrap()).unwrap();
        json["colour"] = "green".into();
        assert_eq!(TunnelEntry::from_bytes(json.to_string().as_bytes()).unwrap(), entry());
        json["schema"] = 2.into();
        // The schema is checked before the other fields.
        json["epoch"] = "later".into();
        let error = TunnelEntry::from_bytes(json.to_string().as_bytes()).unwrap_err().to_string();
        assert!(error.contains("schema 2") && error.contains("bring all machines to one version"), "{error}");
        for bad in ["", "{}", "nonsense", "[1]", r#"{"schema":1}"#] {
            assert!(matches!(TunnelEntry::from_bytes(bad.as_bytes()), Err(EntryError::Damaged(_))), "{bad}");
        }
    }
}
