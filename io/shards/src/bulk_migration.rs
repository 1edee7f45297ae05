//! Moves connections with bulk traffic to threads of their own, and back.
//!
//! The kernel divides CPU time between threads. A thread that is always busy waits for its turn, and an idle one runs
//! as soon as it is woken. Bulk traffic in a shard therefore delays every other connection there. So a connection with
//! much traffic moves to a bulk thread, and returns to a shard once its rate drops.

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

/// Bytes after which the rate is checked. The first ones only start the clock: they may have taken years.
const LOOK_BYTES: usize = 4 * 1024 * 1024;
/// A connection that moves [`LOOK_BYTES`] within this time is bulk: 84 MB/s or more.
const BULK_WITHIN: Duration = Duration::from_millis(50);
/// A connection that takes longer for [`LOOK_BYTES`] is no longer bulk: 4 MB/s or less.
const BULK_NO_MORE_AFTER: Duration = Duration::from_secs(1);

thread_local! {
    /// Bytes moved in this thread by the current task.
    static CARRIED: Cell<usize> = const { Cell::new(0) };
    /// In a bulk thread: the shards that its connections came from.
    static HOME: RefCell<Weak<Running>> = const { RefCell::new(Weak::new()) };
}

/// Marks the current thread as a bulk thread of these shards.
pub(crate) fn come_from(home: Weak<Running>) {
    HOME.set(home);
}

/// Spawns work that outlives a connection: in the caller's shard, or in a normal shard if the caller runs in a bulk
/// thread.
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

/// Counts bytes moved by the current task. Only counts; [`crate::carried`] also yields to other tasks.
pub fn weigh(bytes: usize) {
    CARRIED.set(CARRIED.get().wrapping_add(bytes));
}

/// The rate of a connection, and whether it is bulk.
#[derive(Debug, Clone, Copy, Default)]
struct Weight {
    is_bulk: bool,
    /// Bytes since the last check.
    bytes: usize,
    /// Time of the last check; `None` before the first.
    since: Option<Instant>,
}

impl Weight {
    /// Counts bytes.
    fn add(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Counts bytes and checks the rate when due. True: the connection has become bulk, or has stopped being bulk.
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

/// The future that serves a connection.
pub type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Serves a connection where it was spawned, and in a bulk thread while it is bulk. The future ends when the connection
/// moves away. The connection's sockets must move along (`ShardTcpStream` in `io/net`); timers stay with their old
/// thread and wake the connection from there.
pub(crate) struct BulkMigration {
    work: Option<Work>,
    weight: Weight,
    /// The shards to move to. A connection does not keep the shards running.
    shards: Weak<Running>,
    among_bulk: Option<BulkState>,
}

/// State of a connection in a bulk thread.
struct BulkState {
    _counted: BulkCount,
    /// Timer of the next check, for a connection without traffic. Created in the bulk thread.
    look: Option<Pin<Box<Sleep>>>,
}

impl BulkMigration {
    pub(crate) fn new(shards: Weak<Running>, work: Work) -> Self {
        Self { work: Some(work), weight: Weight::default(), shards, among_bulk: None }
    }

    /// Moves the connection, if there is a thread for it. Pending wake-ups of the old thread are void: the new thread
    /// polls the connection, which registers again.
    fn go_elsewhere(&mut self) -> bool {
        if !self.weight.is_bulk && self.among_bulk.is_none() {
            // No bulk thread was available when it became bulk: it has stayed in a shard.
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
        // A connection that is no longer bulk must leave this thread.
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
    /// Sets the timer of the next check.
    fn poll_look(&mut self, cx: &mut Context<'_>) {
        let look = self.look.get_or_insert_with(|| Box::pin(tokio::time::sleep(BULK_NO_MORE_AFTER)));
        while look.as_mut().poll(cx).is_ready() {
            look.as_mut().reset(tokio::time::Instant::now() + BULK_NO_MORE_AFTER);
        }
    }
}

/// The current shard of a connection, for other tasks of the connection.
#[derive(Debug, Default)]
pub struct ShardLocation {
    shard: AtomicU16,
    handle: Mutex<Option<Handle>>,
}

impl ShardLocation {
    /// Records that the connection is in the caller's shard; call before the connection waits.
    pub fn mark_here(&self) {
        let here = ShardId::here();
        if self.shard.load(Ordering::Relaxed) != here.0
            && let Ok(handle) = Handle::try_current()
        {
            *self.handle.lock() = Some(handle);
            self.shard.store(here.0, Ordering::Release);
        }
    }

    /// Runs the work in the caller's task, and moves the work after the connection. The returned future ends at the
    /// first move.
    pub fn follow(self: &Arc<Self>, work: Work) -> impl Future<Output = ()> + Send + 'static {
        Follower { work: Some(work), leader: self.clone() }
    }
}

/// Moves work to the shard of a connection.
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

/// Counts a connection as bulk until dropped.
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

    /// Moves `pieces` pieces, one per `each`; returns after how many of them the kind changed.
    fn carries(weight: &mut Weight, pieces: usize, each: Duration, now: &mut Instant) -> Option<usize> {
        (1..=pieces).find(|_| {
            *now += each;
            weight.judge(PIECE, || *now)
        })
    }

    #[test]
    fn what_carries_much_in_a_short_time_is_bulk_and_what_takes_long_for_it_is_not() {
        let (mut weight, mut now) = (Weight::default(), Instant::now());
        // 80 MB/s, for any time.
        assert_eq!(carries(&mut weight, 100_000, Duration::from_micros(3_280), &mut now), None);
        now += Duration::from_secs(3_600);
        let after = carries(&mut weight, 100, Duration::from_millis(1), &mut now).unwrap();
        assert!((17..=32).contains(&after), "a pause does not count for what comes behind it, {after}");
        // 5 MB/s, with pauses of up to a second.
        assert_eq!(carries(&mut weight, 1_000, Duration::from_millis(50), &mut now), None);
        now += Duration::from_millis(300);
        assert_eq!(carries(&mut weight, 1_000, Duration::from_millis(10), &mut now), None);
        assert_eq!(carries(&mut weight, 100, Duration::from_millis(100), &mut now), Some(11));
        assert!(!weight.is_bulk);
    }

    #[test]
    fn a_task_that_carries_few_bytes_reads_no_clock() {
        let mut weight = Weight::default();
        for _ in 0..LOOK_BYTES / 2 - 1 {
            assert!(!weight.judge(2, || panic!("it is no time to look")));
        }
    }

    /// Spawns work that moves the requested number of bytes on each request, and reports its shard.
    fn spawn_carrying(shards: &Shards) -> (mpsc::UnboundedSender<usize>, mpsc::UnboundedReceiver<ShardId>) {
        let (request, mut requests) = mpsc::unbounded_channel();
        let (report, reports) = mpsc::unbounded_channel();
        let work = shards.by_weight(Box::pin(async move {
            while let Some(bytes) = requests.recv().await {
                weigh(bytes);
                report.send(ShardId::here()).unwrap();
                tokio::task::yield_now().await;
            }
        }));
        shards.spawn(work);
        (request, reports)
    }

    #[tokio::test]
    async fn bulk_goes_to_a_thread_for_it_and_comes_back_when_it_is_none_any_more() {
        let shards = Shards::start(NonZeroU16::new(2).unwrap()).unwrap();
        let (request, mut reports) = spawn_carrying(&shards);
        let mut was_in = async |bytes| {
            request.send(bytes).unwrap();
            tokio::time::timeout(Duration::from_secs(20), reports.recv()).await.unwrap().unwrap()
        };
        assert_eq!(shards.carrying_bulk(), 0);
        assert!(!was_in(LOOK_BYTES).await.is_for_bulk(), "the rate is not known yet");
        // A slow machine may be too slow at first, but not every time.
        for round in 0.. {
            if was_in(LOOK_BYTES).await.is_for_bulk() {
                break;
            }
            assert!(round < 1_000, "never recognised as bulk");
        }
        assert_eq!(shards.carrying_bulk(), 1);
        // No bytes arrive, and no check is requested.
        let began = Instant::now();
        while shards.carrying_bulk() > 0 {
            assert!(began.elapsed() < Duration::from_secs(20), "still bulk");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(!was_in(1).await.is_for_bulk());
        drop(request);
        assert_eq!(tokio::time::timeout(Duration::from_secs(20), reports.recv()).await.unwrap(), None);
    }

    #[tokio::test]
    async fn what_is_spawned_near_bulk_is_not_among_it() {
        let shards = Shards::start(NonZeroU16::MIN).unwrap();
        let (report, mut reports) = mpsc::unbounded_channel();
        shards.spawn(shards.by_weight(Box::pin(async move {
            loop {
                weigh(LOOK_BYTES);
                tokio::task::yield_now().await;
                if ShardId::here().is_for_bulk() {
                    spawn_near(async move { report.send(ShardId::here()).unwrap() });
                    return;
                }
            }
        })));
        let there = tokio::time::timeout(Duration::from_secs(20), reports.recv()).await.unwrap().unwrap();
        assert!(there.is_shard() && !there.is_for_bulk());
    }

    #[tokio::test]
    async fn what_came_back_is_not_looked_at_among_bulk() {
        let shards = Shards::start(NonZeroU16::MIN).unwrap();
        let (request, mut reports) = spawn_carrying(&shards);
        while shards.carrying_bulk() == 0 {
            request.send(LOOK_BYTES).unwrap();
            reports.recv().await.unwrap();
        }
        // The test's thread blocks no other work: it sleeps for longer than bulk may take.
        std::thread::sleep(BULK_NO_MORE_AFTER + Duration::from_millis(100));
        request.send(1).unwrap();
        assert!(!reports.recv().await.unwrap().is_for_bulk());
    }

    #[tokio::test]
    async fn tasks_of_a_connection_go_where_it_is() {
        let shards = Shards::start(NonZeroU16::new(2).unwrap()).unwrap();
        let place = Arc::new(ShardLocation::default());
        let (ask, mut asked) = mpsc::unbounded_channel::<()>();
        let (report, mut reports) = mpsc::unbounded_channel();
        let follower = place.follow(Box::pin(async move {
            while let Some(()) = asked.recv().await {
                report.send(ShardId::here()).unwrap();
            }
        }));
        shards.spawn(follower);
        let mut is_in = async || {
            ask.send(()).unwrap();
            tokio::time::timeout(Duration::from_secs(20), reports.recv()).await.unwrap().unwrap()
        };
        let first = is_in().await;
        assert_eq!(is_in().await, first, "no location was recorded");
        let (here, is_here) = tokio::sync::oneshot::channel();
        let leader = place.clone();
        shards.spawn(async move {
            leader.mark_here();
            here.send(ShardId::here()).unwrap();
        });
        let there = is_here.await.unwrap();
        assert_ne!(there, first);
        // The work moves after a wake-up, which may count for several marks.
        let began = Instant::now();
        while is_in().await != there {
            assert!(began.elapsed() < Duration::from_secs(20), "the work did not follow");
        }
        assert_eq!(is_in().await, there);
    }

    #[tokio::test]
    async fn where_there_are_no_shards_bulk_stays() {
        let shards = Shards::default();
        let (request, mut reports) = spawn_carrying(&shards);
        for _ in 0..10 {
            request.send(LOOK_BYTES).unwrap();
            assert!(!reports.recv().await.unwrap().is_shard());
        }
        assert_eq!(shards.carrying_bulk(), 0);
    }

    #[tokio::test]
    async fn bulk_ends_with_the_last_handle() {
        let shards = Shards::start(NonZeroU16::MIN).unwrap();
        let (request, mut reports) = spawn_carrying(&shards);
        while shards.carrying_bulk() == 0 {
            request.send(LOOK_BYTES).unwrap();
            reports.recv().await.unwrap();
        }
        drop(shards);
        assert_eq!(tokio::time::timeout(Duration::from_secs(20), reports.recv()).await.unwrap(), None);
    }
}
