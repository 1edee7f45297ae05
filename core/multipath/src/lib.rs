//! Datagrams over several paths at once: one association, whose packets travel by every path that it has.
//!
//! [`Association`] is the state machine, in the manner of quinn-proto: datagrams go in by [`Association::send`], packets
//! of UDP come out of [`Association::poll_transmit`], and the peer's packets go in by [`Association::handle`]. Time is
//! an argument, and secrets come from outside.

mod association;
mod packet;
mod path;
pub mod pmtu;
mod reorder;
mod schedule;

pub use association::{AddPathError, Arrival, Association, Config, Counts, Event, Refused, SendError, Setup, Transmit};
pub use packet::{AssociationId, HEADER_BYTE, HEADER_BYTES, Header, PathId, Secret, Side, TAG_BYTES};
pub use path::{PathSettings, PathState, PathStats};
