//! The services of a connector: which one a stream or a flow is for is said by its tunnel.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use sallyport_model::{OriginAddr, TunnelId};
use sallyport_tunnel::{
    BoxFuture, ConnectorEvent, FlowEnd, FlowHandle, FlowHandler, FlowOpen, FlowSink, IncomingStream, OriginHandler,
    TunnelChange, TunnelCredential,
};
use sallyport_wire::{FailureReason, Open, OpenFailure};
use tokio::sync::mpsc;

use crate::{
    origin::Origin,
    origin_tls::{Configs, OriginTls, OriginTlsError},
};

/// How many changes of the services may wait for the connector to take them in.
const MAX_QUEUED_CHANGES: usize = 64;
/// For how long a service that is let go of still takes what the edge sent before it heard of that.
const LAST_STREAMS_TIME: Duration = Duration::from_secs(2);

/// A private service, and the tunnel that brings its clients.
#[derive(Debug, Clone)]
pub struct Service {
    /// The tunnel.
    pub tunnel: TunnelCredential,
    /// Where the service is.
    pub origin: OriginAddr,
    /// TLS to the service, where it speaks it.
    pub origin_tls: Option<OriginTls>,
    /// How long the service may take to accept a connection, its TLS handshake included.
    pub connect_timeout: Duration,
}

/// The services of a connector, as they are now. Clones are the same services.
#[derive(Clone)]
pub struct Services {
    by_tunnel: Arc<RwLock<HashMap<TunnelId, Known>>>,
    events: mpsc::Sender<ConnectorEvent>,
    changes: mpsc::Sender<TunnelChange>,
}

/// How a service is reached.
struct Known {
    origin: Arc<Origin>,
    tls: Option<OriginTls>,
}

impl Services {
    /// None yet, and what the connector is to be told of those to come.
    pub(crate) fn new(events: mpsc::Sender<ConnectorEvent>) -> (Self, mpsc::Receiver<TunnelChange>) {
        let (changes, to_come) = mpsc::channel(MAX_QUEUED_CHANGES);
        (Self { by_tunnel: Arc::default(), events, changes }, to_come)
    }

    /// Serves this one too; one that has the same tunnel from now on in this way. Connections that it has stay.
    ///
    /// # Errors
    /// TLS to it cannot be set up. Then nothing has changed.
    pub async fn serve(&self, service: Service) -> Result<(), OriginTlsError> {
        let tunnel = service.tunnel.clone();
        self.know(service)?;
        // A connector that has ended has nothing to hold any more.
        let _ = self.changes.send(TunnelChange::Hold(tunnel)).await;
        Ok(())
    }

    /// Attaches the tunnel anew, so that the edge lets go of idle connections to where its service was before. An edge takes
    /// that some times at once, and then about once a second.
    pub async fn attach_anew(&self, tunnel: TunnelCredential) {
        let _ = self.changes.send(TunnelChange::LetGo(tunnel.tunnel)).await;
        let _ = self.changes.send(TunnelChange::Hold(tunnel)).await;
    }

    /// Serves it no more. Connections that it has stay until they end.
    pub async fn let_go(&self, tunnel: TunnelId) {
        let _ = self.changes.send(TunnelChange::LetGo(tunnel)).await;
        let Some(origin) = self.read().get(&tunnel).map(|known| known.origin.clone()) else { return };
        let services = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(LAST_STREAMS_TIME).await;
            let mut by_tunnel = services.write();
            // It may be served again by now.
            if by_tunnel.get(&tunnel).is_some_and(|known| Arc::ptr_eq(&known.origin, &origin)) {
                by_tunnel.remove(&tunnel);
            }
        });
    }

    /// Knows from now on how the service is reached.
    pub(crate) fn know(&self, service: Service) -> Result<(), OriginTlsError> {
        let Service { tunnel, origin, origin_tls: tls, connect_timeout } = service;
        let configs = match &tls {
            None => None,
            // The system's roots are many: those that one service has serve the others too.
            Some(tls) if tls.is_by_system() => {
                let known = self.read().values().find_map(Known::configs_by_system);
                Some(known.map_or_else(|| tls.configs(), Ok)?)
            }
            Some(tls) => Some(tls.configs()?),
        };
        let name = tls.as_ref().and_then(|tls| tls.server_name.clone());
        let origin = Origin::new(tunnel.tunnel, origin, configs, name, connect_timeout, self.events.clone());
        self.write().insert(tunnel.tunnel, Known { origin: Arc::new(origin), tls });
        Ok(())
    }

    fn read(&self) -> RwLockReadGuard<'_, HashMap<TunnelId, Known>> {
        self.by_tunnel.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<TunnelId, Known>> {
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

impl Known {
    fn configs_by_system(&self) -> Option<Configs> {
        self.tls.as_ref().filter(|tls| tls.is_by_system()).and_then(|_| self.origin.tls_configs())
    }
}

impl OriginHandler for Services {
    fn serve(&self, open: Open, stream: IncomingStream) -> BoxFuture<'static, ()> {
        match self.origin_of(open.tunnel) {
            Some(origin) => origin.serve(open, stream),
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

/// Where datagrams go of a tunnel that is not served.
struct Nowhere;

impl FlowSink for Nowhere {
    fn datagrams(&self, _batch: &[&[u8]]) {}

    fn closed(&self, _end: FlowEnd) {}
}
