//! Socket options, each with what it is good for.

use std::{io, time::Duration};

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// How long a connection is silent before the kernel asks whether the other end is still there.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
/// How long between two questions.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// How many questions without an answer end the connection.
const KEEPALIVE_PROBES: u32 = 4;

/// Sends small writes at once instead of waiting for more (TCP_NODELAY).
///
/// # Errors
/// When the kernel refuses, which it does for a socket that is gone.
pub fn set_nodelay(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)
}

/// Finds out within two minutes that the other end of a silent connection vanished.
///
/// # Errors
/// When the kernel refuses.
pub fn set_keepalive(stream: &TcpStream) -> io::Result<()> {
    keepalive(&SockRef::from(stream))
}

/// Bounds the bytes that wait unsent in the kernel (TCP_NOTSENT_LOWAT): the socket counts as writable only below it.
/// Little unsent data means that what is urgent (a window, a ping, another stream) leaves soon.
///
/// # Errors
/// When the kernel refuses.
pub fn set_notsent_lowat(stream: &TcpStream, bytes: u32) -> io::Result<()> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    return SockRef::from(stream).set_tcp_notsent_lowat(bytes);
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    {
        let _ = (stream, bytes);
        Ok(())
    }
}

/// Ends the connection when sent data is not acknowledged for so long (TCP_USER_TIMEOUT, RFC 5482).
///
/// Only for connections whose reader never pauses for longer than that: Linux also counts the time that a reader
/// keeps its window closed, and would end a download that is merely paused.
///
/// # Errors
/// When the kernel refuses.
pub fn set_user_timeout(stream: &TcpStream, timeout: Duration) -> io::Result<()> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    return SockRef::from(stream).set_tcp_user_timeout(Some(timeout));
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    {
        let _ = (stream, timeout);
        Ok(())
    }
}

/// Keeps urgent data (RFC 6093) where it is among the other bytes, instead of leaving it out (SO_OOBINLINE).
pub(crate) fn keep_urgent_inline(socket: &SockRef<'_>) -> io::Result<()> {
    socket.set_out_of_band_inline(true)
}

/// Sets on a listener what its connections shall have: Linux hands these options down to what is accepted, which
/// saves three system calls for each connection.
pub(crate) fn tune_listener(listener: &SockRef<'_>) -> io::Result<()> {
    listener.set_tcp_nodelay(true)?;
    keep_urgent_inline(listener)?;
    keepalive(listener)
}

fn keepalive(socket: &SockRef<'_>) -> io::Result<()> {
    let settings =
        TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL).with_retries(KEEPALIVE_PROBES);
    socket.set_tcp_keepalive(&settings)
}
