//! Socket options, each with its purpose.

use std::{io, net::SocketAddr, sync::Once, time::Duration};

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::TcpStream;

/// Time of silence before the kernel probes the peer.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
/// Time between two probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// The number of unanswered probes that end the connection.
const KEEPALIVE_PROBES: u32 = 4;

/// The kernel's send buffer of a connection with congestion control of its own, in bytes with the kernel's overhead.
///
/// At 1 Gbit/s over 140 ms some 17 MB are in flight. The kernel doubles the value.
#[cfg(any(target_os = "linux", target_os = "android"))]
const SEND_ROOM_BYTES: usize = 32 << 20;
/// The unsent part of that buffer, in bytes.
#[cfg(any(target_os = "linux", target_os = "android"))]
const SEND_ROOM_UNSENT_BYTES: u32 = 1 << 20;

/// Sends small writes at once instead of waiting for more (TCP_NODELAY).
///
/// # Errors
/// The kernel refuses, because the socket is closed.
pub(crate) fn set_nodelay(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)
}

/// Detects within two minutes that the peer of a silent connection has vanished (SO_KEEPALIVE).
///
/// # Errors
/// The kernel refuses.
pub(crate) fn set_keepalive(stream: &TcpStream) -> io::Result<()> {
    keepalive(&SockRef::from(stream))
}

/// Bounds the unsent bytes in the kernel (TCP_NOTSENT_LOWAT): above the bound the socket is not writable.
///
/// Few unsent bytes let urgent frames leave soon: a window, a ping, another stream.
///
/// # Errors
/// The kernel refuses.
pub fn set_notsent_lowat(stream: &TcpStream, bytes: u32) -> io::Result<()> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    return SockRef::from(stream).set_tcp_notsent_lowat(bytes);
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    {
        let _ = (stream, bytes);
        Ok(())
    }
}

/// Allows more unacknowledged bytes than `net.ipv4.tcp_wmem`, where the process has CAP_NET_ADMIN.
///
/// In return the unsent bytes are bounded, so that the larger buffer serves only bytes in flight. If that bound cannot
/// be set, the buffer stays as it is. Multipath TCP has the bound only in newer kernels.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn make_send_room(socket: &SockRef<'_>) {
    if socket.set_tcp_notsent_lowat(SEND_ROOM_UNSENT_BYTES).is_ok()
        && rustix::net::sockopt::set_socket_send_buffer_size_force(&**socket, SEND_ROOM_BYTES / 2).is_err()
    {
        // The kernel's default (`net.ipv4.tcp_notsent_lowat`).
        let _ = socket.set_tcp_notsent_lowat(0);
    }
}

/// Acknowledges received data at once (TCP_QUICKACK), where the system can.
///
/// Use it when the peer has more to send and nothing to receive. The kernel delays an acknowledgement by 40 ms to send
/// it with data (RFC 1122 section 4.2.3.2). A peer without TCP_NODELAY holds small data back until the acknowledgement
/// arrives (Nagle's algorithm, RFC 9293 section 3.7.4).
pub fn acknowledge(stream: &TcpStream) {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    drop(stream.set_quickack(true));
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let _ = stream;
}

/// Sends the data that wait for more. Setting TCP_NODELAY again does so (tcp(7)).
///
/// # Errors
/// The kernel refuses.
pub(crate) fn send_what_waits(stream: &TcpStream) -> io::Result<()> {
    set_nodelay(stream)
}

/// Holds back a packet that is not full until the end of the connection (TCP_CORK), so that both leave together.
///
/// Without an end the packet leaves after the retransmission timeout, 200 ms at least. Use it for the last write.
///
/// # Errors
/// The kernel refuses.
pub fn keep_for_end(stream: &TcpStream) -> io::Result<()> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        let socket = SockRef::from(stream);
        // The end of a Multipath TCP connection is an option (DATA_FIN, RFC 8684, section 3.3.3), and takes no bytes
        // along.
        if socket.protocol()? == Some(Protocol::TCP) {
            return socket.set_tcp_cork(true);
        }
    }
    let _ = stream;
    Ok(())
}

/// Ends the connection when sent data stay unacknowledged for so long (TCP_USER_TIMEOUT, RFC 5482).
///
/// Use it only for connections whose reader never pauses longer. Linux counts the time of a closed window too, and
/// would end a paused download.
///
/// # Errors
/// The kernel refuses.
pub fn set_user_timeout(stream: &TcpStream, timeout: Duration) -> io::Result<()> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    return SockRef::from(stream).set_tcp_user_timeout(Some(timeout));
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    {
        let _ = (stream, timeout);
        Ok(())
    }
}

/// Keeps urgent data (RFC 6093) in their place among the other bytes (SO_OOBINLINE). Multipath TCP has no urgent data.
pub(crate) fn keep_urgent_inline(socket: &SockRef<'_>) -> io::Result<()> {
    let unsupported = rustix::io::Errno::OPNOTSUPP.raw_os_error();
    match socket.set_out_of_band_inline(true) {
        Err(error) if error.raw_os_error() == Some(unsupported) => Ok(()),
        outcome => outcome,
    }
}

/// A TCP socket for this kind of address. With `mptcp` it is a Multipath TCP socket if the kernel supports that;
/// otherwise one warning is logged.
pub(crate) fn stream_socket(address: SocketAddr, mptcp: bool) -> io::Result<Socket> {
    static WARN: Once = Once::new();
    let domain = Domain::for_address(address);
    #[cfg(target_os = "linux")]
    if mptcp {
        match Socket::new(domain, Type::STREAM, Some(Protocol::MPTCP)) {
            Ok(socket) => return Ok(socket),
            Err(error) => WARN.call_once(|| {
                tracing::warn!(%error, "this kernel has no Multipath TCP (net.mptcp.enabled): using plain TCP");
            }),
        }
    }
    #[cfg(not(target_os = "linux"))]
    if mptcp {
        WARN.call_once(|| tracing::warn!("Multipath TCP is for Linux: using plain TCP"));
    }
    Socket::new(domain, Type::STREAM, Some(Protocol::TCP))
}

/// Sets the options of future connections on their listener. Linux lets connections inherit them, which saves three
/// system calls a connection.
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
        // Stands for a kernel without the option in Multipath TCP.
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
