//! The NAT of the router: its sessions and its log. The rules are those of core/packet.

mod log;
mod view;

pub use log::{LogLine, NatLog};
pub use view::{PoolUse, PortUse};

pub use crate::nat_tables::{MAX_INSIDE, NatEngine, NatSetup};
