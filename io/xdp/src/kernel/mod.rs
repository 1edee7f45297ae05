//! What the kernel knows, by netlink: devices, routes, neighbours. Of one network namespace, that of the process.

mod lists;
pub mod netlink;
mod route;

pub use lists::{Device, Kernel, Neighbor, forwards};
pub use route::{Hop, Route, routes};
