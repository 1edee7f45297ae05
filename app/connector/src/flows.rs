//! Flows of datagrams: each has a UDP socket of its own to the private service.
//!
//! The socket of a flow outlives the way that its datagrams came: when the session with the edge is lost, or the edge
//! is replaced by another process, the socket is kept for a while, and the same client's flow gets it again. The service
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

/// How many flows one tunnel has, those that are kept among them.
const MAX_FLOWS_PER_TUNNEL: usize = 4_096;
/// How long the socket of a flow is kept whose way was lost.
const KEPT_TIME: Duration = Duration::from_secs(30);
/// How long a flow lasts in which nothing moves. The edge ends flows sooner; this is for one that forgot to.
const MAX_IDLE: Duration = Duration::from_secs(300);
/// How often it is looked for that.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);
/// How many datagrams wait while the service's address is looked up, and how many bytes of them.
const MAX_WAITING: usize = 64;
const MAX_WAITING_BYTES: usize = 128 * 1024;
/// How many times in a row the service may refuse before the flow is over: a single refusal may be of a service that
/// is just being restarted.
const MAX_REFUSALS: u32 = 3;

/// Whose flow it is, wherever it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    tunnel: TunnelId,
    client: SocketAddr,
    destination: SocketAddr,
}

/// The flows of a service.
#[derive(Debug, Clone)]
pub(crate) struct Flows {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    tunnel: TunnelId,
    address: OriginAddr,
    began: Instant,
    outlets: Mutex<Outlets>,
    /// Which of the service's addresses is tried first: with datagrams it only shows later that nobody is there.
    preferred: AtomicUsize,
    /// How many addresses the service had when it was last looked up.
    addresses: AtomicUsize,
    absence: Mutex<Absence>,
    /// Something refused since the service last answered. Answers are many: only one that this says is looked at.
    has_refused: AtomicBool,
    events: mpsc::Sender<ConnectorEvent>,
}

/// What is known of a service that is not there.
#[derive(Debug, Default)]
struct Absence {
    /// Which of its addresses have refused since it last answered, no more than it has.
    refused: Vec<SocketAddr>,
    is_told: bool,
}

#[derive(Debug, Default)]
struct Outlets {
    by_key: HashMap<Key, Arc<Outlet>>,
    per_tunnel: HashMap<TunnelId, usize>,
}

/// One flow's socket to the service.
#[derive(Debug)]
struct Outlet {
    key: Key,
    flows: Weak<Shared>,
    /// Made as soon as the service's address is known.
    socket: OnceLock<UdpPort>,
    service: OnceLock<SocketAddr>,
    way: Mutex<Way>,
    /// The way has changed, or the outlet is over.
    changed: Notify,
    /// When something last moved, in milliseconds since the connector began.
    moved_ms: AtomicU64,
    /// The service has said something.
    was_answered: AtomicBool,
}

/// The way to the edge, and what waits for the socket.
#[derive(Debug, Default)]
struct Way {
    flow: Option<FlowHandle>,
    /// Which flow it is: those before it have nothing to say any more.
    number: u64,
    /// Since when there is none.
    lost_at: Option<Instant>,
    waiting: Vec<Box<[u8]>>,
    waiting_bytes: usize,
    is_over: bool,
}

/// What comes from the edge for one flow.
struct Sink {
    outlet: Arc<Outlet>,
    number: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

impl Flows {
    /// Flows of this tunnel to its service; that it is not there is told to `events`.
    pub(crate) fn new(tunnel: TunnelId, address: OriginAddr, events: mpsc::Sender<ConnectorEvent>) -> Self {
        let shared = Shared {
            tunnel,
            address,
            began: Instant::now(),
            outlets: Mutex::default(),
            preferred: AtomicUsize::new(0),
            addresses: AtomicUsize::new(1),
            absence: Mutex::default(),
            has_refused: AtomicBool::new(false),
            events,
        };
        Self { shared: Arc::new(shared) }
    }

    /// A flow begins.
    pub(crate) fn open(&self, open: FlowOpen, flow: FlowHandle) -> Arc<dyn FlowSink> {
        let key = Key { tunnel: open.tunnel, client: open.client, destination: open.destination };
        let mut flow = flow;
        if let Some(known) = lock(&self.shared.outlets).by_key.get(&key).cloned() {
            match known.attach(flow) {
                Ok(number) => return Arc::new(Sink { outlet: known, number }),
                // It has ended in this moment.
                Err(unattached) => flow = unattached,
            }
        }
        let outlet = self.shared.new_outlet(key);
        if !lock(&self.shared.outlets).insert(&outlet) {
            flow.close(FlowEnd::Busy);
            return Arc::new(Sink { outlet, number: 0 });
        }
        let number = outlet.attach(flow).unwrap_or_default();
        tokio::spawn(outlet.clone().serve(self.shared.address.clone()));
        Arc::new(Sink { outlet, number })
    }
}

impl Outlets {
    /// Puts it in, in place of one that has ended; false: the tunnel has as many as it may.
    fn insert(&mut self, outlet: &Arc<Outlet>) -> bool {
        if !self.make_room(outlet.key.tunnel) {
            return false;
        }
        if self.by_key.insert(outlet.key, outlet.clone()).is_none() {
            *self.per_tunnel.entry(outlet.key.tunnel).or_default() += 1;
        }
        true
    }

    /// Whether the tunnel may have one more; one that is only kept makes way.
    fn make_room(&mut self, tunnel: TunnelId) -> bool {
        if self.per_tunnel.get(&tunnel).copied().unwrap_or(0) < MAX_FLOWS_PER_TUNNEL {
            return true;
        }
        let kept = self.by_key.values().filter(|outlet| outlet.key.tunnel == tunnel);
        let oldest = kept.filter_map(|outlet| Some((lock(&outlet.way).lost_at?, outlet.key))).min_by_key(|kept| kept.0);
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

impl Shared {
    fn new_outlet(self: &Arc<Self>, key: Key) -> Arc<Outlet> {
        Arc::new(Outlet {
            key,
            flows: Arc::downgrade(self),
            socket: OnceLock::new(),
            service: OnceLock::new(),
            way: Mutex::default(),
            changed: Notify::new(),
            moved_ms: AtomicU64::new(self.now_ms()),
            was_answered: AtomicBool::new(false),
        })
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Nothing listens at this address. Told once when that is so at all of the service's addresses, and again only after
    /// it was there.
    fn refused_at(&self, service: SocketAddr) {
        self.has_refused.store(true, Ordering::Relaxed);
        let mut absence = lock(&self.absence);
        if absence.is_told {
            return;
        }
        if !absence.refused.contains(&service) {
            absence.refused.push(service);
        }
        if absence.refused.len() >= self.addresses.load(Ordering::Relaxed) {
            *absence = Absence { refused: Vec::new(), is_told: true };
            drop(absence);
            let reason = format!("nothing listens on UDP {}", self.address);
            // Nobody waits for it: whoever shows so much that there is no room has other worries.
            let _ = self.events.try_send(ConnectorEvent::OriginMissing { tunnel: self.tunnel, reason });
        }
    }

    /// The service is there.
    fn answered(&self) {
        if self.has_refused.load(Ordering::Relaxed) {
            self.has_refused.store(false, Ordering::Relaxed);
            *lock(&self.absence) = Absence::default();
        }
    }

    /// Takes the outlet out, when it is still the one of its key.
    fn forget(&self, outlet: &Arc<Outlet>) {
        let mut outlets = lock(&self.outlets);
        if outlets.by_key.get(&outlet.key).is_some_and(|known| Arc::ptr_eq(known, outlet)) {
            outlets.remove(&outlet.key);
        }
    }
}

impl Outlet {
    /// What comes from the service goes to this flow from now on. The former one, if there is one, is closed. Gives the
    /// flow back when the outlet is over.
    fn attach(&self, flow: FlowHandle) -> Result<u64, FlowHandle> {
        let mut way = lock(&self.way);
        if way.is_over {
            return Err(flow);
        }
        way.number += 1;
        way.lost_at = None;
        let number = way.number;
        let former = way.flow.replace(flow);
        drop(way);
        // Closing calls into the tunnel: not under our lock.
        drop(former);
        self.changed.notify_one();
        Ok(number)
    }

    /// Ends it: no flow gets this socket again.
    fn end(&self, end: FlowEnd) {
        let mut way = lock(&self.way);
        way.is_over = true;
        way.waiting = Vec::new();
        let flow = way.flow.take();
        drop(way);
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

    /// Lives as long as the flow.
    async fn serve(self: Arc<Self>, address: OriginAddr) {
        let end = match self.connect(&address).await {
            Ok(()) => self.carry_back().await,
            Err(error) => {
                debug!(%error, service = %address, "a flow has no socket to the service");
                FlowEnd::Unreachable
            }
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
            match UdpPort::connected(service) {
                Ok(socket) => {
                    let _ = self.service.set(service);
                    let mut way = lock(&self.way);
                    let waiting = std::mem::take(&mut way.waiting);
                    let batch: Vec<&[u8]> = waiting.iter().map(|datagram| &datagram[..]).collect();
                    socket.send(service, None, &batch);
                    // Under the lock, so that what comes meanwhile does not overtake what waited.
                    let _ = self.socket.set(socket);
                    return Ok(());
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// What the service says goes to the edge, until one of them has ended it. While there is no way, it waits.
    async fn carry_back(&self) -> FlowEnd {
        let Some(socket) = self.socket.get() else { return FlowEnd::Unreachable };
        let mut look = tokio::time::interval(LOOK_INTERVAL);
        let mut refusals = 0;
        loop {
            let has_way = {
                let way = lock(&self.way);
                if way.is_over {
                    return FlowEnd::Done;
                }
                if way.lost_at.is_some_and(|at| at.elapsed() >= KEPT_TIME) {
                    return FlowEnd::Done;
                }
                way.flow.is_some()
            };
            tokio::select! {
                () = self.changed.notified() => {}
                _ = look.tick() => {
                    if self.is_idle() {
                        return FlowEnd::Idle;
                    }
                }
                readable = socket.readable(), if has_way => {
                    if readable.is_err() {
                        return FlowEnd::Unreachable;
                    }
                    let read = socket.try_recv(|received| self.send_back(&received.datagrams().collect::<Vec<_>>()));
                    // A service that sends without end leaves others their turns.
                    tokio::task::consume_budget().await;
                    match read {
                        Ok(()) => refusals = 0,
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        Err(error) => {
                            refusals += 1;
                            debug!(%error, "the service did not take a datagram");
                            let was_answered = self.was_answered.load(Ordering::Relaxed);
                            if let Some(flows) = self.flows.upgrade() {
                                self.tell_refusal(&flows, &error);
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

    fn tell_refusal(&self, flows: &Shared, error: &io::Error) {
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
        let way = lock(&self.way);
        if let Some(flow) = &way.flow {
            flow.send_batch(batch);
        }
        drop(way);
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
        let mut way = lock(&self.outlet.way);
        if let (Some(socket), Some(service)) = (self.outlet.socket.get(), self.outlet.service.get()) {
            drop(way);
            socket.send(*service, None, batch);
            return;
        }
        for datagram in batch {
            if way.waiting.len() < MAX_WAITING && way.waiting_bytes + datagram.len() <= MAX_WAITING_BYTES {
                way.waiting_bytes += datagram.len();
                way.waiting.push((*datagram).into());
            }
        }
    }

    fn closed(&self, end: FlowEnd) {
        let mut way = lock(&self.outlet.way);
        if way.number != self.number {
            return;
        }
        let flow = way.flow.take();
        // Whoever ended the flow on purpose does not come back. Whose way was lost may.
        let is_kept = matches!(end, FlowEnd::Lost | FlowEnd::Detached);
        if is_kept {
            way.lost_at = Some(Instant::now());
        } else {
            way.is_over = true;
        }
        drop(way);
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
            Flows::new(TunnelId::from_random([1; 16]), OriginAddr { host: "localhost".into(), port: 53 }, events_in),
            events,
        )
    }

    #[test]
    fn a_service_that_is_not_there_is_told_of_once_until_it_was_there() {
        let (flows, mut events) = flows();
        let (shared, one, other) = (&flows.shared, ([127, 0, 0, 1], 53).into(), ([127, 0, 0, 2], 53).into());
        let mut told = || match events.try_recv() {
            Ok(ConnectorEvent::OriginMissing { reason, .. }) => Some(reason),
            _ => None,
        };
        shared.addresses.store(2, Ordering::Relaxed);
        shared.refused_at(one);
        shared.refused_at(one);
        assert_eq!(told(), None, "it may be at its other address");
        shared.refused_at(other);
        assert_eq!(told().as_deref(), Some("nothing listens on UDP localhost:53"));
        shared.refused_at(one);
        shared.refused_at(other);
        assert_eq!(told(), None, "once is enough");
        shared.answered();
        shared.refused_at(other);
        assert_eq!(told(), None);
        shared.refused_at(one);
        assert!(told().is_some());
    }

    #[test]
    fn a_tunnel_has_so_many_flows_and_those_that_are_only_kept_make_way() {
        let (flows, _events) = flows();
        let outlet = |tunnel: u8, client: u16| {
            let destination = ([127, 0, 0, 1], 53).into();
            let client = ([192, 0, 2, 1], client).into();
            flows.shared.new_outlet(Key { tunnel: TunnelId::from_random([tunnel; 16]), client, destination })
        };
        let all: Vec<_> = (0..4_096).map(|client| outlet(1, client)).collect();
        assert!(all.iter().all(|outlet| lock(&flows.shared.outlets).insert(outlet)));
        let one_more = outlet(1, 5_000);
        assert!(!lock(&flows.shared.outlets).insert(&one_more));
        assert!(lock(&flows.shared.outlets).insert(&outlet(2, 1)), "another tunnel has its own");
        lock(&all[7].way).lost_at = Some(Instant::now());
        assert!(lock(&flows.shared.outlets).insert(&one_more));
        assert!(lock(&all[7].way).is_over);
        assert!(!lock(&flows.shared.outlets).insert(&outlet(1, 5_001)));
        flows.shared.forget(&all[8]);
        flows.shared.forget(&all[8]);
        assert!(lock(&flows.shared.outlets).insert(&outlet(1, 5_002)));
        assert!(!lock(&flows.shared.outlets).insert(&outlet(1, 5_003)));
    }
}
