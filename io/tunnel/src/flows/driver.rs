//! Drives one datagram leg on a byte-stream carrier: many datagrams in one write and in one read.

use std::{
    future::{Future, poll_fn},
    io,
    mem::MaybeUninit,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{io::ReadBuf, time::Sleep};

use super::{FlowHandler, FlowLeg};
use crate::{Carrier, driver::broken};

/// Bytes taken from the leg at a time: four full TLS records. More is taken only after the kernel has accepted all of
/// them, so that waiting datagrams can still be dropped.
const MAX_TRANSMIT_BYTES: usize = 65_536;
/// Bytes read from the carrier at a time: a full TLS record.
const MAX_READ_BYTES: usize = 16_384;
/// Rounds of the driver before other tasks run.
const MAX_ROUNDS: usize = 64;
/// Time without a successful write after which a carrier is replaced.
const STALL_TIME: Duration = Duration::from_secs(10);
/// Timeout of closing.
const FAREWELL_TIME: Duration = Duration::from_secs(1);

/// Drives the leg until its end; returns the reason. Flows that the edge opens go to `handler` (connector's side).
pub(crate) async fn drive_flows(
    carrier: impl Carrier,
    leg: Arc<FlowLeg>,
    handler: Option<Arc<dyn FlowHandler>>,
) -> String {
    let _end = EndWithDriver(&leg);
    let mut driver = Driver {
        carrier,
        leg: leg.clone(),
        handler,
        out: Vec::new(),
        sent: 0,
        unflushed: false,
        partial: Vec::new(),
        stall: None,
    };
    let why = poll_fn(|cx| driver.poll(cx)).await;
    let farewell = poll_fn(|cx| Pin::new(&mut driver.carrier).poll_shutdown(cx));
    let _ = tokio::time::timeout(FAREWELL_TIME, farewell).await;
    why
}

/// Ends the flows when the driver is dropped.
struct EndWithDriver<'a>(&'a FlowLeg);

impl Drop for EndWithDriver<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

struct Driver<C> {
    carrier: C,
    leg: Arc<FlowLeg>,
    handler: Option<Arc<dyn FlowHandler>>,
    out: Vec<u8>,
    sent: usize,
    unflushed: bool,
    /// The beginning of an incomplete frame.
    partial: Vec<u8>,
    stall: Option<Pin<Box<Sleep>>>,
}

impl<C: Carrier> Driver<C> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<String> {
        for _ in 0..MAX_ROUNDS {
            let mut progress = false;
            let idle = self.sent == self.out.len() && !self.unflushed;
            if idle {
                self.out.clear();
                self.sent = 0;
            }
            if !self.leg.take_output(idle.then_some(&mut self.out), MAX_TRANSMIT_BYTES, cx.waker()) {
                return Poll::Ready("the session is over".to_owned());
            }
            match self.poll_out(cx) {
                Poll::Ready(Ok(wrote)) => {
                    self.stall = None;
                    progress |= wrote;
                }
                Poll::Ready(Err(error)) => return Poll::Ready(broken(&error)),
                Poll::Pending => {
                    self.leg.set_blocked();
                    let stall = self.stall.get_or_insert_with(|| Box::pin(tokio::time::sleep(STALL_TIME)));
                    if stall.as_mut().poll(cx).is_ready() {
                        return Poll::Ready("the peer has accepted no data for too long".to_owned());
                    }
                }
            }
            match self.poll_in(cx) {
                Poll::Ready(Ok(())) => progress = true,
                Poll::Ready(Err(why)) => return Poll::Ready(why),
                Poll::Pending => {}
            }
            if !progress {
                if self.out.is_empty() {
                    // An idle leg holds no buffer.
                    self.out = Vec::new();
                }
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
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
            self.stall = None;
        }
        if self.unflushed {
            ready!(Pin::new(&mut self.carrier).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(something))
    }

    fn poll_in(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), String>> {
        let mut buffer = [MaybeUninit::<u8>::uninit(); MAX_READ_BYTES];
        let mut buf = ReadBuf::uninit(&mut buffer);
        if let Err(error) = ready!(Pin::new(&mut self.carrier).poll_read(cx, &mut buf)) {
            return Poll::Ready(Err(broken(&error)));
        }
        let came = buf.filled();
        if came.is_empty() {
            return Poll::Ready(Err("the peer closed the connection".to_owned()));
        }
        let handler = self.handler.as_ref();
        let taken = if self.partial.is_empty() {
            let taken = self.leg.take_input(came, handler);
            if let Ok(taken) = taken {
                self.partial.extend_from_slice(&came[taken..]);
            }
            taken.map(|_| ())
        } else {
            self.partial.extend_from_slice(came);
            self.leg.take_input(&self.partial, handler).map(|taken| drop(self.partial.drain(..taken)))
        };
        if self.partial.is_empty() {
            self.partial = Vec::new();
        }
        Poll::Ready(taken)
    }
}
