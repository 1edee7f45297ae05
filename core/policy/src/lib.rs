//! Who may use a socket: lists of networks, countries and autonomous systems that are allowed or denied.
//!
//! An [`AccessList`] is what people write, and what is stored. [`AccessList::compile`] checks it and makes a
//! [`CompiledList`], whose [`decide`](CompiledList::decide) answers for one client without allocating. Pure: where an
//! address is and whose it is are arguments, looked up by the caller. Nothing here is about HTTP, so the same list
//! works for TCP, TLS and UDP.

mod country;
mod list;
mod ranges;
mod rule;

pub use country::{Country, CountryError};
pub use list::{AccessError, AccessList, CompiledList, Decision, MAX_RULES};
pub use rule::{Asn, AsnError, Network, NetworkError, Rule, RuleError};
