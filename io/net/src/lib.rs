//! Listeners, TLS and socket craft: everything of Sallyport that touches a TCP or UDP socket before bytes have a meaning.
//!
//! - [`LocalCa`] keeps the built-in authority's files, [`Certificates`] makes and renews server certificates from it;
//! - [`server_config`] and [`client_config`] are the two TLS configurations that every program uses;
//! - [`Listening`] opens the public ports, or takes them over from systemd; [`Acceptor`] takes connections from one;
//! - [`resolve`], [`connect_tcp`] and [`connect_tls`] reach other machines, [`Outbound`] says by which way;
//! - [`TakeoverOffer`] and [`Takeover`] pass the open ports from a process to the one that replaces it;
//! - [`UdpPort`] takes and sends datagrams; [`OwnPorts`] are the ports that sockets have for themselves;
//! - [`LeanTls`] is TLS that keeps no buffers for connections that rest; [`NearTcp`] is a TCP connection that goes where it
//!   is used;
//! - [`relay()`] carries bytes between two connections; [`read_header`] and its kin speak the PROXY protocol;
//! - [`Shutdown`] tells every task of a process that it is over.

mod acceptor;
mod background;
mod budget;
mod ca;
mod certificates;
mod client;
mod client_hello;
mod congestion;
mod connect;
mod failure;
mod given_up;
mod judged;
mod lean_tls;
mod listening;
mod near_tcp;
mod nodes;
mod own_ports;
mod pass_writes;
mod pin;
mod process;
mod provider;
mod proxy;
mod proxy_connect;
mod proxy_protocol;
mod read_ahead;
mod recorded;
mod relay;
mod server;
mod shutdown;
mod socket;
mod systemd;
mod takeover;
mod udp;

pub use acceptor::Acceptor;
pub use background::spawn_boxed;
pub use ca::{CA_CERTIFICATE_FILE, CA_KEY_FILE, CaError, LocalCa};
pub use certificates::{
    CertificateEnds, CertificateStats, Certificates, GivenError, MAX_CACHED_CERTIFICATES, MAX_NEW_NAMES_PER_SECOND,
};
pub use client::{Trust, TrustError, client_config, client_config_by, client_config_of_pem, roots};
pub use client_hello::{offers_session, offers_tls13};
pub use congestion::{Congestion, CongestionError};
pub use connect::{
    MAX_ADDRESSES, Outbound, connect_tcp, connect_tcp_by, connect_tcp_to, connect_tls, connect_tls_by, resolve,
    start_lean_tls, start_tls,
};
pub use failure::{ProxyFailure, TlsFailure};
pub use given_up::GivenUp;
pub use judged::{Presented, judged_by};
pub use lean_tls::LeanTls;
pub use listening::{BACKLOG, ListenError, Listening, listen, listen_by, listen_udp};
pub use near_tcp::NearTcp;
pub use nodes::{
    NODE_CLIENTS_ALPN, NodeTlsError, client_config_of_node, client_config_of_node_for, server_config_for_nodes,
    server_config_of_node,
};
pub use own_ports::{MAX_PASSED_PORTS, Opened, OwnPorts};
pub use pin::{PinMismatch, PresentedRoot, fetch_root, fetch_root_by};
pub use process::process_figures;
pub use proxy::{Proxy, ProxyEnvironment, ProxyError, ProxyKind, ProxyVariableError};
pub use proxy_protocol::{
    MAX_HEADER_BYTES as MAX_PROXY_HEADER_BYTES, ProxiedAddresses, ProxyHeaderError, header_v1, header_v2, read_header,
};
pub use read_ahead::ReadAhead;
pub use recorded::{MAX_RECORDED_BYTES, Recorded};
pub use relay::{Broke, Carried, Pace, RelayEnd, Side, Unpaced, relay};
pub use sallyport_pki::{CertificateSummary, Fingerprint, FingerprintError, RootInfo};
pub use server::{
    Negotiated, Welcome, lean_server_config, negotiated, server_config, server_config_for, server_config_for_holders,
    server_config_for_returning, server_config_for_some_holders, server_config_for_tunnels,
};
pub use shutdown::Shutdown;
pub use socket::{acknowledge, keep_for_end, set_notsent_lowat, set_user_timeout};
pub use systemd::{notify_ready, notify_status, notify_stopping};
pub use takeover::{Asked, HandOver, Successor, Takeover, TakeoverError, TakeoverOffer};
pub use udp::{Received, UdpPort};
