//! The NAT of the router: its settings and tables, its sessions, and its log. The rules are those of core/packet.

mod log;
mod settings;
mod tables;
mod view;

pub use log::{LogLine, NatLog};
pub use settings::{MAX_INSIDE, NatEngine, NatSetup};
pub(crate) use settings::{SETTINGS_BYTES, Settings};
pub(crate) use tables::{LOCK, NAMES, fill, finish, prepare};
pub use view::{PoolUse, PortUse};
