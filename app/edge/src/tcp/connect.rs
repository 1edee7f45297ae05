//! Opens a stream to an origin for a client with an unknown protocol.
//!
//! Either side may speak first, so the client's bytes are sent before the origin has accepted. They are kept until
//! then: if the connect fails, the next origin gets all of them. If the outcome is unknown, another origin is tried
//! only if no byte of the client was sent.

use std::{
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use sallyport_balance::Received;
use sallyport_tunnel::Establishment;
use sallyport_wire::FailureReason;
use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};

use crate::{client::tcp::ClientIo, origins::transport::OriginStream};

/// How many bytes of the client are kept until an origin accepts; more wait in the kernel.
const MAX_FIRST_BYTES: usize = 64 * 1024;
/// How many of the origin's first bytes are read during the open.
const MAX_EARLY_BYTES: usize = 4 * 1024;

/// The client's bytes so far, and whether the client has ended its direction.
pub(crate) struct FirstBytes {
    bytes: Vec<u8>,
    /// How many of the bytes are the PROXY protocol header.
    greeting: usize,
    ended: bool,
}

impl FirstBytes {
    /// Begins with this PROXY protocol header.
    pub(crate) fn new(greeting: Vec<u8>) -> Self {
        Self { greeting: greeting.len(), bytes: greeting, ended: false }
    }
}

/// A stream to an origin that has accepted, and that has all of the client's bytes so far.
pub(crate) struct Reached {
    /// The stream.
    pub(crate) stream: OriginStream,
    /// How many bytes of the client were sent.
    pub(crate) sent: usize,
    /// The first bytes of the origin.
    pub(crate) early: Vec<u8>,
}

/// Why no origin was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectFailure {
    /// The client left meanwhile.
    ClientLeft,
    /// The origin refused the connection, and has no byte of the client.
    Refused,
    /// The origin did not accept in time.
    TimedOut(Received),
    /// The tunnel is not at its edge, or that edge cannot be reached; nothing was sent.
    NoTunnel,
    /// The tunnel was lost before the outcome was known.
    Lost(Received),
}

impl ConnectFailure {
    /// Which bytes of the client the origin may have.
    pub(crate) fn received(self) -> Received {
        match self {
            Self::ClientLeft | Self::Refused | Self::NoTunnel => Received::Nothing,
            Self::TimedOut(received) | Self::Lost(received) => received,
        }
    }
}

/// Waits until the origin has accepted, and sends the client's bytes meanwhile.
pub(crate) async fn reach<S: ClientIo>(
    client: &mut S,
    stream: OriginStream,
    first: &mut FirstBytes,
    timeout: Duration,
) -> Result<Reached, ConnectFailure> {
    let establishment = stream.establishment();
    let mut attempt = Attempt { stream, establishment, sent: 0, unflushed: true, early: Vec::new() };
    let outcome = tokio::time::timeout(timeout, poll_fn(|cx| attempt.poll(cx, client, first))).await;
    match outcome {
        Err(_) => Err(ConnectFailure::TimedOut(attempt.received(first))),
        Ok(Err(why)) => Err(why),
        Ok(Ok(())) => {
            let Attempt { mut stream, sent, early, .. } = attempt;
            // Sends the rest of the kept bytes; the origin has accepted, so no other origin needs them.
            let lost = |_| ConnectFailure::Lost(Received::Some);
            tokio::io::AsyncWriteExt::write_all(&mut stream, &first.bytes[sent..]).await.map_err(lost)?;
            tokio::io::AsyncWriteExt::flush(&mut stream).await.map_err(lost)?;
            let sent = std::mem::take(&mut first.bytes).len() - first.greeting;
            Ok(Reached { stream, sent, early })
        }
    }
}

struct Attempt {
    stream: OriginStream,
    establishment: Establishment,
    sent: usize,
    unflushed: bool,
    early: Vec<u8>,
}

impl Attempt {
    fn poll<S: ClientIo>(
        &mut self,
        cx: &mut Context<'_>,
        client: &mut S,
        first: &mut FirstBytes,
    ) -> Poll<Result<(), ConnectFailure>> {
        if let Poll::Ready(Err(())) = poll_more(cx, client, first) {
            return Poll::Ready(Err(ConnectFailure::ClientLeft));
        }
        // An error of the write shows in the read that follows.
        let _ = self.poll_send(cx, &first.bytes);
        self.poll_answer(cx, first)
    }

    /// Which bytes the origin may have if the outcome is unknown.
    fn received(&self, first: &FirstBytes) -> Received {
        Received::from_sent(self.sent > first.greeting)
    }

    /// Sends the bytes so far. The open message travels with them, or alone if there are none.
    fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<()> {
        while self.sent < bytes.len() {
            match ready!(Pin::new(&mut self.stream).poll_write(cx, &bytes[self.sent..])) {
                Ok(n) if n > 0 => self.sent += n,
                _ => return Poll::Ready(()),
            }
            self.unflushed = true;
        }
        if self.unflushed && ready!(Pin::new(&mut self.stream).poll_flush(cx)).is_ok() {
            self.unflushed = false;
        }
        Poll::Ready(())
    }

    fn poll_answer(&mut self, cx: &mut Context<'_>, first: &FirstBytes) -> Poll<Result<(), ConnectFailure>> {
        let mut buffer = [0; MAX_EARLY_BYTES];
        let mut into = ReadBuf::new(&mut buffer);
        let read = Pin::new(&mut self.stream).poll_read(cx, &mut into);
        self.early.extend_from_slice(into.filled());
        let lost = || Poll::Ready(Err(ConnectFailure::Lost(self.received(first))));
        match self.establishment.peek() {
            Some(Ok(())) => Poll::Ready(Ok(())),
            Some(Err(_)) if self.establishment.is_lost() => lost(),
            Some(Err(failure)) => Poll::Ready(Err(match failure.reason {
                FailureReason::TimedOut => ConnectFailure::TimedOut(Received::Nothing),
                FailureReason::Draining => ConnectFailure::NoTunnel,
                _ => ConnectFailure::Refused,
            })),
            // The stream ended without an outcome.
            None if read.is_ready() => lost(),
            None => Poll::Pending,
        }
    }
}

/// Reads the client's bytes up to the bound. An error means that the client has left.
fn poll_more<S: ClientIo>(cx: &mut Context<'_>, client: &mut S, first: &mut FirstBytes) -> Poll<Result<(), ()>> {
    while !first.ended && first.bytes.len() < MAX_FIRST_BYTES {
        let mut buffer = [0; MAX_EARLY_BYTES];
        let room = (MAX_FIRST_BYTES - first.bytes.len()).min(MAX_EARLY_BYTES);
        let mut into = ReadBuf::new(&mut buffer[..room]);
        if ready!(Pin::new(&mut *client).poll_read(cx, &mut into)).is_err() {
            return Poll::Ready(Err(()));
        }
        first.ended = into.filled().is_empty();
        first.bytes.extend_from_slice(into.filled());
    }
    Poll::Ready(Ok(()))
}
