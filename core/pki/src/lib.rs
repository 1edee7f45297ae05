//! The built-in certificate authority: one root, and short-lived server certificates signed by it (RFC 5280).
//!
//! Nothing here reads a clock, a file or a random source: the time, serial numbers and key pairs are arguments. The
//! one exception is inside ECDSA signing itself, whose nonce is the cryptographic library's own.
//!
//! A root made here can speak for one domain only (name constraints, RFC 5280 section 4.2.1.10). Whoever steals its
//! key cannot impersonate anything else to the machines that trust it.

mod authority;
mod fingerprint;
mod renewal;
mod root;

pub use authority::{
    Authority, BACKDATE, CreateError, IssueError, Issued, LEAF_LIFETIME, LoadError, MAX_COMMON_NAME_CHARS,
    ROOT_BACKDATE, ROOT_LIFETIME,
};
pub use fingerprint::{Fingerprint, FingerprintError};
pub use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
pub use renewal::{Renewal, renewal};
pub use root::{RootError, RootInfo};
