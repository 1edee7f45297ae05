//! Tells when devices, addresses or routes have changed.

use std::{
    io::{self, ErrorKind},
    time::Duration,
};

use rtnetlink::{
    MulticastGroup,
    sys::{Socket, protocols::NETLINK_ROUTE},
};
use tokio::{io::unix::AsyncFd, time::Instant};

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
#[derive(Debug)]
pub struct Watch {
    socket: AsyncFd<Socket>,
    buffer: Vec<u8>,
    next: Instant,
}

impl Watch {
    /// Watches this network namespace from now on. Read the devices after this call, so that no change is lost.
    ///
    /// # Errors
    /// The kernel gives no socket.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.set_non_blocking(true)?;
        for group in GROUPS {
            socket.add_membership(group as u32)?;
        }
        Ok(Self { socket: AsyncFd::new(socket)?, buffer: Vec::with_capacity(1 << 16), next: Instant::now() })
    }

    /// Waits until something has changed since the last call. A cancelled call loses no change.
    ///
    /// # Errors
    /// The socket is broken.
    pub async fn changed(&mut self) -> io::Result<()> {
        loop {
            let mut ready = self.socket.readable().await?;
            tokio::time::sleep_until(self.next).await;
            let mut count = 0;
            let drained = loop {
                self.buffer.clear();
                match ready.get_inner().recv(&mut self.buffer, 0) {
                    Ok(_) => count += 1,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break true,
                    // What was lost is a change too.
                    Err(error) if error.raw_os_error() == Some(OVERRUN) => count += 1,
                    Err(error) => return Err(error),
                }
                if count == MAX_DRAINED {
                    break false;
                }
            };
            if drained {
                ready.clear_ready();
            }
            if count > 0 {
                self.next = Instant::now() + PAUSE;
                return Ok(());
            }
        }
    }
}
