//! How many connections each technique opens with the local ports of a network namespace, and how many are distinct.
//!
//! ```sh
//! cargo build -p sallyport-connectx --example connections
//! sudo unshare --net sh -c 'ip link set lo up; ulimit -n 20000
//!   echo 40000 40099 >/proc/sys/net/ipv4/ip_local_port_range
//!   target/debug/examples/connections'
//! ```
//!
//! Four processes race for the ports, towards 40 destinations of the machine itself. `-o json` prints lines of JSON;
//! names of techniques choose some of them.

use std::process::ExitCode;

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    techniques::main()
}

#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    eprintln!("connections: needs Linux");
    ExitCode::FAILURE
}

#[cfg(target_os = "linux")]
mod techniques {
    use std::{
        collections::BTreeSet,
        env, fs,
        io::{self, BufRead, BufReader, Write},
        net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener},
        process::{Child, ChildStdout, Command, ExitCode, Stdio},
        thread,
        time::{Duration, Instant},
    };

    use nix::sys::socket::{setsockopt, sockopt::IpBindAddressNoPort};
    use sallyport_connectx::{Connect, PortRange};
    use socket2::{Domain, Socket, Type};

    /// How many processes race.
    const PROCESSES: usize = 4;
    /// How many destinations they connect to.
    const DESTINATIONS: u8 = 40;
    /// The port of the destinations.
    const SERVICE: u16 = 7_000;
    /// The local address of the techniques that name one.
    const SOURCE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    /// The most local ports for which this is quick.
    const MAX_PORTS: u32 = 1_000;
    /// How long a connection within the machine may take.
    const PATIENCE: Duration = Duration::from_secs(60);
    /// The variable by which a process knows that it is one of the racing ones.
    const RACER: &str = "CONNECTIONS_TECHNIQUE";

    type Open = fn(SocketAddr) -> io::Result<Socket>;

    /// Name, protocol, what it does, and how it opens a socket.
    type Technique = (&'static str, &'static str, &'static str, Open);

    const TECHNIQUES: [Technique; 7] = [
        ("tcp-bind", "tcp", "bind(2), connect(2)", |to| plain(Type::STREAM, to, false)),
        ("tcp-no-port", "tcp", "IP_BIND_ADDRESS_NO_PORT, bind(2), connect(2)", |to| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            setsockopt(&socket, IpBindAddressNoPort, &true)?;
            socket.bind(&SocketAddr::new(SOURCE, 0).into())?;
            socket.connect(&to.into())?;
            Ok(socket)
        }),
        ("tcp-connectx", "tcp", "this crate", |to| Ok(Connect::to(to).from_address(SOURCE).tcp(PATIENCE)?.into())),
        ("udp-connect", "udp", "connect(2)", |to| {
            let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
            socket.connect(&to.into())?;
            Ok(socket)
        }),
        ("udp-bind", "udp", "bind(2), connect(2)", |to| plain(Type::DGRAM, to, false)),
        ("udp-reuseaddr", "udp", "SO_REUSEADDR, bind(2), connect(2)", |to| plain(Type::DGRAM, to, true)),
        ("udp-connectx", "udp", "this crate", |to| Ok(Connect::to(to).from_address(SOURCE).udp()?.into())),
    ];

    fn plain(kind: Type, to: SocketAddr, is_reused: bool) -> io::Result<Socket> {
        let socket = Socket::new(Domain::IPV4, kind, None)?;
        socket.set_reuse_address(is_reused)?;
        socket.bind(&SocketAddr::new(SOURCE, 0).into())?;
        socket.connect(&to.into())?;
        Ok(socket)
    }

    pub(super) fn main() -> ExitCode {
        let done = match env::var(RACER) {
            Ok(name) => race_as(&name),
            Err(_) => compare(),
        };
        match done {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("connections: {error}");
                ExitCode::from(2)
            }
        }
    }

    /// One of the racing processes: opens sockets until each destination is refused.
    fn race_as(name: &str) -> io::Result<()> {
        let (.., open) = technique(name)?;
        let mut input = io::stdin().lines();
        println!("ready");
        input.next().transpose()?;
        let ports = PortRange::of_namespace().map_err(io::Error::from)?.count();
        let (mut sockets, mut refused, mut why) = (Vec::new(), 0, String::from("-"));
        'destinations: for _ in 0..ports.div_ceil(PROCESSES as u32) {
            for number in 1..=DESTINATIONS {
                let to = SocketAddr::new(Ipv4Addr::new(127, 0, 1, number).into(), SERVICE);
                match open(to) {
                    Ok(socket) => {
                        // An end without a trace: a closed connection would keep its port for a minute.
                        socket.set_linger(Some(Duration::ZERO))?;
                        sockets.push(socket);
                        refused = 0;
                    }
                    Err(error) => {
                        why = error.to_string();
                        refused += 1;
                        if refused == DESTINATIONS {
                            break 'destinations;
                        }
                    }
                }
            }
        }
        println!("done {why}");
        io::stdout().flush()?;
        input.next();
        Ok(())
    }

    fn technique(name: &str) -> io::Result<Technique> {
        let known = || TECHNIQUES.iter().map(|(name, ..)| *name).collect::<Vec<_>>().join(", ");
        let unknown = || io::Error::other(format!("{name:?} is no technique: there are {}", known()));
        TECHNIQUES.into_iter().find(|(known, ..)| *known == name).ok_or_else(unknown)
    }

    fn compare() -> io::Result<()> {
        let mut chosen: Vec<_> = env::args().skip(1).collect();
        let is_json = chosen.windows(2).any(|pair| pair == ["-o", "json"]);
        chosen.retain(|word| !["-o", "json"].contains(&word.as_str()));
        if chosen.is_empty() {
            chosen = TECHNIQUES.iter().map(|(name, ..)| (*name).to_owned()).collect();
        }
        let chosen: Vec<_> = chosen.iter().map(|name| technique(name)).collect::<io::Result<_>>()?;
        let ports = PortRange::of_namespace().map_err(io::Error::from)?;
        if ports.count() > MAX_PORTS {
            let text = format!(
                "this network has {} local ports, and at most {MAX_PORTS} are quick to use up: run it in a network \
                 namespace, as the head of {} says",
                ports.count(),
                file!()
            );
            return Err(io::Error::other(text));
        }
        listen()?;
        if !is_json {
            println!("{ports}: {} ports, {DESTINATIONS} destinations, {PROCESSES} processes", ports.count());
            println!("{:14} {:>7} {:>8} {:>7}  {:44} ended by", "", "sockets", "distinct", "us each", "what it does");
        }
        for (name, protocol, about, _) in chosen {
            let (sockets, distinct, time, why) = race(name, protocol)?;
            let each = time.as_secs_f64() * 1e6 / sockets.max(1) as f64;
            if is_json {
                println!(
                    "{{\"technique\":\"{name}\",\"sockets\":{sockets},\"distinct\":{distinct},\"each_us\":{each:.1}}}"
                );
            } else {
                println!("{name:14} {sockets:7} {distinct:8} {each:7.0}  {about:44} {why}");
            }
        }
        Ok(())
    }

    /// Lets the processes race; says how many sockets and four-tuples there are, the time, and why the first ended.
    fn race(name: &str, protocol: &str) -> io::Result<(usize, usize, Duration, String)> {
        let mut racers = Vec::new();
        for _ in 0..PROCESSES {
            let mut child = Command::new(env::current_exe()?)
                .env(RACER, name)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()?;
            let output = child.stdout.take().ok_or_else(|| io::Error::other("a process has no output"))?;
            let mut racer = (child, BufReader::new(output));
            line(&mut racer, "ready")?;
            racers.push(racer);
        }
        let began = Instant::now();
        for (child, _) in &mut racers {
            if let Some(input) = &mut child.stdin {
                input.write_all(b"go\n")?;
            }
        }
        let mut reasons = racers.iter_mut().map(|racer| line(racer, "done ")).collect::<io::Result<Vec<_>>>()?;
        let time = began.elapsed();
        let (sockets, distinct) = listed(protocol)?;
        for (mut child, _) in racers {
            drop(child.stdin.take());
            child.wait()?;
        }
        Ok((sockets, distinct, time, reasons.swap_remove(0)))
    }

    fn line(racer: &mut (Child, BufReader<ChildStdout>), start: &str) -> io::Result<String> {
        let mut line = String::new();
        racer.1.read_line(&mut line)?;
        let rest = line.trim_end().strip_prefix(start).map(str::to_owned);
        rest.ok_or_else(|| io::Error::other("a racing process has ended: is `ulimit -n` below 10,000?"))
    }

    /// Accepts all connections, and keeps them.
    fn listen() -> io::Result<()> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.bind(&SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), SERVICE).into())?;
        socket.listen(4_096)?;
        let listener = TcpListener::from(socket);
        thread::spawn(move || {
            let mut kept = Vec::new();
            while let Ok((stream, _)) = listener.accept() {
                kept.push(stream);
            }
        });
        Ok(())
    }

    /// The connected sockets in the kernel's list, and their different four-tuples.
    fn listed(protocol: &str) -> io::Result<(usize, usize)> {
        let text = fs::read_to_string(format!("/proc/net/{protocol}"))?;
        let service = format!(":{SERVICE:04X}");
        let tuples = text.lines().skip(1).filter_map(|line| {
            let mut fields = line.split_whitespace().skip(1);
            let (local, peer, state) = (fields.next()?, fields.next()?, fields.next()?);
            (peer.ends_with(&service) && state == "01").then(|| format!("{local} {peer}"))
        });
        let tuples: Vec<_> = tuples.collect();
        Ok((tuples.len(), tuples.iter().collect::<BTreeSet<_>>().len()))
    }
}
