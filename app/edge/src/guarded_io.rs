//! A client's HTTP/1 connection as the server sees it: only bytes that passed the [`RequestGuard`].
//!
//! A head is handed on whole or not at all. What the guard refuses never reaches the server's parser; in its place
//! comes a request that only we can make, and the ordinary request path answers that one with the refusal: so a refused
//! request has an id, an error page, a line in the access log and a place in the metrics like any other.

use std::{
    future::{Future, poll_fn},
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use sallyport_http::{
    RequestRefusal,
    guard::{GuardLimits, Phase, RequestGuard, Verdict},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Instant, Sleep},
};

use crate::identity::StakeSlot;

/// How much is read at once while a head is incomplete, in bytes.
const HEAD_READ_BYTES: usize = 4_096;
/// How much a client may send before its WebSocket is answered, in bytes; reading stops there.
const MAX_EARLY_UPGRADE_BYTES: usize = 65_536;

/// Why a client's bytes go no further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// They are malformed.
    Malformed(RequestRefusal),
    /// A head did not come whole in time.
    HeadTimeout,
}

/// How an upgrade was answered.
const UPGRADE_UNDECIDED: u8 = 0;
const UPGRADE_YES: u8 = 1;
const UPGRADE_NO: u8 = 2;

/// What a connection's reading side and the requests on it tell one another.
#[derive(Debug)]
pub(crate) struct WireState {
    refused: OnceLock<Refused>,
    upgrade: AtomicU8,
    reader: Mutex<Option<Waker>>,
    opened: Instant,
    busy: AtomicU32,
    quiet_since_ms: AtomicU64,
    unread: AtomicBool,
    at_rest: AtomicBool,
    ending: AtomicBool,
    stake: StakeSlot,
    peer: OnceLock<Box<str>>,
}

impl Default for WireState {
    fn default() -> Self {
        Self {
            refused: OnceLock::new(),
            upgrade: AtomicU8::new(UPGRADE_UNDECIDED),
            reader: Mutex::default(),
            opened: Instant::now(),
            busy: AtomicU32::new(0),
            quiet_since_ms: AtomicU64::new(0),
            unread: AtomicBool::new(false),
            at_rest: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            stake: StakeSlot::default(),
            peer: OnceLock::new(),
        }
    }
}

impl WireState {
    /// Why the connection's bytes go no further, when that is so.
    pub(crate) fn refused(&self) -> Option<Refused> {
        self.refused.get().copied()
    }

    /// The client's address as the access log has it, written once for all requests of the connection.
    pub(crate) fn peer(&self, addr: SocketAddr) -> &str {
        self.peer.get_or_init(|| addr.to_string().into())
    }

    /// What the answer under way on an HTTP/1 connection goes on with.
    pub(crate) fn stake(&self) -> &StakeSlot {
        &self.stake
    }

    /// A request began on the connection.
    pub(crate) fn request_began(&self) {
        self.busy.fetch_add(1, Ordering::AcqRel);
    }

    /// A request on the connection is over.
    pub(crate) fn request_ended(&self) {
        let quiet_since = u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.quiet_since_ms.store(quiet_since, Ordering::Release);
        self.busy.fetch_sub(1, Ordering::AcqRel);
    }

    /// When the connection has been quiet for this long, if it stays so; `None` while requests run.
    pub(crate) fn quiet_until(&self, bound: Duration) -> Option<Instant> {
        let quiet_since = self.opened + Duration::from_millis(self.quiet_since_ms.load(Ordering::Acquire));
        (self.busy.load(Ordering::Acquire) == 0).then(|| quiet_since + bound)
    }

    /// Whether all that came has been passed on, what was written is out, and a new request is waited for. With no
    /// request under way, nothing would then be lost with the server that reads from the connection.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.at_rest.load(Ordering::Acquire) && !self.is_unread()
    }

    /// Some of what the client sent, or is about to send, will not be read.
    pub(crate) fn left_unread(&self) {
        self.unread.store(true, Ordering::Release);
    }

    /// Whether the client may still be sending what nobody wants. Closing at once would then reset the connection, and
    /// might take our last answer with it (RFC 9112 section 9.6).
    pub(crate) fn is_unread(&self) -> bool {
        self.refused().is_some() || self.unread.load(Ordering::Acquire)
    }

    /// The answer under way has been given out to its end, and the connection ends behind it.
    pub(crate) fn ends(&self) {
        self.ending.store(true, Ordering::Release);
    }

    /// A WebSocket upgrade was answered; bytes that wait for the answer may go on.
    pub(crate) fn upgrade_answered(&self, upgraded: bool) {
        self.upgrade.store(if upgraded { UPGRADE_YES } else { UPGRADE_NO }, Ordering::Release);
        let waker = self.reader.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The path of the request that stands for a refused one. Nobody outside this process can guess it.
#[derive(Debug, Clone)]
pub(crate) struct RefusalPath(Arc<str>);

impl RefusalPath {
    /// The path made of these random bytes.
    pub(crate) fn from_random(random: [u8; 32]) -> Self {
        use std::fmt::Write;
        let mut path = String::from("/");
        for byte in random {
            let _ = write!(path, "{byte:02x}");
        }
        Self(path.into())
    }

    /// Whether this is the path.
    pub(crate) fn is(&self, path: &str) -> bool {
        *self.0 == *path
    }

    fn request(&self) -> Vec<u8> {
        format!("GET {} HTTP/1.1\r\nhost: refused\r\nconnection: close\r\n\r\n", self.0).into_bytes()
    }
}

/// How long a client may be silent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Silence {
    /// Between requests.
    pub(crate) idle: Duration,
    /// From the first byte of a head to its last.
    pub(crate) head: Duration,
}

/// The guarded connection.
pub(crate) struct GuardedIo<S> {
    inner: S,
    /// Finds the socket below, where there is one.
    socket: Option<fn(&S) -> &TcpStream>,
    guard: RequestGuard,
    state: Arc<WireState>,
    path: RefusalPath,
    silence: Silence,
    /// Bytes read that have not passed yet: the start of a head, or what follows an unanswered upgrade.
    held: Vec<u8>,
    /// Bytes that have passed and did not fit the reader's buffer: a prefix of `ready`, from `ready_from` on.
    ready: Vec<u8>,
    ready_from: usize,
    /// Bytes were written and not yet flushed, or the connection is being closed.
    writing: bool,
    ended: bool,
    broken_off: bool,
    head_due: Option<Instant>,
    timer: Pin<Box<Sleep>>,
}

impl<S> GuardedIo<S> {
    /// Guards this connection.
    pub(crate) fn new(inner: S, state: Arc<WireState>, path: RefusalPath, silence: Silence) -> Self {
        Self {
            inner,
            socket: None,
            guard: RequestGuard::new(GuardLimits::default()),
            state,
            path,
            silence,
            held: Vec::new(),
            ready: Vec::new(),
            ready_from: 0,
            writing: false,
            ended: false,
            broken_off: false,
            head_due: None,
            timer: Box::pin(tokio::time::sleep(silence.head)),
        }
    }

    /// Spares a client what the kernel cannot know: sends the end of the last answer and that of the connection in one
    /// packet, and acknowledges at once what is no whole request. `socket` finds what it is sent by.
    pub(crate) fn over(mut self, socket: fn(&S) -> &TcpStream) -> Self {
        self.socket = Some(socket);
        self
    }

    /// The connection below, for when nothing that comes matters any more.
    pub(crate) fn into_unguarded(self) -> S {
        self.inner
    }

    /// The connection below after an upgrade, and what was read of it that nobody has taken.
    pub(crate) fn into_upgraded(mut self) -> (S, Vec<u8>) {
        let mut early = self.ready.split_off(self.ready_from);
        early.append(&mut self.held);
        (self.inner, early)
    }

    /// Whether there is something to give out that has passed already.
    fn has_ready(&self) -> bool {
        self.ready_from < self.ready.len()
    }

    /// Takes back what the server has read and not used.
    pub(crate) fn put_back(&mut self, unused: &[u8]) {
        if !unused.is_empty() {
            let rest = self.ready.split_off(self.ready_from);
            self.ready = [unused, &rest].concat();
            self.ready_from = 0;
        }
    }

    /// Gives out what has passed already. Returns whether there was any.
    fn give_ready(&mut self, buf: &mut ReadBuf<'_>) -> bool {
        let rest = &self.ready[self.ready_from..];
        if rest.is_empty() {
            return false;
        }
        let n = rest.len().min(buf.remaining());
        buf.put_slice(&rest[..n]);
        self.ready_from += n;
        if self.ready_from == self.ready.len() {
            self.ready = Vec::new();
            self.ready_from = 0;
        }
        true
    }

    /// No byte of the client counts any more; what the server reads next is the request that stands for the refusal.
    /// Within a body there is no such request: the body just breaks off, and the request that it belongs to fails.
    fn refuse(&mut self, refused: Refused) {
        let _ = self.state.refused.set(refused);
        self.held = Vec::new();
        self.ended = true;
        self.broken_off = self.guard.is_in_body();
        if !self.broken_off {
            self.ready.extend_from_slice(&self.path.request());
        }
    }

    /// Passes what may pass of the held bytes.
    fn judge_held(&mut self) {
        match self.guard.inspect(&self.held) {
            Verdict::Pass { n: 0 } => {}
            Verdict::Pass { n } if n == self.held.len() => {
                let passed = std::mem::take(&mut self.held);
                if self.has_ready() {
                    self.ready.extend(passed);
                } else {
                    (self.ready, self.ready_from) = (passed, 0);
                }
            }
            Verdict::Pass { n } => self.ready.extend(self.held.drain(..n)),
            Verdict::Refuse { pass, refusal } => {
                self.ready.extend_from_slice(&self.held[..pass]);
                self.refuse(Refused::Malformed(refusal));
            }
        }
    }

    /// Passes what may pass of the bytes that were read straight into the server's buffer, from `from` on.
    fn judge_in_place(&mut self, buf: &mut ReadBuf<'_>, from: usize) {
        let bytes = &buf.filled()[from..];
        match self.guard.inspect(bytes) {
            Verdict::Pass { n } if n == bytes.len() => {}
            Verdict::Pass { n } => {
                self.held.extend_from_slice(&bytes[n..]);
                buf.set_filled(from + n);
            }
            Verdict::Refuse { pass, refusal } => {
                buf.set_filled(from + pass);
                self.refuse(Refused::Malformed(refusal));
            }
        }
    }

    /// Whether the client may send now; keeps the waker where it may not.
    fn poll_upgrade(&mut self, cx: &mut Context<'_>) -> bool {
        if self.guard.phase() != Phase::AwaitingUpgrade {
            return true;
        }
        *self.state.reader.lock().unwrap_or_else(PoisonError::into_inner) = Some(cx.waker().clone());
        match self.state.upgrade.swap(UPGRADE_UNDECIDED, Ordering::AcqRel) {
            UPGRADE_YES => self.guard.upgraded(),
            UPGRADE_NO => self.guard.not_upgraded(),
            _ => return self.held.len() < MAX_EARLY_UPGRADE_BYTES,
        }
        self.judge_held();
        true
    }

    /// Ready when the client was silent for too long.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<Phase> {
        let phase = self.guard.phase();
        match phase {
            Phase::Idle => self.head_due = None,
            Phase::Head => {
                let due = *self.head_due.get_or_insert_with(|| Instant::now() + self.silence.head);
                if due < self.timer.deadline() {
                    self.timer.as_mut().reset(due);
                }
            }
            _ => {
                self.head_due = None;
                return Poll::Pending;
            }
        }
        // While requests come the timer is left alone: it is set to the right time when it fires.
        while self.timer.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            let due = match self.head_due {
                Some(due) => due,
                None => self.state.quiet_until(self.silence.idle).unwrap_or(now + self.silence.idle),
            };
            if due <= now {
                return Poll::Ready(phase);
            }
            self.timer.as_mut().reset(due);
        }
        Poll::Pending
    }
}

impl<S: AsyncRead + Unpin> GuardedIo<S> {
    /// Waits until there is something for a server to read, and keeps it: so a connection needs no server while it is
    /// idle. Returns false when the client has left, or was silent for too long.
    ///
    /// # Errors
    /// The connection broke off.
    pub(crate) async fn wait(&mut self) -> io::Result<bool> {
        // A read without room takes nothing.
        poll_fn(|cx| Pin::new(&mut *self).poll_read(cx, &mut ReadBuf::new(&mut []))).await?;
        Ok(self.has_ready())
    }

    /// One read while nothing is held: straight into the server's buffer. Returns whether the server has something.
    fn poll_read_in_place(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<bool>> {
        let from = buf.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buf))?;
        if buf.filled().len() == from {
            return Poll::Ready(Ok(true));
        }
        self.judge_in_place(buf, from);
        Poll::Ready(Ok(buf.filled().len() > from))
    }

    /// One read behind what is held. Returns whether the client has ended its side.
    fn poll_read_behind(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let mut room = [0; HEAD_READ_BYTES];
        let mut room = ReadBuf::new(&mut room);
        ready!(Pin::new(&mut self.inner).poll_read(cx, &mut room))?;
        if room.filled().is_empty() {
            return Poll::Ready(Ok(true));
        }
        self.held.extend_from_slice(room.filled());
        self.judge_held();
        Poll::Ready(Ok(false))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for GuardedIo<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        this.state.at_rest.store(false, Ordering::Release);
        loop {
            if this.give_ready(buf) {
                return Poll::Ready(Ok(()));
            }
            if this.ended {
                // The answer to the refusal is on its way, and the connection ends with it. The end of what the client
                // sends must not be seen before: it would take the answer for one that nobody waits for.
                if this.broken_off {
                    let error = io::Error::new(io::ErrorKind::InvalidData, "the body of the request is malformed");
                    return Poll::Ready(Err(error));
                }
                return Poll::Pending;
            }
            if !this.poll_upgrade(cx) {
                return Poll::Pending;
            }
            if this.give_ready(buf) {
                return Poll::Ready(Ok(()));
            }
            let in_place = this.held.is_empty() && buf.remaining() > 0;
            let read = if in_place { this.poll_read_in_place(cx, buf) } else { this.poll_read_behind(cx) };
            match read {
                Poll::Ready(Ok(true)) => return Poll::Ready(Ok(())),
                Poll::Ready(Ok(false)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => match this.poll_silence(cx) {
                    Poll::Ready(Phase::Head) => this.refuse(Refused::HeadTimeout),
                    // An idle connection is closed without a word, as if the client had done it.
                    Poll::Ready(_) => return Poll::Ready(Ok(())),
                    Poll::Pending => {
                        let phase = this.guard.phase();
                        // No answer goes before the request is whole, and the client may wait to hear that this came.
                        if matches!(phase, Phase::Head | Phase::Body)
                            && let Some(socket) = this.socket
                        {
                            sallyport_net::acknowledge(socket(&this.inner));
                        }
                        let is_idle = phase == Phase::Idle && this.held.is_empty();
                        this.state.at_rest.store(is_idle && !this.writing, Ordering::Release);
                        return Poll::Pending;
                    }
                },
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> GuardedIo<S> {
    /// The connection below, which is about to be written to.
    fn for_write(&mut self) -> Pin<&mut S> {
        self.writing = true;
        self.state.at_rest.store(false, Ordering::Release);
        if self.state.ending.swap(false, Ordering::AcqRel)
            && let Some(socket) = self.socket
        {
            // Where the kernel refuses, it sends one packet more.
            let _ = sallyport_net::keep_for_end(socket(&self.inner));
        }
        Pin::new(&mut self.inner)
    }

    /// A client that takes nothing of an answer does not keep it when whose it is may not go on with it.
    fn unless_over<T>(&self, cx: &mut Context<'_>, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if outcome.is_pending() && self.state.stake.poll_over(cx).is_ready() {
            return Poll::Ready(Err(io::Error::other("whose answer it is may not come in any more")));
        }
        outcome
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for GuardedIo<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = self.for_write().poll_write(cx, buf);
        self.unless_over(cx, outcome)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.inner).poll_flush(cx);
        ready!(self.unless_over(cx, outcome))?;
        self.writing = false;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.for_write().poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = self.for_write().poll_write_vectored(cx, bufs);
        self.unless_over(cx, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

    use super::*;

    const HEAD: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

    fn guarded() -> (DuplexStream, GuardedIo<DuplexStream>) {
        let (client, server) = tokio::io::duplex(1 << 16);
        let minute = Duration::from_secs(60);
        let path = RefusalPath::from_random([7; 32]);
        (client, GuardedIo::new(server, Arc::default(), path, Silence { idle: minute, head: minute }))
    }

    /// Polls a read that finds nothing.
    async fn read_nothing(io: &mut GuardedIo<DuplexStream>) {
        let mut room = [0; 64];
        poll_fn(|cx| {
            assert!(Pin::new(&mut *io).poll_read(cx, &mut ReadBuf::new(&mut room)).is_pending());
            Poll::Ready(())
        })
        .await;
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    async fn read_all(io: &mut GuardedIo<TcpStream>) {
        let mut room = [0; 64];
        poll_fn(|cx| {
            while Pin::new(&mut *io).poll_read(cx, &mut ReadBuf::new(&mut room)).is_ready() {}
            Poll::Ready(())
        })
        .await;
    }

    #[tokio::test]
    async fn what_is_waited_for_is_kept_whole_and_read_later() {
        let (mut client, mut io) = guarded();
        let bytes = [HEAD, HEAD].concat();
        let sender = tokio::spawn(async move {
            for byte in bytes {
                client.write_all(&[byte]).await.unwrap();
                tokio::task::yield_now().await;
            }
            client
        });
        for _ in 0..2 {
            assert!(io.wait().await.unwrap());
            let mut got = [0; HEAD.len()];
            io.read_exact(&mut got).await.unwrap();
            assert_eq!(got, HEAD);
        }
        drop(sender.await.unwrap());
        assert!(!io.wait().await.unwrap(), "the client has left");
    }

    #[tokio::test]
    async fn what_a_server_did_not_use_comes_before_what_follows() {
        let (mut client, mut io) = guarded();
        client.write_all(&[HEAD, HEAD].concat()).await.unwrap();
        assert!(io.wait().await.unwrap());
        let mut got = [0; 10];
        io.read_exact(&mut got).await.unwrap();
        io.put_back(&got[4..]);
        let mut rest = vec![0; 2 * HEAD.len() - 4];
        io.read_exact(&mut rest).await.unwrap();
        assert_eq!(rest, [&HEAD[4..], HEAD].concat());
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    #[tokio::test]
    async fn what_is_no_whole_request_is_acknowledged_at_once() {
        const PARTS: [(&[u8], bool); 6] = [
            (b"POST / HTTP/1.1\r\nHost: app.test\r\n", true),
            (b"Content-Length: 5\r\n\r\n", true),
            (b"four", true),
            (b"!", false),
            (b"POST / HTTP/1.1\r\nHost: app.test\r\nTransfer-Encoding: chunked\r\n\r\n", true),
            (b"1\r\n!\r\n0\r\n\r\n", false),
        ];
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        let minute = Duration::from_secs(60);
        let silence = Silence { idle: minute, head: minute };
        let io = GuardedIo::new(server, Arc::default(), RefusalPath::from_random([7; 32]), silence);
        let mut io = io.over(|server| server);
        for (part, at_once) in PARTS {
            // As after an answer.
            io.inner.set_quickack(false).unwrap();
            client.write_all(part).await.unwrap();
            io.inner.readable().await.unwrap();
            read_all(&mut io).await;
            assert_eq!(io.inner.quickack().unwrap(), at_once, "{}", part.escape_ascii());
        }
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    #[tokio::test]
    async fn the_end_of_the_last_answer_leaves_with_the_end_of_the_connection() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let minute = Duration::from_secs(60);
        let mut waited = false;
        for _ in 0..10 {
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (server, _) = listener.accept().await.unwrap();
            server.set_nodelay(true).unwrap();
            let silence = Silence { idle: minute, head: minute };
            let io = GuardedIo::new(server, Arc::default(), RefusalPath::from_random([7; 32]), silence);
            let mut io = io.over(|server| server);
            io.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
            let mut room = [0; 64];
            assert_eq!(client.read(&mut room).await.unwrap(), 19, "what is not the last does not wait");
            io.state.ends();
            io.write_all(b"the end").await.unwrap();
            let client = client.into_std().unwrap();
            // The kernel sends it by itself after 200 ms, which may pass here once, but not each time.
            waited |= client.peek(&mut room).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
            io.shutdown().await.unwrap();
            let mut rest = String::new();
            TcpStream::from_std(client).unwrap().read_to_string(&mut rest).await.unwrap();
            assert_eq!(rest, "the end");
        }
        assert!(waited);
    }

    #[tokio::test]
    async fn a_connection_rests_when_nothing_of_a_request_or_an_answer_is_on_its_way() {
        let (mut client, mut io) = guarded();
        let state = io.state.clone();
        assert!(!state.is_at_rest(), "nobody has looked yet");
        read_nothing(&mut io).await;
        assert!(state.is_at_rest());
        client.write_all(&HEAD[..10]).await.unwrap();
        read_nothing(&mut io).await;
        assert!(!state.is_at_rest(), "a head has begun");
        client.write_all(&HEAD[10..]).await.unwrap();
        let mut got = [0; HEAD.len()];
        io.read_exact(&mut got).await.unwrap();
        assert!(!state.is_at_rest());
        io.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
        read_nothing(&mut io).await;
        assert!(!state.is_at_rest(), "the answer is not flushed");
        io.flush().await.unwrap();
        read_nothing(&mut io).await;
        assert!(state.is_at_rest());
        state.left_unread();
        assert!(!state.is_at_rest(), "the connection is about to end");
    }
}
