//! Listeners, TLS and sockets: everything of Sallyport that touches TCP or UDP before bytes have a meaning.
//!
//! | room | what lives there | may use |
//! | --- | --- | --- |
//! | `tcp` | names and addresses, opening and connecting sockets, their options, streams around them, [`relay()`] | |
//! | `udp` | [`UdpPort`]: many datagrams with one system call | `tcp` |
//! | `proxy` | the proxy on the way out, and the PROXY protocol of balancers in front | `tcp` |
//! | `tls` | certificates and their authority, the configurations of every program, [`UnbufferedTlsStream`] | |
//! | `dial` | reaching other machines by TCP and TLS: [`connect_tcp`], [`connect_tls`] | `tcp`, `proxy`, `tls` |
//! | `process` | [`Listening`], [`Takeover`] by the next process, systemd, [`Shutdown`] | `tcp`, `udp` |
//!
//! All rooms are private; this file re-exports the public items.

mod dial;
mod process;
mod proxy;
mod tcp;
mod tls;
mod udp;

pub use dial::{
    Outbound, PresentedRoot, connect_tcp, connect_tcp_by, connect_tls, connect_tls_by, fetch_root, fetch_root_by,
    start_tls, start_unbuffered_tls,
};
pub use process::{
    HandOver, Listening, MAX_PASSED_PORTS, OpenPort, OwnPorts, PassedPort, Shutdown, Successor, Takeover,
    TakeoverError, TakeoverOffer, TakeoverRequest, notify_main_process, notify_ready, notify_status, notify_stopping,
    process_figures,
};
pub use proxy::{
    MAX_HEADER_BYTES as MAX_PROXY_HEADER_BYTES, ProxiedAddresses, Proxy, ProxyEnvironment, ProxyError, ProxyFailure,
    ProxyHeaderError, ProxyKind, ProxyVariableError, header_v1, header_v2, read_header,
};
pub use sallyport_pki::{CertificateSummary, Fingerprint, FingerprintError, RootInfo};
#[cfg(any(target_os = "linux", target_os = "android"))]
pub use tcp::tcp_path;
pub use tcp::{
    Acceptor, BACKLOG, Congestion, CongestionError, ListenError, MAX_ADDRESSES, MAX_REPLAY_BYTES, Pace, ReadAhead,
    RelayCounts, RelayEnd, RelayError, ReplayStream, ResetWatcher, ShardTcpStream, Side, TcpPath, Unpaced, acknowledge,
    connect_tcp_as, connect_tcp_to, keep_for_end, listen, listen_by, relay, resolve, set_notsent_lowat,
    set_user_timeout, shortest_round_trip,
};
pub use tls::{
    ACME_TLS_ALPN, CA_CERTIFICATE_FILE, CA_KEY_FILE, CaError, CertificateAdmission, CertificateEnds, CertificateStats,
    Certificates, GivenCertificateError, HTTP3_ALPN, LocalCa, MAX_CACHED_CERTIFICATES, MAX_NEW_NAMES_PER_SECOND,
    NODE_CLIENTS_ALPN, Negotiated, NodeTlsError, PinMismatch, PresentedChain, PublicCertificate, QuicProtocols,
    TlsFailure, Trust, TrustError, UnbufferedTlsStream, client_config, client_config_by, client_config_of_node,
    client_config_of_node_for, client_config_of_pem, client_config_with, custom_server_verifier, negotiated,
    offers_session, offers_tls13, roots, server_config, server_config_for, server_config_for_challenge,
    server_config_for_holders, server_config_for_nodes, server_config_for_quic, server_config_for_returning,
    server_config_for_some_holders, server_config_for_tunnels, server_config_of_node, unbuffered_server_config,
};
pub use udp::{Received, UdpPort, listen_udp, listen_udp_group};
