//! The commands beside the main job, by the real program.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use crate::harness::{Home, Origin, PASSWORD, Program, fresh_name, text, wait_until};

/// Runs the program with this standard input, and without a password in its environment.
fn fed(home: &Home, args: &[&str], input: &str) -> std::process::Output {
    let mut command = home.command(args);
    command.env_remove("SALLYPORT_PASSWORD").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn completion_gives_each_shell_a_script_that_it_takes() {
    let home = Home::new();
    for (shell, sign) in
        [("bash", "-F _clap_complete_sallyport"), ("zsh", "#compdef sallyport"), ("fish", "--command sallyport")]
    {
        let output = home.run(&["completion", shell]);
        let script = text(&output.stdout);
        assert!(output.status.success() && script.contains(sign), "{shell}: {script:.200}");
        assert!(script.contains("SALLYPORT_COMPLETE"), "{shell}: the script calls the program");
        let file = home.dir.path().join(shell);
        std::fs::write(&file, &script).unwrap();
        // If the shell is installed, it checks the script.
        if let Ok(checked) = Command::new(shell).arg("-n").arg(&file).output() {
            assert!(checked.status.success(), "{shell}: {}", text(&checked.stderr));
        }
    }
    assert_eq!(home.run(&["completion", "gopher"]).status.code(), Some(2));
}

#[test]
fn logins_come_by_standard_input_are_pinned_by_fingerprint_and_end() {
    let home = Home::new();
    let up = home.up(&[]);
    let create = ["account", "create", "--name", "A", "--email", "a@example.com", "--password-stdin"];
    let made = fed(&home, &create, &format!("{PASSWORD}\n"));
    assert!(made.status.success(), "{}", text(&made.stderr));
    assert_eq!(
        fed(&home, &["login", "--email", "a@example.com", "--password-stdin"], "wrong\n").status.code(),
        Some(3)
    );

    // A machine without the note of the local `up`: only the fingerprint establishes trust.
    let note: serde_json::Value = serde_json::from_str(&up.curl("api.localhost", "/v1/info", &[]).body).unwrap();
    let pin = note["ca_fingerprint"].as_str().unwrap().to_owned();
    let api = format!("https://api.localhost:{}", up.port);
    let away = Home::new();
    let login = ["login", "--api", &api, "--email", "a@example.com", "--password-stdin"];
    assert_eq!(fed(&away, &login, PASSWORD).status.code(), Some(6), "an unknown root");
    let wrong = format!("sha256:{}", "0".repeat(64));
    let mut pinned = login.to_vec();
    pinned.extend(["--ca-fingerprint", &wrong]);
    assert_eq!(fed(&away, &pinned, PASSWORD).status.code(), Some(6), "another root");
    *pinned.last_mut().unwrap() = &pin;
    let output = fed(&away, &pinned, PASSWORD);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(away.json(&["account", "show"])["email"], "a@example.com", "the pin is remembered");

    assert!(away.run(&["logout"]).status.success());
    let output = away.run(&["account", "show", "--api", &api]);
    assert_ne!(output.status.code(), Some(0), "{}", text(&output.stdout));
    let again =
        away.run(&["account", "show", "--token", "spt_nonsense", "--api", &api, "--ca", up.ca.to_str().unwrap()]);
    assert_eq!(again.status.code(), Some(3));
    assert!(text(&again.stderr).contains("--token or SALLYPORT_TOKEN is not valid"), "{}", text(&again.stderr));
}

/// A connector with the name of the service's host instead of its address.
fn connector_by_name(home: &Home, socket: &str, origin: SocketAddr, more: &[&str]) -> Program {
    let port = origin.port().to_string();
    let mut args = vec!["tunnel", "connect", socket, "--host", "localhost", "--port", &port, "-o", "json"];
    args.extend(more);
    let program = Program::start(&mut home.command(&args));
    program.wait_for("attached");
    program
}

#[test]
fn sockets_are_edited_and_listed_in_every_form() {
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let (socket, host) = home.socket(&[]);
    let origin = Origin::start("origin");
    let _connector = connector_by_name(&home, &socket, origin.address, &[]);
    assert_eq!(up.curl(&host, "/", &[]).status, 200);

    let edit = ["socket", "edit", &socket, "--name", "no", "--protected", "--username", "ann", "--password-stdin"];
    let output = fed(&home, &edit, PASSWORD);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let edited = home.json(&["socket", "show", &socket]);
    assert_eq!((edited["name"].as_str(), edited["protected"]["username"].as_str()), (Some("no"), Some("ann")));
    wait_until("the protection", || (up.curl(&host, "/", &[]).status == 401).then_some(()));
    assert_eq!(up.curl(&host, "/", &["-u", &format!("ann:{PASSWORD}")]).status, 200);
    let refused = home.run(&["socket", "edit", &socket, "--not-protected"]);
    let says = text(&refused.stderr);
    assert!(
        refused.status.code() == Some(5) && says.contains("to every client") && says.contains("add --force"),
        "{says}"
    );
    assert!(home.json(&["socket", "edit", &socket, "--not-protected", "--force"])["protected"].is_null());
    let output = home.run(&["socket", "edit", &socket, "--type", "https"]);
    assert!(text(&output.stderr).contains("restart them"), "{}", text(&output.stderr));
    assert_eq!(home.json(&["socket", "edit", &socket, "--type", "http"])["type"], "http");
    assert_eq!(home.run(&["socket", "edit", &socket]).status.code(), Some(2), "nothing to change");
    assert_eq!(home.run(&["socket", "edit", &socket, "--name", "a\u{202e}b"]).status.code(), Some(5));

    for list in [&["socket", "ls"][..], &["tunnel", "ls", &socket], &["token", "ls"], &["socket", "show", &socket]] {
        let mut args = list.to_vec();
        args.extend(["-o", "yaml"]);
        let output = home.run(&args);
        let yaml: serde_json::Value = serde_saphyr::from_slice(&output.stdout).unwrap();
        assert_eq!(yaml, home.json(list), "{list:?}");
    }
    let yaml = text(&home.run(&["socket", "show", &socket, "-o", "yaml"]).stdout);
    assert!(yaml.contains("name: \"no\"\n") && yaml.contains("type: http\n"), "{yaml}");

    let missing = "00000000-0000-4000-8000-000000000000";
    let output = home.run(&["tunnel", "delete", "--socket-id", &socket, "--tunnel-id", missing]);
    assert_eq!(output.status.code(), Some(4));
    assert!(text(&output.stderr).contains(&format!("no such tunnel: {missing}")), "{}", text(&output.stderr));
}

/// An openssl service with its own certificate for `localhost`, of a service or of an authority. Returns its address,
/// the certificate's file and its fingerprint.
pub(crate) fn tls_origin(home: &Home, name: &str, is_authority: bool) -> (Program, SocketAddr, String, String) {
    let file = |ending: &str| home.dir.path().join(format!("{name}.{ending}"));
    let (key, certificate) = (file("key"), file("pem"));
    let (key, certificate) = (key.to_str().unwrap().to_owned(), certificate.to_str().unwrap().to_owned());
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30"])
        .args([
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=DNS:localhost",
            "-addext",
            if is_authority { "basicConstraints=critical,CA:TRUE" } else { "basicConstraints=critical,CA:FALSE" },
            "-keyout",
            &key,
            "-out",
            &certificate,
        ])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", text(&made.stderr));
    let printed = Command::new("openssl")
        .args(["x509", "-noout", "-fingerprint", "-sha256", "-in", &certificate])
        .output()
        .unwrap();
    let pin = text(&printed.stdout).trim().rsplit_once('=').unwrap().1.replace(':', "").to_ascii_lowercase();
    let mut server = Command::new("openssl");
    server.args(["s_server", "-www", "-accept", "127.0.0.1:0", "-key", &key, "-cert", &certificate]);
    let server = Program::start(server.stdin(Stdio::null()));
    let address = server.wait_for("ACCEPT").trim_start_matches("ACCEPT ").trim().parse().unwrap();
    (server, address, certificate, format!("sha256:{pin}"))
}

/// A service that answers any input as a malformed request.
fn plain_service() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            drop(stream.write_all(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n"));
            drop(stream.shutdown(std::net::Shutdown::Write));
            drop(stream.read_to_end(&mut Vec::new()));
        }
    });
    address
}

#[test]
fn a_service_that_speaks_tls_is_known_by_its_root_or_its_fingerprint() {
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let (_server, address, certificate, pin) = tls_origin(&home, "origin", false);
    let (_authority, of_authority, authority, authority_pin) = tls_origin(&home, "authority", true);
    let wrong = format!("sha256:{}", "0".repeat(64));
    let plain = plain_service();
    // Without -v: the error, and advice.
    let no_root = format!("name its root with --origin-ca FILE, or the certificate itself with --origin-pin {pin}");
    let not_pinned = format!("its certificate is not the pinned one: if it is the right one, give --origin-pin {pin}");
    let no_service =
        format!("basicConstraints=critical,CA:FALSE, or take it as it is with --origin-pin {authority_pin}");
    let cases: [(_, &[&str], u16, &str); 8] = [
        (address, &["--origin-ca", &certificate], 200, ""),
        (address, &["--origin-pin", &pin], 200, ""),
        (address, &["--origin-pin", &wrong], 502, &not_pinned),
        (address, &[], 502, &no_root),
        (
            address,
            &["--origin-ca", &certificate, "--origin-server-name", "other.example"],
            502,
            "--origin-server-name NAME",
        ),
        (of_authority, &["--origin-ca", &authority], 502, &no_service),
        (of_authority, &["--origin-pin", &authority_pin], 200, ""),
        (plain, &[], 502, "it speaks no TLS: for a service without TLS, make a socket of --type http"),
    ];
    for (address, options, status, says) in cases {
        let socket = home.json(&["socket", "create", "--name", &fresh_name(), "--type", "https"]);
        let connector = connector_by_name(&home, socket["id"].as_str().unwrap(), address, options);
        for _ in 0..3 {
            let response = up.curl(socket["dns_name"].as_str().unwrap(), "/", &[]);
            assert_eq!(response.status, status, "{options:?}: {}", response.body);
        }
        connector.wait_for(says);
        connector.stop();
        let logged = connector.output().matches("TLS handshake").count();
        assert_eq!(logged, usize::from(status == 502), "once for all requests: {}", connector.output());
    }
}

#[test]
fn a_service_that_accepts_no_connection_in_time_is_reported() {
    let home = Home::new();
    let up = home.up(&["--connect-timeout", "8s"]);
    home.account();
    let (socket, host) = home.socket(&[]);
    // A full accept queue: the kernel leaves further connections unanswered.
    let listener = short_listener();
    let address = listener.local_addr().unwrap();
    let fill: Vec<_> = (0..64)
        .map(|_| thread::spawn(move || std::net::TcpStream::connect_timeout(&address, Duration::from_millis(300)).ok()))
        .collect();
    let held: Vec<_> = fill.into_iter().filter_map(|thread| thread.join().unwrap()).collect();
    let _connector = home.connector(&socket, address, &["--connect-timeout", "500ms"]);
    let response = up.curl(&host, "/", &["-H", "Accept: application/json"]);
    assert_eq!(response.status, 504, "{}", response.body);
    drop(held);
}

/// A listener with the shortest accept queue.
fn short_listener() -> TcpListener {
    use rustix::net::{AddressFamily, SocketType, bind, listen, socket};
    let raw = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&raw, &"127.0.0.1:0".parse::<SocketAddr>().unwrap()).unwrap();
    listen(&raw, 1).unwrap();
    raw.into()
}

/// Installs, uses and removes the root in a mount namespace with a certificate store of its own.
const TRUST: &str = r#"
set -e
cp -r /etc/ssl/certs "$HOME/certs"
mount --bind "$HOME/certs" /etc/ssl/certs
mkdir "$HOME/anchors"
mount --bind "$HOME/anchors" /usr/local/share/ca-certificates
reach() { curl -sS -o /dev/null --cacert /etc/ssl/certs/ca-certificates.crt "$URL"; }
! reach 2>/dev/null || { echo "trusted too early"; exit 1; }
"$PROGRAM" trust install
ls "$HOME/anchors"
reach
"$PROGRAM" trust install | grep "already trusts"
"$PROGRAM" trust remove
! reach 2>/dev/null || { echo "still trusted"; exit 1; }
echo "came and went"
"#;

#[test]
fn the_root_goes_into_the_systems_store_and_out_again() {
    if !Path::new("/usr/sbin/update-ca-certificates").exists() || !Path::new("/etc/debian_version").exists() {
        println!("skipped: this system keeps its certificates in another way than Debian");
        return;
    }
    let home = Home::new();
    let up = home.up(&[]);
    let mut command = home.program("unshare");
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command.args(["--mount", "sh", "-c", TRUST]).env("PROGRAM", env!("CARGO_BIN_EXE_sallyport"));
    let output = command.env("URL", up.url("api.localhost", "/healthz")).output().unwrap();
    assert!(text(&output.stdout).ends_with("came and went\n"), "{}{}", text(&output.stdout), text(&output.stderr));
}

#[test]
fn the_end_of_the_program_waits_for_uploads_and_not_for_websockets_without_end() {
    let home = Home::new();
    let up = home.up(&["--drain", "4s"]);
    home.account();
    let (socket, host) = home.socket(&[]);
    let origin = Origin::start("origin");
    let _connector = home.connector(&socket, origin.address, &[]);
    let (chat, chat_host) = home.socket(&[]);
    let (chat_address, talking) = echo_after_upgrade();
    let _chat = home.connector(&chat, chat_address, &[]);

    let mut websocket = Command::new("curl");
    websocket.args(["-sS", "-N", "--http1.1", "--cacert", up.ca.to_str().unwrap(), "-H", "Connection: Upgrade"]);
    websocket.args(["-H", "Upgrade: websocket", "-H", "Sec-WebSocket-Version: 13"]);
    websocket.args(["-H", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", &up.url(&chat_host, "/")]);
    let websocket = Program::start(websocket.stdin(Stdio::null()));
    talking.recv_timeout(crate::harness::PATIENCE).unwrap();

    let file = home.dir.path().join("upload");
    std::fs::write(&file, vec![b'x'; 300_000]).unwrap();
    let (url, ca, file) = (up.url(&host, "/bytes/5"), up.ca.clone(), file.to_str().unwrap().to_owned());
    let upload = thread::spawn(move || crate::harness::curl(&ca, &url, &["--limit-rate", "150k", "-T", &file]));
    wait_until("the upload to run", || {
        let metrics = up.curl("api.localhost", "/metrics", &[]).body;
        let line = metrics.lines().find(|line| line.starts_with("sallyport_edge_legs_busy"))?;
        (line.rsplit_once(' ')?.1.parse::<u32>().ok()? >= 2).then_some(())
    });
    let began = std::time::Instant::now();
    up.program.signal("TERM");
    assert_eq!(upload.join().unwrap().status, 200, "{}", up.program.output());
    assert_eq!(up.program.ended().code(), Some(0), "{}", up.program.output());
    assert!(began.elapsed() < Duration::from_secs(4 + 10), "{:?}", began.elapsed());
    websocket.ended();
}

/// A service that answers the first request with 101 and nothing more, and a signal when it has.
fn echo_after_upgrade() -> (SocketAddr, std::sync::mpsc::Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut head = [0; 4_096];
            if !matches!(stream.read(&mut head), Ok(1..)) {
                continue;
            }
            let response = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                          Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
            drop(stream.write_all(response.as_bytes()));
            let _ = sender.send(());
            thread::spawn(move || drop(stream.read_to_end(&mut Vec::new())));
        }
    });
    (address, receiver)
}

#[test]
fn up_that_is_killed_under_load_comes_back_with_everything_and_so_do_its_connectors() {
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let (socket, host) = home.socket(&[]);
    let origin = Origin::start("origin");
    let connector = home.connector(&socket, origin.address, &["--keepalive", "1s"]);
    let port = up.port;
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let load: Vec<_> = (0..4)
        .map(|_| {
            let (stop, url, ca) = (stop.clone(), up.url(&host, "/"), up.ca.clone());
            thread::spawn(move || {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let mut curl = Command::new("curl");
                    drop(
                        curl.args(["-s", "-o", "/dev/null", "--max-time", "5", "--cacert"]).arg(&ca).arg(&url).status(),
                    );
                }
            })
        })
        .collect();
    wait_until("requests", || (origin.count() > 20).then_some(()));
    up.program.signal("KILL");
    up.program.ended();
    connector.wait_for("disconnected");
    let printed = connector.output();
    assert!(!printed.contains("docs.rs") && !printed.contains("close_notify"), "{printed}");
    let data = home.data();
    let listen = format!("127.0.0.1:{port}");
    let args = ["up", "--listen", &listen, "--listen-http", "none", "--data", data.to_str().unwrap()];
    let again = Program::start(&mut home.command(&args));
    again.wait_for("ready");
    let seen = origin.count();
    wait_until("requests to arrive again", || (origin.count() > seen + 20).then_some(()));
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    load.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(home.json(&["socket", "show", &socket])["tunnels_up"], 1, "the account and its socket are still there");
    assert_eq!(again.stop().code(), Some(0));
}

#[test]
fn a_new_account_at_a_named_api_gets_the_login_command_for_that_api() {
    let home = Home::new();
    let up = home.up(&[]);
    let (api, ca) = (format!("https://api.localhost:{}", up.port), up.ca.to_str().unwrap());
    let there = ["--api", &api, "--ca", ca];
    let create = [&there[..], &["account", "create", "--name", "Test", "--email", "test@example.com"]].concat();
    let login = format!("sallyport login --api {api} --ca {ca} --email test@example.com");
    let made = text(&home.run(&create).stderr);
    assert!(made.contains(&format!("next: {login}")), "{made}");
    let again = text(&home.run(&create).stderr);
    assert!(again.contains(&format!("if it is yours, run `{login}`")), "{again}");
    assert!(home.run(&login.split(' ').skip(1).collect::<Vec<_>>()).status.success());
}
