//! The UDP port for connectors that come over QUIC.

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
/// How often a process that took over looks whether its predecessor has let the port go.
const RETRY_PERIOD: Duration = Duration::from_secs(1);
/// How long the end may take once the edge is through.
const MAX_END: Duration = Duration::from_secs(2);

/// The port that connectors are told to dial.
pub(crate) fn public_port(listen: Option<QuicAddress>, shared: u16) -> Option<u16> {
    match listen? {
        QuicAddress::Same => Some(shared),
        // Which one the system gives is not known yet.
        QuicAddress::At(address) => Some(address.port).filter(|port| *port != 0),
    }
}

/// The port, while it is served.
pub(crate) struct Quic {
    task: JoinHandle<()>,
}

/// The port, before it is served; without a socket while a predecessor still has it.
pub(crate) struct QuicPort {
    address: SocketAddr,
    socket: Option<UdpSocket>,
}

impl QuicPort {
    /// Opens the port that was asked for, if one was. `tls` is where TLS is served. A predecessor may still have the
    /// port: then it is opened as soon as that one is gone.
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

    /// Waits until connectors have been told that the edge is gone.
    pub(crate) async fn ended(self) {
        let _ = tokio::time::timeout(MAX_END, self.task).await;
    }
}

/// The socket, now or when a predecessor lets it go; `None` when the shutdown comes before that.
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
