//! Socket options, each with what it is good for.

use std::{io, net::SocketAddr, sync::Once, time::Duration};

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::TcpStream;

/// How long a connection is silent before the kernel asks whether the other end is still there.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
/// How long between two questions.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// How many questions without an answer end the connection.
const KEEPALIVE_PROBES: u32 = 4;

/// How much a connection with congestion control of its own may have in the kernel's send buffer, by the kernel's way to
/// count, with its overhead: at 1 Gbit/s over 140 ms some 17 MB are in flight. The kernel doubles what is asked for.
#[cfg(any(target_os = "linux", target_os = "android"))]
const SEND_ROOM_BYTES: usize = 32 << 20;
/// How much of it may wait unsent.
#[cfg(any(target_os = "linux", target_os = "android"))]
const SEND_ROOM_UNSENT_BYTES: u32 = 1 << 20;

/// Sends small writes at once instead of waiting for more (TCP_NODELAY).
///
/// # Errors
/// When the kernel refuses, which it does for a socket that is gone.
pub(crate) fn set_nodelay(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)
}

/// Finds out within two minutes that the other end of a silent connection vanished.
///
/// # Errors
/// When the kernel refuses.
pub(crate) fn set_keepalive(stream: &TcpStream) -> io::Result<()> {
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

/// Lets more be under way unacknowledged than the kernel's `net.ipv4.tcp_wmem` allows, where the process may
/// (CAP_NET_ADMIN); elsewhere it stays as the kernel has it. What waits unsent is bounded in return, so that the room is
/// for what is in flight alone. Where that bound cannot be had there is no room either: Multipath TCP knows the option in
/// newer kernels only, and would queue all of it.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn make_send_room(socket: &SockRef<'_>) {
    if socket.set_tcp_notsent_lowat(SEND_ROOM_UNSENT_BYTES).is_ok()
        && rustix::net::sockopt::set_socket_send_buffer_size_force(&**socket, SEND_ROOM_BYTES / 2).is_err()
    {
        // What the kernel has for all (`net.ipv4.tcp_notsent_lowat`).
        let _ = socket.set_tcp_notsent_lowat(0);
    }
}

/// Acknowledges what has come at once (TCP_QUICKACK), where the system can; what it refuses it acknowledges later. For when
/// the other side is to send more, and has nothing to hear before: the kernel delays an acknowledgement by 40 ms in the hope
/// of data to go along with it (RFC 1122, section 4.2.3.2), and whoever did not ask for TCP_NODELAY holds small data back
/// until it comes (Nagle's algorithm, RFC 9293, section 3.7.4).
pub fn acknowledge(stream: &TcpStream) {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    drop(stream.set_quickack(true));
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let _ = stream;
}

/// Sends what waits for more: setting TCP_NODELAY, which is set already, does so by the way (tcp(7)).
///
/// # Errors
/// When the kernel refuses.
pub(crate) fn send_what_waits(stream: &TcpStream) -> io::Result<()> {
    set_nodelay(stream)
}

/// Keeps a packet back that is not full, until the connection's end, which goes along with it (TCP_CORK); if that does not
/// come, for the time after which the connection would send again, 200 ms at least. For the last that is written.
///
/// # Errors
/// When the kernel refuses.
pub fn keep_for_end(stream: &TcpStream) -> io::Result<()> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        let socket = SockRef::from(stream);
        // The end of Multipath TCP goes beside the bytes (DATA_FIN, RFC 8684, section 3.3.3), and takes none along.
        if socket.protocol()? == Some(Protocol::TCP) {
            return socket.set_tcp_cork(true);
        }
    }
    let _ = stream;
    Ok(())
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

/// Keeps urgent data (RFC 6093) where it is among the other bytes, instead of leaving it out (SO_OOBINLINE). Multipath TCP
/// does not know urgent data at all.
pub(crate) fn keep_urgent_inline(socket: &SockRef<'_>) -> io::Result<()> {
    let unsupported = rustix::io::Errno::OPNOTSUPP.raw_os_error();
    match socket.set_out_of_band_inline(true) {
        Err(error) if error.raw_os_error() == Some(unsupported) => Ok(()),
        outcome => outcome,
    }
}

/// A TCP socket for this kind of address; with Multipath TCP where that is wanted and the kernel has it, else without and
/// with one warning.
pub(crate) fn stream_socket(address: SocketAddr, mptcp: bool) -> io::Result<Socket> {
    static WARN: Once = Once::new();
    let domain = Domain::for_address(address);
    #[cfg(target_os = "linux")]
    if mptcp {
        match Socket::new(domain, Type::STREAM, Some(Protocol::MPTCP)) {
            Ok(socket) => return Ok(socket),
            Err(error) => WARN.call_once(|| {
                tracing::warn!(%error, "this kernel has no Multipath TCP (net.mptcp.enabled): plain TCP is used");
            }),
        }
    }
    #[cfg(not(target_os = "linux"))]
    if mptcp {
        WARN.call_once(|| tracing::warn!("Multipath TCP is for Linux: plain TCP is used"));
    }
    Socket::new(domain, Type::STREAM, Some(Protocol::TCP))
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

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn there_is_no_room_where_what_waits_unsent_cannot_be_bounded() {
        // It stands for a kernel whose Multipath TCP does not know the option.
        let other = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
        let before = other.send_buffer_size().unwrap();
        make_send_room(&SockRef::from(&other));
        assert_eq!(other.send_buffer_size().unwrap(), before);
    }

    #[tokio::test]
    async fn a_packet_is_kept_for_the_end_where_that_takes_it_along() {
        for mptcp in [false, true] {
            let listener = crate::listen_by("127.0.0.1:0".parse().unwrap(), "--listen", mptcp).unwrap();
            let address = listener.local_addr().unwrap();
            let client = stream_socket(address, mptcp).unwrap();
            client.connect(&address.into()).unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            let socket = SockRef::from(&stream);
            if mptcp && socket.protocol().unwrap() == Some(Protocol::TCP) {
                eprintln!("skipped: this kernel has no Multipath TCP");
                return;
            }
            keep_for_end(&stream).unwrap();
            assert_eq!(socket.tcp_cork().unwrap(), !mptcp);
        }
    }
}
