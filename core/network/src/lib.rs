//! Networks of machines: names, addresses, and what may talk to what.
//!
//! [`name`] and [`address`] have the words. [`members`] leases addresses to machines, and [`ranges`] finds ranges for a
//! network. [`policy`] has endpoints and rules, reads them from a document, and decides about flows. [`route`] is a
//! network as edges know it. [`relay`] decides what becomes of a packet at an edge. [`nft`] compiles a policy into a table
//! of nftables.

pub mod address;
pub mod members;
pub mod name;
pub mod nft;
pub mod policy;
pub mod ranges;
pub mod relay;
pub mod route;
