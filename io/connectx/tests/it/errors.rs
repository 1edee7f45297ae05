//! Bad requests, ranges of the namespace, reserved ports, and the functions for tokio.

use std::{fs, io, net::SocketAddr, time::Duration};

use sallyport_connectx::{Connect, ConnectError, PortRange};

use crate::network::{self, LOW, PORTS, SERVICE, destination, source};

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn ranges_outside_of_the_namespace_are_refused() {
    network::run_within("errors::outside");
}

#[test]
#[ignore = "needs a network of its own"]
fn outside() {
    let _kept = network::listen();
    let high = LOW + 99;
    assert_eq!(PortRange::of_namespace().unwrap(), PortRange::new(LOW, high).unwrap());
    for (low, high) in [(LOW - 1, LOW + 5), (LOW + 5, LOW + 100), (50_000, 52_047), (1, u16::MAX)] {
        let slice = PortRange::new(low, high).unwrap();
        let request = Connect::to(destination(false, 1)).within(slice);
        let sentence = format!(
            "ports {slice} are not inside {LOW}-40099 (net.ipv4.ip_local_port_range), and the kernel would ignore \
             them: widen the setting or choose other ports"
        );
        for error in [request.tcp(PATIENCE).unwrap_err(), request.udp().unwrap_err()] {
            assert!(matches!(error, ConnectError::OutsideNamespace { .. }), "{error}");
            assert_eq!(error.to_string(), sentence);
            assert_eq!(io::Error::from(error).kind(), io::ErrorKind::InvalidInput);
        }
    }
    // The ends of the range belong to it.
    for port in [LOW, high] {
        let slice = PortRange::new(port, port).unwrap();
        for is_v6 in [false, true] {
            let request = Connect::to(destination(is_v6, 1)).within(slice).from_address(source(is_v6));
            assert_eq!(request.tcp(PATIENCE).unwrap().local_addr().unwrap().port(), port);
            assert_eq!(request.udp().unwrap().local_addr().unwrap().port(), port);
        }
    }
}

#[test]
fn reserved_ports_are_not_taken() {
    network::run_within("errors::reserved");
}

#[test]
#[ignore = "needs a network of its own"]
fn reserved() {
    fs::write("/proc/sys/net/ipv4/ip_local_reserved_ports", format!("{}-{}", LOW + 1, LOW + 97)).unwrap();
    let mut open = Vec::new();
    for number in 1..=2 {
        let request = Connect::to(destination(false, number));
        for _ in 0..PORTS - 97 {
            open.push(request.udp().unwrap());
        }
        assert!(matches!(request.udp(), Err(ConnectError::NoPortLeft { .. })));
    }
    assert_eq!(network::listed("udp"), (6, 6));
    let given = SocketAddr::new(source(false), LOW + 50);
    let chosen = Connect::to(destination(false, 1)).from_port(given).udp().unwrap();
    assert_eq!(chosen.local_addr().unwrap(), given, "a reserved port is for those who name it");
}

#[test]
fn connections_fail_with_the_reason() {
    network::run_within("errors::reasons");
}

#[test]
#[ignore = "needs a network of its own"]
fn reasons() {
    let refused = Connect::to(destination(false, 1)).from_address(source(false)).tcp(PATIENCE).unwrap_err();
    assert_eq!(io::Error::from(refused).kind(), io::ErrorKind::ConnectionRefused);
    for to in ["192.0.2.1:443", "[2001:db8::1]:443"] {
        let to: SocketAddr = to.parse().unwrap();
        let error = Connect::to(to).udp().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NetworkUnreachable, "{to}: {error}");
        let error = Connect::to(to).tcp(PATIENCE).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NetworkUnreachable, "{to}: {error}");
    }
    for (to, from) in [("127.0.0.1:9", "192.0.2.7"), ("[::1]:9", "2001:db8::7")] {
        let request = Connect::to(to.parse().unwrap()).from_address(from.parse().unwrap());
        for error in [request.udp().unwrap_err(), request.tcp(PATIENCE).unwrap_err()] {
            assert_eq!(error.to_string(), format!("this machine has no address {from}"));
        }
    }
}

#[test]
fn tokio_has_the_same_functions() {
    network::run_within("errors::by_tokio");
}

#[test]
#[ignore = "needs a network of its own"]
fn by_tokio() {
    let _kept = network::listen();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let slice = PortRange::new(LOW + 10, LOW + 12).unwrap();
    runtime.block_on(async {
        let plain = Connect::to(destination(false, 1)).tcp_async().await.unwrap();
        assert_eq!(plain.peer_addr().unwrap().port(), SERVICE);
        let mut open = Vec::new();
        for number in 1..=2 {
            let request = Connect::to(destination(false, number)).from_address(source(false)).within(slice);
            for _ in 0..3 {
                let udp = tokio::net::UdpSocket::from_std(request.udp_async().await.unwrap()).unwrap();
                let tcp = request.tcp_async().await.unwrap();
                assert!(slice.has_port(udp.local_addr().unwrap().port()));
                assert!(slice.has_port(tcp.local_addr().unwrap().port()));
                open.push((udp, tcp));
            }
            assert!(matches!(request.udp_async().await, Err(ConnectError::NoPortLeft { .. })));
            assert!(matches!(request.tcp_async().await, Err(ConnectError::NoPortLeft { .. })));
        }
        assert_eq!((network::listed("udp"), network::listed("tcp").0), ((6, 6), 7));
    });
}
