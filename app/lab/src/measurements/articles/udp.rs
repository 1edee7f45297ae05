//! `udp`: replies from a wildcard socket, a restart with and without loss, and the cost of many sockets at one port.

use std::{
    io::{self, IoSliceMut},
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    time::{Duration, Instant},
};

use quinn_udp::{RecvMeta, Transmit, UdpSocketState};
use socket2::{Domain, SockRef, Socket, Type};

use crate::measurements::{
    Scale,
    frame::{Claim, Column, Design, Measurement, Place, RunError},
    links::Space,
};

const PORT: u16 = 7_000;
/// The addresses of the service: the kernel answers from the first one, unless it is told otherwise.
const FIRST: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 1);
const OTHER: Ipv4Addr = Ipv4Addr::new(127, 9, 9, 9);
/// How long a datagram within the machine may take.
const PATIENCE: Duration = Duration::from_millis(200);
/// How many datagrams arrive while a service restarts, out of three times as many.
const DURING_RESTART: u32 = 20;
const DATAGRAM: [u8; 64] = [7; 64];
const SMALL_BYTES: usize = 2_048;

/// What a variant does.
#[derive(Debug, Clone, Copy)]
enum Act {
    /// A wildcard service answers at its second address: with the address that was asked (PKTINFO), or without.
    Wildcard { has_pktinfo: bool },
    /// A service restarts: its successor binds anew, or takes over the socket.
    Restart { is_handed_over: bool },
    /// A service has this many connected sockets beside its unconnected one.
    Sockets(u16),
}

const VARIANTS: [(&str, Act); 7] = [
    ("wildcard, plain reply", Act::Wildcard { has_pktinfo: false }),
    ("wildcard, reply by PKTINFO", Act::Wildcard { has_pktinfo: true }),
    ("restart, successor binds anew", Act::Restart { is_handed_over: false }),
    ("restart, successor gets the socket", Act::Restart { is_handed_over: true }),
    ("10 connected sockets", Act::Sockets(10)),
    ("1,000 connected sockets", Act::Sockets(1_000)),
    ("10,000 connected sockets", Act::Sockets(10_000)),
];

/// The figures of a run, one for each column.
struct Counted {
    sent: u32,
    arrived: u32,
    each_us: f64,
    open_us: f64,
}

/// The measurement.
#[derive(Debug)]
pub(in crate::measurements) struct Udp {
    datagrams: u32,
    rounds: u32,
}

impl Udp {
    /// Chooses the number of datagrams.
    pub(in crate::measurements) fn new(scale: Scale) -> Self {
        let (datagrams, rounds) = match scale {
            Scale::Full => (5_000, 3),
            Scale::Quick => (500, 1),
        };
        Self { datagrams, rounds }
    }
}

const fn place(variant: &'static str, column: &'static str) -> Place {
    Place { variant, column }
}

const fn arrived(sentence: &'static str, variant: &'static str, bounds: (f64, f64)) -> Claim {
    Claim::within(sentence, place(variant, "arrived"), place(variant, "sent"), bounds)
}

impl Measurement for Udp {
    fn design(&self) -> Design {
        let column = |name, unit| Column { name, unit };
        let many = |column| (place("10,000 connected sockets", column), place("10 connected sockets", column));
        let (cost, open) = (many("time each"), many("time to open"));
        Design {
            columns: vec![
                column("arrived", ""),
                column("sent", ""),
                column("time each", "us"),
                column("time to open", "us"),
            ],
            variants: VARIANTS.map(|(name, _)| name.to_owned()).to_vec(),
            claims: vec![
                arrived("plain replies of a wildcard socket are lost", "wildcard, plain reply", (0.0, 0.0)),
                arrived("replies by PKTINFO arrive", "wildcard, reply by PKTINFO", (1.0, 1.0)),
                arrived("a restart that binds anew loses datagrams", "restart, successor binds anew", (0.1, 0.9)),
                arrived("a handed-over socket loses none", "restart, successor gets the socket", (1.0, 1.0)),
                Claim::within("the cost of a datagram does not grow with sockets", cost.0, cost.1, (0.2, 3.0)),
                Claim::at_least("the cost of opening a socket grows with sockets", open.0, open.1, 2.0),
            ],
            rounds: self.rounds,
        }
    }

    fn run(&mut self, variant: usize) -> Result<Vec<f64>, RunError> {
        let space = Space::new()?;
        let Counted { sent, arrived, each_us, open_us } = space.within(|| match VARIANTS[variant].1 {
            Act::Wildcard { has_pktinfo } => wildcard(has_pktinfo).map_err(RunError::io("answer datagrams")),
            Act::Restart { is_handed_over } => restart(is_handed_over).map_err(RunError::io("restart a service")),
            Act::Sockets(count) => sockets(count, self.datagrams).map_err(RunError::io("open many sockets")),
        })?;
        Ok(vec![arrived.into(), sent.into(), each_us, open_us])
    }
}

/// A client, connected to this address of the service.
fn client(to: Ipv4Addr) -> io::Result<UdpSocket> {
    let client = UdpSocket::bind((FIRST, 0))?;
    client.connect((to, PORT))?;
    client.set_read_timeout(Some(PATIENCE))?;
    Ok(client)
}

fn us(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// The replies that a connected client gets from a wildcard service, one after the other.
fn wildcard(has_pktinfo: bool) -> io::Result<Counted> {
    let opening = Instant::now();
    let service = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT))?;
    service.set_read_timeout(Some(PATIENCE))?;
    let open_us = us(opening.elapsed());
    let client = client(OTHER)?;
    let state = UdpSocketState::new((&service).into())?;
    // `UdpSocketState` makes the socket one that does not block.
    service.set_nonblocking(false)?;
    let (mut buffer, sent, began) = (vec![0; SMALL_BYTES], 20, Instant::now());
    let mut arrived = 0;
    for _ in 0..sent {
        client.send(&DATAGRAM)?;
        if has_pktinfo {
            let (mut meta, mut parts) = ([RecvMeta::default()], [IoSliceMut::new(&mut buffer)]);
            state.recv((&service).into(), &mut parts, &mut meta)?;
            let [RecvMeta { addr, len, dst_ip, .. }] = meta;
            let contents = &buffer[..len];
            let reply = Transmit { destination: addr, ecn: None, contents, segment_size: None, src_ip: dst_ip };
            state.try_send((&service).into(), &reply)?;
        } else {
            let (length, from) = service.recv_from(&mut buffer)?;
            service.send_to(&buffer[..length], from)?;
        }
        arrived += u32::from(client.recv(&mut buffer).is_ok());
    }
    Ok(Counted { sent, arrived, each_us: us(began.elapsed()) / f64::from(sent), open_us })
}

/// A service that restarts while datagrams come: a third before, a third meanwhile, and a third after.
fn restart(is_handed_over: bool) -> io::Result<Counted> {
    let opening = Instant::now();
    let service = UdpSocket::bind((FIRST, PORT))?;
    let open_us = us(opening.elapsed());
    let (client, began) = (client(FIRST)?, Instant::now());
    let send = || {
        for _ in 0..DURING_RESTART {
            // The kernel reports here that an earlier datagram found no socket.
            if client.send(&DATAGRAM).is_err() {
                client.send(&DATAGRAM)?;
            }
        }
        Ok::<_, io::Error>(())
    };
    send()?;
    let mut arrived = drain(&service)?;
    let successor = if is_handed_over {
        let taken = service.try_clone()?;
        drop(service);
        send()?;
        taken
    } else {
        drop(service);
        send()?;
        UdpSocket::bind((FIRST, PORT))?
    };
    send()?;
    arrived += drain(&successor)?;
    let sent = 3 * DURING_RESTART;
    Ok(Counted { sent, arrived, each_us: us(began.elapsed()) / f64::from(sent), open_us })
}

/// Reads what waits. A datagram within the machine waits once its sender has sent it.
fn drain(service: &UdpSocket) -> io::Result<u32> {
    let (mut buffer, mut count) = ([0; SMALL_BYTES], 0);
    service.set_nonblocking(true)?;
    loop {
        match service.recv(&mut buffer) {
            Ok(_) => count += 1,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(count),
            Err(error) => return Err(error),
        }
    }
}

/// The cost of a datagram at the last of many connected sockets, and of opening it.
fn sockets(count: u16, datagrams: u32) -> io::Result<Counted> {
    let open = |peer: SocketAddr| {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
        socket.set_reuse_address(true)?;
        socket.bind(&SocketAddr::from((FIRST, PORT)).into())?;
        socket.connect(&peer.into())?;
        Ok::<_, io::Error>(UdpSocket::from(socket))
    };
    // The peers need no sockets, except for the last one.
    let peer = |number: u16| SocketAddr::new(IpAddr::V4(FIRST), 20_000 + number);
    let _others = (1..count).map(|number| open(peer(number))).collect::<io::Result<Vec<_>>>()?;
    let client = UdpSocket::bind(peer(count))?;
    let opening = Instant::now();
    let service = open(peer(count))?;
    let open_us = us(opening.elapsed());
    service.set_read_timeout(Some(PATIENCE))?;
    SockRef::from(&client).connect(&SocketAddr::from((FIRST, PORT)).into())?;
    let (mut buffer, mut arrived, began) = ([0; SMALL_BYTES], 0, Instant::now());
    for _ in 0..datagrams {
        client.send(&DATAGRAM)?;
        arrived += u32::from(service.recv(&mut buffer).is_ok());
    }
    Ok(Counted { sent: datagrams, arrived, each_us: us(began.elapsed()) / f64::from(datagrams), open_us })
}
