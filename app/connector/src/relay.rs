//! Moving the bytes of one stream between the tunnel and the private service: [`sallyport_net::relay`], and what this
//! side of it alone knows.

use std::{
    future::Future,
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Instant,
};

use sallyport_net::{Broke, Carried, Pace, RelayEnd, Side, pass_writes};
use sallyport_tunnel::TunnelStream;
use sallyport_wire::ResetCode;
use tokio::io::{AsyncRead, ReadBuf};

use crate::quick_ack::{QuickAck, Stalls};

/// Moves bytes both ways until both directions have ended. When one side breaks off, the other one is told so: neither
/// ever looks complete when it is not. Streams idle for long: what is moved in here is held once.
pub(crate) fn relay(
    tunnel: TunnelStream,
    mut origin: impl RelayEnd + Send,
    stalls: &Stalls,
) -> impl Future<Output = io::Result<()>> + Send {
    let mut tunnel = Tunnel(tunnel);
    let mut pace = Acknowledging(QuickAck::new(stalls));
    async move {
        let mut carried = Carried::default();
        let Err(broke) = sallyport_net::relay(&mut tunnel, &mut origin, &mut pace, &mut carried).await else {
            return Ok(());
        };
        let Broke { side, error } = broke;
        match side {
            Side::First => {
                // Only the wish for a reset can fail; the connection is closed anyway.
                if let Some(tcp) = origin.tcp() {
                    drop(tcp.set_zero_linger());
                }
            }
            Side::Second => tunnel.0.reset(ResetCode::OriginReset),
        }
        Err(error)
    }
}

/// The tunnel's stream, as a relay uses it.
struct Tunnel(TunnelStream);

impl RelayEnd for Tunnel {
    fn poll_given_up(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        self.0.poll_given_up(cx)
    }
}

impl AsyncRead for Tunnel {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

pass_writes!(Tunnel, 0);

/// No bound, and acknowledgements at once for services that stall without them.
struct Acknowledging<'a>(QuickAck<'a>);

impl Pace for Acknowledging<'_> {
    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    fn moved(&mut self, _bytes: usize) {}

    fn acknowledges(&mut self, read: Carried) -> bool {
        self.0.wants(read.forth, read.back, Instant::now)
    }
}
