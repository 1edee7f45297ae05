//! Moving bytes between two connections, both ways, in one task.
//!
//! A direction holds a buffer only while it has bytes in it: two idle connections hold none.

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    sync::{Mutex, PoisonError},
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How much one direction carries at a time: with a leg's header it fills whole TLS records.
const BUFFER_BYTES: usize = 65_532;
/// How many buffers are kept for the next bytes that move.
const MAX_SPARE_BUFFERS: usize = 64;
/// How many times a direction goes round before other tasks get their turn.
const MAX_ROUNDS: usize = 16;

static SPARE: Mutex<Vec<Box<[u8]>>> = Mutex::new(Vec::new());

fn take_buffer() -> Box<[u8]> {
    let spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner).pop();
    spare.unwrap_or_else(|| vec![0; BUFFER_BYTES].into_boxed_slice())
}

fn give_back(buffer: Box<[u8]>) {
    let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
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

/// A connection broke off, and the relay with it. The other one must not look as if it had ended in good order: reset it.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Broke {
    /// The connection that broke.
    pub side: Side,
    /// How.
    pub error: io::Error,
}

/// How many bytes were carried; counted as they are written, so that the counts survive an error.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Carried {
    /// From the first connection to the second.
    pub forth: u64,
    /// From the second connection to the first.
    pub back: u64,
}

/// Something that says when bytes may move; for bounds on bytes per second.
pub trait Pace {
    /// Ready when the next bytes may be read.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()>;
    /// So many bytes moved.
    fn moved(&mut self, bytes: usize);
}

/// No bound.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unpaced;

impl Pace for Unpaced {
    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }
    fn moved(&mut self, _bytes: usize) {}
}

/// Carries bytes both ways until both directions have ended. The end of one direction is passed on (a half-close) and
/// leaves the other one running. When a connection cannot be written to any more, what it still sends is carried to the
/// end first: a service may answer and close before it has read everything.
///
/// # Errors
/// Which connection broke, and how.
pub async fn relay(
    first: &mut (impl AsyncRead + AsyncWrite + Unpin),
    second: &mut (impl AsyncRead + AsyncWrite + Unpin),
    pace: &mut impl Pace,
    carried: &mut Carried,
) -> Result<(), Broke> {
    let (mut forth, mut back) = (Direction::new(), Direction::new());
    poll_fn(|cx| {
        if forth.is_running() {
            forth.poll(cx, first, second, pace, &mut carried.forth);
            if let Some(error) = forth.reader_broke.take() {
                return Poll::Ready(Err(Broke { side: Side::First, error }));
            }
        }
        if back.is_running() {
            back.poll(cx, second, first, pace, &mut carried.back);
            if let Some(error) = back.reader_broke.take() {
                return Poll::Ready(Err(Broke { side: Side::Second, error }));
            }
        }
        if forth.is_running() || back.is_running() {
            return Poll::Pending;
        }
        let broke = |side, error: Option<io::Error>| error.map(|error| Broke { side, error });
        let end =
            broke(Side::Second, forth.writer_broke.take()).or_else(|| broke(Side::First, back.writer_broke.take()));
        Poll::Ready(end.map_or(Ok(()), Err))
    })
    .await
}

/// What is on its way in one direction.
struct Direction {
    buffer: Option<Box<[u8]>>,
    start: usize,
    end: usize,
    unflushed: bool,
    state: State,
    reader_broke: Option<io::Error>,
    writer_broke: Option<io::Error>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Moving,
    Ending,
    Over,
}

impl Direction {
    fn new() -> Self {
        let (reader_broke, writer_broke) = (None, None);
        Self { buffer: None, start: 0, end: 0, unflushed: false, state: State::Moving, reader_broke, writer_broke }
    }

    fn is_running(&self) -> bool {
        self.state != State::Over && self.writer_broke.is_none()
    }

    /// Moves what can be moved. Errors are kept in the direction.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        reader: &mut (impl AsyncRead + Unpin),
        writer: &mut (impl AsyncWrite + Unpin),
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
        cx.waker().wake_by_ref();
    }

    fn poll_end(&mut self, cx: &mut Context<'_>, writer: &mut (impl AsyncWrite + Unpin)) -> Poll<()> {
        match ready!(Pin::new(writer).poll_shutdown(cx)) {
            Ok(()) => self.state = State::Over,
            Err(error) => self.writer_broke = Some(error),
        }
        Poll::Ready(())
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        writer: &mut (impl AsyncWrite + Unpin),
        count: &mut u64,
    ) -> Poll<()> {
        let Some(buffer) = &self.buffer else { return Poll::Ready(()) };
        match ready!(Pin::new(writer).poll_write(cx, &buffer[self.start..self.end])) {
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
        ready!(pace.poll_ready(cx));
        let mut buffer = self.buffer.take().unwrap_or_else(take_buffer);
        let mut into = ReadBuf::new(&mut buffer);
        let read = Pin::new(reader).poll_read(cx, &mut into);
        let filled = into.filled().len();
        match read {
            Poll::Ready(Ok(())) if filled > 0 => {
                pace.moved(filled);
                (self.buffer, self.start, self.end) = (Some(buffer), 0, filled);
                return Poll::Ready(());
            }
            Poll::Ready(Ok(())) => self.state = State::Ending,
            Poll::Ready(Err(error)) => self.reader_broke = Some(error),
            Poll::Pending => {
                give_back(buffer);
                // Nothing more comes for now: what was written must not wait for it.
                if self.unflushed {
                    match ready!(Pin::new(writer).poll_flush(cx)) {
                        Ok(()) => self.unflushed = false,
                        Err(error) => self.writer_broke = Some(error),
                    }
                }
                return Poll::Pending;
            }
        }
        give_back(buffer);
        Poll::Ready(())
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

    /// Two connections with a relay between them: the far ends, and how the relay ended.
    async fn relayed() -> (TcpStream, TcpStream, tokio::task::JoinHandle<(Result<(), Broke>, Carried)>) {
        let ((client, mut first), (mut second, service)) = (pair().await, pair().await);
        let relaying = tokio::spawn(async move {
            let mut carried = Carried::default();
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
        assert_eq!(carried, Carried { forth: 19, back: 9 });
    }

    #[tokio::test]
    async fn a_reset_is_told_with_its_side() {
        let (client, mut service, relaying) = relayed().await;
        client.set_zero_linger().unwrap();
        drop(client);
        let (end, _) = relaying.await.unwrap();
        assert_eq!(end.unwrap_err().side, Side::First);
        let _ = service.read(&mut [0; 1]).await;
    }

    #[tokio::test]
    async fn what_a_service_said_before_it_stopped_listening_arrives() {
        let (mut client, mut service, relaying) = relayed().await;
        service.write_all(b"go away").await.unwrap();
        service.shutdown().await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "go away");
        drop((client, service));
        relaying.await.unwrap().0.unwrap();
    }
}
