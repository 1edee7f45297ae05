//! Network namespaces for tests, and the kernel's lists of sockets in them.

use std::{
    collections::BTreeSet,
    fs,
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    thread,
};

use socket2::{Domain, Socket, Type};

/// The first port of the namespace's range.
pub(crate) const LOW: u16 = 40_000;
/// How many local ports the namespace has.
pub(crate) const PORTS: usize = 100;
/// The port of the services.
pub(crate) const SERVICE: u16 = 7_000;
/// How many destinations there are.
pub(crate) const DESTINATIONS: usize = 40;

/// Whether a test can have a network of its own; says why if not.
pub(crate) fn can_have_networks() -> bool {
    let output = Command::new("unshare").args(["--net", "ip", "link", "set", "lo", "up"]).output();
    let can = output.is_ok_and(|output| output.status.success());
    if !can {
        println!("skipped: a network of its own needs root, and Debian's packages `util-linux` and `iproute2`");
    }
    can
}

/// Runs this ignored test within a network of its own that has [`PORTS`] local ports.
#[track_caller]
pub(crate) fn run_within(test: &str) {
    if !can_have_networks() {
        return;
    }
    let high = usize::from(LOW) + PORTS - 1;
    let mut script = format!(
        "set -e; ulimit -n 20000; ip link set lo up; echo '{LOW} {high}' >/proc/sys/net/ipv4/ip_local_port_range\n"
    );
    for number in 0..=DESTINATIONS {
        script.push_str(&format!("ip addr add fd99::{number:x}/128 dev lo nodad\n"));
    }
    script.push_str("exec \"$0\" \"$@\"");
    let output = Command::new("unshare")
        .args(["--net", "sh", "-c", &script])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{shown}\n{errors}");
    assert!(shown.contains("1 passed"), "{shown}\n{errors}");
    // The figures of the test.
    print!("{shown}");
}

/// The address that sockets leave from.
pub(crate) fn source(is_v6: bool) -> IpAddr {
    if is_v6 { "fd99::".parse().unwrap() } else { "127.0.0.1".parse().unwrap() }
}

/// A destination, from 1 on.
pub(crate) fn destination(is_v6: bool, number: usize) -> SocketAddr {
    let text = if is_v6 { format!("[fd99::{number:x}]:{SERVICE}") } else { format!("127.0.1.{number}:{SERVICE}") };
    text.parse().unwrap()
}

/// A TCP service at all destinations, which keeps its connections open.
pub(crate) fn listen() -> Arc<Mutex<Vec<TcpStream>>> {
    let socket = Socket::new(Domain::IPV6, Type::STREAM, None).unwrap();
    socket.set_only_v6(false).unwrap();
    socket.bind(&format!("[::]:{SERVICE}").parse::<SocketAddr>().unwrap().into()).unwrap();
    socket.listen(4_096).unwrap();
    let (listener, kept) = (TcpListener::from(socket), Arc::new(Mutex::new(Vec::new())));
    let keep = kept.clone();
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            keep.lock().unwrap().push(stream);
        }
    });
    kept
}

/// A UDP service at one destination.
pub(crate) fn serve(at: SocketAddr) -> UdpSocket {
    let service = UdpSocket::bind(at).unwrap();
    service.set_read_timeout(Some(std::time::Duration::from_secs(30))).unwrap();
    service
}

/// The kernel's list of sockets connected to the services: how many there are, and how many four-tuples they have.
pub(crate) fn listed(table: &str) -> (usize, usize) {
    let text = fs::read_to_string(format!("/proc/net/{table}")).unwrap();
    let remote = format!(":{SERVICE:04X}");
    let mut tuples = Vec::new();
    for line in text.lines().skip(1) {
        let mut fields = line.split_whitespace().skip(1);
        let (local, peer, state) = (fields.next().unwrap(), fields.next().unwrap(), fields.next().unwrap());
        if peer.ends_with(&remote) && state == "01" {
            tuples.push(format!("{local} {peer}"));
        }
    }
    (tuples.len(), tuples.iter().collect::<BTreeSet<_>>().len())
}
