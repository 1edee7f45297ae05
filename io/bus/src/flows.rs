//! The running flows of an edge, for listing and for ending flows.

use std::{
    borrow::Borrow,
    cmp::Ordering as Order,
    collections::BTreeSet,
    net::SocketAddr,
    ops::Bound,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::SystemTime,
};

use parking_lot::{Mutex, MutexGuard};
use sallyport_model::{AccountId, DirectOriginId, OriginRef, SocketId, SocketName, SocketType, TunnelId};
use tokio::sync::Notify;

/// Number of parts of the map, so that threads rarely wait for each other.
const PARTS: usize = 16;

/// A running flow. There is one for each connection, and most connections idle: the size of this type matters.
#[derive(Debug)]
pub struct LiveFlow {
    /// Its id.
    pub id: String,
    /// The organisation that owns the socket.
    pub organisation: AccountId,
    /// The socket.
    pub socket: SocketId,
    /// The DNS label of the socket.
    pub socket_name: SocketName,
    /// The type of the socket.
    pub transport: SocketType,
    /// The client's address.
    pub client: SocketAddr,
    /// Start time.
    pub began: SystemTime,
    /// Bytes in both directions so far.
    pub bytes: AtomicU64,
    way: Mutex<FlowRoute>,
    is_cut: AtomicBool,
    cut: Notify,
}

/// Origin and identity of a flow, as far as known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FlowRoute {
    /// The tunnel that serves the flow.
    pub tunnel: Option<TunnelId>,
    /// The direct origin that serves the flow.
    pub direct_origin: Option<DirectOriginId>,
    /// The identity of the client.
    pub identity: Option<String>,
}

impl LiveFlow {
    /// Creates a flow that starts now.
    #[must_use]
    pub fn new(
        id: String,
        (organisation, socket, socket_name, transport): (AccountId, SocketId, SocketName, SocketType),
        client: SocketAddr,
        began: SystemTime,
    ) -> Self {
        Self {
            id,
            organisation,
            socket,
            socket_name,
            transport,
            client,
            began,
            bytes: AtomicU64::new(0),
            way: Mutex::default(),
            is_cut: AtomicBool::new(false),
            cut: Notify::new(),
        }
    }

    /// Origin and identity of the flow.
    #[must_use]
    pub fn way(&self) -> FlowRoute {
        self.way.lock().clone()
    }

    /// Sets the origin that serves the flow.
    pub fn goes_to(&self, origin: impl Into<OriginRef>) {
        let origin = origin.into();
        let mut way = self.way.lock();
        (way.tunnel, way.direct_origin) = (origin.tunnel(), origin.direct());
    }

    /// Sets the identity of the client.
    pub fn set_identity(&self, identity: String) {
        self.way.lock().identity = Some(identity);
    }

    /// Counts bytes.
    pub fn moved(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Whether the flow is to end.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Acquire)
    }

    /// Resolves when the flow is to end. Cancel safe.
    pub async fn until_cut(&self) {
        let mut cut = pin!(self.cut.notified());
        // Enabled before the check, so that no notification is lost in between.
        cut.as_mut().enable();
        if !self.is_cut() {
            cut.await;
        }
    }
}

/// A flow, ordered by id.
#[derive(Debug)]
struct ById(Arc<LiveFlow>);

impl Borrow<str> for ById {
    fn borrow(&self) -> &str {
        &self.0.id
    }
}

impl PartialEq for ById {
    fn eq(&self, other: &Self) -> bool {
        self.0.id == other.0.id
    }
}

impl Eq for ById {}

impl PartialOrd for ById {
    fn partial_cmp(&self, other: &Self) -> Option<Order> {
        Some(self.cmp(other))
    }
}

impl Ord for ById {
    fn cmp(&self, other: &Self) -> Order {
        self.0.id.cmp(&other.0.id)
    }
}

type Part = Mutex<BTreeSet<ById>>;

/// The running flows. Clones share the map.
#[derive(Clone, Debug, Default)]
pub struct LiveFlows {
    parts: Arc<[Part; PARTS]>,
}

impl LiveFlows {
    fn part(&self, id: &str) -> MutexGuard<'_, BTreeSet<ById>> {
        // Ids are random, so the last bytes select a part evenly.
        let part =
            id.bytes().rev().take(2).fold(0_usize, |sum, byte| sum.wrapping_mul(7).wrapping_add(usize::from(byte)));
        self.parts[part % PARTS].lock()
    }

    /// Adds the flow until the returned guard is dropped.
    #[must_use]
    pub fn begin(&self, flow: LiveFlow) -> FlowGuard {
        let flow = Arc::new(flow);
        self.part(&flow.id).insert(ById(flow.clone()));
        FlowGuard { flows: self.clone(), flow }
    }

    /// Flows of the organisation with ids after `after`, sorted by id, up to a limit; and whether there are more.
    #[must_use]
    pub fn of(&self, organisation: AccountId, after: &str, limit: usize) -> (Vec<Arc<LiveFlow>>, bool) {
        let mut found = Vec::new();
        for part in self.parts.iter() {
            let part = part.lock();
            let later = part.range::<str, _>((Bound::Excluded(after), Bound::Unbounded)).map(|ById(flow)| flow);
            found.extend(later.filter(|flow| flow.organisation == organisation).take(limit + 1).cloned());
        }
        found.sort_unstable_by(|a, b| a.id.cmp(&b.id));
        let has_more = found.len() > limit;
        found.truncate(limit);
        (found, has_more)
    }

    /// Ends a flow of the organisation; returns the flow if there was one.
    pub fn kill(&self, organisation: AccountId, id: &str) -> Option<Arc<LiveFlow>> {
        let part = self.part(id);
        let flow = part.get(id).map(|ById(flow)| flow).filter(|flow| flow.organisation == organisation).cloned()?;
        drop(part);
        flow.is_cut.store(true, Ordering::Release);
        flow.cut.notify_waiters();
        Some(flow)
    }

    /// Number of running flows.
    #[must_use]
    pub fn count(&self) -> usize {
        self.parts.iter().map(|part| part.lock().len()).sum()
    }
}

/// Keeps the flow in the map until dropped.
#[derive(Debug)]
pub struct FlowGuard {
    flows: LiveFlows,
    flow: Arc<LiveFlow>,
}

impl FlowGuard {
    /// The flow.
    #[must_use]
    pub fn flow(&self) -> &Arc<LiveFlow> {
        &self.flow
    }

    /// Resolves when the flow is to end. Cancel safe.
    pub fn cut(&self) -> impl Future<Output = ()> + Send + Sync + use<> {
        let flow = self.flow.clone();
        async move { flow.until_cut().await }
    }
}

impl Drop for FlowGuard {
    fn drop(&mut self) {
        self.flows.part(&self.flow.id).remove(self.flow.id.as_str());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(id: &str, organisation: u8) -> LiveFlow {
        let of = (
            AccountId::from_random([organisation; 16]),
            SocketId::from_random([1; 16]),
            "calm-bay-1000".parse().unwrap(),
            SocketType::Tcp,
        );
        LiveFlow::new(id.to_owned(), of, "192.0.2.1:1".parse().unwrap(), SystemTime::UNIX_EPOCH)
    }

    #[tokio::test]
    async fn flows_are_seen_while_they_run_and_ended_only_by_their_organisation() {
        let flows = LiveFlows::default();
        let ours = AccountId::from_random([1; 16]);
        let stays: Vec<_> = (0..50).map(|id| flows.begin(flow(&format!("{id:02}"), 1))).collect();
        let theirs = flows.begin(flow("99", 2));
        let (mut seen, mut after) = (Vec::new(), String::new());
        loop {
            let (page, has_more) = flows.of(ours, &after, 7);
            seen.extend(page.iter().map(|flow| flow.id.clone()));
            after.clone_from(&page.last().unwrap().id);
            if !has_more {
                break;
            }
        }
        assert_eq!(seen, (0..50).map(|id| format!("{id:02}")).collect::<Vec<_>>());
        assert!(flows.kill(ours, "99").is_none() && flows.kill(ours, "none").is_none());
        assert!(!theirs.flow().is_cut());
        assert!(flows.kill(ours, "07").is_some());
        stays[7].cut().await;
        assert!(stays[7].flow().is_cut() && !stays[8].flow().is_cut());
        drop(stays);
        assert_eq!((flows.count(), flows.of(ours, "", 10).0.len()), (1, 0));
    }
}
