//! Datagram flows: each has a UDP socket of its own to the private service.
//!
//! The socket of a flow outlives its session. When the session with the edge is lost, or the edge is replaced by
//! another process, the socket is kept for a while. The same client's flow then gets the socket again, so the service
//! sees one peer all the time.

use std::{
    collections::HashMap,
    io,
    net::SocketAddr,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};
use sallyport_model::{OriginAddr, TunnelId};
use sallyport_net::UdpPort;
use sallyport_tunnel::{ConnectorEvent, FlowEnd, FlowHandle, FlowOpen, FlowSink};
use tokio::sync::{Notify, mpsc};
use tracing::debug;

use crate::pool::{InUse, ServiceOrigin};

/// How many flows one tunnel has, kept ones included.
const MAX_FLOWS_PER_TUNNEL: usize = 4_096;
/// How long the socket of a lost flow is kept.
const KEPT_TIME: Duration = Duration::from_secs(30);
/// How long an idle flow lasts. The edge ends flows sooner; this bound is for an edge that does not.
const MAX_IDLE: Duration = Duration::from_secs(300);
/// How often idle flows are searched for, and those of endpoints that have left.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);
/// How many datagrams may wait for the resolution of the service's address, and how many bytes of them.
const MAX_WAITING: usize = 64;
const MAX_WAITING_BYTES: usize = 128 * 1024;
/// How many refusals in a row end the flow: a single one may come from a service that restarts.
const MAX_REFUSALS: u32 = 3;

/// The key of a flow, independent of its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    tunnel: TunnelId,
    client: SocketAddr,
    destination: SocketAddr,
}

/// The flows of a service.
#[derive(Debug, Clone)]
pub(crate) struct Flows {
    table: Arc<FlowTable>,
}

#[derive(Debug)]
struct FlowTable {
    tunnel: TunnelId,
    origin: ServiceOrigin,
    began: Instant,
    outlets: Mutex<Outlets>,
    /// Which of the service's addresses is tried first: a refusal of datagrams shows only later.
    preferred: AtomicUsize,
    /// How many addresses the service had at the last resolution.
    addresses: AtomicUsize,
    absence: Mutex<Absence>,
    /// Whether a refusal has come since the service's last answer. Only then is the lock taken for an answer.
    has_refused: AtomicBool,
    events: mpsc::Sender<ConnectorEvent>,
}

/// What is known about an absent service.
#[derive(Debug, Default)]
struct Absence {
    /// The addresses that have refused since the service's last answer.
    refused: Vec<SocketAddr>,
    is_reported: bool,
}

#[derive(Debug, Default)]
struct Outlets {
    by_key: HashMap<Key, Arc<Outlet>>,
    per_tunnel: HashMap<TunnelId, usize>,
}

/// The socket of one flow to the service.
#[derive(Debug)]
struct Outlet {
    key: Key,
    flows: Weak<FlowTable>,
    /// Made as soon as the service's address is known.
    socket: OnceLock<UdpPort>,
    service: OnceLock<SocketAddr>,
    attachment: Mutex<Attachment>,
    /// Notified when the attachment changes, or the outlet ends.
    changed: Notify,
    /// When a datagram last moved, in milliseconds since the connector started.
    moved_ms: AtomicU64,
    /// Whether the service has answered.
    was_answered: AtomicBool,
}

/// The flow to the edge, and the datagrams that wait for the socket.
#[derive(Debug, Default)]
struct Attachment {
    flow: Option<FlowHandle>,
    /// The number of the current flow: calls of earlier ones are ignored.
    number: u64,
    /// Since when there is no flow.
    lost_at: Option<Instant>,
    waiting: Vec<Box<[u8]>>,
    waiting_bytes: usize,
    is_over: bool,
}

/// Receives the datagrams of the edge for one flow.
struct Sink {
    outlet: Arc<Outlet>,
    number: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

impl Flows {
    /// The flows of this tunnel. `events` receives a report when the service is absent.
    pub(crate) fn new(tunnel: TunnelId, origin: ServiceOrigin, events: mpsc::Sender<ConnectorEvent>) -> Self {
        let table = FlowTable {
            tunnel,
            origin,
            began: Instant::now(),
            outlets: Mutex::default(),
            preferred: AtomicUsize::new(0),
            addresses: AtomicUsize::new(1),
            absence: Mutex::default(),
            has_refused: AtomicBool::new(false),
            events,
        };
        Self { table: Arc::new(table) }
    }

    /// Begins a flow.
    pub(crate) fn open(&self, open: FlowOpen, flow: FlowHandle) -> Arc<dyn FlowSink> {
        let key = Key { tunnel: open.tunnel, client: open.client, destination: open.destination };
        let mut flow = flow;
        if let Some(known) = lock(&self.table.outlets).by_key.get(&key).cloned() {
            match known.attach(flow) {
                Ok(number) => return Arc::new(Sink { outlet: known, number }),
                // The kept outlet ended at this moment.
                Err(unattached) => flow = unattached,
            }
        }
        let outlet = self.table.new_outlet(key);
        if !lock(&self.table.outlets).insert(&outlet) {
            flow.close(FlowEnd::Busy);
            return Arc::new(Sink { outlet, number: 0 });
        }
        let number = outlet.attach(flow).unwrap_or_default();
        self.table.start(&outlet);
        Arc::new(Sink { outlet, number })
    }
}

impl Outlets {
    /// Adds an outlet, in place of one that has ended. Returns false if the tunnel has as many flows as it may.
    fn insert(&mut self, outlet: &Arc<Outlet>) -> bool {
        if !self.make_room(outlet.key.tunnel) {
            return false;
        }
        if self.by_key.insert(outlet.key, outlet.clone()).is_none() {
            *self.per_tunnel.entry(outlet.key.tunnel).or_default() += 1;
        }
        true
    }

    /// Whether the tunnel may have one more flow; a kept one is dropped for it.
    fn make_room(&mut self, tunnel: TunnelId) -> bool {
        if self.per_tunnel.get(&tunnel).copied().unwrap_or(0) < MAX_FLOWS_PER_TUNNEL {
            return true;
        }
        let kept = self.by_key.values().filter(|outlet| outlet.key.tunnel == tunnel);
        let oldest =
            kept.filter_map(|outlet| Some((lock(&outlet.attachment).lost_at?, outlet.key))).min_by_key(|kept| kept.0);
        let Some(outlet) = oldest.and_then(|(_, key)| self.remove(&key)) else { return false };
        outlet.end(FlowEnd::Done);
        true
    }

    fn remove(&mut self, key: &Key) -> Option<Arc<Outlet>> {
        let outlet = self.by_key.remove(key)?;
        if let Some(count) = self.per_tunnel.get_mut(&key.tunnel) {
            *count -= 1;
            if *count == 0 {
                self.per_tunnel.remove(&key.tunnel);
            }
        }
        Some(outlet)
    }
}

impl FlowTable {
    /// Starts the outlet at the service's address, or at an endpoint of the pool.
    fn start(&self, outlet: &Arc<Outlet>) {
        match &self.origin {
            ServiceOrigin::One(address) => drop(tokio::spawn(outlet.clone().serve(address.clone(), None))),
            ServiceOrigin::Pool(pool) => match pool.enter_for_flow(outlet.key.client.ip()) {
                Some(endpoint) => {
                    drop(tokio::spawn(outlet.clone().serve(endpoint.address().clone(), Some(endpoint))));
                }
                None => {
                    outlet.end(FlowEnd::Unreachable);
                    self.forget(outlet);
                }
            },
        }
    }

    fn new_outlet(self: &Arc<Self>, key: Key) -> Arc<Outlet> {
        Arc::new(Outlet {
            key,
            flows: Arc::downgrade(self),
            socket: OnceLock::new(),
            service: OnceLock::new(),
            attachment: Mutex::default(),
            changed: Notify::new(),
            moved_ms: AtomicU64::new(self.now_ms()),
            was_answered: AtomicBool::new(false),
        })
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Records a refusal at this address. Reports once when all addresses of the service have refused, and again only
    /// after an answer.
    fn refused_at(&self, service: SocketAddr) {
        self.has_refused.store(true, Ordering::Relaxed);
        let mut absence = lock(&self.absence);
        if absence.is_reported {
            return;
        }
        if !absence.refused.contains(&service) {
            absence.refused.push(service);
        }
        let addresses = match &self.origin {
            ServiceOrigin::One(_) => self.addresses.load(Ordering::Relaxed),
            ServiceOrigin::Pool(pool) => pool.len(),
        };
        if absence.refused.len() >= addresses {
            *absence = Absence { refused: Vec::new(), is_reported: true };
            drop(absence);
            let reason = match &self.origin {
                ServiceOrigin::One(address) => format!("nothing listens on UDP {address}"),
                ServiceOrigin::Pool(_) => format!("nothing listens on UDP {service}, nor at the other endpoints"),
            };
            // Without a wait: if the channel is full, the report may be lost.
            let _ = self.events.try_send(ConnectorEvent::OriginMissing { tunnel: self.tunnel, reason });
        }
    }

    /// Records an answer of the service.
    fn answered(&self) {
        if self.has_refused.load(Ordering::Relaxed) {
            self.has_refused.store(false, Ordering::Relaxed);
            *lock(&self.absence) = Absence::default();
        }
    }

    /// Removes the outlet, if it is still the one of its key.
    fn forget(&self, outlet: &Arc<Outlet>) {
        let mut outlets = lock(&self.outlets);
        if outlets.by_key.get(&outlet.key).is_some_and(|known| Arc::ptr_eq(known, outlet)) {
            outlets.remove(&outlet.key);
        }
    }
}

impl Outlet {
    /// Sends the service's answers to this flow from now on, and closes the former flow. Returns the flow if the outlet
    /// has ended.
    fn attach(&self, flow: FlowHandle) -> Result<u64, FlowHandle> {
        let mut attachment = lock(&self.attachment);
        if attachment.is_over {
            return Err(flow);
        }
        attachment.number += 1;
        attachment.lost_at = None;
        let number = attachment.number;
        let former = attachment.flow.replace(flow);
        drop(attachment);
        // Without the lock, because the close calls into the tunnel.
        drop(former);
        self.changed.notify_one();
        Ok(number)
    }

    /// Ends the outlet: no flow gets its socket again.
    fn end(&self, end: FlowEnd) {
        let mut attachment = lock(&self.attachment);
        attachment.is_over = true;
        attachment.waiting = Vec::new();
        let flow = attachment.flow.take();
        drop(attachment);
        if let Some(flow) = flow {
            flow.close(end);
        }
        self.changed.notify_one();
    }

    fn touch(&self) {
        if let Some(flows) = self.flows.upgrade() {
            self.moved_ms.store(flows.now_ms(), Ordering::Relaxed);
        }
    }

    /// Runs for as long as the outlet lives.
    async fn serve(self: Arc<Self>, address: OriginAddr, endpoint: Option<InUse>) {
        let end = match self.connect(&address).await {
            Ok(()) => {
                endpoint.iter().for_each(InUse::opened);
                self.carry_back(endpoint.as_ref()).await
            }
            Err(error) => {
                debug!(%error, service = %address, "a flow has no socket to the service");
                FlowEnd::Unreachable
            }
        };
        let end = match &endpoint {
            Some(endpoint) if end == FlowEnd::Unreachable => {
                endpoint.failed();
                // The client's next datagram goes to another endpoint, and not to another tunnel.
                if endpoint.has_other() { FlowEnd::Done } else { end }
            }
            _ => end,
        };
        self.end(end);
        if let Some(flows) = self.flows.upgrade() {
            flows.forget(&self);
        }
    }

    async fn connect(&self, address: &OriginAddr) -> io::Result<()> {
        let mut addresses = sallyport_net::resolve(&address.host, address.port).await?;
        let preferred = self.flows.upgrade().map_or(0, |flows| flows.preferred.load(Ordering::Relaxed));
        let count = addresses.len().max(1);
        if let Some(flows) = self.flows.upgrade() {
            flows.addresses.store(count, Ordering::Relaxed);
        }
        addresses.rotate_left(preferred % count);
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        for service in addresses {
            match UdpPort::connected(service).await {
                Ok(socket) => {
                    let _ = self.service.set(service);
                    let mut attachment = lock(&self.attachment);
                    let waiting = std::mem::take(&mut attachment.waiting);
                    let batch: Vec<&[u8]> = waiting.iter().map(|datagram| &datagram[..]).collect();
                    socket.send(service, None, &batch);
                    // Under the lock, so that new datagrams do not overtake waiting ones.
                    let _ = self.socket.set(socket);
                    return Ok(());
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Sends the service's answers to the edge until one side ends the flow. While there is no flow, answers wait in
    /// the socket.
    async fn carry_back(&self, endpoint: Option<&InUse>) -> FlowEnd {
        let Some(socket) = self.socket.get() else { return FlowEnd::Unreachable };
        let mut look = tokio::time::interval(LOOK_INTERVAL);
        let mut refusals = 0;
        loop {
            let has_way = {
                let attachment = lock(&self.attachment);
                if attachment.is_over {
                    return FlowEnd::Done;
                }
                if attachment.lost_at.is_some_and(|at| at.elapsed() >= KEPT_TIME) {
                    return FlowEnd::Done;
                }
                attachment.flow.is_some()
            };
            tokio::select! {
                () = self.changed.notified() => {}
                _ = look.tick() => {
                    if self.is_idle() {
                        return FlowEnd::Idle;
                    }
                    if endpoint.is_some_and(InUse::has_left) {
                        return FlowEnd::Done;
                    }
                }
                readable = socket.readable(), if has_way => {
                    if readable.is_err() {
                        return FlowEnd::Unreachable;
                    }
                    let read = socket.try_recv(|received| self.send_back(&received.datagrams().collect::<Vec<_>>()));
                    // A busy service must not keep the thread from other flows.
                    tokio::task::consume_budget().await;
                    match read {
                        Ok(()) => refusals = 0,
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        Err(error) => {
                            refusals += 1;
                            debug!(%error, "a datagram could not be sent to the service");
                            let was_answered = self.was_answered.load(Ordering::Relaxed);
                            if let Some(flows) = self.flows.upgrade() {
                                self.report_refusal(&flows, &error);
                                if !was_answered {
                                    flows.preferred.fetch_add(1, Ordering::Relaxed);
                                }
                            }
                            if refusals >= MAX_REFUSALS || !was_answered {
                                return FlowEnd::Unreachable;
                            }
                        }
                    }
                }
            }
        }
    }

    fn report_refusal(&self, flows: &FlowTable, error: &io::Error) {
        if error.kind() == io::ErrorKind::ConnectionRefused
            && let Some(service) = self.service.get()
        {
            flows.refused_at(*service);
        }
    }

    fn send_back(&self, batch: &[&[u8]]) {
        self.was_answered.store(true, Ordering::Relaxed);
        if let Some(flows) = self.flows.upgrade() {
            self.moved_ms.store(flows.now_ms(), Ordering::Relaxed);
            flows.answered();
        }
        let attachment = lock(&self.attachment);
        if let Some(flow) = &attachment.flow {
            flow.send_batch(batch);
        }
        drop(attachment);
    }

    fn is_idle(&self) -> bool {
        let Some(flows) = self.flows.upgrade() else { return true };
        let moved = self.moved_ms.load(Ordering::Relaxed);
        flows.now_ms().saturating_sub(moved) >= u64::try_from(MAX_IDLE.as_millis()).unwrap_or(u64::MAX)
    }
}

impl FlowSink for Sink {
    fn datagrams(&self, batch: &[&[u8]]) {
        self.outlet.touch();
        if let (Some(socket), Some(service)) = (self.outlet.socket.get(), self.outlet.service.get()) {
            socket.send(*service, None, batch);
            return;
        }
        let mut attachment = lock(&self.outlet.attachment);
        if let (Some(socket), Some(service)) = (self.outlet.socket.get(), self.outlet.service.get()) {
            drop(attachment);
            socket.send(*service, None, batch);
            return;
        }
        for datagram in batch {
            if attachment.waiting.len() < MAX_WAITING && attachment.waiting_bytes + datagram.len() <= MAX_WAITING_BYTES
            {
                attachment.waiting_bytes += datagram.len();
                attachment.waiting.push((*datagram).into());
            }
        }
    }

    fn closed(&self, end: FlowEnd) {
        let mut attachment = lock(&self.outlet.attachment);
        if attachment.number != self.number {
            return;
        }
        let flow = attachment.flow.take();
        // A flow that was ended on purpose does not come back; a lost one may.
        let is_kept = matches!(end, FlowEnd::Lost | FlowEnd::Detached);
        if is_kept {
            attachment.lost_at = Some(Instant::now());
        } else {
            attachment.is_over = true;
        }
        drop(attachment);
        drop(flow);
        if !is_kept && let Some(flows) = self.outlet.flows.upgrade() {
            flows.forget(&self.outlet);
        }
        self.outlet.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flows() -> (Flows, mpsc::Receiver<ConnectorEvent>) {
        let (events_in, events) = mpsc::channel(8);
        (
            Flows::new(
                TunnelId::from_random([1; 16]),
                OriginAddr { host: "localhost".into(), port: 53 }.into(),
                events_in,
            ),
            events,
        )
    }

    #[test]
    fn a_service_that_is_not_there_is_reported_of_once_until_it_was_there() {
        let (flows, mut events) = flows();
        let (table, one, other) = (&flows.table, ([127, 0, 0, 1], 53).into(), ([127, 0, 0, 2], 53).into());
        let mut reported = || match events.try_recv() {
            Ok(ConnectorEvent::OriginMissing { reason, .. }) => Some(reason),
            _ => None,
        };
        table.addresses.store(2, Ordering::Relaxed);
        table.refused_at(one);
        table.refused_at(one);
        assert_eq!(reported(), None, "it may be at its other address");
        table.refused_at(other);
        assert_eq!(reported().as_deref(), Some("nothing listens on UDP localhost:53"));
        table.refused_at(one);
        table.refused_at(other);
        assert_eq!(reported(), None, "once is enough");
        table.answered();
        table.refused_at(other);
        assert_eq!(reported(), None);
        table.refused_at(one);
        assert!(reported().is_some());
    }

    #[test]
    fn a_tunnel_has_so_many_flows_and_those_that_are_only_kept_make_way() {
        let (flows, _events) = flows();
        let outlet = |tunnel: u8, client: u16| {
            let destination = ([127, 0, 0, 1], 53).into();
            let client = ([192, 0, 2, 1], client).into();
            flows.table.new_outlet(Key { tunnel: TunnelId::from_random([tunnel; 16]), client, destination })
        };
        let all: Vec<_> = (0..4_096).map(|client| outlet(1, client)).collect();
        assert!(all.iter().all(|outlet| lock(&flows.table.outlets).insert(outlet)));
        let one_more = outlet(1, 5_000);
        assert!(!lock(&flows.table.outlets).insert(&one_more));
        assert!(lock(&flows.table.outlets).insert(&outlet(2, 1)), "another tunnel has its own");
        lock(&all[7].attachment).lost_at = Some(Instant::now());
        assert!(lock(&flows.table.outlets).insert(&one_more));
        assert!(lock(&all[7].attachment).is_over);
        assert!(!lock(&flows.table.outlets).insert(&outlet(1, 5_001)));
        flows.table.forget(&all[8]);
        flows.table.forget(&all[8]);
        assert!(lock(&flows.table.outlets).insert(&outlet(1, 5_002)));
        assert!(!lock(&flows.table.outlets).insert(&outlet(1, 5_003)));
    }
}
