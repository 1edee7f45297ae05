//! The driver of one association: reads and writes sockets, and keeps the timer.
//!
//! All work happens under one lock, in the task that has the occasion: a packet came, a datagram is to be sent, the
//! timer is due. After each, `settle` sends what may be sent, and wakes those that wait.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    io::{self, IoSliceMut},
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::Arc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use bytes::Bytes;
use parking_lot::Mutex;
use quinn::{
    AsyncUdpSocket, Runtime as _, TokioRuntime,
    udp::{RecvMeta, Transmit as UdpTransmit},
};
use sallyport_multipath::{
    Association, Config, Counts, Event, PathId, PathSettings, PathStats, SendError, Setup, Transmit,
};
use tokio::{sync::Notify, task::AbortHandle};

use crate::link::LinkSocket;

/// Bytes of received datagrams that wait for their reader. Further ones are dropped, as the kernel does it.
const MAX_INBOX_BYTES: usize = 8 * 1024 * 1024;
/// Tasks that wait for room in the send queue.
const MAX_WAITING_SENDERS: usize = 64;
/// The least time between two turns of the timer.
const MIN_WAIT: Duration = Duration::from_micros(250);
/// How many batches one read of a link takes, and the bytes of each.
const READ_BATCHES: usize = 8;
const READ_BYTES: usize = 65_536;
/// The most bytes of one batch to the kernel (UDP_SEGMENT).
const MAX_BATCH_BYTES: usize = 60_000;

/// What the sockets did, in numbers.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct DriverCounts {
    /// Batches that the kernel did not take, because its queue was full or the link had no route.
    pub unsent: u64,
    /// Datagrams dropped, because their reader was too slow.
    pub dropped: u64,
}

/// One path, for metrics and listings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathReport {
    /// The path.
    pub path: PathId,
    /// The name of the link; at the edge, `None`.
    pub link: Option<String>,
    /// The address from which packets of the path leave; at the edge, the one to which the peer sends.
    pub local: Option<IpAddr>,
    /// Where packets of the path go.
    pub remote: Option<SocketAddr>,
    /// The path in numbers.
    pub stats: PathStats,
}

/// One end of an association on its sockets. Its end closes the association.
pub struct Multipath {
    shared: Arc<Shared>,
    _timer: Task,
}

/// A task that ends with this value.
struct Task(AbortHandle);

impl Task {
    fn spawn(work: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(work).abort_handle())
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What the tasks of an association share.
pub(crate) struct Shared {
    state: Mutex<State>,
    /// The timer has to be set anew.
    rearm: Notify,
}

struct State {
    association: Association,
    routes: BTreeMap<PathId, Route>,
    /// The route of new paths at the edge, without an address.
    port: Option<Arc<dyn AsyncUdpSocket>>,
    /// When the timer fires.
    armed: Option<Instant>,
    inbox: VecDeque<Bytes>,
    inbox_bytes: usize,
    reader: Option<Waker>,
    senders: Vec<Waker>,
    counts: DriverCounts,
    is_closed: bool,
}

/// How packets of one path are sent.
struct Route {
    link: Option<String>,
    socket: Arc<dyn AsyncUdpSocket>,
    remote: SocketAddr,
    /// The last address at which the peer has answered a challenge, at the edge.
    trusted: Option<SocketAddr>,
    /// The source address.
    local: Option<IpAddr>,
    /// Reads the socket, at the connector.
    _reading: Option<Task>,
}

impl fmt::Debug for Multipath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Multipath").field("paths", &self.paths().len()).finish_non_exhaustive()
    }
}

impl Multipath {
    /// An association without paths. Must be called inside a tokio runtime.
    #[must_use]
    pub fn new(config: Config, setup: &Setup) -> Arc<Self> {
        Self::with_port(config, setup, None)
    }

    pub(crate) fn with_port(config: Config, setup: &Setup, port: Option<Arc<dyn AsyncUdpSocket>>) -> Arc<Self> {
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                association: Association::new(config, setup, Instant::now()),
                routes: BTreeMap::new(),
                port,
                armed: None,
                inbox: VecDeque::new(),
                inbox_bytes: 0,
                reader: None,
                senders: Vec::new(),
                counts: DriverCounts::default(),
                is_closed: false,
            }),
            rearm: Notify::new(),
        });
        let timer = Task::spawn(shared.clone().keep_time());
        Arc::new(Self { shared, _timer: timer })
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Adds a path by this link.
    ///
    /// # Errors
    /// The socket cannot be used, or the association takes no more paths.
    pub fn add_link(&self, link: LinkSocket) -> io::Result<PathId> {
        let LinkSocket { name, socket, remote, settings } = link;
        let local = socket.local_addr()?.ip();
        let socket = wrapped(socket)?;
        let now = Instant::now();
        let mut state = self.shared.state.lock();
        let path = state.association.add_path(settings, now).map_err(io::Error::other)?;
        let reading = Task::spawn(self.shared.clone().read(path, socket.clone()));
        let (link, local) = (Some(name), Some(local));
        let route = Route { link, socket, remote, trusted: None, local, _reading: Some(reading) };
        state.routes.insert(path, route);
        self.shared.settle(&mut state, now);
        Ok(path)
    }

    /// Changes how a path is used.
    pub fn set_path(&self, path: PathId, settings: PathSettings) {
        let now = Instant::now();
        let mut state = self.shared.state.lock();
        state.association.set_path(path, settings, now);
        self.shared.settle(&mut state, now);
    }

    /// Ends a path. What it carried goes by the others.
    pub fn remove_path(&self, path: PathId) {
        let now = Instant::now();
        let mut state = self.shared.state.lock();
        state.association.remove_path(path, now);
        self.shared.settle(&mut state, now);
        state.routes.remove(&path);
    }

    /// The paths, for metrics and listings.
    #[must_use]
    pub fn paths(&self) -> Vec<PathReport> {
        let state = self.shared.state.lock();
        let report = |path| {
            let route: Option<&Route> = state.routes.get(&path);
            let link = route.and_then(|route| route.link.clone());
            let (local, remote) = (route.and_then(|route| route.local), route.map(|route| route.remote));
            Some(PathReport { path, link, local, remote, stats: state.association.path_stats(path)? })
        };
        state.association.paths().filter_map(report).collect()
    }

    /// What the association did, in numbers.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.shared.state.lock().association.counts()
    }

    /// What the sockets did, in numbers.
    #[must_use]
    pub fn driver_counts(&self) -> DriverCounts {
        self.shared.state.lock().counts
    }

    /// Ends the association, and tells the peer.
    pub fn close(&self) {
        let now = Instant::now();
        let mut state = self.shared.state.lock();
        state.association.close(now);
        state.is_closed = true;
        self.shared.settle(&mut state, now);
    }
}

impl Drop for Multipath {
    fn drop(&mut self) {
        self.close();
        self.shared.state.lock().routes.clear();
    }
}

fn wrapped(socket: UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
    TokioRuntime.wrap_udp_socket(socket)
}

impl Shared {
    /// Does what is due, until the task is ended.
    async fn keep_time(self: Arc<Self>) {
        loop {
            let deadline = {
                let now = Instant::now();
                let mut state = self.state.lock();
                if state.association.poll_timeout().is_some_and(|at| at <= now) {
                    state.association.handle_timeout(now);
                }
                self.settle(&mut state, now);
                state.armed = state.association.poll_timeout();
                state.armed.map(|at| at.max(now + MIN_WAIT))
            };
            let due = async {
                match deadline {
                    Some(at) => tokio::time::sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = due => {}
                () = self.rearm.notified() => {}
            }
        }
    }

    /// Reads the socket of a link, until the task is ended or the socket fails.
    async fn read(self: Arc<Self>, path: PathId, socket: Arc<dyn AsyncUdpSocket>) {
        let mut memory = vec![0; READ_BATCHES * READ_BYTES];
        let mut meta = [RecvMeta::default(); READ_BATCHES];
        loop {
            let read = std::future::poll_fn(|cx| {
                let mut slices: Vec<_> = memory.chunks_mut(READ_BYTES).map(IoSliceMut::new).collect();
                socket.poll_recv(cx, &mut slices, &mut meta)
            });
            let Ok(received) = read.await.inspect_err(|error| tracing::debug!(?path, %error, "a link fails")) else {
                let now = Instant::now();
                let mut state = self.state.lock();
                state.association.remove_path(path, now);
                return self.settle(&mut state, now);
            };
            for (batch, meta) in memory.chunks_mut(READ_BYTES).zip(&meta).take(received) {
                self.receive(meta, batch.get_mut(..meta.len).unwrap_or_default());
            }
        }
    }

    /// Takes packets from one sender.
    pub(crate) fn receive(&self, meta: &RecvMeta, batch: &mut [u8]) {
        let now = Instant::now();
        let mut state = self.state.lock();
        for packet in batch.chunks_mut(meta.stride.max(1)) {
            let Ok(arrival) = state.association.handle(packet, now) else { continue };
            if arrival.is_newest {
                state.follow(arrival.path, meta, packet.len(), now);
            }
        }
        self.settle(&mut state, now);
    }

    /// Queues a datagram.
    pub(crate) fn send(&self, datagram: Bytes) -> io::Result<()> {
        let now = Instant::now();
        let mut state = self.state.lock();
        let queued = state.association.send(datagram, now);
        self.settle(&mut state, now);
        queued.map_err(|error| match error {
            SendError::Full => io::ErrorKind::WouldBlock.into(),
            error => io::Error::new(io::ErrorKind::ConnectionAborted, error),
        })
    }

    /// Waits for room in the send queue.
    pub(crate) fn poll_room(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.state.lock();
        if state.is_closed || state.association.has_room() {
            return Poll::Ready(Ok(()));
        }
        if !state.senders.iter().any(|waker| waker.will_wake(cx.waker())) {
            if state.senders.len() == MAX_WAITING_SENDERS {
                state.senders.drain(..).for_each(Waker::wake);
            }
            state.senders.push(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Waits for datagrams, and hands them to `take`, which returns false once it is full.
    pub(crate) fn poll_receive(&self, cx: &Context<'_>, mut take: impl FnMut(&Bytes) -> bool) -> Poll<io::Result<()>> {
        let mut state = self.state.lock();
        let mut has_taken = false;
        while let Some(datagram) = state.inbox.front() {
            if !take(datagram) {
                break;
            }
            state.inbox_bytes -= datagram.len();
            state.inbox.pop_front();
            has_taken = true;
        }
        if has_taken {
            return Poll::Ready(Ok(()));
        }
        if state.is_closed {
            let text = "the peer ended the association of paths";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionAborted, text)));
        }
        state.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Sends what may be sent, and wakes those that wait.
    fn settle(&self, state: &mut State, now: Instant) {
        state.flush(now);
        state.take_received();
        while let Some(event) = state.association.poll_event() {
            match event {
                Event::Closed => state.is_closed = true,
                Event::PathRemoved(path) => drop(state.routes.remove(&path)),
                Event::PathState(path, path_state) => tracing::debug!(?path, ?path_state, "a path has another state"),
                Event::PathOpened(_) | Event::Room => {}
            }
        }
        if state.is_closed || state.association.has_room() {
            state.senders.drain(..).for_each(Waker::wake);
        }
        if state.is_closed || !state.inbox.is_empty() {
            state.reader.take().into_iter().for_each(Waker::wake);
        }
        let next = state.association.poll_timeout();
        if next.is_some_and(|next| state.armed.is_none_or(|armed| next < armed)) {
            state.armed = next;
            self.rearm.notify_one();
        }
    }
}

impl State {
    /// Sends packets of the path to where its newest packet came from (at the edge). A new address is challenged first.
    fn follow(&mut self, path: PathId, meta: &RecvMeta, bytes: usize, now: Instant) {
        let Some(socket) = self.port.clone() else { return };
        let before = self.routes.get(&path).map(|route| (route.remote, route.trusted));
        let mut trusted = None;
        if let Some((remote, was_trusted)) = before {
            trusted = if self.association.is_validated(path) { Some(remote) } else { was_trusted };
        }
        if before.is_none_or(|(remote, _)| remote != meta.addr) {
            let mut challenge = [0; 8];
            if trusted == Some(meta.addr) {
                self.association.set_validated(path);
            } else if getrandom::fill(&mut challenge).is_ok() {
                self.association.validate(path, challenge, bytes, now);
            } else {
                return;
            }
        }
        let route = Route { link: None, socket, remote: meta.addr, trusted, local: meta.dst_ip, _reading: None };
        self.routes.insert(path, route);
    }

    fn take_received(&mut self) {
        while let Some(datagram) = self.association.receive() {
            if self.inbox_bytes + datagram.len() > MAX_INBOX_BYTES {
                self.counts.dropped += 1;
                continue;
            }
            self.inbox_bytes += datagram.len();
            self.inbox.push_back(datagram);
        }
    }

    /// Sends all packets that the association has, those of one path and length in one batch.
    fn flush(&mut self, now: Instant) {
        let mut batch: Option<Batch> = None;
        while let Some(transmit) = self.association.poll_transmit(now) {
            let transmit = match &mut batch {
                Some(batch) => match batch.add(transmit) {
                    None => continue,
                    Some(other) => other,
                },
                None => transmit,
            };
            let max_segments = self.routes.get(&transmit.path).map_or(1, |route| route.socket.max_transmit_segments());
            if let Some(before) = batch.replace(Batch::new(transmit, max_segments)) {
                self.transmit(&before);
            }
        }
        if let Some(last) = batch {
            self.transmit(&last);
        }
    }

    /// Sends a batch. A queue of the kernel that is full drops the batch like any other queue on the way: the model of
    /// the path learns of it.
    fn transmit(&mut self, batch: &Batch) {
        let Some(route) = self.routes.get(&batch.path) else { return };
        let transmit = UdpTransmit {
            destination: route.remote,
            ecn: None,
            contents: &batch.bytes,
            segment_size: (batch.bytes.len() > batch.segment_bytes).then_some(batch.segment_bytes),
            // The socket of a link is bound to its address.
            src_ip: route.local.filter(|_| route.link.is_none()),
        };
        if route.socket.try_send(&transmit).is_err() {
            self.counts.unsent += 1;
        }
    }
}

/// Packets of one path. All but the last have the same length.
struct Batch {
    path: PathId,
    bytes: Vec<u8>,
    segment_bytes: usize,
    /// How many more packets fit.
    room: usize,
}

impl Batch {
    fn new(first: Transmit, max_segments: usize) -> Self {
        let room = if first.is_probe { 0 } else { max_segments.saturating_sub(1) };
        Self { path: first.path, segment_bytes: first.bytes.len(), bytes: first.bytes, room }
    }

    /// Adds a packet; returns the packet if it does not fit.
    fn add(&mut self, next: Transmit) -> Option<Transmit> {
        let length = next.bytes.len();
        let fits = next.path == self.path
            && !next.is_probe
            && self.room > 0
            && length <= self.segment_bytes
            && self.bytes.len() + length <= MAX_BATCH_BYTES;
        if !fits {
            return Some(next);
        }
        self.bytes.extend_from_slice(&next.bytes);
        self.room = if length < self.segment_bytes { 0 } else { self.room - 1 };
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(path: u16, length: usize) -> Transmit {
        Transmit { path: PathId(path), bytes: vec![4; length], is_probe: false }
    }

    #[test]
    fn a_batch_has_one_path_and_one_length_and_a_shorter_packet_ends_it() {
        let mut batch = Batch::new(packet(1, 1_400), 8);
        assert!(batch.add(packet(2, 1_400)).is_some(), "another path");
        assert!(batch.add(packet(1, 1_401)).is_some(), "a longer packet");
        assert!(batch.add(Transmit { is_probe: true, ..packet(1, 1_400) }).is_some(), "a probe");
        assert_eq!(batch.add(packet(1, 1_400)), None);
        assert_eq!(batch.add(packet(1, 90)), None);
        assert!(batch.add(packet(1, 90)).is_some(), "a shorter packet is the last");
        assert_eq!((batch.bytes.len(), batch.segment_bytes), (2_890, 1_400));
    }

    #[test]
    fn a_batch_is_no_greater_than_the_kernel_takes() {
        let mut batch = Batch::new(packet(1, 1_400), 3);
        assert_eq!((batch.add(packet(1, 1_400)), batch.add(packet(1, 1_400))), (None, None));
        assert!(batch.add(packet(1, 1_400)).is_some(), "three segments");
        let mut batch = Batch::new(packet(1, 40_000), 8);
        assert!(batch.add(packet(1, 40_000)).is_some(), "more bytes than one batch has");
        let mut probe = Batch::new(Transmit { is_probe: true, ..packet(1, 1_400) }, 8);
        assert!(probe.add(packet(1, 1_400)).is_some(), "a probe travels alone");
    }
}
