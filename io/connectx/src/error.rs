//! Why there is no connection.

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
};

use crate::PortRange;

/// The protocol of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        })
    }
}

/// Why there is no connection. As an [`io::Error`], [`ConnectError::NoPortLeft`] alone has the kind
/// [`io::ErrorKind::AddrNotAvailable`].
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Each port of the range is in use towards this destination (EADDRNOTAVAIL).
    #[error("no local port of {ports} is left for {protocol} to {destination}: all are in use")]
    NoPortLeft {
        /// The protocol.
        protocol: Protocol,
        /// The range that was searched.
        ports: PortRange,
        /// The destination.
        destination: SocketAddr,
    },
    /// Another socket has exactly this four-tuple.
    #[error("{protocol} from {source_address} to {destination} is in use by another socket")]
    FourTupleTaken {
        /// The protocol.
        protocol: Protocol,
        /// The local address and port.
        source_address: SocketAddr,
        /// The destination.
        destination: SocketAddr,
    },
    /// Another socket has the local port, and does not share it.
    #[error("another socket has {protocol} port {source_address}, and does not share it")]
    PortHeld {
        /// The protocol.
        protocol: Protocol,
        /// The local address and port.
        source_address: SocketAddr,
    },
    /// The range is not inside the range of the network namespace, and the kernel would ignore it.
    #[error(
        "ports {ports} are not inside {namespace} (net.ipv4.ip_local_port_range), and the kernel would ignore them: \
         widen the setting or choose other ports"
    )]
    OutsideNamespace {
        /// The range that was asked for.
        ports: PortRange,
        /// The range of the namespace.
        namespace: PortRange,
    },
    /// The range of the network namespace is not known.
    #[error("the range of local ports cannot be read from {path}: {why}")]
    NoNamespaceRange {
        /// The file.
        path: &'static str,
        /// What went wrong.
        why: String,
    },
    /// The kernel has no IP_LOCAL_PORT_RANGE.
    #[error("this kernel cannot limit a socket to ports {0}: IP_LOCAL_PORT_RANGE needs Linux 6.3 or later")]
    NoPortRanges(PortRange),
    /// The kernel cannot look up UDP sockets.
    #[error("this kernel cannot look up UDP sockets, which shared ports need (udp_diag): {0}")]
    NoSocketLookup(String),
    /// This machine does not have the source address.
    #[error("this machine has no address {0}")]
    NoSuchSource(IpAddr),
    /// No address of this machine reaches the destination.
    #[error("this machine has no address from which {0} can be reached")]
    NoRoute(SocketAddr),
    /// The request contradicts itself.
    #[error("{0}")]
    InvalidRequest(String),
    /// The kernel or the peer refuses.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl ConnectError {
    /// The kind of this error as an [`io::Error`].
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            Self::NoPortLeft { .. } => io::ErrorKind::AddrNotAvailable,
            Self::FourTupleTaken { .. } | Self::PortHeld { .. } => io::ErrorKind::AddrInUse,
            Self::NoRoute(_) => io::ErrorKind::NetworkUnreachable,
            Self::NoPortRanges(_) | Self::NoSocketLookup(_) | Self::NoNamespaceRange { .. } => {
                io::ErrorKind::Unsupported
            }
            Self::OutsideNamespace { .. } | Self::NoSuchSource(_) | Self::InvalidRequest(_) => {
                io::ErrorKind::InvalidInput
            }
            Self::Io(error) => error.kind(),
        }
    }
}

impl From<ConnectError> for io::Error {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Io(error) => error,
            other => Self::new(other.kind(), other),
        }
    }
}
