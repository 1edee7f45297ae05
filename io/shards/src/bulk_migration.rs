//! Bulk has threads of its own.
//!
//! The kernel shares out processors between threads: one that is busy all the time waits for its turn behind others that are,
//! and one that was idle has its turn as soon as it is woken. Where a shard carries bulk, everything else in it waits with it. So
//! a connection that carries much goes to a thread for bulk, and back to a shard when it does not any more.

use std::{
    cell::{Cell, RefCell},
    pin::Pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicU16, Ordering},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::{runtime::Handle, time::Sleep};

use crate::{Running, ShardId};

/// Each time so many bytes were carried it is looked how long they took. The first ones only start the clock: they may have
/// taken years.
const LOOK_BYTES: usize = 4 * 1024 * 1024;
/// What carries as many within this time is bulk: 84 MB/s, and more.
const BULK_WITHIN: Duration = Duration::from_millis(50);
/// What takes longer for as many is none any more: 4 MB/s, and less.
const BULK_NO_MORE_AFTER: Duration = Duration::from_secs(1);

thread_local! {
    /// What was carried in this thread.
    static CARRIED: Cell<usize> = const { Cell::new(0) };
    /// Where connections came from to this thread, which is for bulk.
    static HOME: RefCell<Weak<Running>> = const { RefCell::new(Weak::new()) };
}

/// The thread is for bulk of these.
pub(crate) fn come_from(home: Weak<Running>) {
    HOME.set(home);
}

/// Runs something that a connection leaves behind, in the caller's shard, or in another one where that is for bulk.
///
/// # Panics
/// Outside of a runtime.
pub fn spawn_near(work: impl Future<Output = ()> + Send + 'static) {
    let home = HOME.with_borrow(Weak::upgrade);
    match home.as_ref().and_then(|home| home.next()) {
        Some(shard) => drop(shard.handle.spawn(work)),
        None => drop(tokio::spawn(work)),
    }
}

/// The task that runs has carried so many bytes. It only counts; [`crate::carried`] gives others their turn, too.
pub fn weigh(bytes: usize) {
    CARRIED.set(CARRIED.get().wrapping_add(bytes));
}

/// How much a connection carries, and whether that makes it bulk.
#[derive(Debug, Clone, Copy, Default)]
struct Weight {
    is_bulk: bool,
    /// How many were carried since it was looked at.
    bytes: usize,
    /// When that was; none before the first time.
    since: Option<Instant>,
}

impl Weight {
    /// So many bytes more were carried.
    fn add(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// So many bytes more were carried, and it is looked at. True: it is bulk since now, or no more.
    fn judge(&mut self, bytes: usize, now: impl FnOnce() -> Instant) -> bool {
        self.add(bytes);
        let is_enough = self.bytes >= LOOK_BYTES;
        if !is_enough && !self.is_bulk {
            return false;
        }
        let now = now();
        let took = self.since.map_or(Duration::MAX, |since| now.saturating_duration_since(since));
        let changes = if self.is_bulk { took > BULK_NO_MORE_AFTER } else { took <= BULK_WITHIN };
        self.is_bulk ^= changes;
        if is_enough || changes {
            (self.bytes, self.since) = (0, Some(now));
        }
        changes
    }
}

/// What serves a connection.
pub type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Serves a connection where it is spawned, and among bulk while it is that. Whoever waits for it waits no longer than until
/// it has gone elsewhere. Connections that it has must go along (`ShardTcpStream` in `io/net`); timers stay where they were made, and
/// wake it from there.
pub(crate) struct BulkMigration {
    work: Option<Work>,
    weight: Weight,
    /// Where it goes. A connection does not keep the shards running.
    shards: Weak<Running>,
    among_bulk: Option<BulkState>,
}

/// What a connection has that is among bulk.
struct BulkState {
    _counted: BulkCount,
    /// When it is looked at, though nothing comes. Made where it is.
    look: Option<Pin<Box<Sleep>>>,
}

impl BulkMigration {
    pub(crate) fn new(shards: Weak<Running>, work: Work) -> Self {
        Self { work: Some(work), weight: Weight::default(), shards, among_bulk: None }
    }

    /// Goes on elsewhere, where there is a thread for it. What it waits for wakes nobody here any more: there it is looked
    /// at, and waits anew.
    fn go_elsewhere(&mut self) -> bool {
        if !self.weight.is_bulk && self.among_bulk.is_none() {
            // There was no thread for it when it was bulk: it has been in a shard all the time.
            return false;
        }
        let Some(running) = self.shards.upgrade() else { return false };
        let (shard, among_bulk) = if self.weight.is_bulk {
            (running.next_for_bulk(), Some(BulkState { _counted: BulkCount::new(&running), look: None }))
        } else {
            (running.next(), None)
        };
        let Some(shard) = shard else { return false };
        let work = self.work.take();
        shard.handle.spawn(Self { work, weight: self.weight, shards: self.shards.clone(), among_bulk });
        true
    }
}

impl Future for BulkMigration {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        // What comes to one that is bulk no more is not for this thread.
        if this.among_bulk.is_some() && this.weight.judge(0, Instant::now) && this.go_elsewhere() {
            return Poll::Ready(());
        }
        let Some(work) = &mut this.work else { return Poll::Ready(()) };
        let before = CARRIED.get();
        if work.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let carried = CARRIED.get().wrapping_sub(before);
        if let Some(among_bulk) = &mut this.among_bulk {
            this.weight.add(carried);
            among_bulk.poll_look(cx);
            return Poll::Pending;
        }
        if this.weight.judge(carried, Instant::now) && this.go_elsewhere() {
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

impl BulkState {
    /// Has it looked at again in a while.
    fn poll_look(&mut self, cx: &mut Context<'_>) {
        let look = self.look.get_or_insert_with(|| Box::pin(tokio::time::sleep(BULK_NO_MORE_AFTER)));
        while look.as_mut().poll(cx).is_ready() {
            look.as_mut().reset(tokio::time::Instant::now() + BULK_NO_MORE_AFTER);
        }
    }
}

/// Where a connection is, for tasks that belong to it.
#[derive(Debug, Default)]
pub struct ShardLocation {
    shard: AtomicU16,
    handle: Mutex<Option<Handle>>,
}

impl ShardLocation {
    /// The connection is in the caller's shard; to be said before it waits.
    pub fn mark_here(&self) {
        let here = ShardId::here();
        if self.shard.load(Ordering::Relaxed) != here.0
            && let Ok(handle) = Handle::try_current()
        {
            *self.handle.lock() = Some(handle);
            self.shard.store(here.0, Ordering::Release);
        }
    }

    /// Does the work in a task of the caller's, and goes on with it where the connection is. Then this is over before the
    /// work is.
    pub fn follow(self: &Arc<Self>, work: Work) -> impl Future<Output = ()> + Send + 'static {
        Follower { work: Some(work), leader: self.clone() }
    }
}

/// Goes where a connection is.
struct Follower {
    work: Option<Work>,
    leader: Arc<ShardLocation>,
}

impl Future for Follower {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let Some(work) = &mut this.work else { return Poll::Ready(()) };
        if work.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let shard = this.leader.shard.load(Ordering::Acquire);
        if shard == ShardId::here().0 || !ShardId(shard).is_shard() {
            return Poll::Pending;
        }
        let Some(there) = this.leader.handle.lock().clone() else {
            return Poll::Pending;
        };
        there.spawn(Self { work: this.work.take(), leader: this.leader.clone() });
        Poll::Ready(())
    }
}

/// One of those that are among bulk.
struct BulkCount(Weak<Running>);

impl BulkCount {
    fn new(running: &Arc<Running>) -> Self {
        running.carrying_bulk.fetch_add(1, Ordering::Relaxed);
        Self(Arc::downgrade(running))
    }
}

impl Drop for BulkCount {
    fn drop(&mut self) {
        if let Some(running) = self.0.upgrade() {
            running.carrying_bulk.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use tokio::sync::mpsc;

    use super::*;
    use crate::Shards;

    const PIECE: usize = 256 * 1024;

    /// Carries so many pieces, one each so often; says after how many of them it became another kind.
    fn carries(weight: &mut Weight, pieces: usize, each: Duration, now: &mut Instant) -> Option<usize> {
        (1..=pieces).find(|_| {
            *now += each;
            weight.judge(PIECE, || *now)
        })
    }

    #[test]
    fn what_carries_much_in_a_short_time_is_bulk_and_what_takes_long_for_it_is_not() {
        let (mut weight, mut now) = (Weight::default(), Instant::now());
        // 80 MB/s, for as long as it likes.
        assert_eq!(carries(&mut weight, 100_000, Duration::from_micros(3_280), &mut now), None);
        now += Duration::from_secs(3_600);
        let after = carries(&mut weight, 100, Duration::from_millis(1), &mut now).unwrap();
        assert!((17..=32).contains(&after), "a pause does not count for what comes behind it, {after}");
        // 5 MB/s, and for up to a second nothing at all.
        assert_eq!(carries(&mut weight, 1_000, Duration::from_millis(50), &mut now), None);
        now += Duration::from_millis(300);
        assert_eq!(carries(&mut weight, 1_000, Duration::from_millis(10), &mut now), None);
        assert_eq!(carries(&mut weight, 100, Duration::from_millis(100), &mut now), Some(11));
        assert!(!weight.is_bulk);
    }

    #[test]
    fn who_carries_little_looks_at_no_clock() {
        let mut weight = Weight::default();
        for _ in 0..LOOK_BYTES / 2 - 1 {
            assert!(!weight.judge(2, || panic!("it is no time to look")));
        }
    }

    /// Carries so much, each time that it is told to, and says in which shard that was.
    fn spawn_carrying(shards: &Shards) -> (mpsc::UnboundedSender<usize>, mpsc::UnboundedReceiver<ShardId>) {
        let (tell, mut told) = mpsc::unbounded_channel();
        let (say, said) = mpsc::unbounded_channel();
        let work = shards.by_weight(Box::pin(async move {
            while let Some(bytes) = told.recv().await {
                weigh(bytes);
                say.send(ShardId::here()).unwrap();
                tokio::task::yield_now().await;
            }
        }));
        shards.spawn(work);
        (tell, said)
    }

    #[tokio::test]
    async fn bulk_goes_to_a_thread_for_it_and_comes_back_when_it_is_none_any_more() {
        let shards = Shards::start(NonZeroU16::new(2).unwrap()).unwrap();
        let (tell, mut said) = spawn_carrying(&shards);
        let mut was_in = async |bytes| {
            tell.send(bytes).unwrap();
            tokio::time::timeout(Duration::from_secs(20), said.recv()).await.unwrap().unwrap()
        };
        assert_eq!(shards.carrying_bulk(), 0);
        assert!(!was_in(LOOK_BYTES).await.is_for_bulk(), "nobody knows yet how long it took");
        // A slow machine may take too long for it, but not each time.
        for round in 0.. {
            if was_in(LOOK_BYTES).await.is_for_bulk() {
                break;
            }
            assert!(round < 1_000, "it is never taken for bulk");
        }
        assert_eq!(shards.carrying_bulk(), 1);
        // Nothing comes for it, and nobody asks.
        let began = Instant::now();
        while shards.carrying_bulk() > 0 {
            assert!(began.elapsed() < Duration::from_secs(20), "it stays among bulk");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(!was_in(1).await.is_for_bulk());
        drop(tell);
        assert_eq!(tokio::time::timeout(Duration::from_secs(20), said.recv()).await.unwrap(), None);
    }

    #[tokio::test]
    async fn what_is_spawned_near_bulk_is_not_among_it() {
        let shards = Shards::start(NonZeroU16::MIN).unwrap();
        let (say, mut said) = mpsc::unbounded_channel();
        shards.spawn(shards.by_weight(Box::pin(async move {
            loop {
                weigh(LOOK_BYTES);
                tokio::task::yield_now().await;
                if ShardId::here().is_for_bulk() {
                    spawn_near(async move { say.send(ShardId::here()).unwrap() });
                    return;
                }
            }
        })));
        let there = tokio::time::timeout(Duration::from_secs(20), said.recv()).await.unwrap().unwrap();
        assert!(there.is_shard() && !there.is_for_bulk());
    }

    #[tokio::test]
    async fn what_came_back_is_not_looked_at_among_bulk() {
        let shards = Shards::start(NonZeroU16::MIN).unwrap();
        let (tell, mut said) = spawn_carrying(&shards);
        while shards.carrying_bulk() == 0 {
            tell.send(LOOK_BYTES).unwrap();
            said.recv().await.unwrap();
        }
        // The test's thread holds nobody up: it sleeps for longer than bulk may take.
        std::thread::sleep(BULK_NO_MORE_AFTER + Duration::from_millis(100));
        tell.send(1).unwrap();
        assert!(!said.recv().await.unwrap().is_for_bulk());
    }

    #[tokio::test]
    async fn tasks_of_a_connection_go_where_it_is() {
        let shards = Shards::start(NonZeroU16::new(2).unwrap()).unwrap();
        let place = Arc::new(ShardLocation::default());
        let (ask, mut asked) = mpsc::unbounded_channel::<()>();
        let (say, mut said) = mpsc::unbounded_channel();
        let follower = place.follow(Box::pin(async move {
            while let Some(()) = asked.recv().await {
                say.send(ShardId::here()).unwrap();
            }
        }));
        shards.spawn(follower);
        let mut is_in = async || {
            ask.send(()).unwrap();
            tokio::time::timeout(Duration::from_secs(20), said.recv()).await.unwrap().unwrap()
        };
        let first = is_in().await;
        assert_eq!(is_in().await, first, "nobody has said where it is to be");
        let (here, is_here) = tokio::sync::oneshot::channel();
        let leader = place.clone();
        shards.spawn(async move {
            leader.mark_here();
            here.send(ShardId::here()).unwrap();
        });
        let there = is_here.await.unwrap();
        assert_ne!(there, first);
        // It goes after it was woken, which may have been for several of these.
        let began = Instant::now();
        while is_in().await != there {
            assert!(began.elapsed() < Duration::from_secs(20), "it stays behind");
        }
        assert_eq!(is_in().await, there);
    }

    #[tokio::test]
    async fn where_there_are_no_shards_bulk_stays() {
        let shards = Shards::default();
        let (tell, mut said) = spawn_carrying(&shards);
        for _ in 0..10 {
            tell.send(LOOK_BYTES).unwrap();
            assert!(!said.recv().await.unwrap().is_shard());
        }
        assert_eq!(shards.carrying_bulk(), 0);
    }

    #[tokio::test]
    async fn bulk_ends_with_the_last_handle() {
        let shards = Shards::start(NonZeroU16::MIN).unwrap();
        let (tell, mut said) = spawn_carrying(&shards);
        while shards.carrying_bulk() == 0 {
            tell.send(LOOK_BYTES).unwrap();
            said.recv().await.unwrap();
        }
        drop(shards);
        assert_eq!(tokio::time::timeout(Duration::from_secs(20), said.recv()).await.unwrap(), None);
    }
}
