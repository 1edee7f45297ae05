//! What is done, whatever the words in which it was asked: by the handlers of `/v1`, by the paths of the original
//! clients, by the ssh side of an edge. Every rule is here once.

mod account_access;
mod accounts;
mod authorities;
mod origins;
mod persons;
mod policies;
mod providers;
mod regions;
mod settings;
mod sockets;
mod ssh_keys;
mod tunnels;

pub(crate) use account_access::{MadeReset, RESET_PREFIX, RESET_SECONDS};
pub(crate) use accounts::{REFRESH_SECONDS, REFRESH_TOKEN_PREFIX};
pub(crate) use authorities::{KnownAuthorities, SshOptions};
pub(crate) use persons::{LINK_PREFIX, LinkFor, MadeLink};
pub(crate) use policies::PlaceChange;
pub(crate) use sockets::Lifetime;
pub(crate) use ssh_keys::PublicKeyText;
pub(crate) use tunnels::ANY_SOCKET;
