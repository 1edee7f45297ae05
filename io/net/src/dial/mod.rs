//! Reaching other machines: TCP and TLS, directly or through a proxy.
//!
//! May use `tcp`, `proxy` and `tls`.

mod outbound;
mod root;
mod tls;

pub use outbound::{Outbound, connect_tcp, connect_tcp_by};
pub use root::{PresentedRoot, fetch_root, fetch_root_by};
pub use tls::{connect_tls, connect_tls_by, start_tls, start_unbuffered_tls};
