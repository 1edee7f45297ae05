//! The packet path in the kernel: loads, attaches and reads the programs of packet/bpf.
//!
//! [`Router`] is the router of one network namespace. Its state is pinned in a folder of bpffs, and outlives the
//! process. [`balance`] is a balancer, and an edge behind one. [`generate`] sends frames and counts
//! them. [`kernel`] reads devices, routes and neighbours from the kernel.

mod attach;
pub mod balance;
pub mod dump;
mod error;
mod explain;
mod fib;
pub mod generate;
pub mod kernel;
mod namespace;
pub mod nat;
mod object;
mod pins;
pub mod policy;
mod programs;
mod reason;
mod router;
mod standing;
mod table;

pub use error::{XdpError, require_root};
pub use explain::{NewSource, Question, Runner, Verdict};
pub use fib::{FibMaps, FibSizes, FibStatus, Link, Shared, Written};
pub use namespace::{Namespace, Visit};
pub use object::has_program;
pub use pins::Changing;
pub use reason::{Action, Reason};
pub use router::{Change, Count, Router, StandingPort};
pub use standing::{LogLine, NatLog, PoolUse, PortUse};
pub use table::{MAX_ROUTER_PORTS, Urpf};
