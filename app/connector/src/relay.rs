//! Relays the bytes of one stream between the tunnel and the private service: [`sallyport_net::relay`], with the
//! connector's own timing.

use std::{
    future::Future,
    io,
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use sallyport_net::{Pace, RelayCounts, RelayEnd, RelayError, Side, pass_writes};
use sallyport_tunnel::TunnelStream;
use sallyport_wire::ResetCode;
use tokio::{
    io::{AsyncRead, AsyncWrite as _, ReadBuf},
    time::Sleep,
};

use crate::{
    capture::TapHalf,
    quick_ack::{QuickAck, Stalls},
};

/// How long the report that the service has accepted is delayed, so that it can travel with the first bytes of a quick
/// response.
const HOLD_TIME: Duration = Duration::from_millis(1);
/// A client with more bytes than this waits for the report, in bytes: see `MAX_FIRST_BYTES` in
/// `app/edge/src/tcp/connect.rs`.
const MAX_SHORT_BYTES: usize = 16_384;

/// Relays bytes until both directions have ended. If one side fails, the other side gets a reset, so that an incomplete
/// stream never looks complete. What comes from the tunnel is copied into `tap`.
///
/// Returns a plain future instead of an `async fn`, which would hold its arguments twice: many streams stay idle for
/// long.
pub(crate) fn relay(
    tunnel: TunnelStream,
    mut origin: impl RelayEnd + Send,
    stalls: &Stalls,
    tap: Option<Box<TapHalf>>,
) -> impl Future<Output = io::Result<()>> + Send {
    let mut tunnel = Tunnel { stream: tunnel, came: 0, hold: None, tap };
    let mut pace = Acknowledging(QuickAck::new(stalls));
    async move {
        let mut carried = RelayCounts::default();
        let Err(broke) = sallyport_net::relay(&mut tunnel, &mut origin, &mut pace, &mut carried).await else {
            return Ok(());
        };
        let RelayError { side, error, .. } = broke;
        match side {
            Side::First => {
                // A failure only means that the connection is closed without a reset.
                if let Some(tcp) = origin.tcp() {
                    drop(tcp.set_zero_linger());
                }
            }
            Side::Second => tunnel.stream.reset(ResetCode::OriginReset),
        }
        Err(error)
    }
}

/// The tunnel's stream as an end of the relay.
struct Tunnel {
    stream: TunnelStream,
    /// How many bytes came before the report was sent.
    came: usize,
    /// The end of the delay.
    hold: Option<Pin<Box<Sleep>>>,
    /// Copies for the inspector, if there is one.
    tap: Option<Box<TapHalf>>,
}

impl RelayEnd for Tunnel {
    fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        self.stream.poll_reset(cx)
    }

    fn poll_write_last(&mut self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.stream.poll_write_last(cx, buf)
    }

    fn poll_delayed_write(&mut self, cx: &mut Context<'_>) {
        if !self.stream.holds_opened() {
            self.hold = None;
            return;
        }
        let hold = self.hold.get_or_insert_with(|| Box::pin(tokio::time::sleep(HOLD_TIME)));
        if self.came > MAX_SHORT_BYTES || hold.as_mut().poll(cx).is_ready() {
            self.hold = None;
            // Bytes that are not flushed now leave with the next read or write, which also shows any error.
            drop(Pin::new(&mut self.stream).poll_flush(cx));
        }
    }
}

impl AsyncRead for Tunnel {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let (before, has_room) = (buf.filled().len(), buf.remaining() > 0);
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if self.stream.holds_opened() {
            self.came += buf.filled().len() - before;
        }
        if let Some(tap) = &mut self.tap
            && has_room
            && matches!(read, Poll::Ready(Ok(())))
        {
            tap.copy(&buf.filled()[before..]);
        }
        read
    }
}

pass_writes!(Tunnel, stream);

/// No rate limit, and immediate acknowledgements for services that stall without them.
struct Acknowledging<'a>(QuickAck<'a>);

impl Pace for Acknowledging<'_> {
    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    fn moved(&mut self, _bytes: usize) {}

    fn acknowledges(&mut self, read: RelayCounts) -> bool {
        self.0.wants(read.forth, read.back, Instant::now)
    }
}
