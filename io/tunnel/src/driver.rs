//! Drives one control connection: moves bytes between the carrier and the session, and reports the passing of time to
//! the session.

use std::{
    future::poll_fn,
    io,
    mem::MaybeUninit,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use sallyport_wire::Event;
use tokio::{
    io::ReadBuf,
    time::{Instant, Sleep},
};

use crate::{Carrier, mux::Mux};

/// Bytes taken from the session at a time. More is taken only after the kernel has accepted all of them, so that
/// streams and control frames are interleaved as late as possible.
const MAX_TRANSMIT_BYTES: usize = 32_768;
/// Bytes read from the carrier at a time: a full TLS record.
const MAX_READ_BYTES: usize = 16_384;
/// Rounds of the driver before other tasks run.
const MAX_ROUNDS: usize = 16;
/// Time that the last frames of an ended session have to leave.
const FAREWELL_TIME: Duration = Duration::from_secs(1);

/// How a session ended.
pub(crate) struct SessionEnd {
    /// The reason, as a sentence.
    pub(crate) why: String,
    /// Whether the peer closed the connection in order; frames that the peer sent on legs before may still arrive.
    pub(crate) is_clean: bool,
}

impl SessionEnd {
    pub(crate) fn aborted(why: &str) -> Self {
        Self { why: why.to_owned(), is_clean: false }
    }
}

/// Drives the session until its end. `on_event` gets the events that concern more than one stream.
pub(crate) async fn drive(carrier: impl Carrier, mux: Arc<Mux>, mut on_event: impl FnMut(Event) + Send) -> SessionEnd {
    let mut driver = Driver { carrier, mux, out: Vec::new(), sent: 0, unflushed: false, sleep: None };
    let end = poll_fn(|cx| driver.poll(cx, &mut on_event)).await;
    let ended = match end {
        End::Closed => SessionEnd { why: "the peer closed the connection".to_owned(), is_clean: true },
        End::Carrier(ref why) | End::Session(ref why) => SessionEnd::aborted(why),
    };
    driver.mux.end(&ended.why);
    if !matches!(end, End::Carrier(_)) {
        // The peer may be unreachable; the farewell has a bound.
        let _ = tokio::time::timeout(FAREWELL_TIME, driver.farewell()).await;
    }
    ended
}

/// Why driving ended.
enum End {
    /// The peer closed the connection in order.
    Closed,
    /// The carrier failed, with the reason as a sentence.
    Carrier(String),
    /// The session ended; its last frames can still be sent.
    Session(String),
}

struct Driver<C> {
    carrier: C,
    mux: Arc<Mux>,
    out: Vec<u8>,
    sent: usize,
    unflushed: bool,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl<C: Carrier> Driver<C> {
    fn poll(&mut self, cx: &mut Context<'_>, on_event: &mut impl FnMut(Event)) -> Poll<End> {
        for _ in 0..MAX_ROUNDS {
            let mut progress = false;
            let idle = self.sent == self.out.len() && !self.unflushed;
            if idle {
                self.out.clear();
                self.sent = 0;
            }
            let work = self.mux.take_work(idle.then_some(&mut self.out), MAX_TRANSMIT_BYTES, cx.waker());
            let mut down = None;
            for event in work.events {
                progress = true;
                match event {
                    Event::Down(reason) => down = Some(End::Session(reason.to_string())),
                    Event::Refused(refusal) => {
                        down.get_or_insert(End::Session(refusal.to_string()));
                        on_event(Event::Refused(refusal));
                    }
                    event => on_event(event),
                }
            }
            if let Some(end) = down {
                return Poll::Ready(end);
            }
            if let Some(why) = work.finished {
                return Poll::Ready(End::Session(why.to_string()));
            }
            match self.poll_out(cx) {
                Poll::Ready(Ok(wrote)) => progress |= wrote,
                Poll::Ready(Err(error)) => return Poll::Ready(End::Carrier(broken(&error))),
                Poll::Pending => self.mux.set_blocked(),
            }
            match self.poll_in(cx) {
                Poll::Ready(Ok(())) => progress = true,
                Poll::Ready(Err(end)) => return Poll::Ready(end),
                Poll::Pending => {}
            }
            progress |= self.poll_time(cx, work.deadline);
            if !progress {
                if self.out.is_empty() {
                    // An idle session holds no buffer.
                    self.out = Vec::new();
                }
                return Poll::Pending;
            }
        }
        // Other tasks and I/O events have their turn first.
        if std::pin::pin!(tokio::task::yield_now()).poll(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Writes and flushes the taken bytes. True when all of them left, false when there were none.
    fn poll_out(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let something = self.sent < self.out.len() || self.unflushed;
        while self.sent < self.out.len() {
            let n = ready!(Pin::new(&mut self.carrier).poll_write(cx, &self.out[self.sent..]))?;
            if n == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent += n;
            self.unflushed = true;
        }
        if self.unflushed {
            ready!(Pin::new(&mut self.carrier).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(something))
    }

    fn poll_in(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        let mut buffer = [MaybeUninit::<u8>::uninit(); MAX_READ_BYTES];
        let mut buf = ReadBuf::uninit(&mut buffer);
        match ready!(Pin::new(&mut self.carrier).poll_read(cx, &mut buf)) {
            Ok(()) if buf.filled().is_empty() => Poll::Ready(Err(End::Closed)),
            Ok(()) => Poll::Ready(self.mux.handle_input(buf.filled()).map_err(|error| End::Session(error.to_string()))),
            Err(error) => Poll::Ready(Err(End::Carrier(broken(&error)))),
        }
    }

    /// Calls the session if its deadline has passed; returns whether it has.
    fn poll_time(&mut self, cx: &mut Context<'_>, deadline: Option<std::time::Instant>) -> bool {
        let Some(deadline) = deadline.map(Instant::from_std) else {
            self.sleep = None;
            return false;
        };
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        // Deadlines mostly move into the future with every byte received. The timer is reset when it fires, not before.
        if deadline < sleep.deadline() {
            sleep.as_mut().reset(deadline);
        }
        while sleep.as_mut().poll(cx).is_ready() {
            if deadline <= Instant::now() {
                self.sleep = None;
                self.mux.handle_timeout();
                return true;
            }
            sleep.as_mut().reset(deadline);
        }
        false
    }

    /// Sends the last frames and closes the carrier.
    async fn farewell(&mut self) -> io::Result<()> {
        poll_fn(|cx| self.poll_out(cx)).await?;
        loop {
            self.out.clear();
            self.sent = 0;
            let waker = std::task::Waker::noop();
            self.mux.take_work(Some(&mut self.out), MAX_TRANSMIT_BYTES, waker);
            if self.out.is_empty() {
                break;
            }
            poll_fn(|cx| self.poll_out(cx)).await?;
        }
        poll_fn(|cx| Pin::new(&mut self.carrier).poll_shutdown(cx)).await
    }
}

pub(crate) fn broken(error: &io::Error) -> String {
    match error.kind() {
        // The text of the TLS library (a missing close_notify) does not help a reader of the log.
        io::ErrorKind::UnexpectedEof => "the connection broke: the peer is gone".to_owned(),
        _ => format!("the connection broke: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_connection_gets_a_clear_error() {
        let of_tls = io::Error::new(io::ErrorKind::UnexpectedEof, "close_notify: https://docs.rs/rustls/x");
        assert_eq!(broken(&of_tls), "the connection broke: the peer is gone");
        let reset = io::Error::from(io::ErrorKind::ConnectionReset);
        assert_eq!(broken(&reset), format!("the connection broke: {reset}"));
    }
}
