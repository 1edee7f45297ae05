//! A host that answers echo requests as it should not.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    net::{IpAddr, SocketAddr},
    process::{Command, Stdio},
};

use sallyport_ping::{Family, HEADER_BYTES, reply};
use socket2::{Domain, Protocol, Socket, Type};

use crate::networks::{FarNetwork, Process};

/// The environment variable with the family.
const FAMILY: &str = "PROBE_TEST_FAMILY";
/// What the responder prints when it answers.
const READY: &str = "the hostile responder is ready";

/// What the responder does with a request, by the rest of its sequence number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    Honest,
    /// A reply with a wrong token comes before the right one.
    Forging,
    Doubling,
    Truncating,
    FromAnotherAddress,
    /// The reply comes when the next request has come.
    Late,
}

impl Manner {
    pub(crate) const ALL: [Self; 6] =
        [Self::Honest, Self::Forging, Self::Doubling, Self::Truncating, Self::FromAnotherAddress, Self::Late];

    pub(crate) fn of(sequence: u16) -> Self {
        Self::ALL[usize::from(sequence) % Self::ALL.len()]
    }
}

/// The address of the responder, and the other one of its host.
pub(crate) fn addresses(family: Family) -> [IpAddr; 2] {
    match family {
        Family::V4 => ["10.99.0.2", "10.99.0.3"],
        Family::V6 => ["fd99::2", "fd99::3"],
    }
    .map(|address| address.parse().unwrap())
}

/// Starts the responder in the other network, in place of the kernel's.
pub(crate) fn start(far: &FarNetwork, family: Family) -> Process {
    far.run("echo 1 >/proc/sys/net/ipv4/icmp_echo_ignore_all; echo 1 >/proc/sys/net/ipv6/icmp/echo_ignore_all");
    let [nsenter, net] = far.enter();
    let mut child = Command::new(nsenter)
        .arg(net)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "hostile::responder", "--ignored", "--nocapture"])
        .env(FAMILY, if family == Family::V4 { "4" } else { "6" })
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let process = Process(child);
    assert!(lines.any(|line| line.unwrap().contains(READY)));
    process
}

#[test]
#[ignore = "runs within another network, as the peer of other tests"]
fn responder() {
    let family = if std::env::var(FAMILY).unwrap() == "4" { Family::V4 } else { Family::V6 };
    let [own, other] = addresses(family).map(|address| socket(family, address));
    println!("{READY}");
    let mut held: Option<(Vec<u8>, SocketAddr)> = None;
    loop {
        let (request, from) = receive(&own);
        // A raw socket of IPv4 delivers the IP header too.
        let message = if family == Family::V4 { &request[usize::from(request[0] & 15) * 4..] } else { &request[..] };
        if message[0] != if family == Family::V4 { 8 } else { 128 } {
            continue;
        }
        let number = |at: usize| u16::from_be_bytes([message[at], message[at + 1]]);
        let (identifier, sequence, data) = (number(4), number(6), &message[HEADER_BYTES..]);
        let send = |socket: &Socket, data: &[u8]| {
            socket.send_to(&reply(family, identifier, sequence, data), &from.into()).unwrap();
        };
        if let Some((late, to)) = held.take() {
            own.send_to(&late, &to.into()).unwrap();
        }
        match Manner::of(sequence) {
            Manner::Honest => send(&own, data),
            Manner::Forging => {
                let mut forged = data.to_vec();
                forged[15] ^= 1;
                send(&own, &forged);
                send(&own, data);
            }
            Manner::Doubling => [data, data].iter().for_each(|data| send(&own, data)),
            Manner::Truncating => send(&own, &data[..data.len() - 8]),
            Manner::FromAnotherAddress => send(&other, data),
            Manner::Late => held = Some((reply(family, identifier, sequence, data), from)),
        }
    }
}

/// A raw socket with this address.
fn socket(family: Family, address: IpAddr) -> Socket {
    let (domain, protocol) =
        if family == Family::V4 { (Domain::IPV4, Protocol::ICMPV4) } else { (Domain::IPV6, Protocol::ICMPV6) };
    let socket = Socket::new(domain, Type::RAW, Some(protocol)).unwrap();
    socket.bind(&SocketAddr::new(address, 0).into()).unwrap();
    socket
}

fn receive(mut socket: &Socket) -> (Vec<u8>, SocketAddr) {
    let from = socket.peek_sender().unwrap();
    let mut buffer = [0; 2_048];
    let bytes = socket.read(&mut buffer).unwrap();
    (buffer[..bytes].to_vec(), SocketAddr::new(from.as_socket().unwrap().ip(), 0))
}
