//! TLS 1.3 for connections of which thousands rest: no buffer is kept while nothing moves, and bytes are encrypted and
//! decrypted in the buffer that the kernel reads and writes.

mod buffers;
mod handshake;
mod records;

use std::{
    fmt,
    io::{self, IoSlice},
    ops::Range,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};

use rustls::{ClientConfig, ServerConfig, pki_types::ServerName};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use self::{
    buffers::MAX_RECORDS,
    handshake::Done,
    records::{HEADER_BYTES, MAX_PLAIN_BYTES, RecordError, Records, What},
};

/// A TLS 1.3 connection. Its handshake, keys and tickets are rustls'; its records are sealed and opened here, in buffers
/// that it borrows while there are bytes in them.
pub struct LeanTls<S> {
    io: S,
    records: Records,
    incoming: Option<Incoming>,
    outgoing: Option<Outgoing>,
    /// The other side has said that it writes nothing more.
    has_ended: bool,
    /// We have.
    is_closed: bool,
    has_failed: bool,
}

/// What came and was not taken yet.
struct Incoming {
    bytes: Box<[u8]>,
    /// What was decrypted.
    plain: Range<usize>,
    /// What was not.
    sealed: Range<usize>,
}

/// What was sealed and is to be sent.
struct Outgoing {
    bytes: Box<[u8]>,
    rest: Range<usize>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> LeanTls<S> {
    /// Begins TLS with a server and verifies that it is this one. Says also what was agreed on (ALPN).
    /// The configuration must allow that secrets are taken out (`enable_secret_extraction`).
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] with a [`rustls::Error`] when the handshake fails, [`io::ErrorKind::Unsupported`] when
    /// the server speaks TLS 1.2; else what reading and writing gave.
    pub async fn connect(
        mut io: S,
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> io::Result<(Self, Option<Vec<u8>>)> {
        let done = handshake::connect(&mut io, config, name).await?;
        Ok(Self::new(io, done))
    }

    /// Begins TLS with a client. Says also what was agreed on (ALPN). The configuration must allow that secrets are taken
    /// out (`enable_secret_extraction`).
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub async fn accept(mut io: S, config: Arc<ServerConfig>) -> io::Result<(Self, Option<Vec<u8>>)> {
        let done = handshake::accept(&mut io, config).await?;
        Ok(Self::new(io, done))
    }

    fn new(io: S, done: Done) -> (Self, Option<Vec<u8>>) {
        let Done { records, sealed, alpn } = done;
        let incoming = (!sealed.is_empty()).then(|| Incoming {
            sealed: 0..sealed.len(),
            bytes: sealed.into_boxed_slice(),
            plain: 0..0,
        });
        let stream =
            Self { io, records, incoming, outgoing: None, has_ended: false, is_closed: false, has_failed: false };
        (stream, alpn)
    }

    /// Sends what was sealed, and what must leave before more is.
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
            let answers = self.records.take_answers();
            if answers.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let rest = 0..answers.len();
            self.outgoing = Some(Outgoing { bytes: answers.into_boxed_slice(), rest });
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
        // What does not leave now leaves with the next write, or when it is flushed.
        match self.poll_drain(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(taken)),
        }
    }

    /// The connection is of no use any more, and the other side is told so as far as it listens.
    fn fail(&mut self, error: RecordError) -> io::Error {
        self.has_failed = true;
        self.release_incoming();
        if self.records.say_why(&error).is_ok() {
            drop(self.poll_drain(&mut Context::from_waker(Waker::noop())));
        }
        io::Error::new(io::ErrorKind::InvalidData, error)
    }

    /// Gives the reader what is there, and decrypts more as long as there is room for it.
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
            match opened.what {
                What::Data(range) => incoming.plain = start + range.start..start + range.end,
                What::Nothing => {}
                What::End => self.has_ended = true,
            }
        }
        Ok(())
    }

    /// Reads more behind what is left of the last record; false at the end.
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
            // It was in a buffer of its own size until now.
            Some(incoming) if !incoming.bytes.is_empty() && n > 0 => {
                bytes[..kept].copy_from_slice(&incoming.bytes[incoming.sealed.clone()]);
            }
            // Nothing more comes for now: the rest of a record waits in a buffer of its own size.
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

impl<S> LeanTls<S> {
    /// The connection below; not to be read from.
    pub fn get_ref(&self) -> &S {
        &self.io
    }

    /// The connection below; not to be read from or written to.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.io
    }

    /// Whether all of a record has come that nobody has read, and that may hold a request: one that is longer than those that
    /// hold nothing or an update of keys. A request of HTTP is always longer.
    pub fn has_request(&self) -> bool {
        let Some(incoming) = &self.incoming else { return false };
        let sealed = incoming.bytes.get(incoming.sealed.clone()).unwrap_or_default();
        let is_whole = |[_, _, _, len @ ..]: &[u8; HEADER_BYTES]| {
            let len = usize::from(u16::from_be_bytes(*len));
            len > records::MAX_IDLE_SEALED_BYTES && sealed.len() >= HEADER_BYTES + len
        };
        !incoming.plain.is_empty() || sealed.first_chunk().is_some_and(is_whole)
    }

    fn release_incoming(&mut self) {
        if let Some(incoming) = self.incoming.take() {
            buffers::give_back(incoming.bytes);
        }
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

impl<S> fmt::Debug for LeanTls<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeanTls").field("has_ended", &self.has_ended).finish_non_exhaustive()
    }
}

impl<S> Drop for LeanTls<S> {
    fn drop(&mut self) {
        self.release_incoming();
        if let Some(outgoing) = self.outgoing.take() {
            buffers::give_back(outgoing.bytes);
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for LeanTls<S> {
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
                // What came before is delivered first; the connection is no longer of use after that.
                return Poll::Ready(if buf.filled().len() > before { Ok(()) } else { Err(error) });
            }
            if buf.filled().len() > before || this.has_ended {
                return Poll::Ready(Ok(()));
            }
            if !ready!(this.poll_more(cx))? {
                let text = "the connection ended without a word (close_notify)";
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::UnexpectedEof, text)));
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for LeanTls<S> {
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
            self.records.say_end().map_err(io::Error::other)?;
        }
        ready!(self.poll_drain(cx))?;
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
