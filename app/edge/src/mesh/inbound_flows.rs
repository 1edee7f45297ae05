//! Flows of datagrams that another edge has opened, to tunnels that are attached here.

use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use sallyport_tunnel::{FlowEnd, FlowHandle, FlowHandler, FlowOpen, FlowSink, OpenFlowError};

use super::{Mesh, inbound::held_here};

use crate::origins::origin::InFlight;

/// Takes the flows of one link.
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
        let held = held_here(&mesh, open.tunnel).filter(|held| !held.is_unwell()).ok_or(OpenFlowError::NotUsable);
        let opened = held.and_then(|held| Ok((held.transport.open_flow_through(open, far.clone())?, held.origin)));
        match opened {
            Ok((handle, origin)) => {
                metrics.relayed("in", "flow");
                // Whichever side ends first.
                let load = origin.map(|(_, origin)| InFlight::enter_relayed(origin));
                let load = Arc::new(Mutex::new(load));
                near.set_load(&load);
                far.set_load(&load);
                far.leads_to(flow);
                near.leads_to(handle);
            }
            Err(OpenFlowError::TooManyFlows) => flow.close(FlowEnd::Busy),
            // Its next datagram begins it anew, by this edge or another one.
            Err(_) => {
                metrics.failed("not-here");
                flow.close(FlowEnd::Detached);
            }
        }
        near
    }
}

/// What comes from one side goes to the flow on the other one.
#[derive(Default)]
struct End {
    to: Mutex<To>,
    /// What the flow is for its origin, shared by both ends.
    load: OnceLock<Arc<Mutex<Option<InFlight>>>>,
}

#[derive(Default)]
enum To {
    /// It is being opened.
    #[default]
    Opening,
    Flow(FlowHandle),
    Ended(FlowEnd),
}

impl End {
    fn set_load(&self, load: &Arc<Mutex<Option<InFlight>>>) {
        let _ = self.load.set(load.clone());
        if matches!(*self.to.lock(), To::Ended(_)) {
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
            // It ended before it had begun.
            To::Ended(end) => {
                drop(to);
                flow.close(end);
            }
            _ => *to = To::Flow(flow),
        }
    }
}

impl FlowSink for End {
    fn datagrams(&self, batch: &[&[u8]]) {
        if let To::Flow(flow) = &*self.to.lock() {
            flow.send_batch(batch);
        }
    }

    fn closed(&self, end: FlowEnd) {
        // The other side is there still: what was lost is its way here.
        let end = if end == FlowEnd::Lost { FlowEnd::Detached } else { end };
        let former = std::mem::replace(&mut *self.to.lock(), To::Ended(end));
        self.end_load();
        // Closed when nothing is locked: it may lead back here.
        if let To::Flow(flow) = former {
            flow.close(end);
        }
    }
}
