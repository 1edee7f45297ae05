//! Frames: what is inside the seal. Numbers are big-endian and of fixed width.

use bytes::{BufMut as _, Bytes};

use super::header::PathId;

const PADDING: u8 = 0;
const PING: u8 = 1;
const DATA: u8 = 2;
const ACK: u8 = 3;
const PATH_STATUS: u8 = 4;
const CLOSE: u8 = 5;
const PATH_CHALLENGE: u8 = 6;
const PATH_RESPONSE: u8 = 7;

/// Ranges that one ACK frame names; older ones are left out.
pub(crate) const MAX_ACK_RANGES: usize = 96;

/// ACK frames in one packet. A sender writes one or two; each costs a look at all packets in flight.
const MAX_ACKS: usize = 16;

/// Numbers that one range covers, at most, less one.
const LONGEST_RANGE: u64 = (1 << 40) - 1;

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Frame {
    /// Asks for an acknowledgement.
    Ping,
    Data(Data),
    Ack(Ack),
    PathStatus(Status),
    /// The sender has ended the association.
    Close,
    /// Asks for an answer by the path of the packet (RFC 9000 section 8.2).
    PathChallenge(Challenge),
    /// The answer: the same bytes.
    PathResponse(Challenge),
}

/// What only a peer knows that gets packets at the path's address.
pub(crate) type Challenge = [u8; 8];

/// A datagram, or a part of one that no single packet can carry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Data {
    /// Counts the datagrams of the association.
    pub(crate) sequence: u64,
    /// Where the part begins in its datagram.
    pub(crate) offset: u16,
    /// Whether the part ends its datagram.
    pub(crate) is_last: bool,
    pub(crate) bytes: Bytes,
}

/// What arrived on one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ack {
    pub(crate) path: PathId,
    /// Microseconds between the arrival of the greatest number and this frame.
    pub(crate) delay_micros: u32,
    /// First and last packet number of each range, newest first. Ranges neither touch nor overlap.
    pub(crate) ranges: Vec<(u64, u64)>,
}

/// How the sender wants a path to be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) path: PathId,
    /// Grows with each change; an older frame that comes late changes nothing.
    pub(crate) sequence: u32,
    pub(crate) weight: u8,
    pub(crate) is_standby: bool,
    pub(crate) is_metered: bool,
    pub(crate) is_available: bool,
    pub(crate) is_removed: bool,
}

/// The frames of a packet that was opened do not follow the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;

impl Data {
    /// Bytes of a frame besides those of its datagram.
    pub(crate) const OVERHEAD: usize = 1 + 8 + 2 + 1 + 2;
}

impl Frame {
    /// Bytes of a status.
    pub(crate) const PATH_STATUS_BYTES: usize = 1 + 2 + 4 + 1 + 1;
    /// Bytes of a ping.
    pub(crate) const PING_BYTES: usize = 1;
    /// Bytes of a challenge and of its answer.
    pub(crate) const CHALLENGE_BYTES: usize = 1 + 8;

    /// Whether a packet with this frame is acknowledged.
    pub(crate) fn asks_for_ack(&self) -> bool {
        matches!(self, Self::Ping | Self::Data(_) | Self::PathStatus(_) | Self::PathChallenge(_))
    }

    /// Appends the frame to a packet.
    pub(crate) fn write(&self, packet: &mut Vec<u8>) {
        match self {
            Self::Ping => packet.push(PING),
            Self::Data(data) => data.write(packet),
            Self::Ack(ack) => {
                packet.push(ACK);
                packet.put_u16(ack.path.0);
                packet.put_u32(ack.delay_micros);
                let (Some(&(first, last)), at) = (ack.ranges.first(), packet.len()) else { return };
                packet.push(1);
                packet.put_uint(last, 6);
                packet.put_uint((last - first).min(LONGEST_RANGE), 5);
                let mut bound = first;
                for &(first, last) in ack.ranges.iter().skip(1).take(MAX_ACK_RANGES - 1) {
                    // What does not fit is acknowledged no more; it is old.
                    let (Ok(gap), Ok(length)) = (u16::try_from(bound - last), u16::try_from(last - first)) else {
                        break;
                    };
                    packet.put_u16(gap);
                    packet.put_u16(length);
                    packet[at] += 1;
                    bound = first;
                }
            }
            Self::PathStatus(status) => {
                packet.push(PATH_STATUS);
                packet.put_u16(status.path.0);
                packet.put_u32(status.sequence);
                packet.push(status.weight);
                let flags = [status.is_standby, status.is_metered, status.is_available, status.is_removed];
                packet.push(flags.iter().rev().fold(0, |byte, &flag| byte << 1 | u8::from(flag)));
            }
            Self::Close => packet.push(CLOSE),
            Self::PathChallenge(bytes) => {
                packet.push(PATH_CHALLENGE);
                packet.extend_from_slice(bytes);
            }
            Self::PathResponse(bytes) => {
                packet.push(PATH_RESPONSE);
                packet.extend_from_slice(bytes);
            }
        }
    }
}

impl Ack {
    /// Bytes of a frame with one range.
    pub(crate) const BYTES: usize = 1 + 2 + 4 + 1 + 6 + 5;
    /// Bytes of each further range.
    const RANGE_BYTES: usize = 2 + 2;

    /// Bytes of a frame with so many ranges, at most.
    pub(crate) fn bytes(ranges: usize) -> usize {
        Self::BYTES + ranges.saturating_sub(1) * Self::RANGE_BYTES
    }

    /// The ranges for which `room` bytes suffice.
    pub(crate) fn ranges_in(room: usize) -> usize {
        room.checked_sub(Self::BYTES).map_or(0, |left| (1 + left / Self::RANGE_BYTES).min(MAX_ACK_RANGES))
    }
}

impl Data {
    /// Appends the frame to a packet.
    pub(crate) fn write(&self, packet: &mut Vec<u8>) {
        packet.push(DATA);
        packet.put_u64(self.sequence);
        packet.put_u16(self.offset);
        packet.push(u8::from(self.is_last));
        packet.put_u16(self.bytes.len() as u16);
        packet.extend_from_slice(&self.bytes);
    }
}

/// All frames of an opened packet. A packet with one frame that is wrong counts for nothing.
pub(crate) fn frames(opened: &[u8]) -> Result<Vec<Frame>, Malformed> {
    let mut reader = Reader(opened);
    let (mut found, mut acks) = (Vec::new(), 0);
    while let Some((&kind, rest)) = reader.0.split_first() {
        reader.0 = rest;
        match kind {
            // Padding comes last: a probe is long, and its end is not looked at byte by byte.
            PADDING => break,
            PING => found.push(Frame::Ping),
            DATA => found.push(reader.data()?),
            ACK => {
                acks += 1;
                if acks > MAX_ACKS {
                    return Err(Malformed);
                }
                found.push(reader.ack()?);
            }
            PATH_STATUS => found.push(reader.path_status()?),
            CLOSE => found.push(Frame::Close),
            PATH_CHALLENGE => found.push(Frame::PathChallenge(reader.challenge()?)),
            PATH_RESPONSE => found.push(Frame::PathResponse(reader.challenge()?)),
            _ => return Err(Malformed),
        }
    }
    Ok(found)
}

struct Reader<'b>(&'b [u8]);

impl Reader<'_> {
    fn take(&mut self, count: usize) -> Result<&[u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    /// A number of this many bytes, at most 8.
    fn number(&mut self, bytes: usize) -> Result<u64, Malformed> {
        Ok(self.take(bytes)?.iter().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    fn data(&mut self) -> Result<Frame, Malformed> {
        let (sequence, offset) = (self.number(8)?, self.number(2)? as u16);
        let is_last = match self.number(1)? {
            0 => false,
            1 => true,
            _ => return Err(Malformed),
        };
        let length = self.number(2)? as u16;
        offset.checked_add(length).ok_or(Malformed)?;
        // An empty part says something only if the datagram itself is empty.
        if length == 0 && !(is_last && offset == 0) {
            return Err(Malformed);
        }
        let bytes = Bytes::copy_from_slice(self.take(length.into())?);
        Ok(Frame::Data(Data { sequence, offset, is_last, bytes }))
    }

    fn ack(&mut self) -> Result<Frame, Malformed> {
        let (path, delay_micros) = (PathId(self.number(2)? as u16), self.number(4)? as u32);
        let count = self.number(1)? as usize;
        if count == 0 || count > MAX_ACK_RANGES {
            return Err(Malformed);
        }
        let (mut last, length) = (self.number(6)?, self.number(5)?);
        let mut first = last.checked_sub(length).ok_or(Malformed)?;
        let mut ranges = vec![(first, last)];
        for _ in 1..count {
            let (gap, length) = (self.number(2)?, self.number(2)?);
            // One number at least lies between two ranges.
            if gap < 2 {
                return Err(Malformed);
            }
            last = first.checked_sub(gap).ok_or(Malformed)?;
            first = last.checked_sub(length).ok_or(Malformed)?;
            ranges.push((first, last));
        }
        Ok(Frame::Ack(Ack { path, delay_micros, ranges }))
    }

    fn challenge(&mut self) -> Result<Challenge, Malformed> {
        self.take(8)?.try_into().map_err(|_| Malformed)
    }

    fn path_status(&mut self) -> Result<Frame, Malformed> {
        let (path, sequence) = (PathId(self.number(2)? as u16), self.number(4)? as u32);
        let (weight, flags) = (self.number(1)? as u8, self.number(1)?);
        if flags > 0b1111 || weight == 0 || weight > 100 {
            return Err(Malformed);
        }
        let [is_standby, is_metered, is_available, is_removed] = [0, 1, 2, 3].map(|bit| flags >> bit & 1 == 1);
        Ok(Frame::PathStatus(Status { path, sequence, weight, is_standby, is_metered, is_available, is_removed }))
    }
}
