//! The configuration of edges, entry by entry, as encoded on the bus and on disk.

use std::{fmt, str::FromStr};

use sallyport_model::{
    AccountId, AcmeChallenge, CertificateId, ChallengeId, DnsSteeringPart, EdgeId, EdgeOrders, LoginSession,
    LoginSessionId, NetworkId, STEERING_PARTS, ServedCertificate, ServedZone, ServiceTokenId, ServiceTokenRoute,
    SiteBalancer, SocketId, SocketRoute, SshLogin, ZoneId,
};
use sallyport_network::route::NetworkRoute;
use serde::{Deserialize, Serialize};

use crate::{EgressConfig, OwnedAnycast};

/// The schema version written, and the only one read. Fields may be added; a change of meaning needs a new version.
pub const CONFIG_SCHEMA: u32 = 1;

/// The subject of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConfigKey {
    /// A socket.
    Route(SocketId),
    /// The ssh keys of an account.
    SshLogin(AccountId),
    /// The login session of a person.
    Session(LoginSessionId),
    /// A service token.
    Token(ServiceTokenId),
    /// Orders for an edge.
    Edge(EdgeId),
    /// A certificate of a public authority.
    Certificate(CertificateId),
    /// A challenge of an ACME server.
    Challenge(ChallengeId),
    /// A zone of the name server.
    Zone(ZoneId),
    /// The prefixes that edges announce, their neighbours and orders, as a whole.
    Anycast,
    /// The balancers of sites, as a whole.
    Balancers,
    /// A part of what steers the name server.
    DnsSteering(u8),
    /// The egress addresses, and the leases of their slices, as a whole.
    Egress,
    /// A network of machines.
    Network(NetworkId),
}

/// The content of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "value", rename_all = "kebab-case")]
pub enum ConfigValue {
    /// A socket.
    Route(Box<SocketRoute>),
    /// The ssh keys of an account.
    SshLogin(SshLogin),
    /// The login session of a person.
    Session(LoginSession),
    /// A service token.
    Token(ServiceTokenRoute),
    /// Orders for an edge.
    Edge(EdgeOrders),
    /// A certificate of a public authority.
    Certificate(Box<ServedCertificate>),
    /// A challenge of an ACME server.
    Challenge(AcmeChallenge),
    /// A zone of the name server.
    Zone(Box<ServedZone>),
    /// The prefixes that edges announce, their neighbours and orders, as a whole.
    Anycast(Box<OwnedAnycast>),
    /// The balancers of sites, as a whole.
    Balancers(Vec<SiteBalancer>),
    /// A part of what steers the name server.
    DnsSteering(Box<DnsSteeringPart>),
    /// The egress addresses, and the leases of their slices, as a whole.
    Egress(Box<EgressConfig>),
    /// A network of machines.
    Network(Box<NetworkRoute>),
}

/// Reason why an entry is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum ConfigEntryError {
    /// The entry is of another version of this program.
    #[error(
        "the entry has schema {found}, and this program reads schema {CONFIG_SCHEMA}: bring all machines to one version"
    )]
    Schema {
        /// The schema version of the entry.
        found: u32,
    },
    /// The entry is damaged.
    #[error("the entry is damaged: {0}")]
    Damaged(#[from] serde_json::Error),
    /// The entry does not belong to its key.
    #[error("the entry does not belong to its key")]
    Misplaced,
}

#[derive(Deserialize)]
struct Schema {
    schema: u32,
}

#[derive(Serialize, Deserialize)]
struct Entry<V> {
    schema: u32,
    #[serde(flatten)]
    value: V,
}

impl ConfigValue {
    /// The key of the entry.
    #[must_use]
    pub fn key(&self) -> ConfigKey {
        match self {
            Self::Route(route) => ConfigKey::Route(route.id),
            Self::SshLogin(login) => ConfigKey::SshLogin(login.account),
            Self::Session(session) => ConfigKey::Session(session.id),
            Self::Token(token) => ConfigKey::Token(token.id),
            Self::Edge(orders) => ConfigKey::Edge(orders.edge),
            Self::Certificate(certificate) => ConfigKey::Certificate(certificate.id),
            Self::Challenge(challenge) => ConfigKey::Challenge(challenge.id),
            Self::Zone(zone) => ConfigKey::Zone(zone.id),
            Self::Anycast(_) => ConfigKey::Anycast,
            Self::Balancers(_) => ConfigKey::Balancers,
            Self::DnsSteering(part) => ConfigKey::DnsSteering(part.part),
            Self::Egress(_) => ConfigKey::Egress,
            Self::Network(network) => ConfigKey::Network(network.id),
        }
    }

    /// Encodes the entry as JSON.
    ///
    /// # Errors
    /// Never, as far as is known.
    pub fn to_bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(&Entry { schema: CONFIG_SCHEMA, value: self })
    }

    /// Decodes the entry of this key. Unknown fields are ignored.
    ///
    /// # Errors
    /// The entry has another schema, is damaged, or does not belong to the key.
    pub fn from_bytes(key: ConfigKey, bytes: &[u8]) -> Result<Self, ConfigEntryError> {
        let Schema { schema } = serde_json::from_slice(bytes)?;
        if schema != CONFIG_SCHEMA {
            return Err(ConfigEntryError::Schema { found: schema });
        }
        let Entry { value, .. } = serde_json::from_slice::<Entry<Self>>(bytes)?;
        if value.key() == key { Ok(value) } else { Err(ConfigEntryError::Misplaced) }
    }
}

impl fmt::Display for ConfigKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Route(id) => write!(f, "route.{id}"),
            Self::SshLogin(id) => write!(f, "ssh.{id}"),
            Self::Session(id) => write!(f, "session.{id}"),
            Self::Token(id) => write!(f, "token.{id}"),
            Self::Edge(id) => write!(f, "edge.{id}"),
            Self::Certificate(id) => write!(f, "certificate.{id}"),
            Self::Challenge(id) => write!(f, "challenge.{id}"),
            Self::Zone(id) => write!(f, "zone.{id}"),
            Self::Anycast => f.write_str("anycast.all"),
            Self::Balancers => f.write_str("balancers.all"),
            Self::DnsSteering(part) => write!(f, "dns-steering.{part}"),
            Self::Egress => f.write_str("egress.all"),
            Self::Network(id) => write!(f, "network.{id}"),
        }
    }
}

/// The text is no key of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is no key that this program knows")]
pub struct UnknownKey;

/// The number of a part, spelt as it is written.
fn part(text: &str) -> Option<u8> {
    let part: u8 = text.parse().ok()?;
    (part <= STEERING_PARTS && text == part.to_string()).then_some(part)
}

impl FromStr for ConfigKey {
    type Err = UnknownKey;
    fn from_str(text: &str) -> Result<Self, UnknownKey> {
        let (kind, id) = text.split_once('.').ok_or(UnknownKey)?;
        let unknown = |_| UnknownKey;
        Ok(match kind {
            "route" => Self::Route(id.parse().map_err(unknown)?),
            "ssh" => Self::SshLogin(id.parse().map_err(unknown)?),
            "session" => Self::Session(id.parse().map_err(unknown)?),
            "token" => Self::Token(id.parse().map_err(unknown)?),
            "edge" => Self::Edge(id.parse().map_err(unknown)?),
            "certificate" => Self::Certificate(id.parse().map_err(unknown)?),
            "challenge" => Self::Challenge(id.parse().map_err(unknown)?),
            "zone" => Self::Zone(id.parse().map_err(unknown)?),
            "network" => Self::Network(id.parse().map_err(unknown)?),
            "anycast" if id == "all" => Self::Anycast,
            "egress" if id == "all" => Self::Egress,
            "balancers" if id == "all" => Self::Balancers,
            "dns-steering" => Self::DnsSteering(part(id).ok_or(UnknownKey)?),
            _ => return Err(UnknownKey),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_read_back_and_another_schema_or_place_is_refused() {
        let login = SshLogin { account: AccountId::from_random([7; 16]), keys: vec!["ssh-ed25519 AAAA".into()] };
        let value = ConfigValue::SshLogin(login);
        let key = value.key();
        assert_eq!(key.to_string().parse(), Ok(key));
        let bytes = value.to_bytes().unwrap();
        assert_eq!(ConfigValue::from_bytes(key, &bytes).unwrap(), value);
        let mut json: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        json["later"] = 1.into();
        json["value"]["later"] = 1.into();
        assert_eq!(ConfigValue::from_bytes(key, json.to_string().as_bytes()).unwrap(), value);
        json["schema"] = 9.into();
        let error = ConfigValue::from_bytes(key, json.to_string().as_bytes()).unwrap_err().to_string();
        assert!(error.contains("schema 9") && error.contains("bring all machines"), "{error}");
        let other = ConfigKey::SshLogin(AccountId::from_random([8; 16]));
        assert!(matches!(ConfigValue::from_bytes(other, &bytes), Err(ConfigEntryError::Misplaced)));
        for bad in ["", "{}", "x"] {
            assert!(matches!(ConfigValue::from_bytes(key, bad.as_bytes()), Err(ConfigEntryError::Damaged(_))), "{bad}");
        }
        let part = ConfigKey::DnsSteering(48);
        assert_eq!(part.to_string().parse(), Ok(part));
        for bad in [
            "",
            "route",
            "route.x",
            "meta",
            "dns-steering.49",
            "dns-steering.07",
            "other.0b7e3c1a-5f0e-4c57-9f63-6a1f0f9e2d11",
        ] {
            assert_eq!(bad.parse::<ConfigKey>(), Err(UnknownKey), "{bad}");
        }
    }
}
