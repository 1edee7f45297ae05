//! What edges say: leases and presences, as JSON with a schema number.

use std::{hash::Hasher as _, net::SocketAddr};

use sallyport_model::{EdgeId, EdgeName, RegionName, TunnelId, TunnelPresence};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use siphasher::sip::SipHasher24;

/// The schema that this program writes and the only one that it reads. Fields may be added to it; one that changes its meaning
/// makes a new one.
pub const SCHEMA: u32 = 1;

/// What an edge does with those who come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EdgeState {
    /// It takes clients and connectors.
    #[default]
    Serving,
    /// It is being emptied: it is not given to connectors, and not chosen where another edge will do.
    Draining,
}

/// What an edge says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgeCard {
    /// Its id.
    pub edge: EdgeId,
    /// Its name.
    pub name: EdgeName,
    /// The region that it is in.
    pub region: RegionName,
    /// Where clients and connectors reach it.
    pub addresses: Vec<SocketAddr>,
    /// The version of its program.
    pub program: String,
    /// Since when it runs, in seconds since 1970 (UTC), by its own clock: to be shown, never to be compared.
    pub since: i64,
    /// What it does with those who come.
    #[serde(default)]
    pub state: EdgeState,
}

/// A sign of life of an edge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Who it is.
    #[serde(flatten)]
    pub card: EdgeCard,
    /// Which life of the edge this is: a later one has a greater number.
    pub epoch: u64,
    /// Which sign of life of this epoch it is, counted from 1.
    pub beat: u64,
    /// The version of the latest [`Held`] that it has written.
    pub latest: u64,
    /// How many tunnels it holds.
    pub tunnels: u32,
    /// The digest of these tunnels and their versions.
    pub digest: u64,
    /// Whether it is the last one: the edge ends.
    #[serde(default)]
    pub is_last: bool,
}

/// A tunnel that an edge holds, or has held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// [`SCHEMA`].
    pub schema: u32,
    /// By which edge.
    pub edge: EdgeId,
    /// In which life of it.
    pub epoch: u64,
    /// Which change of the edge's tunnels it is, counted from 1.
    pub version: u64,
    /// The tunnel.
    pub tunnel: TunnelId,
    /// What is known of it; `None`: it is gone.
    pub presence: Option<TunnelPresence>,
}

/// Why bytes are not understood.
#[derive(Debug, thiserror::Error)]
pub enum WordError {
    /// They are of another version of this program.
    #[error("it has schema {found}, and this program reads schema {SCHEMA}: bring all machines to one version")]
    Schema {
        /// The schema that they have.
        found: u32,
    },
    /// They are damaged.
    #[error("it is damaged: {0}")]
    Damaged(serde_json::Error),
}

#[derive(Deserialize)]
struct Schema {
    schema: u32,
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, WordError> {
    let Schema { schema } = serde_json::from_slice(bytes).map_err(WordError::Damaged)?;
    if schema != SCHEMA {
        return Err(WordError::Schema { found: schema });
    }
    serde_json::from_slice(bytes).map_err(WordError::Damaged)
}

impl Lease {
    /// As it travels.
    ///
    /// # Errors
    /// Never, as far as is known.
    pub fn to_bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(self)
    }

    /// From what has travelled. Fields that are not known are passed over.
    ///
    /// # Errors
    /// It is of another schema, or damaged.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, WordError> {
        read(bytes)
    }
}

impl Held {
    /// As it travels.
    ///
    /// # Errors
    /// Never, as far as is known.
    pub fn to_bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(self)
    }

    /// From what has travelled. Fields that are not known are passed over.
    ///
    /// # Errors
    /// It is of another schema, or damaged.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, WordError> {
        read(bytes)
    }
}

/// The part of one tunnel in the digest of all: these are combined by exclusive or, so that their order does not matter.
pub(crate) fn digest(tunnel: TunnelId, version: u64) -> u64 {
    let mut hash = SipHasher24::new();
    hash.write(tunnel.as_bytes());
    hash.write_u64(version);
    hash.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held() -> Held {
        Held {
            schema: SCHEMA,
            edge: EdgeId::from_random([1; 16]),
            epoch: 2,
            version: 3,
            tunnel: TunnelId::from_random([4; 16]),
            presence: None,
        }
    }

    #[test]
    fn fields_that_are_not_known_are_passed_over_and_another_schema_is_told() {
        let mut json: serde_json::Value = serde_json::from_slice(&held().to_bytes().unwrap()).unwrap();
        json["colour"] = "green".into();
        assert_eq!(Held::from_bytes(json.to_string().as_bytes()).unwrap(), held());
        json["schema"] = 2.into();
        // What else it holds need not be understood to say so.
        json["epoch"] = "later".into();
        let error = Held::from_bytes(json.to_string().as_bytes()).unwrap_err().to_string();
        assert!(error.contains("schema 2") && error.contains("bring all machines to one version"), "{error}");
        for bad in ["", "{}", "nonsense", "[1]", r#"{"schema":1}"#] {
            assert!(matches!(Held::from_bytes(bad.as_bytes()), Err(WordError::Damaged(_))), "{bad}");
        }
    }
}
