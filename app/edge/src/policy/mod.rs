//! Decisions by a socket's settings: policies, limits, user names and passwords.
//!
//! May use `lifecycle`.

pub(crate) mod basic_auth;
pub(crate) mod judge;
pub(crate) mod limits;
