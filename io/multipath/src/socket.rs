//! An association as one UDP socket, for quinn.

use std::{
    fmt,
    io::{self, IoSliceMut},
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use quinn::{
    AsyncUdpSocket, UdpPoller,
    udp::{RecvMeta, Transmit},
};

use crate::association::Multipath;

/// The socket. Its only peer has the address `peer`, whatever the paths' addresses are, so QUIC sees no migration.
#[derive(Debug)]
pub(crate) struct MultipathSocket {
    pub(crate) multipath: Arc<Multipath>,
    pub(crate) local: SocketAddr,
    pub(crate) peer: SocketAddr,
}

struct RoomPoller(Arc<Multipath>);

impl fmt::Debug for RoomPoller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RoomPoller(..)")
    }
}

impl UdpPoller for RoomPoller {
    fn poll_writable(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.shared().poll_room(cx)
    }
}

impl AsyncUdpSocket for MultipathSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(RoomPoller(self.multipath.clone()))
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.multipath.shared().send(Bytes::copy_from_slice(transmit.contents))
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let mut free = bufs.iter_mut().zip(meta);
        let mut received = 0;
        let polled = self.multipath.shared().poll_receive(cx, |datagram| {
            let Some((buf, meta)) = free.next() else { return false };
            let length = datagram.len().min(buf.len());
            if let (Some(to), Some(from)) = (buf.get_mut(..length), datagram.get(..length)) {
                to.copy_from_slice(from);
            }
            *meta = RecvMeta { addr: self.peer, len: length, stride: length, ecn: None, dst_ip: None };
            received += 1;
            true
        });
        polled.map_ok(|()| received)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.local)
    }

    fn may_fragment(&self) -> bool {
        false
    }
}
