//! The system calls of plain connects, and kernels that lack something, by strace(1).

use std::{
    net::SocketAddr,
    process::{Command, Stdio},
    time::Duration,
};

use sallyport_connectx::{Connect, ConnectError, PortRange};

use crate::network::{self, LOW, destination, source};

const PATIENCE: Duration = Duration::from_secs(60);

/// Runs this ignored test below strace with these arguments; gives the lines of the trace. `None` without strace.
#[track_caller]
fn traced(arguments: &[&str], test: &str) -> Option<Vec<String>> {
    let can = Command::new("strace").arg("true").stderr(Stdio::null()).status().is_ok_and(|status| status.success());
    if !can || !network::can_have_networks() {
        println!("skipped: needs Debian's package `strace`, and root to trace");
        return None;
    }
    let high = usize::from(LOW) + network::PORTS - 1;
    let script = format!(
        "ip link set lo up && echo '{LOW} {high}' >/proc/sys/net/ipv4/ip_local_port_range && exec strace -f \"$@\""
    );
    let output = Command::new("unshare")
        .args(["--net", "sh", "-c", &script, "sh"])
        .args(arguments)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let (shown, trace) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && shown.contains("1 passed"), "{shown}\n{trace}");
    Some(trace.lines().map(str::to_owned).collect())
}

/// The names of the system calls in a trace that are about sockets of IPv4.
fn calls(trace: &[String]) -> Vec<&str> {
    let names = ["socket", "setsockopt", "bind", "connect"];
    let name = |line: &'_ str| names.into_iter().find(|name| line.contains(&format!("{name}(")));
    trace.iter().filter(|line| !line.contains("resumed")).filter_map(|line| name(line)).collect()
}

#[test]
fn a_destination_alone_is_a_plain_connect() {
    let Some(trace) = traced(&["-e", "trace=network"], "kernel::plain") else { return };
    let tcp_and_exclusive_udp = ["socket", "connect", "socket", "connect"];
    let shared_udp = ["socket", "connect", "setsockopt"];
    assert_eq!(calls(&trace), [&tcp_and_exclusive_udp[..], &shared_udp[..]].concat(), "{trace:#?}");
}

#[test]
#[ignore = "runs below strace"]
fn plain() {
    let to = destination(false, 1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    runtime.block_on(async {
        // Nothing listens there.
        let refused = Connect::to(to).tcp_async().await.unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
        let _exclusive = Connect::to(to).exclusive().udp_async().await.unwrap();
        let _shared = Connect::to(to).udp_async().await.unwrap();
    });
}

#[test]
fn a_kernel_without_slices_is_named() {
    // The first option of the process is the slice.
    traced(&["-qq", "-e", "trace=setsockopt", "-e", "inject=setsockopt:error=ENOPROTOOPT:when=1"], "kernel::no_slices");
}

#[test]
#[ignore = "runs below strace"]
fn no_slices() {
    let slice = PortRange::new(LOW, LOW + 9).unwrap();
    let error = Connect::to(destination(false, 1)).within(slice).tcp(PATIENCE).unwrap_err();
    let sentence =
        format!("this kernel cannot limit a socket to ports {slice}: IP_LOCAL_PORT_RANGE needs Linux 6.3 or later");
    assert_eq!(error.to_string(), sentence);
    let udp = Connect::to(destination(false, 1)).within(slice).udp().unwrap();
    assert!(
        slice.has_port(udp.local_addr().unwrap().port()),
        "UDP ports are searched, and need no slice of the kernel"
    );
}

#[test]
fn a_kernel_without_look_ups_is_named() {
    // The first message of the process is the look-up.
    traced(&["-qq", "-e", "trace=sendto", "-e", "inject=sendto:error=EPROTONOSUPPORT"], "kernel::no_lookup");
}

#[test]
#[ignore = "runs below strace"]
fn no_lookup() {
    let to = destination(false, 1);
    for request in
        [Connect::to(to).from_address(source(false)), Connect::to(to).from_port(SocketAddr::new(source(false), LOW))]
    {
        let error = request.udp().unwrap_err();
        assert!(matches!(error, ConnectError::NoSocketLookup(_)), "{error}");
        assert!(error.to_string().starts_with("this kernel cannot look up UDP sockets, which shared ports need"));
    }
    Connect::to(to).udp().unwrap();
}
