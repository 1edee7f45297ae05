//! Threads that serve connections, each with a scheduler and an event queue of its own.
//!
//! A scheduler of many threads moves tasks between them: one thread waits for events while another runs the task that they
//! are for, so that a busy connection wakes a second processor again and again. On a shard everything that a connection
//! needs happens in one thread. Connections are dealt out in turn and stay where they are, but for those that carry bulk:
//! these have threads of their own for that time (`bulk_migration.rs`). What is not a connection (the API's work, timers, UDP ports)
//! stays with the scheduler that the program was started with.

mod bulk_migration;
mod post;
mod turn;

use std::{
    cell::Cell,
    io, net,
    num::NonZeroU16,
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

/// After how many tasks that are ready the kernel is asked what else is. A new connection, which is accepted in a
/// shard, may wait for as many; and each time costs a system call.
const EVENT_INTERVAL: u32 = 31;
/// The numbers of shards for bulk have this bit.
const FOR_BULK: u16 = 1 << 15;
/// The number of the next shard that is started in this process; 0 is no shard.
static NEXT: AtomicU16 = AtomicU16::new(1);

thread_local! {
    static HERE: Cell<u16> = const { Cell::new(0) };
}

/// The shard that a thread is, so that what is watched in one can be told from what is watched in others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct ShardId(u16);

impl ShardId {
    /// The shard that the caller runs in. All threads that are no shard count as one.
    #[must_use]
    pub fn here() -> Self {
        Self(HERE.get())
    }

    /// Whether it is a shard at all.
    #[must_use]
    pub fn is_shard(self) -> bool {
        self.0 != 0
    }

    /// Whether it is a shard for connections that carry bulk. They go there and leave again; nothing that stays is to follow
    /// them there.
    #[must_use]
    pub fn is_for_bulk(self) -> bool {
        self.0 & FOR_BULK != 0
    }
}

/// The shards of a process. The default has none: everything then runs in the caller's own scheduler.
#[derive(Debug, Clone, Default)]
pub struct Shards(Option<Arc<Running>>);

#[derive(Debug)]
struct Running {
    /// As many as there are others, for connections that carry bulk; since the first one did, or fewer where the system gave
    /// no more threads. They are told first to end: what is there may wait for timers of the others.
    for_bulk: OnceLock<Vec<Shard>>,
    next_for_bulk: AtomicUsize,
    /// How many connections are among bulk.
    carrying_bulk: AtomicUsize,
    shards: Vec<Shard>,
    next: AtomicUsize,
}

impl Running {
    /// The one whose turn it is.
    fn next(&self) -> Option<&Shard> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        self.shards.get(turn % self.shards.len())
    }

    /// The same of those for bulk. None: the system has no thread for it.
    fn next_for_bulk(self: &Arc<Self>) -> Option<&Shard> {
        if self.for_bulk.get().is_none() {
            let start = || Shard::start("bulk", FOR_BULK, Arc::downgrade(self)).ok();
            let shards: Vec<_> = self.shards.iter().map_while(|_| start()).collect();
            if !shards.is_empty() {
                // Another one may have been sooner; then these end.
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
    /// Dropped with the last [`Shards`]: the thread ends, and with it what still runs there.
    _stop: oneshot::Sender<()>,
}

impl Shards {
    /// Starts so many.
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

    /// The one whose turn it is.
    fn next(&self) -> Option<&Shard> {
        self.0.as_deref()?.next()
    }

    /// These, without keeping them running.
    fn downgrade(&self) -> Weak<Running> {
        self.0.as_ref().map(Arc::downgrade).unwrap_or_default()
    }

    /// Runs something that opens its connection itself.
    pub fn spawn(&self, serve: impl Future<Output = ()> + Send + 'static) {
        match self.next() {
            Some(shard) => drop(shard.handle.spawn(serve)),
            None => drop(tokio::spawn(serve)),
        }
    }

    /// Serves a connection in the caller's task, and goes on with it among bulk while it carries that, as [`weigh`] is told. Then
    /// this is over before the connection is.
    pub fn by_weight(&self, serve: Work) -> impl Future<Output = ()> + Send + 'static {
        BulkMigration::new(self.downgrade(), serve)
    }

    /// How many connections carry bulk.
    #[must_use]
    pub fn carrying_bulk(&self) -> usize {
        self.0.as_ref().map_or(0, |running| running.carrying_bulk.load(Ordering::Relaxed))
    }

    /// Runs something on the shard whose turn it is, as one of these tasks: whoever holds them can wait for its end, or
    /// bring it about.
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

    /// Serves a connection that nobody watches yet and that does not block, as [`Self::by_weight`] does. Where the system
    /// refuses to watch it, it is closed.
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
            // A task of its own holds nothing beside what it serves: connections idle for long.
            Some(shard) if shard.id != ShardId::here() => drop(shard.handle.spawn(async { start() })),
            _ => start(),
        }
    }
}

impl Shard {
    /// Starts one whose thread has this name, and whose number has this beside its own. What is spawned near it and stays
    /// goes to those at home, where it has one.
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
            // Nothing is ever sent: the channel ends.
            let _ = runtime.block_on(stopped);
        })?;
        Ok(Self { id: ShardId(number), handle, _stop: stop })
    }
}

/// The scheduler of a thread that may not come about. It is dropped within another one then, where it must not be waited for.
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
        let (tell, mut told) = mpsc::channel(1);
        shards.spawn(async move { tell.send(ShardId::here()).await.unwrap() });
        assert_eq!(told.recv().await, Some(ShardId::default()));
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
    async fn a_thread_that_does_not_come_about_harms_nobody_who_wanted_it() {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        // tokio panics where a scheduler is dropped as it is within another one.
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
        assert!(read.is_err(), "nobody is there to answer any more");
    }
}
