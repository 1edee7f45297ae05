//! A TCP connection that is watched by the shard that uses it.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
};

use sallyport_shards::ShardId;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

/// A TCP connection that moves to whichever shard uses it. A leg is dealt to one shard, and serves clients that were
/// dealt to others: a task that waits on one shard for a connection that another one watches costs a wake-up of two
/// threads, and a system call between them, for whatever comes.
///
/// It moves only between shards, and one task at a time may use it: one that waits on the former shard is not woken.
#[derive(Debug)]
pub struct NearTcp {
    inner: TcpStream,
    watched_by: ShardId,
}

impl NearTcp {
    /// A connection that the caller's shard watches.
    pub fn new(inner: TcpStream) -> Self {
        Self { inner, watched_by: ShardId::here() }
    }

    /// The connection itself.
    pub fn get_ref(&self) -> &TcpStream {
        &self.inner
    }

    /// The connection, watched by the caller's shard. Before every read and every write, so that none of them waits where
    /// the other one leaves.
    fn near(&mut self) -> Pin<&mut TcpStream> {
        let here = ShardId::here();
        if here != self.watched_by && here.is_shard() {
            self.watched_by = here;
            // Where the system has no descriptor to spare, it goes on from afar.
            if let Ok(near) = watched_here(&self.inner) {
                self.inner = near;
            }
        }
        Pin::new(&mut self.inner)
    }
}

/// The same connection by a second descriptor, which this shard watches: a stream cannot leave its event queue.
#[cfg(unix)]
fn watched_here(stream: &TcpStream) -> io::Result<TcpStream> {
    TcpStream::from_std(socket2::SockRef::from(stream).try_clone()?.into())
}

#[cfg(not(unix))]
fn watched_here(_stream: &TcpStream) -> io::Result<TcpStream> {
    Err(io::ErrorKind::Unsupported.into())
}

impl AsyncRead for NearTcp {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.near().poll_read(cx, buf)
    }
}

impl AsyncWrite for NearTcp {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.near().poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.near().poll_write_vectored(cx, bufs)
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

    #[tokio::test]
    async fn it_moves_to_the_shard_that_uses_it_and_loses_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut far = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        let shards = Shards::start(NonZeroU16::new(2).unwrap()).unwrap();
        let (give, taken) = oneshot::channel();
        shards.spawn_with(accepted, async |stream| give.send(NearTcp::new(stream)).unwrap());
        let mut near = taken.await.unwrap();
        for round in 0..4_u8 {
            let was = near.watched_by;
            // One byte waits already when it moves, and one comes after.
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
        assert_eq!(near.watched_by, was, "what is no shard watches nothing for it");
    }
}
