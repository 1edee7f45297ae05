//! The other edges, for connectors that hold tunnels at several edges.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
};

use sallyport_bus::{Bus, EdgeCard, EdgeState};
use sallyport_model::RegionName;
use sallyport_wire::{EdgePlace, Neighbours, message::MAX_EDGE_PLACES};
use tokio::sync::watch;

/// The list for connectors, kept current while there is a receiver.
pub(super) fn follow(mut card: watch::Receiver<EdgeCard>, bus: &Bus) -> watch::Receiver<Arc<Neighbours>> {
    let fleet = bus.fleet.clone();
    let (mut edges, mut orders) = (fleet.subscribe(), bus.orders.subscribe());
    let known = move |card: &EdgeCard| {
        let others: Vec<_> = fleet.edges().into_iter().map(|seen| seen.card).collect();
        Arc::new(neighbours(card, others.iter().map(AsRef::as_ref)))
    };
    let sender = watch::Sender::new(known(&card.borrow_and_update()));
    let receiver = sender.subscribe();
    tokio::spawn(async move {
        loop {
            tokio::select! {
                Ok(()) = card.changed() => {}
                Ok(()) = edges.changed() => {}
                Ok(()) = orders.changed() => {}
                () = sender.closed() => return,
            }
            let known = known(&card.borrow_and_update());
            sender.send_if_modified(|list| std::mem::replace(list, known.clone()) != known);
        }
    });
    receiver
}

/// The serving edges: one of each region in turn, that of this edge last. Within a region the order differs from edge
/// to edge, so that connectors spread.
fn neighbours<'a>(card: &EdgeCard, edges: impl Iterator<Item = &'a EdgeCard>) -> Neighbours {
    let serving = edges.filter(|edge| edge.edge != card.edge && edge.state == EdgeState::Serving);
    let mut by_region: BTreeMap<&RegionName, Vec<&EdgeCard>> = BTreeMap::new();
    serving.for_each(|edge| by_region.entry(&edge.region).or_default().push(edge));
    let mut turns = HashMap::new();
    for of_region in by_region.values_mut() {
        of_region.sort_by_cached_key(|edge| {
            let mut hasher = DefaultHasher::new();
            (&card.name, &edge.name).hash(&mut hasher);
            hasher.finish()
        });
        turns.extend(of_region.iter().enumerate().map(|(turn, edge)| (edge.edge, turn)));
    }
    let mut ordered: Vec<&EdgeCard> = by_region.into_values().flatten().collect();
    ordered.sort_by_key(|edge| (edge.region == card.region, turns.get(&edge.edge).copied()));
    let place = |edge: &EdgeCard| EdgePlace {
        name: edge.name.clone(),
        region: edge.region.clone(),
        addresses: edge.addresses.clone(),
    };
    Neighbours {
        edge: Some(card.name.clone()),
        region: Some(card.region.clone()),
        edges: ordered.into_iter().take(MAX_EDGE_PLACES).map(place).collect(),
        leave: card.state == EdgeState::Draining,
    }
}

#[cfg(test)]
mod tests {
    use sallyport_model::EdgeId;

    use super::*;

    fn card(number: u8, region: &str) -> EdgeCard {
        EdgeCard {
            edge: EdgeId::from_random([number; 16]),
            name: format!("{region}-{number}").parse().unwrap(),
            region: region.parse().unwrap(),
            addresses: vec![format!("192.0.2.{number}:443").parse().unwrap()],
            program: "0.1.0".to_owned(),
            since: 0,
            state: EdgeState::Serving,
            http3_port: None,
            anycast: Vec::new(),
            egress: Vec::new(),
            balanced: None,
        }
    }

    #[test]
    fn other_regions_come_first_and_in_turn_and_one_that_is_emptied_is_left_out() {
        let own = card(1, "eu");
        let mut edges = vec![own.clone(), card(2, "eu"), card(3, "us"), card(4, "us"), card(5, "asia")];
        edges.push(EdgeCard { state: EdgeState::Draining, ..card(6, "africa") });
        let list = neighbours(&own, edges.iter());
        let regions: Vec<_> = list.edges.iter().map(|edge| edge.region.as_str()).collect();
        assert_eq!(regions, ["asia", "us", "us", "eu"]);
        assert_eq!((list.edge.as_ref(), list.leave), (Some(&own.name), false));
        let own = EdgeCard { state: EdgeState::Draining, ..own };
        assert!(neighbours(&own, edges.iter()).leave);
        let many: Vec<_> = (1..=60).map(|number| card(number, "us")).collect();
        assert_eq!(neighbours(&own, many.iter()).edges.len(), MAX_EDGE_PLACES);
    }
}
