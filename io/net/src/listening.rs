//! The public ports.

use std::{
    io,
    net::{self, SocketAddr},
};

use listenfd::ListenFd;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::TcpListener;

use crate::{
    own_ports::OwnPorts,
    socket::{stream_socket, tune_listener},
};

/// How many connections may wait to be accepted. The kernel takes less where `net.core.somaxconn` is lower.
pub const BACKLOG: i32 = 4_096;
/// The name of the TLS port's socket in systemd (`FileDescriptorName=`).
const TLS_NAME: &str = "https";
/// The name of the redirecting port's socket in systemd.
const REDIRECT_NAME: &str = "http";

/// The ports that an edge listens on. Connections that are accepted from them send small writes at once
/// (TCP_NODELAY) and notice a vanished peer (keepalive); nothing needs to be set on them.
#[derive(Debug)]
pub struct Listening {
    /// TLS: clients, the API and tunnels.
    pub tls: TcpListener,
    /// Plain HTTP, answered by redirects to TLS.
    pub redirect: Option<TcpListener>,
    /// The ports that sockets have for themselves: those of a former process first, later the ones that are open.
    pub own: OwnPorts,
}

/// Why a port was not opened.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Something else listens there.
    #[error("port {} on {} is taken by another process: stop it or choose another with {option}", address.port(), address.ip())]
    Taken {
        /// What was asked for.
        address: SocketAddr,
        /// The option that chooses it.
        option: &'static str,
    },
    /// A privileged port.
    #[error(
        "port {} on {} may not be opened by this user: choose one from 1024 up with {option}, let systemd open it, or \
         grant CAP_NET_BIND_SERVICE", address.port(), address.ip()
    )]
    NotAllowed {
        /// What was asked for.
        address: SocketAddr,
        /// The option that chooses it.
        option: &'static str,
    },
    /// The address is no other machine's business, but not this one's either.
    #[error("{} is not an address of this machine: choose another with {option} (0.0.0.0 is all of them)", address.ip())]
    NotHere {
        /// What was asked for.
        address: SocketAddr,
        /// The option that chooses it.
        option: &'static str,
    },
    /// Anything else.
    #[error("cannot listen on {address}: {source}")]
    Other {
        /// What was asked for.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// What systemd handed over cannot be used.
    #[error("the sockets that systemd handed over cannot be used: {0}")]
    Inherited(String),
}

impl Listening {
    /// Opens the ports. To be called inside of a tokio runtime.
    ///
    /// # Errors
    /// One sentence that names the port and what to do.
    pub fn bind(tls: SocketAddr, redirect: Option<SocketAddr>) -> Result<Self, ListenError> {
        Ok(Self {
            tls: listen(tls, "--listen")?,
            redirect: redirect.map(|address| listen(address, "--listen-http")).transpose()?,
            own: OwnPorts::default(),
        })
    }

    /// Takes over the ports that systemd opened (sd_listen_fds(3)), or gives `None` when it opened none. The one named
    /// `https` (or else the first) is for TLS, the one named `http` (or else the second) redirects.
    ///
    /// To be called once, inside of a tokio runtime, before other threads change the environment: it removes the
    /// variables, so that programs started later do not take the sockets for theirs.
    ///
    /// # Errors
    /// When there are more than two, or one is no listening TCP socket.
    pub fn from_systemd() -> Result<Option<Self>, ListenError> {
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut given = ListenFd::from_env();
        if given.len() == 0 {
            return Ok(None);
        }
        let names: Vec<&str> = names.split(':').collect();
        let roles = roles(given.len(), &names).map_err(ListenError::Inherited)?;
        let mut take = |index: usize| {
            inherited(&mut given, index).map_err(|error| ListenError::Inherited(format!("number {index}: {error}")))
        };
        Ok(Some(Self {
            tls: take(roles.tls)?,
            redirect: roles.redirect.map(take).transpose()?,
            own: OwnPorts::default(),
        }))
    }

    /// Where TLS is listened for; the port is the real one when 0 was asked for.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn tls_addr(&self) -> io::Result<SocketAddr> {
        self.tls.local_addr()
    }

    /// Where redirects are given, if anywhere.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn redirect_addr(&self) -> io::Result<Option<SocketAddr>> {
        self.redirect.as_ref().map(TcpListener::local_addr).transpose()
    }
}

/// Opens one port; `option` is the one that chooses it, for the error's sentence. To be called inside of a tokio runtime.
///
/// # Errors
/// One sentence that names the port and what to do.
pub fn listen(address: SocketAddr, option: &'static str) -> Result<TcpListener, ListenError> {
    listen_by(address, option, false)
}

/// As [`listen`], and takes Multipath TCP (RFC 8684) besides TCP when `mptcp` is wanted and the kernel has it.
///
/// # Errors
/// As [`listen`].
pub fn listen_by(address: SocketAddr, option: &'static str, mptcp: bool) -> Result<TcpListener, ListenError> {
    let open = || -> io::Result<TcpListener> {
        let socket = stream_socket(address, mptcp)?;
        // A restart must not wait for the last connections' TIME-WAIT. No SO_REUSEPORT: a second program on the same
        // port must be told, not given half of the connections.
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

/// One sentence that names the port and what to do.
pub(crate) fn why_not_open(source: io::Error, address: SocketAddr, option: &'static str) -> ListenError {
    match source.kind() {
        io::ErrorKind::AddrInUse => ListenError::Taken { address, option },
        io::ErrorKind::PermissionDenied => ListenError::NotAllowed { address, option },
        io::ErrorKind::AddrNotAvailable => ListenError::NotHere { address, option },
        _ => ListenError::Other { address, source },
    }
}

/// How much the kernel may hold of what comes to a UDP port, in bytes: bursts that a busy process is not quick enough for.
const UDP_BUFFER_BYTES: usize = 4 * 1_024 * 1_024;

/// Opens one UDP port; `option` is the one that chooses it, for the error's sentence.
///
/// # Errors
/// One sentence that names the port and what to do.
pub fn listen_udp(address: SocketAddr, option: &'static str) -> Result<net::UdpSocket, ListenError> {
    let open = || -> io::Result<net::UdpSocket> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        if address.is_ipv6() {
            socket.set_only_v6(false)?;
        }
        // The kernel gives less where net.core.rmem_max and wmem_max are lower.
        let _ = socket.set_recv_buffer_size(UDP_BUFFER_BYTES);
        let _ = socket.set_send_buffer_size(UDP_BUFFER_BYTES);
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        Ok(socket.into())
    };
    open().map_err(|source| why_not_open(source, address, option))
}

fn inherited(given: &mut ListenFd, index: usize) -> io::Result<TcpListener> {
    let listener: net::TcpListener =
        given.take_tcp_listener(index)?.ok_or_else(|| io::Error::other("it was not handed over"))?;
    adopt(listener)
}

/// Makes a listener of a socket that another process opened.
pub(crate) fn adopt(listener: net::TcpListener) -> io::Result<TcpListener> {
    let socket = SockRef::from(&listener);
    if !socket.is_listener()? {
        return Err(io::Error::other("it does not listen"));
    }
    tune_listener(&socket)?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

#[derive(Debug, PartialEq, Eq)]
struct Roles {
    tls: usize,
    redirect: Option<usize>,
}

fn roles(count: usize, names: &[&str]) -> Result<Roles, String> {
    if count > 2 {
        return Err(format!("expected at most two ({TLS_NAME} and {REDIRECT_NAME}), got {count}"));
    }
    let named = |name: &str| {
        let mut found = (0..count).filter(|index| names.get(*index) == Some(&name));
        match (found.next(), found.next()) {
            (_, Some(_)) => Err(format!("two are named {name}: give that unit one ListenStream, such as [::]:8443")),
            (one, None) => Ok(one),
        }
    };
    let (https, http) = (named(TLS_NAME)?, named(REDIRECT_NAME)?);
    let other_than = |taken: Option<usize>| (0..count).find(|index| Some(*index) != taken);
    let tls =
        https.or_else(|| other_than(http)).ok_or_else(|| format!("none of them is for TLS (named {TLS_NAME})"))?;
    let redirect = http.or_else(|| other_than(Some(tls)));
    Ok(Roles { tls, redirect })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handed_over_sockets_are_told_apart_by_name_and_else_by_order() {
        let both = |tls, redirect| Ok(Roles { tls, redirect: Some(redirect) });
        let one = Ok(Roles { tls: 0, redirect: None });
        assert_eq!(roles(1, &["https"]), one);
        assert_eq!(roles(1, &["sallyport.socket"]), one);
        assert_eq!(roles(1, &[""]), one);
        assert_eq!(roles(2, &["https", "http"]), both(0, 1));
        assert_eq!(roles(2, &["http", "https"]), both(1, 0));
        assert_eq!(roles(2, &["sallyport.socket", "sallyport.socket"]), both(0, 1));
        assert_eq!(roles(2, &["http"]), both(1, 0));
        assert!(roles(2, &["https", "https"]).unwrap_err().contains("two are named https"));
        assert!(roles(1, &["http"]).unwrap_err().contains("named https"));
        assert!(roles(3, &["https", "http", "x"]).unwrap_err().contains("at most two"));
    }
}
