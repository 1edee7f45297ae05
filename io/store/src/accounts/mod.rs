//! Accounts and their credentials: passwords, sessions, tokens, ssh keys; and their organisations.
//!
//! May use: `db`.

pub(crate) mod account;
pub(crate) mod account_access;
pub(crate) mod invitations;
pub(crate) mod organisations;
pub(crate) mod second_factor;
pub(crate) mod sessions;
pub(crate) mod setup;
pub(crate) mod ssh_keys;
pub(crate) mod tokens;
