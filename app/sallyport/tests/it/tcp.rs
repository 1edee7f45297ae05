//! TCP sockets by real clients: a database, ssh, web servers, and the guarantees of TCP.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket},
    ops::RangeInclusive,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        atomic::{AtomicU16, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use rustix::net::{SendFlags, sockopt};
use serde_json::Value;

use crate::harness::{Home, PATIENCE, Program, Up, fresh_name, text, wait_until};

/// A free port in TCP and UDP, below the ephemeral range, so that it stays free until it is used.
pub(crate) fn free_port() -> u16 {
    *free_ports(1).start()
}

/// So many such ports in a row. No other test gets one of them.
pub(crate) fn free_ports(count: u16) -> RangeInclusive<u16> {
    static TRIED: AtomicU16 = AtomicU16::new(0);
    let first = 10_000 + u16::try_from(std::process::id() % 8_000).unwrap();
    let is_free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok() && UdpSocket::bind(("127.0.0.1", port)).is_ok();
    loop {
        let from = first + TRIED.fetch_add(count, Ordering::Relaxed);
        if (from..from + count).all(is_free) {
            return from..=from + count - 1;
        }
    }
}

/// `sallyport up` with one port for a socket, and an account.
pub(crate) fn up_with_port(home: &Home, more: &[&str]) -> (Up, u16) {
    let port = free_port();
    let range = format!("{port}-{port}");
    let up = home.up(&[&["--port-range", &range][..], more].concat());
    home.account();
    (up, port)
}

/// A socket of this type.
pub(crate) fn socket(home: &Home, socket_type: &str, more: &[&str]) -> Value {
    let name = fresh_name();
    home.json(&[&["socket", "create", "--name", &name, "--type", socket_type][..], more].concat())
}

pub(crate) fn id(socket: &Value) -> &str {
    socket["id"].as_str().unwrap()
}

/// A TCP socket on the port, its connector, and the `up` that serves it.
struct Lab {
    home: Home,
    _up: Up,
    port: u16,
    connector: Program,
}

impl Lab {
    fn start(origin: SocketAddr, settings: &[&str]) -> Self {
        Self::start_with(origin, settings, &[], &[])
    }

    fn start_with(origin: SocketAddr, settings: &[&str], of_up: &[&str], of_connector: &[&str]) -> Self {
        let home = Home::new();
        let (up, port) = up_with_port(&home, of_up);
        let socket = socket(&home, "tcp", settings);
        let connector = home.connector(id(&socket), origin, of_connector);
        Self { home, _up: up, port, connector }
    }

    fn connect(&self) -> TcpStream {
        connect(self.port)
    }

    /// The connector's live log of the next flows, up to one with this verdict.
    fn flow_that_ended(&self, verdict: &str) -> Value {
        let line = self.connector.wait_for(&format!("\"verdict\":\"{verdict}\""));
        serde_json::from_str::<Value>(&line).unwrap()["flow"].clone()
    }
}

pub(crate) fn connect(port: u16) -> TcpStream {
    let stream = wait_until("the port to be open", || TcpStream::connect(("127.0.0.1", port)).ok());
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// An origin with this handler for every connection.
pub(crate) fn service(serve: impl Fn(TcpStream) + Send + Sync + Clone + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let serve = serve.clone();
            thread::spawn(move || serve(stream));
        }
    });
    address
}

/// Echoes a connection.
fn echo(stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    let _ = std::io::copy(&mut &stream, &mut &stream);
    let _ = stream.shutdown(Shutdown::Write);
}

/// Ends the connection by a reset.
fn reset(stream: TcpStream) {
    sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
    drop(stream);
}

fn ping(mut stream: &TcpStream) {
    stream.write_all(b"ping").unwrap();
    let mut response = [0; 4];
    stream.read_exact(&mut response).unwrap();
    assert_eq!(&response, b"ping");
}

/// The path of a program; `None` with a message if it is missing outside of CI.
pub(crate) fn installed(program: &str, package: &str) -> Option<PathBuf> {
    let mut dirs: Vec<PathBuf> = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).collect();
    dirs.extend(["/usr/sbin".into(), "/sbin".into()]);
    if let Ok(versions) = std::fs::read_dir("/usr/lib/postgresql") {
        dirs.splice(0..0, versions.flatten().map(|version| version.path().join("bin")));
    }
    let found = dirs.into_iter().map(|dir| dir.join(program)).find(|file| file.is_file());
    if found.is_none() {
        assert!(std::env::var_os("CI").is_none(), "{program} must be there in CI");
        println!("skipped: {program} is not there (Debian's package `{package}` is missing)");
    }
    found
}

pub(crate) fn ran(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// A PostgreSQL server on a data directory of its own, as a user without privileges.
pub(crate) struct Postgres {
    pub(crate) address: SocketAddr,
    server: Program,
    _dir: tempfile::TempDir,
}

impl Postgres {
    pub(crate) fn start() -> Option<Self> {
        let (initdb, postgres) = (installed("initdb", "postgresql")?, installed("postgres", "postgresql")?);
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        if rustix::process::geteuid().is_root() {
            ran(Command::new("chown").arg("postgres").arg(dir.path()));
        }
        let run = |program: &Path| {
            let mut command = Command::new("setpriv");
            if rustix::process::geteuid().is_root() {
                command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]);
            }
            command.arg(program).arg("-D").arg(&data).env("LC_ALL", "C").current_dir(dir.path());
            command
        };
        ran(run(&initdb).args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync", "--no-instructions"]));
        let port = free_port();
        let mut command = run(&postgres);
        command.args(["-h", "127.0.0.1", "-p", &port.to_string(), "-c", "unix_socket_directories="]);
        let server = Program::start(command.args(["-c", "fsync=off"]).stdin(Stdio::null()));
        server.wait_for("ready to accept connections");
        Some(Self { address: SocketAddr::from(([127, 0, 0, 1], port)), server, _dir: dir })
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // A fast, orderly shutdown, which disconnects clients.
        self.server.signal("INT");
        if !thread::panicking() {
            self.server.ended();
        }
    }
}

#[test]
fn psql_works_through_a_tcp_socket() {
    let Some(postgres) = Postgres::start() else { return };
    let Some(psql) = installed("psql", "postgresql-client") else { return };
    let lab = Lab::start(postgres.address, &[]);
    drop(lab.connect());
    let rows: String = (0..50_000).map(|number| format!("{number}\trow {number} of many\n")).collect();
    let file = lab.home.dir.path().join("rows");
    std::fs::write(&file, rows).unwrap();
    let ask = |sql: &str| {
        let target = format!("host=127.0.0.1 port={} user=postgres sslmode=disable connect_timeout=30", lab.port);
        ran(lab.home.program(psql.to_str().unwrap()).args([
            "-X",
            "-At",
            "-v",
            "ON_ERROR_STOP=1",
            "-d",
            &target,
            "-c",
            sql,
        ]))
    };
    ask("create table t (x bigint, y text)");
    ask(&format!("\\copy t from '{}'", file.display()));
    assert_eq!(ask("select count(*), sum(x) from t").trim(), "50000|1249975000");
    assert_eq!(ask("select y from t order by x").lines().count(), 50_000);
    let flow = lab.flow_that_ended("complete");
    assert_eq!(flow["transport"], "tcp");
}

/// sshd for the user who runs the test, with a key of its own.
struct Sshd {
    address: SocketAddr,
    dir: tempfile::TempDir,
    _server: Program,
}

impl Sshd {
    fn start() -> Option<Self> {
        let sshd = installed("sshd", "openssh-server")?;
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        for key in ["host", "user"] {
            ran(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f", &at(key)]));
        }
        if rustix::process::geteuid().is_root() {
            std::fs::create_dir_all("/run/sshd").unwrap();
        }
        let port = free_port();
        let config = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\n\
             UsePAM no\nPasswordAuthentication no\nPermitRootLogin prohibit-password\nSubsystem sftp internal-sftp\n",
            at("host"),
            at("user.pub")
        );
        std::fs::write(at("config"), config).unwrap();
        let server = Program::start(Command::new(sshd).args(["-D", "-e", "-f", &at("config")]).stdin(Stdio::null()));
        server.wait_for("Server listening");
        Some(Self { address: SocketAddr::from(([127, 0, 0, 1], port)), dir, _server: server })
    }

    /// Options of a client that trusts only this server, on another port.
    fn options(&self, port: u16) -> Vec<String> {
        let host = std::fs::read_to_string(self.dir.path().join("host.pub")).unwrap();
        let known = self.dir.path().join("known");
        std::fs::write(&known, format!("[127.0.0.1]:{port} {host}")).unwrap();
        let mut options = vec!["-F".to_owned(), "none".to_owned()];
        for option in [
            format!("UserKnownHostsFile={}", known.display()),
            format!("IdentityFile={}", self.dir.path().join("user").display()),
            "IdentitiesOnly=yes".to_owned(),
            "BatchMode=yes".to_owned(),
            "StrictHostKeyChecking=yes".to_owned(),
            format!("Port={port}"),
        ] {
            options.extend(["-o".to_owned(), option]);
        }
        options
    }
}

#[test]
fn ssh_and_scp_work_through_a_tcp_socket() {
    let Some(sshd) = Sshd::start() else { return };
    let lab = Lab::start(sshd.address, &[]);
    drop(lab.connect());
    let me = ran(Command::new("id").arg("-un")).trim().to_owned();
    let options = sshd.options(lab.port);
    let printed = ran(Command::new("ssh").args(&options).args([&format!("{me}@127.0.0.1"), "echo", "through"]));
    assert_eq!(printed.trim(), "through");
    let (from, to) = (sshd.dir.path().join("from"), sshd.dir.path().join("to"));
    let mut content = vec![0; 20_000_000];
    getrandom::fill(&mut content).unwrap();
    std::fs::write(&from, &content).unwrap();
    ran(Command::new("scp").args(&options).arg(&from).arg(format!("{me}@127.0.0.1:{}", to.display())));
    assert!(std::fs::read(&to).unwrap() == content, "the copy is as the original");
    let back = sshd.dir.path().join("back");
    ran(Command::new("scp").args(&options).arg(format!("{me}@127.0.0.1:{}", to.display())).arg(&back));
    assert!(std::fs::read(&back).unwrap() == content, "and so it is back");
}

/// nginx with this configuration of its `http` block.
pub(crate) fn nginx(dir: &Path, http: &str) -> Option<Program> {
    let nginx = installed("nginx", "nginx-light")?;
    let at = |name: &str| dir.join(name).display().to_string();
    let config = format!(
        "daemon off; master_process off; pid {}; error_log stderr notice; worker_processes 1;\n\
         events {{ worker_connections 64; }}\n\
         http {{ access_log off; client_body_temp_path {}; proxy_temp_path {}; fastcgi_temp_path {}; \
         uwsgi_temp_path {}; scgi_temp_path {};\n{http} }}\n",
        at("pid"),
        at("t1"),
        at("t2"),
        at("t3"),
        at("t4"),
        at("t5"),
    );
    std::fs::write(dir.join("nginx.conf"), config).unwrap();
    let mut command = Command::new(nginx);
    command.args(["-p", dir.to_str().unwrap(), "-c", &at("nginx.conf"), "-e", "stderr"]).stdin(Stdio::null());
    Some(Program::start(&mut command))
}

#[test]
fn nginx_sees_the_client_by_the_proxy_protocol() {
    let dir = tempfile::tempdir().unwrap();
    let port = free_port();
    let http = format!(
        "server {{ listen 127.0.0.1:{port} proxy_protocol; \
         location / {{ return 200 \"$proxy_protocol_addr $proxy_protocol_server_port\"; }} }}"
    );
    let Some(_nginx) = nginx(dir.path(), &http) else { return };
    drop(connect(port));
    for version in ["v1", "v2"] {
        let lab = Lab::start(SocketAddr::from(([127, 0, 0, 1], port)), &["--proxy-protocol", version]);
        drop(lab.connect());
        let url = format!("http://127.0.0.1:{}/", lab.port);
        let seen = ran(Command::new("curl").args(["-sS", "--max-time", "60", "--interface", "127.0.0.9", &url]));
        assert_eq!(seen, format!("127.0.0.9 {}", lab.port), "{version}");
    }
}

#[test]
fn a_flow_outlives_a_takeover_until_the_drain() {
    let home = Home::new();
    let (first, port) = up_with_port(&home, &["--drain", "8s"]);
    let socket = socket(&home, "tcp", &[]);
    let _connector = home.connector(id(&socket), service(echo), &[]);
    let (finishing, staying) = (connect(port), connect(port));
    ping(&finishing);
    ping(&staying);
    let range = format!("{port}-{port}");
    let second = home.up(&["--takeover", "--port-range", &range, "--drain", "8s"]);
    let taken = Instant::now();
    // New clients reach the successor; the others continue.
    while taken.elapsed() < Duration::from_secs(3) {
        ping(&finishing);
        ping(&staying);
        ping(&connect(port));
        thread::sleep(Duration::from_millis(100));
    }
    finishing.shutdown(Shutdown::Write).unwrap();
    assert_eq!((&finishing).read(&mut [0; 1]).unwrap(), 0, "an end in good order");
    let error = (&staying).read(&mut [0; 1]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "cut off, and not as if it were complete");
    assert_eq!(first.program.ended().code(), Some(0), "{}", first.program.output());
    first.program.wait_for("cut-off");
    ping(&connect(port));
    assert!(second.program.stop().success());
}

#[test]
fn a_reset_passes_even_after_an_end_in_good_order() {
    // The origin ends its direction, and resets the connection on a signal.
    let (sender, receiver) = mpsc::channel::<std::io::Result<usize>>();
    let lab = Lab::start(
        service(move |mut stream| {
            let mut word = [0; 4];
            stream.read_exact(&mut word).unwrap();
            if &word == b"end!" {
                stream.shutdown(Shutdown::Write).unwrap();
                stream.read_exact(&mut word).unwrap();
                return reset(stream);
            }
            assert_eq!(stream.read(&mut word).unwrap(), 0);
            stream.write_all(b"end?").unwrap();
            // Nothing more to read or write: only the reset can be noticed.
            let error = wait_until("the reset", || sockopt::socket_error(&stream).unwrap().err());
            sender.send(Err(error.into())).unwrap();
        }),
        &[],
    );
    let mut client = lab.connect();
    client.write_all(b"end!").unwrap();
    assert_eq!(client.read(&mut [0; 1]).unwrap(), 0);
    client.write_all(b"now!").unwrap();
    wait_until("the reset", || sockopt::socket_error(&client).unwrap().err());
    assert_eq!(lab.flow_that_ended("broken")["bytes_in"], 8);

    let mut client = lab.connect();
    client.write_all(b"hear").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    client.read_exact(&mut [0; 4]).unwrap();
    reset(client);
    assert!(receiver.recv_timeout(PATIENCE).unwrap().is_err());
    assert_eq!(lab.flow_that_ended("client-left")["bytes_out"], 4);
}

#[test]
fn an_idle_flow_lives_through_many_keepalives() {
    let lab = Lab::start_with(
        service(echo),
        &[],
        &["--keepalive", "200ms", "--keepalive-missed", "15"],
        &["--keepalive", "200ms", "--max-legs", "2"],
    );
    // Two have a leg each, the others share the control connection.
    let clients: Vec<TcpStream> = (0..4).map(|_| lab.connect()).collect();
    clients.iter().for_each(ping);
    thread::sleep(Duration::from_secs(5));
    clients.iter().for_each(ping);
}

#[test]
fn single_bytes_are_not_held_back() {
    let lab = Lab::start(service(echo), &[]);
    let mut client = lab.connect();
    let mut took: Vec<Duration> = (0..50)
        .map(|_| {
            let begun = Instant::now();
            // With Nagle's algorithm on the path, the second one would wait for the acknowledgement of the first.
            client.write_all(b"a").unwrap();
            client.write_all(b"b").unwrap();
            client.read_exact(&mut [0; 2]).unwrap();
            begun.elapsed()
        })
        .collect();
    took.sort();
    // A busy machine may be slow most of the time; with Nagle's algorithm nearly all would be slow.
    assert!(took[took.len() / 4] < Duration::from_millis(30), "{took:?}");
}

#[test]
fn urgent_data_keeps_its_place() {
    let lab = Lab::start(service(echo), &[]);
    let mut client = lab.connect();
    ping(&client);
    client.write_all(b"before ").unwrap();
    rustix::net::send(&client, b"!", SendFlags::OOB).unwrap();
    client.write_all(b" after").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut all = String::new();
    client.read_to_string(&mut all).unwrap();
    assert_eq!(all, "before ! after");
}

#[test]
fn connect_shows_the_port_and_every_connection() {
    let home = Home::new();
    let (_up, port) = up_with_port(&home, &[]);
    let origin = service(echo).port().to_string();
    let program = Program::start(&mut home.command(&["connect", "--type", "tcp", "--port", &origin]));
    let url = program.wait_for("tcp://");
    assert!(url.ends_with(&format!(".localhost:{port}")), "{url}");
    let client = connect(port);
    ping(&client);
    drop(client);
    let line = program.wait_for("complete");
    assert!(line.contains("tcp") && line.contains("127.0.0.1:") && line.contains("4 B in, 4 B out"), "{line}");
    assert!(program.stop().success(), "{}", program.output());
}
