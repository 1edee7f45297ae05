//! Where a datagram goes: to this socket, to another socket of this process, or to a former process.

use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use quinn::udp::RecvMeta;

use crate::{
    connection_id::{IdForm, IdKey, Place, ServerNumber},
    handover::Former,
    secret::QuicSecret,
    sharing::Sharing,
};

/// The most bytes that wait for one socket. Further datagrams are dropped, as the kernel does it.
const MAX_WAITING_BYTES: usize = 4 * 1024 * 1024;

/// A datagram, or several of one client and of equal length, that arrived at another socket.
#[derive(Debug)]
pub(crate) struct Routed {
    pub(crate) meta: RecvMeta,
    pub(crate) data: Bytes,
}

/// What was routed since the start, in datagrams or batches of them.
#[derive(Debug, Default)]
pub struct QuicCounts {
    /// To another socket of this process.
    pub to_other_sockets: AtomicU64,
    /// To a former process.
    pub to_former_processes: AtomicU64,
    /// From the process that took the port over.
    pub from_successor: AtomicU64,
    /// Clients that were asked to prove their address.
    pub retries: AtomicU64,
    /// Dropped, because the receiver was too slow.
    pub dropped: AtomicU64,
}

/// Datagrams from elsewhere that wait for a socket.
#[derive(Debug, Default)]
struct Inbox {
    waiting: VecDeque<Routed>,
    bytes: usize,
    waker: Option<Waker>,
}

/// The state that the sockets of one process share.
pub(crate) struct Router {
    pub(crate) secret: QuicSecret,
    pub(crate) key: Arc<IdKey>,
    pub(crate) generation: u16,
    /// The number of the server, behind a balancer.
    pub(crate) server: Option<ServerNumber>,
    inboxes: Vec<Mutex<Inbox>>,
    former: RwLock<Vec<Former>>,
    /// The protocol that shares the port with QUIC.
    sharing: OnceLock<Arc<dyn Sharing>>,
    /// Whether datagrams of other places can arrive at all.
    is_single: AtomicBool,
    /// Whether another process reads the sockets.
    is_replaced: AtomicBool,
    pub(crate) counts: Arc<QuicCounts>,
}

impl std::fmt::Debug for Router {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Router").field("generation", &self.generation).finish_non_exhaustive()
    }
}

impl Router {
    pub(crate) fn new(
        secret: QuicSecret,
        generation: u16,
        sockets: usize,
        former: Vec<Former>,
        server: Option<ServerNumber>,
    ) -> io::Result<Arc<Self>> {
        let key = Arc::new(IdKey::new(&secret)?);
        Ok(Arc::new(Self {
            secret,
            key,
            generation,
            server,
            inboxes: (0..sockets).map(|_| Mutex::default()).collect(),
            is_single: AtomicBool::new(sockets == 1 && former.is_empty()),
            former: RwLock::new(former),
            sharing: OnceLock::new(),
            is_replaced: AtomicBool::new(false),
            counts: Arc::default(),
        }))
    }

    pub(crate) fn set_sharing(&self, sharing: Arc<dyn Sharing>) {
        let _ = self.sharing.set(sharing);
    }

    /// Gives a batch to the protocol that shares the port, and returns whether the batch is of that protocol. What this
    /// process does not know is for former processes, unless the successor has sent it.
    pub(crate) fn share(&self, meta: &RecvMeta, data: &mut [u8], is_of_successor: bool) -> bool {
        let Some(sharing) = self.sharing.get().filter(|sharing| sharing.is_its(data)) else { return false };
        if sharing.receive(meta, data) || is_of_successor {
            return true;
        }
        for former in self.former.read().iter().filter(|former| !former.is_gone()) {
            self.counts.to_former_processes.fetch_add(1, Ordering::Relaxed);
            if !former.send(meta, data) {
                self.counts.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
        true
    }

    fn form(&self) -> IdForm {
        if self.server.is_some() { IdForm::Numbered } else { IdForm::Plain }
    }

    /// Whether another process reads the sockets.
    pub(crate) fn is_replaced(&self) -> bool {
        self.is_replaced.load(Ordering::Acquire)
    }

    /// Sets who reads the sockets, and wakes the readers.
    pub(crate) fn set_replaced(&self, is_replaced: bool) {
        if is_replaced {
            self.is_single.store(false, Ordering::Relaxed);
        }
        self.is_replaced.store(is_replaced, Ordering::Release);
        for inbox in &self.inboxes {
            if let Some(waker) = inbox.lock().waker.take() {
                waker.wake();
            }
        }
    }

    /// The former processes with connections.
    pub(crate) fn former(&self) -> Vec<Former> {
        self.former.read().iter().filter(|former| !former.is_gone()).cloned().collect()
    }

    /// Passes on what is not for socket number `socket`. Returns whether the batch is for this socket.
    pub(crate) fn is_for(&self, socket: u8, meta: &RecvMeta, data: &[u8]) -> bool {
        if self.is_single.load(Ordering::Relaxed) {
            return true;
        }
        let here = Place { generation: self.generation, socket };
        let mut datagrams = data.chunks(meta.stride.max(1));
        let form = self.form();
        let Some(first) = datagrams.next() else { return true };
        let Some(id) = form.destination(first) else { return true };
        // One client's datagrams have one ID, except for an instant after the client changes it.
        let is_one = datagrams.all(|datagram| form.destination(datagram) == Some(id));
        if is_one {
            return match self.key.place(form, first) {
                Some(place) if place != here => !self.pass_on(place, *meta, data),
                _ => true,
            };
        }
        let is_elsewhere = |datagram: &[u8]| {
            let place = self.key.place(form, datagram).filter(|place| *place != here)?;
            Some((place, RecvMeta { len: datagram.len(), stride: datagram.len(), ..*meta }))
        };
        if data.chunks(meta.stride.max(1)).all(|datagram| is_elsewhere(datagram).is_none()) {
            return true;
        }
        for datagram in data.chunks(meta.stride.max(1)) {
            let (place, meta) = is_elsewhere(datagram)
                .unwrap_or((here, RecvMeta { len: datagram.len(), stride: datagram.len(), ..*meta }));
            if !self.pass_on(place, meta, datagram) {
                self.deliver(usize::from(socket), meta, datagram);
            }
        }
        false
    }

    /// Passes a batch to another place. Returns whether the place is known.
    fn pass_on(&self, place: Place, meta: RecvMeta, data: &[u8]) -> bool {
        if place.generation == self.generation {
            self.counts.to_other_sockets.fetch_add(1, Ordering::Relaxed);
            return self.deliver(usize::from(place.socket), meta, data);
        }
        let former = self.former.read();
        let Some(former) = former.iter().find(|former| former.generation() == place.generation && !former.is_gone())
        else {
            // A read that was under way at the takeover can get a datagram for the next process, whose client sends it
            // again. The endpoint answers all others with a stateless reset.
            return self.is_replaced();
        };
        self.counts.to_former_processes.fetch_add(1, Ordering::Relaxed);
        if !former.send(&meta, data) {
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    /// Hands a batch from the process that took over to its socket.
    pub(crate) fn receive_from_successor(&self, meta: RecvMeta, data: &mut [u8]) {
        self.counts.from_successor.fetch_add(1, Ordering::Relaxed);
        if self.share(&meta, data, true) {
            return;
        }
        let place = self.key.place(self.form(), data);
        let socket = place.filter(|place| place.generation == self.generation).map_or(0, |place| place.socket);
        self.deliver(usize::from(socket), meta, data);
    }

    /// Puts a batch into the inbox of a socket. Returns whether there is such a socket.
    fn deliver(&self, socket: usize, meta: RecvMeta, data: &[u8]) -> bool {
        let Some(inbox) = self.inboxes.get(socket) else { return false };
        let mut inbox = inbox.lock();
        if inbox.bytes + data.len() > MAX_WAITING_BYTES {
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
            return true;
        }
        inbox.bytes += data.len();
        inbox.waiting.push_back(Routed { meta, data: Bytes::copy_from_slice(data) });
        let waker = inbox.waker.take();
        drop(inbox);
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }

    /// The next batch from elsewhere for this socket.
    pub(crate) fn poll_inbox(&self, socket: u8, cx: &Context<'_>) -> Poll<Routed> {
        let Some(inbox) = self.inboxes.get(usize::from(socket)) else { return Poll::Pending };
        let mut inbox = inbox.lock();
        match inbox.waiting.pop_front() {
            Some(routed) => {
                inbox.bytes = inbox.bytes.saturating_sub(routed.data.len());
                Poll::Ready(routed)
            }
            None => {
                inbox.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use quinn::ConnectionIdGenerator as _;

    use super::*;
    use crate::connection_id::Generator;

    #[test]
    fn a_datagram_for_the_next_process_is_dropped_at_the_former_one() {
        let router = Router::new(QuicSecret::from([1; 32]), 3, 1, Vec::new(), None).unwrap();
        let datagram_of = |generation| {
            let place = Place { generation, socket: 0 };
            let id = Generator { key: router.key.clone(), place, server: None }.generate_cid();
            [&[0x40], &id[..], &[0; 40]].concat()
        };
        let is_for = |generation| {
            let datagram = datagram_of(generation);
            let addr = "192.0.2.1:443".parse().unwrap();
            let meta = RecvMeta { addr, len: datagram.len(), stride: datagram.len(), ecn: None, dst_ip: None };
            router.is_for(0, &meta, &datagram)
        };
        assert!(is_for(3) && is_for(4), "the endpoint resets what it does not know");
        router.set_replaced(true);
        assert!(is_for(3) && !is_for(4), "a reset would end the connection at the next process");
        router.set_replaced(false);
        assert!(is_for(4), "there is no next process any more");
    }
}
