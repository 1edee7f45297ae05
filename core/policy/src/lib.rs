//! Who may use a socket.
//!
//! Two languages, the second built on the first:
//!
//! - An [`AccessList`] is a list of networks, countries and autonomous systems that are allowed or denied.
//!   [`AccessList::compile`] checks it and makes a [`CompiledList`], whose [`decide`](CompiledList::decide) answers for
//!   one client.
//! - A policy is a [`Document`] of rules: who, from where, when and what. [`PolicySet::compile`] makes the policies
//!   that concern one socket into a [`PolicySet`], whose [`decide`](PolicySet::decide) answers a [`Question`], and says
//!   which rule decided.
//!
//! [`DialedNetworks`] is about the other direction: which addresses edges may be made to dial.
//!
//! Pure: where an address is, whose it is, who somebody is and what time it is are arguments, looked up by the caller.

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
pub use set::{Condition, DecidedBy, Decision, Explained, InlineAllow, PersonView, PolicyError, PolicySet, Question};
pub use times::{Clock, Day, Moment, TimeError, Window, Zone};
