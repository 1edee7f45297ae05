//! The three machines of a test.

use std::{
    cell::Cell,
    collections::HashMap,
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::model_frames::Frame;

/// How long a test waits for what must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// How long a probe waits for an answer that must come, in seconds.
const ANSWER: &str = "30";
const PROBE: &str = include_str!("probe.py");

/// Numbers of rigs of this process.
static RIGS: AtomicU32 = AtomicU32::new(0);

/// Three namespaces, and a bpffs for the state of the router.
pub(crate) struct Rig {
    mark: String,
    folder: TempDir,
    children: Vec<Child>,
    /// Sources of refused packets.
    sources: Cell<u8>,
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a command that must succeed.
pub(crate) fn done(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let words = command.get_args().filter(|word| word.len() < 200).collect::<Vec<_>>();
    assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Why the tests with packets cannot run here.
pub(crate) fn lacks() -> Option<&'static str> {
    if !is_root() {
        return Some("skipped: namespaces and XDP need root");
    }
    (!sallyport_xdp::has_program())
        .then_some("skipped: this build has no program for the kernel, for clang is not there")
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

impl Rig {
    /// The standing topology, with addresses and without a router; `None`, with a printed reason, where it cannot be.
    pub(crate) fn new() -> Option<Self> {
        if let Some(reason) = lacks() {
            eprintln!("{reason}");
            return None;
        }
        let mark = format!("pkt{}-{}", std::process::id(), RIGS.fetch_add(1, Ordering::Relaxed));
        let rig = Self { mark, folder: tempfile::tempdir().unwrap(), children: Vec::new(), sources: Cell::new(0) };
        fs::create_dir(rig.folder.path().join("bpf")).unwrap();
        done(Command::new("mount").args(["-t", "bpf", "bpf"]).arg(rig.folder.path().join("bpf")));
        for name in ["gen", "dut", "sink"] {
            done(Command::new("ip").args(["netns", "add", &rig.namespace(name)]));
            rig.ip(name, "link set lo up");
        }
        rig.wire("gen", "g0", "d0");
        rig.wire("sink", "s0", "d1");
        for line in [
            "addr add 10.0.0.1/24 dev d0",
            "addr add 10.0.1.1/24 dev d1",
            "route add 192.0.2.0/24 via 10.0.1.2",
            "addr add fd00::1/64 dev d0 nodad",
            "addr add fd00:1::1/64 dev d1 nodad",
            "route add fd00:2::/64 via fd00:1::2",
        ] {
            rig.ip("dut", line);
        }
        for line in [
            "addr add 10.0.0.2/24 dev g0",
            "route add default via 10.0.0.1",
            "addr add fd00::2/64 dev g0 nodad",
            "route add default via fd00::1",
        ] {
            rig.ip("gen", line);
        }
        for line in [
            "addr add 10.0.1.2/24 dev s0",
            "addr add 192.0.2.7/32 dev lo",
            "route add default via 10.0.1.1",
            "addr add fd00:1::2/64 dev s0 nodad",
            "addr add fd00:2::7/128 dev lo nodad",
            "route add default via fd00:1::1",
        ] {
            rig.ip("sink", line);
        }
        let sysctl = [
            "net.ipv4.ip_forward=1",
            "net.ipv6.conf.all.forwarding=1",
            "net.ipv4.conf.all.rp_filter=0",
            "net.ipv4.conf.default.rp_filter=0",
            "net.ipv4.fib_multipath_hash_policy=1",
            // Not icmp_ratelimit=0: that empties the account of a host at each ICMP error, and the kernel answers to
            // routes of errors only from that account (net.ipv4.route.error_cost, which a namespace cannot set).
            "net.ipv4.icmp_ratemask=0",
            "net.ipv6.icmp.ratelimit=0",
        ];
        done(rig.inside("dut", "sysctl").arg("-qw").args(sysctl));
        Some(rig)
    }

    /// A veth pair between a machine and the router.
    pub(crate) fn wire(&self, name: &str, outer: &str, inner: &str) {
        let (namespace, dut) = (self.namespace(name), self.namespace("dut"));
        let pair = ["link", "add", outer, "netns", &namespace, "type", "veth", "peer", "name", inner, "netns", &dut];
        done(Command::new("ip").args(pair));
        for (name, device) in [(name, outer), ("dut", inner)] {
            // Sums are complete on the wire, and a device that is redirected to polls.
            done(self.inside(name, "ethtool").args(["-K", device, "tx", "off", "gro", "on"]));
            self.ip(name, &format!("link set {device} up"));
        }
    }

    pub(crate) fn namespace(&self, name: &str) -> String {
        format!("{}-{name}", self.mark)
    }

    /// Runs `ip` in a namespace.
    pub(crate) fn ip(&self, name: &str, line: &str) -> String {
        let family: &[&str] = if line.contains("::") { &["-6"] } else { &[] };
        done(Command::new("ip").args(["-n", &self.namespace(name)]).args(family).args(line.split(' ')))
    }

    /// A program in a namespace, which sees this machine's bpffs.
    pub(crate) fn inside(&self, name: &str, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.namespace(name))).arg(program);
        command
    }

    /// The folder of the router's state.
    pub(crate) fn pins(&self) -> PathBuf {
        self.folder.path().join("bpf/router")
    }

    /// A folder for files.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The program in the router's namespace.
    pub(crate) fn packet(&self, args: &[&str]) -> Command {
        let mut command = self.inside("dut", env!("CARGO_BIN_EXE_sallyport-packet"));
        command.env("NO_COLOR", "1").env_remove("SALLYPORT_CA").arg("--pins").arg(self.pins()).args(args);
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.packet(args).output().unwrap()
    }

    /// Brings the router up.
    pub(crate) fn up(&self, args: &[&str]) -> Value {
        let printed = done(&mut self.packet(&[&["router", "up", "-o", "json"], args].concat()));
        serde_json::from_str(&printed).unwrap()
    }

    /// The packets that a port has counted, by their reasons.
    pub(crate) fn counts(&self, port: &str) -> HashMap<String, u64> {
        let printed = done(&mut self.packet(&["router", "show", "drops", "--all", "-o", "json"]));
        let counts: Value = serde_json::from_str(&printed).unwrap();
        let counts = counts.as_array().unwrap().iter().filter(|count| count["port"] == port);
        counts.map(|count| (count["reason"].as_str().unwrap().to_owned(), count["packets"].as_u64().unwrap())).collect()
    }

    /// The packets that a port has counted for a reason.
    pub(crate) fn count(&self, port: &str, reason: &str) -> u64 {
        self.counts(port).get(reason).copied().unwrap_or_default()
    }

    /// Waits until something is so.
    pub(crate) fn wait_for(&self, is_so: impl Fn() -> bool) {
        let end = Instant::now() + PATIENCE;
        while !is_so() {
            assert!(Instant::now() < end, "it did not come about");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until a counter has a number.
    pub(crate) fn wait_count(&self, port: &str, reason: &str, wanted: u64) {
        let end = Instant::now() + PATIENCE;
        loop {
            let found = self.count(port, reason);
            if found == wanted {
                return;
            }
            assert!(Instant::now() < end, "{port} counts {found} packets for {reason}, not {wanted}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends a packet that the kernel refuses by ICMP, and tells its answer. The source is a new one, for the kernel
    /// answers only some packets of a host.
    pub(crate) fn refused(&self, to: &str, options: &[&str]) -> String {
        let number = self.sources.get() + 1;
        self.sources.set(number);
        let source = if to.contains(':') { format!("fd00::1:{number}") } else { format!("10.0.0.{}", 100 + number) };
        let length = if to.contains(':') { "64 dev g0 nodad" } else { "24 dev g0" };
        self.ip("gen", &format!("addr add {source}/{length}"));
        // The router learns who has the address, as of each host that asks for its gateway.
        let gateway = if to.contains(':') { "fd00::1" } else { "10.0.0.1" };
        done(self.inside("gen", "ping").args(["-c", "1", "-W", "30", "-I", &source, gateway]));
        self.probe(to, &[&["retry=1", &format!("source={source}")], options].concat())
    }

    /// Sends a frame to a port of the router so many times, from the machine with this device.
    pub(crate) fn send(&self, (machine, device): (&str, &str), port: &str, frame: &Frame, times: u32) {
        let link: Value = serde_json::from_str(&self.ip("dut", &format!("-j link show {port}"))).unwrap();
        let mac = link[0]["address"].as_str().unwrap().replace(':', "");
        let rest: String = frame.bytes()[6..].iter().map(|byte| format!("{byte:02x}")).collect();
        done(&mut self.python(machine, &["raw", device, &format!("{mac}{rest}"), &times.to_string()]));
    }

    /// A Python program of probe.py in a namespace.
    pub(crate) fn python(&self, name: &str, args: &[&str]) -> Command {
        let mut command = self.inside(name, "python3");
        command.args(["-c", PROBE]).args(args).env("ANSWER", ANSWER);
        command
    }

    /// Starts a service of probe.py, and waits until it listens. The returned child is ended with the rig.
    pub(crate) fn serve(&mut self, name: &str, args: &[&str]) -> BufReader<std::process::ChildStdout> {
        let mut child = self.python(name, args).stdout(Stdio::piped()).spawn().unwrap();
        let mut reader = BufReader::new(child.stdout.take().unwrap());
        self.children.push(child);
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        reader
    }

    /// Ends this process with the rig.
    pub(crate) fn keep(&mut self, child: Child) {
        self.children.push(child);
    }

    /// Sends one packet of UDP from `gen`, and tells what came back.
    pub(crate) fn probe(&self, to: &str, options: &[&str]) -> String {
        done(&mut self.python("gen", &[&["probe", to], options].concat())).trim().to_owned()
    }

    /// Writes a file of the rig.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::File::create(&path).unwrap().write_all(text.as_bytes()).unwrap();
        path
    }

    /// Resolves the neighbours on both sides, through the kernel.
    pub(crate) fn resolve(&self) {
        for (name, device, addresses) in
            [("gen", "g0", ["10.0.0.2", "fd00::2"]), ("sink", "s0", ["10.0.1.2", "fd00:1::2"])]
        {
            let link: Value = serde_json::from_str(&self.ip(name, &format!("-j link show {device}"))).unwrap();
            let mac = link[0]["address"].as_str().unwrap();
            let port = if name == "gen" { "d0" } else { "d1" };
            for address in addresses {
                self.ip("dut", &format!("neigh replace {address} lladdr {mac} dev {port} nud permanent"));
            }
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        for child in &mut self.children {
            drop(child.kill());
            drop(child.wait());
        }
        for name in ["gen", "dut", "sink"] {
            drop(Command::new("ip").args(["netns", "del", &self.namespace(name)]).status());
        }
        drop(Command::new("umount").arg(self.folder.path().join("bpf")).status());
    }
}
