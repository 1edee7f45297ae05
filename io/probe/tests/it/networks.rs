//! Network namespaces for tests.

use std::{
    fs,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Which sockets the network allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sockets {
    Ping,
    Raw,
}

impl Sockets {
    /// The groups that may open ping sockets.
    fn groups(self) -> &'static str {
        match self {
            Self::Ping => "0 2147483647",
            Self::Raw => "1 0",
        }
    }
}

/// Whether a test can have networks of its own; says why if not.
pub(crate) fn can_have_networks() -> bool {
    let output = Command::new("unshare").args(["--net", "ip", "link", "set", "lo", "up"]).output();
    let can = output.is_ok_and(|output| output.status.success());
    if !can {
        println!("skipped: a network of its own needs root, and Debian's packages `util-linux` and `iproute2`");
    }
    can
}

/// Runs this ignored test within a network of its own, started by `launcher`, a command line that may be empty.
#[track_caller]
pub(crate) fn run_within(sockets: Sockets, launcher: &[&str], test: &str) {
    if !can_have_networks() {
        return;
    }
    let groups = sockets.groups();
    let script = format!(
        "set -e; ip link set lo up; echo '{groups}' >/proc/sys/net/ipv4/ping_group_range; exec {} \"$0\" \"$@\"",
        launcher.join(" ")
    );
    let output = Command::new("unshare")
        .args(["--net", "sh", "-c", &script])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{sockets:?}:\n{shown}\n{errors}");
    assert!(shown.contains("1 passed"), "{sockets:?}:\n{shown}\n{errors}");
}

/// Runs a command line that must succeed.
#[track_caller]
pub(crate) fn must(line: &str) {
    let output = Command::new("sh").args(["-c", line]).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A process that ends with this value.
pub(crate) struct Process(pub(crate) Child);

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Another network, connected by a pair of interfaces: `near` here and `far` there.
pub(crate) struct FarNetwork(Process);

impl FarNetwork {
    pub(crate) fn new() -> Self {
        let holder = Process(Command::new("unshare").args(["--net", "sleep", "600"]).spawn().unwrap());
        let network = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/net"));
        wait_until("the other namespace", || {
            network(&holder.0.id().to_string()).ok().filter(|theirs| Some(theirs) != network("self").ok().as_ref())
        });
        let far = Self(holder);
        must(&format!("ip link add near type veth peer name far netns {}", far.0.0.id()));
        must("ip addr add 10.99.0.1/24 dev near; ip addr add fd99::1/64 dev near nodad; ip link set near up");
        far.run("ip link set lo up; ip link set far up; ip addr add 10.99.0.2/24 dev far");
        far.run("ip addr add 10.99.0.3/24 dev far; ip addr add fd99::2/64 dev far nodad");
        far.run("ip addr add fd99::3/64 dev far nodad");
        far
    }

    /// The start of a command line that runs there.
    pub(crate) fn enter(&self) -> [String; 2] {
        ["nsenter".to_owned(), format!("--net=/proc/{}/ns/net", self.0.0.id())]
    }

    /// Runs a command line there.
    #[track_caller]
    pub(crate) fn run(&self, line: &str) {
        let [nsenter, net] = self.enter();
        must(&format!("{nsenter} {net} sh -c '{line}'"));
    }
}

/// Waits for something, with a generous limit.
#[track_caller]
pub(crate) fn wait_until<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(start.elapsed() < Duration::from_secs(30), "no {what} after 30 s");
        thread::sleep(Duration::from_millis(10));
    }
}
