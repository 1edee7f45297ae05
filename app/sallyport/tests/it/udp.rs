//! UDP sockets by real clients: DNS, HTTP/3, a game's steady echo across a takeover, and a flood.

use std::{
    collections::{BTreeSet, HashMap},
    io::Read as _,
    net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket},
    os::unix::net::UnixStream,
    process::{Command, Output, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{
    harness::{Home, PATIENCE, Program, Up, text, wait_until},
    protocols::{client, tool},
    tcp::{free_port, installed, up_with_port},
};

/// `connect --type udp` for the origin, and the `up` that serves it on the port.
struct Lab {
    home: Home,
    up: Up,
    port: u16,
    connector: Program,
}

impl Lab {
    fn start(origin: SocketAddr) -> Self {
        let home = Home::new();
        let (up, port) = up_with_port(&home, &[]);
        let origin = origin.port().to_string();
        let connector = Program::start(&mut home.command(&["connect", "--type", "udp", "--port", &origin]));
        let url = connector.wait_for("udp://");
        assert!(url.ends_with(&format!(".localhost:{port}")), "{url}");
        Self { home, up, port, connector }
    }
}

/// A client of the port with an established flow.
fn established(port: u16) -> UdpSocket {
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.connect(("127.0.0.1", port)).unwrap();
    client.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    // The port opens a moment after the socket was made.
    for _ in 0..2 {
        wait_until("an answer through the port", || {
            let _ = client.send(b"hello");
            client.recv(&mut [0; 16]).ok()
        });
    }
    // Repeated questions may have repeated answers.
    while client.recv(&mut [0; 16]).is_ok() {}
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client
}

/// Echoes every datagram, and records the senders of those with this first byte.
struct Echo {
    address: SocketAddr,
    peers: Arc<Mutex<BTreeSet<SocketAddr>>>,
}

impl Echo {
    fn start(watched: u8) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let peers = Arc::new(Mutex::new(BTreeSet::new()));
        let seen = peers.clone();
        thread::spawn(move || {
            let mut datagram = [0; 2_000];
            loop {
                let Ok((length, peer)) = socket.recv_from(&mut datagram) else { continue };
                if datagram.first() == Some(&watched) {
                    seen.lock().unwrap().insert(peer);
                }
                let _ = socket.send_to(&datagram[..length], peer);
            }
        });
        Self { address, peers }
    }

    fn peers(&self) -> Vec<SocketAddr> {
        self.peers.lock().unwrap().iter().copied().collect()
    }
}

/// dnsmasq with a few records, for its clients here only.
fn dns_server(port: u16) -> Option<Program> {
    let dnsmasq = installed("dnsmasq", "dnsmasq-base")?;
    let strings: Vec<String> = ('a'..='h').map(|letter| letter.to_string().repeat(250)).collect();
    let mut command = Command::new(dnsmasq);
    command.args(["--keep-in-foreground", "--log-facility=-", "--conf-file=/dev/null", "--pid-file="]);
    command.args(["--no-resolv", "--no-hosts", "--listen-address=127.0.0.1", "--bind-interfaces"]);
    command.args(["--edns-packet-max=4096", "--host-record=one.test,192.0.2.7", "--address=/many.test/192.0.2.9"]);
    command.arg(format!("--txt-record=large.test,{}", strings.join(","))).arg(format!("--port={port}"));
    if rustix::process::geteuid().is_root() {
        command.arg("--user=root");
    }
    let program = Program::start(command.stdin(Stdio::null()));
    program.wait_for("started, version");
    Some(program)
}

/// How many of 360 datagrams may be late, besides those that delays of this process explain.
const MAX_LATE: usize = 12;
/// How many of 200 questions may be asked again: late datagrams are dropped.
const MAX_ASKED_AGAIN: usize = 20;

/// Measures how long threads of this process wait for a processor.
struct HeldUp {
    over: Arc<AtomicBool>,
    threads: [thread::JoinHandle<Duration>; 2],
}

impl HeldUp {
    fn start() -> Self {
        const STEP: Duration = Duration::from_millis(10);
        let over = Arc::new(AtomicBool::new(false));
        let measure = |over: Arc<AtomicBool>| {
            move || {
                let mut total = Duration::ZERO;
                while !over.load(Ordering::SeqCst) {
                    let began = Instant::now();
                    thread::sleep(STEP);
                    total += Some(began.elapsed()).filter(|time| *time > STEP * 5).unwrap_or_default();
                }
                total
            }
        };
        let threads = [(); 2].map(|()| thread::spawn(measure(over.clone())));
        Self { over, threads }
    }

    fn end(self) -> Duration {
        self.over.store(true, Ordering::SeqCst);
        self.threads.into_iter().map(|thread| thread.join().unwrap()).max().unwrap()
    }
}

#[test]
fn dns_works_through_a_udp_socket() {
    let Some(dig) = installed("dig", "bind9-dnsutils") else { return };
    let port = free_port();
    let Some(_server) = dns_server(port) else { return };
    let lab = Lab::start(SocketAddr::from(([127, 0, 0, 1], port)));
    let ask = |tries: &str, question: &[&str]| {
        let mut command = Command::new(&dig);
        command.args(["-r", "@127.0.0.1", "-p", &lab.port.to_string(), "+notcp", "+ignore", "+time=5"]);
        command.arg(format!("+tries={tries}")).args(question).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let printed = |output: Output| {
        assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
        text(&output.stdout)
    };
    // The port opens a moment after the socket was made, so this question may be repeated.
    wait_until("the first answer", || {
        let output = ask("3", &["one.test", "A", "+short"]).wait_with_output().unwrap();
        (text(&output.stdout).trim() == "192.0.2.7").then_some(())
    });

    let answer = printed(ask("6", &["large.test", "TXT", "+bufsize=4096"]).wait_with_output().unwrap());
    assert!(('a'..='h').all(|letter| answer.contains(&letter.to_string().repeat(250))), "{answer}");
    let size = answer.lines().find_map(|line| line.strip_prefix(";; MSG SIZE  rcvd: ")).unwrap();
    assert!(size.trim().parse::<usize>().unwrap() > 2_000, "in one datagram: {answer}");
    let answer = printed(ask("6", &["large.test", "TXT", "+bufsize=512"]).wait_with_output().unwrap());
    assert!(answer.lines().any(|line| line.starts_with(";; flags: ") && line.contains(" tc")), "{answer}");

    // Four clients at once, a socket for each question; hardly any question is repeated.
    let clients: Vec<_> = (0..4)
        .map(|client| {
            let file = lab.home.dir.path().join(format!("questions-{client}"));
            let questions: String = (0..50).map(|number| format!("q{client}-{number}.many.test A +short\n")).collect();
            std::fs::write(&file, questions).unwrap();
            ask("6", &["-f", file.to_str().unwrap()])
        })
        .collect();
    let mut asked_again = 0;
    for client in clients {
        let answers = printed(client.wait_with_output().unwrap());
        assert_eq!(answers.lines().filter(|line| *line == "192.0.2.9").count(), 50, "{answers}");
        asked_again += answers.matches("timed out").count();
    }
    assert!(asked_again <= MAX_ASKED_AGAIN, "{asked_again} of 200 were asked again");
    assert!(lab.connector.stop().success(), "{}", lab.connector.output());
}

#[test]
fn http3_works_through_a_udp_socket() {
    let Some(python) = tool("aioquic") else { return };
    let dir = tempfile::tempdir().unwrap();
    let script = client("http3.py");
    let mut server = Command::new(&python);
    let server = Program::start(server.args([&script, "serve", dir.path().to_str().unwrap()]).stdin(Stdio::null()));
    let port: u16 = server.wait_for("port ").trim_start_matches("port ").parse().unwrap();
    let lab = Lab::start(SocketAddr::from(([127, 0, 0, 1], port)));
    let certificate = dir.path().join("cert.pem");
    let output = Command::new(&python)
        .args([&script, "call", certificate.to_str().unwrap(), &lab.port.to_string()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    assert!(text(&output.stdout).contains("all answers came"), "{}", text(&output.stdout));
}

#[test]
fn a_steady_echo_loses_nothing_while_up_is_replaced_after_others_have_failed_to() {
    let origin = Echo::start(b'#');
    let lab = Lab::start(origin.address);
    // A connection that stays open through all failures.
    let mut held = TcpStream::connect(("127.0.0.1", lab.up.port)).unwrap();
    let client = established(lab.port);
    let held_up = HeldUp::start();
    let begun = Instant::now();
    let (over, total) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(u32::MAX)));
    // Sixty a second for at least six seconds, answered or not, as in a game.
    let sender = thread::spawn({
        let (client, over, total) = (client.try_clone().unwrap(), over.clone(), total.clone());
        move || {
            for number in 0.. {
                let is_last = number >= 360 && over.load(Ordering::SeqCst);
                if is_last {
                    total.store(number + 1, Ordering::SeqCst);
                }
                client.send(format!("#{number} {}", begun.elapsed().as_millis()).as_bytes()).unwrap();
                if is_last {
                    return;
                }
                thread::sleep(Duration::from_micros(16_667));
            }
        }
    });
    let receiver = thread::spawn({
        client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let total = total.clone();
        move || {
            let mut came: HashMap<u32, usize> = HashMap::new();
            let (mut datagram, mut longest) = ([0; 32], 0);
            while came.len() < total.load(Ordering::SeqCst) as usize {
                match client.recv(&mut datagram) {
                    // A late answer to an earlier question.
                    Ok(length) if !datagram[..length].starts_with(b"#") => {}
                    Ok(length) => {
                        let answer = text(&datagram[1..length]);
                        let (number, sent) = answer.split_once(' ').unwrap();
                        longest = longest.max(begun.elapsed().as_millis() - sent.parse::<u128>().unwrap());
                        *came.entry(number.parse().unwrap()).or_default() += 1;
                    }
                    // So long after the last question, no more answers come.
                    Err(_) if total.load(Ordering::SeqCst) < u32::MAX => break,
                    Err(_) => {}
                }
            }
            println!("{} answers, the latest of them after {longest} ms", came.len());
            came
        }
    });
    thread::sleep(Duration::from_millis(1_500));
    let range = format!("{0}-{0}", lab.port);
    // A refused takeover, and one that dies after its request, change nothing.
    let data = lab.home.data();
    let refused = ["up", "--takeover", "--domain", "other.example", "--data", data.to_str().unwrap()];
    assert_eq!(lab.home.run(&refused).status.code(), Some(1));
    {
        let mut asks = UnixStream::connect(data.join("takeover.sock")).unwrap();
        asks.read_exact(&mut [0]).unwrap();
    }
    lab.up.program.wait_for("this process goes on");
    assert!(!lab.up.program.output().contains("another process takes over"), "{}", lab.up.program.output());
    held.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let rests = held.read(&mut [0]).unwrap_err();
    assert_eq!(rests.kind(), std::io::ErrorKind::WouldBlock, "a connection was ended by a takeover that never was");
    let second = lab.home.up(&["--takeover", "--port-range", &range]);
    assert_eq!(lab.up.program.ended().code(), Some(0), "{}", lab.up.program.output());
    thread::sleep(Duration::from_secs(1));
    over.store(true, Ordering::SeqCst);
    sender.join().unwrap();
    let (sent, came) = (total.load(Ordering::SeqCst), receiver.join().unwrap());
    let held_up = held_up.end();
    let lost: Vec<u32> = (0..sent).filter(|number| !came.contains_key(number)).collect();
    println!("{} of {sent} were lost, and threads were held up for {held_up:?}", lost.len());
    // Datagrams that a busy machine delays for long are dropped, sixty in a second; a takeover that drops a flow loses
    // dozens.
    let late = MAX_LATE + (held_up.as_millis() * 60 / 1_000) as usize;
    assert!(lost.len() <= late, "{} of {sent} were lost, and {late} may: {lost:?}", lost.len());
    assert!(came.values().all(|times| *times == 1), "answered more than once: {came:?}");
    assert_eq!(origin.peers().len(), 1, "the origin sees one peer all along: {:?}", origin.peers());
    assert!(second.program.stop().success());
}

#[test]
fn a_flood_from_two_thousand_addresses_disturbs_no_established_echo() {
    let origin = Echo::start(b'#');
    let lab = Lab::start(origin.address);
    let client = established(lab.port);
    let target = (Ipv4Addr::LOCALHOST, lab.port);
    // Three ports of each address make more flows than the socket may have.
    let flood = thread::spawn(move || {
        for address in 0..2_000_u16 {
            let [high, low] = address.to_be_bytes();
            for _ in 0..3 {
                let stranger = UdpSocket::bind((Ipv4Addr::new(127, 77, high, low), 0)).unwrap();
                stranger.send_to(b"let me in", target).unwrap();
            }
            thread::sleep(Duration::from_millis(1));
        }
    });
    // Sixty a second until a second after the flood. A busy machine may lose some, but not all.
    let step = Duration::from_micros(16_667);
    client.set_read_timeout(Some(step)).unwrap();
    let (mut last, mut longest, mut over) = (Instant::now(), Duration::ZERO, None);
    let (mut sent, mut came) = (0_usize, 0_usize);
    while over.is_none_or(|over: Instant| over.elapsed() < Duration::from_secs(1)) {
        if over.is_none() && flood.is_finished() {
            over = Some(Instant::now());
        }
        client.send(format!("#{sent}").as_bytes()).unwrap();
        sent += 1;
        let next = Instant::now() + step;
        while client.recv(&mut [0; 16]).is_ok() {
            came += 1;
            longest = longest.max(last.elapsed());
            last = Instant::now();
        }
        thread::sleep(next.saturating_duration_since(Instant::now()));
        let metrics = || lab.up.curl("api.localhost", "/metrics", &[]).body;
        assert!(last.elapsed() < Duration::from_secs(10), "silence after {came} of {sent} answers: {}", metrics());
    }
    flood.join().unwrap();
    println!("{came} of {sent} answers came, the longest silence took {longest:?}");
    assert!(came > sent / 2, "{came} of {sent} answers came");
    assert_eq!(origin.peers().len(), 1, "the flow was never begun anew: {:?}", origin.peers());
    let metrics = lab.up.curl("api.localhost", "/metrics", &[]).body;
    assert!(metrics.contains(r#"flows_total{transport="udp",verdict="evicted"}"#), "the flood filled no bound");
    assert_eq!(lab.up.program.output().matches("panicked").count(), 0, "{}", lab.up.program.output());
}
