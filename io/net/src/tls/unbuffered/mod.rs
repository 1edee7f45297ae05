//! TLS 1.3 over a tokio stream without buffers of its own; `sallyport-tls-records` reads and writes the records.
//!
//! Thousands of connections are idle at a time. A connection borrows a buffer while bytes move; encryption, decryption,
//! reads and writes all use the same buffer.

mod buffers;

use std::{
    fmt,
    io::{self, IoSlice},
    ops::Range,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};

use rustls::{ClientConfig, ServerConfig, pki_types::ServerName};
use sallyport_tls_records::{
    Established, HEADER_BYTES, Handshake, HandshakeError, MAX_CONTROL_BYTES, MAX_PLAIN_BYTES, Received, RecordError,
    RecordLayer, Step, whole_record,
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};

use self::buffers::MAX_RECORDS;

/// A TLS 1.3 connection over `S`. It borrows a buffer while there are bytes in it, and holds none while idle.
pub struct UnbufferedTlsStream<S> {
    io: S,
    records: RecordLayer,
    incoming: Option<Incoming>,
    outgoing: Option<Outgoing>,
    /// The peer sends no more data.
    has_ended: bool,
    /// This side sends no more data.
    is_closed: bool,
    has_failed: bool,
}

/// Received bytes that the reader has not taken.
struct Incoming {
    bytes: Box<[u8]>,
    /// The decrypted part.
    plain: Range<usize>,
    /// The part that is still encrypted.
    sealed: Range<usize>,
}

/// Encrypted bytes to be sent.
struct Outgoing {
    bytes: Box<[u8]>,
    rest: Range<usize>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> UnbufferedTlsStream<S> {
    /// Begins TLS with a server, and verifies that the server is `name`. Returns the stream and the agreed protocol
    /// (ALPN). The configuration must have `enable_secret_extraction`.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] with a [`rustls::Error`] when the handshake fails, [`io::ErrorKind::Unsupported`]
    /// when the server speaks TLS 1.2; otherwise an error of `io`.
    pub async fn connect(
        io: S,
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> io::Result<(Self, Option<Vec<u8>>)> {
        Self::shake_hands(io, Handshake::client(config, name).map_err(handshake_error)?).await
    }

    /// Begins TLS with a client. Returns the stream and the agreed protocol (ALPN). The configuration must have
    /// `enable_secret_extraction`.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub async fn accept(io: S, config: Arc<ServerConfig>) -> io::Result<(Self, Option<Vec<u8>>)> {
        Self::shake_hands(io, Handshake::server(config).map_err(handshake_error)?).await
    }

    async fn shake_hands(mut io: S, mut handshake: Handshake) -> io::Result<(Self, Option<Vec<u8>>)> {
        loop {
            match handshake.advance() {
                Ok(Step::Send) => send(&mut io, handshake.outgoing()).await?,
                Ok(Step::Read) => {
                    if io.read_buf(handshake.read_buffer().map_err(handshake_error)?).await? == 0 {
                        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "tls handshake eof"));
                    }
                }
                Ok(Step::Done) => return Ok(Self::new(io, handshake.finish().map_err(handshake_error)?)),
                Err(error) => {
                    // The peer may no longer read the alert.
                    drop(send(&mut io, handshake.outgoing()).await);
                    return Err(handshake_error(error));
                }
            }
        }
    }

    fn new(io: S, established: Established) -> (Self, Option<Vec<u8>>) {
        let Established { records, received, alpn } = established;
        let incoming = (!received.is_empty()).then(|| Incoming {
            sealed: 0..received.len(),
            bytes: received.into_boxed_slice(),
            plain: 0..0,
        });
        let stream =
            Self { io, records, incoming, outgoing: None, has_ended: false, is_closed: false, has_failed: false };
        (stream, alpn)
    }

    /// Sends all sealed records, and those that must leave before more are sealed.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            if let Some(outgoing) = &mut self.outgoing {
                while !outgoing.rest.is_empty() {
                    let written =
                        ready!(Pin::new(&mut self.io).poll_write(cx, &outgoing.bytes[outgoing.rest.clone()]))?;
                    if written == 0 {
                        return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                    }
                    outgoing.rest.start += written;
                }
            }
            if let Some(outgoing) = self.outgoing.take() {
                buffers::give_back(outgoing.bytes);
            }
            let first = self.records.take_outgoing();
            if first.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let rest = 0..first.len();
            self.outgoing = Some(Outgoing { bytes: first.into_boxed_slice(), rest });
        }
    }

    fn poll_seal(&mut self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        if self.has_failed || self.is_closed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if let Err(error) = self.records.prepare(MAX_RECORDS as u64) {
            return Poll::Ready(Err(self.fail(error)));
        }
        ready!(self.poll_drain(cx))?;
        let mut slices = bufs.iter().map(|buf| &buf[..]).filter(|slice| !slice.is_empty());
        let Some(mut slice) = slices.next() else { return Poll::Ready(Ok(0)) };
        let mut bytes = buffers::take();
        let (mut end, mut taken) = (0, 0);
        for _ in 0..MAX_RECORDS {
            let room = &mut bytes[end..];
            let len = gather(&mut slice, &mut slices, &mut room[HEADER_BYTES..HEADER_BYTES + MAX_PLAIN_BYTES]);
            if len == 0 {
                break;
            }
            match self.records.seal_data(room, len) {
                Ok(sealed) => end += sealed,
                Err(error) => return Poll::Ready(Err(self.fail(error))),
            }
            taken += len;
        }
        self.outgoing = Some(Outgoing { bytes, rest: 0..end });
        // Bytes that do not leave now leave with the next write or flush.
        match self.poll_drain(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(taken)),
        }
    }

    /// Ends the connection, and sends the alert if the peer reads.
    fn fail(&mut self, error: RecordError) -> io::Error {
        self.has_failed = true;
        self.release_incoming();
        if self.records.abort(&error).is_ok() {
            drop(self.poll_drain(&mut Context::from_waker(Waker::noop())));
        }
        io::Error::new(io::ErrorKind::InvalidData, error)
    }

    /// Copies decrypted data to the reader, and decrypts more while the reader has room.
    fn take_what_is_there(&mut self, buf: &mut ReadBuf<'_>) -> Result<(), RecordError> {
        while let Some(incoming) = &mut self.incoming {
            let n = incoming.plain.len().min(buf.remaining());
            buf.put_slice(&incoming.bytes[incoming.plain.start..incoming.plain.start + n]);
            incoming.plain.start += n;
            if !incoming.plain.is_empty() {
                return Ok(());
            }
            if incoming.sealed.is_empty() || self.has_ended {
                self.release_incoming();
                return Ok(());
            }
            let Some(opened) = self.records.open(&mut incoming.bytes[incoming.sealed.clone()])? else { return Ok(()) };
            let start = incoming.sealed.start;
            incoming.sealed.start += opened.taken;
            match opened.received {
                Received::Data(range) => incoming.plain = start + range.start..start + range.end,
                Received::Nothing => {}
                Received::Close => self.has_ended = true,
            }
        }
        Ok(())
    }

    /// Reads more after the rest of the last record; false at the end.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let kept = self.incoming.as_ref().map_or(0, |incoming| incoming.sealed.len());
        let mut bytes = match &mut self.incoming {
            Some(incoming) if incoming.bytes.len() == buffers::BUFFER_BYTES => {
                incoming.bytes.copy_within(incoming.sealed.clone(), 0);
                (incoming.plain, incoming.sealed) = (0..0, 0..kept);
                std::mem::take(&mut incoming.bytes)
            }
            _ => buffers::take(),
        };
        let mut into = ReadBuf::new(&mut bytes[kept..]);
        let read = Pin::new(&mut self.io).poll_read(cx, &mut into);
        let n = into.filled().len();
        match &mut self.incoming {
            // Until now the incomplete record was in a buffer of its own size.
            Some(incoming) if !incoming.bytes.is_empty() && n > 0 => {
                bytes[..kept].copy_from_slice(&incoming.bytes[incoming.sealed.clone()]);
            }
            // No more bytes: the incomplete record waits in a buffer of its own size.
            Some(incoming) if incoming.bytes.is_empty() && n == 0 => {
                incoming.bytes = bytes[..kept].into();
            }
            _ => {}
        }
        if n == 0 {
            buffers::give_back(bytes);
            return read.map_ok(|()| false);
        }
        self.incoming = Some(Incoming { bytes, plain: 0..0, sealed: 0..kept + n });
        Poll::Ready(Ok(true))
    }
}

impl<S> UnbufferedTlsStream<S> {
    /// The underlying connection; not to be read from.
    pub fn get_ref(&self) -> &S {
        &self.io
    }

    /// The underlying connection; not to be read from or written to.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.io
    }

    /// Whether a complete record has arrived that may hold a request: one that was not read yet, and that is longer
    /// than records without data. An HTTP request is always longer.
    pub fn has_request(&self) -> bool {
        let Some(incoming) = &self.incoming else { return false };
        let sealed = incoming.bytes.get(incoming.sealed.clone()).unwrap_or_default();
        !incoming.plain.is_empty() || whole_record(sealed).is_some_and(|body| body.len() > MAX_CONTROL_BYTES)
    }

    fn release_incoming(&mut self) {
        if let Some(incoming) = self.incoming.take() {
            buffers::give_back(incoming.bytes);
        }
    }
}

async fn send<S: AsyncWrite + Unpin>(io: &mut S, outgoing: &mut Vec<u8>) -> io::Result<()> {
    if outgoing.is_empty() {
        return Ok(());
    }
    io.write_all(outgoing).await?;
    outgoing.clear();
    io.flush().await
}

fn handshake_error(error: HandshakeError) -> io::Error {
    match error {
        HandshakeError::Tls(error) => io::Error::new(io::ErrorKind::InvalidData, error),
        HandshakeError::TooLong(_) => io::Error::new(io::ErrorKind::InvalidData, error),
        HandshakeError::Version => io::Error::new(io::ErrorKind::Unsupported, error),
        HandshakeError::Records(error) => io::Error::other(error),
    }
}

/// Copies from these slices into the room, as much as fits.
fn gather<'a>(slice: &mut &'a [u8], slices: &mut impl Iterator<Item = &'a [u8]>, room: &mut [u8]) -> usize {
    let mut len = 0;
    while len < room.len() {
        if slice.is_empty() {
            let Some(next) = slices.next() else { break };
            *slice = next;
        }
        let n = slice.len().min(room.len() - len);
        room[len..len + n].copy_from_slice(&slice[..n]);
        *slice = &slice[n..];
        len += n;
    }
    len
}

impl<S> fmt::Debug for UnbufferedTlsStream<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnbufferedTlsStream").field("has_ended", &self.has_ended).finish_non_exhaustive()
    }
}

impl<S> Drop for UnbufferedTlsStream<S> {
    fn drop(&mut self) {
        self.release_incoming();
        if let Some(outgoing) = self.outgoing.take() {
            buffers::give_back(outgoing.bytes);
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for UnbufferedTlsStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buf.filled().len();
        loop {
            if buf.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            if this.has_failed {
                return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
            }
            if let Err(error) = this.take_what_is_there(buf) {
                let error = this.fail(error);
                // Data before the error is delivered first.
                return Poll::Ready(if buf.filled().len() > before { Ok(()) } else { Err(error) });
            }
            if buf.filled().len() > before || this.has_ended {
                return Poll::Ready(Ok(()));
            }
            if !ready!(this.poll_more(cx))? {
                let text = "the connection ended without close_notify";
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::UnexpectedEof, text)));
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for UnbufferedTlsStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_seal(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_seal(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(cx))?;
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.is_closed && !self.has_failed {
            self.is_closed = true;
            self.records.close().map_err(io::Error::other)?;
        }
        ready!(self.poll_drain(cx))?;
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
