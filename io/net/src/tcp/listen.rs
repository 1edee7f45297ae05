//! Opening TCP ports.

use std::{
    io,
    net::{self, SocketAddr},
};

use socket2::SockRef;
use tokio::net::TcpListener;

use super::socket_options::{stream_socket, tune_listener};

/// The most connections that wait to be accepted. The kernel allows fewer where `net.core.somaxconn` is lower.
pub const BACKLOG: i32 = 4_096;

/// Reason why a port was not opened.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another process has the port.
    #[error(
        "port {} on {} is taken by another process: stop it or choose another with {option}",
        address.port(),
        address.ip()
    )]
    Taken {
        /// The address that was requested.
        address: SocketAddr,
        /// The option that sets the address.
        option: &'static str,
    },
    /// The port is privileged.
    #[error(
        "port {} on {} may not be opened by this user: choose one from 1024 up with {option}, let systemd open it, or \
         grant CAP_NET_BIND_SERVICE", address.port(), address.ip()
    )]
    NotAllowed {
        /// The address that was requested.
        address: SocketAddr,
        /// The option that sets the address.
        option: &'static str,
    },
    /// The machine does not have the address.
    #[error(
        "{} is not an address of this machine: choose another with {option} (0.0.0.0 is all of them)",
        address.ip()
    )]
    NotHere {
        /// The address that was requested.
        address: SocketAddr,
        /// The option that sets the address.
        option: &'static str,
    },
    /// Any other error.
    #[error("cannot listen on {address}: {source}")]
    Other {
        /// The address that was requested.
        address: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
    /// The sockets of systemd cannot be used.
    #[error("the sockets that systemd handed over cannot be used: {0}")]
    Inherited(String),
}

/// Opens one port, inside of a tokio runtime. Errors name `option`, which sets the address.
///
/// # Errors
/// One sentence that names the port and what to do.
pub fn listen(address: SocketAddr, option: &'static str) -> Result<TcpListener, ListenError> {
    listen_by(address, option, false)
}

/// Like [`listen`]. With `mptcp` the port accepts Multipath TCP (RFC 8684) in addition to TCP, if the kernel supports
/// it.
///
/// # Errors
/// As [`listen`].
pub fn listen_by(address: SocketAddr, option: &'static str, mptcp: bool) -> Result<TcpListener, ListenError> {
    let open = || -> io::Result<TcpListener> {
        let socket = stream_socket(address, mptcp)?;
        // A restart must not wait for the last connections' TIME-WAIT. No SO_REUSEPORT: a second program on the same
        // port must get an error, not half of the connections.
        socket.set_reuse_address(true)?;
        if address.is_ipv6() {
            // `[::]` is all addresses, of both families.
            socket.set_only_v6(false)?;
        }
        tune_listener(&SockRef::from(&socket))?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        TcpListener::from_std(socket.into())
    };
    open().map_err(|source| why_not_open(source, address, option))
}

/// Turns an error of the system into a sentence with the port and the remedy.
pub(crate) fn why_not_open(source: io::Error, address: SocketAddr, option: &'static str) -> ListenError {
    match source.kind() {
        io::ErrorKind::AddrInUse => ListenError::Taken { address, option },
        io::ErrorKind::PermissionDenied => ListenError::NotAllowed { address, option },
        io::ErrorKind::AddrNotAvailable => ListenError::NotHere { address, option },
        _ => ListenError::Other { address, source },
    }
}

/// Makes a listener of a socket that another process opened.
pub(crate) fn adopt_listener(listener: net::TcpListener) -> io::Result<TcpListener> {
    let socket = SockRef::from(&listener);
    if !socket.is_listener()? {
        return Err(io::Error::other("the socket does not listen"));
    }
    tune_listener(&socket)?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}
