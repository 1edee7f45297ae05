//! The prefixes that an edge announces, from its options.

use std::{net::IpAddr, path::Path, sync::Arc};

use sallyport_anycast::{
    health::{Cause, Timing},
    model::AllowList,
};
use sallyport_bus::{AnycastPermits, Bus, Nats};
use sallyport_edge::AnycastSettings;
use sallyport_identity::Sealer;
use sallyport_model::{EdgeName, RegionName};

use crate::args::anycast::AnycastArgs;

/// The service addresses that this edge has added, for the next process.
const ADDRESSES_FILE: &str = "anycast-addresses.json";

/// An edge that announces.
pub(super) struct AnnouncingEdge<'a> {
    pub(super) name: EdgeName,
    pub(super) region: Option<RegionName>,
    /// Its own addresses.
    pub(super) own: &'a [IpAddr],
    pub(super) data: &'a Path,
    pub(super) bus: &'a Bus,
    pub(super) sealer: Arc<Sealer>,
    /// The bus between machines, if there are several.
    pub(super) nats: Option<Nats>,
}

/// How this edge announces prefixes; `None` without BIRD.
pub(super) fn settings(args: &AnycastArgs, edge: AnnouncingEdge<'_>) -> Option<AnycastSettings> {
    let bird = args.bird.clone()?;
    let AnnouncingEdge { name, region, own, data, bus, sealer, nats } = edge;
    let (fleet, alone, link) = (bus.fleet.clone(), name.clone(), nats.clone());
    Some(AnycastSettings {
        router_id: args.router_id(own, &name),
        edge: name,
        region,
        bird,
        file: args.bird_config.clone(),
        allow: AllowList(args.allow.anycast_allow.clone()),
        interface: args.anycast_interface.clone(),
        rpki: args.rpki_server.clone(),
        served: bus.anycast.clone(),
        sealer,
        permits: nats.map_or_else(AnycastPermits::here, AnycastPermits::over),
        live: Arc::new(move || {
            let others = fleet.edges().into_iter().map(|edge| edge.card.name.clone());
            others.chain([alone.clone()]).collect()
        }),
        shared: Arc::new(move || link.iter().map(|nats| (Cause::Bus, nats.link().is_up)).collect()),
        kept: data.join(ADDRESSES_FILE),
        timing: Timing::default(),
        flows: None,
    })
}
