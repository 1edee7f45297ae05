//! Echo requests from an address that several machines have: each machine counts the replies that come to it.
//!
//! Drives [`Catcher`] over a ping socket, or over a raw socket where only those are allowed.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    os::fd::AsRawFd as _,
    time::Duration,
};

use nix::sys::socket::{SockaddrStorage, recvfrom};
use parking_lot::Mutex;
use sallyport_ping::{Catcher, Family, Form};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::{
    io::{Interest, unix::AsyncFd},
    time::Instant,
};

use crate::{ProbeError, socket::ip};

/// The most requests a second, from one machine.
pub const MAX_CATCH_RATE: u32 = 5_000;

/// The longest message that can be a right reply, with an IP header and options. Longer ones are cut, and are not right.
const MAX_MESSAGE_BYTES: usize = 256;
/// Room for replies that come at once, in bytes, if the system gives it.
const RECEIVE_BYTES: usize = 4 * 1024 * 1024;
/// The pause between two batches of requests.
const BATCH_PAUSE: Duration = Duration::from_millis(5);
/// The most messages that are read before other tasks get their turn.
const MAX_BATCH: usize = 64;
/// How often a request is tried again for which the socket has no room.
const MAX_TRIES: usize = 100;

/// A socket at an address that several machines have.
#[derive(Debug)]
pub struct CatchSocket {
    inner: AsyncFd<Socket>,
    form: Form,
}

impl CatchSocket {
    /// Opens the socket. All machines have the same identifier.
    ///
    /// # Errors
    /// This machine does not have the address, or neither ping sockets nor raw sockets are allowed.
    pub fn open(address: IpAddr, identifier: u16) -> Result<Self, ProbeError> {
        let address = address.to_canonical();
        let (domain, protocol) = match Family::of(address) {
            Family::V4 => (Domain::IPV4, Protocol::ICMPV4),
            Family::V6 => (Domain::IPV6, Protocol::ICMPV6),
        };
        let open = |kind, port| -> io::Result<Socket> {
            let socket = Socket::new(domain, kind, Some(protocol))?;
            socket.set_nonblocking(true)?;
            socket.bind(&SocketAddr::new(address, port).into())?;
            Ok(socket)
        };
        // The port of a ping socket is the identifier. Another socket of this machine may have it.
        let is_other =
            |error: &io::Error| matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::AddrInUse);
        let (inner, form) = match open(Type::DGRAM, identifier) {
            Ok(inner) => (inner, Form::Verified),
            Err(error) if is_other(&error) => match open(Type::RAW, 0) {
                Ok(inner) if address.is_ipv4() => (inner, Form::WithIpHeader),
                Ok(inner) => (inner, Form::Verified),
                Err(error) => return Err(refusal(address, error)),
            },
            Err(error) => return Err(refusal(address, error)),
        };
        if let Err(error) = inner.set_recv_buffer_size(RECEIVE_BYTES) {
            tracing::debug!(%error, "the room for replies cannot be set");
        }
        #[expect(
            deprecated,
            reason = "what it warns of are types that lie about their descriptor; this one owns its socket to the end"
        )]
        let inner = AsyncFd::with_interest(inner, Interest::READABLE).map_err(ProbeError::Socket)?;
        Ok(Self { inner, form })
    }

    /// Passes on what comes, until dropped.
    pub async fn receive(&self, catcher: &Mutex<Catcher>) {
        loop {
            let Ok(mut ready) = self.inner.readable().await else { return };
            if self.receive_batch(catcher) {
                tokio::task::yield_now().await;
            } else {
                ready.clear_ready();
            }
        }
    }

    /// Reads what is there; returns whether more may be there.
    fn receive_batch(&self, catcher: &Mutex<Catcher>) -> bool {
        let mut buffer = [0; MAX_MESSAGE_BYTES];
        let mut is_failing = true;
        for _ in 0..MAX_BATCH {
            let (bytes, from) = match recvfrom::<SockaddrStorage>(self.inner.as_raw_fd(), &mut buffer) {
                Ok(received) => received,
                Err(nix::Error::EAGAIN) => return false,
                Err(error) => {
                    tracing::debug!(%error, "an echo message cannot be read");
                    continue;
                }
            };
            is_failing = false;
            let Some(from) = from.as_ref().and_then(ip) else { continue };
            catcher.lock().handle_received(from, self.form, buffer.get(..bytes).unwrap_or_default());
        }
        !is_failing
    }

    /// Sends a request to each wanted target, at most so many a second. `handle_sent` gets the number of each, and whether
    /// the system has sent it.
    pub async fn send_all(
        &self,
        catcher: &Mutex<Catcher>,
        rate: u32,
        is_wanted: impl Fn(IpAddr) -> bool,
        mut handle_sent: impl FnMut(usize, bool),
    ) {
        let rate = f64::from(rate.clamp(1, MAX_CATCH_RATE));
        let began = Instant::now();
        let mut sent = 0_u32;
        for number in 0.. {
            let Some((target, message)) = catcher.lock().request(number) else { return };
            if !is_wanted(target) {
                continue;
            }
            handle_sent(number, self.send(&message, target).await);
            sent = sent.saturating_add(1);
            // Batches, since timers are coarse.
            let due = began + Duration::from_secs_f64(f64::from(sent) / rate);
            if due > Instant::now() + BATCH_PAUSE {
                tokio::time::sleep_until(due).await;
            }
        }
    }

    async fn send(&self, message: &[u8], target: IpAddr) -> bool {
        for _ in 0..MAX_TRIES {
            match self.inner.get_ref().send_to(message, &SocketAddr::new(target, 0).into()) {
                Ok(_) => return true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => tokio::time::sleep(BATCH_PAUSE).await,
                Err(error) => {
                    tracing::debug!(%target, %error, "an echo request cannot be sent");
                    return false;
                }
            }
        }
        false
    }
}

fn refusal(address: IpAddr, error: io::Error) -> ProbeError {
    match error.kind() {
        io::ErrorKind::PermissionDenied => ProbeError::NotAllowed,
        io::ErrorKind::AddrNotAvailable => ProbeError::NotHere(address),
        _ => ProbeError::Socket(error),
    }
}
