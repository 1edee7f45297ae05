//! The JSON of the original clients' requests and responses.

use sallyport_api::Secret;
use sallyport_model::{DisplayName, Email, SocketId, SocketType, TunnelId};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// `POST /user`
#[derive(Debug, Deserialize)]
pub(super) struct NewUser {
    pub(super) name: DisplayName,
    pub(super) email: Email,
    pub(super) password: Secret,
    #[serde(default)]
    pub(super) sshkey: Option<String>,
    /// The code of an invitation, as in `/v1/accounts`; the original clients do not send it.
    #[serde(default)]
    pub(super) invitation: Option<Secret>,
    #[serde(default)]
    pub(super) setup_token: Option<Secret>,
}

/// An account.
#[derive(Debug, Serialize)]
pub(super) struct User {
    pub(super) name: String,
    pub(super) email: String,
    pub(super) user_id: Uuid,
    /// The user name for ssh clients.
    pub(super) user_name: String,
    pub(super) sshkey: String,
}

/// `POST /login`
#[derive(Debug, Deserialize)]
pub(super) struct Login {
    pub(super) email: Email,
    pub(super) password: Secret,
    /// A code of the authenticator; the original clients do not send it.
    #[serde(default)]
    pub(super) code: Option<Secret>,
}

/// `POST /login/refresh`
#[derive(Debug, Deserialize)]
pub(super) struct Nothing {}

/// The token of a login.
#[derive(Debug, Serialize)]
pub(super) struct Token {
    pub(super) token: String,
}

/// `POST /socket`, `POST /connect` and `PUT /socket/{id}`; a new socket needs a name.
#[derive(Debug, Deserialize)]
pub(super) struct SocketRequest {
    #[serde(default)]
    pub(super) name: Option<DisplayName>,
    #[serde(default)]
    pub(super) socket_type: Option<SocketType>,
    #[serde(default)]
    pub(super) protected_socket: Option<bool>,
    #[serde(default)]
    pub(super) protected_username: Option<String>,
    #[serde(default)]
    pub(super) protected_password: Option<Secret>,
    #[serde(default)]
    pub(super) cloud_authentication_enabled: Option<bool>,
    // Three s, as published.
    #[serde(default)]
    pub(super) cloud_authentication_email_allowed_addressses: Option<Entries>,
    #[serde(default)]
    pub(super) cloud_authentication_email_allowed_domains: Option<Entries>,
}

/// Entries as a list, or as one text with commas.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Entries {
    List(Vec<String>),
    Text(String),
}

impl Entries {
    /// The entries, without empty ones.
    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        let texts = match self {
            Self::List(list) => list.as_slice(),
            Self::Text(text) => std::slice::from_ref(text),
        };
        texts.iter().flat_map(|text| text.split(',')).map(str::trim).filter(|text| !text.is_empty())
    }
}

/// A socket.
#[derive(Debug, Serialize)]
pub(super) struct Socket {
    pub(super) socket_id: SocketId,
    pub(super) name: String,
    pub(super) dnsname: String,
    pub(super) socket_type: SocketType,
    pub(super) socket_tcp_ports: Vec<u16>,
    pub(super) protected_socket: bool,
    pub(super) protected_username: String,
    /// Always empty: only its hash is stored.
    pub(super) protected_password: String,
    pub(super) cloud_authentication_enabled: bool,
    // Three s, as published.
    pub(super) cloud_authentication_email_allowed_addressses: Vec<String>,
    pub(super) cloud_authentication_email_allowed_domains: Vec<String>,
    pub(super) ssh_ca: String,
    pub(super) tunnels: Vec<Tunnel>,
    pub(super) user_name: String,
}

/// A tunnel.
#[derive(Debug, Serialize)]
pub(super) struct Tunnel {
    pub(super) tunnel_id: TunnelId,
    /// The port for `ssh -R`.
    pub(super) local_port: u16,
    /// The host for ssh.
    pub(super) tunnel_server: String,
    /// The port for ssh. The original clients do not know it; their users put it into `~/.ssh/config`.
    pub(super) tunnel_server_port: u16,
}

/// `POST /socket/{id}/tunnel/{tunnel_id}/signkey`
#[derive(Debug, Deserialize)]
pub(super) struct KeyToSign {
    pub(super) ssh_public_key: String,
}

/// A certificate for an ssh key.
#[derive(Debug, Serialize)]
pub(super) struct SignedKey {
    pub(super) signed_ssh_cert: String,
}
