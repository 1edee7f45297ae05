//! Frames: a header of 4 bytes (type, 24-bit length) and a payload.

use std::fmt;

use crate::Violation;

/// Length of a frame's header, in bytes.
pub const HEADER_BYTES: usize = 4;
/// Length of a stream id in bytes. The payload of stream frames on a control connection starts with one.
pub const STREAM_ID_BYTES: usize = 4;
/// The most data of one DATA frame on a leg, in bytes.
pub const MAX_LEG_DATA_BYTES: usize = 65_536;
/// The most data of one DATA frame on a control connection, in bytes, without the stream id.
pub const MAX_MUX_DATA_BYTES: usize = 16_384;
/// The longest payload of a control message in JSON, in bytes.
pub const MAX_CONTROL_MESSAGE_BYTES: usize = 16_384;
/// The longest message in a FAILED frame, in bytes.
pub const MAX_FAILURE_MESSAGE_BYTES: usize = 512;
/// The longest server name in an OPEN frame, in bytes.
pub const MAX_SERVER_NAME_BYTES: usize = 255;
/// The part of an OPEN frame before the server name's bytes, in bytes.
pub(crate) const OPEN_FIXED_BYTES: usize = 16 + 1 + 16 + 2 + 8 + 1;
/// The most bytes of unknown fields that may follow the fields of OPEN or FLOW_OPEN.
pub const MAX_TRAILING_BYTES: usize = 256;
/// The longest datagram, in bytes: the limit of UDP over IPv4 (RFC 768, RFC 791).
pub const MAX_DATAGRAM_BYTES: usize = 65_507;
/// Length of a flow's id in bytes. Every payload of a flow starts with one.
pub const FLOW_ID_BYTES: usize = 4;
/// Length of the fields of FLOW_OPEN, in bytes.
pub(crate) const FLOW_OPEN_BYTES: usize = FLOW_ID_BYTES + 16 + (16 + 2) + (16 + 2) + 8;
/// Length of the fields of ASSOCIATED, in bytes.
pub(crate) const ASSOCIATED_BYTES: usize = 8 + 8 + 32 + 2;
/// Length of the virtio header before a packet, in bytes (virtio 1.2, section 5.1.6, without `num_buffers`).
pub const VIRTIO_HEADER_BYTES: usize = 10;
/// The shortest packet, in bytes: a header of IPv4 (RFC 791).
pub const MIN_PACKET_BYTES: usize = 20;
/// The longest packet, in bytes: the limit of the length field of IPv4. A train of segments counts as one packet.
pub const MAX_PACKET_BYTES: usize = 65_535;
/// What PACKETS has before the IP header of each packet, in bytes: its length, and the virtio header.
pub const PACKET_PREFIX_BYTES: usize = 2 + VIRTIO_HEADER_BYTES;
/// The longest payload of PACKETS, in bytes.
pub const MAX_PACKETS_BYTES: usize = 131_072;
/// The longest frame on a datagram leg, in bytes.
pub const MAX_DATAGRAM_FRAME_BYTES: usize = HEADER_BYTES + FLOW_ID_BYTES + MAX_DATAGRAM_BYTES;
/// The longest frame on a control connection, in bytes.
pub const MAX_CONTROL_FRAME_BYTES: usize = HEADER_BYTES + STREAM_ID_BYTES + MAX_MUX_DATA_BYTES;

/// An end of the tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// The end that clients connect to; it opens the streams.
    Edge,
    /// The end that dials, close to the origin.
    Connector,
}

impl Side {
    /// The other end.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Edge => Self::Connector,
            Self::Connector => Self::Edge,
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Edge => "edge",
            Self::Connector => "connector",
        })
    }
}

/// The use of a connection of the tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Carrier {
    /// A control connection: attachments, keepalive and multiplexed streams.
    Control,
    /// A leg: one stream at a time.
    Leg,
    /// A datagram leg: the flows of a session.
    Datagrams,
    /// A question for an association of paths: one frame and its answer.
    Association,
    /// A packet carrier: the packets of one machine of a network.
    Packets,
}

macro_rules! frame_types {
    ($($(#[$doc:meta])* $name:ident = $byte:literal $text:literal,)*) => {
        /// The type of a frame.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum FrameType {
            $($(#[$doc])* $name = $byte,)*
        }

        impl FrameType {
            /// All types.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The type with this byte; `None` if this version has no such type.
            #[must_use]
            pub fn from_byte(byte: u8) -> Option<Self> {
                match byte {
                    $($byte => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// The name of the type in the protocol description.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

frame_types! {
    /// The connector's first frame on a control connection.
    Hello = 0x01 "HELLO",
    /// The edge's answer to HELLO.
    Welcome = 0x02 "WELCOME",
    /// The edge refuses this connection.
    Refused = 0x03 "REFUSED",
    /// The connector presents the credential of a tunnel.
    Attach = 0x04 "ATTACH",
    /// The tunnel is attached.
    Attached = 0x05 "ATTACHED",
    /// The tunnel is not attached.
    NotAttached = 0x06 "NOT_ATTACHED",
    /// The tunnel is detached from the session.
    Detach = 0x07 "DETACH",
    /// The edge requests more legs.
    Legs = 0x08 "LEGS",
    /// A keepalive probe.
    Ping = 0x09 "PING",
    /// The answer to PING.
    Pong = 0x0a "PONG",
    /// No new streams on this session.
    GoAway = 0x0b "GOAWAY",
    /// The record of a request, a flow or a health change.
    RequestLog = 0x0c "REQUEST_LOG",
    /// The list of other edges.
    Edges = 0x0d "EDGES",
    /// The links of the connector.
    Links = 0x0e "LINKS",
    /// Opens a stream.
    Open = 0x10 "OPEN",
    /// The origin accepted the connection.
    Opened = 0x11 "OPENED",
    /// The origin was not reached.
    Failed = 0x12 "FAILED",
    /// Bytes of a stream.
    Data = 0x13 "DATA",
    /// More bytes may be sent on a stream.
    Window = 0x14 "WINDOW",
    /// No more DATA in this direction.
    Fin = 0x15 "FIN",
    /// Resets the stream.
    Reset = 0x16 "RESET",
    /// The connector's first frame on a leg.
    Join = 0x20 "JOIN",
    /// The connector's first frame on a datagram leg.
    JoinDatagrams = 0x21 "JOIN_DATAGRAMS",
    /// The connector asks for an association of paths; its first and only frame.
    Associate = 0x22 "ASSOCIATE",
    /// The association of paths that the edge has made.
    Associated = 0x23 "ASSOCIATED",
    /// The connector's first frame on a packet carrier.
    JoinNetwork = 0x24 "JOIN_NETWORK",
    /// The machine's place in its network, at first and after each change.
    NetworkJoined = 0x25 "NETWORK_JOINED",
    /// Opens a flow.
    FlowOpen = 0x30 "FLOW_OPEN",
    /// One datagram of a flow.
    Datagram = 0x31 "DATAGRAM",
    /// Closes a flow.
    FlowClose = 0x32 "FLOW_CLOSE",
    /// IP packets of a network.
    Packets = 0x40 "PACKETS",
}

impl fmt::Display for FrameType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FrameType {
    /// The shortest and the longest payload of this type on the carrier, in bytes; `None` if the type does not belong
    /// there.
    #[must_use]
    pub fn payload_bounds(self, carrier: Carrier) -> Option<(u32, u32)> {
        let (min, max) = match carrier {
            Carrier::Control => self.bounds_on_control()?,
            Carrier::Leg => self.bounds_on_leg()?,
            Carrier::Datagrams => match self {
                Self::Refused => JSON_BOUNDS,
                Self::JoinDatagrams => (48, 48),
                Self::FlowOpen => (FLOW_OPEN_BYTES, FLOW_OPEN_BYTES + MAX_TRAILING_BYTES),
                Self::Datagram => (FLOW_ID_BYTES, FLOW_ID_BYTES + MAX_DATAGRAM_BYTES),
                Self::FlowClose => (FLOW_ID_BYTES + 1, FLOW_ID_BYTES + 1),
                _ => return None,
            },
            Carrier::Association => match self {
                Self::Refused | Self::Associate => JSON_BOUNDS,
                Self::Associated => (ASSOCIATED_BYTES, ASSOCIATED_BYTES + MAX_TRAILING_BYTES),
                _ => return None,
            },
            Carrier::Packets => match self {
                Self::Refused | Self::JoinNetwork | Self::NetworkJoined => JSON_BOUNDS,
                Self::Ping | Self::Pong => (8, 8),
                Self::Packets => (PACKET_PREFIX_BYTES + MIN_PACKET_BYTES, MAX_PACKETS_BYTES),
                _ => return None,
            },
        };
        // Every bound is far below 2^24.
        Some((min as u32, max as u32))
    }

    /// The bounds on a control connection. A frame of a stream has the stream's id before what it has on a leg.
    fn bounds_on_control(self) -> Option<(usize, usize)> {
        match self {
            Self::Refused
            | Self::Hello
            | Self::Welcome
            | Self::Attach
            | Self::Attached
            | Self::NotAttached
            | Self::Detach
            | Self::GoAway
            | Self::RequestLog
            | Self::Edges
            | Self::Links => Some(JSON_BOUNDS),
            Self::Legs => Some((2, 2)),
            Self::Ping | Self::Pong => Some((8, 8)),
            Self::Window => Some((STREAM_ID_BYTES + 4, STREAM_ID_BYTES + 4)),
            Self::Data => Some((STREAM_ID_BYTES + 1, STREAM_ID_BYTES + MAX_MUX_DATA_BYTES)),
            Self::Open | Self::Opened | Self::Failed | Self::Fin | Self::Reset => {
                let (min, max) = self.bounds_on_leg()?;
                Some((STREAM_ID_BYTES + min, STREAM_ID_BYTES + max))
            }
            _ => None,
        }
    }

    /// The bounds on a leg.
    fn bounds_on_leg(self) -> Option<(usize, usize)> {
        match self {
            Self::Refused => Some(JSON_BOUNDS),
            Self::Join => Some((48, 48)),
            Self::Open => Some((OPEN_FIXED_BYTES, OPEN_FIXED_BYTES + MAX_SERVER_NAME_BYTES + MAX_TRAILING_BYTES)),
            Self::Failed => Some((1, 1 + MAX_FAILURE_MESSAGE_BYTES)),
            Self::Opened | Self::Fin => Some((0, 0)),
            Self::Reset => Some((5, 5)),
            Self::Data => Some((1, MAX_LEG_DATA_BYTES)),
            _ => None,
        }
    }

    /// Whether the side may send this type.
    #[must_use]
    pub fn may_come_from(self, side: Side) -> bool {
        match self {
            Self::Detach
            | Self::Ping
            | Self::Pong
            | Self::GoAway
            | Self::Data
            | Self::Window
            | Self::Fin
            | Self::Reset
            | Self::Datagram
            | Self::FlowClose
            | Self::Packets => true,
            Self::Hello
            | Self::Attach
            | Self::Links
            | Self::Opened
            | Self::Failed
            | Self::Join
            | Self::JoinDatagrams
            | Self::Associate
            | Self::JoinNetwork => side == Side::Connector,
            Self::Welcome
            | Self::Refused
            | Self::Attached
            | Self::NotAttached
            | Self::Legs
            | Self::RequestLog
            | Self::Edges
            | Self::Open
            | Self::Associated
            | Self::NetworkJoined
            | Self::FlowOpen => side == Side::Edge,
        }
    }

    /// Whether the type concerns one stream, so that its payload on a control connection starts with the stream's id.
    #[must_use]
    pub fn is_of_stream(self) -> bool {
        matches!(self, Self::Open | Self::Opened | Self::Failed | Self::Data | Self::Window | Self::Fin | Self::Reset)
    }
}

/// The bounds of a message in JSON, in bytes.
const JSON_BOUNDS: (usize, usize) = (2, MAX_CONTROL_MESSAGE_BYTES);

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// The frame's type.
    pub kind: FrameType,
    /// The length of the payload in bytes, less than 2^24.
    pub len: u32,
}

impl FrameHeader {
    /// Encodes the header.
    #[must_use]
    pub fn encode(self) -> [u8; HEADER_BYTES] {
        debug_assert!(self.len < 1 << 24, "a payload's length has 24 bits");
        let [_, a, b, c] = self.len.to_be_bytes();
        [self.kind as u8, a, b, c]
    }

    /// Decodes a header, and checks that its type belongs on the carrier and that the type allows its length.
    #[inline] // A caller knows its carrier: the bounds of that one are left.
    pub fn decode(bytes: [u8; HEADER_BYTES], carrier: Carrier) -> Result<Self, Violation> {
        let [kind, a, b, c] = bytes;
        let kind = FrameType::from_byte(kind).ok_or(Violation::UnknownFrame { kind })?;
        let len = u32::from_be_bytes([0, a, b, c]);
        let (min, max) = kind.payload_bounds(carrier).ok_or(Violation::WrongCarrier { kind })?;
        if !(min..=max).contains(&len) {
            return Err(Violation::WrongLength { kind, len, min, max });
        }
        Ok(Self { kind, len })
    }

    /// Decodes the first header of a new carrier at the edge: HELLO makes it a control connection, JOIN a leg,
    /// JOIN_DATAGRAMS a datagram leg, JOIN_NETWORK a packet carrier; ASSOCIATE asks for an association of paths.
    pub fn decode_first(bytes: [u8; HEADER_BYTES]) -> Result<(Self, Carrier), Violation> {
        match FrameType::from_byte(bytes[0]) {
            Some(FrameType::Hello) => Ok((Self::decode(bytes, Carrier::Control)?, Carrier::Control)),
            Some(FrameType::Join) => Ok((Self::decode(bytes, Carrier::Leg)?, Carrier::Leg)),
            Some(FrameType::JoinDatagrams) => Ok((Self::decode(bytes, Carrier::Datagrams)?, Carrier::Datagrams)),
            Some(FrameType::Associate) => Ok((Self::decode(bytes, Carrier::Association)?, Carrier::Association)),
            Some(FrameType::JoinNetwork) => Ok((Self::decode(bytes, Carrier::Packets)?, Carrier::Packets)),
            Some(kind) => Err(Violation::OutOfPlace { kind, place: "as the first frame of a connection" }),
            None => Err(Violation::UnknownFrame { kind: bytes[0] }),
        }
    }
}

/// Appends a frame whose payload `write` appends; the header is filled in afterwards.
pub(crate) fn put_frame(out: &mut Vec<u8>, kind: FrameType, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_BYTES]);
    write(out);
    let len = out.len() - start - HEADER_BYTES;
    debug_assert!(len < 1 << 24, "a payload's length has 24 bits");
    out[start..start + HEADER_BYTES].copy_from_slice(&FrameHeader { kind, len: len as u32 }.encode());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_round_trip_within_the_bounds_of_their_type_and_nowhere_else() {
        for carrier in [Carrier::Control, Carrier::Leg, Carrier::Datagrams, Carrier::Association, Carrier::Packets] {
            for &kind in FrameType::ALL {
                let Some((min, max)) = kind.payload_bounds(carrier) else {
                    let header = FrameHeader { kind, len: 8 }.encode();
                    assert_eq!(FrameHeader::decode(header, carrier), Err(Violation::WrongCarrier { kind }));
                    continue;
                };
                for len in [min, max] {
                    let header = FrameHeader { kind, len };
                    assert_eq!(FrameHeader::decode(header.encode(), carrier), Ok(header));
                }
                for len in [min.checked_sub(1), Some(max + 1)].into_iter().flatten() {
                    let error = FrameHeader::decode(FrameHeader { kind, len }.encode(), carrier);
                    assert_eq!(error, Err(Violation::WrongLength { kind, len, min, max }));
                }
            }
        }
    }

    #[test]
    fn every_type_has_its_byte_and_other_bytes_are_refused() {
        for byte in 0..=255 {
            match FrameType::from_byte(byte) {
                Some(kind) => assert_eq!(kind as u8, byte),
                None => assert_eq!(
                    FrameHeader::decode([byte, 0, 0, 0], Carrier::Leg),
                    Err(Violation::UnknownFrame { kind: byte })
                ),
            }
        }
    }

    #[test]
    fn the_first_frame_says_what_the_carrier_is() {
        let hello = FrameHeader { kind: FrameType::Hello, len: 40 };
        assert_eq!(FrameHeader::decode_first(hello.encode()), Ok((hello, Carrier::Control)));
        let join = FrameHeader { kind: FrameType::Join, len: 48 };
        assert_eq!(FrameHeader::decode_first(join.encode()), Ok((join, Carrier::Leg)));
        let join = FrameHeader { kind: FrameType::JoinDatagrams, len: 48 };
        assert_eq!(FrameHeader::decode_first(join.encode()), Ok((join, Carrier::Datagrams)));
        let associate = FrameHeader { kind: FrameType::Associate, len: 90 };
        assert_eq!(FrameHeader::decode_first(associate.encode()), Ok((associate, Carrier::Association)));
        let join = FrameHeader { kind: FrameType::JoinNetwork, len: 90 };
        assert_eq!(FrameHeader::decode_first(join.encode()), Ok((join, Carrier::Packets)));
        let early = FrameHeader { kind: FrameType::Data, len: 4 };
        assert_eq!(
            FrameHeader::decode_first(early.encode()).unwrap_err().to_string(),
            "the peer sent DATA as the first frame of a connection"
        );
        assert!(FrameHeader::decode_first(*b"GET ").is_err());
    }
}
