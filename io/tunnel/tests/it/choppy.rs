//! Carriers that read and write as little as they may, so that every split of every frame occurs.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use sallyport_tunnel::{BoxFuture, BoxedCarrier, Dial};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};

use crate::lab::*;

/// A xorshift generator, the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Moves between 1 and 2,000 bytes at a time, mostly few, or returns `Pending`.
struct Choppy {
    inner: DuplexStream,
    dice: Dice,
    is_vectored: bool,
}

impl Choppy {
    /// The count of bytes to move now; `None` for `Pending`.
    fn share(&mut self, cx: &Context<'_>) -> Option<usize> {
        let size = match self.dice.below(5) {
            0 => {
                cx.waker().wake_by_ref();
                return None;
            }
            1 => self.dice.below(2_000),
            _ => self.dice.below(9),
        };
        Some(size as usize + 1)
    }
}

impl AsyncRead for Choppy {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Some(share) = self.share(cx) else { return Poll::Pending };
        let share = share.min(buf.remaining());
        let mut part = vec![0; share];
        let mut part = ReadBuf::new(&mut part);
        let poll = Pin::new(&mut self.inner).poll_read(cx, &mut part);
        buf.put_slice(part.filled());
        poll
    }
}

impl AsyncWrite for Choppy {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let Some(share) = self.share(cx) else { return Poll::Pending };
        Pin::new(&mut self.inner).poll_write(cx, &buf[..share.min(buf.len())])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let joined = if self.is_vectored {
            bufs.iter().flat_map(|buf| buf.iter().copied()).collect()
        } else {
            bufs.first().map_or_else(Vec::new, |buf| buf.to_vec())
        };
        self.poll_write(cx, &joined)
    }

    fn is_write_vectored(&self) -> bool {
        self.is_vectored
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.share(cx).is_none() {
            return Poll::Pending;
        }
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

struct ChoppyPipes {
    edge: Edge,
    is_vectored: bool,
}

impl Dial for ChoppyPipes {
    fn dial(&self) -> BoxFuture<'static, io::Result<BoxedCarrier>> {
        let (near, far) = tokio::io::duplex(50_000);
        let (edge, is_vectored) = (self.edge.clone(), self.is_vectored);
        Box::pin(async move {
            let far = Choppy { inner: far, dice: Dice(0x9e37_79b9_7f4a_7c15), is_vectored };
            let near = Choppy { inner: near, dice: Dice(0xd1b5_4a32_d192_ed03), is_vectored };
            tokio::spawn(async move { edge.tunnels.serve_carrier(far, peer()).await });
            Ok(Box::new(near) as BoxedCarrier)
        })
    }
}

#[tokio::test]
async fn every_split_of_frames_is_put_together_again() {
    for (max_legs, is_vectored) in [(512, true), (512, false), (0, true)] {
        let edge = Edge::new();
        let dial = Arc::new(ChoppyPipes { edge: edge.clone(), is_vectored });
        let _connector = Connector::start_with(dial, echo(), &[tunnel(1)], |config| config.max_legs = max_legs);
        let handle = edge.attached(tunnel(1)).await;
        if max_legs > 0 {
            until("the legs join", || edge.tunnels.stats().legs_idle >= 8).await;
        }
        let mut dice = Dice(42);
        for round in 0..40 {
            let (mut reader, mut writer) = tokio::io::split(handle.open(open_for(tunnel(1))).unwrap());
            let bytes: Vec<u8> = (0..dice.below(150_000)).map(|at| (at % 251) as u8).collect();
            let sizes: Vec<usize> = (0..1_000).map(|_| dice.below(20_000) as usize + 1).collect();
            let sent = bytes.clone();
            let writing = async move {
                let mut rest = sent.as_slice();
                for size in sizes {
                    let (now, later) = rest.split_at(size.min(rest.len()));
                    writer.write_all(now).await.unwrap();
                    rest = later;
                }
                writer.shutdown().await.unwrap();
            };
            let mut back = Vec::new();
            let reading = async { reader.read_to_end(&mut back).await.unwrap() };
            soon(async { tokio::join!(writing, reading) }).await;
            assert!(back == bytes, "round {round}, legs {max_legs}, vectored {is_vectored}");
        }
    }
}

#[tokio::test]
async fn streams_that_are_given_up_anywhere_leave_usable_tunnels() {
    for max_legs in [512, 0] {
        let edge = Edge::new();
        let dial = Arc::new(ChoppyPipes { edge: edge.clone(), is_vectored: true });
        let _connector = Connector::start_with(dial, echo(), &[tunnel(1)], |config| config.max_legs = max_legs);
        let handle = edge.attached(tunnel(1)).await;
        let mut dice = Dice(7);
        for _ in 0..150 {
            let mut stream = handle.open(open_for(tunnel(1))).unwrap();
            let bytes = vec![1; dice.below(100_000) as usize];
            let mut back = vec![0; dice.below(100_000) as usize];
            let (mut reader, mut writer) = tokio::io::split(&mut stream);
            let polls = dice.below(400);
            let work = async { tokio::join!(writer.write_all(&bytes), reader.read_exact(&mut back)) };
            // Dropped after some number of polls, in the middle of any operation.
            let mut work = std::pin::pin!(work);
            for _ in 0..polls {
                if std::future::poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx).is_ready())).await {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        let stream = handle.open(open_for(tunnel(1))).unwrap();
        assert_eq!(soon(exchange(stream, b"still good")).await.unwrap(), b"still good");
        until("all streams end", || handle.active_streams() == 0).await;
        until("their legs are idle or closed", || {
            edge.tunnels.stats().legs_busy == 0 && edge.tunnels.stats().mux_streams == 0
        })
        .await;
    }
}
