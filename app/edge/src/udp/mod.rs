//! The path of a datagram to a UDP socket. Each client is a flow: [`Server::take`] is its way in, and [`flow`] the way
//! back.
//!
//! One task reads the port and owns the table of flows, so that datagrams of a flow keep their order. Answers are sent
//! by the task that reads the tunnel.
//!
//! May use `access`, `record`, `origins`, `policy`, `metrics`, `lifecycle`.

pub(crate) mod address_validation;
pub(crate) mod flow;
pub(crate) mod handover;
pub(crate) mod ports;
pub(crate) mod table;

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use sallyport_model::{SocketId, SocketRoute};
use sallyport_net::{OpenPort, OwnPorts, Received, Shutdown, UdpPort};
use tokio::time::MissedTickBehavior;

use crate::{
    access::admit::{self, Pass},
    lifecycle::counts::RunningGuard,
    metrics::verdict::Verdict,
    origins::{affinity::AffinityHint, http::forwarding::Group, pool::SocketPool},
    record::flow::FlowContext,
    udp::{
        address_validation::Level,
        flow::{Flow, Step},
        ports::UdpPorts,
        table::{Full, Key, Table},
    },
};

/// How often ended flows are searched for.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// How often waiting datagrams are tried again.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);
/// How many flows of a port may wait for a tunnel at once.
const MAX_WAITING: usize = 512;

/// An open UDP port.
pub(crate) struct Server {
    ports: Arc<UdpPorts>,
    socket: SocketId,
    pub(crate) port: Arc<UdpPort>,
    pool: Arc<SocketPool>,
    pub(crate) flows: Table<Flow>,
    /// Whether traffic to unvalidated addresses is bounded, which the socket's owner configures.
    is_guarded: Arc<AtomicBool>,
    /// The ports of sockets in this process, this one among them.
    own: OwnPorts,
    /// The flows that wait for a tunnel.
    waiting: Vec<Key>,
    /// Counts a port with flows as running work, for the shutdown.
    running: Option<RunningGuard>,
}

/// Serves the port until the shutdown, then hands its established flows to the next process.
pub(crate) async fn serve(ports: Arc<UdpPorts>, socket: SocketId, port: UdpPort, opened: OpenPort, shutdown: Shutdown) {
    let account = ports.access.state.routes.get(socket).map(|route| route.account);
    let count = account.map(|account| ports.flows.of(account)).unwrap_or_default();
    let mut server = Server {
        socket,
        pool: ports.access.state.sockets.pool(socket),
        flows: Table::new(count),
        is_guarded: Arc::new(AtomicBool::new(true)),
        own: opened.ports().clone(),
        waiting: Vec::new(),
        running: None,
        port: Arc::new(port),
        ports,
    };
    let port = server.port.clone();
    let mut sweep = tokio::time::interval(SWEEP_INTERVAL);
    let mut retry = tokio::time::interval(RETRY_INTERVAL);
    sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    retry.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = shutdown.wait() => break,
            _ = sweep.tick() => server.sweep(Instant::now()),
            _ = retry.tick(), if !server.waiting.is_empty() => server.retry(Instant::now()),
            readable = port.readable() => match readable {
                Ok(()) => {
                    // An error here concerns a datagram that was sent, and does not last.
                    drop(port.try_recv(|received| server.take(received)));
                    // A flooded port is always readable; other tasks must have their turns.
                    tokio::task::consume_budget().await;
                }
                Err(_) => break,
            },
        }
    }
    drop(opened);
    handover::finish(server).await;
}

impl Server {
    /// The state that all ports share.
    pub(crate) fn ports(&self) -> &Arc<UdpPorts> {
        &self.ports
    }

    /// Handles datagrams of one client, from their arrival to the tunnel.
    pub(crate) fn take(&mut self, received: Received<'_>) {
        let now = Instant::now();
        let key = Key { client: received.client, local: received.local };
        let datagrams: Vec<&[u8]> = received.datagrams().collect();
        self.ports.access.state.metrics.datagrams_in(datagrams.len());
        // 1. and 2.: a running flow, or a new one.
        if self.flows.get_mut(&key).is_none() && !self.begin(key, now) {
            self.ports.access.state.metrics.datagrams_dropped("refused", datagrams.len());
            return;
        }
        let has_room = self.waiting.len() < MAX_WAITING;
        let expects = || has_room && self.ports.access.state.sockets.expects(&self.pool, Group::ROOT);
        let Some(flow) = self.flows.get_mut(&key) else { return };
        // 3. Select an origin, 4. open a flow to it, 5. relay.
        match flow.forward(&self.pool, expects, &datagrams, now) {
            Step::Sent => {}
            Step::Waiting => {
                if !self.waiting.contains(&key) {
                    self.waiting.push(key);
                }
            }
            Step::Over(verdict) => {
                self.ports.access.state.metrics.datagrams_dropped(verdict.as_str(), datagrams.len());
                if verdict != Verdict::TooManyFlows || !self.make_way_for(&key, now) {
                    self.give_up(&key, verdict);
                }
                return;
            }
        }
        let rank = flow.rank(now);
        self.flows.set_rank(&key, rank);
    }

    /// Frees a place at a connector that has as many flows as it may, if another flow there has no higher rank than
    /// this one. Only once until an answer comes: the connector frees the place only when it learns of the end.
    fn make_way_for(&mut self, key: &Key, now: Instant) -> bool {
        let Some(full) = self.flows.get_mut(key).and_then(|flow| flow.full_at()) else { return false };
        if self.flows.get_mut(key).is_some_and(|flow| !flow.has_way()) {
            let transport = self.flows.way_for(key, |flow| flow.goes_to(full));
            let Some(evicted) = transport.and_then(|key| self.flows.remove(&key)) else { return false };
            evicted.ended(Verdict::Evicted);
        }
        if let Some(flow) = self.flows.get_mut(key) {
            flow.try_all_again(now);
        }
        true
    }

    /// No origin takes the flow. Only a flow that was answered before is logged.
    fn give_up(&mut self, key: &Key, verdict: Verdict) {
        match self.flows.remove(key) {
            Some(flow) if flow.is_answered() => flow.ended(verdict),
            Some(_) => self.ports.access.state.metrics.flow_ended("udp", verdict.as_str()),
            None => {}
        }
    }

    /// Begins a flow, if it is admitted. A refused flow is not logged, because a flood could fill the log.
    fn begin(&mut self, key: Key, now: Instant) -> bool {
        let ports = self.ports.clone();
        let Some(route) = ports.access.state.routes.get(self.socket) else { return false };
        if is_forged(&self.own, key) {
            ports.access.state.metrics.flow_ended("udp", Verdict::Denied.as_str());
            return false;
        }
        self.pool.rules(&route);
        if !ports.access.state.sockets.expects(&self.pool, Group::ROOT) && !self.pool.is_reachable() {
            ports.access.state.metrics.flow_ended("udp", Verdict::NoTunnel.as_str());
            return false;
        }
        // 1. Name the flow: its id, its client, its time.
        let context = FlowContext::new(&ports.access.state, &route, &self.pool, key.client);
        // 2. Admission, before any other flow is evicted.
        let pass = match self.enter(&route, key.client.ip()) {
            Ok(pass) => pass,
            Err(verdict) => {
                ports.access.state.metrics.flow_ended("udp", verdict.as_str());
                return false;
            }
        };
        self.is_guarded.store(route.settings.amplification_guard, Ordering::Relaxed);
        let allowance = ports.allowances.lock().of(self.socket, key.client.ip(), now);
        let guard = (allowance, self.is_guarded.clone());
        self.flows
            .insert(key, Flow::new(key, self.port.clone(), guard, context, pass, ports.access.state.metrics.clone()));
        self.running.get_or_insert_with(|| ports.access.state.running.enter());
        true
    }

    /// Admits a new flow, without waiting. If the socket has as many flows as it may, a flow of the lowest level is
    /// evicted; otherwise forged addresses could hold all places.
    fn enter(&mut self, route: &Arc<SocketRoute>, client: IpAddr) -> Result<Pass, Verdict> {
        let rules = admit::check_address(&self.ports.access, route, &self.pool, client)?;
        if admit::judge(&self.ports.access, &rules, client, None).is_some_and(|ruling| !ruling.allowed) {
            return Err(Verdict::Denied);
        }
        let hint = AffinityHint::of_flow(&rules, &self.ports.access.state.config.affinity_key, client);
        let flows = &mut self.flows;
        let make_way = || {
            let evicted = flows.lowest_of(Level::New).and_then(|key| flows.remove(&key));
            evicted.map(|evicted| evicted.ended(Verdict::Evicted)).is_some()
        };
        let pass = admit::take_place_now(&self.pool, hint, make_way)?;
        match self.flows.make_room(client, self.pool.origins().len()) {
            Ok(evicted) => evicted.into_iter().for_each(|evicted| evicted.ended(Verdict::Evicted)),
            Err(Full) => return Err(Verdict::TooManyFlows),
        }
        Ok(pass)
    }

    /// Ends idle flows, and updates the rank of the others.
    pub(crate) fn sweep(&mut self, now: Instant) {
        let longest = self.ports.access.state.config.udp_idle_timeout;
        for flow in self.flows.take_if(|flow| flow.is_idle(longest, now)) {
            flow.ended_idle();
        }
        for flow in self.flows.take_if(|flow| flow.is_killed()) {
            flow.ended(Verdict::Killed);
        }
        self.judge_again();
        self.flows.rank_all(|flow| flow.rank(now));
        if let Some(route) = self.ports.access.state.routes.get(self.socket) {
            self.is_guarded.store(route.settings.amplification_guard, Ordering::Relaxed);
        }
        if self.flows.len() == 0 {
            self.running = None;
        }
    }

    /// Ends the flows that would not be admitted now.
    fn judge_again(&mut self) {
        let Some(route) = self.ports.access.state.routes.get(self.socket) else { return };
        let rules = self.pool.rules(&route);
        if rules.judge().is_none() {
            return;
        }
        let ports = self.ports.clone();
        let may_not = |client| admit::judge(&ports.access, &rules, client, None).is_some_and(|ruling| !ruling.allowed);
        for flow in self.flows.take_if(|flow| may_not(flow.client())) {
            flow.ended(Verdict::Revoked);
        }
    }

    /// Tries again to send waiting datagrams.
    pub(crate) fn retry(&mut self, now: Instant) {
        let (flows, pool) = (&mut self.flows, &self.pool);
        self.waiting.retain(|key| flows.get_mut(key).is_some_and(|flow| flow.try_waiting(pool, now)));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for flow in self.flows.take_if(|_| true) {
            flow.ended(Verdict::CutOff);
        }
    }
}

/// Whether a connected socket could use this local address: it is no wildcard.
pub(crate) fn is_specific(local: IpAddr) -> bool {
    !local.is_unspecified() && !local.is_multicast()
}

/// Whether the source cannot be a client: it has no port, or is a port of this edge at this machine. Answers to such a
/// source would loop.
fn is_forged(own: &OwnPorts, key: Key) -> bool {
    let client = key.client;
    let is_own_address = || {
        let ip = client.ip();
        // Whether the machine has the address costs a system call, only for sources with a port of this edge.
        ip == key.local || ip.is_loopback() || std::net::UdpSocket::bind((ip, 0)).is_ok()
    };
    client.port() == 0 || (own.has_udp(client) && is_own_address())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn our_own_ports_are_no_clients() {
        let own = OwnPorts::default();
        let port = UdpPort::bind("0.0.0.0:0".parse().unwrap(), "--x").unwrap();
        let opened = own.opened(&port);
        let ours = port.address().port();
        let is_forged = |client: &str, port| {
            let key = Key { client: (client.parse::<IpAddr>().unwrap(), port).into(), local: [192, 0, 2, 9].into() };
            is_forged(&own, key)
        };
        for (client, port, forged) in [
            ("127.0.0.1", ours, true),
            ("127.0.0.9", ours, true),
            ("192.0.2.9", ours, true),
            ("192.0.2.1", ours, false),
            ("127.0.0.1", ours ^ 1, false),
            ("192.0.2.1", 0, true),
        ] {
            assert_eq!(is_forged(client, port), forged, "{client}:{port}");
        }
        drop(opened);
        assert!(!is_forged("127.0.0.1", ours), "the port is closed");
    }
}
