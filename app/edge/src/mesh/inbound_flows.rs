//! Datagram flows that another edge opens to tunnels that are attached here.

use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use sallyport_tunnel::{FlowEnd, FlowHandle, FlowHandler, FlowOpen, FlowSink, OpenFlowError};

use super::{Mesh, inbound::held_here};

use crate::origins::origin::InFlight;

/// Accepts the flows of one link.
pub(super) struct InboundFlows {
    mesh: Weak<Mesh>,
}

impl InboundFlows {
    pub(super) fn new(mesh: Weak<Mesh>) -> Self {
        Self { mesh }
    }
}

impl FlowHandler for InboundFlows {
    fn open(&self, open: FlowOpen, flow: FlowHandle) -> Arc<dyn FlowSink> {
        let (near, far) = (Arc::new(End::default()), Arc::new(End::default()));
        let Some(mesh) = self.mesh.upgrade() else {
            flow.close(FlowEnd::Detached);
            return near;
        };
        let metrics = mesh.metrics().clone();
        let tunnel =
            held_here(&mesh, open.tunnel).filter(|tunnel| !tunnel.is_unhealthy()).ok_or(OpenFlowError::NotUsable);
        let opened =
            tunnel.and_then(|tunnel| Ok((tunnel.transport.open_flow_through(open, far.clone())?, tunnel.origin)));
        match opened {
            Ok((handle, origin)) => {
                metrics.relayed("in", "flow");
                // Taken by whichever side ends first.
                let load = origin.map(|(_, origin)| InFlight::enter_relayed(origin));
                let load = Arc::new(Mutex::new(load));
                near.set_load(&load);
                far.set_load(&load);
                far.leads_to(flow);
                near.leads_to(handle);
            }
            Err(OpenFlowError::TooManyFlows) => flow.close(FlowEnd::Busy),
            // The next datagram of the client opens the flow again, by this edge or another one.
            Err(_) => {
                metrics.failed("not-here");
                flow.close(FlowEnd::Detached);
            }
        }
        near
    }
}

/// One side of a relayed flow: passes its datagrams to the flow on the other side.
#[derive(Default)]
struct End {
    to: Mutex<Destination>,
    /// The flow's share of the origin's load, shared by both ends.
    load: OnceLock<Arc<Mutex<Option<InFlight>>>>,
}

#[derive(Default)]
enum Destination {
    /// The other side is still being opened.
    #[default]
    Opening,
    Flow(FlowHandle),
    Ended(FlowEnd),
}

impl End {
    fn set_load(&self, load: &Arc<Mutex<Option<InFlight>>>) {
        let _ = self.load.set(load.clone());
        if matches!(*self.to.lock(), Destination::Ended(_)) {
            self.end_load();
        }
    }

    fn end_load(&self) {
        if let Some(load) = self.load.get() {
            drop(load.lock().take());
        }
    }

    fn leads_to(&self, flow: FlowHandle) {
        let mut to = self.to.lock();
        match *to {
            // This side ended before the other one was open.
            Destination::Ended(end) => {
                drop(to);
                flow.close(end);
            }
            _ => *to = Destination::Flow(flow),
        }
    }
}

impl FlowSink for End {
    fn datagrams(&self, batch: &[&[u8]]) {
        if let Destination::Flow(flow) = &*self.to.lock() {
            flow.send_batch(batch);
        }
    }

    fn closed(&self, end: FlowEnd) {
        // The other side still exists; only the link to this edge was lost.
        let end = if end == FlowEnd::Lost { FlowEnd::Detached } else { end };
        let former = std::mem::replace(&mut *self.to.lock(), Destination::Ended(end));
        self.end_load();
        // Closed without a lock held, because the close may call back into this end.
        if let Destination::Flow(flow) = former {
            flow.close(end);
        }
    }
}
