//! Bad input: one clear sentence, the right exit code or status, and nothing else disturbed.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Command, Output},
    time::Duration,
};

use crate::{
    harness::{Home, Origin, PASSWORD, Program, Up, curl, raise_open_files, text, wait_until},
    tcp::free_port,
};

/// Asserts this exit code, and this text in one line on the standard error.
#[track_caller]
fn refused(output: &Output, code: i32, expected: &str) {
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert!(stderr.contains(expected), "{expected:?} is not in: {stderr}");
    assert!(!stderr.contains("panicked") && !stderr.contains("Backtrace"), "{stderr}");
}

fn up_that_fails(home: &Home, args: &[&str]) -> Output {
    let data = home.data();
    let mut all = vec!["up", "--data", data.to_str().unwrap(), "--listen-http", "none"];
    all.extend(args);
    home.run(&all)
}

#[test]
fn a_wrong_port_and_a_wrong_address_are_usage_errors() {
    let home = Home::new();
    refused(&home.run(&["connect", "--port", "70000", "--name", "x"]), 2, "expected a port from 1 to 65535");
    refused(&home.run(&["connect", "--port", "0", "--name", "x"]), 2, "--port");
    refused(&home.run(&["connect", "--port", "abc", "--name", "x"]), 2, "expected a port from 1 to 65535");
    refused(&up_that_fails(&home, &["--listen", "8443"]), 2, "expected ADDR:PORT");
    refused(&up_that_fails(&home, &["--domain", "no_good"]), 2, "expected a domain");
    refused(&up_that_fails(&home, &["--otlp-endpoint", "nonsense"]), 1, "use http://HOST:PORT");
}

#[test]
fn a_port_that_is_taken_is_named_with_the_way_out() {
    let home = Home::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = up_that_fails(&home, &["--listen", &address]);
    refused(&output, 1, &taken.local_addr().unwrap().port().to_string());
    refused(&output, 1, "--listen");
    assert!(!home.data().exists(), "nothing is left behind");
}

#[test]
fn a_second_up_on_the_same_data_directory_is_refused_and_the_first_goes_on() {
    let home = Home::new();
    let up = home.up(&[]);
    let output = up_that_fails(&home, &["--listen", "127.0.0.1:0"]);
    refused(&output, 1, "in use");
    refused(&output, 1, &up.program.pid().to_string());
    assert_eq!(up.curl("api.localhost", "/healthz", &[]).status, 200);
}

#[test]
fn a_corrupt_data_directory_is_refused_and_left_as_it_is() {
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    assert!(up.program.stop().success());
    drop(up);
    let database = home.data().join("sallyport.db");
    for file in ["sallyport.db-wal", "sallyport.db-shm"] {
        drop(std::fs::remove_file(home.data().join(file)));
    }
    let whole = std::fs::read(&database).unwrap();
    std::fs::write(&database, b"this is no database at all, and never was one").unwrap();
    let output = up_that_fails(&home, &["--listen", "127.0.0.1:0"]);
    refused(&output, 1, "sallyport.db");
    assert_eq!(std::fs::read(&database).unwrap(), b"this is no database at all, and never was one");
    std::fs::write(&database, b"").unwrap();
    let output = up_that_fails(&home, &["--listen", "127.0.0.1:0"]);
    refused(&output, 1, "is empty, while the keys beside it have been used");
    assert_eq!(std::fs::read(&database).unwrap(), b"");
    std::fs::write(&database, whole).unwrap();

    let key = home.data().join("ca.key");
    let whole = std::fs::read(&key).unwrap();
    std::fs::write(&key, b"nonsense").unwrap();
    refused(&up_that_fails(&home, &["--listen", "127.0.0.1:0"]), 1, "ca.key");
    std::fs::write(&key, whole).unwrap();

    // The new process has another port: the login at the old one is useless.
    std::fs::remove_dir_all(home.dir.path().join("config")).unwrap();
    let _up = home.up(&[]);
    let output = home.run(&["login", "--email", "test@example.com"]);
    assert!(output.status.success(), "nothing was lost: {}", text(&output.stderr));
}

#[test]
fn a_disk_that_is_full_fails_what_must_be_written_and_heals_when_there_is_room() {
    let home = Home::new();
    let data = home.data();
    std::fs::create_dir(&data).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=2m,mode=0700", "tmpfs"]).arg(&data).status();
    if !mounted.is_ok_and(|status| status.success()) {
        println!("skipped: a small file system cannot be mounted here (it needs root)");
        return;
    }
    let _unmount = Unmount(data.clone());
    let up = home.up(&[]);
    home.account();
    let filler = data.join("filler");
    let mut file = std::fs::File::create(&filler).unwrap();
    while file.write_all(&[0; 4_096]).is_ok() {}
    let mut answers = Vec::new();
    for _ in 0..600 {
        let output = home.run(&["socket", "create", "--name", "x", "--type", "http"]);
        answers.push(output.status.code());
        if !output.status.success() {
            assert!(text(&output.stderr).contains("full"), "{}", text(&output.stderr));
            break;
        }
    }
    assert_ne!(answers.last(), Some(&Some(0)), "a full disk cannot take any number of sockets");
    assert_eq!(up.curl("api.localhost", "/healthz", &[]).status, 200);
    // The space of an open file is not released.
    drop(file);
    std::fs::remove_file(&filler).unwrap();
    wait_until("room to be noticed", || {
        home.run(&["socket", "create", "--name", "y", "--type", "http"]).status.success().then_some(())
    });
    drop(up);
}

struct Unmount(std::path::PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(&self.0).status());
    }
}

#[test]
fn addresses_passwords_and_tokens_are_refused_with_their_reason() {
    let home = Home::new();
    refused(&home.run(&["socket", "ls", "--api", "https://127.0.0.1:1"]), 6, "127.0.0.1:1");
    let up = home.up(&[]);
    refused(&home.run(&["socket", "ls"]), 3, "sallyport login");
    refused(&home.run(&["account", "create", "--name", "x", "--email", "nonsense"]), 5, "not an e-mail address");
    let mut weak = home.command(&["account", "create", "--name", "x", "--email", "a@example.com"]);
    refused(&weak.env("SALLYPORT_PASSWORD", "short").output().unwrap(), 5, "too short");
    home.account();
    refused(&home.run(&["account", "create", "--name", "x", "--email", "test@example.com"]), 5, "already an account");
    let mut wrong = home.command(&["login", "--email", "test@example.com"]);
    refused(&wrong.env("SALLYPORT_PASSWORD", "not the passphrase").output().unwrap(), 3, "password");
    refused(&home.run(&["socket", "ls", "--token", "spt_nonsense"]), 3, "token");
    refused(&home.run(&["socket", "show", "--socket-id", "calm-bay-1000"]), 4, "calm-bay-1000");
    refused(&home.run(&["socket", "create", "--name", "x", "--type", "gopher"]), 2, "gopher");
    assert_eq!(up.curl("api.localhost", "/v1/sockets", &["-H", "Authorization: Bearer e30.e30."]).status, 401);
    let body = format!("{{\"email\":\"test@example.com\",\"password\":\"{PASSWORD}\",\"extra\":1}}");
    let response = up.curl("api.localhost", "/v1/login", &["--json", &body]);
    assert!(
        (400..500).contains(&response.status) && response.body.contains("extra"),
        "{} {}",
        response.status,
        response.body
    );
}

#[test]
fn where_sign_up_is_closed_a_second_account_is_refused_and_the_first_goes_on() {
    let home = Home::new();
    let _up = home.up(&["--sign-up", "closed"]);
    home.account();
    let second = home.run(&["account", "create", "--name", "x", "--email", "second@example.com"]);
    refused(&second, 3, "takes no new accounts");
    assert!(home.run(&["account", "show"]).status.success());
}

#[test]
fn an_origin_that_does_not_listen_is_502_and_an_unattached_socket_503() {
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let (socket, host) = home.socket(&[]);
    let nobody = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let none_yet = up.curl(&host, "/", &["-H", "Accept: application/json"]);
    assert_eq!(none_yet.status, 503);
    assert!(none_yet.header("content-type").unwrap().contains("application/problem+json"), "{}", none_yet.head);
    let connector = home.connector(&socket, nobody, &[]);
    let response = up.curl(&host, "/", &["-H", "Accept: text/html"]);
    assert_eq!(response.status, 502);
    assert!(response.header("content-type").unwrap().starts_with("text/html"), "{}", response.head);
    let id = response.header("x-request-id").unwrap();
    assert!(response.body.contains(id), "the page names the request: {}", response.body);
    // The owner of the service gets it too.
    connector.wait_for("\"status\":502");
    let unknown = up.curl("nobody-here-1000.localhost", "/", &[]);
    assert_eq!(unknown.status, 404);
    assert!(unknown.body.lines().count() <= 3, "plain text for curl: {}", unknown.body);
}

#[test]
fn an_origin_that_is_too_slow_is_504_and_the_next_request_is_served() {
    let home = Home::new();
    let up = home.up(&["--response-timeout", "500ms"]);
    home.account();
    let (socket, host) = home.socket(&[]);
    let origin = Origin::start("origin");
    let _connector = home.connector(&socket, origin.address, &[]);
    assert_eq!(up.curl(&host, "/slow/5000", &[]).status, 504);
    assert_eq!(up.curl(&host, "/", &[]).status, 200);
}

#[test]
fn garbage_silence_and_unknown_names_disturb_no_client() {
    raise_open_files();
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let (socket, host) = home.socket(&[]);
    let origin = Origin::start("origin");
    let _connector = home.connector(&socket, origin.address, &[]);
    let silent: Vec<TcpStream> = (0..1_000).map(|_| TcpStream::connect(("127.0.0.1", up.port)).unwrap()).collect();
    let mut garbage = TcpStream::connect(("127.0.0.1", up.port)).unwrap();
    garbage.write_all(&[0x5a; 4_096]).unwrap();
    garbage.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    // An alert may precede the end, which must come.
    drop(garbage.read_to_end(&mut Vec::new()));
    tunnel_garbage(&up);
    let unknown = Command::new("curl")
        .args(["-sS", "--max-time", "30", "--connect-to", &format!("example.com:443:127.0.0.1:{}", up.port)])
        .args(["--cacert", up.ca.to_str().unwrap(), "https://example.com/"])
        .output()
        .unwrap();
    assert!(!unknown.status.success(), "a name outside the domain gets no certificate");
    for _ in 0..20 {
        assert_eq!(up.curl(&host, "/", &[]).status, 200);
    }
    drop(silent);
}

#[test]
fn the_domain_itself_answers_that_services_have_names_of_their_own() {
    let home = Home::new();
    let up = home.up(&[]);
    for (host, expected) in [("localhost", "names of their own under"), ("unknown.localhost", "no service at")] {
        let response = up.curl(host, "/", &[]);
        assert!(response.status == 404 && response.body.contains(expected), "{host}: {}", response.body);
    }
}

#[test]
fn the_usual_low_bound_on_open_files_is_raised() {
    let home = Home::new();
    let data = home.data();
    let mut up = Command::new("sh");
    up.args([
        "-c",
        "ulimit -Sn 64 && exec \"$@\"",
        "sh",
        env!("CARGO_BIN_EXE_sallyport"),
        "up",
        "--listen-http",
        "none",
    ]);
    up.args(["--listen", "127.0.0.1:0", "--data", data.to_str().unwrap()]);
    up.env("SALLYPORT_STATE_DIR", home.dir.path().join("state")).stdin(std::process::Stdio::null());
    let up = Program::start(&mut up);
    let line = up.wait_for("ready");
    let port: u16 = line.split("api.localhost:").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    let silent: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    let healthy = curl(&data.join("ca.pem"), &format!("https://api.localhost:{port}/healthz"), &[]);
    assert_eq!(healthy.status, 200);
    drop(silent);
}

/// How many descriptors the table of a process has room for. With more, a thread waits while the kernel grows the
/// table.
fn room_for_descriptors(program: &Program) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", program.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("FDSize:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_burst_of_connections_waits_for_no_room_for_their_descriptors() {
    use rustix::process::{Resource, getrlimit};
    let most = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let (socket, _) = home.socket(&[]);
    let origin = Origin::start("origin");
    let connector = home.connector(&socket, origin.address, &[]);
    let (at_edge, at_connector) = (room_for_descriptors(&up.program), room_for_descriptors(&connector));
    assert!(at_edge >= most.min(65_536), "{at_edge} of {most}");
    assert!(at_connector >= most.min(4_096), "{at_connector} of {most}");
}

/// Bytes that are no frame, in the tunnel protocol.
fn tunnel_garbage(up: &Up) {
    let mut client = Command::new("openssl")
        .args(["s_client", "-quiet", "-alpn", "sallyport-tunnel/1", "-servername", "tunnel.localhost", "-connect"])
        .arg(format!("127.0.0.1:{}", up.port))
        .arg("-CAfile")
        .arg(&up.ca)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    drop(client.stdin.as_mut().unwrap().write_all(&[0xff; 1_024]));
    wait_until("the edge to hang up", || client.try_wait().unwrap());
}
