//! Whether the edge serves: a request to itself, through loopback.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use rustls::{ClientConfig, pki_types::ServerName};
use sallyport_net::{client_config_by, custom_server_verifier};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

use crate::{state::EdgeState, util::OWN_PROGRAM};

/// How long the request may take.
const CHECK_TIME: Duration = Duration::from_secs(2);
/// The beginning of every answer to it.
const GOOD: &[u8] = b"HTTP/1.1 200 ";

/// Sends requests to the edge's own listener.
pub(super) struct OwnRequest {
    address: SocketAddr,
    host: String,
    name: Option<ServerName<'static>>,
    connector: TlsConnector,
    /// Whether the listener expects a PROXY protocol header from loopback addresses.
    is_proxied: bool,
}

/// The outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Checked {
    /// Whether the listener accepted the connection.
    pub(super) listens: bool,
    /// Whether it answered.
    pub(super) answers: bool,
}

impl OwnRequest {
    /// Requests to the listener at this address.
    pub(super) fn new(state: &EdgeState, listens: SocketAddr) -> Self {
        let ip = match listens.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        // The certificate does not matter here: nobody else has this port.
        let mut config: ClientConfig = client_config_by(custom_server_verifier(|_| Ok(())), &[b"http/1.1"]);
        config.enable_early_data = false;
        let host = format!("api.{}", state.config.domain);
        Self {
            address: SocketAddr::new(ip, listens.port()),
            name: ServerName::try_from(host.clone()).ok(),
            host,
            connector: TlsConnector::from(Arc::new(config)),
            is_proxied: state.config.trusted_proxies.iter().any(|network| network.contains(ip.to_canonical())),
        }
    }

    /// Sends one request.
    pub(super) async fn send(&self) -> Checked {
        let Ok(Ok(stream)) = tokio::time::timeout(CHECK_TIME, TcpStream::connect(self.address)).await else {
            return Checked { listens: false, answers: false };
        };
        let answers = tokio::time::timeout(CHECK_TIME, self.exchange(stream)).await;
        Checked { listens: true, answers: matches!(answers, Ok(Some(()))) }
    }

    async fn exchange(&self, mut stream: TcpStream) -> Option<()> {
        if self.is_proxied {
            stream.write_all(b"PROXY UNKNOWN\r\n").await.ok()?;
        }
        let mut stream = self.connector.connect(self.name.clone()?, stream).await.ok()?;
        let host = &self.host;
        let request =
            format!("GET /healthz HTTP/1.1\r\nHost: {host}\r\nUser-Agent: {OWN_PROGRAM}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        stream.flush().await.ok()?;
        let mut head = [0; GOOD.len()];
        stream.read_exact(&mut head).await.ok()?;
        (head == GOOD).then_some(())
    }
}
