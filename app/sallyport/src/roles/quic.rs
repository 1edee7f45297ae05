//! The UDP port for clients over HTTP/3 and connectors over QUIC.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    num::NonZeroUsize,
    os::fd::OwnedFd,
    sync::{Arc, OnceLock},
    time::Duration,
};

use sallyport_edge::{Edge, Http3Offer};
use sallyport_net::{Certificates, ListenError, PassedPort, Shutdown};
use sallyport_quic::{MAX_SOCKETS, QuicPort, QuicSecret, ServerNumber};
use tokio::task::JoinHandle;
use tracing::{info, warn};

use crate::args::listen::{QuicAddress, QuicArgs};

const OPTION: &str = "--listen-quic";
/// How often a process that took over tries to open the port, until its predecessor has released it.
const RETRY_PERIOD: Duration = Duration::from_secs(1);
/// How long the close frames may take after the edge has ended.
const MAX_END: Duration = Duration::from_secs(2);

/// The port before it is served.
pub(crate) struct OpenedQuic {
    address: SocketAddr,
    sockets: NonZeroUsize,
    has_http3: bool,
    accepts_early_data: bool,
    public_port: u16,
    opened: Opened,
}

/// Who has the sockets.
enum Opened {
    /// This process.
    Here(Vec<std::net::UdpSocket>),
    /// The process that is replaced.
    ByPredecessor,
}

impl OpenedQuic {
    /// Opens the configured port, if any, with a socket for each shard. `tls` is the address of TLS, and `public_port`
    /// its port as clients see it. If a predecessor has the port, it passes it on.
    ///
    /// # Errors
    /// The port cannot be opened, and an option asks for it.
    pub(crate) fn open(
        args: &QuicArgs,
        (tls, public_port): (SocketAddr, u16),
        shards: NonZeroUsize,
        is_takeover: bool,
    ) -> Result<Option<Self>, ListenError> {
        let (address, is_asked_for) = match args.listen_quic {
            None if args.no_http3 => return Ok(None),
            Some(QuicAddress::Closed) => return Ok(None),
            None => (tls, false),
            Some(QuicAddress::Same) => (tls, true),
            Some(QuicAddress::At(address)) => (address.with_default(tls.ip()), true),
        };
        let sockets = shards.min(NonZeroUsize::new(MAX_SOCKETS).unwrap_or(NonZeroUsize::MIN));
        let (address, opened) = match sallyport_net::listen_udp_group(address, sockets, OPTION) {
            Ok(group) => {
                let real = group.first().and_then(|socket| socket.local_addr().ok());
                (real.unwrap_or(address), Opened::Here(group))
            }
            Err(ListenError::Taken { .. }) if is_takeover => (address, Opened::ByPredecessor),
            Err(error) if is_asked_for => return Err(error),
            Err(error) => {
                warn!(%error, "no HTTP/3: choose another UDP port with --listen-quic, or none with --no-http3");
                return Ok(None);
            }
        };
        let is_shared = !matches!(args.listen_quic, Some(QuicAddress::At(_)));
        let own_port = if is_shared { public_port } else { address.port() };
        let public_port = args.public_quic_port.unwrap_or(own_port);
        Ok(Some(Self {
            address,
            sockets,
            has_http3: !args.no_http3,
            accepts_early_data: args.http3_early_data,
            public_port,
            opened,
        }))
    }

    /// Whether clients may come over HTTP/3.
    pub(crate) fn has_http3(&self) -> bool {
        self.has_http3
    }

    /// The port as clients and connectors see it.
    pub(crate) fn public_port(&self) -> u16 {
        self.public_port
    }
}

/// The served port.
pub(crate) struct Quic {
    task: JoinHandle<()>,
    port: Arc<OnceLock<QuicPort>>,
}

impl Quic {
    /// Serves the port. `inherited` is what a predecessor has passed on. `secret` is that of the machine; behind a
    /// balancer it comes with the number of the server. `addresses` are those of the machine as clients see them.
    pub(crate) fn start(
        opened: OpenedQuic,
        inherited: Vec<OwnedFd>,
        (secret, server): ([u8; 32], Option<ServerNumber>),
        (edge, certificates): (&Arc<Edge>, Arc<Certificates>),
        addresses: &[IpAddr],
        shutdown: Shutdown,
    ) -> Self {
        let OpenedQuic { address, sockets, has_http3, accepts_early_data, public_port, opened } = opened;
        let mut probed: Vec<_> = addresses.iter().map(|address| SocketAddr::new(*address, public_port)).collect();
        if probed.is_empty() {
            // A machine without a default route has clients of its own alone.
            probed.push(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), address.port()));
        }
        let http3 = has_http3.then_some(Http3Offer { public_port, accepts_early_data, probed });
        let (edge, shared) = (edge.clone(), Arc::new(OnceLock::new()));
        let served = shared.clone();
        let task = tokio::spawn(async move {
            let port = match opened {
                Opened::Here(sockets) => {
                    // The former process goes on with its port, which is another one.
                    drop(inherited);
                    QuicPort::new_as(sockets, secret.into(), server)
                }
                Opened::ByPredecessor => {
                    inherit(inherited, (address, sockets), (secret.into(), server), &shutdown).await
                }
            };
            let port = match port {
                Ok(port) => served.get_or_init(|| port).clone(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => return,
                Err(error) => return warn!(%error, "no HTTP/3, and no connectors over QUIC"),
            };
            info!(listen = %address, http3 = has_http3, "QUIC is served");
            if let Err(error) = edge.serve_quic((port, public_port), certificates, http3, shutdown).await {
                warn!(%error, "no HTTP/3, and no connectors over QUIC");
            }
        });
        Self { task, port: shared }
    }

    /// The port, for the next process.
    pub(crate) fn passed(&self) -> Arc<dyn PassedPort> {
        Arc::new(Passed(self.port.clone()))
    }

    /// Waits until the close frames to peers were sent.
    pub(crate) async fn ended(self) {
        let _ = tokio::time::timeout(MAX_END, self.task).await;
    }
}

/// Passes the port on, if it is served.
#[derive(Debug)]
struct Passed(Arc<OnceLock<QuicPort>>);

impl PassedPort for Passed {
    fn pass(&self) -> io::Result<Vec<OwnedFd>> {
        self.0.get().map_or_else(|| Ok(Vec::new()), QuicPort::pass)
    }

    fn keep(&self) {
        if let Some(port) = self.0.get() {
            port.keep();
        }
    }
}

/// The port of the predecessor: what it has passed on, or the same port when an older predecessor has ended.
///
/// # Errors
/// What was passed on cannot be used; or `Interrupted` if the shutdown comes first.
async fn inherit(
    inherited: Vec<OwnedFd>,
    (address, sockets): (SocketAddr, NonZeroUsize),
    (secret, server): (QuicSecret, Option<ServerNumber>),
    shutdown: &Shutdown,
) -> io::Result<QuicPort> {
    if !inherited.is_empty() {
        return QuicPort::inherit_as(inherited, server).map_err(io::Error::other);
    }
    info!(listen = %address, "the QUIC port is taken over when the former process has ended");
    loop {
        tokio::select! {
            () = shutdown.wait() => return Err(io::ErrorKind::Interrupted.into()),
            () = tokio::time::sleep(RETRY_PERIOD) => {}
        }
        if let Ok(sockets) = sallyport_net::listen_udp_group(address, sockets, OPTION) {
            return QuicPort::new_as(sockets, secret, server);
        }
    }
}
