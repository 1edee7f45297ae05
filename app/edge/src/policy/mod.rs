//! What a socket's owner lets in, as decisions: policies, limits, user names and passwords.
//!
//! May use `lifecycle`.

pub(crate) mod basic_auth;
pub(crate) mod judge;
pub(crate) mod limits;
