//! The streams of a session: calls of their users, and frames of the peer.

use std::time::Instant;

use sallyport_model::TunnelId;

use super::{
    Event, FIRST_WINDOW_SHARE, MAX_FIRST_WINDOWS_BYTES, MAX_GROWN_BYTES, MAX_WINDOWS_OF_LEFT, MIN_WINDOW_BYTES,
    OpenError, Phase, Read, Session, StreamError, StreamId,
    outbox::put_stream_frame,
    stream::{MAX_CREDIT_BYTES, QUANTUM_BYTES, Stream},
};
use crate::{
    Client, FailureReason, FrameHeader, FrameType, Open, OpenFailure, ResetCode, Side, Violation,
    frame::STREAM_ID_BYTES,
    lifecycle::Terminal,
    message::{bad, decode_reset},
};

/// Calls of the users of streams.
impl Session {
    /// The most concurrent streams.
    #[must_use]
    pub fn max_streams(&self) -> u32 {
        self.max_streams
    }

    /// Whether a further stream can be opened.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.running < self.max_streams
    }

    /// Opens a stream to the origin of an attached tunnel (edge). The stream is writable at once.
    pub fn open(&mut self, open: Open) -> Result<StreamId, OpenError> {
        if self.side != Side::Edge || self.phase != Phase::Up {
            return Err(OpenError::NotUp);
        }
        if self.going_away {
            return Err(OpenError::GoingAway);
        }
        if !self.has_tunnel(open.tunnel) {
            return Err(OpenError::NotAttached);
        }
        if self.running >= self.max_streams {
            return Err(OpenError::TooManyStreams);
        }
        let id = self.last_stream.checked_add(1).ok_or(OpenError::Exhausted)?;
        let client = Client::from(open.client);
        let window = self.first_window(client);
        let own_window = (window != self.window).then_some(window);
        self.out.stream_frame(FrameType::Open, id, |out| open.encode_payload(own_window, out));
        self.begin(id, window, client);
        Ok(StreamId(id))
    }

    /// Answers that the origin accepted the connection (connector). Required before data is written.
    pub fn opened(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id.0)
            && self.phase == Phase::Up
            && stream.life.sent().is_none()
            && stream.life.on_send(FrameType::Opened).is_ok()
        {
            self.out.stream_frame(FrameType::Opened, id.0, |_| ());
        }
    }

    /// Answers that the origin was not reached, and releases the stream (connector).
    pub fn failed(&mut self, id: StreamId, failure: OpenFailure) {
        let Some(stream) = self.streams.get_mut(&id.0) else {
            return;
        };
        if self.phase != Phase::Up || stream.life.sent().is_some() || stream.life.on_send(FrameType::Failed).is_err() {
            return self.reset(id, ResetCode::OriginReset);
        }
        self.out.stream_frame(FrameType::Failed, id.0, |out| failure.encode_payload(out));
        stream.released = true;
        stream.recv.discard();
        self.settle(id.0);
    }

    /// Queues as much of the data as fits: within the peer's window, and at most 256 KiB. If not all fits,
    /// [`Event::Writable`] follows.
    pub fn write(&mut self, id: StreamId, data: &[u8]) -> Result<usize, StreamError> {
        let Some(stream) = self.streams.get_mut(&id.0).filter(|stream| !stream.released) else {
            return Err(if self.phase == Phase::Over { StreamError::Down } else { StreamError::Closed });
        };
        if let Some(error) = &stream.error {
            return Err(error.clone());
        }
        if self.phase == Phase::Over {
            return Err(StreamError::Down);
        }
        if stream.send.finish {
            return Err(StreamError::Finished);
        }
        if !stream.life.may_send_data() {
            return Err(StreamError::NotOpened);
        }
        let taken = stream.send.push(data);
        if taken > 0 && !std::mem::replace(&mut stream.send.has_turn, true) {
            self.out.give_turn(id.0);
        }
        Ok(taken)
    }

    /// The error of a write on this stream: the peer reset it, or the session is over. `None` for a usable stream, and
    /// for one that ended in order.
    #[must_use]
    pub fn write_error(&self, id: StreamId) -> Option<StreamError> {
        let stream = self.streams.get(&id.0).filter(|stream| !stream.released && !stream.send.finish)?;
        stream.error.clone().or_else(|| (self.phase == Phase::Over).then_some(StreamError::Down))
    }

    /// Copies received data to `buf`. Reading lets the peer send more, so there may be output to transmit.
    pub fn read(&mut self, id: StreamId, buf: &mut [u8], now: Instant) -> Result<Read, StreamError> {
        let (most, mut filled) = (buf.len(), 0);
        let put = |bytes: &[u8]| {
            buf[filled..filled + bytes.len()].copy_from_slice(bytes);
            filled += bytes.len();
        };
        self.read_to(id, most, || now, put)
    }

    /// Like [`Self::read`], but `put` gets the data, in at most two pieces and `most` bytes. The clock is read only
    /// when needed.
    pub fn read_to(
        &mut self,
        id: StreamId,
        most: usize,
        now: impl Fn() -> Instant,
        put: impl FnMut(&[u8]),
    ) -> Result<Read, StreamError> {
        let Some(stream) = self.streams.get_mut(&id.0).filter(|stream| !stream.released) else {
            return Err(if self.phase == Phase::Over { StreamError::Down } else { StreamError::Closed });
        };
        if stream.recv.buffer.is_empty() {
            if matches!(stream.life.received(), Some(Terminal::Fin | Terminal::FinThenReset)) {
                stream.recv.seen_end = true;
                self.settle(id.0);
                return Ok(Read::End);
            }
            if let Some(error) = &stream.error {
                return Err(error.clone());
            }
            if self.phase == Phase::Over {
                return Err(StreamError::Down);
            }
            stream.recv.is_notified = false;
            return Ok(Read::Blocked);
        }
        let bytes = stream.recv.pop(most, put);
        if self.phase == Phase::Up && stream.life.may_read() {
            let (client, all) = (stream.client, &self.grown_bytes);
            let budget = || all.room_of(client, MAX_GROWN_BYTES, MAX_WINDOWS_OF_LEFT);
            if let Some((grant, grown)) = stream.recv.on_consumed(bytes, now, self.keepalive.path_rtt(), budget) {
                if grown > 0 {
                    self.grown_bytes.take(stream.client, u64::from(grown));
                }
                self.out.stream_frame(FrameType::Window, id.0, |out| out.extend_from_slice(&grant.to_be_bytes()));
            }
        }
        Ok(Read::Bytes(bytes))
    }

    /// Number of readable bytes of the stream.
    #[must_use]
    pub fn readable(&self, id: StreamId) -> usize {
        self.streams.get(&id.0).map_or(0, |stream| stream.recv.buffer.len())
    }

    /// Ends writing; queued data is still sent.
    pub fn finish(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id.0) else {
            return;
        };
        if stream.send.finish || stream.released {
            return;
        }
        if self.side == Side::Connector && !stream.life.is_opened() && stream.life.sent().is_none() {
            return self.reset(id, ResetCode::Cancelled);
        }
        stream.send.finish = true;
        if stream.life.sent().is_none()
            && self.phase == Phase::Up
            && !std::mem::replace(&mut stream.send.has_turn, true)
        {
            self.out.give_turn(id.0);
        }
        self.settle(id.0);
    }

    /// Releases the stream: nothing more is read or sent, except data written before `finish`.
    pub fn reset(&mut self, id: StreamId, code: ResetCode) {
        let Some(stream) = self.streams.get_mut(&id.0) else {
            return;
        };
        if std::mem::replace(&mut stream.released, true) {
            return;
        }
        stream.recv.discard();
        let reads_on = stream.life.received().is_none();
        let at_once = match stream.life.sent() {
            None if stream.send.finish => {
                stream.send.reset_after = reads_on.then_some(code);
                false
            }
            None => true,
            Some(Terminal::Fin) => reads_on,
            Some(_) => false,
        };
        if at_once && self.phase == Phase::Up && stream.life.on_send(FrameType::Reset).is_ok() {
            stream.send.discard();
            self.out.stream_frame(FrameType::Reset, id.0, |out| put_reset(out, code));
        }
        self.settle(id.0);
    }
}

/// Frames of the peer.
impl Session {
    /// Whether streams may be opened for this tunnel.
    fn has_tunnel(&self, tunnel: TunnelId) -> bool {
        self.is_between_edges || self.tunnels.contains_key(&tunnel)
    }

    /// Adds a stream with this id, the highest so far.
    fn begin(&mut self, id: u32, window: u32, client: Client) {
        self.last_stream = id;
        self.running += 1;
        // A client that has used up its share still gets the minimum window, which takes nothing from the others.
        let counted = u64::from(window).min(self.first_windows_bytes.room_of(
            client,
            MAX_FIRST_WINDOWS_BYTES,
            MAX_WINDOWS_OF_LEFT,
        ));
        if counted > 0 {
            self.first_windows_bytes.take(client, counted);
        }
        self.streams.insert(id, Stream { counted_bytes: counted, ..Stream::new(self.side, window, client) });
    }

    /// The initial window of the next stream in either direction, within the client's share.
    fn first_window(&self, client: Client) -> u32 {
        if !self.has_open_fields {
            return self.window;
        }
        let left = self.first_windows_bytes.room_of(client, MAX_FIRST_WINDOWS_BYTES, MAX_WINDOWS_OF_LEFT);
        u32::try_from(left / FIRST_WINDOW_SHARE).unwrap_or(u32::MAX).clamp(MIN_WINDOW_BYTES, self.window)
    }

    /// Checks whether the stream is over, and whether it can be removed.
    fn settle(&mut self, id: u32) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        let over = stream.life.is_over() || self.phase == Phase::Over;
        if over && std::mem::replace(&mut stream.running, false) {
            self.running -= 1;
        }
        if over && (stream.released || stream.ended_cleanly()) {
            self.forget(id);
        }
    }

    /// Removes a released stream.
    pub(super) fn forget(&mut self, id: u32) {
        if let Some(stream) = self.streams.remove(&id) {
            let recv = &stream.recv;
            self.first_windows_bytes.give_back(stream.client, stream.counted_bytes);
            self.grown_bytes.give_back(stream.client, u64::from(recv.window - recv.first_window));
            self.events.push_back(Event::StreamClosed(StreamId(id)));
        }
    }

    /// A turn of the stream: a quantum of its data, and its end if that is all.
    pub(super) fn transmit_turn(&mut self, id: u32, out: &mut Vec<u8>) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        stream.send.has_turn = false;
        let len = stream.send.queue.len().min(QUANTUM_BYTES);
        if len > 0 && stream.life.on_send(FrameType::Data).is_ok() {
            let header = FrameHeader { kind: FrameType::Data, len: (STREAM_ID_BYTES + len) as u32 };
            out.extend_from_slice(&header.encode());
            out.extend_from_slice(&id.to_be_bytes());
            stream.send.pop(out, len);
        }
        if !stream.send.queue.is_empty() {
            stream.send.has_turn = true;
            self.out.give_turn(id);
        } else if stream.send.finish && stream.life.sent().is_none() && stream.life.on_send(FrameType::Fin).is_ok() {
            put_stream_frame(out, FrameType::Fin, id, |_| ());
            if let Some(code) = stream.send.reset_after.take().filter(|_| stream.life.received().is_none())
                && stream.life.on_send(FrameType::Reset).is_ok()
            {
                put_stream_frame(out, FrameType::Reset, id, |out| put_reset(out, code));
            }
        }
        if stream.send.wakes_writer() {
            self.events.push_back(Event::Writable(StreamId(id)));
        }
        self.settle(id);
    }

    /// Handles a frame of a stream.
    pub(super) fn on_stream_frame(&mut self, kind: FrameType, id: u32, payload: &[u8]) -> Result<(), Violation> {
        if kind == FrameType::Open {
            return self.on_open(id, payload);
        }
        if id == 0 || id > self.last_stream {
            return Err(Violation::UnknownStream { kind, stream: id });
        }
        let Some(stream) = self.streams.get_mut(&id) else {
            // The stream is over; frames that crossed its end are ignored.
            return Ok(());
        };
        if kind == FrameType::Window {
            return self.on_window(id, payload);
        }
        stream.life.on_receive(kind).map_err(|place| Violation::OutOfPlace { kind, place })?;
        match kind {
            FrameType::Data => self.on_data(id, payload),
            FrameType::Opened => {
                if !stream.released {
                    self.events.push_back(Event::StreamOpened(StreamId(id)));
                }
                Ok(())
            }
            FrameType::Fin => {
                if !stream.released && !std::mem::replace(&mut stream.recv.is_notified, true) {
                    self.events.push_back(Event::Readable(StreamId(id)));
                }
                self.settle(id);
                Ok(())
            }
            FrameType::Failed => {
                let failure = OpenFailure::decode(payload)?;
                self.given_up(id, StreamError::Failed(failure.clone()), Event::StreamFailed(StreamId(id), failure));
                Ok(())
            }
            FrameType::Reset => {
                let (_, code) = decode_reset(payload)?;
                self.given_up(id, StreamError::Reset(code), Event::StreamReset(StreamId(id), code));
                Ok(())
            }
            _ => Err(Violation::OutOfPlace { kind, place: "in the middle of a stream" }),
        }
    }

    fn on_open(&mut self, id: u32, payload: &[u8]) -> Result<(), Violation> {
        if id <= self.last_stream {
            return Err(Violation::StreamIdReused { stream: id, last: self.last_stream });
        }
        let (open, window) = Open::decode_with_window(payload)?;
        let window = window.unwrap_or(self.window);
        if !(MIN_WINDOW_BYTES..=self.window).contains(&window) {
            return Err(bad(FrameType::Open, format!("its first window of {window} bytes is beyond all bounds")));
        }
        if self.running >= self.max_streams {
            return Err(Violation::TooManyStreams { stream: id, max: self.max_streams });
        }
        let failure = if !self.has_tunnel(open.tunnel) {
            Some(OpenFailure::new(FailureReason::Draining, "the tunnel accepts no new streams"))
        } else if self.streams.len() >= 2 * self.max_streams as usize {
            // Ended streams that their users have not released yet; no fault of the edge.
            Some(OpenFailure::new(FailureReason::Other, "the connector is busy"))
        } else {
            None
        };
        if let Some(failure) = failure {
            self.last_stream = id;
            self.out.stream_frame(FrameType::Failed, id, |out| failure.encode_payload(out));
            return Ok(());
        }
        self.begin(id, window, Client::from(open.client));
        self.events.push_back(Event::StreamOpen(StreamId(id), open));
        Ok(())
    }

    fn on_data(&mut self, id: u32, data: &[u8]) -> Result<(), Violation> {
        let Some(stream) = self.streams.get_mut(&id) else {
            return Ok(());
        };
        // The length of a frame has 24 bits.
        let (len, room) = (data.len() as u32, stream.recv.credit);
        if len > room {
            return Err(Violation::BeyondWindow { stream: id, len, room });
        }
        stream.recv.credit -= len;
        if stream.released || stream.life.is_discarding() {
            return Ok(());
        }
        stream.recv.buffer.extend(data);
        if !std::mem::replace(&mut stream.recv.is_notified, true) {
            self.events.push_back(Event::Readable(StreamId(id)));
        }
        Ok(())
    }

    fn on_window(&mut self, id: u32, payload: &[u8]) -> Result<(), Violation> {
        let more = payload.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
        if more == 0 {
            return Err(bad(FrameType::Window, "the window grants nothing".to_owned()));
        }
        let Some(stream) = self.streams.get_mut(&id) else {
            return Ok(());
        };
        let send = &mut stream.send;
        send.credit = send
            .credit
            .checked_add(more)
            .filter(|credit| *credit <= MAX_CREDIT_BYTES)
            .ok_or(Violation::WindowTooLarge { stream: id, max: MAX_CREDIT_BYTES })?;
        if send.wakes_writer() {
            self.events.push_back(Event::Writable(StreamId(id)));
        }
        Ok(())
    }

    /// The peer no longer reads: ends this end's direction and notifies the user.
    fn given_up(&mut self, id: u32, error: StreamError, event: Event) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        let had_ended = stream.life.received() == Some(Terminal::FinThenReset);
        let had_finished = stream.life.sent().is_some();
        stream.send.discard();
        if !had_ended {
            stream.recv.discard();
        }
        if !had_finished && stream.life.on_send(FrameType::Reset).is_ok() {
            self.out.stream_frame(FrameType::Reset, id, |out| put_reset(out, ResetCode::Cancelled));
        }
        let matters = !had_ended || !had_finished;
        if matters && !stream.released {
            stream.error = Some(error);
            self.events.push_back(event);
        }
        self.settle(id);
    }
}

/// The payload of RESET after the stream's id: no serial number on a control connection, and the code.
fn put_reset(out: &mut Vec<u8>, code: ResetCode) {
    out.extend_from_slice(&[0, 0, 0, 0, code as u8]);
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use crate::SessionConfig;

    use super::*;

    #[test]
    fn windows_of_one_clients_streams_leave_others_theirs() {
        let mut session = Session::edge(SessionConfig::default(), [0; 16], [0; 32], Instant::now());
        session.has_open_fields = true;
        let client = |last: u8| Client::from(SocketAddr::from(([192, 0, 2, last], 1)));
        let first = session.first_window(client(1));
        assert_eq!(first, session.window);
        for id in 1..=10_000 {
            let window = session.first_window(client(1));
            session.begin(id, window, client(1));
        }
        assert_eq!(session.first_window(client(1)), MIN_WINDOW_BYTES, "there is always one");
        // An eighth was left, and a new client gets the usual share of it.
        assert!(session.first_window(client(2)) >= first / 8, "{}", session.first_window(client(2)));
        for id in 1..=10_000 {
            if let Some(stream) = session.streams.get_mut(&id) {
                stream.released = true;
            }
            session.forget(id);
        }
        assert_eq!((session.first_windows_bytes.total(), session.first_window(client(1))), (0, first));
    }
}
