//! What a connector reports of the links that carry its tunnels.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// Whether a link carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkStatus {
    /// The link carries.
    Up,
    /// Nothing comes back by the link.
    Silent,
    /// The device or its address is gone.
    Down,
    /// A status of a later version.
    #[serde(other)]
    Unknown,
}

impl LinkStatus {
    /// All statuses.
    pub const ALL: [Self; 4] = [Self::Up, Self::Silent, Self::Down, Self::Unknown];

    /// The status as a word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Silent => "silent",
            Self::Down => "down",
            Self::Unknown => "unknown",
        }
    }
}

/// One link of a connector, as the connector sees it. Counts are of all connections to the edge since the connector
/// began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkReport {
    /// The name: the device, or the source address.
    pub name: String,
    /// The source address of the connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<IpAddr>,
    /// Whether the link carries.
    pub status: LinkStatus,
    /// The round trip in microseconds, once measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_us: Option<u64>,
    /// Packets that were lost or sent again, of 1,000 that were sent; absent if none was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_permille: Option<u16>,
    /// Bytes sent to the edge.
    pub bytes_sent: u64,
    /// Bytes received from the edge.
    pub bytes_received: u64,
    /// The largest packet of the path, in bytes, with its IP header; absent if not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_mtu_bytes: Option<u32>,
    /// What headers below the tunnel's bytes take of such a packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header_bytes: Option<u32>,
    /// Whether bytes cost money.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_metered: bool,
    /// Whether the link is used only if no other is there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_standby: bool,
}

impl LinkReport {
    /// Moved bytes that are no news: keepalives and reports move some themselves.
    const QUIET_BYTES: u64 = 4_096;
    /// A change of the round trip that is no news, in microseconds; nor is one of less than a quarter.
    const QUIET_RTT_US: u64 = 1_000;

    /// Whether the edge should learn of this state, if `former` is what the edge knows.
    #[must_use]
    pub fn is_news_after(&self, former: &Self) -> bool {
        let moved = self.bytes_sent.abs_diff(former.bytes_sent) + self.bytes_received.abs_diff(former.bytes_received);
        let rtt = match (self.rtt_us, former.rtt_us) {
            (Some(now), Some(then)) => now.abs_diff(then) > Self::QUIET_RTT_US.max(then / 4),
            (now, then) => now != then,
        };
        let counted = |report: &Self| Self {
            bytes_sent: 0,
            bytes_received: 0,
            rtt_us: None,
            loss_permille: None,
            ..report.clone()
        };
        moved > Self::QUIET_BYTES || rtt || counted(self) != counted(former)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> LinkReport {
        LinkReport {
            name: "eth0".to_owned(),
            local: Some([192, 0, 2, 1].into()),
            status: LinkStatus::Up,
            rtt_us: Some(20_000),
            loss_permille: Some(1),
            bytes_sent: 1_000,
            bytes_received: 2_000,
            path_mtu_bytes: Some(1_500),
            header_bytes: Some(52),
            is_metered: false,
            is_standby: false,
        }
    }

    #[test]
    fn a_report_is_news_if_something_has_changed_that_somebody_would_see() {
        let changed = |change: fn(&mut LinkReport)| {
            let mut now = report();
            change(&mut now);
            now.is_news_after(&report())
        };
        for quiet in [
            (|_| {}) as fn(&mut LinkReport),
            |now| now.bytes_sent += 3_000,
            |now| now.rtt_us = Some(24_000),
            |now| now.loss_permille = Some(2),
        ] {
            assert!(!changed(quiet));
        }
        for news in [
            (|now| now.bytes_received += 5_000) as fn(&mut LinkReport),
            |now| now.rtt_us = Some(26_000),
            |now| now.rtt_us = None,
            |now| now.status = LinkStatus::Silent,
            |now| now.local = Some([192, 0, 2, 2].into()),
            |now| now.path_mtu_bytes = Some(1_280),
        ] {
            assert!(changed(news));
        }
    }

    #[test]
    fn a_status_of_a_later_version_is_unknown() {
        for status in LinkStatus::ALL {
            assert_eq!(serde_json::to_value(status).unwrap(), status.as_str());
        }
        assert_eq!(serde_json::from_str::<LinkStatus>("\"parked\"").unwrap(), LinkStatus::Unknown);
    }
}
