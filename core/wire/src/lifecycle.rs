//! The lifecycle of one stream: which frames each side may send, and when the stream is over.
//!
//! The same rule applies to sent and received frames, so both ends agree by construction.

use crate::frame::{FrameType, Side};

/// How a side ended its direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Terminal {
    /// All data was sent.
    Fin,
    /// All data was sent, and nothing more is read.
    FinThenReset,
    /// Reset: nothing more is sent or read.
    Reset,
    /// The connector did not reach the origin; received data is discarded.
    Failed,
}

/// The state of one stream at one side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Lifecycle {
    side: Side,
    opened: bool,
    sent: Option<Terminal>,
    received: Option<Terminal>,
}

impl Lifecycle {
    /// The state right after OPEN was sent or received.
    pub(crate) fn new(side: Side) -> Self {
        Self { side, opened: false, sent: None, received: None }
    }

    /// Records a sent frame of the stream. An error is the reason why it may not be sent, as the rest of a sentence.
    pub(crate) fn on_send(&mut self, kind: FrameType) -> Result<(), &'static str> {
        (self.opened, self.sent) = step(self.side, self.opened, self.sent, kind)?;
        Ok(())
    }

    /// Records a received frame of the stream. An error is the reason why it may not arrive, as the rest of a sentence.
    pub(crate) fn on_receive(&mut self, kind: FrameType) -> Result<(), &'static str> {
        (self.opened, self.received) = step(self.side.other(), self.opened, self.received, kind)?;
        Ok(())
    }

    /// Whether both directions have ended.
    pub(crate) fn is_over(&self) -> bool {
        self.sent.is_some() && self.received.is_some()
    }

    /// Whether the connector sent OPENED.
    pub(crate) fn is_opened(&self) -> bool {
        self.opened
    }

    /// How this side ended its direction.
    pub(crate) fn sent(&self) -> Option<Terminal> {
        self.sent
    }

    /// How the peer ended its direction.
    pub(crate) fn received(&self) -> Option<Terminal> {
        self.received
    }

    /// Whether DATA may be sent and is useful to the peer.
    pub(crate) fn may_send_data(&self) -> bool {
        self.sent.is_none()
            && matches!(self.received, None | Some(Terminal::Fin))
            && (self.side == Side::Edge || self.opened)
    }

    /// Whether this side no longer reads: received data is discarded.
    pub(crate) fn is_discarding(&self) -> bool {
        matches!(self.sent, Some(Terminal::FinThenReset | Terminal::Reset | Terminal::Failed))
    }

    /// Whether DATA may arrive and is read.
    pub(crate) fn may_read(&self) -> bool {
        self.received.is_none() && !self.is_discarding()
    }
}

/// Applies a frame of side `from`, given how that side has ended its direction so far.
fn step(
    from: Side,
    opened: bool,
    ended: Option<Terminal>,
    kind: FrameType,
) -> Result<(bool, Option<Terminal>), &'static str> {
    let must_open_first = from == Side::Connector && !opened;
    match (kind, ended) {
        (FrameType::Opened, _) if opened => Err("for the second time on a stream"),
        (FrameType::Opened | FrameType::Failed, _) if from == Side::Edge => Err("although only the connector may"),
        (FrameType::Opened, None) => Ok((true, None)),
        (FrameType::Failed, None) if opened => Err("after OPENED"),
        (FrameType::Failed, None) => Ok((false, Some(Terminal::Failed))),
        (FrameType::Data | FrameType::Fin, None) if must_open_first => Err("before OPENED"),
        (FrameType::Data, None) => Ok((opened, None)),
        (FrameType::Fin, None) => Ok((opened, Some(Terminal::Fin))),
        (FrameType::Reset, None) => Ok((opened, Some(Terminal::Reset))),
        (FrameType::Reset, Some(Terminal::Fin)) => Ok((opened, Some(Terminal::FinThenReset))),
        (_, Some(_)) => Err("after the end of its direction"),
        _ => Err("in the middle of a stream"),
    }
}
