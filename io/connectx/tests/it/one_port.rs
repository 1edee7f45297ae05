//! One four-tuple: who has it, who gets its datagrams, and who is refused.

use std::{
    io,
    net::{SocketAddr, UdpSocket},
    sync::Barrier,
    thread,
    time::Duration,
};

use sallyport_connectx::{Connect, ConnectError, PortRange};
use socket2::{Domain, Socket, Type};

use crate::network::{self, LOW, destination, source};

const PATIENCE: Duration = Duration::from_secs(60);

/// A UDP socket by SO_REUSEADDR alone.
fn naive(from: SocketAddr, to: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(to), Type::DGRAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&from.into())?;
    socket.connect(&to.into())?;
    Ok(socket.into())
}

#[test]
fn a_newer_socket_never_overshadows_an_older_one() {
    network::run_within("one_port::overshadowing");
}

#[test]
#[ignore = "needs a network of its own"]
fn overshadowing() {
    for is_v6 in [false, true] {
        let (from, to) = (SocketAddr::new(source(is_v6), LOW), destination(is_v6, 1));
        let service = network::serve(to);
        let mut bytes = [0; 16];

        // Two sockets by SO_REUSEADDR have one four-tuple, and the newer one gets the answers to the older one.
        let (older, newer) = (naive(from, to).unwrap(), naive(from, to).unwrap());
        older.send(b"question").unwrap();
        let (_, client) = service.recv_from(&mut bytes).unwrap();
        service.send_to(b"answer", client).unwrap();
        assert_eq!(newer.recv(&mut bytes).unwrap(), 6);
        older.set_nonblocking(true).unwrap();
        assert_eq!(older.recv(&mut bytes).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop((older, newer));

        let ours = Connect::to(to).from_port(from).udp().unwrap();
        let error = Connect::to(to).from_port(from).udp().unwrap_err();
        assert!(matches!(error, ConnectError::FourTupleTaken { .. }), "{error}");
        assert_eq!(error.to_string(), format!("UDP from {from} to {to} is in use by another socket"));
        // The port is shared with another destination.
        let other = Connect::to(destination(is_v6, 2)).from_port(from).udp().unwrap();
        assert_eq!(other.local_addr().unwrap(), ours.local_addr().unwrap());
        ours.send(b"question").unwrap();
        let (_, client) = service.recv_from(&mut bytes).unwrap();
        service.send_to(b"answer", client).unwrap();
        assert_eq!(ours.recv(&mut bytes).unwrap(), 6);
    }
}

#[test]
fn of_racing_sockets_one_has_the_four_tuple() {
    network::run_within("one_port::one_winner");
}

#[test]
#[ignore = "needs a network of its own"]
fn one_winner() {
    const THREADS: usize = 8;
    const ROUNDS: usize = 300;
    let (from, to) = (SocketAddr::new(source(false), LOW + 7), destination(false, 3));
    let start = Barrier::new(THREADS);
    for round in 0..ROUNDS {
        let opened: Vec<_> = thread::scope(|scope| {
            let racers: Vec<_> = (0..THREADS)
                .map(|_| {
                    scope.spawn(|| {
                        start.wait();
                        Connect::to(to).from_port(from).udp()
                    })
                })
                .collect();
            racers.into_iter().map(|racer| racer.join().unwrap()).collect()
        });
        assert_eq!(network::listed("udp"), (1, 1), "round {round}: {opened:?}");
        let refused = opened.iter().filter(|one| matches!(one, Err(ConnectError::FourTupleTaken { .. }))).count();
        assert_eq!(refused, THREADS - 1, "round {round}: {opened:?}");
    }
}

#[test]
fn a_four_tuple_that_is_in_use_is_refused() {
    network::run_within("one_port::in_use");
}

#[test]
#[ignore = "needs a network of its own"]
fn in_use() {
    let _kept = network::listen();
    for is_v6 in [false, true] {
        let to = destination(is_v6, 4);
        let from = SocketAddr::new(source(is_v6), LOW + 1);
        let tcp = Connect::to(to).from_port(from).tcp(PATIENCE).unwrap();
        assert_eq!(tcp.local_addr().unwrap(), from);
        let error = Connect::to(to).from_port(from).tcp(PATIENCE).unwrap_err();
        assert_eq!(error.to_string(), format!("TCP from {from} to {to} is in use by another socket"));
        let elsewhere = Connect::to(destination(is_v6, 5)).from_port(from).tcp(PATIENCE).unwrap();
        assert_eq!(elsewhere.local_addr().unwrap(), from);

        // Sockets of others that do not share their ports.
        let held = SocketAddr::new(source(is_v6), LOW + 2);
        let _bound = UdpSocket::bind(held).unwrap();
        let error = Connect::to(to).from_port(held).udp().unwrap_err();
        assert_eq!(error.to_string(), format!("another socket has UDP port {held}, and does not share it"));
        let _listener = std::net::TcpListener::bind(held).unwrap();
        let error = Connect::to(to).from_port(held).tcp(PATIENCE).unwrap_err();
        assert_eq!(error.to_string(), format!("another socket has TCP port {held}, and does not share it"));
    }
}

#[test]
fn an_exclusive_socket_keeps_its_port() {
    network::run_within("one_port::exclusive");
}

#[test]
#[ignore = "needs a network of its own"]
fn exclusive() {
    let slice = PortRange::new(LOW + 20, LOW + 20).unwrap();
    let request = |number| Connect::to(destination(false, number)).within(slice);
    let mine = request(1).exclusive().udp().unwrap();
    let error = request(2).udp().unwrap_err();
    assert!(matches!(error, ConnectError::NoPortLeft { .. }), "{error}");
    assert_eq!(naive(mine.local_addr().unwrap(), destination(false, 2)).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    drop(mine);
    let _shared = request(1).udp().unwrap();
    let _also = request(2).udp().unwrap();
    // An exclusive one may join a port, and nobody after it.
    let _last = request(3).exclusive().udp().unwrap();
    assert!(matches!(request(4).udp(), Err(ConnectError::NoPortLeft { .. })));
}
