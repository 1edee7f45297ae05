//! A visitor's connection in a `forwarded-tcpip` channel.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use sallyport_ssh_proto::ChannelId;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{
    connection::{Inner, StreamPlace},
    link::ReadEnd,
    stats::add,
};

/// A stream to the client's origin.
///
/// `shutdown` sends EOF, and the other direction continues; a read of 0 bytes is the origin's EOF. Dropping the stream
/// closes the channel after pending output. SSH has no resets: a channel that is closed without an EOF is read as
/// [`ConnectionReset`](io::ErrorKind::ConnectionReset), and OpenSSH closes its connection to the origin normally when
/// the stream is dropped early.
pub struct SshStream {
    channel: ChannelId,
    connection: Arc<Inner>,
    _place: StreamPlace,
}

impl SshStream {
    pub(crate) fn new(channel: ChannelId, connection: Arc<Inner>, place: StreamPlace) -> Self {
        Self { channel, connection, _place: place }
    }
}

impl AsyncRead for SshStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let target = buf.initialize_unfilled();
        let reset = |text: &'static str| Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionReset, text)));
        match ready!(self.connection.link().poll_read(self.channel, target, cx)) {
            ReadEnd::Bytes(count) => {
                buf.advance(count);
                add(&self.connection.stats().bytes_from_clients, count as u64);
                Poll::Ready(Ok(()))
            }
            ReadEnd::Eof => Poll::Ready(Ok(())),
            ReadEnd::Broken => reset("the ssh client closed the stream before its end"),
            ReadEnd::Lost => reset("the ssh connection was lost"),
        }
    }
}

impl AsyncWrite for SshStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let Some(count) = ready!(self.connection.link().poll_write(self.channel, buf, cx)) else {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::BrokenPipe, "the ssh client closed the stream")));
        };
        add(&self.connection.stats().bytes_to_clients, count as u64);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Packets are sent as soon as they are written.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.connection.link().with(|protocol| protocol.finish(self.channel));
        Poll::Ready(Ok(()))
    }
}

impl Drop for SshStream {
    fn drop(&mut self) {
        self.connection.link().release(self.channel);
    }
}

impl std::fmt::Debug for SshStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SshStream").field("channel", &self.channel).finish_non_exhaustive()
    }
}
