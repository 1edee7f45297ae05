//! Names that people trust: domains of organisations, certificates for names, accounts at ACME servers.
//!
//! May use: `db`, `cluster`.

pub(crate) mod acme;
pub(crate) mod certificates;
pub(crate) mod domains;
