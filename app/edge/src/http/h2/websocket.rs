//! The bytes of a WebSocket on an HTTP/2 stream (RFC 8441): DATA frames both ways.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::Body as _;
use sallyport_http2::Room;
use sallyport_net::RelayEnd;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::stream::StreamResponse;

use crate::{
    body::{h2::Http2Body, upload_meter::MeteredUpload},
    http::{connection::Client, multiplexed::MIN_PROGRESS_BYTES, server::HttpServer},
    util::idle_timer::IdleTimer,
};

/// The client's side of an extended CONNECT, kept until the origin has responded.
pub(super) struct PendingWebSocket {
    pub(super) server: Arc<HttpServer>,
    pub(super) client: Arc<Client>,
    /// The client's bytes; `None` if the head ended the stream.
    body: Option<Http2Body>,
    /// Counts the bytes in memory.
    upload: Option<MeteredUpload>,
}

impl PendingWebSocket {
    /// The client's side with these bytes.
    pub(super) fn new(server: Arc<HttpServer>, client: Arc<Client>, body: Option<Http2Body>) -> Box<Self> {
        let upload = client.uploads.as_ref().map(|uploads| uploads.begin());
        Box::new(Self { server, client, body, upload })
    }

    /// The stream, once the head of the response was sent.
    pub(super) fn into_stream(self, response: StreamResponse) -> WebSocketStream {
        let idle_timer = IdleTimer::new(self.client.send_timeout);
        let (body, upload, rest) = (self.body, self.upload, Bytes::new());
        WebSocketStream { response, body, upload, rest, idle_timer, has_ended: false }
    }
}

/// The bytes of both directions. The end of a direction is END_STREAM. Dropped early, the stream is reset.
//= RFC 8441 section 5
//# Orderly TCP-level closures are represented as END_STREAM flags ([RFC7540], Section 6.1). RST exceptions are
//# represented with the RST_STREAM frame ([RFC7540], Section 6.4) with the CANCEL error code ([RFC7540], Section 7).
pub(super) struct WebSocketStream {
    response: StreamResponse,
    /// The client's direction; `None` once it has ended.
    body: Option<Http2Body>,
    upload: Option<MeteredUpload>,
    /// Received bytes that were not read yet.
    rest: Bytes,
    /// Bounds how long the client takes none of the waiting bytes.
    idle_timer: IdleTimer,
    /// Whether the direction to the client has ended.
    has_ended: bool,
}

fn reset() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the client's stream broke off")
}

impl WebSocketStream {
    /// Sends a frame within the window. It ends the direction if it `is_last` and has all bytes.
    fn poll_send(&mut self, buf: &[u8], is_last: bool, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let stream = self.response.stream;
        let sent = self.response.shared.with(|server| match server.room(stream) {
            Room::Bytes(room) => {
                let piece = buf.get(..room).unwrap_or(buf);
                let ends = is_last && piece.len() == buf.len();
                server.send_data(stream, Bytes::copy_from_slice(piece), ends);
                Poll::Ready(Ok((piece.len(), ends)))
            }
            Room::Reset => Poll::Ready(Err(reset())),
            Room::Later => {
                if let Some(writer) = server.writer(stream) {
                    writer.wait(cx);
                }
                Poll::Pending
            }
        });
        let Poll::Ready(sent) = sent else {
            ready!(self.idle_timer.poll_over(cx));
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client reads nothing")));
        };
        let (bytes, ends) = sent?;
        self.idle_timer.moved |= bytes == buf.len() || bytes >= MIN_PROGRESS_BYTES;
        self.has_ended |= ends;
        Poll::Ready(Ok(bytes))
    }
}

impl AsyncRead for WebSocketStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while this.rest.is_empty() {
            let Some(body) = &mut this.body else { return Poll::Ready(Ok(())) };
            match ready!(Pin::new(body).poll_frame(cx)) {
                Some(Ok(frame)) => this.rest = frame.into_data().unwrap_or_default(),
                Some(Err(error)) => return Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionReset, error))),
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
        self.poll_send(buf, false, cx)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The connection writes its output by itself.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !std::mem::replace(&mut self.has_ended, true) {
            self.response.end();
        }
        Poll::Ready(Ok(()))
    }
}

impl RelayEnd for WebSocketStream {
    fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        self.response.poll_closed(cx).map(|()| reset())
    }

    fn poll_write_last(&mut self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_send(buf, true, cx)
    }
}
