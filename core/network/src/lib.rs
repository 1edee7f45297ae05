//! Networks of machines: names, addresses, and what may talk to what.
//!
//! [`name`] and [`address`] have the words. [`members`] leases addresses to machines. [`policy`] has endpoints and rules, reads them from a document, and decides
//! about flows. [`nft`] compiles a policy into a table of nftables, and may use the others.

pub mod address;
pub mod members;
pub mod name;
pub mod nft;
pub mod policy;
