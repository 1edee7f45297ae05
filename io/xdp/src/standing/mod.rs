//! What stands in the kernel: the NAT with its sessions and its log, and the policy.

mod nat;
mod nat_log;
mod policy;

pub use nat::{PoolUse, PortUse};
pub use nat_log::{LogLine, NatLog};
