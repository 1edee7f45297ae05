//! Identifiers: 128-bit random UUIDs, one type per noun so that they are never mixed up.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The text is not an identifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not an id: expected a UUID such as 0b7e3c1a-5f0e-4c57-9f63-6a1f0f9e2d11")]
pub struct IdError {
    /// What was given, cut to 64 characters.
    pub text: String,
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            /// A version 4 UUID (RFC 9562 section 5.4) made of the given random bytes.
            #[must_use]
            pub fn from_random(bytes: [u8; 16]) -> Self {
                Self(uuid::Builder::from_random_bytes(bytes).into_uuid())
            }

            /// The id whose 16 bytes these are, as they travel in the tunnel protocol.
            #[must_use]
            pub fn from_bytes(bytes: [u8; 16]) -> Self {
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
    /// An edge: a node that takes clients and tunnels.
    EdgeId
);

id!(
    /// A login of a person.
    LoginSessionId
);
id!(
    /// A named set of rules about who may come.
    PolicyId
);
id!(
    /// An identity provider of an organisation.
    ProviderId
);
id!(
    /// A person who logs in with a password that this installation keeps.
    PersonId
);
id!(
    /// A token that a machine shows instead of logging in.
    ServiceTokenId
);
id!(
    /// An invitation into an organisation.
    InvitationId
);

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
    fn a_wrong_id_is_named_in_the_error() {
        let error = "nonsense".parse::<TunnelId>().unwrap_err();
        assert!(error.to_string().contains("\"nonsense\" is not an id"), "{error}");
    }
}
