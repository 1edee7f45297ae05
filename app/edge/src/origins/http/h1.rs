//! An HTTP/1.1 connection to an origin: [`sallyport_http1::client`] over a stream.
//!
//! The connection has no task. The request on it polls the connection, which polls the stream. The request body is
//! taken from the client when the stream has room. The response body is a slice of the read buffer.

use std::{
    future::Future,
    io::{self, IoSlice},
    net::SocketAddr,
    pin::{Pin, pin},
    task::{Context, Poll, Waker, ready},
    time::Instant,
};

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, Method, StatusCode, Uri};
use http_body::{Body, Frame, SizeHint};
use sallyport_http::forward::OurFields;
use sallyport_http1::{
    BodyDecoder, CHUNK_END, Framing, LAST_CHUNK_END, Piece, announced_trailers, chunk_start,
    client::{ReceivedHead, RequestBody, ResponseError, decode_response, encode_request},
    write_last_chunk,
};
use sallyport_shards::ShardId;
use sallyport_tunnel::Establishment;
use tokio::io::{AsyncReadExt, AsyncWrite};

use crate::{
    body::upload::{BoxError, Upload},
    origins::{
        connection_limits::{OpeningGuard, OpeningPlace},
        http::exchange::LazyTimer,
        transport::{OriginStream, direct::Lane},
    },
};

/// The usual size of the read buffer, in bytes: enough for several short responses.
const READ_BYTES: usize = 8 * 1024;
/// The least free room for a read, in bytes.
const MIN_READ_BYTES: usize = 2 * 1024;
/// The largest read buffer, for long responses, in bytes.
const MAX_READ_BYTES: usize = 64 * 1024;
/// How many informational heads may precede a final response.
const MAX_INFORMATIONAL_HEADS: u8 = 64;
/// How many pieces of a request body one poll sends before other tasks run.
const MAX_PIECES_AT_ONCE: u8 = 16;

/// Why an exchange failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum H1Error {
    /// The connection had ended before the request was sent.
    #[error("an idle connection to the origin had ended")]
    Unsent,
    /// The request body failed.
    #[error("the body of the request failed: {0}")]
    Upload(BoxError),
    /// The stream failed.
    #[error("{0}")]
    Stream(#[from] io::Error),
    /// The connection ended before the response was complete.
    #[error("the connection ended before the response was complete")]
    Ended,
    /// The response is malformed.
    #[error("{0}")]
    Malformed(#[from] ResponseError),
    /// Too many informational heads came without a final response.
    #[error("more than {MAX_INFORMATIONAL_HEADS} informational responses came")]
    TooManyInformational,
}

/// The state of an idle connection.
pub(crate) enum Idleness {
    /// The connection can carry a request.
    Ready,
    /// The connection has ended.
    Over,
}

/// An HTTP/1.1 connection to an origin.
pub(crate) struct H1Connection {
    stream: OriginStream,
    establishment: Establishment,
    /// The connection's place among those that are being opened, until the origin has accepted it.
    opening: Option<Box<OpeningGuard>>,
    /// Whether the connection has a leg of its own, and not a share of the control connection.
    on_leg: bool,
    /// Whether a share of the control connection was requested.
    is_shared: bool,
    /// The shard of the last use. The carrier moved there, if it can move.
    shard: ShardId,
    idle_since: Instant,
    timer: LazyTimer,
    /// The read buffer.
    read: BytesMut,
    /// How many bytes of the buffer are known to have no end of a head.
    searched: usize,
    /// Bytes to send before `piece`.
    out: BytesMut,
    /// A piece of the request body, and the bytes behind it.
    piece: Bytes,
    piece_end: &'static [u8],
    upload: Option<Box<OutgoingBody>>,
    /// Whether the stream's own buffers are flushed.
    is_flushed: bool,
    stage: Stage,
    method: Method,
    informational_heads: u8,
    body: BodyDecoder,
    /// Whether another request may follow.
    is_reusable: bool,
    /// Whether the request was not sent completely.
    is_request_cut: bool,
    /// How many bytes came last; twice as many if they filled the buffer.
    last_read: usize,
    /// Whether the buffer has grown for a long response.
    has_large_buffer: bool,
}

/// The stage of an exchange.
enum Stage {
    /// Nothing was written, and the connection is new.
    New,
    /// Nothing was written, and the connection may have ended.
    Unverified,
    /// The request is being sent.
    Sent,
}

/// A request body that is being sent.
struct OutgoingBody {
    body: Upload,
    /// How many announced bytes are left; `None` for a chunked body.
    left: Option<u64>,
    trailers: Vec<HeaderName>,
}

impl H1Connection {
    /// A connection over this stream. `is_shared` says that a share of the control connection was requested.
    pub(crate) fn new(stream: OriginStream, is_shared: bool) -> Self {
        Self {
            establishment: stream.establishment(),
            opening: None,
            on_leg: stream.is_on_leg(),
            stream,
            is_shared,
            shard: ShardId::here(),
            idle_since: Instant::now(),
            timer: LazyTimer::default(),
            read: BytesMut::new(),
            searched: 0,
            out: BytesMut::new(),
            piece: Bytes::new(),
            piece_end: b"",
            upload: None,
            is_flushed: true,
            stage: Stage::New,
            method: Method::GET,
            informational_heads: 0,
            body: BodyDecoder::of_response(Framing::Length(0)),
            is_reusable: true,
            is_request_cut: false,
            last_read: 0,
            has_large_buffer: false,
        }
    }

    /// Whether the origin has accepted the connection.
    pub(crate) fn establishment(&self) -> &Establishment {
        &self.establishment
    }

    /// The timer for the bounds of exchanges.
    pub(crate) fn timer(&mut self) -> &mut LazyTimer {
        &mut self.timer
    }

    /// Keeps this place until the origin has accepted or refused the connection.
    pub(crate) fn set_opening_place(&mut self, place: OpeningPlace) {
        self.opening = Some(Box::new(OpeningGuard::new(place, self.establishment.clone())));
    }

    /// Releases the opening place once it is not needed. To be called after each read.
    fn poll_opening(&mut self, cx: &mut Context<'_>) {
        if let Some(opening) = &mut self.opening
            && opening.poll(cx).is_ready()
        {
            self.opening = None;
        }
    }

    /// Whether the connection has a leg of its own.
    pub(crate) fn is_on_leg(&self) -> bool {
        self.on_leg
    }

    /// Whether a share of the control connection was requested.
    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// The clients that may share the connection.
    pub(crate) fn lane(&self) -> Lane {
        self.stream.lane()
    }

    /// Sets the client that uses the connection; `None` while the connection is idle.
    pub(crate) fn set_client(&mut self, client: Option<SocketAddr>) {
        self.stream.set_client(client);
    }

    /// The shard of the last use.
    pub(crate) fn shard(&self) -> ShardId {
        self.shard
    }

    /// Since when the connection is idle.
    pub(crate) fn idle_since(&self) -> Instant {
        self.idle_since
    }

    /// Moves the connection to the shard of the caller.
    pub(crate) fn move_to_this_shard(&mut self) {
        let here = ShardId::here();
        if here.is_shard() && here != self.shard {
            self.shard = here;
            // A timer belongs to the runtime that created it.
            self.timer = LazyTimer::default();
        }
    }

    /// Opens the stream before the request, and reads what comes. Ready if bytes came, or the end.
    pub(crate) fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.read.is_empty() { self.poll_fill(cx).map(drop) } else { Poll::Ready(()) }
    }

    /// Begins an exchange; [`Self::poll_response`] follows. `may_have_ended` says that the connection is not new.
    pub(crate) fn begin_exchange(
        &mut self,
        may_have_ended: bool,
        method: &Method,
        target: &Uri,
        headers: &HeaderMap,
        ours: Option<&OurFields<'_>>,
        upload: Upload,
    ) {
        let body = match upload.size_hint().exact() {
            _ if upload.is_end_stream() => RequestBody::None,
            Some(bytes) => RequestBody::Length(bytes),
            None => RequestBody::Chunked,
        };
        encode_request(&mut self.out, method, target, headers, ours, body);
        let outgoing = |left, trailers| Some(Box::new(OutgoingBody { body: upload, left, trailers }));
        self.upload = match body {
            RequestBody::None => None,
            RequestBody::Length(left) => outgoing(Some(left), Vec::new()),
            RequestBody::Chunked => outgoing(None, announced_trailers(headers)),
        };
        self.stage = if may_have_ended { Stage::Unverified } else { Stage::New };
        self.method.clone_from(method);
        self.body = BodyDecoder::of_response(Framing::UntilClose);
        (self.is_reusable, self.informational_heads) = (false, 0);
    }

    /// Sends the request, and waits for the head of the response. Returns its status, and replaces `fields` by its
    /// fields.
    pub(crate) fn poll_response(
        &mut self,
        fields: &mut HeaderMap,
        cx: &mut Context<'_>,
    ) -> Poll<Result<StatusCode, H1Error>> {
        let is_read = match std::mem::replace(&mut self.stage, Stage::Sent) {
            // The `OPEN` of the stream leaves together with the request.
            Stage::New => false,
            // Bytes before the request are the end of the connection, or an error.
            Stage::Unverified if !self.read.is_empty() || self.poll_fill(cx).is_ready() => {
                return Poll::Ready(Err(H1Error::Unsent));
            }
            Stage::Unverified => true,
            Stage::Sent => match self.poll_head(fields, cx) {
                Poll::Pending => true,
                outcome => return outcome,
            },
        };
        if self.has_unsent()
            && let Poll::Ready(Err(error)) = self.poll_send(cx)
        {
            if !matches!(error, H1Error::Stream(_)) {
                return Poll::Ready(Err(error));
            }
            // An origin may respond without reading the whole request.
            self.give_up_sending();
            return match self.poll_head(fields, cx) {
                Poll::Ready(Ok(status)) => Poll::Ready(Ok(status)),
                _ => Poll::Ready(Err(error)),
            };
        }
        if is_read { Poll::Pending } else { self.poll_head(fields, cx) }
    }

    fn poll_head(&mut self, fields: &mut HeaderMap, cx: &mut Context<'_>) -> Poll<Result<StatusCode, H1Error>> {
        loop {
            match decode_response(&mut self.read, &mut self.searched, &self.method, fields)? {
                Some(ReceivedHead::Informational(status)) => {
                    self.informational_heads += 1;
                    if self.informational_heads > MAX_INFORMATIONAL_HEADS {
                        return Poll::Ready(Err(H1Error::TooManyInformational));
                    }
                    if let (StatusCode::CONTINUE, Some(outgoing)) = (status, &self.upload) {
                        outgoing.body.mark_continued();
                    }
                }
                Some(ReceivedHead::Final(response)) => {
                    self.body = BodyDecoder::of_response(response.framing);
                    self.is_reusable = response.keeps_connection;
                    return Poll::Ready(Ok(response.status));
                }
                None => {
                    if ready!(self.poll_fill(cx))? == 0 {
                        return Poll::Ready(Err(H1Error::Ended));
                    }
                }
            }
        }
    }

    /// Sends more of the request while the client does not read the response. The client may send its whole body first.
    /// [`Self::poll_frame`] returns the errors.
    pub(crate) fn poll_upload(&mut self, cx: &mut Context<'_>) {
        if self.has_unsent()
            && let Poll::Ready(Err(H1Error::Stream(_))) = self.poll_send(cx)
        {
            self.give_up_sending();
        }
    }

    /// The next frame of the response body. Also sends the rest of the request.
    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, H1Error>>> {
        if self.has_unsent()
            && let Poll::Ready(Err(error)) = self.poll_send(cx)
        {
            if !matches!(error, H1Error::Stream(_)) {
                return Poll::Ready(Some(Err(error)));
            }
            self.give_up_sending();
        }
        loop {
            match self.body.next(&mut self.read) {
                Ok(Piece::Data(data)) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Ok(Piece::Trailers(trailers)) => return Poll::Ready(Some(Ok(Frame::trailers(trailers)))),
                Ok(Piece::End) => return Poll::Ready(None),
                Ok(Piece::Missing) => match ready!(self.poll_fill(cx)) {
                    Ok(0) => {
                        if !self.body.set_connection_ended() {
                            return Poll::Ready(Some(Err(ResponseError::Incomplete.into())));
                        }
                    }
                    Ok(_) => {}
                    Err(error) => return Poll::Ready(Some(Err(error.into()))),
                },
                Err(error) => return Poll::Ready(Some(Err(ResponseError::from(error).into()))),
            }
        }
    }

    /// Whether the response body has ended.
    pub(crate) fn is_response_over(&self) -> bool {
        self.body.is_over()
    }

    /// The length of the rest of the response body.
    pub(crate) fn size_hint(&self) -> SizeHint {
        self.body.bytes_left().map_or_else(SizeHint::default, SizeHint::with_exact)
    }

    /// Checks whether an idle connection can carry a request.
    pub(crate) fn check_idle(&mut self) -> Idleness {
        let is_done = self.is_reusable && self.body.is_over() && !self.has_unsent();
        // Nothing but the end may come over an idle connection.
        if !is_done || !self.read.is_empty() || self.poll_fill(&mut Context::from_waker(Waker::noop())).is_ready() {
            return Idleness::Over;
        }
        Idleness::Ready
    }

    /// Marks the connection as idle, and frees a large buffer.
    pub(crate) fn rest(&mut self) {
        self.idle_since = Instant::now();
        if std::mem::take(&mut self.has_large_buffer) {
            self.read = BytesMut::new();
        }
    }

    /// Closes the connection. Shuts the stream down in order if no exchange is under way.
    pub(crate) fn close(mut self) {
        if self.body.is_over() && !self.has_unsent() && !self.is_request_cut {
            let mut quiet = Context::from_waker(Waker::noop());
            // Reads the peer's end, if it has come: then both sides have ended.
            let _ = self.poll_fill(&mut quiet);
            let _ = Pin::new(&mut self.stream).poll_shutdown(&mut quiet);
        }
    }

    /// The bytes of the response body that came with the head.
    pub(crate) fn read_ahead(&self) -> &[u8] {
        &self.read
    }

    /// The stream and the bytes that were read behind the head, after an upgrade.
    pub(crate) fn into_stream(self: Box<Self>) -> (OriginStream, Bytes) {
        (self.stream, self.read.freeze())
    }

    /// Reads once, and returns the number of bytes; 0 at the end.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let left = self.body.bytes_left().map_or(self.last_read, |left| usize::try_from(left).unwrap_or(usize::MAX));
        let is_long = left > READ_BYTES;
        let room = self.read.capacity() - self.read.len();
        if room < if is_long { READ_BYTES } else { MIN_READ_BYTES } {
            self.has_large_buffer |= is_long;
            self.read.reserve(left.clamp(READ_BYTES, MAX_READ_BYTES));
        }
        let read = pin!(self.stream.read_buf(&mut self.read)).poll(cx);
        self.poll_opening(cx);
        let read = ready!(read)?;
        // A read that fills the buffer doubles the expectation for a body of unknown length.
        self.last_read = if read >= room.max(READ_BYTES) { read.saturating_mul(2) } else { read };
        Poll::Ready(Ok(read))
    }

    fn has_queued(&self) -> bool {
        !(self.out.is_empty() && self.piece.is_empty() && self.piece_end.is_empty())
    }

    fn has_unsent(&self) -> bool {
        !self.is_flushed || self.upload.is_some() || self.has_queued()
    }

    /// Sends what there is of the request. Ready when the request is complete.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), H1Error>> {
        for _ in 0..MAX_PIECES_AT_ONCE {
            if self.piece.is_empty() && self.piece_end.is_empty() {
                self.take_piece(cx)?;
            }
            if !self.has_queued() {
                if !self.is_flushed {
                    ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
                    self.is_flushed = true;
                }
                return if self.upload.is_none() { Poll::Ready(Ok(())) } else { Poll::Pending };
            }
            self.is_flushed = false;
            while self.has_queued() {
                ready!(self.poll_write(cx))?;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let stream = Pin::new(&mut self.stream);
        let mut written = if self.piece.is_empty() && self.piece_end.is_empty() {
            ready!(stream.poll_write(cx, &self.out))?
        } else {
            let parts = [IoSlice::new(&self.out), IoSlice::new(&self.piece), IoSlice::new(self.piece_end)];
            ready!(stream.poll_write_vectored(cx, &parts))?
        };
        if written == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        if written < self.out.len() {
            self.out.advance(written);
            return Poll::Ready(Ok(()));
        }
        written -= self.out.len();
        self.out.clear();
        let of_piece = written.min(self.piece.len());
        self.piece.advance(of_piece);
        self.piece_end = &self.piece_end[written - of_piece..];
        Poll::Ready(Ok(()))
    }

    /// Takes a piece of the request body, if there is one.
    fn take_piece(&mut self, cx: &mut Context<'_>) -> Result<(), H1Error> {
        while let Some(outgoing) = &mut self.upload {
            let frame = match Pin::new(&mut outgoing.body).poll_frame(cx) {
                Poll::Pending => return Ok(()),
                Poll::Ready(None) => return self.end_sending(None),
                Poll::Ready(Some(frame)) => frame.map_err(H1Error::Upload)?,
            };
            let data = match frame.into_data() {
                Ok(data) => data,
                Err(frame) => return self.end_sending(frame.into_trailers().ok().as_ref()),
            };
            let is_last = outgoing.body.is_end_stream();
            if !data.is_empty() {
                sallyport_shards::carried(cx, data.len());
                match &mut outgoing.left {
                    Some(left) => {
                        let rest = left.checked_sub(data.len() as u64);
                        *left = rest.ok_or_else(|| H1Error::Upload("the body is longer than announced".into()))?;
                    }
                    None => {
                        self.out.extend_from_slice(chunk_start(data.len()).as_bytes());
                        self.piece_end = CHUNK_END;
                    }
                }
                self.piece = data;
            }
            match (is_last, self.piece.is_empty()) {
                (true, _) => return self.end_sending(None),
                (false, false) => return Ok(()),
                (false, true) => {}
            }
        }
        Ok(())
    }

    /// Ends the request body behind `piece`.
    fn end_sending(&mut self, trailers: Option<&HeaderMap>) -> Result<(), H1Error> {
        let Some(outgoing) = self.upload.take() else { return Ok(()) };
        match outgoing.left {
            Some(0) => {}
            Some(_) => return Err(H1Error::Upload("the body is shorter than announced".into())),
            None if self.piece.is_empty() => write_last_chunk(&mut self.out, trailers, &outgoing.trailers),
            None => self.piece_end = LAST_CHUNK_END,
        }
        Ok(())
    }

    /// Stops sending the request, because the origin reads no more.
    fn give_up_sending(&mut self) {
        self.upload = None;
        self.out.clear();
        (self.piece, self.piece_end) = (Bytes::new(), b"");
        (self.is_flushed, self.is_reusable, self.is_request_cut) = (true, false, true);
    }
}
