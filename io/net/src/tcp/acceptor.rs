//! Accepts connections without registering them: the shard that serves a connection has an event queue of its own.

use std::{
    io,
    net::{self, IpAddr, SocketAddr},
    task::{Context, Poll, ready},
};

use tokio::{
    io::{Interest, unix::AsyncFd},
    net::TcpListener,
};

/// A listener whose accepted connections are not registered with an event queue yet.
///
/// A connection may be served by another scheduler than the listener's. Registering it here first would cost two system
/// calls for nothing.
#[derive(Debug)]
pub struct Acceptor {
    listener: AsyncFd<net::TcpListener>,
}

impl Acceptor {
    /// Takes over a listener in the caller's scheduler. On Linux, accepted connections inherit the listener's options.
    ///
    /// # Errors
    /// The event queue refuses the listener.
    pub fn new(listener: net::TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        #[expect(
            deprecated,
            reason = "what it warns of are types that lie about their descriptor; this one is the system's"
        )]
        let listener = AsyncFd::with_interest(listener, Interest::READABLE)?;
        Ok(Self { listener })
    }

    /// The next connection, non-blocking, and the client's address. A client that uses IPv4 has an IPv4 address, also
    /// at a dual-stack listener.
    ///
    /// # Errors
    /// As accept(2): the connection failed, or the system has no room.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(net::TcpStream, SocketAddr)>> {
        loop {
            let mut guard = ready!(self.listener.poll_read_ready(cx))?;
            if let Ok(accepted) = guard.try_io(|listener| accept(listener.get_ref())) {
                return Poll::Ready(accepted.map(|(stream, peer)| (stream, canonical(peer))));
            }
        }
    }
}

/// A dual-stack socket on Linux reports IPv4 clients as mapped addresses (RFC 4291 section 2.5.5.2).
fn canonical(peer: SocketAddr) -> SocketAddr {
    match peer.ip().to_canonical() {
        IpAddr::V4(address) => SocketAddr::from((address, peer.port())),
        IpAddr::V6(_) => peer,
    }
}

/// Accepts a non-blocking connection with one system call; the standard library needs two.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn accept(listener: &net::TcpListener) -> io::Result<(net::TcpStream, SocketAddr)> {
    use rustix::net::{SocketFlags, acceptfrom_with};

    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (stream, peer) = rustix::io::retry_on_intr(|| acceptfrom_with(listener, flags))?;
    let peer = peer.ok_or(io::ErrorKind::NotConnected)?;
    Ok((stream.into(), SocketAddr::try_from(peer)?))
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn accept(listener: &net::TcpListener) -> io::Result<(net::TcpStream, SocketAddr)> {
    let (stream, peer) = listener.accept()?;
    stream.set_nonblocking(true)?;
    Ok((stream, peer))
}

impl TryFrom<TcpListener> for Acceptor {
    type Error = io::Error;

    fn try_from(listener: TcpListener) -> io::Result<Self> {
        Self::new(listener.into_std()?)
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, time::Duration};

    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpStream,
    };

    use super::*;

    #[tokio::test]
    async fn what_is_accepted_can_be_watched_anywhere_and_has_what_was_set_on_the_listener() {
        let listener = crate::listen("127.0.0.1:0".parse().unwrap(), "--listen").unwrap();
        let address = listener.local_addr().unwrap();
        let acceptor = Acceptor::try_from(listener).unwrap();
        for _ in 0..2 {
            let mut near = TcpStream::connect(address).await.unwrap();
            let accepted = tokio::time::timeout(Duration::from_secs(20), poll_fn(|cx| acceptor.poll_accept(cx)));
            let (far, peer) = accepted.await.unwrap().unwrap();
            assert_eq!(peer, near.local_addr().unwrap());
            let mut far = TcpStream::from_std(far).unwrap();
            assert!(far.nodelay().unwrap());
            assert!(socket2::SockRef::from(&far).keepalive().unwrap());
            near.write_all(b"hello").await.unwrap();
            let mut bytes = [0; 5];
            far.read_exact(&mut bytes).await.unwrap();
            assert_eq!(&bytes, b"hello");
        }
    }

    #[tokio::test]
    async fn a_dual_stack_listener_reports_ipv4_clients_as_ipv4() {
        let listener = match crate::listen("[::]:0".parse().unwrap(), "--listen") {
            Ok(listener) => listener,
            Err(error) => {
                eprintln!("skipped: this machine has no IPv6: {error}");
                return;
            }
        };
        let port = listener.local_addr().unwrap().port();
        let acceptor = Acceptor::try_from(listener).unwrap();
        let near = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let accepted = tokio::time::timeout(Duration::from_secs(20), poll_fn(|cx| acceptor.poll_accept(cx)));
        let (_far, peer) = accepted.await.unwrap().unwrap();
        assert_eq!(peer, near.local_addr().unwrap());
    }
}
