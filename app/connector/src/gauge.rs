//! What the connections to one edge have moved, and what the kernel knows of their path.

use std::{
    collections::BTreeMap,
    io::{self, IoSlice},
    net::IpAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
};

use parking_lot::Mutex;
use sallyport_net::{ShardTcpStream, TcpPath};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

/// The most connections whose path is read: each of these costs a second descriptor. Bytes are counted of all.
const MAX_PATHS: usize = 16;

/// The connections to one edge over TCP: those that are open, and the sums of those that were.
#[derive(Debug, Default)]
pub(crate) struct Gauge {
    connections: Mutex<Connections>,
}

#[derive(Debug, Default)]
struct Connections {
    next: u64,
    open: BTreeMap<u64, Arc<Counted>>,
    past: Totals,
}

/// Sums over connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Bytes sent, below TLS.
    pub(crate) sent_bytes: u64,
    /// Bytes received, below TLS.
    pub(crate) received_bytes: u64,
    /// Packets sent.
    pub(crate) sent_packets: u64,
    /// Packets that were lost or sent again.
    pub(crate) lost_packets: u64,
}

impl Totals {
    pub(crate) fn add(&mut self, other: Self) {
        self.sent_bytes += other.sent_bytes;
        self.received_bytes += other.received_bytes;
        self.sent_packets += other.sent_packets;
        self.lost_packets += other.lost_packets;
    }

    /// Lost packets of 1,000 that were sent; `None` if none was sent.
    pub(crate) fn loss_permille(self) -> Option<u16> {
        let permille = self.lost_packets.saturating_mul(1_000).checked_div(self.sent_packets)?;
        Some(u16::try_from(permille.min(1_000)).unwrap_or(1_000))
    }
}

/// An open connection.
#[derive(Debug)]
struct Counted {
    local: Option<IpAddr>,
    path: PathReader,
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
}

impl Counted {
    fn totals(&self) -> Totals {
        let path = self.path.read();
        Totals {
            sent_bytes: self.sent_bytes.load(Ordering::Relaxed),
            received_bytes: self.received_bytes.load(Ordering::Relaxed),
            sent_packets: path.map_or(0, |path| path.sent_segments.into()),
            lost_packets: path.map_or(0, |path| path.sent_again_segments.into()),
        }
    }
}

/// Reads the path of a connection by a second descriptor of its socket.
#[derive(Debug, Default)]
struct PathReader {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    socket: Option<std::os::fd::OwnedFd>,
}

impl PathReader {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn of(stream: &TcpStream) -> Self {
        use std::os::fd::AsFd as _;

        // Without a spare descriptor the path is not known.
        Self { socket: stream.as_fd().try_clone_to_owned().ok() }
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    fn of(_stream: &TcpStream) -> Self {
        Self::default()
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn read(&self) -> Option<TcpPath> {
        sallyport_net::tcp_path(self.socket.as_ref()?)
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    fn read(&self) -> Option<TcpPath> {
        None
    }
}

/// What is known of the open connections.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading {
    /// The local address of the oldest one.
    pub(crate) local: Option<IpAddr>,
    /// Its path.
    pub(crate) path: Option<TcpPath>,
    /// The sums of all, with those that have ended.
    pub(crate) totals: Totals,
}

impl Gauge {
    /// Counts a connection from now on.
    pub(crate) fn wrap(self: &Arc<Self>, tcp: TcpStream) -> Gauged {
        let local = tcp.local_addr().ok().map(|local| local.ip().to_canonical());
        let mut connections = self.connections.lock();
        let path = if connections.open.len() < MAX_PATHS { PathReader::of(&tcp) } else { PathReader::default() };
        let (sent_bytes, received_bytes) = Default::default();
        let counted = Arc::new(Counted { local, path, sent_bytes, received_bytes });
        let number = connections.next;
        connections.next += 1;
        connections.open.insert(number, counted.clone());
        drop(connections);
        Gauged { entry: Entry { gauge: self.clone(), number, counted }, stream: ShardTcpStream::new(tcp) }
    }

    /// Adds what a connection of another kind has moved, which has ended.
    pub(crate) fn record_past(&self, totals: Totals) {
        self.connections.lock().past.add(totals);
    }

    /// What connections that have ended have moved.
    pub(crate) fn past(&self) -> Totals {
        self.connections.lock().past
    }

    /// What is known now; `None` without an open connection.
    pub(crate) fn read(&self) -> Option<Reading> {
        let connections = self.connections.lock();
        let oldest = connections.open.values().next()?;
        let mut totals = connections.past;
        connections.open.values().for_each(|one| totals.add(one.totals()));
        Some(Reading { local: oldest.local, path: oldest.path.read(), totals })
    }
}

/// The place of a connection among the open ones, until it is dropped.
#[derive(Debug)]
struct Entry {
    gauge: Arc<Gauge>,
    number: u64,
    counted: Arc<Counted>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut connections = self.gauge.connections.lock();
        connections.past.add(self.counted.totals());
        connections.open.remove(&self.number);
    }
}

/// A connection whose bytes are counted.
#[derive(Debug)]
pub(crate) struct Gauged {
    // Dropped first: the second descriptor must not keep the connection open.
    entry: Entry,
    stream: ShardTcpStream,
}

impl Gauged {
    fn record_sent(&self, bytes: usize) {
        self.entry.counted.sent_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl AsyncRead for Gauged {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        let read = buf.filled().len() - before;
        self.entry.counted.received_bytes.fetch_add(read as u64, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Gauged {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, buf))?;
        self.record_sent(written);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, bufs))?;
        self.record_sent(written);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;

    #[tokio::test]
    async fn bytes_of_open_and_of_ended_connections_are_counted_and_an_ended_one_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let gauge = Arc::new(Gauge::default());
        assert!(gauge.read().is_none());
        let mut far = Vec::new();
        let mut near = Vec::new();
        for sent in [b"first".as_slice(), b"second"] {
            let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (mut other, _) = listener.accept().await.unwrap();
            let mut gauged = gauge.wrap(stream);
            gauged.write_all(sent).await.unwrap();
            other.write_all(b"ok").await.unwrap();
            gauged.read_exact(&mut [0; 2]).await.unwrap();
            near.push(gauged);
            far.push(other);
        }
        let read = gauge.read().unwrap();
        assert_eq!((read.totals.sent_bytes, read.totals.received_bytes), (11, 4));
        assert_eq!((read.totals.sent_packets, read.totals.loss_permille()), (2, Some(0)));
        assert_eq!(read.local, Some([127, 0, 0, 1].into()));
        assert!(read.path.unwrap().mtu_bytes > 1_000);
        drop(near.remove(0));
        // Without a second descriptor that stays open, the far end sees the end.
        let mut rest = Vec::new();
        far[0].read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, b"first");
        assert_eq!(gauge.read().unwrap().totals, read.totals);
        drop(near);
        assert!(gauge.read().is_none() && gauge.past() == read.totals);
    }

    #[test]
    fn loss_is_of_what_was_sent() {
        let lost = |sent_packets, lost_packets| Totals { sent_packets, lost_packets, ..Totals::default() };
        assert_eq!(lost(0, 0).loss_permille(), None);
        assert_eq!((lost(200, 3).loss_permille(), lost(1, 9).loss_permille()), (Some(15), Some(1_000)));
    }
}
