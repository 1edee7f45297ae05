//! Frames: what is inside the seal. Numbers are big-endian and of fixed width.

use bytes::{BufMut as _, Bytes};

use super::header::PathId;

const PADDING: u8 = 0;
const PING: u8 = 1;
const DATA: u8 = 2;
const ACK: u8 = 3;
const PATH_STATUS: u8 = 4;
const PARITY: u8 = 5;
const CLOSE: u8 = 6;

/// Ranges that one ACK frame names; older ones are left out.
pub(crate) const MAX_ACK_RANGES: usize = 32;

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Frame {
    /// Asks for an acknowledgement.
    Ping,
    Data(Data),
    Ack(Ack),
    PathStatus(Status),
    Parity(Parity),
    /// The sender has ended the association.
    Close,
}

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

/// The exclusive or of consecutive datagrams, from which one missing one is made again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parity {
    pub(crate) first_sequence: u64,
    pub(crate) count: u8,
    /// The exclusive or of the lengths.
    pub(crate) length: u16,
    /// As long as the longest datagram.
    pub(crate) bytes: Bytes,
}

/// The frames of a packet that was opened do not follow the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;

impl Data {
    /// Bytes of a frame besides those of its datagram.
    pub(crate) const OVERHEAD: usize = 1 + 8 + 2 + 1 + 2;
}

impl Parity {
    /// Bytes of a frame besides its parity.
    pub(crate) const OVERHEAD: usize = 1 + 8 + 1 + 2 + 2;
}

impl Frame {
    /// Appends the frame to a packet.
    pub(crate) fn write(&self, packet: &mut Vec<u8>) {
        match self {
            Self::Ping => packet.push(PING),
            Self::Data(data) => data.write(packet),
            Self::Ack(ack) => {
                packet.push(ACK);
                packet.put_u16(ack.path.0);
                packet.put_u32(ack.delay_micros);
                let ranges = &ack.ranges[..ack.ranges.len().min(MAX_ACK_RANGES)];
                packet.push(ranges.len() as u8);
                for &(first, last) in ranges {
                    packet.put_uint(first, 6);
                    packet.put_uint(last, 6);
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
            Self::Parity(parity) => {
                packet.push(PARITY);
                packet.put_u64(parity.first_sequence);
                packet.push(parity.count);
                packet.put_u16(parity.length);
                packet.put_u16(parity.bytes.len() as u16);
                packet.extend_from_slice(&parity.bytes);
            }
            Self::Close => packet.push(CLOSE),
        }
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
    let mut found = Vec::new();
    while let Some((&kind, rest)) = reader.0.split_first() {
        reader.0 = rest;
        match kind {
            // Padding comes last: a probe is long, and its end is not looked at byte by byte.
            PADDING => break,
            PING => found.push(Frame::Ping),
            DATA => found.push(reader.data()?),
            ACK => found.push(reader.ack()?),
            PATH_STATUS => found.push(reader.path_status()?),
            PARITY => found.push(reader.parity()?),
            CLOSE => found.push(Frame::Close),
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
        let mut ranges = Vec::with_capacity(count);
        let mut bound = u64::MAX;
        for _ in 0..count {
            let (first, last) = (self.number(6)?, self.number(6)?);
            // One number at least lies between two ranges.
            if first > last || last.saturating_add(1) >= bound {
                return Err(Malformed);
            }
            bound = first;
            ranges.push((first, last));
        }
        Ok(Frame::Ack(Ack { path, delay_micros, ranges }))
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

    fn parity(&mut self) -> Result<Frame, Malformed> {
        let (first_sequence, count) = (self.number(8)?, self.number(1)? as u8);
        let (length, size) = (self.number(2)? as u16, self.number(2)? as usize);
        if count < 2 || first_sequence.checked_add(count.into()).is_none() {
            return Err(Malformed);
        }
        let bytes = Bytes::copy_from_slice(self.take(size)?);
        Ok(Frame::Parity(Parity { first_sequence, count, length, bytes }))
    }
}
