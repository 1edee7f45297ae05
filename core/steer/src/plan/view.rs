//! A plan as shown to people: who gets what.

use std::time::Duration;

use sallyport_model::{EdgeId, EdgeName, OriginRef, RegionName, SocketId};

use super::{
    Planner,
    grant::Shares,
    problem::WhatIf,
    topology::{Dimension, Leaf, Place},
};
use crate::Amount;

/// The plan of one socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanView {
    /// The socket.
    pub socket: SocketId,
    /// Its origins with what they can carry and get.
    pub origins: Vec<OriginView>,
    /// The edges with what comes in there.
    pub edges: Vec<EdgeView>,
}

/// An origin in a plan. Rates are in thousandths of a request per second.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OriginView {
    /// The origin.
    pub origin: OriginRef,
    /// Its region.
    pub region: Option<RegionName>,
    /// What it can carry, with the limits that it has together with others; `None`: any amount.
    pub capacity: Option<Amount>,
    /// What it can carry by its own limit.
    pub own_capacity: Option<Amount>,
    /// The limits that it has together with others: of its region, and of a shared capacity.
    pub within: Vec<PlaceView>,
    /// Whether this was learned.
    pub is_learned: bool,
    /// The name of the capacity that it shares with others.
    pub shared: Option<String>,
    /// What is planned for it.
    pub planned: Amount,
    /// What all edges send to it.
    pub load: Amount,
    /// The mean time to an answer in the last second, in microseconds.
    pub latency_us: Option<u64>,
    /// Requests that run.
    pub open: u32,
    /// The most requests at once.
    pub max_connections: Option<u32>,
}

/// A limit of several origins in a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlaceView {
    /// The place.
    pub place: Place,
    /// What its origins can carry together.
    pub capacity: Amount,
    /// What is planned for them.
    pub planned: Amount,
}

/// An edge in a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EdgeView {
    /// The edge.
    pub edge: EdgeId,
    /// Its name.
    pub name: EdgeName,
    /// Its region.
    pub region: RegionName,
    /// Whether it is heard.
    pub is_heard: bool,
    /// What comes in, in thousandths of a request per second.
    pub demand: Amount,
    /// What it refuses for lack of a quota.
    pub shed: Amount,
    /// Where it sends.
    pub shares: Vec<ShareView>,
}

/// What an edge sends to one origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShareView {
    /// The origin.
    pub origin: OriginRef,
    /// The planned rate.
    pub planned: Amount,
    /// The measured rate.
    pub load: Amount,
    /// The quota; `None`: any amount.
    pub quota: Option<Amount>,
    /// What a silent edge may still use, and others therefore cannot have.
    pub locked: Amount,
    /// The shortest recent round trip, in microseconds.
    pub rtt_us: Option<u64>,
}

impl Planner {
    pub(super) fn view_of(
        &self,
        socket: SocketId,
        plan: &[Shares; 2],
        what_if: &WhatIf,
        now: Duration,
    ) -> Option<PlanView> {
        let known = self.topology.sockets.get(&socket)?;
        let rates = &plan[Dimension::Rate.index()];
        let origins = known.origins.iter().filter_map(|(origin, settings)| {
            let leaf = Leaf { socket, origin: *origin };
            let at = self.topology.leaf(leaf)?;
            let of = |what: fn(&super::edge::Load) -> Amount| {
                let live = self.edges.values().filter(|edge| self.is_live(edge, now));
                let loads = live.filter_map(|edge| edge.loads.get(&leaf));
                loads.map(what).fold(0, Amount::saturating_add)
            };
            let least = |dimension| self.topology.chain(at).filter_map(|up| self.capacity(up, dimension)).min();
            let capacity = what_if.capacities.get(&leaf).copied().unwrap_or_else(|| least(Dimension::Rate));
            let own = what_if.capacities.get(&leaf).copied().unwrap_or_else(|| self.capacity(at, Dimension::Rate));
            let connections = least(Dimension::Connections).map(|most| most / crate::PER_UNIT);
            let planned = self.names.keys().filter_map(|edge| rates.of.get(&(*edge, leaf))).map(|share| share.planned);
            Some(OriginView {
                origin: *origin,
                region: settings.region.clone(),
                capacity,
                own_capacity: own,
                within: self.topology.chain(at).skip(1).filter_map(|up| self.place_view(up, rates)).collect(),
                is_learned: self.topology.chain(at).any(|up| self.topology.nodes[up].is_learned),
                shared: settings.capacity.shared.as_ref().map(ToString::to_string),
                planned: planned.sum(),
                load: of(|load| load.rate),
                latency_us: of(|load| load.answers.1).checked_div(of(|load| load.answers.0)),
                open: u32::try_from(of(|load| u64::from(load.counts.open))).unwrap_or(u32::MAX),
                max_connections: connections.map(|most| u32::try_from(most).unwrap_or(u32::MAX)),
            })
        });
        let origins: Vec<_> = origins.collect();
        let edges = self.edges.iter().filter_map(|(id, edge)| {
            let info = self.labels.get(id)?;
            let classes = edge.classes.iter().filter(|((of, _), _)| *of == socket).map(|(_, class)| &class.demand);
            let shares = origins.iter().map(|origin| {
                let leaf = Leaf { socket, origin: origin.origin };
                let load = edge.loads.get(&leaf);
                ShareView {
                    origin: origin.origin,
                    planned: rates.of.get(&(*id, leaf)).map_or(0, |share| share.planned),
                    load: load.map_or(0, |load| load.rate),
                    quota: load.and_then(|load| load.counts.quota.rate),
                    locked: if self.is_live(edge, now) { 0 } else { edge.outstanding(leaf, Dimension::Rate) },
                    rtt_us: edge.rtt_us(leaf, now),
                }
            });
            let measured = classes.clone().map(|demand| demand.measured()).sum();
            Some(EdgeView {
                edge: *id,
                name: info.name.clone(),
                region: info.region.clone(),
                is_heard: self.is_live(edge, now),
                demand: what_if.demands.get(&(socket, *id)).copied().unwrap_or(measured),
                shed: if *what_if == WhatIf::default() {
                    classes.map(|demand| demand.shed()).sum()
                } else {
                    rates.shed.get(&(*id, socket)).copied().unwrap_or_default()
                },
                shares: shares.collect(),
            })
        });
        let edges = edges.collect();
        Some(PlanView { socket, origins, edges })
    }

    /// The rate of a place that contains origins; `None`: it has no limit.
    fn place_view(&self, place: usize, rates: &Shares) -> Option<PlaceView> {
        let capacity = self.capacity(place, Dimension::Rate)?;
        let is_within =
            |leaf: Leaf| self.topology.leaf(leaf).is_some_and(|leaf| self.topology.chain(leaf).any(|up| up == place));
        let planned = rates.limited.iter().filter(|(leaf, _)| is_within(**leaf)).map(|(_, planned)| *planned);
        let planned = planned.fold(0, Amount::saturating_add);
        Some(PlaceView { place: self.topology.nodes[place].place.clone(), capacity, planned })
    }
}
