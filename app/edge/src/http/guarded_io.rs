//! A client's HTTP/1 connection as what reads its requests sees it: only bytes that passed the [`RequestGuard`].
//!
//! A head is handed on whole or not at all. What the guard refuses is never parsed. The connection takes the refusal in the
//! place of a request and has the ordinary request path answer it: so a refused request has an id, an error page, a line in
//! the access log and a place in the metrics like any other.

use std::{
    future::{Future, poll_fn},
    io,
    mem::MaybeUninit,
    net::SocketAddr,
    pin::{Pin, pin},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use bytes::BytesMut;
use parking_lot::Mutex;
use sallyport_http::{
    RequestRefusal,
    guard::{GuardLimits, Phase, RequestGuard, Verdict},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Instant, Sleep},
};

use crate::access::RevocationSlot;

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
    going: AtomicBool,
    revocation: RevocationSlot,
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
            going: AtomicBool::new(false),
            revocation: RevocationSlot::default(),
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
    pub(crate) fn revocation(&self) -> &RevocationSlot {
        &self.revocation
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
    /// request under way, nothing would then be lost with whatever reads from the connection.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.at_rest.load(Ordering::Acquire) && !self.is_unread()
    }

    /// Some of what the client sent, or is about to send, will not be read.
    pub(crate) fn left_unread(&self) {
        self.unread.store(true, Ordering::Release);
    }

    /// All of that has been read after all.
    pub(crate) fn left_nothing(&self) {
        self.unread.store(false, Ordering::Release);
    }

    /// Whether the client may still be sending what nobody wants. Closing at once would then reset the connection, and
    /// might take our last answer with it (RFC 9112 section 9.6).
    pub(crate) fn is_unread(&self) -> bool {
        self.refused().is_some() || self.unread.load(Ordering::Acquire)
    }

    /// It takes no more requests than the one under way.
    pub(crate) fn goes(&self) {
        self.going.store(true, Ordering::Release);
    }

    /// Whether it takes no more requests.
    pub(crate) fn is_going(&self) -> bool {
        self.going.load(Ordering::Acquire)
    }

    /// The answer under way has been given out to its end, and the connection ends behind it.
    pub(crate) fn ends(&self) {
        self.ending.store(true, Ordering::Release);
    }

    /// A WebSocket upgrade was answered; bytes that wait for the answer may go on.
    pub(crate) fn upgrade_answered(&self, upgraded: bool) {
        self.upgrade.store(if upgraded { UPGRADE_YES } else { UPGRADE_NO }, Ordering::Release);
        let waker = self.reader.lock().take();
        if let Some(waker) = waker {
            waker.wake();
        }
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
    silence: Silence,
    /// Why a request was refused that is to be answered, until it is taken.
    refusal: Option<Refused>,
    /// Bytes read that have not passed yet: the start of a head, or what follows an unanswered upgrade.
    held: BytesMut,
    /// Bytes that have passed and were not taken yet.
    ready: BytesMut,
    /// Bytes were written and not yet flushed, or the connection is being closed.
    writing: bool,
    ended: bool,
    broken_off: bool,
    head_due: Option<Instant>,
    timer: Pin<Box<Sleep>>,
}

impl<S> GuardedIo<S> {
    /// Guards this connection.
    pub(crate) fn new(inner: S, state: Arc<WireState>, silence: Silence) -> Self {
        Self {
            inner,
            socket: None,
            guard: RequestGuard::new(GuardLimits::default()),
            state,
            silence,
            refusal: None,
            held: BytesMut::new(),
            ready: BytesMut::new(),
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

    /// Whether nothing of a request is there: an empty line before one is nothing.
    pub(crate) fn is_between_requests(&self) -> bool {
        self.ready.is_empty() && self.refusal.is_none() && self.guard.phase() == Phase::Idle
    }

    /// The connection below, for when nothing that comes matters any more.
    pub(crate) fn into_unguarded(self) -> S {
        self.inner
    }

    /// The connection below after an upgrade, and what was read of it that nobody has taken.
    pub(crate) fn into_upgraded(mut self) -> (S, BytesMut) {
        self.ready.unsplit(self.held);
        (self.inner, self.ready)
    }

    /// No byte of the client counts any more. In the place of the next request there is the refusal, which is to be answered.
    /// Within a body there is none: the body just breaks off, and the request that it belongs to fails.
    pub(crate) fn refuse(&mut self, refused: Refused) {
        let _ = self.state.refused.set(refused);
        self.held = BytesMut::new();
        self.ended = true;
        self.broken_off = self.guard.is_in_body();
        if !self.broken_off {
            self.refusal = Some(refused);
        }
    }

    /// Why a request was refused, when all that came before it was taken. Told once.
    pub(crate) fn take_refusal(&mut self) -> Option<Refused> {
        if self.ready.is_empty() { self.refusal.take() } else { None }
    }

    /// Passes what may pass of the held bytes.
    fn judge_held(&mut self) {
        match self.guard.inspect(&self.held) {
            Verdict::Pass { n: 0 } => {}
            // What is left has no part in the room that is taken.
            Verdict::Pass { n } if n == self.held.len() => self.ready.unsplit(std::mem::take(&mut self.held)),
            Verdict::Pass { n } => self.ready.unsplit(self.held.split_to(n)),
            Verdict::Refuse { pass, refusal } => {
                self.ready.unsplit(self.held.split_to(pass));
                self.refuse(Refused::Malformed(refusal));
            }
        }
    }

    /// Keeps of the bytes in `into`, from `from` on, what has passed.
    fn judge_in_place(&mut self, into: &mut BytesMut, from: usize) {
        match self.guard.inspect(&into[from..]) {
            Verdict::Pass { n } if from + n == into.len() => {}
            Verdict::Pass { n } => {
                self.held.extend_from_slice(&into[from + n..]);
                into.truncate(from + n);
            }
            Verdict::Refuse { pass, refusal } => {
                into.truncate(from + pass);
                self.refuse(Refused::Malformed(refusal));
            }
        }
    }

    /// Whether the client may send now; keeps the waker where it may not.
    fn poll_upgrade(&mut self, cx: &mut Context<'_>) -> bool {
        if self.guard.phase() != Phase::AwaitingUpgrade {
            return true;
        }
        *self.state.reader.lock() = Some(cx.waker().clone());
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
                // An answer whose end is on its way has its own bound.
                None if self.writing => now + self.silence.idle,
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
    /// Waits until there is something to read, and keeps it. Returns false when the client has left, or was silent for
    /// too long.
    ///
    /// # Errors
    /// The connection broke off.
    pub(crate) async fn wait(&mut self) -> io::Result<bool> {
        poll_fn(|cx| self.poll_ready(cx, None)).await
    }

    /// Takes what has passed, behind what is in `into`; of a body up to about `room` bytes are read at once. False: the
    /// client has left, or was silent for too long.
    ///
    /// # Errors
    /// The connection broke off, or what came of a body is malformed.
    pub(crate) fn poll_passed(
        &mut self,
        into: &mut BytesMut,
        room: usize,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<bool>> {
        let before = into.len();
        let goes_on = ready!(self.poll_ready(cx, Some((into, room))))?;
        if !self.ready.is_empty() {
            into.unsplit(std::mem::take(&mut self.ready));
        }
        Poll::Ready(Ok(goes_on || into.len() > before))
    }

    /// Ready when something has passed: true, and it is in `into` or in `ready`; or when nothing will: false.
    fn poll_ready(&mut self, cx: &mut Context<'_>, mut into: Option<(&mut BytesMut, usize)>) -> Poll<io::Result<bool>> {
        self.state.at_rest.store(false, Ordering::Release);
        loop {
            if !self.ready.is_empty() {
                return Poll::Ready(Ok(true));
            }
            if self.refusal.is_some() {
                return Poll::Ready(Ok(true));
            }
            if self.ended {
                // The answer to the refusal is on its way, and the connection ends with it. The end of what the client
                // sends must not be seen before: it would take the answer for one that nobody waits for.
                if self.broken_off {
                    let error = io::Error::new(io::ErrorKind::InvalidData, "the body of the request is malformed");
                    return Poll::Ready(Err(error));
                }
                return Poll::Pending;
            }
            if !self.poll_upgrade(cx) {
                return Poll::Pending;
            }
            if !self.ready.is_empty() {
                return Poll::Ready(Ok(true));
            }
            let read = match &mut into {
                Some((into, room)) if self.held.is_empty() && self.guard.is_in_body() => {
                    self.poll_read_in_place(into, *room, cx)
                }
                _ => self.poll_read_behind(cx),
            };
            match read {
                Poll::Ready(Ok(Read::End)) => return Poll::Ready(Ok(false)),
                Poll::Ready(Ok(Read::Passed)) => return Poll::Ready(Ok(true)),
                Poll::Ready(Ok(Read::More)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => match self.poll_silence(cx) {
                    Poll::Ready(Phase::Head) => self.refuse(Refused::HeadTimeout),
                    // An idle connection is closed without a word, as if the client had done it.
                    Poll::Ready(_) => return Poll::Ready(Ok(false)),
                    Poll::Pending => {
                        self.waits();
                        return Poll::Pending;
                    }
                },
            }
        }
    }

    /// Nothing is there to be read.
    fn waits(&self) {
        let phase = self.guard.phase();
        // No answer goes before the request is whole, and the client may wait to hear that this came.
        if matches!(phase, Phase::Head | Phase::Body)
            && let Some(socket) = self.socket
        {
            sallyport_net::acknowledge(socket(&self.inner));
        }
        let is_idle = phase == Phase::Idle && self.held.is_empty();
        self.state.at_rest.store(is_idle && !self.writing, Ordering::Release);
    }

    /// One read of a body while nothing is held, straight to where it is wanted.
    fn poll_read_in_place(&mut self, into: &mut BytesMut, room: usize, cx: &mut Context<'_>) -> Poll<io::Result<Read>> {
        let from = into.len();
        if into.capacity() - from < room.min(HEAD_READ_BYTES) {
            into.reserve(room);
        }
        if ready!(pin!(self.inner.read_buf(into)).poll(cx))? == 0 {
            return Poll::Ready(Ok(Read::End));
        }
        self.judge_in_place(into, from);
        Poll::Ready(Ok(if into.len() > from { Read::Passed } else { Read::More }))
    }

    /// One read behind what is held.
    fn poll_read_behind(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Read>> {
        let mut room = [const { MaybeUninit::uninit() }; HEAD_READ_BYTES];
        let mut room = ReadBuf::uninit(&mut room);
        ready!(Pin::new(&mut self.inner).poll_read(cx, &mut room))?;
        if room.filled().is_empty() {
            return Poll::Ready(Ok(Read::End));
        }
        self.held.extend_from_slice(room.filled());
        self.judge_held();
        Poll::Ready(Ok(Read::More))
    }
}

/// What a read came to.
enum Read {
    /// The client's end.
    End,
    /// Some of it has passed, and is where it is wanted.
    Passed,
    /// It is held, or ready.
    More,
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
        if outcome.is_pending() && self.state.revocation.poll_over(cx).is_ready() {
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
        (client, GuardedIo::new(server, Arc::default(), Silence { idle: minute, head: minute }))
    }

    /// Takes what has passed, when there is something.
    async fn read(io: &mut GuardedIo<DuplexStream>) -> BytesMut {
        let mut passed = BytesMut::new();
        assert!(poll_fn(|cx| io.poll_passed(&mut passed, 64, cx)).await.unwrap());
        passed
    }

    /// Polls a read that finds nothing.
    async fn read_nothing(io: &mut GuardedIo<DuplexStream>) {
        poll_fn(|cx| {
            assert!(io.poll_passed(&mut BytesMut::new(), 64, cx).is_pending());
            Poll::Ready(())
        })
        .await;
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    async fn read_all(io: &mut GuardedIo<TcpStream>) {
        poll_fn(|cx| {
            while io.poll_passed(&mut BytesMut::new(), 64, cx).is_ready() {}
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
            assert_eq!(read(&mut io).await, HEAD);
        }
        drop(sender.await.unwrap());
        assert!(!io.wait().await.unwrap(), "the client has left");
    }

    #[tokio::test]
    async fn what_has_passed_comes_behind_what_is_there() {
        let (mut client, mut io) = guarded();
        client.write_all(&[HEAD, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 200\r\n\r\n"].concat()).await.unwrap();
        let mut passed = read(&mut io).await;
        let heads = passed.len();
        client.write_all(&[b'b'; 200]).await.unwrap();
        client.write_all(HEAD).await.unwrap();
        while passed.len() < heads + 200 + HEAD.len() {
            assert!(poll_fn(|cx| io.poll_passed(&mut passed, 64, cx)).await.unwrap());
        }
        assert!(passed[heads..].starts_with(&[b'b'; 200]) && passed.ends_with(HEAD));
    }

    #[tokio::test]
    async fn a_refusal_comes_behind_the_requests_that_passed_and_once() {
        let (mut client, mut io) = guarded();
        client.write_all(&[HEAD, b"GET / HTTP/1.1\r\nHost : a\r\n\r\n"].concat()).await.unwrap();
        assert!(io.wait().await.unwrap());
        assert_eq!(io.take_refusal(), None, "a request has passed before it");
        assert_eq!(read(&mut io).await, HEAD);
        assert!(io.wait().await.unwrap());
        assert!(matches!(io.take_refusal(), Some(Refused::Malformed(_))));
        assert_eq!(io.take_refusal(), None);
        client.write_all(HEAD).await.unwrap();
        read_nothing(&mut io).await;
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
        let io = GuardedIo::new(server, Arc::default(), silence);
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
            let io = GuardedIo::new(server, Arc::default(), silence);
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
        assert_eq!(read(&mut io).await, HEAD);
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
