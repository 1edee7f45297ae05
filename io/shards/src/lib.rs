//! Threads that serve connections from their beginning to their end, each with a scheduler and an event queue of its own.
//!
//! A scheduler of many threads moves tasks between them: one thread waits for events while another runs the task that they
//! are for, so that a busy connection wakes a second processor again and again. On a shard everything that a connection
//! needs happens in one thread. Connections are dealt out in turn and stay where they are; what is not a connection (the
//! API's work, timers, UDP ports) stays with the scheduler that the program was started with.

use std::{
    cell::Cell,
    io,
    num::NonZeroU16,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{
    net::TcpStream,
    runtime::{Builder, Handle},
    sync::oneshot,
};

thread_local! {
    static HERE: Cell<u16> = const { Cell::new(0) };
}

/// The shard that a thread is, so that what is watched in one can be told from what is watched in others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ShardId(u16);

impl ShardId {
    /// The shard that the caller runs in. All threads that are no shard count as one.
    #[must_use]
    pub fn here() -> Self {
        Self(HERE.get())
    }
}

/// The shards of a process. The default has none: everything then runs in the caller's own scheduler.
#[derive(Debug, Clone, Default)]
pub struct Shards(Option<Arc<Running>>);

#[derive(Debug)]
struct Running {
    shards: Vec<Shard>,
    next: AtomicUsize,
}

#[derive(Debug)]
struct Shard {
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
        let shards = (1..=count.get()).map(Shard::start).collect::<io::Result<_>>()?;
        Ok(Self(Some(Arc::new(Running { shards, next: AtomicUsize::new(0) }))))
    }

    /// The one whose turn it is.
    fn next(&self) -> Option<&Handle> {
        let running = self.0.as_ref()?;
        let turn = running.next.fetch_add(1, Ordering::Relaxed);
        running.shards.get(turn % running.shards.len()).map(|shard| &shard.handle)
    }

    /// Runs something that opens its connection itself.
    pub fn spawn(&self, serve: impl Future<Output = ()> + Send + 'static) {
        match self.next() {
            Some(shard) => drop(shard.spawn(serve)),
            None => drop(tokio::spawn(serve)),
        }
    }

    /// Serves a connection that was accepted elsewhere. Where the system refuses to watch it, it is closed.
    pub fn spawn_with<F>(&self, stream: TcpStream, serve: impl FnOnce(TcpStream) -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Some(shard) = self.next() else {
            tokio::spawn(serve(stream));
            return;
        };
        // It is watched where it is served, and no longer where it was accepted.
        let Ok(stream) = stream.into_std() else { return };
        shard.spawn(async move {
            if let Ok(stream) = TcpStream::from_std(stream) {
                // A task of its own holds nothing beside what it serves: connections idle for long.
                tokio::spawn(serve(stream));
            }
        });
    }
}

impl Shard {
    fn start(number: u16) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        std::thread::Builder::new().name(format!("shard-{number}")).spawn(move || {
            HERE.set(number);
            // Nothing is ever sent: the channel ends.
            let _ = runtime.block_on(stopped);
        })?;
        Ok(Self { handle, _stop: stop })
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
            let _ = stream.write_u8(u8::try_from(ShardId::here().0).unwrap()).await;
        }
    }

    #[tokio::test]
    async fn connections_are_dealt_out_in_turn_and_stay_where_they_are() {
        let shards = Shards::start(NonZeroU16::new(3).unwrap()).unwrap();
        let mut numbers = Vec::new();
        for _ in 0..6 {
            let (mut near, far) = pair().await;
            shards.spawn_with(far, answer);
            near.write_u8(0).await.unwrap();
            numbers.push(near.read_u8().await.unwrap());
        }
        assert_eq!(numbers, [1, 2, 3, 1, 2, 3]);
        assert_eq!(ShardId::here(), ShardId::default());
    }

    #[tokio::test]
    async fn without_shards_all_runs_where_it_was() {
        let shards = Shards::default();
        let (mut near, far) = pair().await;
        shards.spawn_with(far, answer);
        near.write_u8(0).await.unwrap();
        assert_eq!(near.read_u8().await.unwrap(), 0);
        let (tell, mut told) = mpsc::channel(1);
        shards.spawn(async move { tell.send(ShardId::here()).await.unwrap() });
        assert_eq!(told.recv().await, Some(ShardId::default()));
    }

    #[tokio::test]
    async fn what_runs_ends_with_the_last_handle() {
        let shards = Shards::start(NonZeroU16::MIN).unwrap();
        let (mut near, far) = pair().await;
        shards.clone().spawn_with(far, answer);
        drop(shards);
        let read = tokio::time::timeout(Duration::from_secs(20), near.read_u8()).await.unwrap();
        assert!(read.is_err(), "nobody is there to answer any more");
    }
}
