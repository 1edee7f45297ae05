//! `connectx`: how many connections the local ports of a machine carry, by each technique, and how many of the sockets
//! still get their datagrams.
//!
//! Several threads race for all ports towards all destinations, until each destination is refused. The kernel's own
//! list of sockets then says how many four-tuples there are. Of two sockets with one four-tuple the newer one
//! overshadows the older one, which gets nothing any more.

use std::{
    collections::BTreeSet,
    fs, io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    thread,
    time::{Duration, Instant},
};

use nix::sys::socket::{setsockopt, sockopt::IpBindAddressNoPort};
use sallyport_connectx::Connect;
use socket2::{Domain, Socket, Type};

use crate::measurements::{
    Scale,
    frame::{Claim, Column, Design, Measurement, Place, RunError},
    links::Space,
};

const RACERS: usize = 4;
/// The local ports of the namespace.
const FIRST_PORT: usize = 40_000;
const PORTS: usize = 100;
/// The port of the destinations.
const SERVICE: u16 = 7_000;
/// The local address of the techniques that name one.
const SOURCE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// How many connections wait without being accepted: all of them.
const BACKLOG: i32 = 4_096;
const CONNECT_TIME: Duration = Duration::from_secs(30);

type Open = fn(SocketAddr) -> io::Result<Socket>;

/// What each technique is called, its list of sockets, and how it opens one.
const TECHNIQUES: [(&str, &str, Open); 7] = [
    ("TCP, bind before connect", "tcp", |to| plain(Type::STREAM, to, false)),
    ("TCP, IP_BIND_ADDRESS_NO_PORT", "tcp", |to| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        setsockopt(&socket, IpBindAddressNoPort, &true)?;
        socket.bind(&SocketAddr::new(SOURCE, 0).into())?;
        socket.connect(&to.into())?;
        Ok(socket)
    }),
    ("TCP, connectx", "tcp", |to| Ok(Connect::to(to).from_address(SOURCE).tcp(CONNECT_TIME)?.into())),
    ("UDP, connect alone", "udp", |to| {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
        socket.connect(&to.into())?;
        Ok(socket)
    }),
    ("UDP, bind before connect", "udp", |to| plain(Type::DGRAM, to, false)),
    ("UDP, SO_REUSEADDR", "udp", |to| plain(Type::DGRAM, to, true)),
    ("UDP, connectx", "udp", |to| Ok(Connect::to(to).from_address(SOURCE).udp()?.into())),
];

fn plain(kind: Type, to: SocketAddr, is_reused: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, kind, None)?;
    socket.set_reuse_address(is_reused)?;
    socket.bind(&SocketAddr::new(SOURCE, 0).into())?;
    socket.connect(&to.into())?;
    Ok(socket)
}

/// The measurement.
#[derive(Debug)]
pub(in crate::measurements) struct Connectx {
    destinations: u8,
    rounds: u32,
}

impl Connectx {
    /// Chooses the number of destinations.
    pub(in crate::measurements) fn new(scale: Scale) -> Self {
        let (destinations, rounds) = match scale {
            Scale::Full => (40, 3),
            Scale::Quick => (10, 1),
        };
        Self { destinations, rounds }
    }

    /// How many connections there can be.
    fn possible(&self) -> usize {
        PORTS * usize::from(self.destinations)
    }

    /// One of the racing threads. Returns its sockets.
    fn race(&self, open: Open) -> Result<Vec<Socket>, RunError> {
        let (mut sockets, mut refused) = (Vec::new(), 0);
        for _ in 0..PORTS.div_ceil(RACERS) {
            for number in 1..=self.destinations {
                match open(SocketAddr::new(Ipv4Addr::new(127, 0, 1, number).into(), SERVICE)) {
                    Ok(socket) => {
                        // A closed connection would keep its port for a minute.
                        socket.set_linger(Some(Duration::ZERO)).map_err(RunError::io("set SO_LINGER"))?;
                        sockets.push(socket);
                        refused = 0;
                    }
                    Err(_) => refused += 1,
                }
                if refused == self.destinations {
                    return Ok(sockets);
                }
            }
        }
        Ok(sockets)
    }
}

const fn place(variant: &'static str, column: &'static str) -> Place {
    Place { variant, column }
}

/// The sockets of a technique over the connections that are possible.
const fn used(sentence: &'static str, variant: &'static str, bounds: (f64, f64)) -> Claim {
    Claim::within(sentence, place(variant, "distinct"), place(variant, "possible"), bounds)
}

/// The four-tuples of a technique over its sockets.
const fn distinct(sentence: &'static str, variant: &'static str, bounds: (f64, f64)) -> Claim {
    Claim::within(sentence, place(variant, "distinct"), place(variant, "sockets"), bounds)
}

impl Measurement for Connectx {
    fn design(&self) -> Design {
        let column = |name, unit| Column { name, unit };
        Design {
            columns: vec![
                column("distinct", ""),
                column("sockets", ""),
                column("possible", ""),
                column("time each", "us"),
            ],
            variants: TECHNIQUES.map(|(name, ..)| name.to_owned()).to_vec(),
            claims: vec![
                used("bind before connect uses a port once for TCP", "TCP, bind before connect", (0.0, 0.11)),
                used("connectx uses each port for each destination for TCP", "TCP, connectx", (1.0, 1.0)),
                used("connect alone uses a port once for UDP", "UDP, connect alone", (0.0, 0.11)),
                used("connectx uses each port for each destination for UDP", "UDP, connectx", (1.0, 1.0)),
                distinct("SO_REUSEADDR alone overshadows sockets", "UDP, SO_REUSEADDR", (0.0, 0.99)),
                distinct("connectx overshadows no socket", "UDP, connectx", (1.0, 1.0)),
            ],
            rounds: self.rounds,
        }
    }

    fn run(&mut self, variant: usize) -> Result<Vec<f64>, RunError> {
        let (_, protocol, open) = TECHNIQUES[variant];
        let space = Space::new()?;
        space.set(&[("ipv4/ip_local_port_range", &format!("{FIRST_PORT} {}", FIRST_PORT + PORTS - 1))])?;
        let _listener = space.within(listen)?;
        let began = Instant::now();
        let sockets = thread::scope(|scope| {
            let racers: Vec<_> = (0..RACERS).map(|_| scope.spawn(|| space.within(|| self.race(open)))).collect();
            let ended = |_| Err(RunError::Unfit("a racing thread ended".to_owned()));
            racers.into_iter().map(|racer| racer.join().unwrap_or_else(ended)).collect::<Result<Vec<_>, _>>()
        })?;
        let time = began.elapsed();
        let sockets: Vec<_> = sockets.into_iter().flatten().collect();
        let listed = space.within(|| {
            fs::read_to_string(format!("/proc/thread-self/net/{protocol}")).map_err(RunError::io("list sockets"))
        })?;
        let each_us = time.as_secs_f64() * 1e6 / sockets.len().max(1) as f64;
        Ok(vec![four_tuples(&listed) as f64, sockets.len() as f64, self.possible() as f64, each_us])
    }
}

fn listen() -> Result<Socket, RunError> {
    let listen = || {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        listener.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, SERVICE)).into())?;
        listener.listen(BACKLOG)?;
        Ok(listener)
    };
    listen().map_err(RunError::io("listen"))
}

/// How many different pairs of a local end and the service's end are connected, by `/proc/net/tcp` or `udp`.
fn four_tuples(listed: &str) -> usize {
    let service = format!(":{SERVICE:04X}");
    let tuples = listed.lines().skip(1).filter_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let (local, peer, state) = (fields.next()?, fields.next()?, fields.next()?);
        (peer.ends_with(&service) && state == "01").then_some((local, peer))
    });
    tuples.collect::<BTreeSet<_>>().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_tuples_are_counted_once_and_only_towards_the_service() {
        let listed = "  sl  local_address rem_address   st\n\
            0: 0100007F:9C40 0101007F:1B58 01 0\n1: 0100007F:9C40 0101007F:1B58 01 0\n\
            2: 0100007F:9C40 0201007F:1B58 01 0\n3: 0100007F:9C41 0201007F:1B59 01 0\n\
            4: 00000000:1B58 00000000:0000 0A 0\n";
        assert_eq!(four_tuples(listed), 2);
        assert_eq!(four_tuples(""), 0);
    }
}
