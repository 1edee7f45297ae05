//! `sallyport network join`: two machines with namespaces of their own, and the edge between them.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::{fd::AsFd as _, unix::fs::PermissionsExt as _},
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    thread,
};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::{
    edge_space::{DOMAIN, must, run_within},
    harness::{Home, PATIENCE, Program, Up, text, wait_until},
    tcp::free_port,
};

const RANGE: &str = "10.77.0.0/24";
const RANGE_6: &str = "fd00:77::/64";
/// What lies behind the first machine.
const BEHIND: &str = "10.78.0.0/24";
const DEVICE: &str = "sp-office";
/// What must never be seen between machine and edge.
const MARKER: &[u8] = b"a-secret-that-nobody-between-may-read";

/// Runs this ignored test of networks in the namespace of an edge.
fn run_with_tun(test: &str) {
    if PathBuf::from("/dev/net/tun").exists() {
        return run_within(test);
    }
    assert!(std::env::var_os("CI").is_none(), "/dev/net/tun must be there in CI");
    println!("skipped: this machine has no /dev/net/tun");
}

/// A machine: a namespace, with a link to the edge. The namespace ends with this value.
struct Machine {
    number: u32,
    holder: Child,
    state: tempfile::TempDir,
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

impl Machine {
    fn new(number: u32) -> Self {
        let holder = Command::new("unshare").args(["--net", "sleep", "infinity"]).spawn().unwrap();
        let machine = Self { number, holder, state: tempfile::tempdir().unwrap() };
        let own = std::fs::read_link("/proc/self/ns/net").unwrap();
        wait_until("the namespace", || std::fs::read_link(machine.space()).ok().filter(|theirs| *theirs != own));
        let target = machine.holder.id();
        must("ip", &format!("link add far{number} type veth peer name link{number} netns {target}"));
        must("ip", &format!("addr add 10.0.{number}.1/24 dev far{number}"));
        must("ip", &format!("link set far{number} up"));
        machine.must("ip", "link set lo up");
        machine.must("ip", &format!("addr add 10.0.{number}.2/24 dev link{number}"));
        machine.must("ip", &format!("link set link{number} up"));
        machine.must("ip", &format!("route add default via 10.0.{number}.1"));
        machine
    }

    fn space(&self) -> PathBuf {
        format!("/proc/{}/ns/net", self.holder.id()).into()
    }

    #[track_caller]
    fn must(&self, program: &str, words: &str) {
        must("nsenter", &format!("--target {} --net {program} {words}", self.holder.id()));
    }

    fn run(&self, words: &str) -> Output {
        let inside = ["--target", &self.holder.id().to_string(), "--net"].map(str::to_owned);
        Command::new("nsenter").args(inside).args(words.split_whitespace()).output().unwrap()
    }

    /// The program here, with the login of the home and a state of its own.
    fn sallyport(&self, home: &Home, words: &[&str]) -> Command {
        let mut command = home.program("nsenter");
        command.args(["--target", &self.holder.id().to_string(), "--net", env!("CARGO_BIN_EXE_sallyport")]);
        command.args(words).env("SALLYPORT_STATE_DIR", self.state.path());
        command
    }

    /// The machine in the network, when its device is up.
    fn join(&self, home: &Home, more: &[&str]) -> Program {
        let name = format!("m{}", self.number);
        let words = [&["network", "join", "office", "--name", &name, "-o", "json"], more].concat();
        let program = Program::start(&mut self.sallyport(home, &words));
        program.wait_for("\"joined\"");
        program
    }

    /// Does something in the namespace of this machine.
    fn within<T: Send>(&self, what: impl FnOnce() -> T + Send) -> T {
        let space = File::open(self.space()).unwrap();
        let inside = move || {
            move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            what()
        };
        thread::scope(|scope| scope.spawn(inside).join().unwrap())
    }

    /// The file of the machine in the network.
    fn kept(&self) -> PathBuf {
        let mut files = std::fs::read_dir(self.state.path().join("networks")).unwrap();
        files.next().unwrap().unwrap().path()
    }

    fn pings(&self, words: &str) -> bool {
        self.run(&format!("ping -c 1 -W 5 {words}")).status.success()
    }

    fn has_device(&self) -> bool {
        self.run(&format!("ip link show {DEVICE}")).status.success()
    }
}

/// The edge with a network, and two machines.
struct Office {
    home: Home,
    up: Up,
    machines: [Machine; 2],
}

impl Office {
    fn new() -> Self {
        let machines = [Machine::new(1), Machine::new(2)];
        let home = Home::new();
        let up = Self::up(&home, free_port());
        home.account();
        home.json(&["network", "create", "office", "--range", RANGE, "--range", RANGE_6]);
        Self { home, up, machines }
    }

    fn up(home: &Home, port: u16) -> Up {
        home.up(&["--domain", DOMAIN, "--sign-up", "open", "--listen", &format!("0.0.0.0:{port}")])
    }

    /// The value of a metric whose name and labels are these.
    fn counted(&self, series: &str) -> u64 {
        let here = format!("api.{DOMAIN}:{}:127.0.0.1", self.up.port);
        let metrics = self.up.curl(&format!("api.{DOMAIN}"), "/metrics", &["--resolve", &here]).body;
        metrics.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok()).unwrap_or(0)
    }

    fn dropped(&self, reason: &str) -> u64 {
        self.counted(&format!("sallyport_edge_network_dropped_packets_total{{reason=\"{reason}\"}}"))
    }

    fn wait_for_drop(&self, reason: &str, before: u64) {
        wait_until(&format!("a packet that is {reason}"), || (self.dropped(reason) > before).then_some(()));
    }
}

/// A connection from one machine to an address of the other moves these bytes both ways.
fn transfer(from: &Machine, to: &Machine, at: IpAddr, bytes: &[u8]) {
    let listener = to.within(|| TcpListener::bind((at, 0)).unwrap());
    let address = listener.local_addr().unwrap();
    let expected = Sha256::digest(bytes);
    thread::scope(|scope| {
        let server = scope.spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut got = Vec::new();
            stream.read_to_end(&mut got).unwrap();
            stream.write_all(&got).unwrap();
            Sha256::digest(&got)
        });
        let back = from.within(move || {
            let mut stream = TcpStream::connect_timeout(&address, PATIENCE).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.write_all(bytes).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let mut back = Vec::new();
            stream.read_to_end(&mut back).unwrap();
            Sha256::digest(&back)
        });
        assert_eq!(server.join().unwrap(), expected, "to {at}");
        assert_eq!(back, expected, "back from {at}");
    });
}

/// A datagram goes to the other machine, and an answer comes back.
fn datagram(from: &Machine, to: &Machine, at: IpAddr, payload: &[u8]) {
    let server = to.within(|| UdpSocket::bind((at, 0)).unwrap());
    let any: IpAddr = if at.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
    let client = from.within(|| UdpSocket::bind(SocketAddr::new(any, 0)).unwrap());
    let mut buffer = [0; 2_000];
    client.connect(server.local_addr().unwrap()).unwrap();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.send(payload).unwrap();
    let (length, peer) = server.recv_from(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], payload);
    server.send_to(b"answer", peer).unwrap();
    assert_eq!(client.recv(&mut buffer).unwrap(), 6);
}

#[test]
fn packets_cross_a_network_and_end_with_it() {
    run_with_tun("network::within_a_network");
}

#[test]
#[ignore = "runs within the network of packets_cross_a_network_and_end_with_it"]
fn within_a_network() {
    let office = Office::new();
    let [one, two] = &office.machines;
    let first = one.join(&office.home, &["--route", BEHIND]);
    // What lies behind others is used only if that is said.
    let second = two.join(&office.home, &[]);
    second.wait_for(&format!("{{\"event\":\"routes-not-accepted\",\"routes\":[\"{BEHIND}\"]}}"));
    let routes = text(&two.run("ip route").stdout);
    assert!(routes.contains(RANGE) && !routes.contains(BEHIND), "{routes}");
    assert!(second.stop().success(), "{}", second.output());
    let second = two.join(&office.home, &["--accept-routes"]);
    one.must("ip", "addr add 10.78.0.1/32 dev lo");
    let (m1, m2, m2_6) = ("10.77.0.1", "10.77.0.2", "fd00:77::2");
    assert!(one.pings(m2) && one.pings(m2_6) && two.pings("10.78.0.1"), "{}{}", first.output(), second.output());
    assert!(!two.pings("-s 1400 -M do 10.77.0.1"), "longer than the MTU");

    let secret = MARKER.repeat(2_000_000 / MARKER.len());
    let capture = tempfile::tempdir().unwrap();
    let file = capture.path().join("far1.pcap");
    let mut tcpdump = Command::new("tcpdump");
    tcpdump.args(["-i", "far1", "-U", "-s", "0", "-Z", "root", "-w"]).arg(&file);
    let tcpdump = tcpdump.stderr(Stdio::null()).spawn().inspect_err(|error| println!("without a capture: {error}"));
    transfer(one, two, m2.parse().unwrap(), &secret);
    transfer(two, one, "fd00:77::1".parse().unwrap(), &secret);
    datagram(one, two, m2.parse().unwrap(), MARKER);
    datagram(one, two, m2_6.parse().unwrap(), MARKER);
    if let Ok(mut tcpdump) = tcpdump {
        wait_until("the capture", || std::fs::metadata(&file).ok().filter(|file| file.len() > 1_000_000));
        tcpdump.kill().unwrap();
        tcpdump.wait().unwrap();
        let seen = std::fs::read(&file).unwrap();
        assert!(!seen.windows(MARKER.len()).any(|window| window == MARKER), "the capture shows what was sent");
    }

    let before = office.dropped("spoofed");
    one.must("ip", &format!("addr add 10.77.0.200/32 dev {DEVICE}"));
    assert!(!one.pings("-I 10.77.0.200 10.77.0.2"));
    office.wait_for_drop("spoofed", before);
    assert!(one.pings(m2), "its own packets go on");

    // A second start is the same machine, and an orderly end leaves nothing.
    assert!(first.stop().success(), "{}", first.output());
    assert!(!one.has_device());
    // The machine's file names an edge that is there no more, and control names the one of now.
    let kept = one.kept();
    let file = || -> Value { serde_json::from_slice(&std::fs::read(&kept).unwrap()).unwrap() };
    let mut moved = file();
    assert_eq!(moved["edge"]["port"], office.up.port);
    moved["edge"]["port"] = free_port().into();
    std::fs::write(&kept, moved.to_string()).unwrap();
    let first = one.join(&office.home, &[]);
    assert!(first.output().contains(&format!("\"{m1}\"")), "{}", first.output());
    assert!(first.output().contains("\"lost\""), "{}", first.output());
    assert_eq!(file()["edge"]["port"], office.up.port);
    assert!(two.pings(m1));
    // So does an end without order.
    first.signal("KILL");
    first.ended();
    assert!(!one.has_device());
    assert!(two.has_device());
}

#[test]
fn a_policy_and_a_removal_hold_at_once() {
    run_with_tun("network::within_a_policy");
}

#[test]
#[ignore = "runs within the network of a_policy_and_a_removal_hold_at_once"]
fn within_a_policy() {
    let mut office = Office::new();
    let [one, two] = &office.machines;
    let first = one.join(&office.home, &["--transport", "quic"]);
    assert!(first.output().contains("\"transport\":\"quic\""), "{}", first.output());
    let second = two.join(&office.home, &["--transport", "websocket"]);
    let m2 = "10.77.0.2";
    assert!(one.pings(m2));
    let file = office.home.dir.path().join("policy.toml");
    let policy = "network = \"office\"\n[[allow]]\nname = \"web\"\nto = [\"m2\"]\nservices = [\"tcp\"]\n";
    std::fs::write(&file, policy).unwrap();
    office.home.json(&["network", "policy", "set", "office", file.to_str().unwrap()]);
    wait_until("a ping that is denied", || (!one.pings(m2)).then_some(()));
    assert!(office.dropped("denied") > 0);
    transfer(one, two, m2.parse().unwrap(), &[7; 10_000]);
    // A machine that is removed while it talks.
    let mut pinging = Command::new("nsenter");
    pinging.args(["--target", &one.holder.id().to_string(), "--net", "ping", "-q", "-i", "0.01", m2]);
    let mut pinging = pinging.stdout(Stdio::null()).spawn().unwrap();
    office.home.json(&["network", "machine", "rm", "office", "m1", "--yes"]);
    assert_eq!(first.ended().code(), Some(5), "{}", first.output());
    assert!(first.output().contains("the machine was removed from its network"), "{}", first.output());
    assert!(!one.has_device());
    pinging.kill().unwrap();
    pinging.wait().unwrap();
    assert_eq!(office.counted("sallyport_edge_network_machines"), 1);

    // A machine that is removed while it is away learns of it when it is back.
    let kept = two.kept();
    second.signal("STOP");
    office.up.program.signal("KILL");
    office.up.program.ended();
    office.up = Office::up(&office.home, office.up.port);
    office.home.json(&["network", "machine", "rm", "office", "m2", "--yes"]);
    second.signal("CONT");
    assert_eq!(second.ended().code(), Some(5), "{}", second.output());
    for words in ["this edge does not know the machine", "the machine was removed from its network", "join again"] {
        assert!(second.output().contains(words), "{words}: {}", second.output());
    }
    assert!(!two.has_device() && !kept.exists());
}

#[test]
fn a_machine_that_cannot_join_says_why() {
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let said = |words: &[&str], code: i32| {
        let output = home.run(&[&["network", "join"], words].concat());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        said
    };
    assert!(said(&["Office"], 2).contains("is no name"));
    assert!(said(&["office", "--transport", "multipath"], 2).contains("a network has one path"));
    assert!(said(&["office", "--device", "lo"], 2).contains("is no device"));
    assert!(said(&["office"], 4).contains("office"));
    // The file of a machine in the network of the same name of another organisation.
    home.json(&["network", "create", "office"]);
    let files = home.dir.path().join("state/networks");
    std::fs::create_dir(&files).unwrap();
    let file = files.join(format!("office@api.localhost_{}.json", up.port));
    let other = "0b7e3c1a-5f0e-4c57-9f63-6a1f0f9e2d11";
    let kept = json!({"id": other, "organisation": other, "credential": "spm_x", "edge": {"host": "x", "port": 1}});
    std::fs::write(&file, kept.to_string()).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let refused = said(&["office"], 5);
    assert!(refused.contains(&format!("of another organisation, {other}")), "{refused}");
    assert!(refused.contains(&format!("--organisation {other}")), "{refused}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), kept.to_string());
    assert_eq!(home.json(&["network", "ls"])[0]["machines"], 0);
}
