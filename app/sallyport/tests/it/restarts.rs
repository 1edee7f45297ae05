//! Requests while connectors and the edge stop, die and come back.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    process::{Command, Stdio},
    slice,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{
    harness::{Home, Origin, Program, Up, text, wait_until},
    wrk::Load,
};

/// Waits until each of these has served some hundred more requests.
fn serve_more(origins: &[Origin]) {
    const MORE: usize = 300;
    let before: Vec<usize> = origins.iter().map(Origin::count).collect();
    wait_until("requests to be served", || {
        origins.iter().zip(&before).all(|(origin, before)| origin.count() >= before + MORE).then_some(())
    });
}

#[test]
fn sigterm_even_a_doubled_one_lets_a_running_download_finish_and_exits_0() {
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let (socket, host) = home.socket(&[]);
    let origin = Origin::start("origin");
    let _connector = home.connector(&socket, origin.address, &[]);
    let (url, ca) = (up.url(&host, "/trickle/20"), up.ca.clone());
    let download = thread::spawn(move || crate::harness::curl(&ca, &url, &[]));
    wait_until("the request to reach the origin", || (origin.count() == 1).then_some(()));
    up.program.signal("TERM");
    up.program.signal("TERM");
    let response = download.join().unwrap();
    assert_eq!((response.status, response.body.len()), (200, 100), "{}", response.head);
    assert_eq!(up.program.ended().code(), Some(0), "{}", up.program.output());
}

#[test]
fn the_end_of_the_terminal_drains_unless_it_is_to_be_ignored() {
    for (signals, nohup) in [(&["HUP"][..], false), (&["HUP", "TERM"][..], true)] {
        let home = Home::new();
        let data = home.data();
        let args = ["up", "--listen", "127.0.0.1:0", "--listen-http", "none", "--data", data.to_str().unwrap()];
        let mut command = home.command(&args);
        if nohup {
            let program = command.get_program().to_owned();
            let mut wrapped = Command::new("nohup");
            wrapped.arg(program).args(args).stdin(Stdio::null()).env("SALLYPORT_STATE_DIR", home.dir.path());
            command = wrapped;
        }
        let up = Program::start(&mut command);
        up.wait_for("ready");
        signals.iter().for_each(|signal| up.signal(signal));
        assert_eq!(up.ended().code(), Some(0), "{}", up.output());
        up.wait_for("no new connections; what runs may finish");
    }
}

#[test]
fn a_connector_killed_in_the_middle_of_a_body_ends_that_body_abnormally_and_nothing_else() {
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let (socket, host) = home.socket(&[]);
    let doomed_origin = Origin::start("doomed");
    let doomed = home.connector(&socket, doomed_origin.address, &[]);
    let output = {
        let mut child = Command::new("curl")
            .args(["-sSN", "--cacert", up.ca.to_str().unwrap(), &up.url(&host, "/trickle/600")])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // Before the head has arrived, the death of the connector would be answered with a page and status 502.
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        doomed.signal("KILL");
        child.wait_with_output().unwrap()
    };
    assert!(!output.status.success(), "a body cut short must not look complete");
    let survivor = Origin::start("survivor");
    let _connector = home.connector(&socket, survivor.address, &[]);
    let response = up.curl(&host, "/after", &[]);
    assert_eq!(response.status, 200, "{}", response.body);
    assert!(response.body.starts_with("survivor"), "{}", response.body);
}

#[test]
fn connectors_restart_one_by_one_under_load_without_a_failed_request() {
    let home = Home::new();
    let up = home.up(&["--no-access-log"]);
    home.account();
    let (socket, host) = home.socket(&[]);
    let origins = [Origin::start("a"), Origin::start("b")];
    let mut connectors: Vec<Program> = origins.iter().map(|o| home.connector(&socket, o.address, &[])).collect();
    let load = Load::start(&home, &host, up.port);
    for _ in 0..2 {
        for (connector, origin) in connectors.iter_mut().zip(&origins) {
            serve_more(&origins);
            assert!(connector.stop().success(), "{}", connector.output());
            *connector = home.connector(&socket, origin.address, &[]);
        }
    }
    serve_more(&origins);
    load.all_good();
}

#[test]
fn a_connector_that_falls_silent_is_left_out_within_its_detection_time() {
    let home = Home::new();
    // The live one may be slow on a busy machine.
    let up = home.up(&["--keepalive", "1s", "--keepalive-missed", "3"]);
    home.account();
    let (socket, host) = home.socket(&[]);
    let (silent_origin, lively_origin) = (Origin::start("silent"), Origin::start("lively"));
    let silent = home.connector(&socket, silent_origin.address, &[]);
    let _lively = home.connector(&socket, lively_origin.address, &[]);
    silent.signal("STOP");
    wait_until("the silent connector to be noticed", || {
        let tunnels = home.json(&["tunnel", "ls", "--socket-id", &socket]);
        let up = tunnels.as_array().unwrap().iter().filter(|tunnel| tunnel["status"] == "up").count();
        (up == 1).then_some(())
    });
    for _ in 0..4 {
        let response = up.curl(&host, "/", &[]);
        assert!(response.status == 200 && response.body.starts_with("lively"), "{}", response.body);
    }
    silent.signal("CONT");
    wait_until("the connector to come back by itself", || {
        up.curl(&host, "/", &[]).body.starts_with("silent").then_some(())
    });
}

/// Clients that give up before any timeout of the edge, with a connection for each request.
struct Impatient {
    began: Instant,
    is_over: Arc<AtomicBool>,
    clients: Vec<thread::JoinHandle<Vec<RequestResult>>>,
}

/// The result of one request.
struct RequestResult {
    /// When it was sent, since the beginning.
    at: Duration,
    /// The first word of the answer, if any.
    by: Option<String>,
}

impl Impatient {
    fn start(up: &Up, host: &str) -> Self {
        let (began, is_over) = (Instant::now(), Arc::<AtomicBool>::default());
        let client = |_| {
            let (ca, url, is_over) = (up.ca.clone(), up.url(host, "/"), is_over.clone());
            thread::spawn(move || {
                let mut all = Vec::new();
                while !is_over.load(Ordering::Relaxed) {
                    let at = began.elapsed();
                    let mut curl = Command::new("curl");
                    curl.args(["-sSf", "--max-time", "3", "--cacert", ca.to_str().unwrap(), &url]);
                    let output = curl.output().unwrap();
                    let response = text(&output.stdout);
                    let by = response.split_whitespace().next().filter(|_| output.status.success());
                    all.push(RequestResult { at, by: by.map(str::to_owned) });
                    thread::sleep(Duration::from_millis(50));
                }
                all
            })
        };
        let clients = (0..3).map(client).collect();
        Self { began, is_over, clients }
    }

    fn stop(self) -> Vec<RequestResult> {
        self.is_over.store(true, Ordering::Relaxed);
        self.clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    }
}

#[test]
fn a_connector_that_falls_silent_costs_impatient_clients_only_what_they_ask_in_the_first_seconds() {
    let home = Home::new();
    let up = home.up(&["--no-access-log"]);
    home.account();
    let (socket, host) = home.socket(&[]);
    let (silent_origin, lively_origin) = (Origin::start("silent"), Origin::start("lively"));
    let silent = home.connector(&socket, silent_origin.address, &[]);
    let _lively = home.connector(&socket, lively_origin.address, &[]);
    let clients = Impatient::start(&up, &host);
    wait_until("both serve", || (silent_origin.count() > 5 && lively_origin.count() > 5).then_some(()));
    let stopped = clients.began.elapsed();
    silent.signal("STOP");
    up.program.wait_for("a connector disconnected");
    let noticed = clients.began.elapsed();
    assert!(noticed < stopped + Duration::from_secs(10), "with the keepalive alone it takes 30 s and more");
    thread::sleep(Duration::from_secs(2));
    silent.signal("CONT");
    wait_until("it serves again", || up.curl(&host, "/", &[]).body.starts_with("silent").then_some(()));
    let all = clients.stop();
    let failed: Vec<_> = all.iter().filter(|asked| asked.by.is_none()).map(|asked| asked.at).collect();
    println!("stopped at {stopped:?}, noticed at {noticed:?}, {} requests, failed: {failed:?}", all.len());
    assert!(failed.iter().all(|at| *at < noticed), "stopped at {stopped:?}, noticed at {noticed:?}: {failed:?}");
    // One or two of three clients wait in vain at a time, three seconds each.
    assert!(failed.len() <= 9 && all.len() > 50, "{failed:?} of {}", all.len());
}

#[test]
fn a_slow_origin_behind_a_connector_that_lives_is_waited_for() {
    let home = Home::new();
    let up = home.up(&["--keepalive-missed", "1"]);
    home.account();
    let (socket, host) = home.socket(&[]);
    // It accepts connections, and is silent for longer than the limit for connectors.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let slow = thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines().map(Result::unwrap);
            // The connector checks that the service accepts, and sends nothing.
            if lines.take_while(|line| !line.is_empty()).count() > 0 {
                thread::sleep(Duration::from_secs(6));
                let response = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nslow";
                return stream.write_all(response).unwrap();
            }
        }
    });
    let _connector = home.connector(&socket, address, &[]);
    let response = up.curl(&host, "/", &[]);
    assert_eq!((response.status, response.body.as_str()), (200, "slow"), "{}", response.head);
    slow.join().unwrap();
    assert!(!up.program.output().contains("a connector disconnected"), "{}", up.program.output());
}

#[test]
fn up_is_replaced_under_load_without_a_failed_request() {
    let home = Home::new();
    let first = home.up(&["--no-access-log"]);
    home.account();
    let (socket, host) = home.socket(&[]);
    let origin = Origin::start("origin");
    let _connector = home.connector(&socket, origin.address, &[]);
    let load = Load::start(&home, &host, first.port);
    serve_more(slice::from_ref(&origin));
    let second = home.up(&["--no-access-log", "--takeover"]);
    assert_eq!(second.port, first.port);
    assert_eq!(first.program.ended().code(), Some(0), "{}", first.program.output());
    serve_more(slice::from_ref(&origin));
    load.all_good();
    assert_eq!(second.curl(&host, "/", &[]).status, 200);
    assert!(second.program.stop().success());
}

#[test]
fn what_a_replaced_process_still_serves_ends_with_what_let_it_in() {
    let home = Home::new();
    let first = home.up(&["--drain", "120s"]);
    home.account();
    let policy = home.run(&["policy", "create", "machines", "--service-token", "ci"]);
    assert!(policy.status.success(), "{}", text(&policy.stderr));
    let (socket, host) = home.socket(&["--cloudauth", "--policy", "machines"]);
    let origin = Origin::start("origin");
    let _connector = home.connector(&socket, origin.address, &[]);
    let made = home.json(&["service-token", "create", "ci"]);
    let field = |name: &str, value: &str| format!("Sallyport-Token-{name}: {}", made[value].as_str().unwrap());
    // The origin would answer for ten minutes.
    let mut events = Command::new("curl")
        .args(["-sSN", "--cacert", first.ca.to_str().unwrap(), &first.url(&host, "/trickle/6000")])
        .args(["-H", &field("Id", "id"), "-H", &field("Secret", "secret")])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(events.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "line");
    let second = home.up(&["--takeover", "--drain", "120s"]);
    // It continues, for longer than the bytes on their way explain.
    lines.by_ref().take(20).for_each(|line| assert_eq!(line.unwrap(), "line"));
    let gone = home.run(&["service-token", "rm", "ci"]);
    assert!(gone.status.success(), "{}", text(&gone.stderr));
    let removed = Instant::now();
    assert!(lines.all(|line| line.unwrap() == "line"));
    assert!(!events.wait().unwrap().success(), "cut off, and not as if it were complete");
    assert!(removed.elapsed() < Duration::from_secs(60), "cut by the end of the drain: {:?}", removed.elapsed());
    assert_eq!(first.program.ended().code(), Some(0), "{}", first.program.output());
    assert!(second.program.stop().success());
}

#[test]
fn what_the_former_process_still_changes_after_a_takeover_is_served_by_its_successor() {
    let home = Home::new();
    let first = home.up(&[]);
    home.account();
    let token = home.json(&["token", "create", "--name", "t", "--scope", "sockets:write"]);
    let body = "{\"name\":\"late\"}";
    let mut client = Command::new("openssl")
        .args(["s_client", "-quiet", "-no_ign_eof", "-alpn", "http/1.1", "-servername", "api.localhost", "-CAfile"])
        .arg(&first.ca)
        .args(["-connect", &format!("127.0.0.1:{}", first.port)])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = client.stdin.take().unwrap();
    let mut answers = BufReader::new(client.stdout.take().unwrap()).lines();
    let mut until = |wanted: &str| {
        let mut lines = answers.by_ref().map(Result::unwrap);
        lines.find(|line| line.contains(wanted)).unwrap_or_else(|| panic!("the end came before {wanted:?}"))
    };
    let token = token["token"].as_str().unwrap();
    write!(
        input,
        "POST /v1/sockets HTTP/1.1\r\nHost: api.localhost:{}\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\nExpect: 100-continue\r\n\r\n",
        first.port,
        body.len()
    )
    .unwrap();
    // From here on the former process answers the request.
    until("100 Continue");
    let second = home.up(&["--takeover"]);
    input.write_all(body.as_bytes()).unwrap();
    until("201 Created");
    let socket = until("dns_name");
    let socket: serde_json::Value = serde_json::from_str(&socket).unwrap();
    let host = socket["dns_name"].as_str().unwrap().to_owned();
    wait_until("the successor to know the socket", || {
        // Without a connector: 404 for an unknown name, 503 for a known one.
        (second.curl(&host, "/", &[]).status == 503).then_some(())
    });
    drop(input);
    drop(client.kill());
    drop(client.wait());
    assert_eq!(first.program.ended().code(), Some(0), "{}", first.program.output());
    second.program.wait_for("the former process had changed sockets");
}

#[test]
fn up_on_sockets_of_systemd_restarts_under_load_without_a_failed_request() {
    use std::os::{fd::AsRawFd as _, unix::process::CommandExt as _};
    let home = Home::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let start = || {
        let data = home.data();
        // systemd passes the sockets as descriptors 3 and up, and the process id in LISTEN_PID. A shell does the same
        // here, because the process must know its id before it starts.
        let fd = listener.as_raw_fd();
        let program = env!("CARGO_BIN_EXE_sallyport");
        let script = format!("exec 3<&{fd}; export LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=https; exec \"$@\"");
        let mut command = home.command(&[]);
        let mut shell = Command::new("bash");
        shell.args(["-c", &script, "bash", program, "up", "--no-access-log", "--data", data.to_str().unwrap()]);
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        command.stdin(Stdio::null());
        let flags = rustix::io::fcntl_getfd(&listener).unwrap();
        rustix::io::fcntl_setfd(&listener, flags - rustix::io::FdFlags::CLOEXEC).unwrap();
        let program = Program::start(shell.arg0("bash"));
        program.wait_for("ready");
        program
    };
    let first = start();
    home.account();
    let (socket, host) = home.socket(&[]);
    let origin = Origin::start("origin");
    let _connector = home.connector(&socket, origin.address, &[]);
    let load = Load::start(&home, &host, port);
    serve_more(slice::from_ref(&origin));
    assert_eq!(first.stop().code(), Some(0), "{}", first.output());
    let second = start();
    serve_more(slice::from_ref(&origin));
    load.all_good();
    assert_eq!(second.stop().code(), Some(0));
}

#[test]
fn a_connector_in_a_pipe_reports_reconnections() {
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let (socket, host) = home.socket(&[]);
    let origin = Origin::start("origin");
    let port = origin.address.port().to_string();
    let args = ["tunnel", "connect", "--socket-id", &socket, "--host", "127.0.0.1", "--port", &port];
    let connector = Program::start(&mut home.command(&args));
    connector.wait_for(&up.url(&host, ""));
    assert_eq!(up.program.stop().code(), Some(0), "{}", up.program.output());
    connector.wait_for("note: not connected");
    assert!(!connector.output().contains("connected again"), "{}", connector.output());
    let (data, listen) = (home.data(), format!("127.0.0.1:{}", up.port));
    let args = ["up", "--listen", &listen, "--listen-http", "none", "--data", data.to_str().unwrap()];
    let again = Program::start(&mut home.command(&args));
    again.wait_for("ready");
    connector.wait_for("note: connected again");
}
