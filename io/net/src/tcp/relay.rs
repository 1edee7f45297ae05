//! Relays bytes between two connections, in both directions, in one task.
//!
//! A direction holds a buffer only while the buffer has bytes. Two idle connections hold none.

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use super::{
    read_ahead::ReadAhead, replay::ReplayStream, reset_watcher::ResetWatcher, shard_stream::ShardTcpStream,
    socket_options::acknowledge,
};

/// The most bytes that one direction moves at a time: with the header of a leg they fill whole TLS records.
const BUFFER_BYTES: usize = 65_532;
/// The most buffers that are kept for the next bytes.
const MAX_SPARE_BUFFERS: usize = 64;
/// The most rounds of a direction before other tasks run. A round fills or writes a buffer.
const MAX_ROUNDS: usize = 8;

/// The longest TLS record that is an alert, in bytes: an alert has two bytes, and encryption adds the rest.
const MAX_ALERT_BYTES: usize = 96;

/// Whether the bytes are one TLS record that is an alert, or may be one in TLS 1.3 (RFC 8446 section 5).
fn is_alert(bytes: &[u8]) -> bool {
    let [kind, 3, _, high, low, rest @ ..] = bytes else { return false };
    let length = usize::from(u16::from_be_bytes([*high, *low]));
    // In TLS 1.3 an alert looks like data: two bytes, the type, and the tag of 16 bytes.
    length == rest.len() && bytes.len() <= MAX_ALERT_BYTES && (*kind == 21 || (*kind == 23 && length == 19))
}

static SPARE: Mutex<Vec<Box<[u8]>>> = Mutex::new(Vec::new());

fn take_buffer() -> Box<[u8]> {
    let spare = SPARE.lock().pop();
    spare.unwrap_or_else(|| vec![0; BUFFER_BYTES].into_boxed_slice())
}

fn give_back(buffer: Box<[u8]>) {
    let mut spare = SPARE.lock();
    if spare.len() < MAX_SPARE_BUFFERS {
        spare.push(buffer);
    }
}

/// One of the two connections of a relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The first one.
    First,
    /// The second one.
    Second,
}

/// A connection broke, and the relay with it. Reset the other connection, so that it does not seem to end in order.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct RelayError {
    /// The connection that broke.
    pub side: Side,
    /// Whether both sides had finished. The first connection had ended its direction, and the second one had answered
    /// before. After that the second one sent nothing, or a TLS alert alone.
    ///
    /// A service that closes a socket with an unread alert resets the connection (RFC 1122 section 4.2.2.13).
    pub is_done: bool,
    /// The error of that connection.
    pub error: io::Error,
}

/// Relayed bytes. Each write counts, so the counts survive an error.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RelayCounts {
    /// From the first connection to the second.
    pub forth: u64,
    /// From the second connection to the first.
    pub back: u64,
}

/// One of the two connections of a relay.
pub trait RelayEnd: AsyncRead + AsyncWrite + Unpin {
    /// The underlying TCP connection, if there is one.
    fn tcp(&self) -> Option<&TcpStream> {
        None
    }

    /// Ready when the peer reset the connection after it had ended its direction. The relay watches an underlying TCP
    /// connection by itself.
    fn poll_reset(&mut self, _cx: &mut Context<'_>) -> Poll<io::Error> {
        Poll::Pending
    }

    /// Writes the last bytes of a direction. The end may leave together with them, if all are accepted. `poll_shutdown`
    /// follows in either case.
    fn poll_write_last(&mut self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(self).poll_write(cx, buf)
    }

    /// Called after each round: sends bytes that were held back for later ones, if their time is over.
    fn poll_delayed_write(&mut self, _cx: &mut Context<'_>) {}
}

impl RelayEnd for TcpStream {
    fn tcp(&self) -> Option<&TcpStream> {
        Some(self)
    }
}

impl RelayEnd for ShardTcpStream {
    fn tcp(&self) -> Option<&TcpStream> {
        Some(self.get_ref())
    }
}

impl<S: RelayEnd> RelayEnd for ReadAhead<S> {
    fn tcp(&self) -> Option<&TcpStream> {
        self.get_ref().tcp()
    }
}

impl<S: RelayEnd> RelayEnd for ReplayStream<S> {
    fn tcp(&self) -> Option<&TcpStream> {
        self.get_ref().tcp()
    }
}

impl<S: RelayEnd> RelayEnd for tokio_rustls::server::TlsStream<S> {
    fn tcp(&self) -> Option<&TcpStream> {
        self.get_ref().0.tcp()
    }
}

impl<S: RelayEnd> RelayEnd for tokio_rustls::client::TlsStream<S> {
    fn tcp(&self) -> Option<&TcpStream> {
        self.get_ref().0.tcp()
    }
}

impl<S: RelayEnd + ?Sized> RelayEnd for Box<S> {
    fn tcp(&self) -> Option<&TcpStream> {
        (**self).tcp()
    }

    fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        (**self).poll_reset(cx)
    }

    fn poll_write_last(&mut self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        (**self).poll_write_last(cx, buf)
    }

    fn poll_delayed_write(&mut self, cx: &mut Context<'_>) {
        (**self).poll_delayed_write(cx);
    }
}

/// Decides when bytes may move: limits of bytes a second, early acknowledgements.
pub trait Pace {
    /// Ready when the next bytes may be read.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()>;
    /// Counts bytes that moved.
    fn moved(&mut self, bytes: usize);
    /// Called when the second connection has nothing to read for now, with the bytes read so far. True: acknowledge
    /// them at once (TCP_QUICKACK).
    fn acknowledges(&mut self, _read: RelayCounts) -> bool {
        false
    }
}

/// No limit.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unpaced;

impl Pace for Unpaced {
    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }
    fn moved(&mut self, _bytes: usize) {}
}

/// Relays bytes in both directions until both have ended. The end of one direction is passed on (a half-close), and the
/// other direction goes on.
///
/// When the second connection accepts no more bytes, its own bytes are relayed to the end first: a service may answer
/// and close before it has read everything. The relay notices a reset after the end of a direction even when it has
/// nothing to write.
///
/// # Errors
/// The connection that broke, and its error.
pub async fn relay(
    first: &mut impl RelayEnd,
    second: &mut impl RelayEnd,
    pace: &mut impl Pace,
    carried: &mut RelayCounts,
) -> Result<(), RelayError> {
    let (mut forth, mut back) = (Direction::new(), Direction::new());
    let (mut first_watch, mut second_watch) = (ResetWatcher::default(), ResetWatcher::default());
    let broke = |side, error: io::Error| Poll::Ready(Err(RelayError { side, is_done: false, error }));
    poll_fn(|cx| {
        if forth.is_running() {
            forth.poll(cx, first, second, pace, &mut carried.forth);
            // Bytes that arrived while the connection was set up were relayed before.
            if back.alert_bytes.is_none() && forth.has_ended() && (carried.back > 0 || back.read > 0) {
                back.alert_bytes = Some(Vec::new());
            }
            if let Some(error) = forth.reader_broke.take() {
                return broke(Side::First, error);
            }
        }
        if back.is_running() {
            back.poll(cx, second, first, pace, &mut carried.back);
            if let Some(error) = back.reader_broke.take() {
                let is_done = back.alert_bytes.as_ref().is_some_and(|bytes| bytes.is_empty() || is_alert(bytes));
                return Poll::Ready(Err(RelayError { side: Side::Second, is_done, error }));
            }
            if let Some(error) = back.writer_broke.take() {
                return Poll::Ready(Err(RelayError { side: Side::First, is_done: back.has_only_an_alert(), error }));
            }
            if back.is_running() && pace.acknowledges(RelayCounts { forth: forth.read, back: back.read }) {
                second.tcp().into_iter().for_each(acknowledge);
            }
        }
        first.poll_delayed_write(cx);
        second.poll_delayed_write(cx);
        if forth.state == State::Over
            && back.is_running()
            && let Poll::Ready(error) = poll_reset(first, &mut first_watch, cx)
        {
            return Poll::Ready(Err(RelayError { side: Side::First, is_done: back.has_only_an_alert(), error }));
        }
        if back.state == State::Over
            && forth.is_running()
            && let Poll::Ready(error) = poll_reset(second, &mut second_watch, cx)
        {
            return broke(Side::Second, error);
        }
        if forth.is_running() || back.is_running() {
            return Poll::Pending;
        }
        forth.writer_broke.take().map_or(Poll::Ready(Ok(())), |error| broke(Side::Second, error))
    })
    .await
}

fn poll_reset(end: &mut impl RelayEnd, watch: &mut ResetWatcher, cx: &mut Context<'_>) -> Poll<io::Error> {
    match end.tcp() {
        Some(tcp) => watch.poll(tcp, cx),
        None => end.poll_reset(cx),
    }
}

/// One direction of the relay.
struct Direction {
    buffer: Option<Box<[u8]>>,
    start: usize,
    end: usize,
    unflushed: bool,
    state: State,
    /// Result of the read after the bytes in the buffer.
    read_result: ReadResult,
    /// Bytes read so far.
    read: u64,
    /// Bytes read since the other direction ended, as far as they may be a TLS alert.
    alert_bytes: Option<Vec<u8>>,
    reader_broke: Option<io::Error>,
    writer_broke: Option<io::Error>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Moving,
    Ending,
    Over,
}

/// The result of a read, besides bytes.
enum ReadResult {
    /// More may come.
    More,
    /// The end.
    End,
    /// An error.
    Failed(io::Error),
}

impl Direction {
    fn new() -> Self {
        let (reader_broke, writer_broke) = (None, None);
        let (state, read_result) = (State::Moving, ReadResult::More);
        let (buffer, alert_bytes) = (None, None);
        Self {
            buffer,
            start: 0,
            end: 0,
            unflushed: false,
            state,
            read_result,
            read: 0,
            alert_bytes,
            reader_broke,
            writer_broke,
        }
    }

    /// Whether the reader is at its end.
    fn has_ended(&self) -> bool {
        self.state != State::Moving || matches!(self.read_result, ReadResult::End)
    }

    /// Whether only a TLS alert arrived since the other direction ended.
    fn has_only_an_alert(&self) -> bool {
        self.alert_bytes.as_ref().is_some_and(|bytes| is_alert(bytes))
    }

    fn is_running(&self) -> bool {
        self.state != State::Over && self.writer_broke.is_none()
    }

    /// Moves all bytes that can move. Errors are kept in the direction.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        reader: &mut (impl AsyncRead + Unpin),
        writer: &mut impl RelayEnd,
        pace: &mut impl Pace,
        count: &mut u64,
    ) {
        for _ in 0..MAX_ROUNDS {
            let step = match self.state {
                State::Over => return,
                State::Ending => self.poll_end(cx, writer),
                State::Moving if self.start < self.end => self.poll_write(cx, writer, count),
                State::Moving => self.poll_fill(cx, reader, writer, pace),
            };
            if step.is_pending() || self.reader_broke.is_some() || self.writer_broke.is_some() {
                return;
            }
        }
        yield_turn(cx);
    }

    fn poll_end(&mut self, cx: &mut Context<'_>, writer: &mut (impl AsyncWrite + Unpin)) -> Poll<()> {
        match ready!(Pin::new(writer).poll_shutdown(cx)) {
            Ok(()) => self.state = State::Over,
            Err(error) => self.writer_broke = Some(error),
        }
        Poll::Ready(())
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, writer: &mut impl RelayEnd, count: &mut u64) -> Poll<()> {
        let Some(buffer) = &self.buffer else { return Poll::Ready(()) };
        let bytes = &buffer[self.start..self.end];
        let written = match self.read_result {
            ReadResult::End => writer.poll_write_last(cx, bytes),
            _ => Pin::new(writer).poll_write(cx, bytes),
        };
        match ready!(written) {
            Ok(0) => self.writer_broke = Some(io::ErrorKind::WriteZero.into()),
            Ok(n) => {
                self.start += n;
                *count += n as u64;
                self.unflushed = true;
            }
            Err(error) => self.writer_broke = Some(error),
        }
        Poll::Ready(())
    }

    fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        reader: &mut (impl AsyncRead + Unpin),
        writer: &mut (impl AsyncWrite + Unpin),
        pace: &mut impl Pace,
    ) -> Poll<()> {
        let (read, mut buffer) = match std::mem::replace(&mut self.read_result, ReadResult::More) {
            ReadResult::More => {
                ready!(pace.poll_ready(cx));
                let mut buffer = self.buffer.take().unwrap_or_else(take_buffer);
                (self.poll_read(cx, reader, &mut buffer), Some(buffer))
            }
            ReadResult::End => (Poll::Ready(Ok(0)), self.buffer.take()),
            ReadResult::Failed(error) => (Poll::Ready(Err(error)), self.buffer.take()),
        };
        match read {
            Poll::Ready(Ok(filled @ 1..)) => {
                pace.moved(filled);
                sallyport_shards::weigh(filled);
                self.read += filled as u64;
                if let (Some(bytes), Some(buffer)) = (&mut self.alert_bytes, &buffer) {
                    let room = (MAX_ALERT_BYTES + 1).saturating_sub(bytes.len());
                    bytes.extend_from_slice(&buffer[..filled.min(room)]);
                }
                (self.buffer, self.start, self.end) = (buffer.take(), 0, filled);
            }
            Poll::Ready(Ok(0)) => self.state = State::Ending,
            Poll::Ready(Err(error)) => self.reader_broke = Some(error),
            Poll::Pending => {
                buffer.take().into_iter().for_each(give_back);
                // No more bytes for now: written bytes must not wait for them.
                if self.unflushed {
                    match ready!(Pin::new(writer).poll_flush(cx)) {
                        Ok(()) => self.unflushed = false,
                        Err(error) => self.writer_broke = Some(error),
                    }
                }
                return Poll::Pending;
            }
        }
        buffer.into_iter().for_each(give_back);
        Poll::Ready(())
    }

    /// Reads into the buffer, and reads once more behind it, because the end can leave with the last bytes. Returns the
    /// number of bytes; 0 is the end.
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        reader: &mut (impl AsyncRead + Unpin),
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut into = ReadBuf::new(buffer);
        ready!(Pin::new(&mut *reader).poll_read(cx, &mut into))?;
        let first = into.filled().len();
        if first > 0 && into.remaining() > 0 {
            match Pin::new(reader).poll_read(cx, &mut into) {
                Poll::Ready(Ok(())) if into.filled().len() == first => self.read_result = ReadResult::End,
                Poll::Ready(Err(error)) => self.read_result = ReadResult::Failed(error),
                Poll::Ready(Ok(())) | Poll::Pending => {}
            }
        }
        Poll::Ready(Ok(into.filled().len()))
    }
}

/// Lets other tasks and the event queue run. tokio's scheduler of one thread runs a task that only wakes itself many
/// times before it looks for events.
fn yield_turn(cx: &mut Context<'_>) {
    let turn = std::pin::pin!(tokio::task::yield_now());
    if turn.poll(cx).is_ready() {
        cx.waker().wake_by_ref();
    }
}

impl Drop for Direction {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            give_back(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::{TcpListener, TcpStream},
    };

    use super::*;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (near, listener.accept().await.unwrap().0)
    }

    /// A connection with scripted reads that records writes.
    #[derive(Default)]
    struct Scripted {
        says: Vec<io::Result<&'static [u8]>>,
        got: Vec<u8>,
        got_last: Vec<u8>,
        is_ended: bool,
    }

    impl AsyncRead for Scripted {
        fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            if self.says.is_empty() {
                return Poll::Ready(Ok(()));
            }
            buf.put_slice(self.says.remove(0)?);
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Scripted {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
            self.got.extend_from_slice(buf);
            Poll::Ready(Ok(buf.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.is_ended = true;
            Poll::Ready(Ok(()))
        }
    }

    impl RelayEnd for Scripted {
        fn poll_write_last(&mut self, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
            // All but the first byte has to be written again.
            self.got_last.push(buf[0]);
            Poll::Ready(Ok(1))
        }
    }

    #[tokio::test]
    async fn the_last_bytes_are_recognised_when_the_end_follows() {
        let (mut first, mut second) = (Scripted::default(), Scripted::default());
        first.says = vec![Ok(b"much "), Ok(b"more"), Ok(b"last")];
        let mut carried = RelayCounts::default();
        relay(&mut first, &mut second, &mut Unpaced, &mut carried).await.unwrap();
        assert_eq!((&second.got[..], &second.got_last[..]), (&b"much more"[..], &b"last"[..]));
        assert!(first.is_ended && second.is_ended);
        assert_eq!(carried, RelayCounts { forth: 13, back: 0 });
    }

    #[tokio::test]
    async fn what_came_before_a_connection_broke_is_carried_first() {
        let (mut first, mut second) = (Scripted::default(), Scripted::default());
        first.says = vec![Ok(b"so far"), Err(io::ErrorKind::ConnectionReset.into())];
        let broke = relay(&mut first, &mut second, &mut Unpaced, &mut RelayCounts::default()).await.unwrap_err();
        assert_eq!((broke.side, broke.error.kind()), (Side::First, io::ErrorKind::ConnectionReset));
        assert_eq!(second.got, b"so far");
        assert!(second.got_last.is_empty() && !second.is_ended);
    }

    /// Two connections with a relay between them: the far ends, and how the relay ended.
    async fn relayed() -> (TcpStream, TcpStream, tokio::task::JoinHandle<(Result<(), RelayError>, RelayCounts)>) {
        let ((client, mut first), (mut second, service)) = (pair().await, pair().await);
        let relaying = tokio::spawn(async move {
            let mut carried = RelayCounts::default();
            let end = relay(&mut first, &mut second, &mut Unpaced, &mut carried).await;
            (end, carried)
        });
        (client, service, relaying)
    }

    #[tokio::test]
    async fn one_direction_may_end_long_before_the_other() {
        let (mut client, mut service, relaying) = relayed().await;
        client.write_all(b"all of the question").await.unwrap();
        client.shutdown().await.unwrap();
        let mut question = String::new();
        service.read_to_string(&mut question).await.unwrap();
        assert_eq!(question, "all of the question");
        service.write_all(b"an answer").await.unwrap();
        drop(service);
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "an answer");
        let (end, carried) = relaying.await.unwrap();
        assert!(end.is_ok());
        assert_eq!(carried, RelayCounts { forth: 19, back: 9 });
    }

    #[tokio::test]
    async fn a_reset_is_reported_with_its_side() {
        let (client, mut service, relaying) = relayed().await;
        client.set_zero_linger().unwrap();
        drop(client);
        let (end, _) = relaying.await.unwrap();
        assert_eq!(end.unwrap_err().side, Side::First);
        let _ = service.read(&mut [0; 1]).await;
    }

    #[tokio::test]
    async fn a_reset_after_the_end_of_a_direction_is_noticed_on_idle_connections() {
        for is_client in [true, false] {
            let (mut client, mut service, relaying) = relayed().await;
            let (ends, silent) = if is_client { (&mut client, &mut service) } else { (&mut service, &mut client) };
            ends.shutdown().await.unwrap();
            assert_eq!(silent.read(&mut [0; 1]).await.unwrap(), 0);
            ends.set_zero_linger().unwrap();
            drop(if is_client { client } else { service });
            let (end, _) = relaying.await.unwrap();
            assert_eq!(end.unwrap_err().side, if is_client { Side::First } else { Side::Second });
        }
    }

    #[tokio::test]
    async fn an_end_in_good_order_is_not_taken_for_a_reset() {
        let (mut client, mut service, relaying) = relayed().await;
        client.shutdown().await.unwrap();
        assert_eq!(service.read(&mut [0; 1]).await.unwrap(), 0);
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        service.write_all(b"still there").await.unwrap();
        service.shutdown().await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "still there");
        relaying.await.unwrap().0.unwrap();
    }

    #[tokio::test]
    async fn bytes_a_service_sent_before_it_stopped_reading_arrive() {
        let (mut client, mut service, relaying) = relayed().await;
        service.write_all(b"go away").await.unwrap();
        service.shutdown().await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "go away");
        drop((client, service));
        relaying.await.unwrap().0.unwrap();
    }

    #[test]
    fn an_alert_is_distinguished_from_data() {
        let record = |kind: u8, length: usize| {
            let bytes = u16::try_from(length).unwrap().to_be_bytes();
            [&[kind, 3, 3], &bytes[..], &vec![7; length]].concat()
        };
        assert!(is_alert(&record(21, 2)) && is_alert(&record(21, 26)) && is_alert(&record(23, 19)));
        assert!(!is_alert(&record(23, 20)) && !is_alert(&record(22, 19)) && !is_alert(&record(21, 200)));
        let two = record(23, 19).repeat(2);
        for bad in [&b""[..], b"part of an answer", &two, &two[..23], &two[..25]] {
            assert!(!is_alert(bad), "{bad:?}");
        }
    }
}
