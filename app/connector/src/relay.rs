//! Moving the bytes of one stream between the tunnel and the private service.
//!
//! One task moves both directions. A direction holds a buffer only while it has bytes in it: an idle stream has none.

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    sync::{Mutex, PoisonError},
    task::{Context, Poll, ready},
    time::Instant,
};

use sallyport_tunnel::{BEST_WRITE_BYTES, TunnelStream};
use sallyport_wire::ResetCode;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{
    origin::OriginStream,
    quick_ack::{QuickAck, Stalls},
};

/// How many buffers are kept for the next bytes that move.
const MAX_SPARE_BUFFERS: usize = 64;
/// How many times a direction goes round before other tasks get their turn.
const MAX_ROUNDS: usize = 16;

/// Buffers that nobody uses at the moment.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    spare: Mutex<Vec<Box<[u8]>>>,
}

impl Buffers {
    fn take(&self) -> Box<[u8]> {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        spare.unwrap_or_else(|| vec![0; BEST_WRITE_BYTES].into_boxed_slice())
    }

    fn give(&self, buffer: Box<[u8]>) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < MAX_SPARE_BUFFERS {
            spare.push(buffer);
        }
    }
}

/// Moves bytes both ways until both directions have ended. When one side breaks off, the other one is told so: neither
/// ever looks complete when it is not.
pub(crate) async fn relay(
    mut tunnel: TunnelStream,
    mut origin: impl OriginStream,
    buffers: &Buffers,
    stalls: &Stalls,
) -> io::Result<()> {
    let mut inwards = Direction::new(buffers);
    let mut outwards = Direction::new(buffers);
    let mut quick_ack = QuickAck::new(stalls);
    let mut refusal = None;
    let outcome = poll_fn(|cx| {
        if refusal.is_none() {
            match inwards.poll(cx, &mut tunnel, &mut origin) {
                Poll::Ready(Err(Broken::Reader(error))) => return Poll::Ready(Err((Side::Tunnel, error))),
                // A service may answer and close before it has read everything: its answer still counts.
                Poll::Ready(Err(Broken::Writer(error))) => refusal = Some(error),
                Poll::Ready(Ok(())) | Poll::Pending => {}
            }
        }
        let outcome = outwards.poll(cx, &mut origin, &mut tunnel);
        if outcome.is_pending() && quick_ack.wants(inwards.moved, outwards.moved, Instant::now) {
            origin.acknowledge();
        }
        // A client that has ended its direction may break off later: the service is not left waiting for it.
        if outcome.is_pending()
            && inwards.state == State::Over
            && let Poll::Ready(error) = tunnel.poll_given_up(cx)
        {
            return Poll::Ready(Err((Side::Tunnel, error)));
        }
        ready!(outcome).map_err(|end| end.side(Side::Origin, Side::Tunnel))?;
        match refusal.take() {
            Some(error) => Poll::Ready(Err((Side::Origin, error))),
            None if inwards.state == State::Over => Poll::Ready(Ok(())),
            None => Poll::Pending,
        }
    })
    .await;
    match outcome {
        Ok(()) => Ok(()),
        Err((Side::Origin, error)) => {
            tunnel.reset(ResetCode::OriginReset);
            Err(error)
        }
        Err((Side::Tunnel, error)) => {
            origin.abort();
            Err(error)
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Tunnel,
    Origin,
}

/// Which end of a direction broke.
enum Broken {
    Reader(io::Error),
    Writer(io::Error),
}

impl Broken {
    fn side(self, reader: Side, writer: Side) -> (Side, io::Error) {
        match self {
            Self::Reader(error) => (reader, error),
            Self::Writer(error) => (writer, error),
        }
    }
}

/// What is on its way in one direction.
struct Direction<'a> {
    buffers: &'a Buffers,
    buffer: Option<Box<[u8]>>,
    start: usize,
    end: usize,
    unflushed: bool,
    state: State,
    /// How many bytes were read so far.
    moved: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Moving,
    Ending,
    Over,
}

impl<'a> Direction<'a> {
    fn new(buffers: &'a Buffers) -> Self {
        Self { buffers, buffer: None, start: 0, end: 0, unflushed: false, state: State::Moving, moved: 0 }
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        mut reader: impl AsyncRead + Unpin,
        mut writer: impl AsyncWrite + Unpin,
    ) -> Poll<Result<(), Broken>> {
        for _ in 0..MAX_ROUNDS {
            match self.state {
                State::Over => return Poll::Ready(Ok(())),
                State::Ending => {
                    ready!(Pin::new(&mut writer).poll_shutdown(cx)).map_err(Broken::Writer)?;
                    self.state = State::Over;
                }
                State::Moving if self.start < self.end => ready!(self.poll_write(cx, &mut writer))?,
                State::Moving => ready!(self.poll_fill(cx, &mut reader, &mut writer))?,
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, writer: &mut (impl AsyncWrite + Unpin)) -> Poll<Result<(), Broken>> {
        let Some(buffer) = &self.buffer else { return Poll::Ready(Ok(())) };
        let n = ready!(Pin::new(writer).poll_write(cx, &buffer[self.start..self.end])).map_err(Broken::Writer)?;
        if n == 0 {
            return Poll::Ready(Err(Broken::Writer(io::ErrorKind::WriteZero.into())));
        }
        self.start += n;
        self.unflushed = true;
        Poll::Ready(Ok(()))
    }

    fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        reader: &mut (impl AsyncRead + Unpin),
        writer: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<Result<(), Broken>> {
        let mut buffer = self.buffer.take().unwrap_or_else(|| self.buffers.take());
        let mut into = ReadBuf::new(&mut buffer);
        let read = Pin::new(reader).poll_read(cx, &mut into);
        let filled = into.filled().len();
        match read {
            Poll::Ready(Ok(())) if filled > 0 => {
                (self.buffer, self.start, self.end) = (Some(buffer), 0, filled);
                self.moved += filled as u64;
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Ok(())) => {
                self.buffers.give(buffer);
                self.state = State::Ending;
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => {
                self.buffers.give(buffer);
                Poll::Ready(Err(Broken::Reader(error)))
            }
            Poll::Pending => {
                self.buffers.give(buffer);
                // Nothing more comes for now: what was written must not wait for it.
                if self.unflushed {
                    ready!(Pin::new(writer).poll_flush(cx)).map_err(Broken::Writer)?;
                    self.unflushed = false;
                }
                Poll::Pending
            }
        }
    }
}

impl Drop for Direction<'_> {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.buffers.give(buffer);
        }
    }
}
