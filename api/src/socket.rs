//! Sockets.

use sallyport_model::{DisplayName, OriginProtocol, SocketId, SocketName, SocketType};
use serde::{Deserialize, Deserializer, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;

use crate::{Secret, schema};

/// A new socket. `POST /v1/sockets`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateSocket {
    /// What its owner calls it: one line of 1 to 100 characters. Its DNS name is generated.
    #[schema(value_type = String, min_length = 1, max_length = 100, example = "my test service")]
    pub name: DisplayName,
    /// What the origin speaks; `http` when absent.
    #[serde(rename = "type", default = "http")]
    #[schema(schema_with = schema::socket_type, required = false)]
    pub socket_type: SocketType,
    /// Which HTTP version the origin is spoken to with; `auto` when absent.
    #[serde(default)]
    #[schema(schema_with = schema::origin_protocol, required = false)]
    pub origin_protocol: OriginProtocol,
    /// A user name and password that every client must give (basic authentication at the edge).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protected: Option<Protect>,
}

/// Changes to a socket; absent fields stay as they are. `PATCH /v1/sockets/{id}`
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdateSocket {
    /// What its owner calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, min_length = 1, max_length = 100)]
    pub name: Option<DisplayName>,
    /// What the origin speaks.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = schema::socket_type, required = false)]
    pub socket_type: Option<SocketType>,
    /// Which HTTP version the origin is spoken to with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = schema::origin_protocol, required = false)]
    pub origin_protocol: Option<OriginProtocol>,
    /// A new user name and password; `null` opens the socket to everybody.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<Protect>)]
    pub protected: Option<Option<Protect>>,
}

/// A user name and password that clients must give (RFC 7617).
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Protect {
    /// 1 to 128 printable characters without a colon.
    #[schema(min_length = 1, max_length = 128, pattern = "^[^:\\u0000-\\u001f\\u007f-\\u009f]+$")]
    pub username: String,
    /// 1 to 1,024 bytes without control characters.
    #[schema(min_length = 1, max_length = 1024, pattern = "^[^\\u0000-\\u001f\\u007f-\\u009f]+$")]
    pub password: Secret,
}

/// What is shown of a socket's protection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Protected {
    /// The user name that clients must give.
    pub username: String,
}

/// A socket: a public endpoint with its own name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Socket {
    /// Its id.
    #[schema(value_type = uuid::Uuid)]
    pub id: SocketId,
    /// What its owner calls it.
    #[schema(value_type = String, example = "my test service")]
    pub name: DisplayName,
    /// The host name it answers at; it stays with the socket and is never given to another.
    #[schema(example = "wandering-shape-7752.localhost")]
    pub dns_name: String,
    /// Where clients reach it.
    #[schema(example = "https://wandering-shape-7752.localhost:8443")]
    pub url: String,
    /// What the origin speaks.
    #[serde(rename = "type")]
    #[schema(schema_with = schema::socket_type)]
    pub socket_type: SocketType,
    /// Which HTTP version the origin is spoken to with.
    #[schema(schema_with = schema::origin_protocol)]
    pub origin_protocol: OriginProtocol,
    /// The user name that clients must give, or `null` when the socket is open to everybody.
    #[serde(default)]
    pub protected: Option<Protected>,
    /// When it was made.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// How many tunnels it has.
    pub tunnels_total: u32,
    /// How many of them are up.
    pub tunnels_up: u32,
}

impl Socket {
    /// The first label of the DNS name, such as `wandering-shape-7752`.
    #[must_use]
    pub fn label(&self) -> Option<SocketName> {
        self.dns_name.split('.').next()?.parse().ok()
    }
}

fn http() -> SocketType {
    SocketType::Http
}

/// Tells a field that is `null` from one that is absent.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_removes_and_absent_keeps_the_protection() {
        let keep: UpdateSocket = serde_json::from_str("{}").unwrap();
        assert!(keep.protected.is_none());
        let remove: UpdateSocket = serde_json::from_str(r#"{"protected":null}"#).unwrap();
        assert!(matches!(remove.protected, Some(None)));
        let set: UpdateSocket = serde_json::from_str(r#"{"protected":{"username":"a","password":"b"}}"#).unwrap();
        assert!(matches!(&set.protected, Some(Some(protect)) if protect.username == "a"));
        for update in [keep, remove, set] {
            let json = serde_json::to_string(&update).unwrap();
            let again: UpdateSocket = serde_json::from_str(&json).unwrap();
            assert_eq!(format!("{again:?}"), format!("{update:?}"));
        }
    }

    #[test]
    fn unknown_fields_are_refused_by_name_and_defaults_are_filled_in() {
        let error = serde_json::from_str::<CreateSocket>(r#"{"name":"a","portocol":"x"}"#).unwrap_err();
        assert!(error.to_string().contains("unknown field `portocol`"), "{error}");
        let plain: CreateSocket = serde_json::from_str(r#"{"name":"a"}"#).unwrap();
        assert_eq!((plain.socket_type, plain.origin_protocol), (SocketType::Http, OriginProtocol::Auto));
    }
}
