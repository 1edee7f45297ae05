//! The firewall of the router: a policy as tables of the program.

mod tables;

pub use tables::{CompiledPolicy, MAX_PREFIXES, MAX_RANGES, MAX_RULES, PolicyTooLarge};
pub(crate) use tables::{NAMES, SETTINGS_BYTES, fill, finish, prepare, standing, standing_digest};
