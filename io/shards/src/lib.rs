//! Shards: threads that serve connections, each with its own single-threaded scheduler and event queue.
//!
//! A multi-threaded scheduler moves tasks between threads: one thread waits for events while another runs the task, so
//! that a busy connection keeps waking a second CPU. In a shard, everything that a connection needs happens in one
//! thread. Connections are distributed round robin and stay in their shard, except those with bulk traffic, which move
//! to bulk threads (`bulk_migration.rs`). Everything else (the API, timers, UDP ports) stays in the scheduler that the
//! program was started with.

mod bulk_migration;
mod post;
mod turn;

use std::{
    cell::Cell,
    io, net,
    num::{NonZeroU16, NonZeroUsize},
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicU16, AtomicUsize, Ordering},
    },
};

use tokio::{
    net::TcpStream,
    runtime::{Builder, Handle, Runtime},
    sync::oneshot,
    task::JoinSet,
};

use bulk_migration::BulkMigration;
pub use bulk_migration::{ShardLocation, Work, spawn_near, weigh};
pub use post::wake_at;
pub use turn::carried;

/// Number of ready tasks that run before the kernel is polled for events. A new connection may wait for this many
/// tasks; each poll costs a system call.
const EVENT_INTERVAL: u32 = 31;
/// Bit that marks the numbers of bulk shards.
const FOR_BULK: u16 = 1 << 15;
/// Number of the next shard of this process; 0 is no shard.
static NEXT: AtomicU16 = AtomicU16::new(1);

thread_local! {
    static HERE: Cell<u16> = const { Cell::new(0) };
}

/// Identifies the shard of a thread, so that resources watched in different shards can be distinguished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct ShardId(u16);

impl ShardId {
    /// The shard that the caller runs in. All threads outside of shards count as one.
    #[must_use]
    pub fn here() -> Self {
        Self(HERE.get())
    }

    /// Whether the thread is a shard.
    #[must_use]
    pub fn is_shard(self) -> bool {
        self.0 != 0
    }

    /// Whether the shard is for bulk connections. They move there and leave again, so long-lived work must not follow
    /// them.
    #[must_use]
    pub fn is_for_bulk(self) -> bool {
        self.0 & FOR_BULK != 0
    }
}

/// The shards of a process. The default has none: everything then runs in the caller's scheduler.
#[derive(Debug, Clone, Default)]
pub struct Shards(Option<Arc<Running>>);

#[derive(Debug)]
struct Running {
    /// Bulk shards, as many as there are others, created with the first bulk connection; fewer if the system gives no
    /// more threads. They end first, because bulk connections may wait for timers of the others.
    for_bulk: OnceLock<Vec<Shard>>,
    next_for_bulk: AtomicUsize,
    /// Number of bulk connections.
    carrying_bulk: AtomicUsize,
    shards: Vec<Shard>,
    next: AtomicUsize,
}

impl Running {
    /// The next shard in turn.
    fn next(&self) -> Option<&Shard> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        self.shards.get(turn % self.shards.len())
    }

    /// The next bulk shard in turn; `None` if the system gives no thread.
    fn next_for_bulk(self: &Arc<Self>) -> Option<&Shard> {
        if self.for_bulk.get().is_none() {
            let start = || Shard::start("bulk", FOR_BULK, Arc::downgrade(self)).ok();
            let shards: Vec<_> = self.shards.iter().map_while(|_| start()).collect();
            if !shards.is_empty() {
                // If another thread was faster, these shards end.
                drop(self.for_bulk.set(shards));
            }
        }
        let (shards, turn) = (self.for_bulk.get()?, self.next_for_bulk.fetch_add(1, Ordering::Relaxed));
        shards.get(turn.checked_rem(shards.len())?)
    }
}

#[derive(Debug)]
struct Shard {
    id: ShardId,
    handle: Handle,
    /// Dropped with the last [`Shards`]: the thread ends, and with it all tasks that run there.
    _stop: oneshot::Sender<()>,
}

impl Shards {
    /// Starts this many shards.
    ///
    /// # Errors
    /// The system gives no more threads or event queues.
    pub fn start(count: NonZeroU16) -> io::Result<Self> {
        let shards = (1..=count.get()).map(|_| Shard::start("shard", 0, Weak::new())).collect::<io::Result<_>>()?;
        Ok(Self(Some(Arc::new(Running {
            for_bulk: OnceLock::new(),
            next_for_bulk: AtomicUsize::new(0),
            carrying_bulk: AtomicUsize::new(0),
            shards,
            next: AtomicUsize::new(0),
        }))))
    }

    /// Number of shards, without those for bulk. Without shards, the caller's scheduler counts as one.
    #[must_use]
    pub fn count(&self) -> NonZeroUsize {
        self.0.as_ref().and_then(|running| NonZeroUsize::new(running.shards.len())).unwrap_or(NonZeroUsize::MIN)
    }

    /// The next shard in turn.
    fn next(&self) -> Option<&Shard> {
        self.0.as_deref()?.next()
    }

    /// A weak reference, which does not keep the shards running.
    fn downgrade(&self) -> Weak<Running> {
        self.0.as_ref().map(Arc::downgrade).unwrap_or_default()
    }

    /// Spawns work that opens its connection itself.
    pub fn spawn(&self, serve: impl Future<Output = ()> + Send + 'static) {
        match self.next() {
            Some(shard) => drop(shard.handle.spawn(serve)),
            None => drop(tokio::spawn(serve)),
        }
    }

    /// Serves a connection in the caller's task, and in a bulk shard while its traffic, as counted by [`weigh`], is
    /// bulk. The returned future ends when the connection moves away.
    pub fn by_weight(&self, serve: Work) -> impl Future<Output = ()> + Send + 'static {
        BulkMigration::new(self.downgrade(), serve)
    }

    /// Number of bulk connections.
    #[must_use]
    pub fn carrying_bulk(&self) -> usize {
        self.0.as_ref().map_or(0, |running| running.carrying_bulk.load(Ordering::Relaxed))
    }

    /// Spawns work on the next shard as a task of `tasks`, whose owner can await or abort the task.
    pub fn spawn_among<T: Send + 'static>(
        &self,
        tasks: &mut JoinSet<T>,
        serve: impl Future<Output = T> + Send + 'static,
    ) {
        match self.next() {
            Some(shard) => drop(tasks.spawn_on(serve, &shard.handle)),
            None => drop(tasks.spawn(serve)),
        }
    }

    /// Serves a non-blocking connection that is not registered with an event queue yet, as [`Self::by_weight`] does.
    /// The connection is closed if it cannot be registered.
    pub fn spawn_unwatched<F>(&self, stream: net::TcpStream, serve: impl FnOnce(TcpStream) -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let shards = self.downgrade();
        let start = move || {
            if let Ok(stream) = TcpStream::from_std(stream) {
                tokio::spawn(BulkMigration::new(shards, Box::pin(serve(stream))));
            }
        };
        match self.next() {
            // The task holds nothing but the connection's future, because connections are idle for long.
            Some(shard) if shard.id != ShardId::here() => drop(shard.handle.spawn(async { start() })),
            _ => start(),
        }
    }
}

impl Shard {
    /// Starts a shard with this thread name and this kind bit in its number. Long-lived work that is spawned near it
    /// goes to the shards of `home`, if set.
    fn start(name: &str, kind: u16, home: Weak<Running>) -> io::Result<Self> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{name}-{number}");
        let number = number | kind;
        let runtime = Builder::new_current_thread().enable_all().event_interval(EVENT_INTERVAL).build()?;
        let (handle, mut runtime) = (runtime.handle().clone(), Unstarted(Some(runtime)));
        let (stop, stopped) = oneshot::channel::<()>();
        std::thread::Builder::new().name(name).spawn(move || {
            HERE.set(number);
            bulk_migration::come_from(home);
            let Some(runtime) = runtime.0.take() else { return };
            runtime.spawn(post::serve(ShardId(number)));
            // Nothing is ever sent; the end of the channel stops the shard.
            let _ = runtime.block_on(stopped);
        })?;
        Ok(Self { id: ShardId(number), handle, _stop: stop })
    }
}

/// The scheduler of a thread that may fail to start. It is then dropped inside another scheduler, where blocking is not
/// allowed.
struct Unstarted(Option<Runtime>);

impl Drop for Unstarted {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
        sync::mpsc,
    };

    use super::*;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (near, listener.accept().await.unwrap().0)
    }

    /// Sends its shard's number after the first byte comes.
    async fn answer(mut stream: TcpStream) {
        if stream.read_u8().await.is_ok() {
            let _ = stream.write_u16(ShardId::here().0).await;
        }
    }

    #[tokio::test]
    async fn connections_are_dealt_out_in_turn_and_stay_where_they_are() {
        let shards = Shards::start(NonZeroU16::new(3).unwrap()).unwrap();
        let mut numbers = Vec::new();
        for _ in 0..6 {
            let (mut near, far) = pair().await;
            shards.spawn_unwatched(far.into_std().unwrap(), answer);
            near.write_u8(0).await.unwrap();
            numbers.push(near.read_u16().await.unwrap());
        }
        assert_eq!(numbers[..3], numbers[3..]);
        numbers.dedup();
        assert!(numbers.len() == 6 && !numbers.contains(&0), "each has its turn: {numbers:?}");
        assert_eq!(ShardId::here(), ShardId::default());
    }

    #[tokio::test]
    async fn without_shards_all_runs_where_it_was() {
        let shards = Shards::default();
        let (mut near, far) = pair().await;
        shards.spawn_unwatched(far.into_std().unwrap(), answer);
        near.write_u8(0).await.unwrap();
        assert_eq!(near.read_u16().await.unwrap(), 0);
        let (sender, mut receiver) = mpsc::channel(1);
        shards.spawn(async move { sender.send(ShardId::here()).await.unwrap() });
        assert_eq!(receiver.recv().await, Some(ShardId::default()));
    }

    #[tokio::test]
    async fn a_connection_that_a_shard_takes_itself_is_served_there_or_in_the_next_one() {
        let shards = Shards::start(NonZeroU16::new(2).unwrap()).unwrap();
        let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let dealer = shards.clone();
        shards.spawn(async move {
            for _ in 0..4 {
                let (stream, _) = listener.accept().unwrap();
                stream.set_nonblocking(true).unwrap();
                dealer.spawn_unwatched(stream, answer);
            }
        });
        let mut numbers = Vec::new();
        for _ in 0..4 {
            let mut near = TcpStream::connect(address).await.unwrap();
            near.write_u8(0).await.unwrap();
            numbers.push(near);
        }
        let mut served = Vec::new();
        for near in &mut numbers {
            served.push(near.read_u16().await.unwrap());
        }
        assert!(served[0] == served[2] && served[1] == served[3] && served[0] != served[1], "{served:?}");
    }

    #[tokio::test]
    async fn an_unstarted_runtime_can_be_dropped_inside_another_one() {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        // tokio panics if a runtime is dropped the normal way inside another one.
        drop(Unstarted(Some(runtime)));
    }

    #[tokio::test]
    async fn what_runs_among_tasks_ends_with_them() {
        for shards in [Shards::default(), Shards::start(NonZeroU16::MIN).unwrap()] {
            let (near, mut far) = pair().await;
            let near = near.into_std().unwrap();
            let mut tasks = JoinSet::new();
            shards.spawn_among(&mut tasks, async move {
                let _near = near;
                std::future::pending::<()>().await;
            });
            drop(tasks);
            let read = tokio::time::timeout(Duration::from_secs(20), far.read_u8()).await.unwrap();
            assert!(read.is_err(), "its connection is closed");
        }
    }

    #[tokio::test]
    async fn what_runs_ends_with_the_last_handle() {
        let shards = Shards::start(NonZeroU16::MIN).unwrap();
        let (mut near, far) = pair().await;
        shards.clone().spawn_unwatched(far.into_std().unwrap(), answer);
        drop(shards);
        let read = tokio::time::timeout(Duration::from_secs(20), near.read_u8()).await.unwrap();
        assert!(read.is_err(), "there is no task to answer any more");
    }
}
