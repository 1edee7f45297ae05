//! Identities for sockets that require one: providers, logins, service tokens, certificate authorities.
//!
//! May use: `accounts`, `db`.

pub(crate) mod authorities;
pub(crate) mod device_logins;
pub(crate) mod person_sessions;
pub(crate) mod persons;
pub(crate) mod provider_sessions;
pub(crate) mod providers;
pub(crate) mod service_tokens;
pub(crate) mod used_once;
