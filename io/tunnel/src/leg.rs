//! One leg: frames on a carrier, without a task or channel of its own.
//!
//! Outgoing bytes other than payload (the opening, headers, terminal frames) gather in `pending` and leave with the
//! next write. So header and payload share one vectored write, an opening travels with the first bytes of its stream,
//! and an end with the last ones. Incoming payload is read from the carrier straight into the caller's buffer.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, Waker, ready},
};

use sallyport_shards::ShardId;
use sallyport_wire::{
    Carrier as CarrierKind, FrameHeader, FrameType, LegInput, LegState, Open, OpenFailure, ResetCode, Side,
    frame::{HEADER_BYTES, MAX_LEG_DATA_BYTES},
    leg::MAX_DISCARDED_BYTES,
    message,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{
    BoxedCarrier,
    life::{LegTicket, Waiting},
};

/// Bound on payload and headers of one write: four full TLS records (RFC 8446 section 5.1).
const MAX_WRITE_BYTES: usize = 65_536;
/// Bound on the slices of a caller's vectored write that go into one frame.
const MAX_SLICES: usize = 15;

/// The next event on the leg.
#[derive(Debug)]
pub(crate) enum LegEvent {
    /// Payload follows: read the payload with [`Leg::poll_payload`].
    Data,
    /// The edge opens a stream (connector's side).
    Open(Open),
    /// The origin accepted the connection (edge's side).
    Opened,
    /// The origin was not reached (edge's side).
    Failed(OpenFailure),
    /// The peer has sent all its data (FIN).
    End,
    /// The peer reset the stream.
    Reset(ResetCode),
}

/// A carrier that serves one stream at a time.
pub(crate) struct Leg {
    io: BoxedCarrier,
    state: LegState,
    pub(crate) ticket: LegTicket,
    /// The header that is being read, and the number of bytes read.
    header: [u8; HEADER_BYTES],
    header_len: u8,
    /// The rest of the frame that is being read.
    incoming: Incoming,
    /// Bytes to be sent before anything else, and the number of bytes sent of them.
    pending: Vec<u8>,
    pending_sent: usize,
    /// Payload bytes that the last sent header announced and that are not sent yet.
    owed: usize,
    unflushed: bool,
    /// Payload bytes accepted for sending on the current stream; saturates.
    pub(crate) taken_bytes: u32,
    /// OPENED waits for the first payload or a flush (connector's side).
    pub(crate) holds_opened: bool,
    /// The shard that watches the carrier, or used the leg last.
    shard: ShardId,
}

enum Incoming {
    None,
    /// Payload bytes for the reader.
    Payload(usize),
    /// Payload bytes to discard.
    Discard(usize),
    /// A small frame that is buffered as a whole.
    Whole {
        header: FrameHeader,
        payload: Vec<u8>,
        len: usize,
    },
}

impl Leg {
    pub(crate) fn new(io: BoxedCarrier, side: Side, ticket: LegTicket) -> Self {
        Self {
            io,
            state: LegState::new(side),
            ticket,
            header: [0; HEADER_BYTES],
            header_len: 0,
            taken_bytes: 0,
            incoming: Incoming::None,
            pending: Vec::new(),
            pending_sent: 0,
            owed: 0,
            unflushed: false,
            holds_opened: false,
            shard: ShardId::here(),
        }
    }

    /// The shard that watches the carrier. A stream that runs in another shard costs a wake-up of a second thread for
    /// every read.
    pub(crate) fn shard(&self) -> ShardId {
        self.shard
    }

    /// Records use in the caller's shard, to which the carrier moved if it can.
    pub(crate) fn was_used_here(&mut self) {
        let here = ShardId::here();
        if here.is_shard() {
            self.shard = here;
        }
    }

    pub(crate) fn state(&self) -> &LegState {
        &self.state
    }

    /// Whether both sides are done with the stream and everything was sent: the leg can serve the next stream.
    pub(crate) fn is_reusable(&self) -> bool {
        self.is_over() && !self.has_pending()
    }

    /// Whether both sides are done with the stream: the leg can serve the next stream after the queued bytes.
    pub(crate) fn is_over(&self) -> bool {
        self.state.is_idle() && self.owed == 0 && !self.unflushed && matches!(self.incoming, Incoming::None)
    }

    /// Whether written bytes may still be unsent.
    pub(crate) fn has_unsent(&self) -> bool {
        self.unflushed || self.has_pending()
    }

    fn has_pending(&self) -> bool {
        self.pending_sent < self.pending.len()
    }

    /// Whether a sent header announced payload that was never written. Nothing else can be sent on this leg then.
    pub(crate) fn is_torn(&self) -> bool {
        self.owed > 0
    }

    /// Queues the first frame of a stream (edge's side).
    pub(crate) fn send_open(&mut self, open: &Open) -> io::Result<()> {
        self.record(FrameType::Open)?;
        open.encode(&mut self.pending);
        Ok(())
    }

    /// Queues the answer that the origin was not reached (connector's side).
    pub(crate) fn send_failed(&mut self, failure: &OpenFailure) -> io::Result<()> {
        self.record(FrameType::Failed)?;
        failure.encode(&mut self.pending);
        Ok(())
    }

    /// Queues OPENED or FIN.
    pub(crate) fn send_empty(&mut self, kind: FrameType) -> io::Result<()> {
        self.record(kind)?;
        self.pending.extend_from_slice(&message::empty_frame(kind));
        Ok(())
    }

    /// Queues RESET for the current stream.
    pub(crate) fn send_reset(&mut self, code: ResetCode) -> io::Result<()> {
        self.record(FrameType::Reset)?;
        self.pending.extend_from_slice(&message::reset_frame(self.state.serial(), code));
        Ok(())
    }

    /// Queues bytes that belong to no stream: the frames before the first stream.
    pub(crate) fn send_raw(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    fn record(&mut self, kind: FrameType) -> io::Result<()> {
        if self.is_torn() {
            return Err(io::Error::other("an earlier write on the tunnel is unfinished"));
        }
        self.state.on_send(kind).map_err(io::Error::other)?;
        if self.pending_sent == self.pending.len() {
            self.pending.clear();
            self.pending_sent = 0;
        }
        Ok(())
    }

    /// Completes an unfinished frame with zeros. Only for a peer that discards the payload.
    pub(crate) fn pad(&mut self) {
        let owed = std::mem::take(&mut self.owed);
        self.pending.resize(self.pending.len() + owed, 0);
    }

    /// Writes the queued bytes.
    pub(crate) fn poll_pending(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.pending_sent < self.pending.len() {
            let n = ready!(Pin::new(&mut self.io).poll_write(cx, &self.pending[self.pending_sent..]))?;
            if n == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.pending_sent += n;
            self.unflushed = true;
        }
        self.release_pending();
        Poll::Ready(Ok(()))
    }

    /// Idle and bulk streams need no buffer for headers.
    fn release_pending(&mut self) {
        self.pending_sent = 0;
        self.holds_opened = false;
        if self.pending.capacity() > 256 {
            self.pending = Vec::new();
        } else {
            self.pending.clear();
        }
    }

    /// Sends the queued bytes as far as possible without waiting.
    pub(crate) fn flush_now(&mut self) -> Poll<io::Result<()>> {
        self.poll_flush(&mut Context::from_waker(Waker::noop()))
    }

    /// Writes the queued bytes and flushes the carrier.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_pending(cx))?;
        if self.unflushed {
            ready!(Pin::new(&mut self.io).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Writes payload as (part of) a DATA frame; returns the number of bytes accepted. FIN follows the `last` payload
    /// when all of it is accepted at once.
    pub(crate) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
        last: bool,
    ) -> Poll<io::Result<usize>> {
        let wanted: usize = bufs.iter().map(|buf| buf.len()).sum();
        if wanted == 0 {
            return Poll::Ready(Ok(0));
        }
        loop {
            let queued = self.pending.len();
            let begins = self.owed == 0;
            if begins {
                let room = MAX_WRITE_BYTES.saturating_sub(queued - self.pending_sent + HEADER_BYTES).max(1_024);
                let len = wanted.min(room).min(MAX_LEG_DATA_BYTES);
                self.state.on_send(FrameType::Data).map_err(io::Error::other)?;
                // At most MAX_LEG_DATA_BYTES.
                let header = FrameHeader { kind: FrameType::Data, len: len as u32 };
                self.pending.extend_from_slice(&header.encode());
                self.owed = len;
            }
            let fin = message::empty_frame(FrameType::Fin);
            let end: &[u8] = if last && self.owed == wanted { &fin } else { &[] };
            let written = match self.poll_write_some(cx, bufs, end) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(n)) => n,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => 0,
            };
            self.unflushed |= written > 0;
            let of_pending = written.min(self.pending.len() - self.pending_sent);
            self.pending_sent += of_pending;
            let taken = (written - of_pending).min(self.owed);
            let of_end = written - of_pending - taken;
            if begins && taken == 0 && self.pending_sent <= queued {
                // No byte of the header was sent, so the next write may have another size.
                self.pending.truncate(queued);
                self.owed = 0;
            }
            if !self.has_pending() {
                self.release_pending();
            }
            if of_end > 0 {
                self.state.on_send(FrameType::Fin).map_err(io::Error::other)?;
                self.pending.extend_from_slice(&end[of_end..]);
            }
            if taken > 0 {
                self.owed -= taken;
                return Poll::Ready(Ok(taken));
            }
            if written == 0 {
                return Poll::Pending;
            }
        }
    }

    /// One vectored write of the queued bytes, the frame's part of the caller's slices, and the terminal frame.
    fn poll_write_some(&mut self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>], end: &[u8]) -> Poll<io::Result<usize>> {
        let mut slices = [IoSlice::new(&[]); MAX_SLICES + 2];
        let mut count = 0;
        if self.pending_sent < self.pending.len() {
            slices[0] = IoSlice::new(&self.pending[self.pending_sent..]);
            count = 1;
        }
        let mut left = self.owed;
        for buf in bufs {
            if left == 0 || count > MAX_SLICES {
                break;
            }
            let len = buf.len().min(left);
            if len > 0 {
                slices[count] = IoSlice::new(&buf[..len]);
                count += 1;
                left -= len;
            }
        }
        if !end.is_empty() && left == 0 {
            slices[count] = IoSlice::new(end);
            count += 1;
        }
        let io = Pin::new(&mut self.io);
        if count == 1 { io.poll_write(cx, &slices[0]) } else { io.poll_write_vectored(cx, &slices[..count]) }
    }

    /// Reads the available payload of the current frame into the buffer.
    pub(crate) fn poll_payload(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        while let Incoming::Payload(left) = self.incoming {
            if buf.remaining() == 0 {
                break;
            }
            match self.poll_read_up_to(cx, buf, left) {
                Poll::Ready(Ok(n)) if n == left => self.incoming = Incoming::None,
                Poll::Ready(Ok(n)) => self.incoming = Incoming::Payload(left - n),
                Poll::Ready(Err(error)) if buf.filled().len() == before => return Poll::Ready(Err(error)),
                Poll::Pending if buf.filled().len() == before => return Poll::Pending,
                // Read bytes are delivered first; the error occurs again at the next read.
                Poll::Ready(Err(_)) | Poll::Pending => break,
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Reads at most `limit` bytes. The end of the carrier is an error, because a frame is incomplete.
    fn poll_read_up_to(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
        limit: usize,
    ) -> Poll<io::Result<usize>> {
        let before = buf.filled().len();
        if buf.remaining() <= limit {
            ready!(Pin::new(&mut self.io).poll_read(cx, buf))?;
        } else {
            let mut part = ReadBuf::new(buf.initialize_unfilled_to(limit));
            ready!(Pin::new(&mut self.io).poll_read(cx, &mut part))?;
            let n = part.filled().len();
            buf.advance(n);
        }
        match buf.filled().len() - before {
            0 => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            n => Poll::Ready(Ok(n)),
        }
    }

    /// Reads up to the next event. Unwanted payload is discarded.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<LegEvent>> {
        loop {
            match &self.incoming {
                Incoming::None => {
                    if let Some(event) = ready!(self.poll_header(cx))? {
                        return Poll::Ready(Ok(event));
                    }
                }
                Incoming::Payload(_) => return Poll::Ready(Ok(LegEvent::Data)),
                Incoming::Discard(left) => {
                    let left = *left;
                    ready!(self.poll_discard(cx, left))?;
                }
                Incoming::Whole { .. } => {
                    if let Some(event) = ready!(self.poll_whole(cx))? {
                        return Poll::Ready(Ok(event));
                    }
                }
            }
        }
    }

    /// Discards the payload of this frame and of later ones from now on.
    pub(crate) fn discard_rest(&mut self) {
        if let Incoming::Payload(left) = self.incoming {
            self.incoming = Incoming::Discard(left);
        }
    }

    fn poll_discard(&mut self, cx: &mut Context<'_>, left: usize) -> Poll<io::Result<()>> {
        let mut scratch = [std::mem::MaybeUninit::<u8>::uninit(); 8_192];
        let mut buf = ReadBuf::uninit(&mut scratch);
        let n = ready!(self.poll_read_up_to(cx, &mut buf, left))?;
        self.incoming = if n == left { Incoming::None } else { Incoming::Discard(left - n) };
        Poll::Ready(Ok(()))
    }

    fn poll_header(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<LegEvent>>> {
        while usize::from(self.header_len) < HEADER_BYTES {
            let mut buf = ReadBuf::new(&mut self.header[usize::from(self.header_len)..]);
            ready!(Pin::new(&mut self.io).poll_read(cx, &mut buf))?;
            let n = buf.filled().len();
            if n == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            self.header_len += u8::try_from(n).unwrap_or_default();
        }
        self.header_len = 0;
        let header = FrameHeader::decode(self.header, CarrierKind::Leg).map_err(violation)?;
        let len = header.len as usize;
        if header.kind == FrameType::Data {
            let wanted = self.state.on_receive(header, &[]).map_err(violation)?;
            self.incoming = if wanted == LegInput::Deliver { Incoming::Payload(len) } else { Incoming::Discard(len) };
            return Poll::Ready(Ok(None));
        }
        if len == 0 {
            return Poll::Ready(self.take_input(header, &[]));
        }
        self.incoming = Incoming::Whole { header, payload: vec![0; len], len: 0 };
        Poll::Ready(Ok(None))
    }

    fn poll_whole(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<LegEvent>>> {
        let Incoming::Whole { header, payload, len } = &mut self.incoming else { return Poll::Ready(Ok(None)) };
        while *len < payload.len() {
            let mut buf = ReadBuf::new(&mut payload[*len..]);
            ready!(Pin::new(&mut self.io).poll_read(cx, &mut buf))?;
            let n = buf.filled().len();
            if n == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            *len += n;
        }
        let (header, payload) = (*header, std::mem::take(payload));
        self.incoming = Incoming::None;
        Poll::Ready(self.take_input(header, &payload))
    }

    fn take_input(&mut self, header: FrameHeader, payload: &[u8]) -> io::Result<Option<LegEvent>> {
        let event = match self.state.on_receive(header, payload).map_err(violation)? {
            LegInput::Opening(open) => LegEvent::Open(open),
            LegInput::Opened => LegEvent::Opened,
            LegInput::Failed(failure) => LegEvent::Failed(failure),
            LegInput::End => LegEvent::End,
            LegInput::Reset(code) => LegEvent::Reset(code),
            LegInput::Refused(refusal) => return Err(io::Error::new(io::ErrorKind::ConnectionRefused, refusal)),
            LegInput::Deliver | LegInput::Discard | LegInput::Ignore => return Ok(None),
        };
        Ok(Some(event))
    }

    /// Whether an idle leg is still connected, as far as can be checked without waiting.
    pub(crate) fn is_alive(&mut self) -> bool {
        if self.ticket.life.is_over() || !self.is_over() {
            return false;
        }
        // A late RESET of the former stream is ignored. Any other input on an idle leg, the end included, makes the leg
        // unusable.
        self.poll_next(&mut Context::from_waker(Waker::noop())).is_pending()
    }

    /// Waits for the next stream (connector's side). Cancel safe.
    pub(crate) async fn next_open(&mut self) -> io::Result<Open> {
        std::future::poll_fn(|cx| {
            if self.ticket.life.wake_at_end(Waiting::Read, cx) {
                return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
            }
            match ready!(self.poll_next(cx))? {
                LegEvent::Open(open) => Poll::Ready(Ok(open)),
                _ => Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "a frame on an idle leg"))),
            }
        })
        .await
    }

    /// Sends the queued bytes and discards input until the stream is over on both sides.
    ///
    /// # Errors
    /// The carrier ended, or more than [`MAX_DISCARDED_BYTES`] arrived.
    pub(crate) fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.discard_rest();
        let flushed = self.poll_flush(cx)?;
        // Until both sides have sent their terminal frame, or the queued one cannot leave.
        while !self.state.is_idle() || !matches!(self.incoming, Incoming::None) {
            if self.ticket.life.wake_at_end(Waiting::Read, cx) {
                return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
            }
            if self.state.discarded_bytes() > MAX_DISCARDED_BYTES {
                return Poll::Ready(Err(io::Error::other("too many bytes arrived for a stream that was reset")));
            }
            ready!(self.poll_next(cx))?;
            self.discard_rest();
        }
        flushed.map(Ok)
    }
}

fn violation(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, sync::Arc};

    use sallyport_model::TunnelId;
    use sallyport_wire::StreamProtocol;

    use super::*;
    use crate::life::LegRegistry;

    fn leg(io: tokio::io::DuplexStream, side: Side) -> Leg {
        Leg::new(Box::new(io), side, Arc::new(LegRegistry::default()).admit(1).unwrap())
    }

    fn open() -> Open {
        Open {
            tunnel: TunnelId::from_bytes([7; 16]),
            protocol: StreamProtocol::Raw,
            client: "192.0.2.1:1".parse().unwrap(),
            destination: None,
            opened_at_us: 0,
            server_name: String::new(),
        }
    }

    /// Reads the whole stream.
    async fn receive(leg: &mut Leg) -> Vec<u8> {
        assert!(matches!(poll_fn(|cx| leg.poll_next(cx)).await, Ok(LegEvent::Open(_))));
        let mut got = Vec::new();
        loop {
            match poll_fn(|cx| leg.poll_next(cx)).await.unwrap() {
                LegEvent::Data => {
                    let mut piece = [0; 5];
                    let mut buf = ReadBuf::new(&mut piece);
                    poll_fn(|cx| leg.poll_payload(cx, &mut buf)).await.unwrap();
                    got.extend_from_slice(buf.filled());
                }
                LegEvent::End => return got,
                other => panic!("{other:?}"),
            }
        }
    }

    #[tokio::test]
    async fn the_end_travels_with_the_last_bytes_wherever_they_are_cut() {
        let words = b"the last words";
        for room in (1..=80).chain([4_096]) {
            let (near, far) = tokio::io::duplex(room);
            let (mut edge, mut connector) = (leg(near, Side::Edge), leg(far, Side::Connector));
            let sending = async {
                edge.send_open(&open()).unwrap();
                let mut sent = 0;
                while sent < words.len() {
                    let rest = [IoSlice::new(&words[sent..])];
                    sent += poll_fn(|cx| edge.poll_data(cx, &rest, true)).await.unwrap();
                }
                let travelled = edge.state().sent_terminal();
                if !travelled {
                    edge.send_empty(FrameType::Fin).unwrap();
                }
                poll_fn(|cx| edge.poll_flush(cx)).await.unwrap();
                travelled
            };
            let (travelled, got) = tokio::join!(sending, receive(&mut connector));
            assert_eq!(got, words, "in pieces of {room}");
            assert!(travelled || room < 4_096);
            assert!(edge.state().sent_terminal() && connector.state().received_terminal());
        }
    }
}
