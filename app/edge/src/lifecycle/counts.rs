//! Bounds on connections and on unfinished handshakes, in all and for each address.

use std::{
    collections::{HashMap, VecDeque},
    net::{IpAddr, Ipv6Addr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

/// How many handshakes may be unfinished at once, in all.
const MAX_HANDSHAKES: usize = 8_192;
/// How many handshakes of one address may be unfinished at once. Beyond, the oldest is dropped: an honest handshake
/// takes milliseconds, so silent connections displace only each other.
const MAX_HANDSHAKES_PER_ADDRESS: usize = 1_024;
/// How many ssh clients may be logging in, in all and from one address; beyond, the oldest is dropped. Fewer than the
/// connections that the ssh server accepts, so that such clients cannot displace those that have logged in.
const MAX_SSH_LOGINS: usize = 512;
const MAX_SSH_LOGINS_PER_ADDRESS: usize = 32;

/// The part of an address that one party controls: an IPv4 address, or the first 64 bits of an IPv6 address.
pub(crate) fn party(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(six) => {
            let [a, b, c, d, ..] = six.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        four => four,
    }
}

/// The unfinished handshakes.
#[derive(Debug)]
pub(crate) struct Handshakes {
    max: usize,
    max_per_address: usize,
    waiting: Mutex<Waiting>,
    /// Notified when the last one ends.
    ended: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    by_party: HashMap<IpAddr, VecDeque<(u64, oneshot::Sender<()>)>>,
    total: usize,
    next: u64,
}

/// The place of an unfinished handshake, released when dropped.
#[derive(Debug)]
pub(crate) struct HandshakePlace {
    list: Arc<Handshakes>,
    party: IpAddr,
    number: u64,
    pushed_out: oneshot::Receiver<()>,
}

impl Default for Handshakes {
    fn default() -> Self {
        Self::new(MAX_HANDSHAKES, MAX_HANDSHAKES_PER_ADDRESS)
    }
}

impl Handshakes {
    fn new(max: usize, max_per_address: usize) -> Self {
        Self { max, max_per_address, waiting: Mutex::default(), ended: Notify::new() }
    }

    /// For ssh clients. Their handshake ends with the login.
    pub(crate) fn of_ssh() -> Self {
        Self::new(MAX_SSH_LOGINS, MAX_SSH_LOGINS_PER_ADDRESS)
    }

    /// The bound in all.
    pub(crate) fn max(&self) -> usize {
        self.max
    }

    /// A place for one more handshake; the oldest one gives way if a bound is reached.
    pub(crate) fn enter(self: &Arc<Self>, address: IpAddr) -> HandshakePlace {
        let party = party(address);
        let (sender, pushed_out) = oneshot::channel();
        let mut waiting = self.waiting.lock();
        if waiting.by_party.get(&party).map_or(0, VecDeque::len) >= self.max_per_address {
            waiting.push_out_oldest(party);
        } else if waiting.total >= self.max {
            let busiest = waiting.by_party.iter().max_by_key(|(_, queue)| queue.len()).map(|(party, _)| *party);
            if let Some(busiest) = busiest {
                waiting.push_out_oldest(busiest);
            }
        }
        let number = waiting.next;
        waiting.next += 1;
        waiting.total += 1;
        waiting.by_party.entry(party).or_default().push_back((number, sender));
        HandshakePlace { list: self.clone(), party, number, pushed_out }
    }

    /// Resolves when no handshake is unfinished.
    pub(crate) async fn none_left(&self) {
        loop {
            let ended = self.ended.notified();
            if self.len() == 0 {
                return;
            }
            ended.await;
        }
    }

    /// How many handshakes are unfinished.
    pub(crate) fn len(&self) -> usize {
        self.waiting.lock().total
    }
}

impl Waiting {
    fn push_out_oldest(&mut self, party: IpAddr) {
        if let Some((_, sender)) = self.by_party.get_mut(&party).and_then(VecDeque::pop_front) {
            self.total -= 1;
            let _ = sender.send(());
        }
    }
}

impl HandshakePlace {
    /// Resolves when a newer handshake has displaced this one.
    pub(crate) async fn pushed_out(&mut self) {
        let _ = (&mut self.pushed_out).await;
    }
}

impl Drop for HandshakePlace {
    fn drop(&mut self) {
        let mut waiting = self.list.waiting.lock();
        let Some(queue) = waiting.by_party.get_mut(&self.party) else { return };
        let place = queue.binary_search_by_key(&self.number, |(number, _)| *number).ok();
        let removed = place.and_then(|at| queue.remove(at)).is_some();
        if queue.is_empty() {
            waiting.by_party.remove(&self.party);
        }
        if removed {
            waiting.total -= 1;
        }
        if waiting.total == 0 {
            self.list.ended.notify_waiters();
        }
    }
}

/// The open connections.
#[derive(Debug)]
pub(crate) struct Connections {
    max: usize,
    max_per_party: usize,
    by_party: Mutex<HashMap<IpAddr, usize>>,
    open: AtomicUsize,
}

/// The place of an open connection, released when dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPlace {
    list: Arc<Connections>,
    party: IpAddr,
}

impl Connections {
    /// Room for `max` connections, and for `max_per_party` of one address.
    pub(crate) fn new(max: usize, max_per_party: usize) -> Arc<Self> {
        Arc::new(Self { max, max_per_party, by_party: Mutex::default(), open: AtomicUsize::new(0) })
    }

    /// A place for one more connection; `None` if a bound is reached.
    pub(crate) fn enter(self: &Arc<Self>, address: IpAddr) -> Option<ConnectionPlace> {
        let party = party(address);
        let mut by_party = self.by_party.lock();
        let count = by_party.get(&party).copied().unwrap_or(0);
        if count >= self.max_per_party || self.open.load(Ordering::Relaxed) >= self.max {
            return None;
        }
        by_party.insert(party, count + 1);
        self.open.fetch_add(1, Ordering::Relaxed);
        Some(ConnectionPlace { list: self.clone(), party })
    }

    /// How many connections are open.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        let mut by_party = self.list.by_party.lock();
        if let Some(count) = by_party.get_mut(&self.party) {
            *count -= 1;
            if *count == 0 {
                by_party.remove(&self.party);
            }
        }
        self.list.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts running work, so that a shutdown can wait for its end.
#[derive(Debug, Clone, Default)]
pub(crate) struct Running {
    shared: Arc<RunningShared>,
}

#[derive(Debug, Default)]
struct RunningShared {
    count: AtomicUsize,
    ended: Notify,
}

/// A piece of running work, counted until dropped.
#[derive(Debug)]
pub(crate) struct RunningGuard(Arc<RunningShared>);

impl Running {
    /// Counts one more.
    pub(crate) fn enter(&self) -> RunningGuard {
        self.shared.count.fetch_add(1, Ordering::AcqRel);
        RunningGuard(self.shared.clone())
    }

    /// How many run.
    pub(crate) fn count(&self) -> usize {
        self.shared.count.load(Ordering::Acquire)
    }

    /// Resolves when nothing runs.
    pub(crate) async fn none_left(&self) {
        loop {
            let ended = self.shared.ended.notified();
            if self.count() == 0 {
                return;
            }
            ended.await;
        }
    }
}

impl Drop for RunningGuard {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.ended.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::{Future as _, poll_fn},
        pin::pin,
        task::Poll,
    };

    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[tokio::test]
    async fn the_oldest_handshake_of_the_same_address_makes_room() {
        let list = Arc::new(Handshakes::default());
        let mut places: Vec<_> = (0..MAX_HANDSHAKES_PER_ADDRESS).map(|_| list.enter(address(1))).collect();
        let other = list.enter(address(2));
        let newest = list.enter(address(1));
        places[0].pushed_out().await;
        assert_eq!(list.len(), MAX_HANDSHAKES_PER_ADDRESS + 1);
        drop((places, other, newest));
        assert_eq!(list.len(), 0);
        assert!(list.waiting.lock().by_party.is_empty());
    }

    #[tokio::test]
    async fn where_all_places_are_taken_the_address_with_most_gives_one_away() {
        let list = Arc::new(Handshakes::new(4, 3));
        let mut of_one: Vec<_> = (0..3).map(|_| list.enter(address(1))).collect();
        let mut of_two = list.enter(address(2));
        let mut newest = list.enter(address(3));
        of_one[0].pushed_out().await;
        for place in [&mut of_one[1], &mut of_two, &mut newest] {
            assert!(poll_fn(|cx| Poll::Ready(pin!(place.pushed_out()).poll(cx).is_pending())).await);
        }
        assert_eq!(list.len(), 4);
    }

    #[tokio::test]
    async fn waiting_ends_with_the_last_handshake() {
        let list = Arc::new(Handshakes::default());
        list.none_left().await;
        let (one, other) = (list.enter(address(1)), list.enter(address(2)));
        let wait = tokio::spawn({
            let list = list.clone();
            async move { list.none_left().await }
        });
        drop(one);
        tokio::task::yield_now().await;
        assert!(!wait.is_finished());
        drop(other);
        wait.await.unwrap();
    }

    #[test]
    fn connections_are_bounded_in_all_and_for_each_address() {
        let list = Connections::new(3, 2);
        let first = list.enter(address(1)).unwrap();
        let _second = list.enter(address(1)).unwrap();
        assert!(list.enter(address(1)).is_none(), "two of one address are all");
        let _third = list.enter(address(2)).unwrap();
        assert!(list.enter(address(3)).is_none(), "three are all");
        drop(first);
        assert!(list.enter(address(1)).is_some());
    }

    #[test]
    fn an_ipv6_network_is_one_party() {
        let one: IpAddr = "2001:db8::1".parse().unwrap();
        let two: IpAddr = "2001:db8::ffff:2".parse().unwrap();
        let other: IpAddr = "2001:db8:0:1::1".parse().unwrap();
        assert_eq!(party(one), party(two));
        assert_ne!(party(one), party(other));
        assert_eq!(party("::ffff:192.0.2.1".parse().unwrap()), address(1));
    }

    #[tokio::test]
    async fn waiting_ends_with_the_last_that_runs() {
        let running = Running::default();
        let guard = running.enter();
        let wait = tokio::spawn({
            let running = running.clone();
            async move { running.none_left().await }
        });
        tokio::task::yield_now().await;
        assert!(!wait.is_finished());
        drop(guard);
        wait.await.unwrap();
    }
}
