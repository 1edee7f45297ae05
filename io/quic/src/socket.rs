//! A socket as an endpoint sees it: it receives what is for its connections, wherever that arrived.

use std::{
    io::{self, IoSliceMut},
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use quinn::{
    AsyncUdpSocket, UdpPoller,
    udp::{RecvMeta, Transmit},
};

use crate::router::Router;

/// How many reads of the kernel one poll makes that yield nothing for this socket.
const MAX_READS_FOR_OTHERS: usize = 16;

#[derive(Debug)]
pub(crate) struct RoutedSocket {
    pub(crate) inner: Arc<dyn AsyncUdpSocket>,
    pub(crate) number: u8,
    pub(crate) router: Arc<Router>,
    /// Whether the last batch came from elsewhere.
    pub(crate) was_routed: AtomicBool,
}

impl RoutedSocket {
    /// Copies batches from elsewhere into the buffers. Returns how many.
    fn take_routed(&self, cx: &Context<'_>, bufs: &mut [IoSliceMut<'_>], meta: &mut [RecvMeta]) -> usize {
        let mut taken = 0;
        for (buf, meta) in bufs.iter_mut().zip(meta) {
            let Poll::Ready(routed) = self.router.poll_inbox(self.number, cx) else { break };
            // Both processes read into buffers of the same size, so that nothing is cut off.
            let length = routed.data.len().min(buf.len());
            if let (Some(to), Some(from)) = (buf.get_mut(..length), routed.data.get(..length)) {
                to.copy_from_slice(from);
            }
            *meta = RecvMeta { len: length, ..routed.meta };
            taken += 1;
        }
        taken
    }
}

impl AsyncUdpSocket for RoutedSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        self.inner.clone().create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.inner.try_send(transmit)
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        // Both sources have their turn, so that a flood of one does not hold the other up.
        let is_turn_of_routed = !self.was_routed.load(Ordering::Relaxed);
        if is_turn_of_routed {
            let routed = self.take_routed(cx, bufs, meta);
            if routed > 0 {
                self.was_routed.store(true, Ordering::Relaxed);
                return Poll::Ready(Ok(routed));
            }
        }
        self.was_routed.store(false, Ordering::Relaxed);
        let received = self.poll_own(cx, bufs, meta);
        if is_turn_of_routed || received.is_ready() {
            return received;
        }
        match self.take_routed(cx, bufs, meta) {
            0 => Poll::Pending,
            routed => Poll::Ready(Ok(routed)),
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.inner.max_transmit_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.inner.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.inner.may_fragment()
    }
}

impl RoutedSocket {
    /// Receives from the own socket, and passes on what is for others.
    fn poll_own(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        for _ in 0..MAX_READS_FOR_OTHERS {
            if self.router.is_replaced() {
                return Poll::Pending;
            }
            let received = match self.inner.poll_recv(cx, bufs, meta) {
                Poll::Ready(Ok(received)) => received,
                other => return other,
            };
            let mut has_own = false;
            for (buf, meta) in bufs.iter_mut().zip(meta.iter_mut()).take(received) {
                let data = buf.get_mut(..meta.len).unwrap_or_default();
                if self.router.share(meta, data, false) {
                    meta.len = 0;
                } else if self.router.is_for(self.number, meta, data) {
                    has_own = true;
                } else {
                    // quinn skips a batch without bytes.
                    meta.len = 0;
                }
            }
            if has_own {
                return Poll::Ready(Ok(received));
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
