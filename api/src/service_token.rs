//! Service tokens: with which machines come to sockets that ask who comes.

use sallyport_model::{DisplayName, ServiceTokenId, SocketId};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;

use crate::Secret;

/// A new service token. `POST /v1/service-tokens`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateServiceToken {
    /// What it is called, differently from the others: one line of 1 to 100 characters. Policies name it so.
    #[schema(value_type = String, min_length = 1, max_length = 100, example = "ci")]
    pub name: DisplayName,
    /// The ids of the sockets that it is for; all, those to come too, when empty or absent.
    #[schema(value_type = Vec<uuid::Uuid>, max_items = 100)]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sockets: Vec<SocketId>,
    /// When it ends; it does not end when absent.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<OffsetDateTime>,
}

/// A service token, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServiceToken {
    /// Its id, which goes into `Sallyport-Token-Id`.
    #[schema(value_type = uuid::Uuid)]
    pub id: ServiceTokenId,
    /// What it is called.
    #[schema(value_type = String)]
    pub name: DisplayName,
    /// The sockets that it is for; all when empty.
    #[schema(value_type = Vec<uuid::Uuid>)]
    pub sockets: Vec<SocketId>,
    /// When it was made.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// When it ends; absent when it does not.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<OffsetDateTime>,
}

/// A service token that was just made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreatedServiceToken {
    /// What it is.
    #[serde(flatten)]
    pub details: ServiceToken,
    /// Goes into `Sallyport-Token-Secret`. Shown this once.
    pub secret: Secret,
}
