//! Opening a stream to an origin for a client whose protocol is not known.
//!
//! Either side may speak first, so the client's bytes go along before the origin has taken the connection. They are
//! kept until it has: an attempt that reaches nobody costs nothing, and the next origin gets all of them again. Where nobody says
//! whether the origin was reached, another one is tried only when none of the client's bytes had left.

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

/// How much of what a client says is kept until its origin is reached; more waits in the kernel.
const MAX_FIRST_BYTES: usize = 64 * 1024;
/// How much of an origin's first words are taken along.
const MAX_EARLY_BYTES: usize = 4 * 1024;

/// What the client said so far, and that it has ended its direction.
pub(crate) struct FirstBytes {
    bytes: Vec<u8>,
    /// How many of them are our own.
    greeting: usize,
    ended: bool,
}

impl FirstBytes {
    /// Beginning with what we say ourselves.
    pub(crate) fn new(greeting: Vec<u8>) -> Self {
        Self { greeting: greeting.len(), bytes: greeting, ended: false }
    }
}

/// A stream whose origin has taken the connection; it has got everything that was read from the client.
pub(crate) struct Reached {
    /// The stream.
    pub(crate) stream: OriginStream,
    /// How many bytes of the client's it has got.
    pub(crate) said: usize,
    /// What the origin said already.
    pub(crate) early: Vec<u8>,
}

/// Why no origin was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unreached {
    /// The client went away meanwhile.
    ClientLeft,
    /// It took no connection; it has got nothing.
    Refused,
    /// It did not take the connection in time.
    TimedOut(Received),
    /// The tunnel is not where it was to be, or the access that holds it is not reached; nothing was sent.
    NoTunnel,
    /// The tunnel was lost before it was known whether the origin was reached.
    Lost(Received),
}

impl Unreached {
    /// What the origin has got of what the client says.
    pub(crate) fn received(self) -> Received {
        match self {
            Self::ClientLeft | Self::Refused | Self::NoTunnel => Received::Nothing,
            Self::TimedOut(received) | Self::Lost(received) => received,
        }
    }
}

/// Waits until the origin has taken the connection, and sends it what the client says.
pub(crate) async fn reach<S: ClientIo>(
    client: &mut S,
    stream: OriginStream,
    first: &mut FirstBytes,
    timeout: Duration,
) -> Result<Reached, Unreached> {
    let establishment = stream.establishment();
    let mut attempt = Attempt { stream, establishment, sent: 0, unflushed: true, early: Vec::new() };
    let outcome = tokio::time::timeout(timeout, poll_fn(|cx| attempt.poll(cx, client, first))).await;
    match outcome {
        Err(_) => Err(Unreached::TimedOut(attempt.received(first))),
        Ok(Err(why)) => Err(why),
        Ok(Ok(())) => {
            let Attempt { mut stream, sent, early, .. } = attempt;
            // What did not fit before; the origin is there now, so this is no longer held back for another one.
            let lost = |_| Unreached::Lost(Received::Some);
            tokio::io::AsyncWriteExt::write_all(&mut stream, &first.bytes[sent..]).await.map_err(lost)?;
            tokio::io::AsyncWriteExt::flush(&mut stream).await.map_err(lost)?;
            let said = std::mem::take(&mut first.bytes).len() - first.greeting;
            Ok(Reached { stream, said, early })
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
    ) -> Poll<Result<(), Unreached>> {
        if let Poll::Ready(Err(())) = poll_more(cx, client, first) {
            return Poll::Ready(Err(Unreached::ClientLeft));
        }
        // A stream that fails says why where it is read.
        let _ = self.poll_send(cx, &first.bytes);
        self.poll_answer(cx, first)
    }

    /// What the origin has got when nobody says whether it was reached.
    fn received(&self, first: &FirstBytes) -> Received {
        Received::from_sent(self.sent > first.greeting)
    }

    /// Sends what is there. The opening itself travels with it, or alone where the client says nothing.
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

    fn poll_answer(&mut self, cx: &mut Context<'_>, first: &FirstBytes) -> Poll<Result<(), Unreached>> {
        let mut buffer = [0; MAX_EARLY_BYTES];
        let mut into = ReadBuf::new(&mut buffer);
        let read = Pin::new(&mut self.stream).poll_read(cx, &mut into);
        self.early.extend_from_slice(into.filled());
        let lost = || Poll::Ready(Err(Unreached::Lost(self.received(first))));
        match self.establishment.peek() {
            Some(Ok(())) => Poll::Ready(Ok(())),
            Some(Err(_)) if self.establishment.is_lost() => lost(),
            Some(Err(failure)) => Poll::Ready(Err(match failure.reason {
                FailureReason::TimedOut => Unreached::TimedOut(Received::Nothing),
                FailureReason::Draining => Unreached::NoTunnel,
                _ => Unreached::Refused,
            })),
            // It ended without an answer.
            None if read.is_ready() => lost(),
            None => Poll::Pending,
        }
    }
}

/// Reads what the client says, up to the bound. An error means that it is gone.
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
