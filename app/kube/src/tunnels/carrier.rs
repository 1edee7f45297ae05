//! A connector of this replica, with the tunnels of up to [`MAX_TUNNELS`] exposed ports.

use anyhow::Context as _;
use sallyport_api::{ConnectEdge, ConnectTo};
use sallyport_connector::{
    ALPN, Connector, ConnectorEvent, ConnectorOptions, EdgePlace, MAX_SERVICES, Service, Services,
};
use sallyport_model::TunnelId;
use sallyport_net::Shutdown;
use sallyport_shards::Shards;
use tokio::{
    sync::mpsc,
    task::{AbortHandle, JoinHandle},
};

use super::TunnelOptions;
use crate::{AGENT, control::ControlOptions};

/// The most tunnels of a connector; a session holds a few more, so that one can be replaced.
pub(super) const MAX_TUNNELS: usize = MAX_SERVICES - 24;
/// How many events of a connector may wait.
const MAX_QUEUED_EVENTS: usize = 4 * MAX_SERVICES;
/// How many connections to the edge carry one request each.
const MAX_LEGS: usize = 512;

/// What happened at a connector.
#[derive(Debug)]
pub(super) enum CarrierEvent {
    /// An event of the connector itself.
    Connector(Box<ConnectorEvent>),
    /// It ended: the edge holds none of its tunnels any more.
    Ended(String),
}

/// A running connector.
pub(super) struct Carrier {
    /// Its number.
    pub(super) number: u64,
    /// Its services.
    services: Services,
    /// How many tunnels it has.
    pub(super) tunnels: usize,
    shutdown: Shutdown,
    task: JoinHandle<()>,
}

impl Carrier {
    /// Starts a connector with its first tunnel.
    ///
    /// # Errors
    /// The trusted certificates or the service cannot be used.
    pub(super) fn start(
        number: u64,
        control: &ControlOptions,
        options: &TunnelOptions,
        connect: ConnectTo,
        first: Service,
        shards: &Shards,
        events: mpsc::Sender<(u64, CarrierEvent)>,
    ) -> anyhow::Result<Self> {
        let alpn: &[&[u8]] = &[ALPN];
        let tls = match &connect.ca_pem {
            Some(root) => sallyport_net::client_config_with(&control.trust(), root, alpn)?,
            None => sallyport_net::client_config(&control.trust(), alpn)?,
        };
        let outbound = control.outbound(&connect.host, connect.port).map_err(anyhow::Error::msg)?;
        let options = ConnectorOptions {
            agent: AGENT.to_owned(),
            edge_host: connect.host,
            edge_port: connect.port,
            quic_port: connect.quic_port,
            tls,
            transport: options.transport,
            links: None,
            outbound,
            services: vec![first],
            redundancy: options.redundancy,
            region: options.region.clone(),
            edges: connect.edges.into_iter().map(place).collect(),
            max_legs: MAX_LEGS,
            keepalive: options.keepalive,
            drain: options.drain,
            shards: shards.clone(),
            capture: None,
        };
        let (events_in, mut own_events) = mpsc::channel(MAX_QUEUED_EVENTS);
        let connector = Connector::new(options, events_in).context("the connector cannot start")?;
        let (services, shutdown) = (connector.services(), Shutdown::new());
        let stopping = shutdown.clone();
        let task = tokio::spawn(async move {
            let mut run = tokio::spawn(connector.run(stopping));
            let _abort = AbortOnDrop(run.abort_handle());
            let ended = loop {
                tokio::select! {
                    biased;
                    Some(event) = own_events.recv() => drop(events.send((number, CarrierEvent::Connector(Box::new(event)))).await),
                    ended = &mut run => break ended,
                }
            };
            let reason = match ended {
                Ok(Ok(())) => "it was stopped".to_owned(),
                Ok(Err(error)) => error.to_string(),
                Err(error) => error.to_string(),
            };
            drop(events.send((number, CarrierEvent::Ended(reason))).await);
        });
        Ok(Self { number, services, tunnels: 1, shutdown, task })
    }

    /// Whether it takes another tunnel.
    pub(super) fn has_room(&self) -> bool {
        self.tunnels < MAX_TUNNELS
    }

    /// Adds a tunnel.
    ///
    /// # Errors
    /// TLS to the pods cannot be set up.
    pub(super) async fn serve(&mut self, service: Service) -> anyhow::Result<()> {
        self.services.serve(service).await?;
        self.tunnels += 1;
        Ok(())
    }

    /// The services, to change the pods of a tunnel.
    pub(super) fn services(&self) -> &Services {
        &self.services
    }

    /// Lets a tunnel go; its requests continue.
    pub(super) async fn let_go(&mut self, tunnel: TunnelId) {
        self.services.let_go(tunnel).await;
        self.tunnels = self.tunnels.saturating_sub(1);
    }

    /// Lets all tunnels go; requests may continue for the time of draining.
    pub(super) fn drain(&self) {
        self.shutdown.trigger();
    }

    /// Waits for the end.
    pub(super) async fn ended(&mut self) {
        // A panic of the task is its end too.
        let _ = (&mut self.task).await;
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Ends a task with its owner.
struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn place(edge: ConnectEdge) -> EdgePlace {
    EdgePlace { name: edge.name, region: edge.region, addresses: edge.addresses }
}
