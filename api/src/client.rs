//! Programs on the machines of persons: their logins, and their certificates.

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;

use crate::Secret;

/// The code from the browser's redirect, for a token. `POST /v1/client/token`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExchangeClientCode {
    /// The code.
    pub code: Secret,
    /// What the code challenge was made of (RFC 7636): 43 to 128 letters, digits, `-`, `.`, `_` and `~`.
    pub code_verifier: Secret,
    /// The redirect URI of the login, as the program requested it.
    pub redirect_uri: String,
}

/// A login without a browser on the same machine (RFC 8628). `POST /v1/client/device`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BeginDeviceLogin {
    /// The DNS name of the socket.
    #[schema(example = "wandering-shape-7752.localhost")]
    pub host: String,
}

/// A login that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeviceLogin {
    /// The code with which the program asks whether the person agreed.
    pub device_code: Secret,
    /// The code that the person types.
    #[schema(example = "WDJB-MJHT")]
    pub user_code: String,
    /// The page where the person types the code.
    pub verification_uri: String,
    /// The page with the code filled in.
    pub verification_uri_complete: String,
    /// The lifetime of the login in seconds.
    pub expires_in: u32,
    /// The seconds to wait between two polls.
    pub interval: u32,
}

/// Polls for the person's agreement. `POST /v1/client/device/token`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExchangeDeviceCode {
    /// The device code.
    pub device_code: Secret,
}

/// A person's login, for a program. It ends with the login.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClientToken {
    /// The token, for `Authorization: Bearer`.
    pub token: Secret,
    /// The person's e-mail address.
    pub email: String,
    /// The DNS name of the socket of the request. The token is good for all sockets of that organisation.
    pub host: String,
    /// When the login ends.
    #[serde(with = "time::serde::rfc3339")]
    pub expires_at: OffsetDateTime,
}

/// The person of a program's login. `GET /v1/client`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClientLogin {
    /// The verified e-mail address.
    pub email: String,
    /// The person's name, where the provider gives one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The identity provider that authenticated the person.
    pub provider: String,
    /// When the login ends.
    #[serde(with = "time::serde::rfc3339")]
    pub expires_at: OffsetDateTime,
}

/// Asks for a client certificate for a `tls` socket. `POST /v1/client/tls-certificate`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateClientCertificate {
    /// The DNS name of the socket.
    #[schema(example = "wandering-shape-7752.localhost")]
    pub host: String,
    /// A certificate request (PKCS #10) in PEM, of an RSA key of at least 2,048 bits, P-256, P-384 or Ed25519. The
    /// certificate takes the key of the request and nothing else.
    #[schema(max_length = 16384)]
    pub csr: String,
}

/// A client certificate: good at one socket, for minutes, and as long as the login and the policies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClientCertificate {
    /// The certificate in PEM.
    pub certificate: String,
    /// The certificate in PEM of the organisation's authority, which signed it.
    pub authority: String,
    /// The e-mail address in the certificate.
    pub email: String,
    /// The socket's DNS name.
    pub host: String,
    /// The port at which clients reach the socket by its name.
    pub port: u16,
    /// The end of the certificate's validity.
    #[serde(with = "time::serde::rfc3339")]
    pub valid_until: OffsetDateTime,
}

/// Asks for an ssh certificate for a person's key. `POST /v1/client/ssh-certificate`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateClientSshCertificate {
    /// The DNS name of the socket in front of the host.
    #[schema(example = "wandering-shape-7752.localhost")]
    pub host: String,
    /// The public key as in a `.pub` file: Ed25519, ECDSA (P-256, P-384) or RSA of at least 2,048 bits.
    #[schema(max_length = 16384)]
    pub public_key: String,
}

/// An ssh certificate of a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClientSshCertificate {
    /// The certificate as in a `-cert.pub` file.
    pub certificate: String,
    /// The public key of the organisation's authority, which signed it.
    pub authority: String,
    /// The e-mail address: the key id of the certificate, and its first principal.
    pub email: String,
    /// The principals of the certificate, which hosts compare with their own lists.
    pub principals: Vec<String>,
    /// The socket's DNS name.
    pub host: String,
    /// The port at which the socket is reached by its name.
    pub port: u16,
    /// The end of the certificate's validity. A session that began before goes on.
    #[serde(with = "time::serde::rfc3339")]
    pub valid_until: OffsetDateTime,
}

/// Signs the key of a host. `POST /v1/sockets/{id}/ssh-host-certificate`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateSshHostCertificate {
    /// The public host key as in `/etc/ssh/ssh_host_ed25519_key.pub`.
    #[schema(max_length = 16384)]
    pub public_key: String,
}

/// A certificate of a host behind a socket, for ssh clients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SshHostCertificate {
    /// The certificate, for `HostCertificate` of sshd.
    pub certificate: String,
    /// The names in the certificate.
    pub names: Vec<String>,
    /// The line for the clients' `known_hosts`.
    pub known_hosts: String,
    /// The end of the certificate's validity.
    #[serde(with = "time::serde::rfc3339")]
    pub valid_until: OffsetDateTime,
}

/// The settings of the organisation's authority for ssh keys. `GET /v1/ssh-authority`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SshAuthority {
    /// The public key: one line for `TrustedUserCAKeys` of sshd, and after `@cert-authority` in `known_hosts`.
    pub public_key: String,
    /// What persons may do (ssh-keygen(1), `-O`).
    #[schema(example = json!(["permit-port-forwarding", "permit-pty"]))]
    pub extensions: Vec<String>,
    /// The one command that certificates of persons allow, where there is one.
    pub force_command: Option<String>,
    /// Whether certificates carry the principal `mysocket_ssh_signed` too, for hosts that were set up for mysocket.
    pub mysocket_principal: bool,
}

/// Changes the authority's settings; absent fields stay as they are. `PATCH /v1/ssh-authority`
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdateSshAuthority {
    /// What persons may do: of `permit-X11-forwarding`, `permit-agent-forwarding`, `permit-port-forwarding`,
    /// `permit-pty` and `permit-user-rc`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 5)]
    pub extensions: Option<Vec<String>>,
    /// The one command that certificates of persons allow; `null`: any.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<String>, min_length = 1, max_length = 1024)]
    pub force_command: Option<Option<String>>,
    /// Whether certificates carry the principal of mysocket too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mysocket_principal: Option<bool>,
}

/// A field that is there, `null` or not.
fn present<'de, T: Deserialize<'de>, D: serde::Deserializer<'de>>(value: D) -> Result<Option<T>, D::Error> {
    T::deserialize(value).map(Some)
}
