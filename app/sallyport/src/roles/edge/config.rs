//! The configuration of an edge, from its options and from control.

use std::{net::SocketAddr, sync::Arc};

use anyhow::Context as _;
use sallyport_bus::{Bus, EdgeCard, EdgeState as Serving};
use sallyport_edge::{EdgeConfig, EdgeIdentity};
use sallyport_identity::{AssertionKey, Sealer};
use sallyport_policy::DialedNetworks;
use tokio::sync::watch;

use super::{EdgeArgs, EdgeState, join, mesh, state};

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
