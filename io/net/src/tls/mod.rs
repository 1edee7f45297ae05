//! TLS: certificates and their authority, the configurations of every program, and the stream without buffers.
//!
//! May use no other room.

mod budget;
mod ca;
mod certificates;
mod client;
mod client_hello;
mod failure;
mod nodes;
pub(crate) mod pin;
mod provider;
mod public;
mod server;
mod server_verifier;
mod unbuffered;

pub use ca::{CA_CERTIFICATE_FILE, CA_KEY_FILE, CaError, LocalCa};
pub use certificates::{
    CertificateEnds, CertificateStats, Certificates, GivenCertificateError, MAX_CACHED_CERTIFICATES,
    MAX_NEW_NAMES_PER_SECOND,
};
pub use client::{Trust, TrustError, client_config, client_config_by, client_config_of_pem, client_config_with, roots};
pub use client_hello::{offers_session, offers_tls13};
pub use failure::TlsFailure;
pub(crate) use failure::handshake_failure;
pub use nodes::{
    NODE_CLIENTS_ALPN, NodeTlsError, client_config_of_node, client_config_of_node_for, server_config_for_nodes,
    server_config_of_node,
};
pub use pin::PinMismatch;
pub use public::{ACME_TLS_ALPN, PublicCertificate, server_config_for_challenge};
pub use server::{
    CertificateAdmission, HTTP3_ALPN, Negotiated, QuicProtocols, negotiated, server_config, server_config_for,
    server_config_for_holders, server_config_for_quic, server_config_for_returning, server_config_for_some_holders,
    server_config_for_tunnels, unbuffered_server_config,
};
pub use server_verifier::{PresentedChain, custom_server_verifier};
pub use unbuffered::UnbufferedTlsStream;
