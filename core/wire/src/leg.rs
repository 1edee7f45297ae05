//! One end of a leg: which frames may come, what to do with them, and when the leg is idle again.
//!
//! A driver moves the bytes. For each frame it reads the 4 bytes of the header ([`FrameHeader::decode`]); for DATA it
//! calls [`LegState::on_receive`] at once and then moves the payload to its reader or discards it, for any other frame
//! it reads the whole payload first (a few hundred bytes at most, [`crate::frame::MAX_CONTROL_MESSAGE_BYTES`] for
//! REFUSED) and passes it along. Before it sends a frame it records that with [`LegState::on_send`].

use std::time::Duration;

use crate::{
    Carrier, FrameHeader, FrameType, Open, OpenFailure, Refusal, ResetCode, Side, Violation, lifecycle::Lifecycle,
    message::decode_reset,
};

/// How much may be discarded of a stream before its leg is closed rather than recycled, in bytes.
pub const MAX_DISCARDED_BYTES: u64 = 4 * 1024 * 1024;
/// How long the discarding may last before the leg is closed rather than recycled.
pub const MAX_DISCARD_TIME: Duration = Duration::from_secs(2);

/// A frame was about to be sent that the peer would take as a violation: a mistake in the driver.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} cannot be sent on this leg {place}")]
pub struct LegMisuse {
    /// The frame's type.
    pub kind: FrameType,
    /// Where or when, as the rest of the sentence.
    pub place: &'static str,
}

/// What to do with a frame that came on a leg.
#[derive(Debug, Clone, PartialEq)]
pub enum LegInput {
    /// DATA: the payload is for the stream's reader.
    Deliver,
    /// DATA: the payload is of no use to anybody; see [`LegState::discarded_bytes`].
    Discard,
    /// OPEN: a stream begins (connector).
    Opening(Open),
    /// OPENED: the origin took the connection (edge).
    Opened,
    /// FAILED: the origin was not reached (edge). If [`LegState::sent_terminal`] is false, a terminal must be sent.
    Failed(OpenFailure),
    /// FIN: no more data will come.
    End,
    /// RESET: the peer reads no more, and sends no more. If [`LegState::sent_terminal`] is false, a terminal must be
    /// sent. After [`LegInput::End`] what came before still is for the reader; otherwise the reader gets an error.
    Reset(ResetCode),
    /// A RESET of a stream that is over.
    Ignore,
    /// REFUSED: the edge does not take this leg, and closes it (connector).
    Refused(Refusal),
}

/// One end of a leg. At the edge it begins after JOIN was taken, at the connector after JOIN was sent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LegState {
    side: Side,
    serial: u32,
    /// The latest stream, also when it is over; none before the first.
    stream: Option<Lifecycle>,
    discarded_bytes: u64,
}

impl LegState {
    /// A fresh leg: idle, no stream yet.
    #[must_use]
    pub fn new(side: Side) -> Self {
        Self { side, serial: 0, stream: None, discarded_bytes: 0 }
    }

    /// No stream runs: OPEN may be sent (edge) or come (connector).
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.stream.is_none_or(|stream| stream.is_over())
    }

    /// The serial number of the latest stream, 1 for the first; 0 before it. RESET carries it.
    #[must_use]
    pub fn serial(&self) -> u32 {
        self.serial
    }

    /// The connector said OPENED on the latest stream.
    #[must_use]
    pub fn is_opened(&self) -> bool {
        self.stream.is_some_and(|stream| stream.is_opened())
    }

    /// DATA may be sent, and the peer still wants it.
    #[must_use]
    pub fn may_send_data(&self) -> bool {
        self.stream.is_some_and(|stream| stream.may_send_data())
    }

    /// DATA may come, and we still want it.
    #[must_use]
    pub fn may_read(&self) -> bool {
        self.stream.is_some_and(|stream| stream.may_read())
    }

    /// We ended our direction of the latest stream.
    #[must_use]
    pub fn sent_terminal(&self) -> bool {
        self.stream.is_some_and(|stream| stream.sent().is_some())
    }

    /// The peer ended its direction of the latest stream.
    #[must_use]
    pub fn received_terminal(&self) -> bool {
        self.stream.is_some_and(|stream| stream.received().is_some())
    }

    /// How many bytes of the latest stream were to be discarded. Above [`MAX_DISCARDED_BYTES`], close the leg.
    #[must_use]
    pub fn discarded_bytes(&self) -> u64 {
        self.discarded_bytes
    }

    /// Records that a frame is being sent. An error means that the peer would take it as a violation; nothing is
    /// recorded then. DATA that crosses the peer's RESET is no misuse, only of no use.
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

    /// Judges a frame that came. `payload` is the whole payload; for DATA it is not looked at and may be empty.
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
            // It crossed the end of its stream.
            return Ok(LegInput::Ignore);
        }
        self.step(FrameType::Reset).map(|_| LegInput::Reset(code))
    }

    /// Lets the running stream take a frame of the peer.
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
