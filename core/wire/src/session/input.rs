//! Splits input into frames and dispatches each frame.

use std::time::Instant;

use super::{Event, MAX_QUEUED_EVENTS, Phase, Session, outbox::MAX_QUEUED_PONGS};
use crate::{
    Carrier, FrameHeader, FrameType, Side, Violation,
    frame::{HEADER_BYTES, MAX_CONTROL_FRAME_BYTES},
    message::Fields,
};

/// A frame's header, its payload, and the bytes after the frame.
type Split<'a> = (FrameHeader, &'a [u8], &'a [u8]);

/// The frame at the front of `bytes` and the rest; `None` if the frame is incomplete.
fn split_frame(bytes: &[u8]) -> Result<Option<Split<'_>>, Violation> {
    let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return Ok(None);
    };
    let header = FrameHeader::decode(*header, Carrier::Control)?;
    Ok(rest.split_at_checked(header.len as usize).map(|(payload, rest)| (header, payload, rest)))
}

/// The length of the frame with this beginning, as far as known: at least this many bytes are needed.
pub(super) fn frame_bytes(beginning: &[u8]) -> usize {
    match beginning.first_chunk::<HEADER_BYTES>() {
        Some(&[_, a, b, c]) => HEADER_BYTES + u32::from_be_bytes([0, a, b, c]) as usize,
        None => HEADER_BYTES,
    }
}

impl Session {
    /// Handles one frame after another; keeps the beginning of an incomplete one.
    pub(super) fn take_input(&mut self, mut bytes: &[u8], now: Instant) -> Result<(), Violation> {
        while !bytes.is_empty() && self.phase != Phase::Over {
            if self.partial.is_empty() {
                let Some((header, payload, rest)) = split_frame(bytes)? else {
                    self.partial.extend_from_slice(bytes);
                    return Ok(());
                };
                bytes = rest;
                self.on_frame(header, payload, now)?;
                continue;
            }
            let mut partial = std::mem::take(&mut self.partial);
            let missing = frame_bytes(&partial).saturating_sub(partial.len()).min(bytes.len());
            let (more, rest) = bytes.split_at(missing);
            partial.extend_from_slice(more);
            bytes = rest;
            debug_assert!(partial.len() <= MAX_CONTROL_FRAME_BYTES, "a header is judged before its payload is kept");
            if let Some((header, payload, _)) = split_frame(&partial)? {
                self.on_frame(header, payload, now)?;
                partial.clear();
            }
            if self.phase != Phase::Over {
                self.partial = partial;
            }
        }
        Ok(())
    }

    fn on_frame(&mut self, header: FrameHeader, payload: &[u8], now: Instant) -> Result<(), Violation> {
        let kind = header.kind;
        let from = self.side.other();
        if !kind.may_come_from(from) {
            return Err(Violation::WrongSide { kind, from });
        }
        if self.phase == Phase::Greeting {
            return match kind {
                FrameType::Hello => self.on_hello(payload, now),
                FrameType::Welcome => self.on_welcome(payload, now),
                FrameType::Refused => self.on_refused(payload),
                _ => Err(Violation::OutOfPlace { kind, place: self.before_greeting() }),
            };
        }
        if kind.is_of_stream() {
            // While streams run, the round trip should be known: windows and the choice of a tunnel depend on it.
            self.keepalive.probe(now);
            let mut fields = Fields { kind, rest: payload };
            let id = u32::from_be_bytes(fields.take()?);
            return self.on_stream_frame(kind, id, fields.rest);
        }
        let mut fields = Fields { kind, rest: payload };
        match kind {
            FrameType::Refused => self.on_refused(payload),
            FrameType::Attach => self.on_attach(payload),
            FrameType::Attached => self.on_attached(payload),
            FrameType::NotAttached => self.on_not_attached(payload),
            FrameType::Detach => self.on_detach(payload),
            FrameType::Legs => {
                let count = u16::from_be_bytes(fields.take()?);
                self.control_event(kind, Event::LegsWanted(count))
            }
            FrameType::Ping => {
                if self.out.pong(u64::from_be_bytes(fields.take()?)) {
                    return Ok(());
                }
                Err(Violation::TooManyUnanswered { kind, max: MAX_QUEUED_PONGS })
            }
            FrameType::Pong => {
                self.keepalive.on_pong(u64::from_be_bytes(fields.take()?), now);
                Ok(())
            }
            FrameType::GoAway => self.on_go_away(payload),
            FrameType::RequestLog => self.on_request_log(payload),
            FrameType::Edges => self.on_edges(payload),
            FrameType::Links => self.on_links(payload),
            _ => Err(Violation::OutOfPlace { kind, place: "for the second time" }),
        }
    }

    /// Queues an event that a peer can cause at will; bounded.
    pub(super) fn control_event(&mut self, kind: FrameType, event: Event) -> Result<(), Violation> {
        // Events of streams are bounded by the number of streams, because each stream has few events.
        let max = MAX_QUEUED_EVENTS + 8 * self.max_streams as usize;
        if self.events.len() >= max {
            return Err(Violation::TooManyUnanswered { kind, max });
        }
        self.events.push_back(event);
        Ok(())
    }

    fn before_greeting(&self) -> &'static str {
        match self.side {
            Side::Edge => "before HELLO",
            Side::Connector => "before WELCOME",
        }
    }
}
