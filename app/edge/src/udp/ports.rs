//! The state that all UDP ports of an edge share.

use std::{sync::Arc, time::Instant};

use parking_lot::Mutex;

use crate::{access::Access, lifecycle::flow_count::FlowCounts, udp::address_validation::Allowances};

/// The state that all UDP ports of an edge share.
pub(crate) struct UdpPorts {
    /// Admission.
    pub(crate) access: Arc<Access>,
    /// The counts of flows.
    pub(crate) flows: Arc<FlowCounts>,
    /// What each address may get beyond the credit of its flows, over all ports.
    pub(crate) allowances: Mutex<Allowances>,
}

impl UdpPorts {
    /// No port yet.
    pub(crate) fn new(access: Arc<Access>) -> Arc<Self> {
        Arc::new(Self { access, flows: Arc::default(), allowances: Mutex::new(Allowances::new(Instant::now())) })
    }
}
