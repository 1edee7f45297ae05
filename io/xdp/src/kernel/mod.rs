//! What the kernel knows, by netlink: devices, routes, neighbours. Of one network namespace, that of the process.

mod lists;
pub mod netlink;
mod probe;
mod route;

pub use lists::{Device, Kernel, Neighbor, forwards};
pub use probe::gateways;
pub(crate) use probe::probe;
pub use route::{Hop, Route, routes};
