//! How the name server steers clients: the edges of each region, and what control has published.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use sallyport_bus::{DnsSteering, FleetEdge};
use sallyport_dns::Counters;
use sallyport_model::{DnsRegion, DnsSteeringPart, RegionName};
use sallyport_zone::{
    data::{HttpPorts, Site, Steering},
    steer::{Keep, SteeringTable},
};

use super::answered_edges::common_ports;

/// What control has published, ready for lookups.
#[derive(Debug, Clone, Default)]
pub(super) struct Published {
    table: Arc<SteeringTable>,
    /// Part 0, if there is one.
    head: Option<Arc<DnsSteeringPart>>,
}

impl Published {
    /// What the bus has now. Takes some time for many networks.
    pub(super) fn read(bus: &DnsSteering) -> Self {
        let parts = bus.all();
        let head = parts.iter().find(|part| part.part == 0).cloned();
        let table = Arc::new(SteeringTable::new(parts.iter().map(AsRef::as_ref)));
        Self { table, head }
    }

    /// How clients are steered among these edges. Without part 0 nobody is.
    pub(super) fn steering(&self, edges: &[FleetEdge], counters: &Counters, ttl: u32) -> Option<Steering> {
        let head = self.head.as_ref()?;
        let sites: Vec<Site> = sites(edges, &head.regions, |region| counters.slot(region));
        let ports = common_ports(edges.iter().map(|edge| edge.card.as_ref()));
        Steering::new(self.table.clone(), &sites, (&head.global, ports), ttl)
    }
}

/// The regions of these edges, with their addresses.
fn sites(
    edges: &[FleetEdge],
    settings: &BTreeMap<RegionName, DnsRegion>,
    slot: impl Fn(&RegionName) -> u8,
) -> Vec<Site> {
    let mut by_region: BTreeMap<&RegionName, Vec<&FleetEdge>> = BTreeMap::new();
    for edge in edges {
        by_region.entry(&edge.card.region).or_default().push(edge);
    }
    let site = |(region, edges): (&RegionName, Vec<&FleetEdge>)| {
        let set = settings.get(region).cloned().unwrap_or_default();
        let of_edges = || -> BTreeSet<IpAddr> {
            edges.iter().flat_map(|edge| edge.card.addresses.iter().map(SocketAddr::ip)).collect()
        };
        let ports: Option<HttpPorts> = common_ports(edges.iter().map(|edge| edge.card.as_ref()));
        Site {
            region: region.clone(),
            addresses: if set.addresses.is_empty() { of_edges().into_iter().collect() } else { set.addresses },
            ports,
            keep: Keep::new(set.dial, set.share),
            slot: slot(region),
        }
    };
    by_region.into_iter().map(site).collect()
}
