//! What control asks this edge, and what it answers: what only an edge knows of flows that run or have ended.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use sallyport_bus::{Answer, Ask, EdgeFigures, EndedList, MAX_ANSWER_ITEMS, Responder, SocketUse, TunnelFigures};
use sallyport_model::{AccountId, SocketId, SocketRoute};
use sallyport_net::process_figures;

use crate::{edge::Edge, origins::transport::OriginTransport};

/// Answers for the edge for as long as that is there.
struct Answers(Weak<Edge>);

impl Responder for Answers {
    fn answer(&self, ask: Ask) -> Answer {
        self.0.upgrade().map_or(Answer::NotUnderstood, |edge| edge.answer(ask))
    }
}

impl Edge {
    /// What answers for this edge.
    #[must_use]
    pub fn answers(self: &Arc<Self>) -> Arc<dyn Responder> {
        Arc::new(Answers(Arc::downgrade(self)))
    }

    fn answer(&self, ask: Ask) -> Answer {
        match ask {
            Ask::Flows { .. } | Ask::KillFlow { .. } => self.state.config.flows.answer(ask),
            Ask::Stats { organisation, socket } => {
                Answer::Stats(self.route_of(organisation, socket).map(|_| Box::new(self.use_of(socket))))
            }
            Ask::Ended { organisation, socket, after, limit } => {
                Answer::Ended(self.ended(organisation, socket, after, limit.min(MAX_ANSWER_ITEMS)))
            }
            Ask::Tunnels { organisation, socket } => {
                Answer::Tunnels(self.route_of(organisation, socket).map(|_| self.held(socket)).unwrap_or_default())
            }
            Ask::Figures => Answer::Figures(self.figures()),
        }
    }

    /// The socket, when it is the organisation's.
    fn route_of(&self, organisation: AccountId, socket: SocketId) -> Option<Arc<SocketRoute>> {
        self.state.routes.get(socket).filter(|route| route.account == organisation)
    }

    /// What was counted of the socket since this edge began.
    fn use_of(&self, socket: SocketId) -> SocketUse {
        let since = SystemTime::now().checked_sub(self.state.sockets.started().elapsed()).unwrap_or(UNIX_EPOCH);
        let since = since.duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut told =
            SocketUse { since_ms: i64::try_from(since.as_millis()).unwrap_or(i64::MAX), ..SocketUse::default() };
        let Some(pool) = self.state.sockets.known(socket) else { return told };
        told.live = pool.origins().iter().map(|origin| u64::from(origin.own_load())).sum();
        let Some(metrics) = pool.counted() else { return told };
        (told.requests, (told.bytes_in, told.bytes_out)) = metrics.read();
        let counts = &metrics.counts;
        (told.flows, told.refusals) = (counts.flows(), counts.refusals());
        (told.last_minute, told.minute_seconds) = counts.last_minute(Instant::now());
        let (durations, first_bytes) = counts.spans();
        (told.durations, told.duration_bounds) = (durations.counts, durations.bounds);
        (told.first_bytes, told.first_byte_bounds) = (first_bytes.counts, first_bytes.bounds);
        told.origins = counts.origins();
        told.origins.sort_unstable_by_key(|one| std::cmp::Reverse(one.uses));
        told
    }

    /// What ended lately at the organisation's sockets, or at this one of them.
    fn ended(&self, organisation: AccountId, socket: Option<SocketId>, after: Option<u64>, limit: usize) -> EndedList {
        let mut found = BTreeMap::new();
        let pools = match socket {
            Some(socket) => self.state.sockets.known(socket).into_iter().collect(),
            None => self.state.sockets.all(),
        };
        for pool in pools {
            let Some(route) = self.route_of(organisation, pool.socket()) else { continue };
            if let Some(metrics) = pool.counted() {
                metrics.ended.find(&route, after, limit, &mut found);
            }
        }
        EndedList { entries: found.into_values().collect() }
    }

    /// The socket's tunnels that this edge holds itself.
    fn held(&self, socket: SocketId) -> Vec<TunnelFigures> {
        let Some(pool) = self.state.sockets.known(socket) else { return Vec::new() };
        let origins = pool.origins();
        // Those of other edges are for these to tell of.
        let own = origins
            .iter()
            .filter(|origin| matches!(origin.handle(), OriginTransport::Tunnel(_) | OriginTransport::Ssh(_)));
        let held = own.filter_map(|origin| {
            let tunnel = origin.handle().tunnel()?;
            Some(TunnelFigures {
                tunnel,
                is_well: self.state.directory.health(tunnel),
                rtt_us: origin.handle().round_trip().map(|rtt| u64::try_from(rtt.as_micros()).unwrap_or(u64::MAX)),
                live: u64::from(origin.load()),
            })
        });
        held.take(MAX_ANSWER_ITEMS).collect()
    }

    fn figures(&self) -> EdgeFigures {
        let process = process_figures();
        let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        EdgeFigures {
            sockets: count(self.state.routes.len()),
            flows: count(self.state.config.flows.count()),
            connections: count(self.connections.open()),
            memory_bytes: process.map(|(memory, _)| memory),
            cpu_ms: process.map(|(_, cpu)| cpu),
        }
    }
}
