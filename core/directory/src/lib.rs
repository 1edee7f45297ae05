//! The directory: which edge holds which tunnel, as all edges and controls learn it. Also [`config`], the replication
//! of the configuration from control to the edges.
//!
//! Each edge writes two kinds of entries into a shared bucket: a [`Lease`], renewed every [`BEAT`], and a
//! [`TunnelEntry`] for each tunnel that is attached or detached. [`Holder`] decides what one edge writes and when;
//! [`Reader`] derives the state from received entries. Both are sans-IO state machines: `handle_…` takes events with
//! the current time, and `poll_…` returns actions.
//!
//! Assumptions and guarantees:
//!
//! - Messages may be lost, duplicated, delayed and reordered. Each [`TunnelEntry`] has a version that grows within one
//!   run of its edge (its *epoch*), and each [`Lease`] a beat: older entries than the known ones change nothing.
//! - A lease has the number of the edge's tunnels and a digest. A reader that differs in two consecutive beats requests
//!   all entries of that edge ([`Reader::poll_ask`]). So no loss is permanent.
//! - An edge that did not renew its lease for [`TERM`] is gone, with its tunnels. Clocks of machines are never
//!   compared: a term counts from the receipt of the beat, by the reader's monotonic clock.
//! - When an edge starts a later run (another process takes over on its machine), its tunnels count as held until its
//!   lease says otherwise, at most for [`TERM`]: connectors reconnect within moments.
//! - An entry that was read from the bucket, and not received when it was written, may be years old. The edge counts as
//!   live only after one further beat was received.
//! - A reader that receives nothing for [`SILENCE`] has lost the bus, not all edges at once. It keeps its state,
//!   reports since when ([`Reader::stale_since`]), and gives each lease a new term when messages arrive again. Every
//!   machine receives its own messages: an edge its lease, a control a message for this purpose
//!   ([`Reader::handle_delivery`]).

pub mod config;
mod entry;
mod holder;
mod reader;

use std::time::Duration;

pub use entry::{BalancedEdge, EdgeCard, EdgeState, EntryError, Lease, SCHEMA, TunnelEntry};
pub use holder::{DirectoryWrite, Holder};
pub use reader::{Ask, Change, EdgeView, Reader, Refused};

/// Interval of lease renewals.
pub const BEAT: Duration = Duration::from_secs(1);
/// Validity of a lease after the last received beat.
pub const TERM: Duration = Duration::from_secs(5);
/// Time without any message after which the bus counts as lost.
pub const SILENCE: Duration = Duration::from_millis(2_500);
/// Time to wait for an answer to [`Reader::poll_ask`] before asking again.
pub const ASK_AGAIN: Duration = Duration::from_secs(1);
/// Delay before a failed write is repeated.
pub const WRITE_AGAIN: Duration = Duration::from_millis(250);
/// Interval at which an edge rewrites all its entries, so that the bucket can expire entries by age: well below
/// [`ENTRY_AGE`].
pub const REFRESH: Duration = Duration::from_secs(240);
/// Age at which the bucket drops entries; entries of removed edges expire.
pub const ENTRY_AGE: Duration = Duration::from_secs(600);
/// The shortest interval between two written changes of a tunnel's health; changes in between are not written.
pub const HEALTH_PACE: Duration = Duration::from_secs(1);
/// Bound on concurrent writes of an edge.
pub const MAX_WRITES_ON_THE_WAY: usize = 64;
/// Bound on the edges of a reader; further ones are refused.
pub const MAX_EDGES: usize = 1_024;
/// Bound on the tunnels of one edge at a reader, including recently removed ones; further ones are refused.
pub const MAX_TUNNELS_PER_EDGE: usize = 200_000;
