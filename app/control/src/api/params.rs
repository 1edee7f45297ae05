//! Parameters of paths and headers, as the description of the API has them.

#![expect(dead_code, reason = "the description reads the fields, and handlers take them as plain text")]

use utoipa::IntoParams;
use uuid::Uuid;

/// A certificate.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct CertificatePath {
    /// The certificate's id, or one of its names.
    id: String,
}

/// A domain.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct DomainPath {
    /// The domain's name.
    name: String,
}

/// A zone.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct ZonePath {
    /// The zone's name.
    name: String,
}

/// A record of a zone.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct ZoneRecordPath {
    /// The zone's name.
    name: String,
    /// The record's id.
    id: Uuid,
}

/// A network of machines.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct NetworkPath {
    /// The network's name or id.
    network: String,
}

/// A machine of a network.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct MachinePath {
    /// The network's name or id.
    network: String,
    /// The machine's name or id.
    machine: String,
}

/// A site.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct BalancerPath {
    /// The site, which is a region.
    site: String,
}

/// An edge.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct EdgePath {
    /// The edge's id.
    id: Uuid,
}

/// An invitation.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct InvitationPath {
    /// The invitation's id.
    id: Uuid,
}

/// A member of an organisation.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct MemberPath {
    /// The member's id or e-mail address.
    id: String,
}

/// A direct origin of a socket.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct OriginPath {
    /// The socket's id, DNS name or name; or the beginning of its id.
    id: String,
    /// The origin's id.
    origin_id: Uuid,
}

/// A local person.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct PersonPath {
    /// The person's id or e-mail address.
    id: String,
}

/// A policy.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct PolicyPath {
    /// The policy's id or name.
    id: String,
}

/// An identity provider.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct ProviderPath {
    /// The provider's name.
    id: String,
}

/// A socket.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct SocketPath {
    /// The socket's id, DNS name or name; or the beginning of its id.
    id: String,
}

/// An API token or a service token.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct TokenPath {
    /// The token's id.
    id: Uuid,
}

/// A tunnel of a socket.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct TunnelPath {
    /// The socket's id, DNS name or name; or the beginning of its id.
    id: String,
    /// The tunnel's id or name, or the beginning of its id; with a name, `-` may stand for the socket.
    tunnel_id: String,
}

/// The state of a thing that a request is about.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
pub(super) struct IfMatchHeader {
    /// The `ETag` of an earlier response; a thing that has changed since is left alone (412 `precondition-failed`).
    #[param(rename = "if-match")]
    if_match: Option<String>,
}

/// The key that makes a creation repeatable.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
pub(super) struct IdempotencyHeader {
    /// Makes the request repeatable for 24 hours.
    #[param(rename = "idempotency-key", min_length = 1, max_length = 128, pattern = "^[!-~]+$")]
    idempotency_key: Option<String>,
}
