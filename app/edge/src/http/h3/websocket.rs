//! The bytes of a WebSocket on an HTTP/3 stream (RFC 9220): DATA frames both ways.

use std::{
    future::Future as _,
    io,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::Body as _;
use sallyport_http3::{ErrorCode, response};
use sallyport_net::RelayEnd;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::stream::StreamResponse;

use crate::{
    body::{h3::Http3Body, upload_meter::MeteredUpload},
    http::{connection::Client, multiplexed::MIN_PROGRESS_BYTES, server::HttpServer},
    util::idle_timer::IdleTimer,
};

/// The longest header of a DATA frame, in bytes.
const MAX_DATA_HEAD_BYTES: usize = 9;

/// The client's side of an extended CONNECT, kept until the origin has responded.
pub(super) struct PendingWebSocket {
    pub(super) server: Arc<HttpServer>,
    pub(super) client: Arc<Client>,
    /// The client's bytes.
    pub(super) body: Http3Body,
    /// Counts the bytes in memory.
    upload: Option<MeteredUpload>,
}

impl PendingWebSocket {
    /// The client's side with these bytes.
    pub(super) fn new(server: Arc<HttpServer>, client: Arc<Client>, body: Http3Body) -> Box<Self> {
        let upload = client.uploads.as_ref().map(|uploads| uploads.begin());
        Box::new(Self { server, client, body, upload })
    }

    /// The stream, once the head of the response was sent.
    pub(super) fn into_stream(self, response: StreamResponse) -> WebSocketStream {
        WebSocketStream {
            response,
            body: Some(self.body),
            upload: self.upload,
            rest: Bytes::new(),
            unwritten: Bytes::new(),
            idle_timer: IdleTimer::new(self.client.send_timeout),
            has_ended: false,
        }
    }
}

/// The bytes of both directions. The end of a direction is the end of the QUIC stream. Dropped early, the stream is
/// reset.
//= RFC 9220 section 3
//# Orderly TCP-level closures are represented as a FIN bit on the stream. RST exceptions are represented with a stream
//# error of type H3_REQUEST_CANCELLED.
pub(super) struct WebSocketStream {
    response: StreamResponse,
    /// The client's direction; `None` once it has ended.
    body: Option<Http3Body>,
    upload: Option<MeteredUpload>,
    /// Received bytes that were not read yet.
    rest: Bytes,
    /// The part of a frame that QUIC has not accepted yet.
    unwritten: Bytes,
    /// Bounds how long the client takes none of the waiting bytes.
    idle_timer: IdleTimer,
    /// Whether the direction to the client has ended.
    has_ended: bool,
}

fn reset() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the client's stream broke off")
}

impl WebSocketStream {
    /// Ready when QUIC has accepted all frames.
    fn poll_accepted(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unwritten.is_empty() {
            let mut pieces = [std::mem::take(&mut self.unwritten)];
            let written = pin!(self.response.send.write_chunks(&mut pieces)).poll(cx);
            [self.unwritten] = pieces;
            let Poll::Ready(written) = written else { return self.poll_too_slow(cx) };
            let bytes = written.map_err(|_| reset())?.bytes;
            self.idle_timer.moved |= self.unwritten.is_empty() || bytes >= MIN_PROGRESS_BYTES;
        }
        Poll::Ready(Ok(()))
    }

    /// Ready with an error when the client has taken nothing for too long.
    fn poll_too_slow(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.idle_timer.poll_over(cx).map(|()| Err(io::Error::new(io::ErrorKind::TimedOut, "the client reads nothing")))
    }
}

impl AsyncRead for WebSocketStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while this.rest.is_empty() {
            let Some(body) = &mut this.body else { return Poll::Ready(Ok(())) };
            let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(cx) else {
                body.release_credit();
                return Poll::Pending;
            };
            match frame {
                Some(Ok(frame)) => this.rest = frame.into_data().unwrap_or_default(),
                Some(Err(error)) => {
                    if let Some(code) = this.response.signals.broken() {
                        this.response.code = code;
                    }
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionReset, error)));
                }
                None => this.body = None,
            }
            if let Some(upload) = &this.upload {
                upload.record_taken(this.rest.len());
            }
        }
        let piece = this.rest.split_to(this.rest.len().min(buf.remaining()));
        buf.put_slice(&piece);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for WebSocketStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_accepted(cx))?;
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let mut frame = Vec::with_capacity(MAX_DATA_HEAD_BYTES + buf.len());
        response::write_data_head(buf.len(), &mut frame);
        frame.extend_from_slice(buf);
        self.unwritten = frame.into();
        match self.poll_accepted(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            // Later calls write the rest.
            _ => Poll::Ready(Ok(buf.len())),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_accepted(cx)
    }

    /// Ready when the client has received everything. A stream that is dropped before discards what was not received.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        ready!(this.poll_accepted(cx))?;
        if !std::mem::replace(&mut this.has_ended, true) {
            this.response.send.finish().map_err(|_| reset())?;
            this.idle_timer.restart();
        }
        match this.response.poll_stopped(cx) {
            Poll::Ready(()) if this.response.is_over => Poll::Ready(Ok(())),
            Poll::Ready(()) => Poll::Ready(Err(reset())),
            Poll::Pending => this.poll_too_slow(cx),
        }
    }
}

impl RelayEnd for WebSocketStream {
    fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        ready!(self.response.poll_stopped(cx));
        if !self.response.is_over {
            return Poll::Ready(reset());
        }
        // The client has received the end: that is for `poll_shutdown`.
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Drop for WebSocketStream {
    fn drop(&mut self) {
        if let Some(body) = &mut self.body {
            body.stop(ErrorCode::REQUEST_CANCELLED);
        }
    }
}
