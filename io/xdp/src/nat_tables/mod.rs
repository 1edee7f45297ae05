//! The settings and the tables of the NAT, as the program has them. Uses pins.

mod settings;
mod tables;

pub(crate) use settings::{KEY, SETTINGS_BYTES, Settings};
pub use settings::{MAX_INSIDE, NatEngine, NatSetup};
pub(crate) use tables::{LOCK, NAMES, end_of, fill, finish, prepare};
