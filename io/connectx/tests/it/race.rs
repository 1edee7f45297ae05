//! Four processes that race for the same ports, beside the techniques that stop early.

use std::{
    io::{self, BufRead as _, BufReader, Write as _},
    net::{TcpStream, UdpSocket},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use sallyport_connectx::{Connect, ConnectError, PortRange, Protocol};
use socket2::{Domain, Socket, Type};

use crate::network::{self, DESTINATIONS, LOW, PORTS, destination, source};

/// How many processes race.
const RACERS: usize = 4;
/// How long a connection within the machine may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// The variable by which a racer knows what it opens.
const MODE: &str = "SALLYPORT_CONNECTX_RACER";

/// A socket that stays open.
enum Open {
    Tcp { _stream: TcpStream },
    Udp { _socket: UdpSocket },
}

/// What the racers open: protocol, family, and whether they name a source and a slice.
#[derive(Debug, Clone, Copy)]
struct Mode {
    protocol: Protocol,
    is_v6: bool,
    has_source: bool,
    slice: Option<PortRange>,
}

impl Mode {
    fn request(self, number: usize) -> Connect {
        let mut request = Connect::to(destination(self.is_v6, number));
        if self.has_source {
            request = request.from_address(source(self.is_v6));
        }
        if let Some(slice) = self.slice {
            request = request.within(slice);
        }
        request
    }

    fn open(self, number: usize) -> Result<Open, ConnectError> {
        let request = self.request(number);
        Ok(match self.protocol {
            Protocol::Tcp => Open::Tcp { _stream: request.tcp(PATIENCE)? },
            Protocol::Udp => Open::Udp { _socket: request.udp()? },
        })
    }

    fn ports(self) -> usize {
        self.slice.map_or(PORTS, |slice| slice.count() as usize)
    }

    fn text(self) -> String {
        let slice = self.slice.map_or_else(|| "-".to_owned(), |slice| slice.to_string());
        format!("{},{},{},{slice}", self.protocol, self.is_v6, self.has_source)
    }

    fn parse(text: &str) -> Self {
        let fields: Vec<_> = text.split(',').collect();
        Self {
            protocol: if fields[0] == "TCP" { Protocol::Tcp } else { Protocol::Udp },
            is_v6: fields[1] == "true",
            has_source: fields[2] == "true",
            slice: fields[3].parse().ok(),
        }
    }

    /// The kernel's list of such sockets.
    fn table(self) -> String {
        format!("{}{}", self.protocol.to_string().to_lowercase(), if self.is_v6 { "6" } else { "" })
    }
}

/// A process that opens its share of sockets on command, and keeps them until its input ends.
struct Racer {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Racer {
    fn start(mode: Mode) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "race::racer", "--ignored", "--nocapture"])
            .env(MODE, mode.text())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut racer = Self { child, input, output };
        racer.expect("ready");
        racer
    }

    fn go(&mut self) {
        self.input.as_mut().unwrap().write_all(b"go\n").unwrap();
    }

    /// Reads until the line that starts with this word.
    fn expect(&mut self, word: &str) -> String {
        let mut seen = String::new();
        loop {
            let mut line = String::new();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "no {word:?} in {seen:?}");
            // The harness writes the name of its test into the same line.
            if let Some(place) = line.find(word) {
                return line[place..].trim().to_owned();
            }
            seen.push_str(&line);
        }
    }

    fn end(mut self) {
        drop(self.input.take());
        assert!(self.child.wait().unwrap().success());
    }
}

#[test]
#[ignore = "started by the race"]
fn racer() {
    let mode = Mode::parse(&std::env::var(MODE).unwrap());
    let mut lines = io::stdin().lines();
    println!("ready");
    assert_eq!(lines.next().unwrap().unwrap(), "go");
    let mut open = Vec::new();
    // All racers want the same destination at the same time.
    for _ in 0..mode.ports() / RACERS {
        for number in 1..=DESTINATIONS {
            open.push(mode.open(number).unwrap_or_else(|error| panic!("after {}: {error}", open.len())));
        }
    }
    println!("opened {}", open.len());
    assert!(lines.next().is_none());
}

/// Lets four processes open all that there is, and shows that the next socket is refused.
fn race(mode: Mode) {
    let expected = mode.ports() * DESTINATIONS;
    let mut racers: Vec<_> = (0..RACERS).map(|_| Racer::start(mode)).collect();
    let began = Instant::now();
    racers.iter_mut().for_each(Racer::go);
    for racer in &mut racers {
        assert_eq!(racer.expect("opened"), format!("opened {}", expected / RACERS));
    }
    let took = began.elapsed();
    let (sockets, distinct) = network::listed(&mode.table());
    println!("{mode:?}: {sockets} sockets, {distinct} four-tuples, {took:?}");
    assert_eq!((sockets, distinct), (expected, expected), "{mode:?}");

    let error = mode.open(1).map(drop).unwrap_err();
    assert!(matches!(error, ConnectError::NoPortLeft { .. }), "{mode:?}: {error}");
    let ports = mode.slice.unwrap_or_else(|| PortRange::new(LOW, LOW + 99).unwrap());
    let to = destination(mode.is_v6, 1);
    let sentence = format!("no local port of {ports} is left for {} to {to}: all are in use", mode.protocol);
    assert_eq!(error.to_string(), sentence);
    racers.into_iter().for_each(Racer::end);
}

#[test]
fn four_processes_open_4000_tcp_connections() {
    network::run_within("race::all_tcp");
}

#[test]
#[ignore = "needs a network of its own"]
fn all_tcp() {
    let _kept = network::listen();
    let mut plain = Vec::new();
    let error = loop {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let bound = socket.bind(&std::net::SocketAddr::new(source(false), 0).into());
        if let Err(error) = bound {
            break error;
        }
        socket.connect(&destination(false, plain.len() % DESTINATIONS + 1).into()).unwrap();
        plain.push(socket);
    };
    println!("bind(2) and connect(2): {} connections, then: {error}", plain.len());
    assert_eq!((plain.len(), error.kind()), (PORTS, io::ErrorKind::AddrInUse));
    reset(plain);
    race(Mode { protocol: Protocol::Tcp, is_v6: false, has_source: true, slice: None });
}

/// Ends connections without a trace: a closed one would keep its port for a minute.
fn reset(sockets: Vec<Socket>) {
    for socket in sockets {
        socket.set_linger(Some(Duration::ZERO)).unwrap();
    }
}

#[test]
fn four_processes_open_4000_distinct_udp_sockets() {
    network::run_within("race::all_udp");
}

#[test]
#[ignore = "needs a network of its own"]
fn all_udp() {
    let mut plain = Vec::new();
    let error = loop {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
        match socket.connect(&destination(false, plain.len() % DESTINATIONS + 1).into()) {
            Ok(()) => plain.push(socket),
            Err(error) => break error,
        }
    };
    println!("connect(2): {} UDP sockets, then: {error}", plain.len());
    assert_eq!((plain.len(), error.kind()), (PORTS, io::ErrorKind::WouldBlock));
    drop(plain);

    // With SO_REUSEADDR alone there are as many as anybody wants, and several have one four-tuple.
    let mut naive = Vec::new();
    for number in 0..PORTS * DESTINATIONS {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
        socket.set_reuse_address(true).unwrap();
        socket.bind(&std::net::SocketAddr::new(source(false), 0).into()).unwrap();
        socket.connect(&destination(false, number % DESTINATIONS + 1).into()).unwrap();
        naive.push(socket);
    }
    let (sockets, distinct) = network::listed("udp");
    println!("SO_REUSEADDR: {sockets} UDP sockets, {distinct} four-tuples");
    assert!(sockets == PORTS * DESTINATIONS && distinct < sockets, "{sockets} sockets, {distinct} four-tuples");
    drop(naive);
    race(Mode { protocol: Protocol::Udp, is_v6: false, has_source: true, slice: None });
}

#[test]
fn four_processes_share_ports_in_each_case_and_family() {
    network::run_within("race::all_cases");
}

#[test]
#[ignore = "needs a network of its own"]
fn all_cases() {
    let kept = network::listen();
    let slice = PortRange::new(LOW + 40, LOW + 59).ok();
    for protocol in [Protocol::Udp, Protocol::Tcp] {
        for (is_v6, has_source) in [(false, false), (false, true), (true, true)] {
            race(Mode { protocol, is_v6, has_source, slice });
            // The service ends first, so that ports of the next case have no connection that ends slowly.
            for stream in kept.lock().unwrap().drain(..) {
                socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
            }
        }
    }
    race(Mode { protocol: Protocol::Udp, is_v6: false, has_source: false, slice: None });
}
