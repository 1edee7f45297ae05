//! Answers queries of control about flows and tunnels of this edge.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use sallyport_bus::{
    Answer, AnycastAnswer, Ask, CatchmentAnswer, CatchmentAsk, EdgeFigures, EndedList, MAX_ANSWER_ITEMS, Responder,
    SocketUse, TunnelFigures,
};
use sallyport_model::{AccountId, SocketId, SocketRoute};
use sallyport_net::process_figures;

use crate::{edge::Edge, origins::transport::OriginTransport};

/// Answers for as long as the edge exists.
struct Answers(Weak<Edge>);

impl Responder for Answers {
    fn answer(&self, ask: Ask) -> Answer {
        self.0.upgrade().map_or(Answer::NotUnderstood, |edge| edge.answer(ask))
    }
}

impl Edge {
    /// The responder of this edge.
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
            Ask::Tunnels { organisation, socket } => Answer::Tunnels(
                self.route_of(organisation, socket).map(|_| self.attached_tunnels(socket)).unwrap_or_default(),
            ),
            Ask::Figures => Answer::Figures(self.figures()),
            Ask::Ways { to } => {
                let refused = to.and_then(|to| self.measurements.tell(&to).err());
                Answer::Ways(self.measurements.list(refused))
            }
            Ask::Clients { by, limit } => Answer::Clients(self.client_networks(by, limit.min(MAX_ANSWER_ITEMS))),
            Ask::Anycast(ask) => {
                Answer::Anycast(self.anycast.get().map_or(AnycastAnswer::Off, |anycast| anycast.answer(&ask)))
            }
            Ask::Catchment(CatchmentAsk::Clients { after }) => {
                Answer::Catchment(CatchmentAnswer::Clients(self.networks_after(after.as_deref())))
            }
            Ask::Catchment(ask) => {
                self.measurements.answer_catchment(ask).map_or(Answer::NotUnderstood, Answer::Catchment)
            }
            Ask::HasChallenge { challenge } => Answer::HasChallenge(self.state.config.challenges.has(challenge)),
        }
    }

    /// The route of the socket, if the organisation owns it.
    fn route_of(&self, organisation: AccountId, socket: SocketId) -> Option<Arc<SocketRoute>> {
        self.state.routes.get(socket).filter(|route| route.account == organisation)
    }

    /// The counts of the socket since this edge started.
    fn use_of(&self, socket: SocketId) -> SocketUse {
        let since = SystemTime::now().checked_sub(self.state.sockets.started().elapsed()).unwrap_or(UNIX_EPOCH);
        let since = since.duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut counted =
            SocketUse { since_ms: i64::try_from(since.as_millis()).unwrap_or(i64::MAX), ..SocketUse::default() };
        let Some(pool) = self.state.sockets.known(socket) else { return counted };
        counted.live = pool.origins().iter().map(|origin| u64::from(origin.own_load())).sum();
        let Some(metrics) = pool.counted() else { return counted };
        (counted.requests, (counted.bytes_in, counted.bytes_out)) = metrics.read();
        let counts = &metrics.counts;
        (counted.flows, counted.refusals) = (counts.flows(), counts.refusals());
        (counted.last_minute, counted.minute_seconds) = counts.last_minute(Instant::now());
        let (durations, first_bytes) = counts.spans();
        (counted.durations, counted.duration_bounds) = (durations.counts, durations.bounds);
        (counted.first_bytes, counted.first_byte_bounds) = (first_bytes.counts, first_bytes.bounds);
        counted.origins = counts.origins();
        counted.origins.sort_unstable_by_key(|one| std::cmp::Reverse(one.uses));
        counted
    }

    /// The flows that ended lately at the organisation's sockets, or at one of them.
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

    /// The tunnels of the socket that are attached here.
    fn attached_tunnels(&self, socket: SocketId) -> Vec<TunnelFigures> {
        let Some(pool) = self.state.sockets.known(socket) else { return Vec::new() };
        let origins = pool.origins();
        // Relayed ones are left to the edges that hold them.
        let own = origins
            .iter()
            .filter(|origin| matches!(origin.handle(), OriginTransport::Tunnel(_) | OriginTransport::Ssh(_)));
        let attached = own.filter_map(|origin| {
            let tunnel = origin.handle().tunnel()?;
            Some(TunnelFigures {
                tunnel,
                is_well: self.state.directory.health(tunnel),
                rtt_us: origin.handle().round_trip().map(|rtt| u64::try_from(rtt.as_micros()).unwrap_or(u64::MAX)),
                live: u64::from(origin.load()),
                links: match origin.handle() {
                    OriginTransport::Tunnel(handle) => handle.links().to_vec(),
                    _ => Vec::new(),
                },
            })
        });
        attached.take(MAX_ANSWER_ITEMS).collect()
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
