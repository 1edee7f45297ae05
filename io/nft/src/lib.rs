//! Rules of the kernel's packet filter, set by the program `nft`, and flows of its connection tracking, cut by
//! `conntrack`.

mod flows;
mod program;
mod rules;

pub use flows::{FlowsError, MAX_FLOWS, TrackedFlow, cut, flows};
pub use rules::{Counter, MAX_SCRIPT_BYTES, NftError, apply, check, counters, tables};
