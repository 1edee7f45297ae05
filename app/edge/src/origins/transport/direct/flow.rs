//! Datagram flows to a direct origin, each with a UDP socket of its own.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, OnceLock, atomic::Ordering},
};

use parking_lot::Mutex;
use sallyport_net::UdpPort;
use sallyport_ports::NoSlice;
use sallyport_tunnel::{FlowEnd, FlowSink, OpenFlowError};
use sallyport_wire::{FailureReason, OpenFailure};
use tokio::task::AbortHandle;

use super::{
    DialFailure, DirectTransport,
    egress::{Leave, SliceFlow},
    why_not_connected,
};

/// How many flows one direct origin has.
const MAX_FLOWS_PER_ORIGIN: usize = 4_096;
/// How many datagrams may wait for the resolution of the origin's address, and how many bytes of them.
const MAX_WAITING: usize = 64;
const MAX_WAITING_BYTES: usize = 128 * 1024;

/// A flow, closed when dropped.
#[derive(Debug)]
pub(crate) struct DirectFlow {
    outlet: Arc<Outlet>,
    task: AbortHandle,
}

#[derive(Debug)]
struct Outlet {
    transport: Arc<DirectTransport>,
    client: IpAddr,
    /// Counts the flow in its slice.
    slice: OnceLock<SliceFlow>,
    /// The socket, and the address of the origin.
    socket: OnceLock<(UdpPort, SocketAddr)>,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    datagrams: Vec<Box<[u8]>>,
    bytes: usize,
}

impl DirectTransport {
    /// Opens a flow for this client. The datagrams of the origin go to `sink`. Does not wait for the origin.
    ///
    /// # Errors
    /// The origin was removed, or has [`MAX_FLOWS_PER_ORIGIN`].
    pub(crate) fn open_flow(
        self: &Arc<Self>,
        client: IpAddr,
        sink: Arc<dyn FlowSink>,
    ) -> Result<DirectFlow, OpenFlowError> {
        if !self.is_usable() {
            return Err(OpenFlowError::NotUsable);
        }
        if self.flows.fetch_add(1, Ordering::Relaxed) >= MAX_FLOWS_PER_ORIGIN {
            self.flows.fetch_sub(1, Ordering::Relaxed);
            return Err(OpenFlowError::TooManyFlows);
        }
        let outlet = Arc::new(Outlet {
            transport: self.clone(),
            client,
            slice: OnceLock::new(),
            socket: OnceLock::new(),
            waiting: Mutex::default(),
        });
        let serving = outlet.clone();
        let task = tokio::spawn(async move {
            let end = serving.serve(&*sink).await;
            sink.closed(end);
        });
        Ok(DirectFlow { outlet, task: task.abort_handle() })
    }
}

impl DirectTransport {
    /// Opens a socket for this address: from a slice, if the edge has any.
    async fn connect_udp(&self, to: SocketAddr, client: IpAddr) -> Result<(UdpPort, Option<SliceFlow>), DialFailure> {
        let plain = async || {
            let opened = UdpPort::connected(to).await;
            opened.map(|socket| (socket, None)).map_err(|error| why_not_connected(&error))
        };
        let Some(egress) = self.dialer.egress.get() else { return plain().await };
        let country = self.dialer.country(client);
        let routes = self.routes(egress, country, &[to])?;
        let Some((_, leave @ Leave::Slices(exits))) = routes.first() else { return plain().await };
        for exit in exits {
            match UdpPort::connected_as(&exit.to(to)).await {
                Ok(socket) => {
                    let local = socket.address();
                    return Ok((socket, egress.opened(std::iter::once(leave), Ok(local))));
                }
                Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {}
                Err(error) => return Err(why_not_connected(&error)),
            }
        }
        match egress.refuse(NoSlice::Exhausted) {
            Ok(_) => plain().await,
            Err(reason) => Err(OpenFailure::new(FailureReason::Other, &format!("{to} is not dialed: {reason}")).into()),
        }
    }
}

impl DirectFlow {
    /// Sends datagrams in order. Returns how many were taken.
    pub(crate) fn send_batch(&self, batch: &[&[u8]]) -> usize {
        if let Some((socket, to)) = self.outlet.socket.get() {
            return socket.send(*to, None, batch);
        }
        let mut waiting = self.outlet.waiting.lock();
        // Checked again under the lock: waiting datagrams have left by now, and must not be overtaken.
        if let Some((socket, to)) = self.outlet.socket.get() {
            drop(waiting);
            return socket.send(*to, None, batch);
        }
        let mut taken = 0;
        for datagram in batch {
            if waiting.datagrams.len() < MAX_WAITING && waiting.bytes + datagram.len() <= MAX_WAITING_BYTES {
                waiting.bytes += datagram.len();
                waiting.datagrams.push((*datagram).into());
                taken += 1;
            }
        }
        taken
    }
}

impl Drop for DirectFlow {
    fn drop(&mut self) {
        self.task.abort();
        self.outlet.transport.flows.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Outlet {
    /// Passes the origin's datagrams to `sink` until the flow ends.
    async fn serve(&self, sink: &dyn FlowSink) -> FlowEnd {
        let connected = self.connect().await;
        self.transport.count(connected.as_ref().err());
        if connected.is_err() {
            return FlowEnd::Unreachable;
        }
        let Some((socket, _)) = self.socket.get() else { return FlowEnd::Unreachable };
        loop {
            if socket.readable().await.is_err() {
                return FlowEnd::Unreachable;
            }
            let read = socket.try_recv(|received| sink.datagrams(&received.datagrams().collect::<Vec<_>>()));
            // A busy origin must not keep the thread from other flows.
            tokio::task::consume_budget().await;
            match read {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    let text = format!("nothing listens on UDP {}", self.transport.origin.address);
                    self.transport.count(Some(&OpenFailure::new(FailureReason::Refused, &text).into()));
                    return FlowEnd::Unreachable;
                }
                Ok(()) | Err(_) => {}
            }
        }
    }

    /// Opens the socket and sends the waiting datagrams.
    async fn connect(&self) -> Result<(), DialFailure> {
        let addresses = self.transport.addresses(self.client).await?;
        let mut last = DialFailure::from(OpenFailure::new(FailureReason::Other, "the name has no address"));
        for address in addresses {
            match self.transport.connect_udp(address, self.client).await {
                Ok((socket, slice)) => {
                    let _ = slice.map(|slice| self.slice.set(slice));
                    let mut waiting = self.waiting.lock();
                    let waited = std::mem::take(&mut *waiting);
                    let batch: Vec<&[u8]> = waited.datagrams.iter().map(|datagram| &datagram[..]).collect();
                    socket.send(address, None, &batch);
                    // Under the lock, so that new datagrams do not overtake waiting ones.
                    let _ = self.socket.set((socket, address));
                    return Ok(());
                }
                Err(failed) => last = failed,
            }
        }
        Err(last)
    }
}
