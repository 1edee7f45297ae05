//! One end of a leg: which frames may arrive, how to handle them, and when the leg is idle again.
//!
//! A driver moves the bytes. For each frame it reads the 4-byte header ([`FrameHeader::decode`]). For DATA it calls
//! [`LegState::on_receive`] at once, and then moves the payload to the reader or discards it. For any other frame it
//! reads the payload first (a few hundred bytes at most, [`crate::frame::MAX_CONTROL_MESSAGE_BYTES`] for REFUSED) and
//! passes it along. Before sending a frame it calls [`LegState::on_send`].

use std::time::Duration;

use crate::{
    Carrier, FrameHeader, FrameType, Open, OpenFailure, Refusal, ResetCode, Side, Violation, lifecycle::Lifecycle,
    message::decode_reset,
};

/// Bytes of a stream that are discarded before its leg is closed instead of reused.
pub const MAX_DISCARDED_BYTES: u64 = 4 * 1024 * 1024;
/// Time of discarding before the leg is closed instead of reused.
pub const MAX_DISCARD_TIME: Duration = Duration::from_secs(2);

/// The driver attempted to send a frame that the peer would treat as a violation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} cannot be sent on this leg {place}")]
pub struct LegMisuse {
    /// The frame's type.
    pub kind: FrameType,
    /// The situation, as the rest of the sentence.
    pub place: &'static str,
}

/// How to handle a received frame.
#[derive(Debug, Clone, PartialEq)]
pub enum LegInput {
    /// DATA: the payload is for the stream's reader.
    Deliver,
    /// DATA: discard the payload; see [`LegState::discarded_bytes`].
    Discard,
    /// OPEN: a stream was opened (connector).
    Opening(Open),
    /// OPENED: the origin accepted the connection (edge).
    Opened,
    /// FAILED: the origin was not reached (edge). If [`LegState::sent_terminal`] is false, a terminal frame must be
    /// sent.
    Failed(OpenFailure),
    /// FIN: no more data follows.
    End,
    /// RESET: the peer neither reads nor sends any more. If [`LegState::sent_terminal`] is false, a terminal frame must
    /// be sent. After [`LegInput::End`] the reader still gets the earlier data; otherwise the reader gets an error.
    Reset(ResetCode),
    /// RESET of a stream that is over.
    Ignore,
    /// REFUSED: the edge refuses this leg and closes it (connector).
    Refused(Refusal),
}

/// One end of a leg. The edge creates it after receiving JOIN, the connector after sending it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LegState {
    side: Side,
    serial: u32,
    /// The latest stream, even if it is over; `None` before the first.
    stream: Option<Lifecycle>,
    discarded_bytes: u64,
}

impl LegState {
    /// A new idle leg.
    #[must_use]
    pub fn new(side: Side) -> Self {
        Self { side, serial: 0, stream: None, discarded_bytes: 0 }
    }

    /// Whether no stream is running: OPEN may be sent (edge) or received (connector).
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.stream.is_none_or(|stream| stream.is_over())
    }

    /// Serial number of the latest stream, from 1; 0 before the first. RESET carries it.
    #[must_use]
    pub fn serial(&self) -> u32 {
        self.serial
    }

    /// Whether the connector sent OPENED on the latest stream.
    #[must_use]
    pub fn is_opened(&self) -> bool {
        self.stream.is_some_and(|stream| stream.is_opened())
    }

    /// Whether DATA may be sent and the peer still reads.
    #[must_use]
    pub fn may_send_data(&self) -> bool {
        self.stream.is_some_and(|stream| stream.may_send_data())
    }

    /// Whether DATA may arrive and this end still reads.
    #[must_use]
    pub fn may_read(&self) -> bool {
        self.stream.is_some_and(|stream| stream.may_read())
    }

    /// Whether this end has ended its direction of the latest stream.
    #[must_use]
    pub fn sent_terminal(&self) -> bool {
        self.stream.is_some_and(|stream| stream.sent().is_some())
    }

    /// Whether the peer has ended its direction of the latest stream.
    #[must_use]
    pub fn received_terminal(&self) -> bool {
        self.stream.is_some_and(|stream| stream.received().is_some())
    }

    /// Discarded bytes of the latest stream. Above [`MAX_DISCARDED_BYTES`], close the leg.
    #[must_use]
    pub fn discarded_bytes(&self) -> u64 {
        self.discarded_bytes
    }

    /// Records that a frame is being sent. An error means that the peer would treat the frame as a violation; nothing
    /// is recorded then. DATA that crosses the peer's RESET is useless, but no error.
    pub fn on_send(&mut self, kind: FrameType) -> Result<(), LegMisuse> {
        let misuse = |place| LegMisuse { kind, place };
        if kind.payload_bounds(Carrier::Leg).is_none() || !kind.may_come_from(self.side) {
            return Err(misuse("by this side"));
        }
        match kind {
            FrameType::Open => {
                if !self.is_idle() {
                    return Err(misuse("while a stream runs"));
                }
                self.serial = self.serial.checked_add(1).ok_or(misuse("after 2^32 streams"))?;
                self.begin();
                Ok(())
            }
            FrameType::Join => Err(misuse("again")),
            FrameType::Refused => Ok(()),
            _ => match &mut self.stream {
                Some(stream) if !stream.is_over() => stream.on_send(kind).map_err(misuse),
                _ => Err(misuse("while no stream runs")),
            },
        }
    }

    /// Checks a received frame. `payload` is the whole payload; for DATA it is ignored and may be empty.
    pub fn on_receive(&mut self, header: FrameHeader, payload: &[u8]) -> Result<LegInput, Violation> {
        let kind = header.kind;
        let from = self.side.other();
        if kind.payload_bounds(Carrier::Leg).is_none() {
            return Err(Violation::WrongCarrier { kind });
        }
        if !kind.may_come_from(from) {
            return Err(Violation::WrongSide { kind, from });
        }
        match kind {
            FrameType::Open => self.on_open(payload),
            FrameType::Refused if self.is_idle() => Ok(LegInput::Refused(Refusal::decode(payload)?)),
            FrameType::Reset => self.on_reset(payload),
            FrameType::Opened => self.step(kind).map(|_| LegInput::Opened),
            FrameType::Failed => {
                let failure = OpenFailure::decode(payload)?;
                self.step(kind).map(|_| LegInput::Failed(failure))
            }
            FrameType::Fin => self.step(kind).map(|_| LegInput::End),
            FrameType::Data => {
                if self.step(kind)?.is_discarding() {
                    self.discarded_bytes += u64::from(header.len);
                    return Ok(LegInput::Discard);
                }
                Ok(LegInput::Deliver)
            }
            _ => Err(Violation::OutOfPlace { kind, place: "in the middle of a leg" }),
        }
    }

    fn begin(&mut self) {
        self.stream = Some(Lifecycle::new(self.side));
        self.discarded_bytes = 0;
    }

    fn on_open(&mut self, payload: &[u8]) -> Result<LegInput, Violation> {
        let misplaced = |place| Violation::OutOfPlace { kind: FrameType::Open, place };
        if !self.is_idle() {
            return Err(misplaced("while the leg's stream was not over"));
        }
        let open = Open::decode(payload)?;
        self.serial = self.serial.checked_add(1).ok_or(misplaced("after 2^32 streams"))?;
        self.begin();
        Ok(LegInput::Opening(open))
    }

    fn on_reset(&mut self, payload: &[u8]) -> Result<LegInput, Violation> {
        let (serial, code) = decode_reset(payload)?;
        if serial == 0 || serial > self.serial {
            return Err(Violation::WrongSerial { serial, current: self.serial });
        }
        if serial < self.serial || self.is_idle() {
            // The RESET crossed the end of its stream.
            return Ok(LegInput::Ignore);
        }
        self.step(FrameType::Reset).map(|_| LegInput::Reset(code))
    }

    /// Applies a frame of the peer to the running stream.
    fn step(&mut self, kind: FrameType) -> Result<Lifecycle, Violation> {
        match &mut self.stream {
            Some(stream) if !stream.is_over() => {
                stream.on_receive(kind).map_err(|place| Violation::OutOfPlace { kind, place })?;
                Ok(*stream)
            }
            _ => Err(Violation::OutOfPlace { kind, place: "while no stream ran on the leg" }),
        }
    }
}
