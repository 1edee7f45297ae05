//! Where the clients of this edge come from.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
};
use sallyport_bus::{ClientFigures, ClientList, ClientsBy, MAX_ANSWER_ITEMS};
use sallyport_catchment::{ClientNetwork, Prefix, by_system};
use sallyport_geo::Geo;

use crate::{client::round_trips::ClientRoundTrips, edge::Edge};

impl Edge {
    /// The networks or systems of clients with the most connections.
    pub(super) fn client_networks(&self, by: ClientsBy, limit: usize) -> ClientList {
        let geo = self.state.config.geo.as_deref();
        let networks = self.state.clients.list();
        // For times of the wall clock.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut clients: Vec<ClientFigures> = match by {
            ClientsBy::Prefix => networks.iter().take(limit + 1).map(|one| of_network(one, geo, now)).collect(),
            ClientsBy::System => of_systems(&networks, geo, now),
        };
        let has_more = clients.len() > limit;
        clients.truncate(limit);
        ClientList { clients, has_more }
    }
}

impl Edge {
    /// The networks of clients in their order, after this one.
    pub(super) fn networks_after(&self, after: Option<&str>) -> ClientList {
        let geo = self.state.config.geo.as_deref();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let after: Option<Prefix> = after.and_then(|after| after.parse().ok());
        let mut networks = self.state.clients.list();
        networks.retain(|(network, _)| after.is_none_or(|after| network.prefix > after));
        networks.sort_unstable_by_key(|(network, _)| network.prefix);
        let has_more = networks.len() > MAX_ANSWER_ITEMS;
        networks.truncate(MAX_ANSWER_ITEMS);
        ClientList { clients: networks.iter().map(|one| of_network(one, geo, now)).collect(), has_more }
    }
}

fn system_of(geo: Option<&Geo>, network: &ClientNetwork) -> Option<u32> {
    geo?.asn(network.prefix.first()).map(|asn| asn.number())
}

fn country_of(geo: Option<&Geo>, network: &ClientNetwork) -> Option<String> {
    geo?.country(network.prefix.first()).map(|country| country.to_string())
}

fn us(time: Option<Duration>) -> Option<u64> {
    time.map(|time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
}

fn ms_of(now: Duration, ago: Duration) -> i64 {
    i64::try_from(now.saturating_sub(ago).as_millis()).unwrap_or(i64::MAX)
}

fn of_network((network, ago): &(ClientNetwork, Duration), geo: Option<&Geo>, now: Duration) -> ClientFigures {
    ClientFigures {
        prefix: Some(network.prefix.to_string()),
        system: system_of(geo, network),
        country: country_of(geo, network),
        networks: 1,
        connections: network.connections,
        min_us: us(network.round_trip),
        seen_ms: ms_of(now, *ago),
    }
}

fn of_systems(networks: &[(ClientNetwork, Duration)], geo: Option<&Geo>, now: Duration) -> Vec<ClientFigures> {
    // The monotonic time at which all were listed.
    let listed_at = networks.first().map_or(Duration::ZERO, |(network, ago)| network.last_seen + *ago);
    let known = networks.iter().map(|(network, _)| (*network, system_of(geo, network), country_of(geo, network)));
    let figures = by_system(known).into_iter().map(|system| ClientFigures {
        prefix: None,
        system: system.number,
        country: system.country,
        networks: system.networks as u64,
        connections: system.connections,
        min_us: us(system.round_trip),
        seen_ms: ms_of(now, listed_at.saturating_sub(system.last_seen)),
    });
    figures.collect()
}

/// The metrics of clients' round trips, read when a scrape comes.
#[derive(Debug)]
pub(super) struct ClientCollector(pub(super) Arc<ClientRoundTrips>);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

impl Collector for ClientCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let (name, help) = ("sallyport_edge_client_networks", "Networks of clients whose round trip is known");
        let networks = ConstGauge::new(i64::try_from(self.0.networks()).unwrap_or(i64::MAX));
        networks.encode(encoder.encode_descriptor(name, help, None, networks.metric_type())?)?;
        let (name, help) = ("sallyport_edge_client_round_trips", "Ended connections of clients, by what they told");
        let mut ended = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        let counts = self.0.counts();
        for (outcome, count) in
            [("recorded", &counts.recorded), ("unmeasured", &counts.unmeasured), ("balanced", &counts.balanced)]
        {
            let count = ConstCounter::new(count.load(Ordering::Relaxed));
            count.encode(ended.encode_family(&OutcomeLabel { outcome })?)?;
        }
        Ok(())
    }
}
