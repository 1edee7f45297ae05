//! Names that people trust: domains of organisations, certificates for names, accounts at ACME servers, zones.
//!
//! May use: `db`, `cluster`.

pub(crate) mod acme;
pub(crate) mod certificates;
pub(crate) mod domains;
pub(crate) mod wanted;
pub(crate) mod zones;
