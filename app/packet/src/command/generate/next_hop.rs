//! The MAC of the next hop, as routes and neighbours say.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket},
    time::{Duration, Instant},
};

use sallyport_cli::failure::{Failure, Kind};
use sallyport_xdp::kernel::{Device, Kernel, Route, routes};

use crate::command::reach::contains;

/// How long a neighbour may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often the kernel is asked meanwhile.
const LOOK: Duration = Duration::from_millis(20);
/// A port that nobody listens at: discard.
const DISCARD: u16 = 9;

/// Finds it: the route to the destination by this device, and its neighbour, which the kernel asks for if needed.
pub(super) async fn resolve(kernel: &Kernel, device: &Device, dest: IpAddr) -> anyhow::Result<[u8; 6]> {
    let hop = hop_of(&routes()?, device, dest).ok_or_else(|| {
        Failure::new(Kind::NotFound, format!("no route by {} leads to {dest}", device.name))
            .next("name a destination by --dst that a route leads to, or the next hop's MAC by --to")
    })?;
    let end = Instant::now() + PATIENCE;
    loop {
        let neighbors = kernel.neighbors().await?;
        let found = neighbors.iter().find(|other| other.device == device.index && other.address == hop);
        if let Some(mac) = found.filter(|other| other.state != "failed").and_then(|other| other.mac) {
            return Ok(mac);
        }
        if Instant::now() > end {
            let message = format!("the next hop {hop} at {} does not tell its MAC", device.name);
            return Err(Failure::new(Kind::Unreachable, message).next("name the MAC by --to").into());
        }
        ask(device, hop);
        tokio::time::sleep(LOOK).await;
    }
}

/// The gateway of the most specific route by this device, or the destination itself.
fn hop_of(routes: &[Route], device: &Device, dest: IpAddr) -> Option<IpAddr> {
    let leads = |route: &&Route| route.kind == "unicast" && contains(route, dest);
    let hops = routes.iter().filter(leads).filter_map(|route| {
        let hop = route.hops.iter().find(|hop| hop.device == Some(device.index))?;
        Some(((route.length, std::cmp::Reverse(route.metric)), hop.gateway.unwrap_or(dest)))
    });
    hops.max_by_key(|(rank, _)| *rank).map(|(_, hop)| hop)
}

/// Makes the kernel ask for the neighbour: by a datagram, which may fail.
fn ask(device: &Device, hop: IpAddr) {
    let any: IpAddr = if hop.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let to: SocketAddr = match hop {
        IpAddr::V4(hop) => (hop, DISCARD).into(),
        IpAddr::V6(hop) => SocketAddrV6::new(hop, DISCARD, 0, device.index).into(),
    };
    if let Ok(socket) = UdpSocket::bind((any, 0)) {
        drop(socket.send_to(&[], to));
    }
}

#[cfg(test)]
mod tests {
    use sallyport_xdp::kernel::Hop;

    use super::*;

    #[test]
    fn the_most_specific_route_by_the_device_counts() {
        let device = Device { index: 3, name: "eth1".to_owned(), mac: [0; 6], mtu: 1500, is_up: true, vlan: None };
        let route = |prefix: &str, length, gateway: Option<&str>, index| Route {
            destination: prefix.parse().unwrap(),
            length,
            kind: "unicast",
            metric: 0,
            hops: vec![Hop { gateway: gateway.map(|hop| hop.parse().unwrap()), device: Some(index), weight: 1 }],
        };
        let routes = [
            route("0.0.0.0", 0, Some("10.0.0.1"), 3),
            route("10.0.0.0", 24, None, 3),
            route("192.0.2.0", 24, Some("10.9.0.1"), 4),
            route("::", 0, Some("fe80::1"), 3),
        ];
        let hop = |dest: &str| hop_of(&routes, &device, dest.parse().unwrap()).map(|hop| hop.to_string());
        assert_eq!(hop("192.0.2.7").as_deref(), Some("10.0.0.1"), "the other device does not count");
        assert_eq!(hop("10.0.0.9").as_deref(), Some("10.0.0.9"));
        assert_eq!(hop("2001:db8::1").as_deref(), Some("fe80::1"));
        assert_eq!(hop_of(&routes[1..3], &device, "192.0.2.7".parse().unwrap()), None);
    }
}
