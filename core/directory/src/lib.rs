//! The directory: which tunnel is held by which edge, as all edges and controls come to know it. What control knows comes to edges
//! by the rule of [`config`].
//!
//! Each edge writes two kinds of entries into a bucket that all read: a [`Lease`], renewed every [`BEAT`], and a [`Held`] for
//! each tunnel that comes or goes. [`Holder`] decides what one edge writes and when, [`Reader`] what everybody concludes from
//! what arrives. Both are state machines without input and output of their own: what happened goes in by `handle_…` with the
//! present time, what is to be done comes out by `poll_…`.
//!
//! What is relied upon, and what is not:
//!
//! - Messages may be lost, doubled, delayed and reordered. Each [`Held`] has a version that only grows within one life of its
//!   edge (its *epoch*), and each [`Lease`] a beat: what is older than what is known changes nothing.
//! - A lease says how many tunnels its edge holds, and a digest of them. A reader that counts otherwise in two beats on end asks
//!   for all entries of that edge ([`Reader::poll_ask`]). So nothing that was lost stays lost.
//! - An edge whose lease was not renewed for [`TERM`] is gone, and its tunnels with it. Nobody's clock is compared with
//!   another's: a term is counted from when the reader heard of the beat, by its monotonic clock.
//! - When an edge begins a later life (another process takes over on its machine), its tunnels are taken to be held until its lease
//!   says otherwise, and for [`TERM`] at most: connectors come over within moments.
//! - An entry that was read from the bucket, rather than told when it was written, may be years old: an edge counts as there
//!   only when one further beat has been heard.
//! - A reader that hears nothing at all for [`SILENCE`] has lost the bus, not all edges at once: it keeps what it knows, says
//!   since when ([`Reader::stale_since`]), and gives each lease a new term when it hears again.
//!   Every machine hears itself: an edge its own lease, a control what it writes for that ([`Reader::handle_heard`]).

pub mod config;
mod holder;
mod reader;
mod words;

use std::time::Duration;

pub use holder::{Holder, Tell};
pub use reader::{Ask, Change, EdgeView, Reader, Refused};
pub use words::{EdgeCard, EdgeState, Held, Lease, SCHEMA, WordError};

/// How often an edge renews its lease.
pub const BEAT: Duration = Duration::from_secs(1);
/// How long a lease lasts after the last beat that was heard.
pub const TERM: Duration = Duration::from_secs(5);
/// After how long without any message the bus counts as lost.
pub const SILENCE: Duration = Duration::from_millis(2_500);
/// How long an answer to [`Reader::poll_ask`] is waited for before it is asked again.
pub const ASK_AGAIN: Duration = Duration::from_secs(1);
/// How long a write that failed waits before it is tried again.
pub const WRITE_AGAIN: Duration = Duration::from_millis(250);
/// How often an edge writes all its entries anew, so that they may be forgotten by age: well below [`ENTRY_AGE`].
pub const REFRESH: Duration = Duration::from_secs(240);
/// How long the bucket keeps an entry that is not written anew: what edges that are gone have left goes with time.
pub const ENTRY_AGE: Duration = Duration::from_secs(600);
/// How long after a change of a tunnel's health the next one is written: what goes back and forth in between is not.
pub const HEALTH_PACE: Duration = Duration::from_secs(1);
/// How many entries of an edge may be on their way at once.
pub const MAX_WRITES_ON_THE_WAY: usize = 64;
/// How many edges a reader knows; others are refused.
pub const MAX_EDGES: usize = 1_024;
/// How many tunnels of one edge a reader knows, those included that have gone lately; others are refused.
pub const MAX_TUNNELS_PER_EDGE: usize = 200_000;
