//! The services of a connector. The tunnel of a stream or flow determines its service.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use sallyport_model::{EdgeName, TunnelId};
use sallyport_tunnel::{
    BoxFuture, ConnectorEvent, FlowEnd, FlowHandle, FlowHandler, FlowOpen, FlowSink, IncomingStream, OriginHandler,
    TunnelChange, TunnelCredential,
};
use sallyport_wire::{Associate, FailureReason, Open, OpenFailure};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::mpsc,
};

use crate::{
    capture::Capture,
    origin::Origin,
    origin_tls::{Configs, OriginTls, OriginTlsError},
    pool::ServiceOrigin,
};

/// How many changes of the services may wait for the connector.
const MAX_QUEUED_CHANGES: usize = 64;
/// For how long a removed service still takes streams that the edge sent before it knew of the removal.
const LAST_STREAMS_TIME: Duration = Duration::from_secs(2);

/// A private service, with its tunnel.
#[derive(Debug, Clone)]
pub struct Service {
    /// The tunnel.
    pub tunnel: TunnelCredential,
    /// The address of the service, or its pool of addresses.
    pub origin: ServiceOrigin,
    /// TLS to the service, if the service speaks TLS.
    pub origin_tls: Option<OriginTls>,
    /// How long the service may take to accept a connection, its TLS handshake included.
    pub connect_timeout: Duration,
}

impl Service {
    /// The tunnel as it is attached: edges open a stream for each request of a service with a pool.
    pub(crate) fn attachment(&self) -> TunnelCredential {
        TunnelCredential { spreads: self.origin.is_pool(), ..self.tunnel.clone() }
    }
}

/// The current services of a connector; clones share them.
#[derive(Clone)]
pub struct Services {
    by_tunnel: Arc<RwLock<HashMap<TunnelId, ServiceEntry>>>,
    events: mpsc::Sender<ConnectorEvent>,
    changes: mpsc::Sender<TunnelChange>,
    capture: Option<Capture>,
}

/// A connection to a service.
pub trait ServiceConnection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> ServiceConnection for S {}

/// How a service is reached.
struct ServiceEntry {
    /// The credential of its tunnel.
    credential: String,
    origin: Arc<Origin>,
    tls: Option<OriginTls>,
}

impl Services {
    /// No service yet, and the receiver of later changes for the connector.
    pub(crate) fn new(
        events: mpsc::Sender<ConnectorEvent>,
        capture: Option<Capture>,
    ) -> (Self, mpsc::Receiver<TunnelChange>) {
        let (changes, to_come) = mpsc::channel(MAX_QUEUED_CHANGES);
        (Self { by_tunnel: Arc::default(), events, changes, capture }, to_come)
    }

    /// Adds a service, or replaces the one of the same tunnel. Existing connections stay. Edges learn that a pool takes
    /// the place of one address when the tunnel is [attached anew](Self::attach_anew).
    ///
    /// # Errors
    /// TLS to the service cannot be set up. Nothing has changed then.
    pub async fn serve(&self, service: Service) -> Result<(), OriginTlsError> {
        let tunnel = service.attachment();
        self.know(service)?;
        // The connector may have ended; then there is no tunnel to attach.
        let _ = self.changes.send(TunnelChange::Hold(tunnel)).await;
        Ok(())
    }

    /// Attaches the tunnel again, so that the edge closes idle connections to the service's former address. The edge
    /// accepts this a few times at once, and then about once a second.
    pub async fn attach_anew(&self, tunnel: TunnelCredential) {
        let spreads = self.origin_of(tunnel.tunnel).map_or(tunnel.spreads, |origin| origin.is_pool());
        let tunnel = TunnelCredential { spreads, ..tunnel };
        let _ = self.changes.send(TunnelChange::LetGo(tunnel.tunnel)).await;
        let _ = self.changes.send(TunnelChange::Hold(tunnel)).await;
    }

    /// Removes a service. Existing connections stay until they end.
    pub async fn let_go(&self, tunnel: TunnelId) {
        let _ = self.changes.send(TunnelChange::LetGo(tunnel)).await;
        let Some(origin) = self.read().get(&tunnel).map(|known| known.origin.clone()) else { return };
        let services = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(LAST_STREAMS_TIME).await;
            let mut by_tunnel = services.write();
            // The service may have been added again meanwhile.
            if by_tunnel.get(&tunnel).is_some_and(|known| Arc::ptr_eq(&known.origin, &origin)) {
                by_tunnel.remove(&tunnel);
            }
        });
    }

    /// Opens a connection to the service of a tunnel, in plain text or by TLS as its settings say, for a request that
    /// does not come from an edge.
    ///
    /// # Errors
    /// There is no such service, or it is not reached. The message is one sentence.
    pub async fn connect(&self, tunnel: TunnelId) -> Result<Box<dyn ServiceConnection>, String> {
        let origin = self.origin_of(tunnel).ok_or("the service is no longer served here")?;
        origin.connect().await.map_err(|failure| failure.message)
    }

    /// Questions for an association of paths, one with the credential of each tunnel.
    pub(crate) fn questions(&self) -> Vec<Associate> {
        let question = |(tunnel, known): (&TunnelId, &ServiceEntry)| Associate {
            tunnel: *tunnel,
            credential: known.credential.clone(),
        };
        self.read().iter().map(question).collect()
    }

    /// Adds the service to the table.
    pub(crate) fn know(&self, service: Service) -> Result<(), OriginTlsError> {
        let Service { tunnel, origin, origin_tls: tls, connect_timeout } = service;
        let configs = match &tls {
            None => None,
            // The system has many roots, so services share one configuration with them.
            Some(tls) if tls.is_by_system() => {
                let known = self.read().values().find_map(ServiceEntry::configs_by_system);
                Some(known.map_or_else(|| tls.configs(), Ok)?)
            }
            Some(tls) => Some(tls.configs()?),
        };
        let name = tls.as_ref().and_then(|tls| tls.server_name.clone());
        let (events, capture) = (self.events.clone(), self.capture.clone());
        let origin = Origin::new(tunnel.tunnel, origin, configs, name, connect_timeout, events, capture);
        self.write()
            .insert(tunnel.tunnel, ServiceEntry { credential: tunnel.credential, origin: Arc::new(origin), tls });
        Ok(())
    }

    fn read(&self) -> RwLockReadGuard<'_, HashMap<TunnelId, ServiceEntry>> {
        self.by_tunnel.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<TunnelId, ServiceEntry>> {
        self.by_tunnel.write()
    }

    fn origin_of(&self, tunnel: TunnelId) -> Option<Arc<Origin>> {
        self.read().get(&tunnel).map(|known| known.origin.clone())
    }
}

impl std::fmt::Debug for Services {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Services").field("count", &self.read().len()).finish_non_exhaustive()
    }
}

impl ServiceEntry {
    fn configs_by_system(&self) -> Option<Configs> {
        self.tls.as_ref().filter(|tls| tls.is_by_system()).and_then(|_| self.origin.tls_configs())
    }
}

impl OriginHandler for Services {
    fn serve(&self, open: Open, stream: IncomingStream) -> BoxFuture<'static, ()> {
        self.serve_from(None, open, stream)
    }

    fn serve_from(&self, edge: Option<&EdgeName>, open: Open, stream: IncomingStream) -> BoxFuture<'static, ()> {
        match self.origin_of(open.tunnel) {
            Some(origin) => origin.serve(open, edge, stream),
            None => Box::pin(async move {
                let failure = OpenFailure::new(FailureReason::Other, "the connector does not serve this tunnel");
                stream.failed(failure).await;
            }),
        }
    }

    fn flows(&self) -> Option<Arc<dyn FlowHandler>> {
        Some(Arc::new(self.clone()))
    }
}

impl FlowHandler for Services {
    fn open(&self, open: FlowOpen, flow: FlowHandle) -> Arc<dyn FlowSink> {
        if let Some(origin) = self.origin_of(open.tunnel) {
            return origin.open_flow(open, flow);
        }
        flow.close(FlowEnd::Detached);
        Arc::new(Nowhere)
    }
}

/// The sink for datagrams of a tunnel without a service.
struct Nowhere;

impl FlowSink for Nowhere {
    fn datagrams(&self, _batch: &[&[u8]]) {}

    fn closed(&self, _end: FlowEnd) {}
}
