//! What all UDP ports of an edge share.

use std::{sync::Arc, time::Instant};

use parking_lot::Mutex;

use crate::{access::Access, lifecycle::flow_count::FlowCounts, udp::address_validation::Allowances};

/// The UDP ports of an edge.
pub(crate) struct UdpPorts {
    /// Who may come in.
    pub(crate) access: Arc<Access>,
    /// How many flows there are.
    pub(crate) flows: Arc<FlowCounts>,
    /// What flows of each address may send beyond what they have earned, on all ports.
    pub(crate) allowances: Mutex<Allowances>,
}

impl UdpPorts {
    /// No port is open yet.
    pub(crate) fn new(access: Arc<Access>) -> Arc<Self> {
        Arc::new(Self { access, flows: Arc::default(), allowances: Mutex::new(Allowances::new(Instant::now())) })
    }
}
