//! TLS connections of HTTP clients.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
};

use sallyport_net::{Negotiated, RelayEnd, UnbufferedTlsStream};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::server::TlsStream;

use crate::client::{
    certificate::ClientCertificate,
    round_trips::RoundTripRecorder,
    tcp::{ClientIo as _, ClientTcp},
};

/// A client of HTTP, the API or a WebSocket, after its handshake.
pub(crate) struct HttpClient {
    /// The decrypted stream.
    pub(crate) stream: ClientTls,
    /// The protocol of its ALPN.
    pub(crate) negotiated: Negotiated,
    /// The client certificate, if the client presented one.
    pub(crate) certificate: Option<Box<ClientCertificate>>,
}

/// A client's TLS connection.
pub(crate) struct ClientTls {
    layer: TlsLayer,
    /// Records the round trip at the end of the connection.
    recorder: Option<RoundTripRecorder>,
}

#[expect(clippy::large_enum_variant, reason = "the large one is the usual one")]
enum TlsLayer {
    /// TLS 1.3, without a buffer while the connection is idle.
    Unbuffered(UnbufferedTlsStream<ClientTcp>),
    /// TLS 1.2, or a client that may present a certificate.
    Buffered(Box<TlsStream<ClientTcp>>),
}

impl ClientTls {
    /// A connection of TLS 1.3 that holds no buffer while it is idle.
    pub(crate) fn unbuffered(stream: UnbufferedTlsStream<ClientTcp>) -> Self {
        Self { layer: TlsLayer::Unbuffered(stream), recorder: None }
    }

    /// A connection of TLS 1.2, or of a client that may present a certificate.
    pub(crate) fn buffered(stream: TlsStream<ClientTcp>) -> Self {
        Self { layer: TlsLayer::Buffered(Box::new(stream)), recorder: None }
    }

    /// Has the round trip recorded at the end of the connection.
    pub(crate) fn set_recorder(&mut self, recorder: RoundTripRecorder) {
        self.recorder = Some(recorder);
    }

    /// The TCP connection below.
    pub(crate) fn socket(&self) -> &TcpStream {
        match &self.layer {
            TlsLayer::Unbuffered(stream) => stream.get_ref().socket(),
            TlsLayer::Buffered(stream) => stream.socket(),
        }
    }
}

impl Drop for ClientTls {
    fn drop(&mut self) {
        if let Some(recorder) = self.recorder.take() {
            recorder.record(self.socket());
        }
    }
}

impl RelayEnd for ClientTls {
    fn tcp(&self) -> Option<&TcpStream> {
        Some(self.socket())
    }
}

/// Calls the same method on either variant.
macro_rules! with_either {
    ($stream:expr, $method:ident($($argument:expr),*)) => {
        match &mut $stream.get_mut().layer {
            TlsLayer::Unbuffered(stream) => Pin::new(stream).$method($($argument),*),
            TlsLayer::Buffered(stream) => Pin::new(stream).$method($($argument),*),
        }
    };
}

impl AsyncRead for ClientTls {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        with_either!(self, poll_read(cx, buf))
    }
}

impl AsyncWrite for ClientTls {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        with_either!(self, poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        with_either!(self, poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        with_either!(self, poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        with_either!(self, poll_shutdown(cx))
    }
}
