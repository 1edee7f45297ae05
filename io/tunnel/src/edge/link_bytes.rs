//! The bytes that connectors report to have moved by their links.

use std::sync::atomic::{AtomicU64, Ordering};

use sallyport_model::LinkReport;

/// Bytes of all connectors since the edge began.
#[derive(Debug, Default)]
pub(super) struct LinkBytes {
    sent: AtomicU64,
    received: AtomicU64,
}

impl LinkBytes {
    /// Adds what a session has moved between two reports. A count that has become less began anew.
    pub(super) fn record(&self, former: &[LinkReport], now: &[LinkReport]) {
        for link in now {
            let before = former.iter().find(|one| one.name == link.name && one.local == link.local);
            let moved = |now: u64, before: Option<u64>| now.checked_sub(before.unwrap_or(0)).unwrap_or(now);
            self.sent.fetch_add(moved(link.bytes_sent, before.map(|one| one.bytes_sent)), Ordering::Relaxed);
            self.received
                .fetch_add(moved(link.bytes_received, before.map(|one| one.bytes_received)), Ordering::Relaxed);
        }
    }

    /// Bytes sent and received by connectors.
    pub(super) fn read(&self) -> (u64, u64) {
        (self.sent.load(Ordering::Relaxed), self.received.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use sallyport_model::LinkStatus;

    use super::*;

    fn link(name: &str, bytes_sent: u64, bytes_received: u64) -> LinkReport {
        LinkReport {
            name: name.to_owned(),
            local: None,
            status: LinkStatus::Up,
            rtt_us: None,
            loss_permille: None,
            bytes_sent,
            bytes_received,
            path_mtu_bytes: None,
            header_bytes: None,
            is_metered: false,
            is_standby: false,
        }
    }

    #[test]
    fn what_moves_between_reports_is_counted_once() {
        let bytes = LinkBytes::default();
        let reports =
            [vec![link("eth0", 100, 10)], vec![link("wwan0", 5, 5), link("eth0", 150, 10)], vec![link("eth0", 20, 30)]];
        let mut former = Vec::new();
        for now in reports {
            bytes.record(&former, &now);
            former = now;
        }
        assert_eq!(bytes.read(), (100 + 5 + 50 + 20, 10 + 5 + 20));
    }
}
