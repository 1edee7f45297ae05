//! The NAT of the router: its settings, tables, sessions and log. The rules are those of core/packet.

pub(crate) mod log;
pub(crate) mod settings;
pub(crate) mod tables;
mod view;

pub use log::{LogLine, NatLog};
pub use settings::{MAX_INSIDE, NatEngine, NatSetup};
pub use view::{PoolUse, PortUse};
