//! Tells when devices, addresses or routes have changed.

use std::{
    future::poll_fn,
    io::{self, ErrorKind},
    task::{Context, Poll},
    time::Duration,
};

use rtnetlink::{
    MulticastGroup,
    sys::{AsyncSocket as _, TokioSocket, protocols::NETLINK_ROUTE},
};
use tokio::time::Instant;

/// The shortest time between two changes that are told: a routing daemon may write thousands of routes.
const PAUSE: Duration = Duration::from_millis(50);
/// The most messages that are read at once.
const MAX_DRAINED: usize = 1_024;
/// The error of a socket whose messages did not fit (ENOBUFS).
const OVERRUN: i32 = 105;
/// What is watched.
const GROUPS: [MulticastGroup; 5] = [
    MulticastGroup::Link,
    MulticastGroup::Ipv4Ifaddr,
    MulticastGroup::Ipv6Ifaddr,
    MulticastGroup::Ipv4Route,
    MulticastGroup::Ipv6Route,
];

/// A socket of changes.
pub struct Watch {
    socket: TokioSocket,
    buffer: Vec<u8>,
    next: Instant,
}

impl Watch {
    /// Watches this network namespace from now on. Read the devices after this call, so that no change is lost.
    ///
    /// # Errors
    /// The kernel gives no socket.
    pub fn open() -> io::Result<Self> {
        let mut socket = TokioSocket::new(NETLINK_ROUTE)?;
        socket.socket_mut().bind_auto()?;
        for group in GROUPS {
            socket.socket_mut().add_membership(group as u32)?;
        }
        Ok(Self { socket, buffer: Vec::with_capacity(1 << 16), next: Instant::now() })
    }

    /// Waits until something has changed since the last call. A cancelled call loses no change.
    ///
    /// # Errors
    /// The socket is broken.
    pub async fn changed(&mut self) -> io::Result<()> {
        tokio::time::sleep_until(self.next).await;
        poll_fn(|context| self.poll_drain(context)).await?;
        self.next = Instant::now() + PAUSE;
        Ok(())
    }

    /// Reads what is there; pending if there is nothing.
    fn poll_drain(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut count = 0;
        while count < MAX_DRAINED {
            self.buffer.clear();
            match self.socket.poll_recv(context, &mut self.buffer) {
                Poll::Ready(Ok(())) => count += 1,
                Poll::Ready(Err(error)) if error.kind() == ErrorKind::Interrupted => {}
                // What was lost is a change too.
                Poll::Ready(Err(error)) if error.raw_os_error() == Some(OVERRUN) => count += 1,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => break,
            }
        }
        if count > 0 { Poll::Ready(Ok(())) } else { Poll::Pending }
    }
}
