//! The body of an answer on its way to a client.
//!
//! Nothing is buffered: a frame is taken from the origin when the client has room for it.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use sallyport_net::Pace as _;
use tokio::time::Sleep;

use crate::{
    body::upload::{ApiBody, BoxError, ClientBody, UploadState},
    http::{context::RequestContext, send_bound, server::HttpServer, upgrade::Upgraded, wire_state::WireState},
    origins::http::response_body::Download,
};

/// How much of an answer an HTTP/2 stream is given at once, in bytes: it counts as sent then, and waits for the client.
const MAX_H2_PIECE_BYTES: usize = 32 * 1024;
/// How long, and how much in bytes, is read of a body that nobody wants before its HTTP/2 stream is reset.
const MAX_UNREAD_TIME: Duration = Duration::from_secs(5);
const MAX_UNREAD_BYTES: u64 = 16 * 1024 * 1024;

/// A request's body over HTTP/2 that nobody wants, read behind the end of its answer.
///
/// A client that is still sending when its stream is reset may take that for a failure, although the reset comes after
/// a whole answer and says NO_ERROR (RFC 9113 section 8.1). So it has some time to notice that it has its answer.
pub(crate) struct UnreadBody {
    body: ClientBody,
    state: Arc<UploadState>,
    rest: u64,
    timer: Pin<Box<Sleep>>,
}

impl UnreadBody {
    fn new(body: ClientBody, state: Arc<UploadState>) -> Self {
        Self { body, state, rest: MAX_UNREAD_BYTES, timer: Box::pin(tokio::time::sleep(MAX_UNREAD_TIME)) }
    }

    /// Ready when the body has ended, or enough of it was read.
    pub(crate) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.rest > 0 {
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    self.state.record_passed(Some(&frame), self.body.is_end_stream());
                    self.rest = self.rest.saturating_sub(frame.data_ref().map_or(0, Bytes::len) as u64);
                }
                Poll::Ready(None) => {
                    self.state.record_passed(None, true);
                    break;
                }
                Poll::Ready(Some(Err(_))) => break,
                Poll::Pending => return self.timer.as_mut().poll(cx),
            }
        }
        Poll::Ready(())
    }
}

/// Where the bytes of an answer come from.
pub(crate) enum Source {
    /// There are none.
    Empty,
    /// From us.
    Own(Bytes),
    /// From the API's handler.
    Api(ApiBody),
    /// From an origin.
    Origin(Download),
    /// Nowhere: the connection goes on as something else.
    Switch(Box<Upgraded>),
}

/// A response body on its way to the client. When it is dropped the request is over, and recorded.
pub(crate) struct ResponseBody {
    source: Source,
    /// What is left of a frame that is given out in pieces.
    rest: Bytes,
    context: Option<Box<RequestContext>>,
    /// The connection that ends with it.
    closing_wire: Option<Arc<WireState>>,
}

impl ResponseBody {
    /// A body from this source, which ends this request.
    pub(crate) fn new(source: Source, context: Option<Box<RequestContext>>) -> Self {
        Self { source, rest: Bytes::new(), context, closing_wire: None }
    }

    /// Whether it was made here and not by an origin.
    pub(crate) fn is_own(&self) -> bool {
        matches!(self.source, Source::Own(_) | Source::Api(_))
    }

    /// Whether an origin's answer passes on with it.
    pub(crate) fn is_from_origin(&self) -> bool {
        matches!(self.source, Source::Origin(_))
    }

    /// The same body; its end is the end of the request that this context stands for.
    pub(crate) fn with_context(mut self, mut context: Box<RequestContext>, server: Arc<HttpServer>) -> Self {
        if !self.is_end_stream() {
            context.begin_revocation_checks(server);
        }
        self.context = Some(context);
        send_bound::mark_waiting_for_client();
        self
    }

    /// All that was announced of it has been given out, whatever its origin still says.
    pub(crate) fn mark_complete(&mut self) {
        if let Some(context) = &mut self.context {
            context.mark_complete();
        }
    }

    /// The end of HTTP on its connection.
    pub(crate) fn with_upgrade(mut self, upgraded: Upgraded) -> Self {
        self.source = Source::Switch(Box::new(upgraded));
        self
    }

    /// What its connection goes on as, when that is something else.
    pub(crate) fn take_upgraded(&mut self) -> Option<Upgraded> {
        if !matches!(self.source, Source::Switch(_)) {
            return None;
        }
        match std::mem::replace(&mut self.source, Source::Empty) {
            Source::Switch(upgraded) => Some(*upgraded),
            _ => None,
        }
    }

    /// The same body, after which this connection of HTTP/1 ends; to be told behind [`ResponseBody::with_context`].
    pub(crate) fn with_connection_end(mut self, wire: Arc<WireState>) -> Self {
        self.closing_wire = Some(wire);
        if self.is_end_stream() {
            self.finish_connection();
        }
        self
    }

    /// The body has been given out to its end. The connection ends behind it, or later: an origin may take the rest of the
    /// request after its answer.
    fn finish_connection(&mut self) {
        let is_whole = self.context.as_ref().is_none_or(|context| context.has_whole_request());
        if let Some(wire) = self.closing_wire.take().filter(|_| is_whole) {
            wire.mark_last_write();
        }
    }

    /// Sends on of the request while its client takes nothing of the answer.
    pub(crate) fn poll_upload(&mut self, cx: &mut Context<'_>) {
        if let Source::Origin(download) = &mut self.source {
            download.poll_upload(cx);
        }
    }

    fn poll_source(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Poll::Ready(match &mut self.source {
            Source::Empty | Source::Switch(_) => None,
            Source::Own(_) => match std::mem::replace(&mut self.source, Source::Empty) {
                Source::Own(bytes) => Some(Ok(Frame::data(bytes))),
                _ => None,
            },
            Source::Api(body) => ready!(Pin::new(body).poll_frame(cx)),
            Source::Origin(download) => {
                const REVOKED: &str = "whose request it was may not come in any more";
                if self.context.as_mut().is_some_and(|context| context.poll_revoked(false, cx).is_ready()) {
                    return Poll::Ready(Some(Err(REVOKED.into())));
                }
                let mut pass = self.context.as_mut().and_then(|context| context.pass());
                if let Some(pass) = &mut pass {
                    ready!(pass.poll_ready(cx));
                }
                match download.poll_frame(cx) {
                    Poll::Ready(frame) => {
                        if let (Some(pass), Some(Ok(frame))) = (pass, &frame) {
                            pass.moved(frame.data_ref().map_or(0, Bytes::len));
                        }
                        frame
                    }
                    Poll::Pending => {
                        ready!(self.context.as_mut().map_or(Poll::Pending, |context| context.poll_revoked(true, cx)));
                        Some(Err(REVOKED.into()))
                    }
                }
            }
        })
    }

    /// What is left of the request's body over HTTP/2 and that nobody wants, when all of the answer has been given out. The
    /// request is over with it.
    pub(crate) fn into_unread(self) -> Option<UnreadBody> {
        let state = self.context.as_ref()?.http2_upload()?.clone();
        // What the origin's connection holds of the body comes back with the end of the answer.
        drop(self);
        let body = state.take_unread()?;
        Some(UnreadBody::new(body, state))
    }

    /// What is given out of a frame on this connection: all of it, or in HTTP/2 its first piece.
    fn split_frame(&mut self, frame: Frame<Bytes>) -> Frame<Bytes> {
        let is_http2 = send_bound::mark_waiting_for_client();
        if !is_http2 || frame.data_ref().is_none_or(|data| data.len() <= MAX_H2_PIECE_BYTES) {
            return frame;
        }
        match frame.into_data() {
            Ok(mut data) => {
                self.rest = data.split_off(MAX_H2_PIECE_BYTES);
                Frame::data(data)
            }
            Err(frame) => frame,
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        let frame = if this.rest.is_empty() {
            match this.poll_source(cx) {
                Poll::Ready(frame) => frame,
                Poll::Pending => {
                    send_bound::mark_waiting_for_origin();
                    return Poll::Pending;
                }
            }
        } else {
            Some(Ok(Frame::data(std::mem::take(&mut this.rest))))
        };
        let frame = frame.map(|frame| frame.map(|frame| this.split_frame(frame)));
        if this.closing_wire.is_some() && frame.as_ref().is_none_or(|frame| frame.is_ok() && this.is_end_stream()) {
            this.finish_connection();
        }
        if let Some(context) = &mut this.context {
            match &frame {
                Some(Ok(frame)) => context.record_sent(frame.data_ref().map_or(0, Bytes::len)),
                Some(Err(_)) => context.mark_broken(),
                None => context.mark_complete(),
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        // An answer that is a head alone ends with it, whatever the client still sends: gRPC has its status there
        // (Trailers-Only), and takes it from nowhere else when a frame follows.
        if !self.rest.is_empty() {
            return false;
        }
        match &self.source {
            Source::Empty | Source::Switch(_) => true,
            Source::Own(bytes) => bytes.is_empty(),
            Source::Api(body) => body.is_end_stream(),
            Source::Origin(download) => download.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Empty | Source::Switch(_) => SizeHint::with_exact(0),
            Source::Own(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Source::Api(body) => body.size_hint(),
            Source::Origin(download) => download.size_hint(),
        }
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        if let Some(mut context) = self.context.take() {
            if self.is_end_stream() {
                context.mark_complete();
            }
            context.record();
        }
    }
}
