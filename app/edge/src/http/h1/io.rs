//! The I/O of one HTTP/1 client connection: its stream, its [`Server`], and its timeouts.

use std::{
    future::Future,
    io::{self, IoSlice},
    mem::MaybeUninit,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use sallyport_http::RequestRefusal;
use sallyport_http1::server::{Config, MAX_SLICES, NewRequest, Phase, Server};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Instant, Sleep},
};

use crate::http::wire_state::WireState;

/// How many bytes are read at once outside of bodies.
const HEAD_READ_BYTES: usize = 4_096;

/// How long a client may send nothing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClientTimeouts {
    /// Between requests.
    pub(crate) idle: Duration,
    /// From the first byte of a head to the last.
    pub(crate) head: Duration,
}

/// Drives a [`Server`] over a stream.
pub(crate) struct ServerIo<S> {
    stream: S,
    /// Finds the TCP socket below the stream, if there is one.
    socket: Option<fn(&S) -> &TcpStream>,
    pub(super) server: Server,
    state: Arc<WireState>,
    timeouts: ClientTimeouts,
    /// Whether bytes were written and not flushed, or the connection is being shut down.
    is_writing: bool,
    head_due: Option<Instant>,
    timer: Pin<Box<Sleep>>,
}

impl<S> ServerIo<S> {
    /// A new connection over this stream.
    pub(crate) fn new(stream: S, state: Arc<WireState>, timeouts: ClientTimeouts) -> Self {
        let timer = Box::pin(tokio::time::sleep(timeouts.head));
        let server = Server::new(Config::default());
        Self { stream, socket: None, server, state, timeouts, is_writing: false, head_due: None, timer }
    }

    /// Uses the socket options: the last response and the FIN leave in one packet, and incomplete requests are
    /// acknowledged at once.
    pub(crate) fn with_socket(mut self, socket: fn(&S) -> &TcpStream) -> Self {
        self.socket = Some(socket);
        self
    }

    /// The state that requests share with the connection.
    pub(super) fn state(&self) -> &WireState {
        &self.state
    }

    /// The server, and the state that requests share with the connection.
    pub(super) fn server_and_state(&mut self) -> (&mut Server, &WireState) {
        (&mut self.server, &self.state)
    }

    /// The stream, when no byte of the client counts any more.
    pub(crate) fn into_stream(self) -> S {
        self.stream
    }

    /// The stream and the server, for the next protocol.
    pub(super) fn into_parts(self) -> (S, Server) {
        (self.stream, self.server)
    }

    /// Takes the next request, or the refusal in its place. The head behind it has its own timeout.
    pub(super) fn poll_request(&mut self) -> Option<Result<NewRequest, RequestRefusal>> {
        let next = self.server.poll_request()?;
        self.head_due = None;
        Some(next)
    }

    /// Ready with the phase in which the client exceeded its timeout.
    fn poll_timeout(&mut self, cx: &mut Context<'_>) -> Poll<Phase> {
        let phase = self.server.phase();
        match phase {
            Phase::Idle => self.head_due = None,
            Phase::Head => {
                let due = *self.head_due.get_or_insert_with(|| Instant::now() + self.timeouts.head);
                if due < self.timer.deadline() {
                    self.timer.as_mut().reset(due);
                }
            }
            _ => {
                self.head_due = None;
                return Poll::Pending;
            }
        }
        // Requests do not reset the timer. When it fires, it is set to the right time.
        while self.timer.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            let due = match self.head_due {
                Some(due) => due,
                // The end of a response has a bound of its own.
                None if self.is_writing => now + self.timeouts.idle,
                None => self.state.quiet_until(self.timeouts.idle).unwrap_or(now + self.timeouts.idle),
            };
            if due <= now {
                return Poll::Ready(phase);
            }
            self.timer.as_mut().reset(due);
        }
        Poll::Pending
    }
}

impl<S: AsyncRead + Unpin> ServerIo<S> {
    /// Waits until the server has a request or a refusal. Returns false if the client has left or exceeded its timeout.
    ///
    /// # Errors
    /// The connection failed.
    pub(crate) async fn wait(&mut self) -> io::Result<bool> {
        std::future::poll_fn(|cx| {
            while !self.server.advance() {
                if !ready!(self.poll_read(0, cx))? {
                    return Poll::Ready(Ok(false));
                }
            }
            Poll::Ready(Ok(true))
        })
        .await
    }

    /// Reads once into the server, up to about `room` bytes of a body. Ready with true if bytes came, or if the head is
    /// refused because of its timeout. Ready with false if the client has left or was idle for too long.
    ///
    /// # Errors
    /// The connection failed.
    pub(super) fn poll_read(&mut self, room: usize, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        self.state.set_at_rest(false);
        let read = if self.server.phase() == Phase::Body && self.server.unread_bytes() == 0 {
            self.poll_read_body(room, cx)
        } else {
            self.poll_read_head(cx)
        };
        if let Poll::Ready(read) = read {
            return Poll::Ready(read.map(|bytes| bytes > 0));
        }
        match self.poll_timeout(cx) {
            Poll::Ready(Phase::Head) => {
                self.server.refuse(RequestRefusal::HeadTimeout);
                Poll::Ready(Ok(true))
            }
            // An idle connection is closed without a response, as if the client had closed it.
            Poll::Ready(_) => Poll::Ready(Ok(false)),
            Poll::Pending => {
                self.mark_waiting();
                Poll::Pending
            }
        }
    }

    /// Reads into the server's buffer.
    fn poll_read_body(&mut self, room: usize, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let into = self.server.input_mut();
        if into.capacity() - into.len() < room.min(HEAD_READ_BYTES) {
            into.reserve(room);
        }
        pin!(self.stream.read_buf(into)).poll(cx)
    }

    /// Reads into a buffer on the stack, so that an idle connection has none.
    fn poll_read_head(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut room = [const { MaybeUninit::uninit() }; HEAD_READ_BYTES];
        let mut room = ReadBuf::uninit(&mut room);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut room))?;
        self.server.handle_input(room.filled());
        Poll::Ready(Ok(room.filled().len()))
    }

    /// Records that there is nothing to read.
    fn mark_waiting(&self) {
        let phase = self.server.phase();
        // No response comes before the request is complete, and the client may wait for the acknowledgement.
        if matches!(phase, Phase::Head | Phase::Body)
            && let Some(socket) = self.socket
        {
            sallyport_net::acknowledge(socket(&self.stream));
        }
        let is_idle = phase == Phase::Idle && self.server.unread_bytes() == 0;
        self.state.set_at_rest(is_idle && !self.is_writing);
    }
}

impl<S: AsyncWrite + Unpin> ServerIo<S> {
    /// Writes the output of the server. If the access of the client is revoked, the rest of the response is dropped.
    ///
    /// # Errors
    /// The connection failed, or access was revoked.
    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.server.output().is_empty() {
            self.mark_writing();
            let mut slices = [IoSlice::new(&[]); MAX_SLICES];
            let count = self.server.output().slices(&mut slices);
            let stream = Pin::new(&mut self.stream);
            let written = match &slices[..count] {
                [one] => stream.poll_write(cx, one),
                several => stream.poll_write_vectored(cx, several),
            };
            let written = ready!(self.unless_revoked(cx, written))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.server.output().mark_written(written);
        }
        Poll::Ready(Ok(()))
    }

    /// Flushes the stream.
    ///
    /// # Errors
    /// The connection failed, or access was revoked.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        ready!(self.unless_revoked(cx, flushed))?;
        self.is_writing = false;
        Poll::Ready(Ok(()))
    }

    /// Shuts down the edge's side of the connection.
    ///
    /// # Errors
    /// The connection failed.
    pub(crate) async fn shutdown(&mut self) -> io::Result<()> {
        std::future::poll_fn(|cx| {
            self.mark_writing();
            Pin::new(&mut self.stream).poll_shutdown(cx)
        })
        .await
    }

    /// Records that the stream is about to be written.
    fn mark_writing(&mut self) {
        self.is_writing = true;
        self.state.set_at_rest(false);
        if self.state.take_last_write()
            && let Some(socket) = self.socket
        {
            // If the kernel refuses, the FIN takes a packet of its own.
            let _ = sallyport_net::keep_for_end(socket(&self.stream));
        }
    }

    /// Replaces a pending outcome by an error if the access of the client is revoked.
    fn unless_revoked<T>(&self, cx: &mut Context<'_>, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if outcome.is_pending() && self.state.revocation().poll_over(cx).is_ready() {
            return Poll::Ready(Err(io::Error::other("the access of the client was revoked")));
        }
        outcome
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::future::poll_fn;

    use bytes::Bytes;
    use http::{HeaderMap, StatusCode};
    use sallyport_http1::{Piece, server::ResponseHead};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

    use super::*;

    const HEAD: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

    pub(in crate::http::h1) fn connected() -> (DuplexStream, ServerIo<DuplexStream>) {
        let (client, server) = tokio::io::duplex(1 << 16);
        let minute = Duration::from_secs(60);
        (client, ServerIo::new(server, Arc::default(), ClientTimeouts { idle: minute, head: minute }))
    }

    /// Responds to the current request without a body.
    fn respond<S>(io: &mut ServerIo<S>) {
        let head = ResponseHead {
            status: StatusCode::NO_CONTENT,
            fields: &HeaderMap::new(),
            length: Some(0),
            may_persist: true,
        };
        io.server.send_head(&head);
    }

    /// Polls a read that finds nothing.
    async fn read_nothing<S: AsyncRead + Unpin>(io: &mut ServerIo<S>) {
        poll_fn(|cx| {
            assert!(io.poll_read(64, cx).is_pending());
            Poll::Ready(())
        })
        .await;
    }

    async fn flush(io: &mut ServerIo<DuplexStream>) {
        poll_fn(|cx| io.poll_flush(cx)).await.unwrap();
    }

    #[tokio::test]
    async fn pipelined_requests_are_read_one_by_one() {
        let (mut client, mut io) = connected();
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
            assert!(io.wait().await.unwrap(), "the request waits to be taken");
            assert!(io.server.poll_request().unwrap().is_ok());
            assert!(!io.server.advance(), "the next one waits for the response");
            respond(&mut io);
        }
        drop(sender.await.unwrap());
        assert!(!io.wait().await.unwrap(), "the client has left");
    }

    #[tokio::test]
    async fn a_body_is_read_up_to_the_next_request() {
        let (mut client, mut io) = connected();
        client.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 200\r\n\r\n").await.unwrap();
        assert!(io.wait().await.unwrap());
        assert!(io.server.poll_request().unwrap().is_ok());
        client.write_all(&[b'b'; 200]).await.unwrap();
        client.write_all(HEAD).await.unwrap();
        let mut body = Vec::new();
        while !io.server.is_body_over() {
            match io.server.poll_body().unwrap() {
                Piece::Data(data) => body.extend_from_slice(&data),
                piece => {
                    assert_eq!(piece, Piece::Missing);
                    assert!(poll_fn(|cx| io.poll_read(64, cx)).await.unwrap());
                }
            }
        }
        assert_eq!(body, [b'b'; 200]);
        respond(&mut io);
        assert!(io.wait().await.unwrap());
        assert!(io.server.poll_request().unwrap().is_ok());
    }

    #[tokio::test]
    async fn a_refusal_follows_the_request_before_it_once() {
        let (mut client, mut io) = connected();
        client.write_all(&[HEAD, b"GET / HTTP/1.1\r\nHost : a\r\n\r\n"].concat()).await.unwrap();
        assert!(io.wait().await.unwrap());
        assert!(io.server.poll_request().unwrap().is_ok());
        respond(&mut io);
        assert!(io.wait().await.unwrap());
        assert_eq!(io.server.poll_request().unwrap().unwrap_err(), RequestRefusal::SpaceBeforeColon);
        respond(&mut io);
        client.write_all(HEAD).await.unwrap();
        assert!(io.server.poll_request().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_head_is_refused_and_an_idle_connection_closes() {
        let (mut client, mut io) = connected();
        assert!(!io.wait().await.unwrap(), "an idle connection closes");
        client.write_all(&HEAD[..10]).await.unwrap();
        assert!(io.wait().await.unwrap());
        assert_eq!(io.server.poll_request().unwrap().unwrap_err(), RequestRefusal::HeadTimeout);
    }

    #[tokio::test(start_paused = true)]
    async fn each_head_has_its_own_time() {
        let (mut client, mut io) = connected();
        client.write_all(&HEAD[..10]).await.unwrap();
        assert!(poll_fn(|cx| io.poll_read(0, cx)).await.unwrap());
        read_nothing(&mut io).await;
        client.write_all(&[&HEAD[10..], &HEAD[..10]].concat()).await.unwrap();
        assert!(io.wait().await.unwrap());
        assert!(io.poll_request().unwrap().is_ok());
        tokio::time::sleep(Duration::from_secs(100)).await;
        respond(&mut io);
        client.write_all(&HEAD[10..]).await.unwrap();
        assert!(io.wait().await.unwrap());
        assert!(io.poll_request().unwrap().is_ok(), "the second head came at once when its turn came");
    }

    /// Reads all bytes, and consumes them in the server.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    async fn take_all(io: &mut ServerIo<TcpStream>) {
        if io.server.phase() == Phase::Response {
            respond(io);
        }
        poll_fn(|cx| {
            while io.poll_read(64, cx).is_ready() {
                let _ = io.server.poll_request();
                while !matches!(io.server.poll_body(), Ok(Piece::Missing | Piece::End) | Err(_)) {}
            }
            Poll::Ready(())
        })
        .await;
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    #[tokio::test]
    async fn incomplete_requests_are_acknowledged_at_once() {
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
        let io = ServerIo::new(server, Arc::default(), ClientTimeouts { idle: minute, head: minute });
        let mut io = io.with_socket(|server| server);
        for (part, at_once) in PARTS {
            // As after a response.
            io.stream.set_quickack(false).unwrap();
            client.write_all(part).await.unwrap();
            io.stream.readable().await.unwrap();
            take_all(&mut io).await;
            assert_eq!(io.stream.quickack().unwrap(), at_once, "{}", part.escape_ascii());
        }
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    #[tokio::test]
    async fn the_last_response_leaves_together_with_the_fin() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let minute = Duration::from_secs(60);
        let mut has_waited = false;
        for _ in 0..10 {
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (server, _) = listener.accept().await.unwrap();
            server.set_nodelay(true).unwrap();
            let io = ServerIo::new(server, Arc::default(), ClientTimeouts { idle: minute, head: minute });
            let mut io = io.with_socket(|server| server);
            client.write_all(HEAD).await.unwrap();
            assert!(io.wait().await.unwrap());
            assert!(io.server.poll_request().unwrap().is_ok());
            let head =
                ResponseHead { status: StatusCode::OK, fields: &HeaderMap::new(), length: Some(7), may_persist: false };
            io.server.send_head(&head);
            poll_fn(|cx| io.poll_write(cx)).await.unwrap();
            let mut room = [0; 256];
            let read = client.read(&mut room).await.unwrap();
            assert!(room[..read].ends_with(b"\r\n\r\n"), "what is not the last does not wait");
            io.state.mark_last_write();
            io.server.send_data(Bytes::from_static(b"the end"));
            io.server.finish(None).unwrap();
            poll_fn(|cx| io.poll_write(cx)).await.unwrap();
            let client = client.into_std().unwrap();
            // The kernel sends the bytes after 200 ms in any case. That time may pass once here, but not in every
            // round.
            has_waited |= client.peek(&mut room).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
            io.shutdown().await.unwrap();
            let mut rest = String::new();
            TcpStream::from_std(client).unwrap().read_to_string(&mut rest).await.unwrap();
            assert_eq!(rest, "the end");
        }
        assert!(has_waited);
    }

    #[tokio::test]
    async fn a_connection_is_at_rest_between_requests() {
        let (mut client, mut io) = connected();
        let state = io.state.clone();
        assert!(!state.is_at_rest(), "nothing was read yet");
        read_nothing(&mut io).await;
        assert!(state.is_at_rest());
        client.write_all(&HEAD[..10]).await.unwrap();
        assert!(poll_fn(|cx| io.poll_read(0, cx)).await.unwrap());
        assert!(!io.server.advance());
        read_nothing(&mut io).await;
        assert!(!state.is_at_rest(), "a head has begun");
        client.write_all(&HEAD[10..]).await.unwrap();
        assert!(io.wait().await.unwrap());
        assert!(io.server.poll_request().unwrap().is_ok());
        read_nothing(&mut io).await;
        assert!(!state.is_at_rest(), "a request is served");
        respond(&mut io);
        poll_fn(|cx| io.poll_write(cx)).await.unwrap();
        read_nothing(&mut io).await;
        assert!(!state.is_at_rest(), "the response is not flushed");
        flush(&mut io).await;
        read_nothing(&mut io).await;
        assert!(state.is_at_rest());
        state.mark_unread();
        assert!(!state.is_at_rest(), "the connection is about to end");
    }
}
