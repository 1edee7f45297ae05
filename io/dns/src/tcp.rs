//! Queries over TCP, and transfers of zones (RFC 7766).

use std::{
    collections::HashMap,
    io,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use sallyport_zone::{Outcome, Peer, State, Transport, Verdict, answer, transfer::Transfer};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::{Instant, error::Elapsed, timeout},
};

use crate::{
    counters::{Counters, Tally},
    current::{Current, now},
};

/// The most queries of one connection.
const MAX_QUERIES_PER_CONNECTION: u32 = 100_000;
/// Answers are collected up to this many bytes while more queries are at hand.
const MAX_WAITING_BYTES: usize = 65_536;
/// How long a client that has just connected may take for its query when the server stops.
const STOP_GRACE: Duration = Duration::from_millis(500);
/// How much is read at once, in bytes.
const READ_BYTES: usize = 4_096;
/// How long an idle connection may stay when few more are accepted. So those who open many keep nobody else out.
const IDLE_WHEN_CROWDED: Duration = Duration::from_secs(1);
/// The wait after an error of the listener: no file descriptor is left, for example.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(50);

/// Bounds of TCP connections.
#[derive(Debug, Clone)]
pub struct TcpLimits {
    /// The most connections.
    pub max_connections: usize,
    /// The most connections of one address; of one network of 64 bits for IPv6.
    pub max_connections_per_address: usize,
    /// How long a connection may be idle, or take for one query.
    pub idle: Duration,
    /// How long the client may take for an answer, or for a message of a transfer.
    pub write: Duration,
}

impl Default for TcpLimits {
    fn default() -> Self {
        Self {
            max_connections: 1_024,
            max_connections_per_address: 32,
            idle: Duration::from_secs(10),
            write: Duration::from_secs(10),
        }
    }
}

/// What connections share.
pub(crate) struct Shared {
    current: Arc<Current>,
    counters: Arc<Counters>,
    states: Vec<Mutex<State>>,
    limits: TcpLimits,
    by_address: Mutex<HashMap<IpAddr, usize>>,
    next_state: AtomicUsize,
}

impl Shared {
    pub(crate) fn new(
        current: Arc<Current>,
        counters: Arc<Counters>,
        states: Vec<Mutex<State>>,
        limits: TcpLimits,
    ) -> Self {
        let (by_address, next_state) = (Mutex::default(), AtomicUsize::new(0));
        Self { current, counters, states, limits, by_address, next_state }
    }

    /// Counts a connection of this address; `None`: there are too many.
    fn admit(self: &Arc<Self>, address: IpAddr) -> Option<Admission> {
        let address = network(address);
        let mut by_address = self.by_address.lock();
        let total: u64 = self.counters.tcp_open.load(Ordering::Relaxed);
        let own = by_address.get(&address).copied().unwrap_or(0);
        if total >= self.limits.max_connections as u64 || own >= self.limits.max_connections_per_address {
            self.counters.tcp_refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        by_address.insert(address, own + 1);
        self.counters.tcp_open.fetch_add(1, Ordering::Relaxed);
        Some(Admission { shared: self.clone(), address })
    }

    /// Whether three quarters of the connections are in use.
    fn is_crowded(&self) -> bool {
        self.counters.tcp_open.load(Ordering::Relaxed) >= self.limits.max_connections as u64 * 3 / 4
    }

    /// Waits for a query that is being read: for as long as a connection may be idle, which is shorter in a crowd.
    async fn in_time<F: Future + Unpin>(&self, read: &mut F) -> Result<F::Output, Elapsed> {
        let end = Instant::now() + self.limits.idle;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match timeout(left.min(IDLE_WHEN_CROWDED), &mut *read).await {
                Err(elapsed) if left <= IDLE_WHEN_CROWDED || self.is_crowded() => return Err(elapsed),
                Err(_) => {}
                Ok(done) => return Ok(done),
            }
        }
    }

    fn answer(&self, index: usize, query: &[u8], peer: &Peer, out: &mut Vec<u8>) -> Outcome {
        let snapshot = self.current.snapshot();
        let mut state = self.states[index % self.states.len()].lock();
        answer(query, peer, &snapshot.serving(), &mut state, now(), out)
    }
}

/// A connection that counts as long as this lives.
struct Admission {
    shared: Arc<Shared>,
    address: IpAddr,
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.shared.counters.tcp_open.fetch_sub(1, Ordering::Relaxed);
        let mut by_address = self.shared.by_address.lock();
        if let Some(count) = by_address.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                by_address.remove(&self.address);
            }
        }
    }
}

/// The network of a client: one client has many addresses of IPv6.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::from((u128::from(address) >> 64 << 64).to_be_bytes()),
        address => address,
    }
}

/// Accepts connections until the server stops.
pub(crate) async fn accept(listener: TcpListener, shared: Arc<Shared>, mut stop: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = stopped(&mut stop) => break,
            accepted = listener.accept() => accepted,
        };
        while connections.try_join_next().is_some() {}
        match accepted {
            Ok((stream, client)) => {
                if let Some(admission) = shared.admit(client.ip()) {
                    connections.spawn(serve(stream, client.ip(), admission, stop.clone()));
                }
            }
            Err(_) => tokio::time::sleep(PAUSE_AFTER_ERROR).await,
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn serve(stream: TcpStream, address: IpAddr, admission: Admission, mut stop: watch::Receiver<bool>) {
    // Small answers leave at once.
    let _ = stream.set_nodelay(true);
    let shared = admission.shared.clone();
    let peer = Peer { address: address.to_canonical(), transport: Transport::Tcp };
    let index = shared.next_state.fetch_add(1, Ordering::Relaxed);
    let mut connection = Connection { stream: BufReader::with_capacity(READ_BYTES, stream), shared, peer, index };
    let mut tally = Tally::default();
    // The client is told by the end of the connection.
    let _ = connection.run(&mut tally, &mut stop).await;
    connection.shared.counters.add(Transport::Tcp, &mut tally);
    drop(admission);
}

/// Waits until the server stops.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // A server that is gone has stopped.
    let _ = stop.wait_for(|is_stopping| *is_stopping).await;
}

struct Connection {
    stream: BufReader<TcpStream>,
    shared: Arc<Shared>,
    peer: Peer,
    index: usize,
}

impl Connection {
    async fn run(&mut self, tally: &mut Tally, stop: &mut watch::Receiver<bool>) -> io::Result<()> {
        let (mut query, mut out, mut waiting) = (Vec::new(), Vec::new(), Vec::new());
        for served in 0..MAX_QUERIES_PER_CONNECTION {
            let shared = self.shared.clone();
            let has_query = {
                let mut read = std::pin::pin!(self.read(&mut query));
                let read_in_time = tokio::select! {
                    read = shared.in_time(&mut read) => Some(read),
                    () = stopped(stop) => None,
                };
                match read_in_time {
                    Some(read) => read??,
                    // Who has just connected gets one answer.
                    None => served == 0 && timeout(STOP_GRACE, read).await??,
                }
            };
            if !has_query {
                return Ok(());
            }
            out.clear();
            let outcome = self.shared.answer(self.index, &query, &self.peer, &mut out);
            tally.record(query.len(), out.len(), &outcome);
            self.shared.counters.add(Transport::Tcp, tally);
            match outcome.verdict {
                // Who sends garbage does not stay.
                Verdict::Drop(_) => return Ok(()),
                Verdict::Send => push(&out, &mut waiting),
                Verdict::Transfer(transfer) => {
                    self.write(&mut waiting).await?;
                    self.transfer(*transfer).await?;
                    self.shared.counters.transfers.fetch_add(1, Ordering::Relaxed);
                }
            }
            // More queries are at hand: their answers leave together.
            if self.stream.buffer().len() < 2 || waiting.len() >= MAX_WAITING_BYTES {
                self.write(&mut waiting).await?;
            }
        }
        Ok(())
    }

    /// Reads one query; `false`: the client is done.
    async fn read(&mut self, query: &mut Vec<u8>) -> io::Result<bool> {
        if self.stream.fill_buf().await?.is_empty() {
            return Ok(false);
        }
        let len = usize::from(self.stream.read_u16().await?);
        query.resize(len, 0);
        self.stream.read_exact(query).await?;
        Ok(true)
    }

    async fn write(&mut self, waiting: &mut Vec<u8>) -> io::Result<()> {
        if !waiting.is_empty() {
            timeout(self.shared.limits.write, self.stream.get_mut().write_all(waiting)).await??;
            waiting.clear();
        }
        Ok(())
    }

    async fn transfer(&mut self, transfer: Transfer) -> io::Result<()> {
        let (mut transfer, mut message, mut waiting) = (transfer, Vec::new(), Vec::new());
        loop {
            // Signatures of a message take a few milliseconds.
            let made = tokio::task::spawn_blocking(move || {
                let is_written = transfer.next_message(now().unix_seconds, &mut message);
                (transfer, message, is_written)
            });
            let is_written;
            (transfer, message, is_written) = made.await.map_err(io::Error::other)?;
            if !is_written {
                return Ok(());
            }
            push(&message, &mut waiting);
            self.write(&mut waiting).await?;
        }
    }
}

/// Appends a message with its length in front.
fn push(message: &[u8], out: &mut Vec<u8>) {
    out.extend((message.len() as u16).to_be_bytes());
    out.extend_from_slice(message);
}
