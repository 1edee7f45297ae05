//! The NAT of the router: its settings and its tables. The rules are those of core/packet.

mod settings;
mod tables;

pub(crate) use settings::{KEY, SETTINGS_BYTES, Settings};
pub use settings::{MAX_INSIDE, NatEngine, NatSetup};
pub(crate) use tables::{LOCK, NAMES, end_of, fill, finish, prepare};
