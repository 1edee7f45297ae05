//! Sockets from systemd, and notifications to systemd. The environment belongs to the whole process, so each case runs
//! in a process of its own: this test program again, with one hidden test chosen.

use std::{
    net::TcpListener,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::net::UnixDatagram,
    },
    path::Path,
    process::{Command, Output},
    sync::atomic::{AtomicI32, Ordering::Relaxed},
};

use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use sallyport_net::{Listening, notify_ready, notify_status, notify_stopping};
use tempfile::TempDir;

use crate::support::has_program;

/// Adjacent file descriptors that the next child inherits, far above those that the tests open.
fn inheritable(fds: &[&dyn AsFd]) -> Vec<OwnedFd> {
    static NEXT: AtomicI32 = AtomicI32::new(600);
    let first = NEXT.fetch_add(10, Relaxed);
    let copies: Vec<OwnedFd> =
        fds.iter().zip(first..).map(|(fd, at)| fcntl_dupfd_cloexec(fd.as_fd(), at).unwrap()).collect();
    for copy in &copies {
        fcntl_setfd(copy, FdFlags::empty()).unwrap();
    }
    copies
}

fn child(fds: &[OwnedFd], names: &str, more: &[(&str, &str)]) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "activation::hidden_child", "--ignored", "--nocapture"]);
    command.env_remove("LISTEN_PID").env_remove("NOTIFY_SOCKET");
    if let Some(first) = fds.first() {
        command.env("LISTEN_FDS", fds.len().to_string());
        command.env("LISTEN_FDS_FIRST_FD", first.as_raw_fd().to_string());
        command.env("LISTEN_FDNAMES", names);
    }
    command.envs(more.iter().copied()).output().unwrap()
}

fn output_text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[tokio::test]
#[ignore = "the other half of the tests here"]
async fn hidden_child() {
    match Listening::from_systemd() {
        Ok(None) => println!("none"),
        Ok(Some(listening)) => {
            println!("tls {}", listening.tls_addr().unwrap());
            println!("redirect {:?}", listening.redirect_addr().unwrap());
            assert!(Listening::from_systemd().unwrap().is_none(), "taken once");
            assert!(std::env::var("LISTEN_FDS").is_err());
        }
        Err(error) => println!("error {error}"),
    }
    notify_ready();
    notify_status("serving 3 tunnels\nREADY=0");
    notify_stopping();
}

#[test]
fn the_sockets_of_systemd_are_taken_by_name() {
    let (one, two) = (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
    let (one_addr, two_addr) = (one.local_addr().unwrap(), two.local_addr().unwrap());
    let output = child(&inheritable(&[&one, &two]), "http:https", &[]);
    assert!(output.status.success(), "{}", output_text(&output));
    assert!(
        output_text(&output).contains(&format!("tls {two_addr}\nredirect Some({one_addr})")),
        "{}",
        output_text(&output)
    );
    let output = child(&inheritable(&[&one]), "sallyport.socket", &[]);
    assert!(output_text(&output).contains(&format!("tls {one_addr}\nredirect None")), "{}", output_text(&output));
}

#[test]
fn sockets_that_cannot_be_used_are_refused() {
    let not_tcp = UnixDatagram::unbound().unwrap();
    let output = child(&inheritable(&[&not_tcp]), "https", &[]);
    assert!(
        output_text(&output).contains("error the sockets that systemd handed over cannot be used"),
        "{}",
        output_text(&output)
    );
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connected = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let output = child(&inheritable(&[&connected]), "https", &[]);
    assert!(output_text(&output).contains("the socket does not listen"), "{}", output_text(&output));
    let output = child(&inheritable(&[&listener, &listener, &listener]), "a:b:c", &[]);
    assert!(output_text(&output).contains("at most two"), "{}", output_text(&output));
}

#[test]
fn without_systemd_there_are_none() {
    let output = child(&[], "", &[]);
    assert!(output.status.success() && output_text(&output).contains("none"), "{}", output_text(&output));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let output = child(&inheritable(&[&listener]), "https", &[("LISTEN_PID", "1")]);
    assert!(output_text(&output).contains("none"), "the sockets of another process: {}", output_text(&output));
}

#[test]
fn systemd_gets_the_state_of_the_service() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    let output = child(&[], "", &[("NOTIFY_SOCKET", path.to_str().unwrap())]);
    assert!(output.status.success(), "{}", output_text(&output));
    socket.set_nonblocking(true).unwrap();
    let mut received = Vec::new();
    let mut buffer = [0; 4_096];
    while let Ok(length) = socket.recv(&mut buffer) {
        received.push(String::from_utf8(buffer[..length].to_vec()).unwrap());
    }
    assert_eq!(received, ["READY=1\n", "STATUS=serving 3 tunnels READY=0\n", "STOPPING=1\n"]);
}

/// The unit files of Sallyport, as systemd reads them.
#[test]
fn our_unit_files_are_valid_and_confine_the_service() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../integrations/systemd");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let sockets = ["sallyport.socket", "sallyport-http.socket"];
    assert!(read(sockets[0]).contains("\nFileDescriptorName=https\n"));
    assert!(read(sockets[1]).contains("\nFileDescriptorName=http\n"));
    let roles = ["sallyport.service", "sallyport-control.service", "sallyport-edge.service"];
    for unit in roles {
        // They read /proc/net and /proc/sys: without them, metrics and warnings are missing, and nothing says so.
        assert!(!read(unit).contains("\nProcSubset=pid\n"), "{unit}");
    }
    let services = [&roles[..], &["sallyport-run.service"]].concat();
    if !has_program("systemd-analyze") {
        return;
    }
    let dir = TempDir::new().unwrap();
    let units = [&services[..], &sockets].concat();
    for unit in &units {
        // systemd requires that the program exists.
        std::fs::write(dir.path().join(unit), read(unit).replace("/usr/local/bin/sallyport", "/bin/true")).unwrap();
    }
    let analyze = |args: &[&str]| Command::new("systemd-analyze").args(args).current_dir(dir.path()).output().unwrap();
    let output = analyze(&[&["verify"], &units[..]].concat());
    let ours: Vec<String> =
        output_text(&output).lines().filter(|line| line.contains("sallyport")).map(str::to_owned).collect();
    assert!(ours.is_empty(), "{ours:#?}");
    for unit in services {
        // Of 10, which is for a service without any confinement.
        let output = analyze(&["security", "--offline=true", "--threshold=20", "--no-pager", unit]);
        assert!(output.status.success(), "{unit} is confined by less than it was: {}", output_text(&output));
    }
}
