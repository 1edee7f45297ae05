//! Carriers over WebSocket (RFC 6455): binary messages hold the carrier's bytes; message boundaries have no meaning.
//!
//! tungstenite reads and writes the frames. Pings are answered. Text messages are refused (close code 1003), and so are
//! messages above [`MAX_MESSAGE_BYTES`] (1009). A Close frame ends the connection.

use std::{
    future::Future as _,
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use futures_core::Stream as _;
use futures_sink::Sink as _;
use http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{
        CONNECTION, ORIGIN, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION,
        UPGRADE,
    },
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Sleep,
};
use tokio_tungstenite::{
    WebSocketStream, client_async_with_config,
    tungstenite::{
        ClientRequestBuilder, Error, Message,
        error::CapacityError,
        handshake::derive_accept_key,
        protocol::{CloseFrame, Role, WebSocketConfig, frame::coding::CloseCode},
    },
};

/// Path at which an edge accepts carriers over WebSocket, on the host that connectors dial.
pub const PATH: &str = "/_sallyport/tunnel";
/// The subprotocol that both sides offer.
pub const SUBPROTOCOL: &str = "sallyport-tunnel.1";
/// The longest message, in bytes, in one frame or several. An unauthenticated client makes the edge buffer at most this
/// much.
pub const MAX_MESSAGE_BYTES: usize = 65_536;
/// Size of the read buffer of each carrier, in bytes.
const READ_BUFFER_BYTES: usize = 16_384;
/// Bound on bytes that wait to be written (one message and pongs).
const MAX_UNWRITTEN_BYTES: usize = 256 * 1024;
/// Bounds on reading and discarding after a protocol error: time and bytes. Closing at once would lose the Close frame.
const MAX_LINGER: Duration = Duration::from_secs(1);
const MAX_LINGER_BYTES: usize = 4 * 1024 * 1024;

/// Reason why a WebSocket request was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WebSocketRefusal {
    /// The request has no `Upgrade: websocket`.
    #[error("connectors open their tunnels over WebSocket here")]
    NoUpgrade,
    /// `Sec-WebSocket-Version` is not 13.
    #[error("only version 13 of the WebSocket protocol is supported")]
    Version,
    /// `Sec-WebSocket-Key` is missing or malformed.
    #[error("Sec-WebSocket-Key is not the Base64 of 16 bytes")]
    Key,
    /// `Sec-WebSocket-Protocol` does not offer [`SUBPROTOCOL`].
    #[error("Sec-WebSocket-Protocol does not offer sallyport-tunnel.1")]
    Subprotocol,
    /// The request has an `Origin` field, as requests of browsers have.
    #[error("the request has an Origin field: pages in a browser cannot open tunnels")]
    Browser,
}

impl WebSocketRefusal {
    /// The status of the response.
    #[must_use]
    pub fn status(self) -> StatusCode {
        match self {
            Self::NoUpgrade | Self::Version => StatusCode::UPGRADE_REQUIRED,
            Self::Key | Self::Subprotocol => StatusCode::BAD_REQUEST,
            Self::Browser => StatusCode::FORBIDDEN,
        }
    }

    /// Header fields of the response that tell the client what is supported (RFC 6455 section 4.4, RFC 9110 section
    /// 7.8).
    #[must_use]
    pub fn headers(self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if self.status() == StatusCode::UPGRADE_REQUIRED {
            headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
            headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
            headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        }
        headers
    }
}

/// Checks a WebSocket request and returns the header fields of the 101 response. The caller has checked that the
/// request asks for a WebSocket. Requests of browsers are refused: a page has no tunnel credential and must not use its
/// visitors' connections.
///
/// # Errors
/// The request does not fit: see [`WebSocketRefusal`].
pub fn agree(headers: &HeaderMap) -> Result<HeaderMap, WebSocketRefusal> {
    if headers.contains_key(ORIGIN) {
        return Err(WebSocketRefusal::Browser);
    }
    if single(headers, SEC_WEBSOCKET_VERSION.as_str()).map(HeaderValue::as_bytes) != Some(b"13") {
        return Err(WebSocketRefusal::Version);
    }
    let key = single(headers, SEC_WEBSOCKET_KEY.as_str()).map(HeaderValue::as_bytes).unwrap_or_default();
    if !is_key(key) {
        return Err(WebSocketRefusal::Key);
    }
    let offers = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
    let mut names = offers.flat_map(|value| value.as_bytes().split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    if !names.any(|name| name == SUBPROTOCOL.as_bytes()) {
        return Err(WebSocketRefusal::Subprotocol);
    }
    let accept = HeaderValue::from_str(&derive_accept_key(key)).map_err(|_| WebSocketRefusal::Key)?;
    let mut answer = HeaderMap::new();
    answer.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    answer.insert(UPGRADE, HeaderValue::from_static("websocket"));
    answer.insert(SEC_WEBSOCKET_ACCEPT, accept);
    answer.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(SUBPROTOCOL));
    Ok(answer)
}

fn single<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a HeaderValue> {
    let mut values = headers.get_all(name).iter();
    values.next().filter(|_| values.next().is_none())
}

/// Whether `key` is 16 bytes in Base64: 22 digits and the padding.
fn is_key(key: &[u8]) -> bool {
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    key.len() == 24 && key.ends_with(b"==") && key[..22].iter().all(is_digit)
}

/// A carrier over WebSocket: a byte stream in binary messages.
pub struct WebSocketCarrier<S> {
    socket: WebSocketStream<S>,
    /// Bytes of the last message that were not read yet.
    rest: Bytes,
    is_over: bool,
    refused: Option<Refused>,
}

/// State after a protocol error of the peer: further input is discarded.
struct Refused {
    why: String,
    until: Pin<Box<Sleep>>,
    left_bytes: usize,
}

impl<S> std::fmt::Debug for WebSocketCarrier<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebSocketCarrier").field("is_over", &self.is_over).finish_non_exhaustive()
    }
}

fn config() -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER_BYTES)
        // The caller flushes, and TLS below makes records of the output.
        .write_buffer_size(0)
        .max_write_buffer_size(MAX_UNWRITTEN_BYTES)
        .max_message_size(Some(MAX_MESSAGE_BYTES))
        .max_frame_size(Some(MAX_MESSAGE_BYTES))
}

impl<S: AsyncRead + AsyncWrite + Unpin> WebSocketCarrier<S> {
    /// The edge's side after [`agree`]; `early` is what was already read from the connection.
    pub async fn accepted(io: S, early: Vec<u8>) -> Self {
        Self::new(WebSocketStream::from_partially_read(io, early, Role::Server, Some(config())).await)
    }

    /// The connector's side: requests a WebSocket on this connection to an edge at `host` and `port`.
    ///
    /// # Errors
    /// The edge refuses, or the response is no WebSocket handshake; the text says why.
    pub async fn request(io: S, host: &str, port: u16, agent: &str) -> io::Result<Self>
    where
        S: Send,
    {
        let authority = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        let uri = format!("wss://{authority}{PATH}")
            .parse()
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, format!("{host:?} is not a valid host")))?;
        let request =
            ClientRequestBuilder::new(uri).with_sub_protocol(SUBPROTOCOL).with_header("User-Agent", agent.to_owned());
        match client_async_with_config(request, io, Some(config())).await {
            Ok((socket, _)) => Ok(Self::new(socket)),
            Err(Error::Io(error)) => Err(error),
            Err(Error::Http(answer)) => {
                let text = format!(
                    "{authority} does not accept tunnels over WebSocket (status {}): is it a Sallyport edge?",
                    answer.status().as_u16()
                );
                Err(io::Error::new(io::ErrorKind::Unsupported, text))
            }
            Err(error) => {
                let text = format!("the WebSocket handshake with {authority} failed: {error}");
                Err(io::Error::new(io::ErrorKind::InvalidData, text))
            }
        }
    }

    fn new(socket: WebSocketStream<S>) -> Self {
        Self { socket, rest: Bytes::new(), is_over: false, refused: None }
    }

    /// The underlying connection.
    pub fn get_ref(&self) -> &S {
        self.socket.get_ref()
    }

    /// Sends a Close frame with the reason if possible, and lingers so that the peer can read the frame.
    fn refuse(&mut self, cx: &mut Context<'_>, code: CloseCode, why: &str) {
        let mut socket = Pin::new(&mut self.socket);
        let frame = CloseFrame { code, reason: why.to_owned().into() };
        if socket.as_mut().start_send(Message::Close(Some(frame))).is_ok() {
            let _ = socket.as_mut().poll_flush(cx);
        }
        let until = Box::pin(tokio::time::sleep(MAX_LINGER));
        self.refused = Some(Refused { why: why.to_owned(), until, left_bytes: MAX_LINGER_BYTES });
    }

    /// Ready once the peer has closed, or the time of lingering has passed.
    fn poll_refused(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let Some(refused) = &mut self.refused else { return Poll::Pending };
        let mut scrap = [0; 4_096];
        while refused.left_bytes > 0 && refused.until.as_mut().poll(cx).is_pending() {
            let mut buf = ReadBuf::new(&mut scrap);
            match ready!(Pin::new(self.socket.get_mut()).poll_read(cx, &mut buf)) {
                Ok(()) if !buf.filled().is_empty() => {
                    refused.left_bytes = refused.left_bytes.saturating_sub(buf.filled().len());
                }
                _ => break,
            }
        }
        Poll::Ready(io::Error::new(io::ErrorKind::InvalidData, refused.why.clone()))
    }

    /// Reads the next message once the last one is used up.
    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.rest.is_empty() && !self.is_over {
            if self.refused.is_some() {
                return self.poll_refused(cx).map(Err);
            }
            match ready!(Pin::new(&mut self.socket).poll_next(cx)) {
                Some(Ok(Message::Binary(bytes))) => self.rest = bytes,
                Some(Ok(Message::Text(_))) => {
                    self.refuse(cx, CloseCode::Unsupported, "tunnels use binary messages, not text");
                }
                Some(Ok(Message::Close(_))) | None => {
                    self.is_over = true;
                    // Tungstenite has queued a Close frame, which may be the last frame written.
                    let _ = Pin::new(&mut self.socket).poll_flush(cx);
                }
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                Some(Err(Error::Capacity(CapacityError::MessageTooLong { .. }))) => {
                    self.refuse(cx, CloseCode::Size, "a message is longer than 64 KiB");
                }
                Some(Err(Error::Protocol(error))) => {
                    self.refuse(cx, CloseCode::Protocol, &error.to_string());
                }
                Some(Err(error)) => return Poll::Ready(Err(as_io(error))),
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.refused.is_some() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        Pin::new(&mut self.socket).poll_ready(cx).map_err(as_io)
    }

    fn send(&mut self, bytes: Bytes) -> io::Result<usize> {
        let n = bytes.len();
        Pin::new(&mut self.socket).start_send(Message::Binary(bytes)).map_err(as_io)?;
        Ok(n)
    }
}

fn as_io(error: Error) -> io::Error {
    match error {
        Error::Io(error) => error,
        Error::ConnectionClosed | Error::AlreadyClosed => io::ErrorKind::BrokenPipe.into(),
        error => io::Error::new(io::ErrorKind::InvalidData, error.to_string()),
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for WebSocketCarrier<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_message(cx))?;
        let n = self.rest.len().min(buf.remaining());
        buf.put_slice(&self.rest.split_to(n));
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for WebSocketCarrier<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        ready!(self.poll_room(cx))?;
        Poll::Ready(self.send(Bytes::copy_from_slice(&buf[..buf.len().min(MAX_MESSAGE_BYTES)])))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let len = bufs.iter().map(|buf| buf.len()).sum::<usize>().min(MAX_MESSAGE_BYTES);
        if len == 0 {
            return Poll::Ready(Ok(0));
        }
        ready!(self.poll_room(cx))?;
        let mut message = BytesMut::with_capacity(len);
        for buf in bufs {
            message.extend_from_slice(&buf[..buf.len().min(len - message.len())]);
        }
        Poll::Ready(self.send(message.freeze()))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx).map_err(as_io)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.socket).poll_close(cx)).map_err(as_io)?;
        Pin::new(self.socket.get_mut()).poll_shutdown(cx)
    }
}
