//! What a socket's owner lets in, as pure decisions: policies, limits, basic authentication.
//!
//! Uses `lifecycle`.

pub(crate) mod basic_auth;
pub(crate) mod judge;
pub(crate) mod limits;
