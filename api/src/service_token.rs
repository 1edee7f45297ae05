//! Service tokens, which machines show to sockets that ask for an identity.

use sallyport_model::{DisplayName, PersonEmail, ServiceTokenId, ServiceTokenScope, SocketId};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;

use crate::{Secret, schema};

/// A new service token. `POST /v1/service-tokens`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateServiceToken {
    /// The name of the token, unique in the organisation: one line of 1 to 100 characters. Policies use the name.
    #[schema(value_type = String, min_length = 1, max_length = 100, example = "ci")]
    pub name: DisplayName,
    /// The ids of the sockets for which the token is valid; all of them, future ones too, when empty or absent.
    #[schema(value_type = Vec<uuid::Uuid>, max_items = 100)]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sockets: Vec<SocketId>,
    /// The end of the token; a token without one does not end.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<OffsetDateTime>,
    /// What it reaches at most.
    #[schema(schema_with = schema::service_token_scope, required = false)]
    #[serde(default, skip_serializing_if = "ServiceTokenScope::is_empty")]
    pub scope: ServiceTokenScope,
    /// The e-mail address that origins get in `X-Auth-Email`. Policies do not take the token for a person with that
    /// address. Origins get `service` as the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "calendar@example.com")]
    pub email: Option<PersonEmail>,
    /// The name that origins get in `X-Auth-Name`; the token's name when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, min_length = 1, max_length = 100)]
    pub display_name: Option<DisplayName>,
}

/// A service token, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServiceToken {
    /// The id of the token, for `Sallyport-Token-Id`.
    #[schema(value_type = uuid::Uuid)]
    pub id: ServiceTokenId,
    /// The name.
    #[schema(value_type = String)]
    pub name: DisplayName,
    /// The sockets for which the token is valid; all when empty.
    #[schema(value_type = Vec<uuid::Uuid>)]
    pub sockets: Vec<SocketId>,
    /// When it was made.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// When the token ends; absent when it does not.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<OffsetDateTime>,
    /// What it reaches at most.
    #[schema(schema_with = schema::service_token_scope, required = false)]
    #[serde(default, skip_serializing_if = "ServiceTokenScope::is_empty")]
    pub scope: ServiceTokenScope,
    /// The end of the last of the token's client certificates; absent without one.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub certified_until: Option<OffsetDateTime>,
    /// The e-mail address that origins get.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub email: Option<PersonEmail>,
    /// The name that origins get in the place of the token's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub display_name: Option<DisplayName>,
}

/// A service token that was just made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreatedServiceToken {
    /// What it is.
    #[serde(flatten)]
    pub details: ServiceToken,
    /// The secret, for `Sallyport-Token-Secret`. Shown once.
    pub secret: Secret,
}

/// A client certificate for a service token. `POST /v1/service-tokens/{id}/certificate`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateServiceTokenCertificate {
    /// A certificate request (PKCS #10) in PEM. The certificate takes the key of the request and nothing else.
    #[schema(max_length = 16384)]
    pub csr: String,
    /// The lifetime of the certificate in days, 30 when absent; a certificate never outlives the token.
    #[schema(minimum = 1, maximum = 397)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub days: Option<u32>,
}

/// A client certificate of a service token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServiceTokenCertificate {
    /// The certificate in PEM. It names the token by the URI `urn:sallyport:service-token:` and its id.
    pub certificate: String,
    /// The certificate in PEM of the organisation's authority that signed it.
    pub authority: String,
    /// The serial number, in hexadecimal digits.
    pub serial: String,
    /// The end of the certificate's validity.
    #[serde(with = "time::serde::rfc3339")]
    pub valid_until: OffsetDateTime,
}
