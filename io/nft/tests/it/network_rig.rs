//! A router between two namespaces, where the policies of the tests stand.
//!
//! `gen` has g0 and g1, the router d0, d1 and d2, and `sink` has k0. What the router does not know goes to `sink`.

use std::{
    io::Write as _,
    process::{Child, Command, Output, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use sallyport_packet_model::testing::ROUTER;

const NODES: [&str; 3] = ["gen", "router", "sink"];
/// How long a condition is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// Sends frames: each line has a device and the bytes in hexadecimal.
const SENDER: &str = r#"
import socket, sys
sockets = {}
for line in sys.stdin:
    device, frame = line.split()
    if device not in sockets:
        sockets[device] = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        sockets[device].bind((device, 0))
    sockets[device].send(bytes.fromhex(frame))
"#;

/// Namespaces of a test, removed at its end.
pub(crate) struct Rig {
    prefix: String,
    is_owner: bool,
    pub(crate) programs: Vec<Child>,
}

impl Rig {
    /// Makes the namespaces. `test` tells apart the rigs of one process.
    pub(crate) fn new(test: &str) -> Self {
        let rig = Self { prefix: format!("spn{}{test}-", std::process::id()), is_owner: true, programs: Vec::new() };
        let router = ROUTER.map(|byte| format!("{byte:02x}")).join(":");
        rig.run(&format!(
            "for n in gen router sink; do ip netns add @$n; ip -n @$n link set lo up; done
             ip -n @gen link add g0 type veth peer name d0 netns @router
             ip -n @gen link add g1 type veth peer name d1 netns @router
             ip -n @sink link add k0 address 02:00:00:00:00:77 type veth peer name d2 netns @router
             ip netns exec @router sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 \
               net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0
             for d in d0 d1 d2; do
               ip netns exec @router sysctl -qw net.ipv4.conf.$d.rp_filter=0
               ip -n @router link set $d address {router} up
             done
             ip -n @sink link set k0 up
             ip -n @gen link set g0 address 02:00:00:00:00:09 up; ip -n @gen link set g1 up
             ip -n @router addr add 192.0.2.1/30 dev d2; ip -n @router addr add fd99::1/64 dev d2 nodad
             ip -n @router neigh replace 192.0.2.2 lladdr 02:00:00:00:00:77 dev d2
             ip -n @router neigh replace fd99::2 lladdr 02:00:00:00:00:77 dev d2
             ip -n @router route add default via 192.0.2.2; ip -n @router route add default via fd99::2"
        ));
        rig
    }

    /// The rig that the process outside has made, seen from within.
    pub(crate) fn inside() -> Option<Self> {
        let prefix = std::env::var("SALLYPORT_NETWORK_RIG").ok()?;
        Some(Self { prefix, is_owner: false, programs: Vec::new() })
    }

    /// Runs a part of a test, which is marked as ignored, in the router's namespace.
    pub(crate) fn run_inside(&self, test: &str) {
        let output = self
            .command("router", std::env::current_exe().unwrap().to_str().unwrap())
            .args(["--exact", test, "--ignored", "--nocapture"])
            .env("SALLYPORT_NETWORK_RIG", &self.prefix)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        println!("{text}{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && text.contains("1 passed"), "{test} failed within the router");
    }

    /// Runs a script of the shell, with `@` for the prefix of namespaces.
    pub(crate) fn run(&self, script: &str) {
        let script = script.replace('@', &self.prefix);
        let output = Command::new("sh").args(["-ec", &script]).output().unwrap();
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// A program in a namespace.
    pub(crate) fn command(&self, node: &str, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &format!("{}{node}", self.prefix), program]);
        command
    }

    /// Sends frames from `gen`, each by its device there.
    pub(crate) fn send(&self, frames: &[(&str, Vec<u8>)]) {
        let mut command = self.command("gen", "python3");
        let mut child = command.args(["-c", SENDER]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        for (device, frame) in frames {
            let hex: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
            writeln!(stdin, "{device} {hex}").unwrap();
        }
        drop(stdin);
        let Output { status, stderr, .. } = child.wait_with_output().unwrap();
        assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        for program in &mut self.programs {
            drop(program.kill());
            drop(program.wait());
        }
        // The process within the router has made none.
        for node in NODES.iter().filter(|_| self.is_owner) {
            drop(Command::new("ip").args(["netns", "del", &format!("{}{node}", self.prefix)]).status());
        }
    }
}

/// Waits until a condition holds.
pub(crate) fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "{what} has not come");
        sleep(Duration::from_millis(20));
    }
}
