//! What is reported of the links that carry the connections to one edge.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use parking_lot::Mutex;
use sallyport_links_model::{UDP_HEADER_BYTES, ip_header_bytes};
use sallyport_model::{LinkReport, LinkStatus};
use sallyport_multipath::PathState;
use sallyport_multipath_udp::PathReport;
use sallyport_tunnel::carrier::quic::QuicPath;

use crate::gauge::{Reading, Totals};

/// The device that has a source address, as it was found last.
#[derive(Debug, Default)]
pub(crate) struct KnownDevice {
    found: Mutex<Option<(IpAddr, String)>>,
}

impl KnownDevice {
    /// The name of the device that has this address, or the address itself.
    async fn name(&self, address: IpAddr) -> String {
        if let Some((known, name)) = &*self.found.lock()
            && *known == address
        {
            return name.clone();
        }
        let name = device_of(address).await.unwrap_or_else(|| address.to_string());
        *self.found.lock() = Some((address, name.clone()));
        name
    }

    /// The report of connections over TCP.
    pub(crate) async fn over_tcp(&self, reading: Reading) -> Option<LinkReport> {
        let path = reading.path;
        let local = reading.local?;
        let report = self.report(local, reading.totals).await;
        Some(LinkReport {
            rtt_us: path.map(|path| micros(path.rtt)).filter(|rtt| *rtt > 0),
            path_mtu_bytes: path.map(|path| path.mtu_bytes),
            header_bytes: path.map(|path| ip_header_bytes(local) + path.header_bytes),
            ..report
        })
    }

    /// The report of a QUIC connection to an edge at this address. `past` are the counts of former connections.
    pub(crate) async fn over_quic(&self, edge: SocketAddr, path: QuicPath, past: Totals) -> Option<LinkReport> {
        let mut totals = past;
        totals.add(totals_of(&path));
        let report = self.report(source_for(edge)?, totals).await;
        Some(LinkReport {
            rtt_us: Some(micros(path.rtt)),
            path_mtu_bytes: Some(path.mtu_bytes),
            header_bytes: Some(path.header_bytes),
            ..report
        })
    }

    async fn report(&self, local: IpAddr, totals: Totals) -> LinkReport {
        LinkReport {
            name: self.name(local).await,
            local: Some(local),
            status: LinkStatus::Up,
            rtt_us: None,
            loss_permille: totals.loss_permille(),
            bytes_sent: totals.sent_bytes,
            bytes_received: totals.received_bytes,
            path_mtu_bytes: None,
            header_bytes: None,
            is_metered: false,
            is_standby: false,
        }
    }
}

/// What a QUIC connection has moved.
pub(crate) fn totals_of(path: &QuicPath) -> Totals {
    Totals {
        sent_bytes: path.sent_bytes,
        received_bytes: path.received_bytes,
        sent_packets: path.sent_packets,
        lost_packets: path.lost_packets,
    }
}

/// The report of a path of an association; `None` at the edge, whose paths have no link.
pub(crate) fn of_path(path: &PathReport) -> Option<LinkReport> {
    let stats = &path.stats;
    let totals = Totals {
        sent_bytes: stats.sent_bytes,
        received_bytes: stats.received_bytes,
        sent_packets: stats.sent_packets,
        lost_packets: stats.lost_packets,
    };
    let (status, is_measured) = match stats.state {
        PathState::Active => (LinkStatus::Up, true),
        PathState::Opening => (LinkStatus::Silent, false),
        PathState::Suspected => (LinkStatus::Silent, true),
        PathState::Unavailable => (LinkStatus::Down, true),
    };
    let below = path.local.map(|local| ip_header_bytes(local) + UDP_HEADER_BYTES);
    Some(LinkReport {
        name: path.link.clone()?,
        local: path.local,
        status,
        rtt_us: is_measured.then(|| micros(stats.round_trip)),
        loss_permille: totals.loss_permille(),
        bytes_sent: totals.sent_bytes,
        bytes_received: totals.received_bytes,
        path_mtu_bytes: below.map(|below| u32::from(stats.mtu) + below),
        header_bytes: None,
        is_metered: stats.settings.is_metered,
        is_standby: stats.settings.is_standby,
    })
}

fn micros(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// The source address from which the kernel reaches an address now. Connecting a UDP socket sends nothing.
fn source_for(edge: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = if edge.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(edge).ok()?;
    Some(socket.local_addr().ok()?.ip().to_canonical())
}

#[cfg(target_os = "linux")]
async fn device_of(address: IpAddr) -> Option<String> {
    let devices = sallyport_links::devices().await.ok()?;
    devices.into_iter().find(|device| device.addresses.contains(&address)).map(|device| device.name)
}

#[cfg(not(target_os = "linux"))]
async fn device_of(_address: IpAddr) -> Option<String> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn the_link_is_the_device_that_has_the_source_address() {
        let path = QuicPath {
            rtt: Duration::from_millis(20),
            mtu_bytes: 1_480,
            header_bytes: 62,
            sent_packets: 1_000,
            lost_packets: 4,
            sent_bytes: 500,
            received_bytes: 600,
        };
        let past = Totals { sent_bytes: 1, received_bytes: 2, sent_packets: 1_000, lost_packets: 2 };
        let known = KnownDevice::default();
        let report = known.over_quic("127.0.0.1:9".parse().unwrap(), path, past).await.unwrap();
        assert_eq!((report.name.as_str(), report.local), ("lo", Some([127, 0, 0, 1].into())));
        assert_eq!((report.rtt_us, report.loss_permille), (Some(20_000), Some(3)));
        assert_eq!((report.bytes_sent, report.bytes_received, report.path_mtu_bytes), (501, 602, Some(1_480)));
        let elsewhere = Reading { local: Some([192, 0, 2, 1].into()), path: None, totals: past };
        assert_eq!(known.over_tcp(elsewhere).await.unwrap().name, "192.0.2.1", "no device has the address");
        assert_eq!(known.over_tcp(Reading { local: None, ..elsewhere }).await, None);
    }
}
