//! An HTTP/1.1 connection to an origin, as its client: [`sallyport_http1::client`] over a stream.
//!
//! It has no task of its own. Whoever exchanges a request over it polls it, and it polls the stream: the request's body is
//! taken from its client when the stream has room, and the answer's out of the buffer that was read into, where it lies.

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
    client::{RequestBody, ResponseError, ResponseHead, decode_response, encode_request},
    write_last_chunk,
};
use sallyport_shards::ShardId;
use sallyport_tunnel::Establishment;
use tokio::io::{AsyncReadExt, AsyncWrite};

use crate::{
    body::upload::{BoxError, Upload},
    origins::{
        connection_limits::{OpeningPlace, UntilTaken},
        http::exchange::LazyTimer,
        transport::OriginStream,
    },
};

/// How much room is made for what comes, in bytes: enough for some small answers.
const READ_BYTES: usize = 8 * 1024;
/// The least room that is read into, in bytes.
const MIN_READ_BYTES: usize = 2 * 1024;
/// The most room that is made for a long answer, in bytes.
const MAX_READ_BYTES: usize = 64 * 1024;
/// How many heads may come before an answer's own.
const MAX_INTERIM_HEADS: u8 = 64;
/// How many pieces of a request's body go out before others have their turn.
const MAX_PIECES_AT_ONCE: u8 = 16;

/// Why an exchange over a connection failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum H1Error {
    /// The connection had ended before anything of the request was sent.
    #[error("an idle connection to the origin had ended")]
    Unsent,
    /// The request's body failed.
    #[error("the request broke off: {0}")]
    Upload(BoxError),
    /// The stream failed.
    #[error("{0}")]
    Stream(#[from] io::Error),
    /// The connection ended before the answer did.
    #[error("the connection ended before the response did")]
    Ended,
    /// The answer makes no sense.
    #[error("{0}")]
    Malformed(#[from] ResponseError),
    /// One head after the other came, and none was the answer's.
    #[error("more than {MAX_INTERIM_HEADS} interim responses came")]
    TooManyInterimHeads,
}

/// What an idle connection turned out to be.
pub(crate) enum Idleness {
    /// It can carry a request.
    Ready,
    /// It has ended.
    Over,
}

/// An HTTP/1.1 connection to an origin.
pub(crate) struct H1Connection {
    stream: OriginStream,
    establishment: Establishment,
    /// Its place among those that the origin is asked for, until it has been taken.
    opening: Option<Box<UntilTaken>>,
    /// Whether it has a leg for itself, or shares the control connection.
    on_leg: bool,
    /// Whether it was meant to share one.
    is_shared: bool,
    /// Where it was used last; its carrier went there where it can.
    shard: ShardId,
    idle_since: Instant,
    timer: LazyTimer,
    /// What came and belongs to nothing yet.
    read: BytesMut,
    /// How much of it holds no end of a head.
    searched: usize,
    /// What goes out before the piece of the request's body.
    out: BytesMut,
    /// A piece of the request's body, and what follows it.
    piece: Bytes,
    piece_end: &'static [u8],
    upload: Option<Box<OutgoingBody>>,
    /// Whether all that was written has left the stream's own buffers.
    is_flushed: bool,
    stage: Stage,
    method: Method,
    interim_heads: u8,
    body: BodyDecoder,
    /// Whether it may carry another request after this one.
    is_reusable: bool,
    /// Whether not all of the request was sent.
    is_request_cut: bool,
    /// How much came last, or twice as much where there was no room for more.
    last_read: usize,
    /// Whether it has room for a long answer.
    has_large_buffer: bool,
}

/// How far an exchange is.
enum Stage {
    /// Nothing was written, and the connection is new.
    New,
    /// Nothing was written, and the connection may have ended.
    Unverified,
    /// The request is on its way.
    Sent,
}

/// A request's body that is under way.
struct OutgoingBody {
    body: Upload,
    /// How much is to come, where that was announced; else it goes in chunks.
    left: Option<u64>,
    trailers: Vec<HeaderName>,
}

impl H1Connection {
    /// The connection over this stream. `is_shared`: it was meant to share the control connection with others.
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
            interim_heads: 0,
            body: BodyDecoder::of_response(Framing::Length(0)),
            is_reusable: true,
            is_request_cut: false,
            last_read: 0,
            has_large_buffer: false,
        }
    }

    /// Whether the origin took the connection.
    pub(crate) fn establishment(&self) -> &Establishment {
        &self.establishment
    }

    /// What an exchange over it sets its bounds with.
    pub(crate) fn timer(&mut self) -> &mut LazyTimer {
        &mut self.timer
    }

    /// Keeps this place until the origin has taken the connection, or not.
    pub(crate) fn set_opening_place(&mut self, place: OpeningPlace) {
        self.opening = Some(Box::new(UntilTaken::new(place, self.establishment.clone())));
    }

    /// To be called behind each look at what came.
    fn poll_opening(&mut self, cx: &mut Context<'_>) {
        if let Some(opening) = &mut self.opening
            && opening.poll(cx).is_ready()
        {
            self.opening = None;
        }
    }

    /// Whether it has a leg for itself.
    pub(crate) fn is_on_leg(&self) -> bool {
        self.on_leg
    }

    /// Whether it was meant to share the control connection.
    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Whose it is from now on; `None`: nobody's, as long as it rests.
    pub(crate) fn set_client(&mut self, client: Option<SocketAddr>) {
        self.stream.set_client(client);
    }

    /// Where it was used last.
    pub(crate) fn shard(&self) -> ShardId {
        self.shard
    }

    /// Since when it carries nothing.
    pub(crate) fn idle_since(&self) -> Instant {
        self.idle_since
    }

    /// It is used in the caller's shard from now on.
    pub(crate) fn move_to_this_shard(&mut self) {
        let here = ShardId::here();
        if here.is_shard() && here != self.shard {
            self.shard = here;
            // A timer stays with the scheduler that it was made in.
            self.timer = LazyTimer::default();
        }
    }

    /// Before anything is asked: opens the stream, and reads what is said of it. Ready when something came already, or the end.
    pub(crate) fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.read.is_empty() { self.poll_fill(cx).map(drop) } else { Poll::Ready(()) }
    }

    /// Begins an exchange; [`Self::poll_response`] follows. `may_have_ended`: the connection may have ended by now.
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
        (self.is_reusable, self.interim_heads) = (false, 0);
    }

    /// Sends the request, and waits for the head of its answer: its status, while its fields take the place of `fields`.
    /// Those stay as they are where there is no answer yet.
    pub(crate) fn poll_response(
        &mut self,
        fields: &mut HeaderMap,
        cx: &mut Context<'_>,
    ) -> Poll<Result<StatusCode, H1Error>> {
        let is_read = match std::mem::replace(&mut self.stage, Stage::Sent) {
            // The opening leaves together with the request.
            Stage::New => false,
            // What comes before anything was asked is the end of the connection, or nothing that belongs here.
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
            // Whoever refuses a request may answer it and read no more.
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
                Some(ResponseHead::Informational(status)) => {
                    self.interim_heads += 1;
                    if self.interim_heads > MAX_INTERIM_HEADS {
                        return Poll::Ready(Err(H1Error::TooManyInterimHeads));
                    }
                    if let (StatusCode::CONTINUE, Some(outgoing)) = (status, &self.upload) {
                        outgoing.body.mark_continued();
                    }
                }
                Some(ResponseHead::Final(response)) => {
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

    /// Sends on of the request while its client takes nothing of the answer: it may send all of its body before it reads.
    /// What fails is told by [`Self::poll_frame`].
    pub(crate) fn poll_upload(&mut self, cx: &mut Context<'_>) {
        if self.has_unsent()
            && let Poll::Ready(Err(H1Error::Stream(_))) = self.poll_send(cx)
        {
            self.give_up_sending();
        }
    }

    /// The next frame of the answer's body, while what is left of the request's goes out.
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

    /// Whether the answer's body is over.
    pub(crate) fn is_response_over(&self) -> bool {
        self.body.is_over()
    }

    /// How long the rest of the answer's body is.
    pub(crate) fn size_hint(&self) -> SizeHint {
        self.body.bytes_left().map_or_else(SizeHint::default, SizeHint::with_exact)
    }

    /// Whether it can carry a request.
    pub(crate) fn check_idle(&mut self) -> Idleness {
        let is_done = self.is_reusable && self.body.is_over() && !self.has_unsent();
        // Nothing comes over a connection on which nothing is asked, but its end.
        if !is_done || !self.read.is_empty() || self.poll_fill(&mut Context::from_waker(Waker::noop())).is_ready() {
            return Idleness::Over;
        }
        Idleness::Ready
    }

    /// It carries nothing from now on.
    pub(crate) fn rest(&mut self) {
        self.idle_since = Instant::now();
        if std::mem::take(&mut self.has_large_buffer) {
            self.read = BytesMut::new();
        }
    }

    /// Ends it in good order, when nothing is under way any more; what it carries else is given up.
    pub(crate) fn close(mut self) {
        if self.body.is_over() && !self.has_unsent() && !self.is_request_cut {
            let mut quiet = Context::from_waker(Waker::noop());
            // The other side's end may be there, and then the stream is over.
            let _ = self.poll_fill(&mut quiet);
            let _ = Pin::new(&mut self.stream).poll_shutdown(&mut quiet);
        }
    }

    /// What has come of the answer's body with its head.
    pub(crate) fn read_ahead(&self) -> &[u8] {
        &self.read
    }

    /// The stream below, and what was read from it beyond the answer's head: for a connection whose protocol was switched.
    pub(crate) fn into_stream(self: Box<Self>) -> (OriginStream, Bytes) {
        (self.stream, self.read.freeze())
    }

    /// Reads what there is: how many bytes, of which 0 are the end.
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
        // Of a body of unknown length more is expected when as much came as there was room for.
        self.last_read = if read >= room.max(READ_BYTES) { read.saturating_mul(2) } else { read };
        Poll::Ready(Ok(read))
    }

    fn has_queued(&self) -> bool {
        !(self.out.is_empty() && self.piece.is_empty() && self.piece_end.is_empty())
    }

    fn has_unsent(&self) -> bool {
        !self.is_flushed || self.upload.is_some() || self.has_queued()
    }

    /// Sends what there is of the request: ready when that was all of it.
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

    /// Takes a piece of the request's body from its client, where there is one now.
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
                        *left = rest.ok_or_else(|| H1Error::Upload("its body is longer than was announced".into()))?;
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

    /// Nothing comes of the request's body any more, but what lies in `piece`.
    fn end_sending(&mut self, trailers: Option<&HeaderMap>) -> Result<(), H1Error> {
        let Some(outgoing) = self.upload.take() else { return Ok(()) };
        match outgoing.left {
            Some(0) => {}
            Some(_) => return Err(H1Error::Upload("its body is shorter than was announced".into())),
            None if self.piece.is_empty() => write_last_chunk(&mut self.out, trailers, &outgoing.trailers),
            None => self.piece_end = LAST_CHUNK_END,
        }
        Ok(())
    }

    /// The origin takes no more of the request.
    fn give_up_sending(&mut self) {
        self.upload = None;
        self.out.clear();
        (self.piece, self.piece_end) = (Bytes::new(), b"");
        (self.is_flushed, self.is_reusable, self.is_request_cut) = (true, false, true);
    }
}
