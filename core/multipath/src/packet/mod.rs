//! What travels: the header of a packet, the frames within, and the seal around the frames. Uses no other room.

mod frame;
mod header;
mod seal;

pub(crate) use frame::{Ack, Challenge, Data, Frame, MAX_ACK_RANGES, Status, frames};
pub use header::{AssociationId, HEADER_BYTE, HEADER_BYTES, Header, PathId};
pub(crate) use seal::{Opener, Sealer};
pub use seal::{Secret, Side, TAG_BYTES};
