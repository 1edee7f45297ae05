//! Local ports that run out, in a network with few of them.

use std::{io, net::SocketAddr, os::fd::AsFd as _, process::Command};

use sallyport_net::{UdpPort, connect_tcp, connect_tcp_as, connect_tcp_to};
use socket2::SockRef;
use tokio::net::TcpListener;

use crate::support::PATIENCE;

/// Runs this ignored test within a network that has these local ports.
#[track_caller]
fn run_with_ports(ports: &str, test: &str) {
    let output = Command::new("unshare").args(["--net", "ip", "link", "set", "lo", "up"]).output();
    if !output.is_ok_and(|output| output.status.success()) {
        println!("skipped: a network of its own needs root, and Debian's packages `util-linux` and `iproute2`");
        return;
    }
    let script = format!(
        "set -e; ip link set lo up; echo '{ports}' >/proc/sys/net/ipv4/ip_local_port_range; exec \"$0\" \"$@\""
    );
    let output = Command::new("unshare")
        .args(["--net", "sh", "-c", &script])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{shown}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(shown.contains("1 passed"), "{shown}");
}

#[test]
fn exhaustion_is_an_error_with_the_range_and_the_destination() {
    run_with_ports("40000 40009", "local_ports::exhaustion");
}

#[tokio::test]
#[ignore = "needs a network of its own"]
async fn exhaustion() {
    let listener = TcpListener::bind("127.0.0.1:7000").await.unwrap();
    let at = listener.local_addr().unwrap();
    let mut open = Vec::new();
    for _ in 0..10 {
        open.push(connect_tcp_to(&[at], PATIENCE).await.unwrap());
    }
    let sentence = "cannot connect to 127.0.0.1:7000: no local port of 40000-40009 is left for TCP to 127.0.0.1:7000: \
                    all are in use";
    for error in [
        connect_tcp_to(&[at], PATIENCE).await.unwrap_err(),
        connect_tcp("127.0.0.1", at.port(), PATIENCE).await.unwrap_err(),
    ] {
        assert_eq!((error.kind(), error.to_string().as_str()), (io::ErrorKind::AddrNotAvailable, sentence));
    }
    // Another source address has ports of its own.
    let slice = "40003-40004".parse().unwrap();
    let from = sallyport_connectx::Connect::to(at).from_address("127.0.0.9".parse().unwrap()).within(slice);
    let mut ports: Vec<_> = Vec::new();
    for _ in 0..2 {
        open.push(connect_tcp_as(&[from], PATIENCE).await.unwrap());
        ports.push(open.last().unwrap().local_addr().unwrap().to_string());
    }
    ports.sort();
    assert_eq!(ports, ["127.0.0.9:40003", "127.0.0.9:40004"]);
    assert_eq!(connect_tcp_as(&[from], PATIENCE).await.unwrap_err().kind(), io::ErrorKind::AddrNotAvailable);
}

#[test]
fn udp_sockets_share_ports_when_a_quarter_of_them_is_used_up() {
    run_with_ports("40000 40039", "local_ports::sharing");
}

#[tokio::test]
#[ignore = "needs a network of its own"]
async fn sharing() {
    let is_shared = |port: &UdpPort| SockRef::from(&port.as_fd()).reuse_address().unwrap();
    let service = |number: u16| SocketAddr::new("127.0.0.1".parse().unwrap(), 7_000 + number);
    let mut open = Vec::new();
    for _ in 0..10 {
        open.push(UdpPort::connected(service(0)).await.unwrap());
    }
    assert!(!open.iter().any(is_shared));
    for number in 0..3 {
        for _ in 0..30 {
            open.push(UdpPort::connected(service(number)).await.unwrap());
            assert!(is_shared(open.last().unwrap()));
        }
        let error = UdpPort::connected(service(number)).await.unwrap_err();
        let sentence = format!("no local port of 40000-40039 is left for UDP to {}: all are in use", service(number));
        assert_eq!((error.kind(), error.to_string()), (io::ErrorKind::AddrNotAvailable, sentence));
    }
    open.clear();
    assert!(!is_shared(&UdpPort::connected(service(0)).await.unwrap()), "closed sockets do not count");
}
