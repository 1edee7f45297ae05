//! TLS to other machines.

use std::{io, sync::Arc, time::Duration};

use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::{Outbound, connect_tcp_by};
use crate::{
    tcp::{ReadAhead, display_host_port},
    tls::{UnbufferedTlsStream, handshake_failure},
};

/// Connects with TLS within `timeout` in all, and verifies that the server is `server_name`.
///
/// # Errors
/// As [`crate::connect_tcp`]. A failed handshake gives an error with a [`crate::TlsFailure`].
pub async fn connect_tls(
    host: &str,
    port: u16,
    server_name: &str,
    config: Arc<ClientConfig>,
    timeout: Duration,
) -> io::Result<TlsStream<ReadAhead<TcpStream>>> {
    connect_tls_by(&Outbound::default(), host, port, server_name, config, timeout).await
}

/// Like [`connect_tls`], with the given route out.
///
/// # Errors
/// As [`connect_tcp_by`] and [`connect_tls`].
pub async fn connect_tls_by(
    outbound: &Outbound,
    host: &str,
    port: u16,
    server_name: &str,
    config: Arc<ClientConfig>,
    timeout: Duration,
) -> io::Result<TlsStream<ReadAhead<TcpStream>>> {
    let name = name_of(server_name)?;
    let began = time::Instant::now();
    let stream = connect_tcp_by(outbound, host, port, timeout).await?;
    let left = timeout.saturating_sub(began.elapsed());
    let handshake = TlsConnector::from(config).connect(name, ReadAhead::new(stream));
    let at = display_host_port(host, port);
    match time::timeout(left, handshake).await {
        Ok(result) => result.map_err(|error| handshake_failure(error, &at, server_name)),
        Err(_) => Err(handshake_took_too_long(&at, timeout)),
    }
}

/// Begins TLS on a connection to `host` and `port`, within `timeout`, and verifies that the server is `server_name`.
///
/// # Errors
/// [`io::ErrorKind::TimedOut`] after the timeout. A failed handshake gives an error with a [`crate::TlsFailure`]. A
/// broken connection gives its own error.
pub async fn start_tls<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    host: &str,
    port: u16,
    server_name: &str,
    config: Arc<ClientConfig>,
    timeout: Duration,
) -> io::Result<TlsStream<ReadAhead<S>>> {
    let at = display_host_port(host, port);
    let name = name_of(server_name)?;
    match time::timeout(timeout, TlsConnector::from(config).connect(name, ReadAhead::new(stream))).await {
        Ok(result) => result.map_err(|error| handshake_failure(error, &at, server_name)),
        Err(_) => Err(handshake_took_too_long(&at, timeout)),
    }
}

/// Like [`start_tls`], for a connection that is often idle: TLS 1.3 without buffers. Also returns the agreed protocol
/// (ALPN). The configuration must have `enable_secret_extraction`.
///
/// # Errors
/// As [`start_tls`], and [`io::ErrorKind::Unsupported`] when the server speaks TLS 1.2.
pub async fn start_unbuffered_tls<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    host: &str,
    port: u16,
    server_name: &str,
    config: Arc<ClientConfig>,
    timeout: Duration,
) -> io::Result<(UnbufferedTlsStream<S>, Option<Vec<u8>>)> {
    let at = display_host_port(host, port);
    let name = name_of(server_name)?;
    match time::timeout(timeout, UnbufferedTlsStream::connect(stream, config, name)).await {
        Ok(result) => result.map_err(|error| handshake_failure(error, &at, server_name)),
        Err(_) => Err(handshake_took_too_long(&at, timeout)),
    }
}

fn name_of(server_name: &str) -> io::Result<ServerName<'static>> {
    ServerName::try_from(server_name.to_owned()).map_err(|_| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("{server_name:?} is not a name that a server can have"))
    })
}

fn handshake_took_too_long(at: &str, timeout: Duration) -> io::Error {
    let text = format!("{at} accepted the connection but did not finish the TLS handshake within {timeout:?}");
    io::Error::new(io::ErrorKind::TimedOut, text)
}
