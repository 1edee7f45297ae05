//! The configuration of an edge, from its options and from control.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use sallyport_anycast::flows::SiteEdge;
use sallyport_bus::{Bus, EdgeCard, EdgeState as Serving};
use sallyport_edge::{AnycastSettings, EdgeConfig, EdgeIdentity, FlowSettings};
use sallyport_identity::{AssertionKey, Sealer};
use sallyport_policy::DialedNetworks;
use tokio::sync::watch;

use super::{super::name_server::NameServerParts, EdgeArgs, EdgeState, join, mesh, state};

/// The configuration from options and control. The caller adds the parts that need opening.
///
/// # Errors
/// A key of the installation is damaged.
pub(super) fn of_edge(
    args: &EdgeArgs,
    state: &EdgeState,
    address: SocketAddr,
    bus: &Bus,
) -> anyhow::Result<EdgeConfig> {
    let public_port = args.advertise.first().map_or(address.port(), SocketAddr::port);
    let mut config = EdgeConfig::new(&state.bootstrap.domain, public_port);
    config.region = Some(state.region.clone());
    config.shutdown_grace = args.drain;
    config.trusted_proxies.clone_from(&args.trust_proxy);
    config.access_log = !args.no_access_log;
    config.measure_every = args.measure.interval();
    config.measure_private = args.measure.measure_private;
    config.direct_origins = DialedNetworks::new(args.direct_origins.clone());
    config.affinity_key = state::key(&state.bootstrap.affinity_key)?.into();
    config.challenges = bus.challenges.clone();
    config.identity = Some(EdgeIdentity {
        sealer: Arc::new(Sealer::new(state::key(&state.bootstrap.seal_key)?)),
        identities: bus.identities.clone(),
        assertions: Arc::new(
            AssertionKey::new(state::key(&state.bootstrap.assertion_key)?)
                .context("a key of the installation is damaged")?,
        ),
    });
    Ok(config)
}

/// The edge's entry in the directory.
pub(super) fn card(args: &EdgeArgs, state: &EdgeState, address: SocketAddr) -> EdgeCard {
    EdgeCard {
        edge: state.id,
        name: state.name.clone(),
        region: state.region.clone(),
        addresses: mesh::addresses(&args.advertise, address),
        program: env!("CARGO_PKG_VERSION").to_owned(),
        since: join::now(),
        state: Serving::default(),
        http3_port: None,
        anycast: Vec::new(),
        egress: Vec::new(),
        balanced: None,
    }
}

/// How long service addresses stay after a withdrawal, while other edges of the site may still send flows here.
const KEEP_ADDRESS: Duration = Duration::from_secs(3);

/// Has the edge share flows with the other edges of its region, if an option says so.
pub(super) fn share_flows(args: &EdgeArgs, state: &EdgeState, parts: &NameServerParts, settings: &mut AnycastSettings) {
    let Some(device) = args.anycast_balance.clone() else { return };
    let (fleet, region, own) = (parts.bus.fleet.clone(), state.region.clone(), state.id);
    settings.timing.keep_address = KEEP_ADDRESS;
    settings.flows = Some(FlowSettings {
        device,
        own: SiteEdge { id: state.id, addresses: parts.own.clone() },
        others: Arc::new(move || {
            let cards = fleet.edges().into_iter().map(|edge| edge.card);
            let serving = cards.filter(|card| card.edge != own && card.region == region && !card.anycast.is_empty());
            let address = |card: &EdgeCard| card.addresses.iter().map(SocketAddr::ip).collect();
            serving.map(|card| SiteEdge { id: card.edge, addresses: address(&card) }).collect()
        }),
    });
}

/// Keeps the service addresses of what the edge announces in the edge's entry.
pub(super) async fn keep_anycast(addresses: Option<watch::Receiver<Vec<IpAddr>>>, card: watch::Sender<EdgeCard>) {
    let Some(mut addresses) = addresses else { return };
    loop {
        let known = addresses.borrow_and_update().clone();
        card.send_if_modified(|card| std::mem::replace(&mut card.anycast, known.clone()) != known);
        // The sender ends with the edge.
        if addresses.changed().await.is_err() {
            return;
        }
    }
}

/// Keeps the port at which clients are offered HTTP/3 in the edge's entry.
pub(super) async fn keep_http3_port(mut port: watch::Receiver<Option<u16>>, card: watch::Sender<EdgeCard>) {
    loop {
        let known = *port.borrow_and_update();
        card.send_if_modified(|card| std::mem::replace(&mut card.http3_port, known) != known);
        // The sender ends with the edge.
        if port.changed().await.is_err() {
            return;
        }
    }
}
