//! A socket with its requests, and the task that reads replies.

use std::{
    collections::HashMap,
    io,
    net::IpAddr,
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;
use sallyport_ping::{Echoes, Family, Key, Received, RoundTrip, Source, Verdict};
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::oneshot,
    task::AbortHandle,
    time::Instant,
};

use crate::{
    Counts, ProbeError, no_answer,
    socket::{EchoSocket, MAX_PACKET_BYTES, now},
    unreachable,
};

/// The most messages that are read before other tasks get their turn.
const MAX_BATCH: usize = 64;

/// The pause after a request for which the socket had no room.
const FULL_SOCKET_PAUSE: Duration = Duration::from_millis(1);

/// A socket of one family with its requests.
#[derive(Debug)]
pub(crate) struct Wire {
    socket: Arc<AsyncFd<EchoSocket>>,
    state: Mutex<State>,
    reader: Mutex<Option<AbortHandle>>,
}

#[derive(Debug)]
struct State {
    echoes: Echoes,
    /// By sequence number.
    waiters: HashMap<u16, oneshot::Sender<RoundTrip>>,
    answered: u64,
    unstamped: u64,
    clock_jumps: u64,
}

/// A request that waits. The wait ends with this value.
struct Waiting<'a> {
    wire: &'a Wire,
    sequence: u16,
    answer: oneshot::Receiver<RoundTrip>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.wire.state.lock();
        // An answered request waits no more, and its number may belong to another one.
        if self.answer.try_recv() == Err(oneshot::error::TryRecvError::Empty) {
            state.waiters.remove(&self.sequence);
            state.echoes.give_up(self.sequence);
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        if let Some(reader) = &*self.reader.lock() {
            reader.abort();
        }
    }
}

impl Wire {
    /// Opens the socket, and starts the task that reads.
    pub(crate) fn open(family: Family, key: Key) -> Result<Arc<Self>, ProbeError> {
        let socket = EchoSocket::open(family)?;
        let echoes = Echoes::new(family, socket.identifier, key);
        #[expect(
            deprecated,
            reason = "what it warns of are types that lie about their descriptor; this one owns its socket to the end"
        )]
        let socket = AsyncFd::with_interest(socket, Interest::READABLE | Interest::ERROR);
        let socket = Arc::new(socket.map_err(ProbeError::Socket)?);
        let state = State { echoes, waiters: HashMap::new(), answered: 0, unstamped: 0, clock_jumps: 0 };
        let wire = Arc::new(Self { socket: socket.clone(), state: Mutex::new(state), reader: Mutex::default() });
        let task = tokio::spawn(read(socket, Arc::downgrade(&wire)));
        *wire.reader.lock() = Some(task.abort_handle());
        Ok(wire)
    }

    /// Sends a request, and awaits its reply.
    pub(crate) async fn echo(&self, bytes: usize, target: IpAddr, timeout: Duration) -> Result<RoundTrip, ProbeError> {
        let deadline = Instant::now() + timeout.min(sallyport_ping::MAX_TIMEOUT);
        loop {
            if let Some(mut waiting) = self.send(bytes, target, timeout)? {
                let answer = tokio::time::timeout_at(deadline, &mut waiting.answer).await;
                return answer.ok().and_then(Result::ok).ok_or_else(|| no_answer(target, timeout));
            }
            if Instant::now() >= deadline {
                return Err(no_answer(target, timeout));
            }
            tokio::time::sleep(FULL_SOCKET_PAUSE).await;
        }
    }

    /// Sends a request; `None` if the socket has no room now.
    fn send(&self, bytes: usize, target: IpAddr, timeout: Duration) -> Result<Option<Waiting<'_>>, ProbeError> {
        let nonce = getrandom::u64().map_err(ProbeError::Random)?;
        // Requests leave in the order in which their stamps are counted.
        let mut state = self.state.lock();
        let request = state.echoes.begin(target, bytes, timeout, nonce, now())?;
        match self.socket.get_ref().send(&request.message, target) {
            Ok(()) => {
                state.echoes.handle_sent(request.sequence);
                let (sender, answer) = oneshot::channel();
                state.waiters.insert(request.sequence, sender);
                Ok(Some(Waiting { wire: self, sequence: request.sequence, answer }))
            }
            Err(error) => {
                state.echoes.handle_unsent(request.sequence);
                // Some kernels have counted this packet, and some have not.
                take_stamps(self.socket.get_ref(), &mut state.echoes);
                state.echoes.handle_stamps_restarted();
                drop(self.socket.get_ref().restart_stamps());
                if error.kind() == io::ErrorKind::WouldBlock { Ok(None) } else { Err(unreachable(target, error)) }
            }
        }
    }

    /// The counters of this socket.
    pub(crate) fn counts(&self) -> Counts {
        let state = self.state.lock();
        Counts {
            answered: state.answered,
            unstamped: state.unstamped,
            clock_jumps: state.clock_jumps,
            rejected: state.echoes.rejected(),
        }
    }

    /// Reads what is there; returns whether more may be there.
    fn read_batch(&self, buffer: &mut [u8]) -> bool {
        let socket = self.socket.get_ref();
        let mut is_failing = true;
        for _ in 0..MAX_BATCH {
            let arrival = match socket.receive(buffer) {
                Ok(Some(arrival)) => arrival,
                Ok(None) => {
                    take_stamps(socket, &mut self.state.lock().echoes);
                    return false;
                }
                Err(error) => {
                    tracing::debug!(%error, "an echo message cannot be read");
                    continue;
                }
            };
            is_failing = false;
            let mut state = self.state.lock();
            // The stamp of a request is there before its reply.
            take_stamps(socket, &mut state.echoes);
            let bytes = buffer.get(..arrival.bytes).unwrap_or_default();
            let (from, arrived, at) = (arrival.from, arrival.arrived, arrival.at);
            let received = Received { from, form: socket.form, bytes, arrived, at };
            if let Verdict::Answered { sequence, round_trip } = state.echoes.handle_received(&received) {
                state.answered += 1;
                state.unstamped += u64::from(round_trip.source == Source::Unstamped);
                state.clock_jumps += u64::from(round_trip.source == Source::ClockJumped);
                if let Some(waiter) = state.waiters.remove(&sequence) {
                    // The other end may be gone.
                    let _ = waiter.send(round_trip);
                }
            }
        }
        !is_failing
    }
}

/// Passes on all stamps that are there: at most one for each request that waits.
fn take_stamps(socket: &EchoSocket, echoes: &mut Echoes) {
    for _ in 0..sallyport_ping::MAX_WAITING {
        match socket.take_stamp() {
            Ok(Some(stamp)) => stamp.into_iter().for_each(|stamp| echoes.handle_stamp(stamp.id, stamp.transmitted)),
            Ok(None) => return,
            Err(error) => return tracing::debug!(%error, "a stamp of the kernel cannot be read"),
        }
    }
}

/// Reads replies and stamps until the wire is gone.
async fn read(socket: Arc<AsyncFd<EchoSocket>>, wire: Weak<Wire>) {
    let mut buffer = vec![0; MAX_PACKET_BYTES];
    loop {
        let Ok(mut ready) = socket.ready(Interest::READABLE | Interest::ERROR).await else { return };
        let Some(wire) = wire.upgrade() else { return };
        if wire.read_batch(&mut buffer) {
            tokio::task::yield_now().await;
        } else {
            ready.clear_ready();
        }
    }
}
