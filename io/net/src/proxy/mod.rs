//! Proxies: the one that leads out of this network, and the PROXY protocol of balancers in front.
//!
//! May use `tcp`.

mod address;
mod connect;
mod failure;
mod protocol;

pub use address::{Proxy, ProxyEnvironment, ProxyError, ProxyKind, ProxyVariableError};
pub(crate) use connect::through;
pub(crate) use failure::CHECK_PROXY;
pub use failure::ProxyFailure;
pub use protocol::{MAX_HEADER_BYTES, ProxiedAddresses, ProxyHeaderError, header_v1, header_v2, read_header};
