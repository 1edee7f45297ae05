//! Keys, tokens, passwords, random numbers, and limits on attempts. This room does not read the store.
//!
//! May use: `cluster`, `problem`.

pub(crate) mod access_token;
pub(crate) mod attempt_limits;
pub(crate) mod attempts;
pub(crate) mod client;
pub(crate) mod device_limits;
mod known_clients;
pub(crate) mod mysocket_client_token;
pub(crate) mod mysocket_token;
pub(crate) mod password;
pub(crate) mod random;
pub(crate) mod secrets;
pub(crate) mod signed_token;
pub(crate) mod token_bucket;
