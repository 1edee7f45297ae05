//! The links of this machine: reads and watches devices, addresses and routes by netlink, and binds sockets to a link.
//!
//! [`devices()`] reads what [`sallyport_links_model::select()`] takes. [`Watch`] tells when to read again. [`bind()`] makes
//! a socket leave by one link.
#![cfg(target_os = "linux")]

mod bind;
mod devices;
mod watch;

pub use bind::{Bound, bind};
pub use devices::devices;
pub use watch::Watch;
