//! The floor: how many sites announce a prefix at least, and who may stop.
//!
//! Each prefix has a document on the bus with the edges that announce it. Callers read it, change it here, and write it
//! by compare-and-set. If another edge was faster, they read it again.

mod permits;

pub use permits::{
    Announcer, Demand, MAX_ANNOUNCERS, MAX_PERMITS_BYTES, Permits, PermitsError, Verdict, Withdrawal, key,
};
