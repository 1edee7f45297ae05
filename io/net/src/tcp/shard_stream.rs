//! A TCP connection that moves to the shard that uses it.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use sallyport_shards::ShardId;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use super::socket_options::send_what_waits;

/// The type of encrypted records of TLS 1.3 (`application_data`, RFC 8446 section 5.2).
const APPLICATION_DATA: u8 = 23;
/// Length of an encrypted alert: level, description, content type, and the tag of the cipher (RFC 8446 sections 5.2 and
/// 6, RFC 5116 section 5). Tickets are longer.
const ALERT_BYTES: u16 = 2 + 1 + 16;

/// A TCP connection that moves to the shard that uses it, and only between shards. One task at a time may use it: a
/// task that waits on the former shard is not woken.
///
/// A leg belongs to one shard, and serves clients of others. A task of one shard that waits for a connection of another
/// one costs wake-ups of two threads, and a system call between them, for every read.
#[derive(Debug)]
pub struct ShardTcpStream {
    inner: TcpStream,
    watched_by: ShardId,
    /// Whether session tickets wait for the next write.
    tickets_wait: bool,
    /// Whether a ticket waits now. It leaves alone when no write follows.
    is_waiting: bool,
}

impl ShardTcpStream {
    /// Wraps a connection of the caller's shard.
    pub fn new(inner: TcpStream) -> Self {
        Self { inner, watched_by: ShardId::here(), tickets_wait: false, is_waiting: false }
    }

    /// Lets session tickets of TLS 1.3 leave in one packet with the next write. Call it on the server's side before the
    /// handshake, and [`ShardTcpStream::handshake_is_over`] after it.
    ///
    /// The first write of a server's handshake begins with a record of type 22, with the ServerHello (RFC 8446 section
    /// 5.1). A write that begins with type 23 is encrypted, and holds tickets or an alert. An alert does not wait: the
    /// connection ends behind it, and unread bytes would turn the end into a reset.
    pub fn let_tickets_wait(&mut self) {
        self.tickets_wait = true;
    }

    /// Lets later writes leave at once. Waiting tickets leave with the response if a request arrived with the end of
    /// the handshake or is readable. Otherwise they leave at once.
    ///
    /// A client without TCP_NODELAY may hold its request back until the end of its handshake is acknowledged (Nagle's
    /// algorithm, RFC 9293 section 3.7.4). The tickets carry that acknowledgement.
    pub fn handshake_is_over(&mut self, request_came: bool) {
        self.tickets_wait = false;
        self.is_waiting &= !request_came;
    }

    /// Whether a write waits for the next one (MSG_MORE, send(2)). Without a next one it leaves after the
    /// retransmission timeout, 200 ms at least.
    fn waits(&self, bufs: &[IoSlice<'_>]) -> bool {
        let first = bufs.iter().find(|buf| !buf.is_empty());
        self.tickets_wait
            && first.and_then(|record| record.first_chunk()).is_some_and(|[kind, _, _, high, low]| {
                *kind == APPLICATION_DATA && u16::from_be_bytes([*high, *low]) > ALERT_BYTES
            })
    }

    /// The underlying connection.
    pub fn get_ref(&self) -> &TcpStream {
        &self.inner
    }

    /// Moves the connection to the caller's shard before a read or a write. True: it has just moved, and the shard does
    /// not yet know whether the connection is ready.
    fn comes_near(&mut self) -> bool {
        let here = ShardId::here();
        if here == self.watched_by || !here.is_shard() {
            return false;
        }
        self.watched_by = here;
        // Without a spare descriptor the connection stays in its former shard.
        match watched_here(&self.inner) {
            Ok(near) => {
                self.inner = near;
                true
            }
            Err(_) => false,
        }
    }

    /// The connection, in the caller's shard.
    fn near(&mut self) -> Pin<&mut TcpStream> {
        self.comes_near();
        Pin::new(&mut self.inner)
    }
}

/// The same connection by a second descriptor of this shard: a tokio stream cannot leave its event queue.
#[cfg(unix)]
fn watched_here(stream: &TcpStream) -> io::Result<TcpStream> {
    TcpStream::from_std(socket2::SockRef::from(stream).try_clone()?.into())
}

#[cfg(not(unix))]
fn watched_here(_stream: &TcpStream) -> io::Result<TcpStream> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Reads without consulting the event queue.
#[cfg(unix)]
fn read_unasked(stream: &TcpStream, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
    use rustix::{io::Errno, net::RecvFlags};

    match rustix::net::recv(stream, buf.initialize_unfilled(), RecvFlags::DONTWAIT) {
        Ok((count, _)) => {
            buf.advance(count);
            Poll::Ready(Ok(()))
        }
        Err(Errno::WOULDBLOCK | Errno::INTR) => Poll::Pending,
        Err(error) => Poll::Ready(Err(error.into())),
    }
}

/// On other systems the connection never moves.
#[cfg(not(unix))]
fn read_unasked(_stream: &TcpStream, _buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
    Poll::Pending
}

/// Writes without consulting the event queue.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn write_unasked(stream: &TcpStream, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
    match send(stream, bufs, rustix::net::SendFlags::empty()) {
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Poll::Pending,
        outcome => Poll::Ready(outcome),
    }
}

/// On other systems the event queue is consulted.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn write_unasked(_stream: &TcpStream, _bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
    Poll::Pending
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn send(stream: &TcpStream, bufs: &[IoSlice<'_>], how: rustix::net::SendFlags) -> io::Result<usize> {
    use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

    let flags = how | SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    Ok(sendmsg(stream, bufs, &mut SendAncillaryBuffer::default(), flags)?)
}

/// Writes bytes that are followed by more (MSG_MORE).
fn poll_write_more(stream: &TcpStream, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
    loop {
        ready!(stream.poll_write_ready(cx))?;
        match try_write_more(stream, bufs) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            outcome => return Poll::Ready(outcome),
        }
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn try_write_more(stream: &TcpStream, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
    stream.try_io(tokio::io::Interest::WRITABLE, || send(stream, bufs, rustix::net::SendFlags::MORE))
}

/// On other systems the bytes leave at once.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn try_write_more(stream: &TcpStream, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
    stream.try_write_vectored(bufs)
}

impl AsyncRead for ShardTcpStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let is_new_here = self.comes_near();
        let mut read = Pin::new(&mut self.inner).poll_read(cx, buf);
        if is_new_here && read.is_pending() {
            // A caller that polls once without waiting must see received bytes, and above all an end.
            read = read_unasked(&self.inner, buf);
        }
        if std::mem::take(&mut self.is_waiting) && read.is_pending() {
            // If the kernel refuses, the bytes leave later.
            let _ = send_what_waits(&self.inner);
        }
        read
    }
}

impl AsyncWrite for ShardTcpStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.is_waiting = self.waits(&[IoSlice::new(buf)]);
        if self.is_waiting {
            return poll_write_more(&self.near(), cx, &[IoSlice::new(buf)]);
        }
        let is_new_here = self.comes_near();
        match Pin::new(&mut self.inner).poll_write(cx, buf) {
            Poll::Pending if is_new_here => write_unasked(&self.inner, &[IoSlice::new(buf)]),
            written => written,
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.is_waiting = self.waits(bufs);
        if self.is_waiting {
            return poll_write_more(&self.near(), cx, bufs);
        }
        let is_new_here = self.comes_near();
        match Pin::new(&mut self.inner).poll_write_vectored(cx, bufs) {
            Poll::Pending if is_new_here => write_unasked(&self.inner, bufs),
            written => written,
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.near().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.near().poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use sallyport_shards::Shards;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
        sync::oneshot,
    };

    use super::*;

    /// A connection and its peer.
    async fn pair() -> (ShardTcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let far = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (near, _) = listener.accept().await.unwrap();
        near.set_nodelay(true).unwrap();
        (ShardTcpStream::new(near), far)
    }

    /// The readable bytes.
    fn received_bytes(far: &TcpStream) -> Vec<u8> {
        let mut room = [0; 64];
        match rustix::net::recv(far, &mut room[..], rustix::net::RecvFlags::DONTWAIT) {
            Ok((n, _)) => room[..n].to_vec(),
            Err(error) => {
                assert_eq!(error, rustix::io::Errno::WOULDBLOCK);
                Vec::new()
            }
        }
    }

    /// A record of this type with `bytes` bytes.
    fn record(kind: u8, bytes: u16) -> Vec<u8> {
        let [high, low] = bytes.to_be_bytes();
        let mut record = vec![kind, 3, 3, high, low];
        record.resize(5 + usize::from(bytes), 7);
        record
    }

    #[tokio::test]
    async fn tickets_leave_with_what_follows_and_nothing_else_waits() {
        let (mut near, mut far) = pair().await;
        let (hello, ticket, alert) = (record(22, 30), record(APPLICATION_DATA, 20), record(APPLICATION_DATA, 19));
        near.write_all(&ticket).await.unwrap();
        assert_eq!(received_bytes(&far), ticket, "waiting is not enabled");
        near.let_tickets_wait();
        for what in [&hello, &alert] {
            near.write_all(what).await.unwrap();
            assert_eq!(received_bytes(&far), *what, "the ServerHello does not wait, and an alert does not");
        }
        let mut waited = false;
        for _ in 0..10 {
            near.let_tickets_wait();
            near.write_all(&ticket).await.unwrap();
            let mut came = received_bytes(&far);
            // The kernel sends the ticket by itself after 200 ms, which may happen here once, but not each time.
            waited |= came.is_empty();
            near.handshake_is_over(true);
            near.write_all(&alert).await.unwrap();
            while came.len() < ticket.len() + alert.len() {
                came.push(far.read_u8().await.unwrap());
            }
            assert_eq!(came, [&ticket[..], &alert].concat());
        }
        assert!(waited || cfg!(not(any(target_os = "linux", target_os = "android"))));
        near.shutdown().await.unwrap();
        assert_eq!(far.read(&mut [0]).await.unwrap(), 0);
    }

    /// Reads without waiting; whether there were bytes.
    async fn reads(near: &mut ShardTcpStream) -> bool {
        let mut room = [0; 8];
        let mut room = ReadBuf::new(&mut room);
        std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut *near).poll_read(cx, &mut room).is_ready())).await
    }

    #[tokio::test]
    async fn tickets_wait_for_no_answer_when_there_is_nothing_to_answer() {
        let ticket = record(APPLICATION_DATA, 20);
        let (mut near, far) = pair().await;
        near.let_tickets_wait();
        near.write_all(&ticket).await.unwrap();
        near.handshake_is_over(false);
        assert!(!reads(&mut near).await);
        assert_eq!(received_bytes(&far), ticket, "the client may hold its request back until then");
        let mut waited = false;
        for request_came in [true, false].into_iter().cycle().take(20) {
            let (mut near, mut far) = pair().await;
            near.let_tickets_wait();
            near.write_all(&ticket).await.unwrap();
            near.handshake_is_over(request_came);
            if !request_came {
                far.write_u8(1).await.unwrap();
                near.inner.readable().await.unwrap();
                assert!(reads(&mut near).await);
            }
            assert!(!reads(&mut near).await, "nothing more to read");
            // As above.
            waited |= received_bytes(&far).is_empty();
        }
        assert!(waited || cfg!(not(any(target_os = "linux", target_os = "android"))));
    }

    #[tokio::test]
    async fn it_moves_to_the_shard_that_uses_it_and_loses_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut far = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        let shards = Shards::start(NonZeroU16::new(2).unwrap()).unwrap();
        let (give, taken) = oneshot::channel();
        shards.spawn_unwatched(accepted.into_std().unwrap(), async |stream| {
            give.send(ShardTcpStream::new(stream)).unwrap()
        });
        let mut near = taken.await.unwrap();
        for round in 0..4_u8 {
            let was = near.watched_by;
            // One byte waits already when the connection moves, and one arrives afterwards.
            far.write_u8(round).await.unwrap();
            let (give, taken) = oneshot::channel();
            shards.spawn(async move {
                assert_eq!(near.read_u8().await.unwrap(), round);
                near.write_u8(round).await.unwrap();
                assert_eq!(near.read_u8().await.unwrap(), round + 100);
                give.send(near).unwrap();
            });
            assert_eq!(far.read_u8().await.unwrap(), round);
            far.write_u8(round + 100).await.unwrap();
            near = taken.await.unwrap();
            assert_ne!(near.watched_by, was, "the other shard's turn");
        }
        let was = near.watched_by;
        far.write_u8(7).await.unwrap();
        assert_eq!(near.read_u8().await.unwrap(), 7);
        assert_eq!(near.watched_by, was, "a thread outside of shards does not watch the connection");
    }

    #[tokio::test]
    #[cfg(target_os = "linux")]
    async fn one_look_sees_received_bytes_and_writes_work_on_any_shard() {
        let shards = Shards::start(NonZeroU16::new(2).unwrap()).unwrap();
        let (mut near, mut far) = pair().await;
        for sent in [&b"x"[..], b""] {
            if sent.is_empty() {
                far.shutdown().await.unwrap();
            } else {
                far.write_all(sent).await.unwrap();
            }
            // The bytes have arrived once the connection is readable.
            near.get_ref().readable().await.unwrap();
            let (give, taken) = oneshot::channel();
            shards.spawn(async move {
                let mut cx = Context::from_waker(std::task::Waker::noop());
                let mut room = [0; 8];
                let mut into = ReadBuf::new(&mut room);
                assert!(Pin::new(&mut near).poll_read(&mut cx, &mut into).is_ready());
                assert_eq!(into.filled(), sent);
                give.send(near).unwrap();
            });
            near = taken.await.unwrap();
            let (give, taken) = oneshot::channel();
            shards.spawn(async move {
                let mut cx = Context::from_waker(std::task::Waker::noop());
                assert!(matches!(Pin::new(&mut near).poll_write(&mut cx, b"yz"), Poll::Ready(Ok(2))));
                give.send(near).unwrap();
            });
            near = taken.await.unwrap();
            assert_eq!(far.read_u16().await.unwrap(), u16::from_be_bytes(*b"yz"));
        }
    }
}
