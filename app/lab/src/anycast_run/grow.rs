//! A site gets more edges while connections of its clients stay open.

use std::{thread, time::Duration};

use serde::{Deserialize, Serialize};

use super::landing::{Asking, Family};
use crate::{
    anycast::{MAX_SITE_EDGES, SeatKind},
    error::LabError,
    kernel,
    plan::{Plan, Process, Role},
    state::Lab,
};

/// How long connections have for their first requests, and for those after the change.
const SETTLE: Duration = Duration::from_secs(3);
/// How long a response may take before its connection counts as broken.
const PATIENCE: Duration = Duration::from_secs(5);

/// What became of connections while a site grew.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GrowReport {
    /// The site.
    pub site: String,
    /// Its edges before.
    pub before: u8,
    /// Its edges after.
    pub after: u8,
    /// Connections that were open.
    pub flows: u64,
    /// Those of them that broke.
    pub broken: u64,
    /// The share that moves if only the new edges' part of all connections moves, in percent.
    pub ideal_percent: f64,
}

impl Lab {
    /// Adds edges to a site until it has this many, while its clients hold this many connections.
    ///
    /// # Errors
    /// There is no such site, it has as many already, or an edge does not start.
    pub fn grow(&mut self, site: &str, edges: u8, flows: u16) -> Result<GrowReport, LabError> {
        let internet = self.internet()?;
        let Some(number) = internet.sites.iter().position(|name| *name == site) else {
            let known = internet.sites.iter().map(|name| (*name).to_owned()).collect();
            return Err(LabError::NoSuch { name: site.to_owned(), known });
        };
        let before = internet.topology.edges[number];
        if edges <= before || edges > MAX_SITE_EDGES {
            return Err(LabError::Unfit(format!(
                "{site} has {before} edges: it can grow to {} to {MAX_SITE_EDGES}",
                before + 1
            )));
        }
        // Everything but the announcements, before connections are opened.
        self.add_edges(number, edges)?;
        let clients = self.clients_of(number)?;
        let new: Vec<_> = self.new_seats(number, before);
        let mut loads = Vec::new();
        for family in Family::ALL {
            let flows = flows / 2;
            let asking = Asking { node: &clients, family, rate: 1, requests: None, patience: PATIENCE, flows };
            loads.push(self.ask_from(&asking)?);
        }
        thread::sleep(SETTLE);
        let announced = new.iter().try_for_each(|seat| self.announce_at(seat));
        let announced = announced.and_then(|()| new.iter().try_for_each(|seat| self.wait_for_route(seat, true)));
        thread::sleep(SETTLE);
        let asked: Result<Vec<_>, LabError> = loads.into_iter().map(super::landing::Load::end).collect();
        announced?;
        let asked = asked?;
        Ok(GrowReport {
            site: site.to_owned(),
            before,
            after: edges,
            flows: asked.iter().map(|asked| asked.flows).sum(),
            broken: asked.iter().map(|asked| asked.broken).sum(),
            ideal_percent: f64::from(edges - before) / f64::from(edges) * 100.0,
        })
    }

    fn new_seats(&self, site: usize, before: u8) -> Vec<crate::anycast::Seat> {
        let is_new = |kind: SeatKind| matches!(kind, SeatKind::Edge(number) if number > before);
        self.seats().into_iter().filter(|seat| seat.site == site && is_new(seat.kind)).collect()
    }

    /// Makes the nodes of further edges of a site, and starts what runs on them.
    fn add_edges(&mut self, site: usize, edges: u8) -> Result<(), LabError> {
        let before = self.internet()?.topology.edges[site];
        let mut topology = self.plan.topology.clone();
        if let Some(anycast) = &mut topology.anycast {
            anycast.edges[site] = edges;
        }
        // Stored first, so that `lab down` finds all of it.
        self.state.topology = topology.clone();
        self.plan = Plan::new(topology);
        self.write()?;
        let switch = self.plan.namespace_of_wires();
        let new = self.new_seats(site, before);
        let router = self.space(&format!("{}-router", self.internet()?.sites[site]));
        for seat in &new {
            let internet = self.internet()?;
            let here = self.space(&seat.name);
            kernel::add(&here)?;
            kernel::shell(&here, &internet.kernel_settings(seat))?;
            kernel::batch_among(&internet.wire(seat, &switch, &|name| self.space(name)))?;
            kernel::batch(&here, &internet.set_up(seat))?;
            kernel::batch(&switch, &internet.switch_port(seat))?;
            kernel::batch(&router, &internet.router_port(seat))?;
        }
        self.write_names()?;
        let of_new = |lab: &Self, role: Role| -> Vec<Process> {
            let is_new = |process: &Process| new.iter().any(|seat| seat.name == lab.plan.nodes[process.node].name);
            lab.of(role).into_iter().filter(is_new).collect()
        };
        let mut starting = Vec::new();
        for process in of_new(self, Role::Router) {
            starting.push(self.start_router(&process)?);
        }
        for process in of_new(self, Role::Edge) {
            starting.push(self.start_edge(&process)?);
        }
        starting.iter().try_for_each(crate::start::Starting::wait)?;
        let mut connecting = Vec::new();
        for process in of_new(self, Role::Connector) {
            self.make_data(&process)?;
            self.make_tunnel(&process)?;
            connecting.push(self.start(&process, &[])?);
        }
        connecting.iter().try_for_each(crate::start::Starting::wait)?;
        Ok(())
    }
}
