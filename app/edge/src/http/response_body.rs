//! The body of a response on its way to a client.
//!
//! The body is not buffered: a frame is taken from the origin when the client has room for the frame.

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

/// How many bytes of a response a stream of HTTP/2 or HTTP/3 gets at once. The stream counts them as sent, and then
/// waits for the client.
const MAX_PIECE_BYTES: usize = 32 * 1024;
/// How long, and how many bytes, an unread request body is read before its stream is ended.
const MAX_UNREAD_TIME: Duration = Duration::from_secs(5);
const MAX_UNREAD_BYTES: u64 = 16 * 1024 * 1024;

/// The unread request body of a stream of HTTP/2 or HTTP/3 after the end of its response, read within bounds.
///
/// A client that still sends when its stream is reset may report a failure, even behind a complete response and with
/// NO_ERROR (RFC 9113 section 8.1). Reading on gives the client time to see the response.
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

    /// Ready when the body has ended, or a bound is reached.
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

/// The source of a response's bytes.
pub(crate) enum Source {
    /// The response has no body.
    Empty,
    /// Bytes of the edge itself.
    Own(Bytes),
    /// The API's handler.
    Api(ApiBody),
    /// An origin.
    Origin(Download),
    /// None: another protocol follows on the connection.
    Switch(Box<Upgraded>),
}

/// A response body on its way to the client. Dropping it ends the request, and records the request.
pub(crate) struct ResponseBody {
    source: Source,
    /// The rest of a frame that is sent in pieces.
    rest: Bytes,
    context: Option<Box<RequestContext>>,
    /// The connection that closes behind the body.
    closing_wire: Option<Arc<WireState>>,
}

impl ResponseBody {
    /// A body from this source, which ends the request of this context.
    pub(crate) fn new(source: Source, context: Option<Box<RequestContext>>) -> Self {
        Self { source, rest: Bytes::new(), context, closing_wire: None }
    }

    /// Whether the edge or its API made the body.
    pub(crate) fn is_own(&self) -> bool {
        matches!(self.source, Source::Own(_) | Source::Api(_))
    }

    /// Whether the body comes from an origin.
    pub(crate) fn is_from_origin(&self) -> bool {
        matches!(self.source, Source::Origin(_))
    }

    /// Ties the body to its request: the end of the body ends the request.
    pub(crate) fn with_context(mut self, mut context: Box<RequestContext>, server: Arc<HttpServer>) -> Self {
        if !self.is_end_stream() {
            context.begin_revocation_checks(server);
        }
        self.context = Some(context);
        send_bound::mark_waiting_for_client();
        self
    }

    /// Records that all announced bytes were sent, whatever the origin still sends.
    pub(crate) fn mark_complete(&mut self) {
        if let Some(context) = &mut self.context {
            context.mark_complete();
        }
    }

    /// Replaces the body by the protocol that follows on the connection.
    pub(crate) fn with_upgrade(mut self, upgraded: Upgraded) -> Self {
        self.source = Source::Switch(Box::new(upgraded));
        self
    }

    /// Takes the protocol that follows on the connection, if any.
    pub(crate) fn take_upgraded(&mut self) -> Option<Upgraded> {
        if !matches!(self.source, Source::Switch(_)) {
            return None;
        }
        match std::mem::replace(&mut self.source, Source::Empty) {
            Source::Switch(upgraded) => Some(*upgraded),
            _ => None,
        }
    }

    /// Closes the HTTP/1 connection behind the body. To be called after [`ResponseBody::with_context`].
    pub(crate) fn with_connection_end(mut self, wire: Arc<WireState>) -> Self {
        self.closing_wire = Some(wire);
        if self.is_end_stream() {
            self.finish_connection();
        }
        self
    }

    /// Marks the next write as the connection's last one, if the request body has ended. If not, the connection closes
    /// later: an origin may read the request after its response.
    fn finish_connection(&mut self) {
        let is_whole = self.context.as_ref().is_none_or(|context| context.has_whole_request());
        if let Some(wire) = self.closing_wire.take().filter(|_| is_whole) {
            wire.mark_last_write();
        }
    }

    /// Sends more of the request while the client does not read the response.
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
                const REVOKED: &str = "the access of the client was revoked";
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

    /// Ends the request, and returns the unread rest of its stream's body, if any. To be called when the response has
    /// been sent.
    pub(crate) fn into_unread(self) -> Option<UnreadBody> {
        let state = self.context.as_ref()?.stream_upload()?.clone();
        // Dropping the response returns what the connection to the origin holds of the body.
        drop(self);
        let body = state.take_unread()?;
        Some(UnreadBody::new(body, state))
    }

    /// The frame to send now: the whole frame, or its first piece over HTTP/2 and HTTP/3.
    fn split_frame(&mut self, frame: Frame<Bytes>) -> Frame<Bytes> {
        let has_stream = send_bound::mark_waiting_for_client();
        if !has_stream || frame.data_ref().is_none_or(|data| data.len() <= MAX_PIECE_BYTES) {
            return frame;
        }
        match frame.into_data() {
            Ok(mut data) => {
                self.rest = data.split_off(MAX_PIECE_BYTES);
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
        // A response without a body ends with its head. gRPC clients read the status there (Trailers-Only) only if no
        // frame follows.
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
