//! Identifiers: 128-bit random UUIDs, one type per noun so that they are never mixed up.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The text is not an identifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not an id: expected a UUID such as 0b7e3c1a-5f0e-4c57-9f63-6a1f0f9e2d11")]
pub struct IdError {
    /// The text, cut to 64 characters.
    pub text: String,
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            /// A version 4 UUID (RFC 9562 section 5.4) with these random bytes.
            #[must_use]
            pub fn from_random(bytes: [u8; 16]) -> Self {
                Self(uuid::Builder::from_random_bytes(bytes).into_uuid())
            }

            /// The id with these 16 bytes, as in the tunnel protocol.
            #[must_use]
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(Uuid::from_bytes(bytes))
            }

            /// The 16 bytes of the id.
            #[must_use]
            pub fn as_bytes(&self) -> &[u8; 16] {
                self.0.as_bytes()
            }

            /// The id as a UUID.
            #[must_use]
            pub fn uuid(&self) -> Uuid {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0)
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                Uuid::try_parse(text).map(Self).map_err(|_| IdError { text: text.chars().take(64).collect() })
            }
        }
    };
}

id!(
    /// An account: a person or a machine that owns sockets.
    AccountId
);
id!(
    /// A socket: a public endpoint.
    SocketId
);
id!(
    /// A tunnel: one origin's outbound connection, attached to one socket.
    TunnelId
);
id!(
    /// A direct origin: an address that edges dial themselves, for one socket.
    DirectOriginId
);
id!(
    /// An API token.
    TokenId
);
id!(
    /// An edge: a node that accepts clients and tunnels.
    EdgeId
);

id!(
    /// A login session of a person.
    LoginSessionId
);
id!(
    /// A named set of access rules.
    PolicyId
);
id!(
    /// An identity provider of an organisation.
    ProviderId
);
id!(
    /// A person whose password is stored in this installation.
    PersonId
);
id!(
    /// A token that a machine presents instead of a login.
    ServiceTokenId
);
id!(
    /// An invitation into an organisation.
    InvitationId
);
id!(
    /// A domain of an organisation.
    DomainId
);
id!(
    /// A certificate that edges serve.
    CertificateId
);
id!(
    /// A challenge of an ACME server.
    ChallengeId
);
id!(
    /// A zone of the name server.
    ZoneId
);
id!(
    /// A record of a zone.
    ZoneRecordId
);
id!(
    /// A prefix, a neighbour or an order of anycast.
    AnycastItemId
);
id!(
    /// A network of machines.
    NetworkId
);
id!(
    /// A machine of a network.
    MachineId
);

/// The fewest digits of an abbreviated id.
const MIN_SHORT_DIGITS: usize = 6;
/// Number of displayed digits of an abbreviated id.
const SHOWN_SHORT_DIGITS: usize = 8;

/// An abbreviated id, as shown in lists: `0b7e3c1a`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShortId {
    /// The hexadecimal digits, lower case.
    digits: String,
}

/// The text is not an abbreviated id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the beginning of an id is {MIN_SHORT_DIGITS} hexadecimal digits or more")]
pub struct ShortIdError;

impl ShortId {
    /// The abbreviated form for display.
    #[must_use]
    pub fn shown(id: impl fmt::Display) -> String {
        id.to_string().chars().take(SHOWN_SHORT_DIGITS).collect()
    }

    /// Whether the id has this prefix.
    #[must_use]
    pub fn begins(&self, id: Uuid) -> bool {
        id.simple().to_string().starts_with(&self.digits)
    }

    /// The bytes of the first id with this prefix.
    #[must_use]
    pub fn first(&self) -> [u8; 16] {
        self.filled(0)
    }

    /// The bytes of the last id with this prefix.
    #[must_use]
    pub fn last(&self) -> [u8; 16] {
        self.filled(0xf)
    }

    fn filled(&self, rest: u8) -> [u8; 16] {
        let mut digits =
            self.digits.chars().filter_map(|digit| digit.to_digit(16)).filter_map(|d| u8::try_from(d).ok());
        std::array::from_fn(|_| {
            let (high, low) = (digits.next().unwrap_or(rest), digits.next().unwrap_or(rest));
            high << 4 | low
        })
    }
}

impl FromStr for ShortId {
    type Err = ShortIdError;
    fn from_str(text: &str) -> Result<Self, ShortIdError> {
        // The positions of hyphens in a UUID (RFC 9562 section 4).
        let is_in_place =
            |(at, c): (usize, char)| if [8, 13, 18, 23].contains(&at) { c == '-' } else { c.is_ascii_hexdigit() };
        let digits: String = text.chars().filter(|c| *c != '-').map(|c| c.to_ascii_lowercase()).collect();
        let is_short =
            text.len() <= 36 && digits.len() >= MIN_SHORT_DIGITS && text.chars().enumerate().all(is_in_place);
        if is_short { Ok(Self { digits }) } else { Err(ShortIdError) }
    }
}

impl fmt::Display for ShortId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.digits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_version_4_and_round_trip_as_text() {
        let id = SocketId::from_random([7; 16]);
        assert_eq!(id.uuid().get_version_num(), 4);
        assert_eq!(id.to_string().parse::<SocketId>(), Ok(id));
        assert_eq!(SocketId::from_bytes(*id.as_bytes()), id);
    }

    #[test]
    fn the_beginning_of_an_id_stands_for_it() {
        let id = "0b7e3c1a-5f0e-4c57-9f63-6a1f0f9e2d11".parse::<SocketId>().unwrap();
        assert_eq!(ShortId::shown(id), "0b7e3c1a");
        for start in ["0b7e3c", "0B7E3C1A", "0b7e3c1a-5", "0b7e3c1a-5f0e-4c57-9f63-6a1f0f9e2d11"] {
            let start: ShortId = start.parse().unwrap();
            assert!(start.begins(id.uuid()) && start.first() <= *id.as_bytes() && start.last() >= *id.as_bytes());
        }
        let other: ShortId = "0b7e3c2".parse().unwrap();
        assert!(!other.begins(id.uuid()) && other.first() > *id.as_bytes());
        for bad in ["", "0b7e3", "0b7e3g1a", "0b7e-3c1a", "0b7e3c1a5f0e", "0b7e3c1a-5f0e-4c57-9f63-6a1f0f9e2d111"] {
            assert!(bad.parse::<ShortId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_wrong_id_is_named_in_the_error() {
        let error = "nonsense".parse::<TunnelId>().unwrap_err();
        assert!(error.to_string().contains("\"nonsense\" is not an id"), "{error}");
    }
}
