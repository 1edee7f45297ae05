//! A site: `client (c0)-(b0) balancer (b1..)-(e0) edges`. Edges answer through the kernel of the balancer's machine,
//! which has none of their connections.

use std::{
    fmt::Write as _,
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::PathBuf,
    process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::rig::{PATIENCE, done, lacks, text};

const PROGRAM: &str = include_str!("site.py");
/// How long a machine waits for an answer that must come, in seconds.
const ANSWER: &str = "30";
/// The virtual addresses.
pub(crate) const VIRTUAL4: &str = "203.0.113.10";
pub(crate) const VIRTUAL6: &str = "2001:db8:a::10";
/// The egress address.
pub(crate) const EGRESS: &str = "198.51.100.5";
/// The balancer's own addresses.
pub(crate) const SOURCE4: &str = "10.9.0.1";
pub(crate) const SOURCE6: &str = "fd09::1";

static SITES: AtomicU32 = AtomicU32::new(0);

/// The namespaces of a site.
pub(crate) struct Site {
    mark: String,
    folder: TempDir,
    children: Mutex<Vec<Child>>,
    edges: usize,
}

/// A program that obeys words.
pub(crate) struct Talker {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Talker {
    /// What it says next.
    pub(crate) fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("it said {line:?}"))
    }

    /// Its answer to words.
    pub(crate) fn say(&mut self, words: &str) -> Value {
        writeln!(self.input, "{words}").unwrap();
        self.input.flush().unwrap();
        self.hear()
    }
}

impl Site {
    /// A site with so many edges; `None`, with a printed reason, where it cannot be.
    pub(crate) fn new(edges: usize) -> Option<Self> {
        if let Some(reason) = lacks() {
            eprintln!("{reason}");
            return None;
        }
        let mark = format!("site{}-{}", std::process::id(), SITES.fetch_add(1, Ordering::Relaxed));
        let site = Self { mark, folder: tempfile::tempdir().unwrap(), children: Mutex::default(), edges };
        fs::create_dir(site.path("bpf")).unwrap();
        done(Command::new("mount").args(["-t", "bpf", "bpf"]).arg(site.path("bpf")));
        for name in site.names() {
            done(Command::new("ip").args(["netns", "add", &site.namespace(&name)]));
        }
        let off = ["net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.default.rp_filter=0", "net.ipv4.icmp_ratemask=0"];
        let forwarding =
            ["net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1", "net.ipv4.conf.all.send_redirects=0"];
        done(site.inside("lb", "sysctl").arg("-qw").args(off).args(forwarding));
        site.wire("cl", "c0", "b0", "10.1.0", "fd01:0");
        site.batch("lb", &format!("link set lo up\naddr add {SOURCE4}/32 dev lo\naddr add {SOURCE6}/128 dev lo\n"));
        for number in 1..=edges {
            let name = Self::edge(number);
            done(site.inside(&name, "sysctl").arg("-qw").args(off));
            site.wire(&name, "e0", &format!("b{number}"), &format!("10.2.{number}"), &format!("fd02:{number}"));
        }
        Some(site)
    }

    /// The name of an edge, from 1 on.
    pub(crate) fn edge(number: usize) -> String {
        format!("e{number}")
    }

    fn names(&self) -> Vec<String> {
        ["cl", "lb"].map(str::to_owned).into_iter().chain((1..=self.edges).map(Self::edge)).collect()
    }

    pub(crate) fn namespace(&self, name: &str) -> String {
        format!("{}-{name}", self.mark)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let (path, next) = (self.path(name), self.path("next"));
        fs::write(&next, text).unwrap();
        fs::rename(next, &path).unwrap();
        path
    }

    /// Several commands of `ip` in a namespace.
    pub(crate) fn batch(&self, name: &str, lines: &str) {
        let file = self.write("batch", lines);
        done(Command::new("ip").args(["-n", &self.namespace(name), "-batch"]).arg(file));
    }

    pub(crate) fn inside(&self, name: &str, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.namespace(name))).arg(program);
        command
    }

    /// A machine at the balancer's. The balancer has .1, the machine .2.
    fn wire(&self, name: &str, outer: &str, inner: &str, v4: &str, v6: &str) {
        let (machine, balancer) = (self.namespace(name), self.namespace("lb"));
        let pair = ["link", "add", outer, "netns", &machine, "type", "veth", "peer", "name", inner, "netns", &balancer];
        done(Command::new("ip").args(pair));
        // Outer headers need room, which the client's link has not.
        let mtu = if name == "cl" { 1500 } else { 1600 };
        for (name, device, host) in [(name, outer, 2), ("lb", inner, 1)] {
            done(self.inside(name, "ethtool").args(["-K", device, "tx", "off", "gro", "on"]));
            self.batch(
                name,
                &format!(
                    "link set lo up\nlink set {device} mtu {mtu} up\naddr add {v4}.{host}/24 dev {device}\n\
                     addr add {v6}::{host}/64 dev {device} nodad\n"
                ),
            );
        }
        self.batch(name, &format!("route add default via {v4}.1\nroute add ::/0 via {v6}::1\n"));
    }

    /// The folder of the state of a part in a namespace.
    pub(crate) fn pins(&self, name: &str) -> PathBuf {
        self.path("bpf").join(name)
    }

    /// The program in a namespace.
    pub(crate) fn packet(&self, name: &str, args: &[&str]) -> Command {
        let mut command = self.inside(name, env!("CARGO_BIN_EXE_sallyport-packet"));
        command.env("NO_COLOR", "1").env_remove("SALLYPORT_CA").arg("--pins").arg(self.pins(name)).args(args);
        command
    }

    pub(crate) fn run(&self, name: &str, args: &[&str]) -> Output {
        self.packet(name, args).output().unwrap()
    }

    /// The JSON that a command prints.
    pub(crate) fn json(&self, name: &str, args: &[&str]) -> Value {
        let printed = done(&mut self.packet(name, &[args, &["-o", "json"]].concat()));
        serde_json::from_str(&printed).unwrap()
    }

    /// The sentence by which a command refuses.
    pub(crate) fn refusal(&self, name: &str, args: &[&str]) -> String {
        let output = self.run(name, args);
        assert!(!output.status.success(), "{args:?}: {}", text(&output.stdout));
        text(&output.stderr)
    }

    /// The file of a balancer: `head`, and these edges, of which some lines may say more.
    pub(crate) fn config(&self, head: &str, edges: &[(usize, &str)]) -> String {
        let devices: Vec<_> = (0..=self.edges).map(|number| format!("\"b{number}\"")).collect();
        let mut text = format!("dev = [{}]\nsource = [\"{SOURCE4}\", \"{SOURCE6}\"]\n{head}\n", devices.join(", "));
        for (number, more) in edges {
            writeln!(text, "[[edge]]\nname = \"e{number}\"\naddress = \"10.2.{number}.2\"\n{more}").unwrap();
        }
        for (address, protocol) in [(VIRTUAL4, "tcp"), (VIRTUAL4, "udp"), (VIRTUAL6, "tcp"), (VIRTUAL6, "udp")] {
            let ports = if protocol == "udp" { "ports = \"1-1000\"\nquic = true" } else { "ports = 80" };
            writeln!(text, "[[service]]\naddress = \"{address}\"\nprotocol = \"{protocol}\"\n{ports}").unwrap();
        }
        text
    }

    /// Writes `balance.toml`, and brings the balancer up with it.
    pub(crate) fn balance(&self, text: &str) -> Value {
        let file = self.write("balance.toml", text);
        let view = self.json("lb", &["balance", "up", "--config", file.to_str().unwrap()]);
        self.wait_for_neighbors();
        view
    }

    /// Starts `balance run` with `balance.toml`.
    pub(crate) fn keep_in_step(&self, text: &str) -> u32 {
        let file = self.write("balance.toml", text);
        let mut run = self.packet("lb", &["balance", "run", "--interval", "20", "--config", file.to_str().unwrap()]);
        let mut child = run.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let said = lines.find(|line| line.as_ref().is_ok_and(|line| line.starts_with("keeping the tables in step")));
        assert!(said.is_some(), "it has not started");
        let id = child.id();
        // The pipe stays open.
        std::thread::spawn(move || lines.for_each(drop));
        self.keep(child);
        self.wait_for_neighbors();
        id
    }

    /// Waits until the balancer's machine knows who its edges are.
    fn wait_for_neighbors(&self) {
        self.wait_for("neighbours", || {
            let shown = done(Command::new("ip").args(["-n", &self.namespace("lb"), "-4", "neigh", "show"]));
            (1..=self.edges).all(|number| {
                let line = shown.lines().find(|line| line.starts_with(&format!("10.2.{number}.2 ")));
                line.is_none_or(|line| line.contains("lladdr"))
            })
        });
    }

    /// Says to the balancer's machine who its edges are.
    pub(crate) fn resolve(&self) {
        for number in 1..=self.edges {
            let mac = self.link(&Self::edge(number), "e0").1.map(|byte| format!("{byte:02x}")).join(":");
            for address in [format!("10.2.{number}.2"), format!("fd02:{number}::2")] {
                self.batch("lb", &format!("neigh replace {address} lladdr {mac} dev b{number} nud permanent\n"));
            }
        }
    }

    /// Has edges take packets, and starts their servers.
    pub(crate) fn edges_up(&self, numbers: impl IntoIterator<Item = usize>, options: &[&str]) {
        // At once: each of them waits for the kernel most of the time.
        std::thread::scope(|scope| {
            for number in numbers {
                scope.spawn(move || {
                    self.edge_up(number, options);
                    self.serve(number);
                });
            }
        });
    }

    /// Has an edge take packets of the balancer, and of all other edges.
    pub(crate) fn edge_up(&self, number: usize, options: &[&str]) -> Value {
        let mates: Vec<_> = (1..=self.edges).map(|other| format!("10.2.{other}.2")).collect();
        let (from, addresses) = (format!("{SOURCE4},{SOURCE6}"), format!("{VIRTUAL4},{VIRTUAL6}"));
        let args = ["decap", "up", "--dev", "e0", "--from", &from, "--mate", &mates.join(","), "--address", &addresses];
        self.json(&Self::edge(number), &[&args, options].concat())
    }

    /// Starts the server of an edge.
    pub(crate) fn serve(&self, number: usize) -> u32 {
        let name = Self::edge(number);
        self.start(&name, &["serve", &name, "80", VIRTUAL4, VIRTUAL6])
    }

    /// A program of site.py in a namespace.
    pub(crate) fn python(&self, name: &str, args: &[&str]) -> Command {
        let mut command = self.inside(name, "python3");
        command.args(["-c", PROGRAM]).args(args).env("ANSWER", ANSWER);
        command
    }

    /// Starts a service of site.py, and waits until it listens. Returns its process.
    pub(crate) fn start(&self, name: &str, args: &[&str]) -> u32 {
        let mut child = self.python(name, args).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let id = child.id();
        self.keep(child);
        id
    }

    /// Opens connections from the client, and keeps them.
    pub(crate) fn hold(&self, address: &str, number: usize) -> Talker {
        let mut command = self.python("cl", &["hold", address, "80", &number.to_string()]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let talker =
            Talker { input: child.stdin.take().unwrap(), output: BufReader::new(child.stdout.take().unwrap()) };
        self.keep(child);
        talker
    }

    /// What site.py prints at the client.
    pub(crate) fn client(&self, args: &[&str]) -> String {
        done(&mut self.python("cl", args)).trim().to_owned()
    }

    /// Ends this process with the site.
    pub(crate) fn keep(&self, child: Child) {
        self.children.lock().unwrap().push(child);
    }

    /// Ends a process that this site has started.
    pub(crate) fn end(&self, id: u32) {
        let mut children = self.children.lock().unwrap();
        let child = children.iter_mut().find(|child| child.id() == id).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// The packets that were counted for a reason, at the balancer or at an edge.
    pub(crate) fn count(&self, name: &str, reason: &str) -> u64 {
        let part = if name == "lb" { "balance" } else { "decap" };
        let counts = self.json(name, &[part, "show", "drops", "--all"]);
        let counts = counts.as_array().unwrap().iter().filter(|count| count["reason"] == reason);
        counts.map(|count| count["packets"].as_u64().unwrap()).sum()
    }

    /// The frame's beginning: from the client to the balancer.
    pub(crate) fn link(&self, name: &str, device: &str) -> (u32, [u8; 6]) {
        let shown = done(Command::new("ip").args(["-n", &self.namespace(name), "-j", "link", "show", device]));
        let shown: Value = serde_json::from_str(&shown).unwrap();
        let mac = shown[0]["address"].as_str().unwrap().split(':');
        let mac: Vec<u8> = mac.map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
        (shown[0]["ifindex"].as_u64().unwrap() as u32, mac.try_into().unwrap())
    }

    /// Waits until something is so.
    pub(crate) fn wait_for(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let end = Instant::now() + PATIENCE;
        while !is_so() {
            assert!(Instant::now() < end, "{what} did not come about");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        for child in self.children.get_mut().unwrap() {
            drop(child.kill());
            drop(child.wait());
        }
        for name in self.names() {
            drop(Command::new("ip").args(["netns", "del", &self.namespace(&name)]).status());
        }
        drop(Command::new("umount").arg(self.path("bpf")).status());
    }
}
