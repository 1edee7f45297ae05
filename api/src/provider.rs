//! Identity providers.

use sallyport_model::{ProviderId, ProviderKind, ProviderName};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;

use crate::{Secret, schema, socket::present};

/// Adds an identity provider to the account. `POST /v1/providers`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateProvider {
    /// The name of the provider: 1 to 32 lower-case letters, digits and hyphens. The name is part of the address that
    /// the provider sends browsers back to.
    #[schema(value_type = String, min_length = 1, max_length = 32, example = "google")]
    pub name: ProviderName,
    /// What it speaks.
    #[schema(schema_with = schema::provider_kind)]
    pub kind: ProviderKind,
    /// The issuer, for `oidc`; for `microsoft` and `github` an address instead of the usual one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 512, example = "https://id.example.com")]
    pub issuer: Option<String>,
    /// The id of the tenant, for `microsoft`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The client id that the provider gave; `local` has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schema(max_length = 512)]
    pub client_id: String,
    /// The client secret that the provider gave, or the secret that signs messages to the hook of `local`. The API
    /// never shows it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<Secret>,
    /// Scopes to ask for beside `openid`, `email` and `profile`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 20)]
    pub scopes: Vec<String>,
    /// The claim that names a person's groups, or a JSON pointer to it such as `/realm_access/roles`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 128, example = "groups")]
    pub groups_claim: Option<String>,
    /// Whether an e-mail address counts that the provider does not declare verified.
    #[serde(default)]
    pub trust_email: bool,
    /// Root certificates in PEM that verify the provider's certificate, in place of the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_pem: Option<String>,
    /// The URL that takes messages to the persons of `local`, by POST, in JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 512, example = "https://mail.example.com/sallyport")]
    pub hook: Option<String>,
    /// Whether the persons of `local` need one-time codes beside their passwords.
    #[serde(default)]
    pub require_totp: bool,
    /// The interval in minutes at which control asks the provider whether logins are still good; 0: never; 5 when
    /// absent. It applies to `oidc`, `google` and `microsoft`, where the provider gives refresh tokens or has
    /// introspection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1440)]
    pub check_minutes: Option<u16>,
}

/// Changes a provider; absent fields stay as they are. `PATCH /v1/providers/{id}`
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdateProvider {
    /// Another issuer or address.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<String>)]
    pub issuer: Option<Option<String>>,
    /// Another tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Another client id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// Another client secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<Secret>,
    /// The new scopes, all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scopes: Option<Vec<String>>,
    /// Another claim for groups; `null`: none.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<String>)]
    pub groups_claim: Option<Option<String>>,
    /// Whether an e-mail address counts that the provider does not declare verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust_email: Option<bool>,
    /// Other root certificates; `null`: the system's.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<String>)]
    pub ca_pem: Option<Option<String>>,
    /// Another hook; `null`: none.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<String>)]
    pub hook: Option<Option<String>>,
    /// Whether one-time codes are needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub require_totp: Option<bool>,
    /// The interval in minutes at which control asks the provider whether logins are still good; 0: never; `null`: the
    /// default.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<u16>, minimum = 0, maximum = 1440)]
    pub check_minutes: Option<Option<u16>>,
}

/// An identity provider of the account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Provider {
    /// Its id.
    #[schema(value_type = String, format = Uuid)]
    pub id: ProviderId,
    /// The name of the provider.
    #[schema(value_type = String)]
    pub name: ProviderName,
    /// What it speaks.
    #[schema(schema_with = schema::provider_kind)]
    pub kind: ProviderKind,
    /// The issuer, or the address of the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// The tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The client id; empty for `local`.
    pub client_id: String,
    /// Whether there is a client secret. The API never shows the secret.
    pub has_secret: bool,
    /// The requested scopes besides `openid`, `email` and `profile`.
    pub scopes: Vec<String>,
    /// The claim that names a person's groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups_claim: Option<String>,
    /// Whether e-mail addresses count that the provider does not declare verified.
    pub trust_email: bool,
    /// Root certificates in PEM that verify the provider's certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_pem: Option<String>,
    /// The URL that takes messages to the persons of `local`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<String>,
    /// Whether the persons of `local` need one-time codes.
    #[serde(default)]
    pub require_totp: bool,
    /// The interval in minutes at which control asks the provider whether logins are still good; 0: never.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 1440)]
    pub check_minutes: u16,
    /// The address to register at the provider for OpenID Connect Back-Channel Logout 1.0. Empty where the provider has
    /// none.
    #[serde(default)]
    pub backchannel_logout_uri: String,
    /// The address to register at the provider for OpenID Connect RP-Initiated Logout 1.0. Empty where the provider has
    /// none.
    #[serde(default)]
    pub post_logout_redirect_uri: String,
    /// The redirect URI to register at the provider. Empty for `local`.
    #[schema(example = "https://login.example.com/callback/5f2b8f0e9d7c4c2f8f9e0a1b2c3d4e5f/google")]
    pub redirect_uri: String,
    /// When the provider was added.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
}

/// The result of testing an identity provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProviderFound {
    /// Whether people can log in there.
    pub works: bool,
    /// The result in a sentence.
    pub detail: String,
    /// The authorization endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorization_endpoint: Option<String>,
    /// The number of signing keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<u32>,
}
