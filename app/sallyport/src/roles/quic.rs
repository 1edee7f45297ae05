//! The UDP port for connectors over QUIC.

use std::{
    net::{SocketAddr, UdpSocket},
    sync::Arc,
    time::Duration,
};

use sallyport_edge::Edge;
use sallyport_net::{Certificates, ListenError, Shutdown};
use tokio::task::JoinHandle;
use tracing::{info, warn};

use crate::args::listen::QuicAddress;

const OPTION: &str = "--listen-quic";
/// How often a process that took over tries to open the port, until its predecessor has released it.
const RETRY_PERIOD: Duration = Duration::from_secs(1);
/// How long the close frames may take after the edge has ended.
const MAX_END: Duration = Duration::from_secs(2);

/// The port for connectors.
pub(crate) fn public_port(listen: Option<QuicAddress>, shared: u16) -> Option<u16> {
    match listen? {
        QuicAddress::Same => Some(shared),
        // The system has not assigned the port yet.
        QuicAddress::At(address) => Some(address.port).filter(|port| *port != 0),
    }
}

/// The served port.
pub(crate) struct Quic {
    task: JoinHandle<()>,
}

/// The port before it is served; without a socket while a predecessor still has it.
pub(crate) struct QuicPort {
    address: SocketAddr,
    socket: Option<UdpSocket>,
}

impl QuicPort {
    /// Opens the configured port, if any. `tls` is the address of TLS. If a predecessor still has the port, it is
    /// opened later.
    ///
    /// # Errors
    /// The port cannot be opened.
    pub(crate) fn open(
        listen: Option<QuicAddress>,
        tls: SocketAddr,
        is_takeover: bool,
    ) -> Result<Option<Self>, ListenError> {
        let address = match listen {
            None => return Ok(None),
            Some(QuicAddress::Same) => tls,
            Some(QuicAddress::At(address)) => address.with_default(tls.ip()),
        };
        let socket = match sallyport_net::listen_udp(address, OPTION) {
            Ok(socket) => Some(socket),
            Err(ListenError::Taken { .. }) if is_takeover => None,
            Err(error) => return Err(error),
        };
        Ok(Some(Self { address, socket }))
    }
}

impl Quic {
    /// Serves the port.
    pub(crate) fn start(port: QuicPort, edge: &Arc<Edge>, certificates: Arc<Certificates>, shutdown: Shutdown) -> Self {
        let QuicPort { address, socket } = port;
        let edge = edge.clone();
        let task = tokio::spawn(async move {
            let Some(socket) = wait_for(socket, address, &shutdown).await else { return };
            info!(listen = %address, "connectors are taken over QUIC too");
            if let Err(error) = edge.serve_quic(socket, certificates, shutdown).await {
                warn!(%error, "no connectors are taken over QUIC");
            }
        });
        Self { task }
    }

    /// Waits until the close frames to connectors were sent.
    pub(crate) async fn ended(self) {
        let _ = tokio::time::timeout(MAX_END, self.task).await;
    }
}

/// The socket, now or when a predecessor releases it; `None` if the shutdown comes first.
async fn wait_for(socket: Option<UdpSocket>, address: SocketAddr, shutdown: &Shutdown) -> Option<UdpSocket> {
    if socket.is_some() {
        return socket;
    }
    info!(listen = %address, "the QUIC port is taken over when the former process has ended");
    loop {
        tokio::select! {
            () = shutdown.wait() => return None,
            () = tokio::time::sleep(RETRY_PERIOD) => {}
        }
        if let Ok(socket) = sallyport_net::listen_udp(address, OPTION) {
            return Some(socket);
        }
    }
}
