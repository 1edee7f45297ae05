//! Access control of sockets: access lists and policies.
//!
//! Two languages, the second built on the first:
//!
//! - An [`AccessList`] allows or denies networks, countries and autonomous systems. [`AccessList::compile`] checks it
//!   and returns a [`CompiledList`]. Its [`decide`](CompiledList::decide) answers for one client.
//! - A policy is a [`Document`] of rules: who, from where, when and what. [`PolicySet::compile`] compiles the policies
//!   of one socket to a [`PolicySet`], whose [`decide`](PolicySet::decide) answers a [`PolicyRequest`] and names the
//!   rule that decided.
//!
//! [`DialedNetworks`] concerns the other direction: the addresses that edges may be made to dial.
//!
//! Pure: the location of an address, the identity and the time are arguments.

mod check;
mod compiled;
mod country;
mod covers;
mod dialed;
mod document;
mod list;
mod path;
mod ranges;
mod rule;
mod scope;
mod set;
mod times;
mod zones;

pub use check::Flaw;
pub use country::{Country, CountryError};
pub use dialed::DialedNetworks;
pub use document::{
    Document, DocumentError, Effect, MAX_CONDITION_ENTRIES, MAX_DOCUMENT_BYTES, MAX_METHOD_BYTES, MAX_POLICY_RULES,
    MAX_RULE_NAME_CHARS, MAX_SSH_COMMAND_BYTES, MAX_WINDOWS, PolicyRule, SshExtension, SshGrant, What, When, Who,
};
pub use list::{AccessError, AccessList, CompiledList, ListDecision, MAX_RULES};
pub use path::{MAX_PATTERN_BYTES, PathPattern, PathPatternError};
pub use rule::{Asn, AsnError, Network, NetworkError, Rule, RuleError};
pub use scope::{MAX_SCOPE_ENTRIES, Reached, ScopeError, check_scope, scope_permits};
pub use set::{
    Condition, DecidedBy, Decision, Explained, InlineAllow, PersonView, PolicyError, PolicyRequest, PolicySet,
};
pub use times::{Clock, Day, Moment, TimeError, Window, Zone};
