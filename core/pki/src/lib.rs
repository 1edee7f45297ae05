//! Certificate authorities (RFC 5280): the built-in one with its root and short-lived server certificates, and those of
//! organisations, which sign client certificates and ssh keys.
//!
//! Nothing here reads a clock, a file or a random source: times, serial numbers and key pairs are arguments. The
//! exception is the nonce of ECDSA signatures, which the cryptographic library draws.
//!
//! A root is valid for one domain only (name constraints, RFC 5280 section 4.2.1.10). With a stolen key nothing else
//! can be impersonated to the machines that trust the root.

mod authority;
mod chain;
mod client;
mod fingerprint;
mod holder;
mod node;
mod renewal;
mod root;
mod ssh;
mod summary;

pub use authority::{
    Authority, BACKDATE, CreateError, IssueError, Issued, LEAF_LIFETIME, LoadError, MAX_COMMON_NAME_CHARS,
    ROOT_BACKDATE, ROOT_LIFETIME,
};
pub use chain::{ChainError, checked_chain};
pub use client::{
    CLIENT_BACKDATE, CLIENT_LIFETIME, ClientAuthority, ClientCertificate, ClientIssueError, ClientRequest,
    ClientSubject, MAX_REQUEST_BYTES, MAX_SERVICE_LIFETIME, RequestError, SERVICE_TOKEN_URN, ServiceSubject,
    certificate_pem, certificate_request, server_request,
};
pub use fingerprint::{Fingerprint, FingerprintError};
pub use holder::{CertificateHolder, ServiceHolder};
pub use node::{CONTROL_NODE, NODE_DOMAIN, NODE_LIFETIME, edge_node, edge_of_certificate};
pub use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
pub use renewal::{Renewal, renewal};
pub use root::{RootError, RootInfo, check_anchors};
pub use ssh::{
    DEFAULT_SSH_EXTENSIONS, MAX_FORCE_COMMAND_BYTES, MYSOCKET_PRINCIPAL, SIGNED_PRINCIPAL, SSH_BACKDATE_SECONDS,
    SSH_EXTENSIONS, SSH_HOST_SECONDS, SSH_USER_SECONDS, SshAuthority, SshPerson, SshSignError, SshSubject,
    sign_ssh_key,
};
pub use summary::CertificateSummary;
