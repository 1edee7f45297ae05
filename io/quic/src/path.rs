//! Proof that a client receives at its new address (RFC 9000 section 8.2).
//!
//! A client may send from an address that is not its own. quinn reports a new address with the first packet from there,
//! and does not report the outcome of path validation. But quinn hands acknowledgements to the congestion controller
//! of a path only once the path is validated. [`ProvingFactory`] makes controllers that record the first of them.

use std::{
    any::Any,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use quinn::{
    Connection,
    congestion::{Controller, ControllerFactory, ControllerMetrics},
};
use quinn_proto::RttEstimator;

/// Makes the congestion controllers of another factory, which record whether their path is validated.
pub(crate) struct ProvingFactory<F> {
    inner: Arc<F>,
    next_path: AtomicU64,
}

impl<F> ProvingFactory<F> {
    pub(crate) fn new(inner: F) -> Arc<Self> {
        Arc::new(Self { inner: Arc::new(inner), next_path: AtomicU64::new(0) })
    }
}

impl<F: ControllerFactory> ControllerFactory for ProvingFactory<F> {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let inner = self.inner.clone().build(now, current_mtu);
        let path = self.next_path.fetch_add(1, Ordering::Relaxed);
        Box::new(ProvingController { inner, path, is_proven: false })
    }
}

/// The congestion controller of one path.
struct ProvingController {
    inner: Box<dyn Controller>,
    /// Differs from path to path.
    path: u64,
    is_proven: bool,
}

impl Controller for ProvingController {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.inner.on_sent(now, bytes, last_packet_number);
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, app_limited: bool, rtt: &RttEstimator) {
        self.is_proven = true;
        self.inner.on_ack(now, sent, bytes, app_limited, rtt);
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, app_limited: bool, largest_packet_num_acked: Option<u64>) {
        self.inner.on_end_acks(now, in_flight, app_limited, largest_packet_num_acked);
    }

    fn on_congestion_event(&mut self, now: Instant, sent: Instant, is_persistent_congestion: bool, lost_bytes: u64) {
        self.inner.on_congestion_event(now, sent, is_persistent_congestion, lost_bytes);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.inner.on_mtu_update(new_mtu);
    }

    fn window(&self) -> u64 {
        self.inner.window()
    }

    fn metrics(&self) -> ControllerMetrics {
        self.inner.metrics()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self { inner: self.inner.clone_box(), ..*self })
    }

    fn initial_window(&self) -> u64 {
        self.inner.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// The address of the client, if the client has proven that it receives there. A connection without a path of
/// [`crate::transport()`] proves nothing.
#[must_use]
pub fn proven_address(connection: &Connection) -> Option<SocketAddr> {
    let proven_path = || {
        let controller = connection.congestion_state().into_any().downcast::<ProvingController>().ok()?;
        controller.is_proven.then_some(controller.path)
    };
    // The client may move in between.
    let before = proven_path()?;
    let address = connection.remote_address();
    (proven_path()? == before).then_some(address)
}
