//! TCP: the kernel keeps four-tuples apart, if it is asked to choose ports at connect(2).

use std::{io, net, time::Duration};

use socket2::{Domain, Protocol as Kind, Socket, Type};
use tokio::net::{TcpSocket, TcpStream};

use crate::{Connect, ConnectError, PortRange, Protocol, Source, options, udp};

impl Connect {
    /// Connects, and waits at most this long for the peer.
    ///
    /// # Errors
    /// See [`ConnectError`]. [`io::ErrorKind::TimedOut`] if the peer does not answer in time.
    pub fn tcp(&self, timeout: Duration) -> Result<net::TcpStream, ConnectError> {
        let socket = self.tcp_socket()?;
        self.bind_tcp(&socket)?;
        socket.connect_timeout(&self.destination.into(), timeout).map_err(|error| self.explain_tcp(error))?;
        Ok(socket.into())
    }

    /// Connects without blocking. The limit on the time is the caller's, who may drop the future at any time.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub async fn tcp_async(&self) -> Result<TcpStream, ConnectError> {
        let connected = if self.is_plain() {
            self.check()?;
            TcpStream::connect(self.destination).await
        } else {
            let socket = self.tcp_socket()?;
            self.bind_tcp(&socket)?;
            socket.set_nonblocking(true)?;
            TcpSocket::from_std_stream(socket.into()).connect(self.destination).await
        };
        connected.map_err(|error| self.explain_tcp(error))
    }

    fn tcp_socket(&self) -> Result<Socket, ConnectError> {
        Ok(Socket::new(Domain::for_address(self.destination), Type::STREAM, Some(Kind::TCP))?)
    }

    /// Prepares a socket with options of the caller's, which then connects to [`Connect::destination`].
    ///
    /// Pass the error of connect(2) to [`Connect::explain_tcp`].
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn bind_tcp(&self, socket: &Socket) -> Result<(), ConnectError> {
        self.check()?;
        if let Some(ports) = self.ports {
            ports.check()?;
        }
        match self.source {
            Source::Any => {}
            Source::Address(ip) => {
                options::choose_port_at_connect(socket)?;
                // So that a socket with an explicit port can share the port later.
                socket.set_reuse_address(true)?;
                options::bind(socket, self.local(ip, 0))?;
            }
            Source::AddressAndPort(local) => {
                socket.set_reuse_address(true)?;
                return options::bind(socket, self.local(local.ip(), local.port()))
                    .map_err(|error| self.held(Protocol::Tcp, error));
            }
        }
        self.ports.map_or(Ok(()), |ports| options::set_ports(socket, ports))
    }

    /// The reason for the error of connect(2) on a socket from [`Connect::bind_tcp`].
    #[must_use]
    pub fn explain_tcp(&self, error: io::Error) -> ConnectError {
        if error.kind() != io::ErrorKind::AddrNotAvailable {
            return error.into();
        }
        match self.source {
            Source::AddressAndPort(local) => ConnectError::FourTupleTaken {
                protocol: Protocol::Tcp,
                source_address: local,
                destination: self.destination,
            },
            // The kernel has the same error for IPv6 without an address.
            Source::Any if self.destination.is_ipv6() && udp::source_for(self.destination).is_err() => {
                ConnectError::NoRoute(self.destination)
            }
            Source::Any | Source::Address(_) => match self.ports.map_or_else(PortRange::of_namespace, Ok) {
                Ok(ports) => self.no_port_left(Protocol::Tcp, ports),
                Err(_) => error.into(),
            },
        }
    }
}
