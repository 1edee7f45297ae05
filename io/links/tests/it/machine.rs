//! Three links: one is pulled, one gets another address, one is added, and sockets leave by the link they are bound to.

use std::{
    io::ErrorKind,
    net::{IpAddr, SocketAddr, UdpSocket},
    time::{Duration, Instant},
};

use sallyport_links::{Bound, Watch, bind, devices};
use sallyport_links_model::{
    Device, DeviceKind, Link, LinkChoice, LinkEvent, LinkEventKind, LinkTable, SelectError, select,
};
use socket2::{Domain, Protocol, Socket, Type};

use crate::namespace::{ip, run_within};

/// How long the kernel may take to show a change. Only a failing test takes so long.
const PATIENCE: Duration = Duration::from_secs(20);
/// The edge, behind every link.
const EDGE: &str = "192.0.2.1:7000";

#[test]
fn links_that_are_pulled_swapped_and_added_are_seen() {
    run_within("machine::within_links_are_pulled_swapped_and_added");
}

#[test]
fn sockets_leave_by_their_link() {
    run_within("machine::within_sockets_leave_by_their_link");
}

#[test]
fn a_tunnel_of_ours_is_refused_by_name_and_by_address() {
    run_within("machine::within_a_tunnel_of_ours_is_refused");
}

/// A link, whose far end is in the same namespace. Default routes differ by their metrics.
fn add(number: u32) {
    ip(&format!("link add link{number} type veth peer name far{number}"));
    ip(&format!("addr add 10.0.{number}.2/24 dev link{number}"));
    ip(&format!("link set far{number} up"));
    ip(&format!("link set link{number} up"));
    ip(&format!("route add default via 10.0.{number}.1 dev link{number} metric {number}"));
}

/// The links and what has changed about them.
struct Seen {
    watch: Watch,
    table: LinkTable,
}

impl Seen {
    /// Follows the machine until this event comes.
    async fn wait_for(&mut self, link: &str, kind: LinkEventKind) {
        let wanted = LinkEvent { link: link.to_owned(), kind };
        let mut before = Vec::new();
        let found = tokio::time::timeout(PATIENCE, async {
            loop {
                let links = select(&LinkChoice::Auto, &devices().await.unwrap(), &[]).unwrap();
                self.table.update(links, Instant::now());
                while let Some(event) = self.table.poll_event() {
                    if event == wanted {
                        return;
                    }
                    before.push(event);
                }
                self.watch.changed().await.unwrap();
            }
        });
        assert!(found.await.is_ok(), "no {wanted:?} after {before:?}");
    }

    fn picked(&self) -> &str {
        self.table.pick(|_| 0).map_or("none", |link| &link.name)
    }
}

#[tokio::test]
#[ignore = "runs in a network namespace of its own"]
async fn within_links_are_pulled_swapped_and_added() {
    add(1);
    add(2);
    let mut seen = Seen { watch: Watch::open().unwrap(), table: LinkTable::new(PATIENCE) };
    seen.wait_for("link2", LinkEventKind::Added).await;
    assert_eq!(seen.picked(), "link1");

    // The cable: the device stays, and has no carrier.
    ip("link set far1 down");
    seen.wait_for("link1", LinkEventKind::Down).await;
    assert_eq!(seen.picked(), "link2");

    add(3);
    seen.wait_for("link3", LinkEventKind::Added).await;

    // Another network: in the same one, the second address would go with the first.
    ip("addr add 10.0.22.2/24 dev link2");
    ip("route replace default via 10.0.22.1 dev link2 metric 2");
    ip("addr del 10.0.2.2/24 dev link2");
    seen.wait_for("link2", LinkEventKind::Moved).await;

    ip("link set far1 up");
    seen.wait_for("link1", LinkEventKind::Back).await;

    // A device of the name, and another one than before.
    ip("link del link3");
    seen.wait_for("link3", LinkEventKind::Down).await;
    add(3);
    seen.wait_for("link3", LinkEventKind::Back).await;
}

/// The link of a name.
fn named(name: &str, devices: &[Device]) -> Link {
    select(&LinkChoice::parse(&[name]).unwrap(), devices, &[]).unwrap().remove(0)
}

fn udp(to: SocketAddr) -> Socket {
    Socket::new(Domain::for_address(to), Type::DGRAM, Some(Protocol::UDP)).unwrap()
}

/// How many packets have left by a device.
fn sent_by(device: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/net/dev").unwrap();
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(&format!("{device}:"))).unwrap();
    line.split_whitespace().nth(9).unwrap().parse().unwrap()
}

#[tokio::test]
#[ignore = "runs in a network namespace of its own"]
async fn within_sockets_leave_by_their_link() {
    std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").unwrap();
    add(1);
    add(2);
    for number in [1, 2] {
        // The gateway needs no ARP, so that each datagram leaves at once.
        ip(&format!("neigh replace 10.0.{number}.1 lladdr 02:00:00:00:00:01 dev link{number} nud permanent"));
    }
    let edge: SocketAddr = EDGE.parse().unwrap();
    let found = devices().await.unwrap();
    let link = named("link2", &found);
    assert_eq!((link.mtu_bytes, &link.addresses[..]), (1_500, &["10.0.2.2".parse::<IpAddr>().unwrap()][..]));
    let device = found.iter().find(|device| device.name == "link2").unwrap();
    assert_eq!(device.gateways, ["10.0.2.1".parse::<IpAddr>().unwrap()]);

    // The routes alone would choose link1.
    let socket = udp(edge);
    assert_eq!(bind(&socket, &link, edge).unwrap(), Bound::Device);
    let socket = UdpSocket::from(socket);
    assert_eq!(socket.local_addr().unwrap().ip(), link.addresses[0]);
    let before = (sent_by("link1"), sent_by("link2"));
    for _ in 0..10 {
        socket.send_to(b"x", edge).unwrap();
    }
    assert_eq!((sent_by("link1"), sent_by("link2")), (before.0, before.1 + 10));

    let error = bind(&udp("[::1]:7000".parse().unwrap()), &link, "[2001:db8::1]:7000".parse().unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "the link link2 has no IPv6 address to reach [2001:db8::1]:7000");
    ip("link del link2");
    let error = bind(&udp(edge), &link, edge).unwrap_err();
    assert!(error.to_string().starts_with("the link link2 cannot be used to reach 192.0.2.1:7000: "), "{error}");
    let swapped = Link { addresses: vec!["10.0.9.9".parse().unwrap()], ..named("link1", &found) };
    assert_eq!(bind(&udp(edge), &swapped, edge).unwrap_err().kind(), ErrorKind::AddrNotAvailable);
}

#[tokio::test]
#[ignore = "runs in a network namespace of its own"]
async fn within_a_tunnel_of_ours_is_refused() {
    add(1);
    ip("tuntap add sally0 mode tun");
    ip("addr add 10.9.0.1/24 dev sally0");
    ip("link set sally0 up");
    ip("route add default dev sally0 metric 0");
    let found = devices().await.unwrap();
    let tunnel = found.iter().find(|device| device.name == "sally0").unwrap();
    assert_eq!((tunnel.kind, tunnel.has_default_route), (DeviceKind::Tunnel, true));
    let links = select(&LinkChoice::Auto, &found, &[]).unwrap();
    assert_eq!(links.iter().map(|link| &link.name[..]).collect::<Vec<_>>(), ["link1"]);
    for name in ["sally0", "10.9.0.1"] {
        let choice = LinkChoice::parse(&[name]).unwrap();
        let error = select(&choice, &found, &["sally0".to_owned()]).unwrap_err();
        assert_eq!(error, SelectError::Recursion { link: name.to_owned(), device: "sally0".to_owned() });
    }
}
