//! Sockets.

use std::collections::BTreeMap;

use sallyport_model::{
    AccessRules, Affinity, DisplayName, EndpointGroup, HeaderRules, HostHeader, IdentitySettings, Labels, Limits,
    OriginProtocol, ProxyProtocol, RegionName, SocketId, SocketName, SocketType, TlsMode,
};
use serde::{Deserialize, Deserializer, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;

use crate::{HealthCheck, HealthFailure, Secret, schema};

/// A new socket; absent fields get their defaults, and so do those that may be `null`. `POST /v1/sockets`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateSocket {
    /// The name of the socket: one line of 1 to 100 characters. No other socket of the organisation has the name,
    /// whatever the case and the spaces. The server generates the DNS name.
    #[schema(value_type = String, min_length = 1, max_length = 100, example = "my test service")]
    pub name: DisplayName,
    /// What it is; `http` when absent.
    #[serde(rename = "type", default = "http")]
    #[schema(schema_with = schema::socket_type, required = false)]
    pub socket_type: SocketType,
    /// The HTTP version between edge and origin; `auto` is HTTP/2 for gRPC and HTTP/1.1 otherwise.
    #[serde(default)]
    #[schema(schema_with = schema::origin_protocol, required = false)]
    pub origin_protocol: OriginProtocol,
    /// A user name and password that every client must give (basic authentication at the edge).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protected: Option<Protect>,
    /// The port of a `tcp`, `tls` or `udp` socket: a free one of the server's range when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 65535)]
    pub port: Option<u16>,
    /// Whether the origin gets the client's address in a PROXY protocol header; `off` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = schema::or_null::proxy_protocol, required = false)]
    pub proxy_protocol: Option<ProxyProtocol>,
    /// The end of the TLS of a `tls` socket: the edge (`terminate`, when absent), or the origin (`passthrough`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = schema::or_null::tls_mode, required = false)]
    pub tls_mode: Option<TlsMode>,
    /// The application protocols that the edge offers where the edge ends the TLS of a `tls` socket, best first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 8, example = json!(["h2"]))]
    pub alpn: Option<Vec<String>>,
    /// The health check of the origins; when absent, only the results of flows count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_check: Option<HealthCheck>,
    /// Whether a client comes back to the same origin, and what identifies the client; `none` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = schema::or_null::affinity, required = false)]
    pub affinity: Option<Affinity>,
    /// What the socket may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = schema::named_or_null::limits, required = false)]
    pub limits: Option<Limits>,
    /// Networks, countries and autonomous systems to admit or to deny.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = schema::named_or_null::access, required = false)]
    pub access: Option<AccessRules>,
    /// Whether the edge bounds replies to clients of a `udp` socket that have sent little, since their addresses may be
    /// forged; `true` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amplification_guard: Option<bool>,
    /// Identities of clients, when the socket requires them: by a login, or by a certificate at a `tls` socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = schema::named_or_null::identity, required = false)]
    pub identity: Option<IdentitySettings>,
    /// The share of their traffic that regions keep; a region without a share keeps all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = schema::named_or_null::regions, required = false)]
    pub regions: Option<BTreeMap<RegionName, EndpointGroup>>,
    /// The host that origins see in requests instead of the public name: a host, with or without a port, or `origin`
    /// for the address of each origin (`http` and `https` sockets).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, max_length = 259, example = "localhost:3000")]
    pub host_header: Option<HostHeader>,
    /// The header fields to set and to remove in requests and in the responses of origins (`http` and `https` sockets).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = schema::named_or_null::header_rules, required = false)]
    pub headers: Option<HeaderRules>,
    /// The first label of the DNS name, where the server lets owners choose it; a generated one when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, max_length = 63, example = "shop")]
    pub label: Option<SocketName>,
    /// Verified domains of the organisation that lead to the socket (`http`, `https` and `tls` sockets); at most 32.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 32, example = json!(["app.example.com"]))]
    pub domains: Option<Vec<String>>,
    /// Policies of the organisation for access from the beginning, by name or id; at most 20.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 20, example = json!(["staff"]))]
    pub policies: Option<Vec<String>>,
    /// Labels to find it again by: at most 32 keys with values.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    #[schema(value_type = std::collections::BTreeMap<String, String>, required = false, example = json!({"env": "prod"}))]
    pub labels: Labels,
}

impl CreateSocket {
    /// A socket of this name and type, with the defaults for everything else.
    #[must_use]
    pub fn new(name: DisplayName, socket_type: SocketType) -> Self {
        Self {
            name,
            socket_type,
            origin_protocol: OriginProtocol::default(),
            protected: None,
            port: None,
            proxy_protocol: None,
            tls_mode: None,
            alpn: None,
            health_check: None,
            affinity: None,
            limits: None,
            access: None,
            amplification_guard: None,
            identity: None,
            regions: None,
            host_header: None,
            headers: None,
            label: None,
            domains: None,
            policies: None,
            labels: Labels::default(),
        }
    }
}

/// Changes to a socket; absent fields stay as they are, `null` is the default again. `PATCH /v1/sockets/{id}`
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdateSocket {
    /// The name that the owner gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, min_length = 1, max_length = 100)]
    pub name: Option<DisplayName>,
    /// What it is. It cannot change between types that have a port of their own (`tcp`, `tls`, `udp`) and others.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = schema::or_null::socket_type, required = false)]
    pub socket_type: Option<SocketType>,
    /// Which HTTP version the origin is spoken to with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = schema::or_null::origin_protocol, required = false)]
    pub origin_protocol: Option<OriginProtocol>,
    /// A new user name and password; `null` opens the socket to every client.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<Protect>)]
    pub protected: Option<Option<Protect>>,
    /// Whether the origin of a `tcp` or `tls` socket gets the client's address.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(schema_with = schema::or_null::proxy_protocol, required = false)]
    pub proxy_protocol: Option<Option<ProxyProtocol>>,
    /// The end of the TLS of a `tls` socket: the edge or the origin.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(schema_with = schema::or_null::tls_mode, required = false)]
    pub tls_mode: Option<Option<TlsMode>>,
    /// The application protocols that the edge offers where it ends the TLS of a `tls` socket, best first.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<Vec<String>>, max_items = 8)]
    pub alpn: Option<Option<Vec<String>>>,
    /// The health check of the origins; `null`: none.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<HealthCheck>)]
    pub health_check: Option<Option<HealthCheck>>,
    /// Whether a client comes back to the same origin.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(schema_with = schema::or_null::affinity, required = false)]
    pub affinity: Option<Option<Affinity>>,
    /// What the socket may use; all bounds at once.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(schema_with = schema::named_or_null::limits, required = false)]
    pub limits: Option<Option<Limits>>,
    /// Networks, countries and autonomous systems to admit or to deny; both lists at once.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(schema_with = schema::named_or_null::access, required = false)]
    pub access: Option<Option<AccessRules>>,
    /// Whether the edge bounds what goes to clients of a `udp` socket that have sent little.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<bool>)]
    pub amplification_guard: Option<Option<bool>>,
    /// Identities to admit; `null`: the socket requires none.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(schema_with = schema::named_or_null::identity, required = false)]
    pub identity: Option<Option<IdentitySettings>>,
    /// The share of their traffic that regions keep; all regions at once.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(schema_with = schema::named_or_null::regions, required = false)]
    pub regions: Option<Option<BTreeMap<RegionName, EndpointGroup>>>,
    /// The host that origins see in requests instead of the public name: a host, with or without a port, or `origin`
    /// for the address of each origin; `null`: the public name.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<String>, max_length = 259, example = "localhost:3000")]
    pub host_header: Option<Option<HostHeader>>,
    /// The header fields to set and to remove in requests and in the responses of origins (`http` and `https` sockets);
    /// all of them at once.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(schema_with = schema::named_or_null::header_rules, required = false)]
    pub headers: Option<Option<HeaderRules>>,
    /// Verified domains of the organisation that lead to the socket (`http`, `https` and `tls` sockets); all of them at
    /// once, at most 32. A domain of another socket leads here from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 32, example = json!(["app.example.com"]))]
    pub domains: Option<Vec<String>>,
    /// The labels, all of them; `null`: none.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<std::collections::BTreeMap<String, String>>, example = json!({"env": "prod"}))]
    pub labels: Option<Option<Labels>>,
    /// Whether to open the socket to every client, where `identity` becomes `null` and nothing else limits access.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}

impl UpdateSocket {
    /// Whether nothing is to change.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.name.is_none()
            && self.socket_type.is_none()
            && self.origin_protocol.is_none()
            && self.protected.is_none()
            && self.proxy_protocol.is_none()
            && self.tls_mode.is_none()
            && self.alpn.is_none()
            && self.health_check.is_none()
            && self.affinity.is_none()
            && self.limits.is_none()
            && self.access.is_none()
            && self.amplification_guard.is_none()
            && self.identity.is_none()
            && self.regions.is_none()
            && self.host_header.is_none()
            && self.headers.is_none()
            && self.domains.is_none()
            && self.labels.is_none()
    }
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

/// The visible part of a socket's basic authentication.
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
    /// The name that the owner gives the socket.
    #[schema(value_type = String, example = "my test service")]
    pub name: DisplayName,
    /// The host name of the socket. No other organisation ever gets the name.
    #[schema(example = "wandering-shape-7752.localhost")]
    pub dns_name: String,
    /// The address for clients: `https://`, `tcp://`, `tls://` or `udp://`, host and port.
    #[schema(example = "https://wandering-shape-7752.localhost:8443")]
    pub url: String,
    /// What it is.
    #[serde(rename = "type")]
    #[schema(schema_with = schema::socket_type)]
    pub socket_type: SocketType,
    /// Which HTTP version the origin is spoken to with.
    #[schema(schema_with = schema::origin_protocol)]
    pub origin_protocol: OriginProtocol,
    /// The user name that clients must give, or `null` when the socket has no password.
    #[serde(default)]
    pub protected: Option<Protected>,
    /// The socket's own port, which stays with the socket; `null` for `http` and `https` sockets.
    #[serde(default)]
    pub port: Option<u16>,
    /// Whether the origin gets the client's address.
    #[serde(default)]
    #[schema(schema_with = schema::proxy_protocol)]
    pub proxy_protocol: ProxyProtocol,
    /// The end of the TLS connection: the edge or the origin.
    #[serde(default)]
    #[schema(schema_with = schema::tls_mode)]
    pub tls_mode: TlsMode,
    /// The application protocols that the edge offers.
    #[serde(default)]
    pub alpn: Vec<String>,
    /// The health check of the origins; `null` without one.
    #[serde(default)]
    pub health_check: Option<HealthCheck>,
    /// Whether a client comes back to the same origin.
    #[serde(default)]
    #[schema(schema_with = schema::affinity)]
    pub affinity: Affinity,
    /// What the socket may use.
    #[serde(default)]
    #[schema(schema_with = schema::named::limits)]
    pub limits: Limits,
    /// Networks, countries and autonomous systems to admit or to deny.
    #[serde(default)]
    #[schema(schema_with = schema::named::access)]
    pub access: AccessRules,
    /// Whether the edge bounds replies to clients of a `udp` socket that have sent little.
    #[serde(default = "on")]
    pub amplification_guard: bool,
    /// Identities to admit; `null`: the socket requires none.
    #[serde(default)]
    #[schema(schema_with = schema::named_or_null::identity)]
    pub identity: Option<IdentitySettings>,
    /// The share of their traffic that regions keep; a region without a share keeps all.
    #[serde(default)]
    #[schema(schema_with = schema::named::regions)]
    pub regions: BTreeMap<RegionName, EndpointGroup>,
    /// The host that origins see in requests; `null` for the public name.
    #[serde(default)]
    #[schema(value_type = Option<String>, example = "localhost:3000")]
    pub host_header: Option<HostHeader>,
    /// Which header fields are set and removed.
    #[serde(default)]
    #[schema(schema_with = schema::named::header_rules)]
    pub headers: HeaderRules,
    /// The verified domains of the organisation that lead to the socket.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<String>,
    /// The labels that the owner gives it.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    #[schema(value_type = std::collections::BTreeMap<String, String>, required = false, example = json!({"env": "prod"}))]
    pub labels: Labels,
    /// Notes about settings that have no effect at present, in sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The names of the policies that apply: attached to the socket, or to all sockets of its organisation.
    #[serde(default)]
    pub policies: Vec<String>,
    /// The public key of the organisation's authority for ssh keys, where the socket asks for an identity. Hosts behind
    /// the socket list the key in `TrustedUserCAKeys`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssh_authority: Option<String>,
    /// The certificate in PEM of the organisation's authority for client certificates, where the socket asks for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_authority: Option<String>,
    /// How a stock ssh client serves the socket; absent when the server takes no ssh clients, and for `udp` sockets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssh: Option<SshAccess>,
    /// When it was made.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// The number of tunnels.
    pub tunnels_total: u32,
    /// The number of tunnels that are up.
    pub tunnels_up: u32,
    /// The number of origins that get no requests, because they fail their health check or recent flows failed.
    #[serde(default)]
    pub origins_failing: u32,
    /// The failure of the origin that has failed the longest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<HealthFailure>,
}

/// How a stock ssh client serves a socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SshAccess {
    /// The ssh server's host name.
    pub host: String,
    /// The ssh server's port.
    pub port: u16,
    /// The name to log in with.
    pub user: String,
    /// The command; PORT stands for the service's port.
    #[schema(example = "ssh -p 2222 -R wandering-shape-7752:80:localhost:PORT \
                   5f2b8f0e9d7c4c2f8f9e0a1b2c3d4e5f@tunnel.localhost")]
    pub command: String,
    /// The server's host keys, as lines of a `known_hosts` file.
    pub known_hosts: Vec<String>,
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

fn on() -> bool {
    true
}

/// Distinguishes a field that is `null` from one that is absent.
pub(crate) fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
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

    #[test]
    fn every_setting_is_kept_set_or_back_at_its_default() {
        let full = r#"{"proxy_protocol":"v2","tls_mode":null,"alpn":["h2"],"health_check":{"type":"tcp"},
                       "affinity":null,"limits":{"queue":5},"access":{"allow":["192.0.2.0/24"]},
                       "amplification_guard":false,"regions":{"eu":{"dial":20},"us":{}}}"#;
        let update: UpdateSocket = serde_json::from_str(full).unwrap();
        assert_eq!(update.proxy_protocol, Some(Some(ProxyProtocol::V2)));
        assert_eq!((update.tls_mode, update.affinity), (Some(None), Some(None)));
        assert_eq!(update.amplification_guard, Some(Some(false)));
        let dials: Vec<_> = update.regions.iter().flatten().flatten().map(|(_, group)| group.dial).collect();
        assert_eq!(dials, [20, 100]);
        assert!(!update.is_empty() && UpdateSocket::default().is_empty());
        let again: UpdateSocket = serde_json::from_str(&serde_json::to_string(&update).unwrap()).unwrap();
        assert_eq!(format!("{again:?}"), format!("{update:?}"));
        for bad in
            [r#"{"limits":{"max":1}}"#, r#"{"access":{"permit":[]}}"#, r#"{"health_check":{"type":"tcp","x":1}}"#]
        {
            assert!(
                serde_json::from_str::<UpdateSocket>(bad).unwrap_err().to_string().contains("unknown field"),
                "{bad}"
            );
        }
    }

    #[test]
    fn a_socket_of_an_older_server_is_read_too() {
        let old = r#"{"id":"0b7e3c1a-5f0e-4c57-9f63-6a1f0f9e2d11","name":"a","dns_name":"calm-bay-1000.localhost",
                      "url":"https://calm-bay-1000.localhost","type":"http","origin_protocol":"auto","protected":null,
                      "created_at":"2026-01-01T12:00:00Z","tunnels_total":0,"tunnels_up":0}"#;
        let socket: Socket = serde_json::from_str(old).unwrap();
        assert_eq!((socket.port, socket.affinity, socket.ssh), (None, Affinity::None, None));
        assert!(socket.amplification_guard);
    }
}
