//! The text of `/metrics`.

use std::sync::OnceLock;

use prometheus_client::registry::Registry;
use sallyport_net::OwnPorts;

use super::Metrics;

/// The metrics of this process in the OpenMetrics text format.
#[derive(Debug)]
pub(crate) struct Exposition {
    metrics: Metrics,
    registry: OnceLock<Registry>,
    /// The open ports of sockets, set with the first UDP port.
    own_ports: OnceLock<OwnPorts>,
}

impl Exposition {
    /// No registry yet.
    pub(crate) fn new(metrics: Metrics) -> Self {
        Self { metrics, registry: OnceLock::new(), own_ports: OnceLock::new() }
    }

    /// Publishes this registry. Only the first call counts.
    pub(crate) fn publish(&self, registry: Registry) {
        let _ = self.registry.set(registry);
    }

    /// Includes the kernel's count of datagrams dropped at these ports. Only the first call counts.
    pub(crate) fn set_own_ports(&self, ports: &OwnPorts) {
        let _ = self.own_ports.set(ports.clone());
    }

    /// The text; `None` without a published registry. Reads files if there are UDP sockets.
    pub(crate) fn text(&self) -> Option<String> {
        self.text_after(self.own_ports.get().map_or(0, OwnPorts::new_kernel_drops))
    }

    /// Like [`Self::text`], on a thread for blocking work, one call at a time.
    pub(crate) async fn text_aside(&self) -> Option<String> {
        let drops = match self.own_ports.get().cloned() {
            Some(ports) => tokio::task::spawn_blocking(move || ports.new_kernel_drops()).await.unwrap_or(0),
            None => 0,
        };
        self.text_after(drops)
    }

    /// The text, after the kernel has dropped this many more datagrams.
    fn text_after(&self, drops: u64) -> Option<String> {
        if drops > 0 {
            self.metrics.datagrams_dropped("kernel", usize::try_from(drops).unwrap_or(usize::MAX));
        }
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, self.registry.get()?).ok()?;
        Some(text)
    }
}
