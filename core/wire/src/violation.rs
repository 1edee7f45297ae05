//! Protocol violations of a peer.

use crate::frame::{FrameType, Side};

/// A violation of the protocol by the peer; the carrier must be closed. Each variant is one sentence for the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// The type is unknown to this version.
    #[error("the peer sent a frame of the unknown type {kind:#04x}")]
    UnknownFrame {
        /// The type's byte.
        kind: u8,
    },
    /// The type does not belong on this kind of carrier.
    #[error("the peer sent {kind}, which does not belong on this kind of connection")]
    WrongCarrier {
        /// The frame's type.
        kind: FrameType,
    },
    /// The payload is longer or shorter than its type allows.
    #[error("the peer sent {kind} with a payload of {len} bytes instead of {min} to {max}")]
    WrongLength {
        /// The frame's type.
        kind: FrameType,
        /// The announced length, in bytes.
        len: u32,
        /// The shortest payload of the type, in bytes.
        min: u32,
        /// The longest payload of the type, in bytes.
        max: u32,
    },
    /// The frame is well formed, but not allowed in this situation.
    #[error("the peer sent {kind} {place}")]
    OutOfPlace {
        /// The frame's type.
        kind: FrameType,
        /// The situation, as the rest of the sentence.
        place: &'static str,
    },
    /// Only the other side may send the frame.
    #[error("the {from} sent {kind}, which only the other side may send")]
    WrongSide {
        /// The frame's type.
        kind: FrameType,
        /// The sender.
        from: Side,
    },
    /// The payload is malformed.
    #[error("the peer sent {kind} that cannot be read: {detail}")]
    BadMessage {
        /// The frame's type.
        kind: FrameType,
        /// The detail.
        detail: String,
    },
    /// More data than the receiver granted.
    #[error("the peer sent {len} bytes on stream {stream}, whose window had room for {room}")]
    BeyondWindow {
        /// The stream.
        stream: u32,
        /// The length of the data, in bytes.
        len: u32,
        /// The remaining window, in bytes.
        room: u32,
    },
    /// The granted windows exceed the bound.
    #[error("the peer granted more than {max} bytes on stream {stream}")]
    WindowTooLarge {
        /// The stream.
        stream: u32,
        /// The bound, in bytes.
        max: u32,
    },
    /// More concurrent streams than agreed.
    #[error("the peer opened stream {stream} while {max} streams were running, the most that a session may have")]
    TooManyStreams {
        /// The stream.
        stream: u32,
        /// The bound.
        max: u32,
    },
    /// The id of a new stream is not higher than all before.
    #[error("the peer opened stream {stream} after stream {last}; ids only rise")]
    StreamIdReused {
        /// The id.
        stream: u32,
        /// The highest id so far.
        last: u32,
    },
    /// The frame names a stream that was never opened.
    #[error("the peer sent {kind} for stream {stream}, which was never opened")]
    UnknownStream {
        /// The frame's type.
        kind: FrameType,
        /// The id.
        stream: u32,
    },
    /// A RESET names a later stream than the leg's latest.
    #[error("the peer sent RESET for stream {serial} of a leg that is at stream {current}")]
    WrongSerial {
        /// The serial number in the frame.
        serial: u32,
        /// The serial number of the leg's latest stream.
        current: u32,
    },
    /// The edge selected a version that was not offered.
    #[error("the edge chose version {version} of the tunnel protocol, which was not offered")]
    VersionNotOffered {
        /// The version.
        version: u16,
    },
    /// More requests of one kind than a correct peer sends before reading the answers.
    #[error("the peer sent more than {max} {kind} frames without reading the answers")]
    TooManyUnanswered {
        /// The frame's type.
        kind: FrameType,
        /// The bound.
        max: usize,
    },
}
