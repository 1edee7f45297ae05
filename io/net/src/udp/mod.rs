//! UDP: opening ports, and many datagrams with one system call.
//!
//! May use `tcp`, for the errors of opening a port.

mod listen;
mod port;

pub use listen::{listen_udp, listen_udp_group};
pub use port::{Received, UdpPort};
