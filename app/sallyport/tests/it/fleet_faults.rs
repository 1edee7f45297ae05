//! What a fleet may get wrong, with real parts: clocks, certificates, credentials of the bus, and a database that
//! cannot be written, is away, or is newer.

use std::{
    io::{self, Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    process::Command,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    database::createdb,
    fleet::{Bus, DOMAIN, EdgeHere, edges},
    harness::{Home, PASSWORD, Program, curl, text, wait_until},
    postgres,
    tcp::free_port,
};

/// A control over SQLite or a database, with an account, at the home's data directory.
fn control(home: &Home, bus: &Bus, more: &[&str], env: &[(&str, &str)]) -> Program {
    let (listen, at_edges) = (format!("127.0.0.1:{}", free_port()), format!("127.0.0.1:{}", free_port()));
    let (url, data) = (bus.url(), home.data());
    let mut args = vec!["control", "--domain", DOMAIN, "--bus", &url, "--listen", &listen, "--listen-edges", &at_edges];
    args.extend(["--data", data.to_str().unwrap(), "--sign-up", "open"]);
    args.extend(more);
    let program = Program::start(home.command(&args).envs(env.iter().copied()));
    program.wait_for(" ready ");
    program
}

fn token(home: &Home, name: &str) -> String {
    let token = home.json(&["edge", "token", "create", "--name", name, "--region", "eu"]);
    token["token"].as_str().unwrap().to_owned()
}

fn psql(port: u16, sql: &str) {
    let mut psql = Command::new("psql");
    psql.args(["-h", "127.0.0.1", "-p", &port.to_string(), "-U", "postgres", "-q", "-c", sql]);
    assert!(psql.stdout(std::process::Stdio::null()).status().unwrap().success(), "{sql}");
}

#[test]
fn an_edge_with_expired_certificates_serves_on_and_reports_it() {
    let home = Home::new();
    let Some(bus) = Bus::start(&home, "") else { return };
    let control = control(&home, &bus, &["--edge-certificates", "4s"], &[]);
    home.account();
    let mut edge = EdgeHere::new(&home, "eu-1", "127.0.0.1");
    edge.start(&home, &["--join", &token(&home, "eu-1")]);
    let (_, host) = home.socket(&[]);
    wait_until("the socket is known", || edge.knows(&home, &host).then_some(()));
    // While it runs it renews them.
    thread::sleep(Duration::from_secs(5));
    wait_until("clients believe it after its first certificate's life", || edge.knows(&home, &host).then_some(()));
    edge.kill();
    thread::sleep(Duration::from_secs(5));
    edge.start(&home, &[]);
    let printed = edge.program.as_ref().unwrap().wait_for("are not renewed");
    assert!(printed.contains("ended=true") || printed.contains("ended: true"), "{printed}");
    control.wait_for("its certificate is not trusted");
    let response = edge.curl(&home, &format!("api.{DOMAIN}"), "/v1/info", &["-k"]);
    assert!(response.status == 503 && response.body.contains("control-away"), "{} {}", response.status, response.body);
    let response = edge.curl(&home, &host, "/", &["-k"]);
    assert_eq!(response.status, 503, "the socket is served, and has no tunnel: {}", response.body);
    let (_, health) = edge_health(&home, &edge, "/healthz");
    assert!(health.contains("certificates: ended"), "{health}");
}

/// The response of an edge, whatever its certificate is.
fn edge_health(home: &Home, edge: &EdgeHere, path: &str) -> (u16, String) {
    let response = edge.curl(home, &format!("api.{DOMAIN}"), path, &["-k"]);
    (response.status, response.body)
}

#[test]
fn clocks_an_hour_apart_are_reported_and_hinder_nothing() {
    let home = Home::new();
    let Some(bus) = Bus::start(&home, "") else { return };
    let _control = control(&home, &bus, &[], &[]);
    home.account();
    for (name, offset, expected) in [("eu-1", "+1h", "ahead of"), ("eu-2", "-59m", "behind")] {
        let Some(elsewhere) = Home::with_clock() else { return };
        elsewhere.turn_clock(offset);
        let mut edge = EdgeHere::new(&elsewhere, name, "127.0.0.1");
        edge.start(&elsewhere, &["--join", &token(&home, name)]);
        let printed = edge.program.as_ref().unwrap().wait_for("the clock of this machine");
        assert!(printed.contains(expected), "{printed}");
        let (_, host) = home.socket(&[]);
        wait_until("the socket is known", || edge.knows(&home, &host).then_some(()));
        wait_until("it is there", || {
            edges(&home).iter().any(|edge| edge["name"] == name && edge["state"] == "up").then_some(())
        });
        // Running requests have the given time, by control's clock.
        let program = edge.program.as_ref().unwrap();
        program.wait_for("the certificates of this edge are new");
        assert!(home.run(&["edge", "drain", name, "--within", "10m", "--force"]).status.success());
        let printed = program.wait_for("this edge drains");
        let within = printed.split("within=").nth(1).and_then(|rest| rest.split('s').next()?.parse::<f64>().ok());
        assert!(within.is_some_and(|within| (500.0..605.0).contains(&within)), "{printed}");
    }
}

#[test]
fn credentials_of_the_bus_may_change_while_all_run() {
    let home = Home::new();
    let with = |password: &str| format!("authorization {{ user: sallyport, password: {password} }}");
    let Some(mut bus) = Bus::start(&home, &with("one")) else { return };
    let env = |password: &'static str| [("SALLYPORT_BUS_USER", "sallyport"), ("SALLYPORT_BUS_PASSWORD", password)];
    let first = control(&home, &bus, &[], &env("one"));
    home.account();
    let mut edge = EdgeHere::new(&home, "eu-1", "127.0.0.1");
    edge.start(&home, &["--join", &token(&home, "eu-1")]);
    let (_, host) = home.socket(&[]);
    wait_until("the socket is known", || edge.knows(&home, &host).then_some(()));

    bus.kill();
    let config = std::fs::read_to_string(bus.dir.join("nats.conf")).unwrap();
    std::fs::write(bus.dir.join("nats.conf"), config.replace(&with("one"), &with("two"))).unwrap();
    bus.resume();
    wait_until("the refusal is reported", || {
        let (status, health) = edge_health(&home, &edge, "/healthz");
        (status == 200 && health.contains("bus: refuses the credentials")).then_some(())
    });
    assert!(edge.knows(&home, &host), "the known configuration is served on");
    edge.program.as_ref().unwrap().wait_for("the bus refuses the credentials");
    // Also an edge that starts now.
    edge.kill();
    edge.start(&home, &[]);
    assert!(edge.knows(&home, &host));

    // Control gets the new credentials, and sends them to the edge.
    assert!(first.stop().success());
    let ports = |line: &str, word: &str| line.split(word).nth(1).unwrap().split(' ').next().unwrap().to_owned();
    let ready = first.output();
    let ready = ready.lines().find(|line| line.contains(" ready ")).unwrap().to_owned();
    let (listen, at_edges) = (ports(&ready, "listen="), ports(&ready, "edges="));
    let more = ["--listen", &listen, "--listen-edges", &at_edges];
    let (url, data) = (bus.url(), home.data());
    let mut args = vec!["control", "--domain", DOMAIN, "--bus", &url, "--data", data.to_str().unwrap()];
    args.extend(more);
    let second = Program::start(home.command(&args).envs(env("two")));
    second.wait_for(" ready ");
    wait_until("the edge uses the new ones", || {
        let (_, health) = edge_health(&home, &edge, "/healthz");
        (!health.contains("bus:")).then_some(())
    });
    let (_, meanwhile) = home.socket(&[]);
    wait_until("the new socket is known", || edge.knows(&home, &meanwhile).then_some(()));
}

#[test]
fn an_edge_that_knows_nothing_is_not_ready() {
    let home = Home::new();
    let Some(mut bus) = Bus::start(&home, "") else { return };
    let control = control(&home, &bus, &[], &[]);
    home.account();
    let mut edge = EdgeHere::new(&home, "eu-1", "127.0.0.1");
    edge.start(&home, &["--join", &token(&home, "eu-1")]);
    wait_until("it is ready with an empty configuration that is of the present", || {
        (edge_health(&home, &edge, "/readyz").0 == 200).then_some(())
    });
    edge.kill();
    bus.kill();
    drop(control);
    for file in ["config.snapshot", "config.snapshot.new"] {
        drop(std::fs::remove_file(edge.data.join(file)));
    }
    edge.start(&home, &[]);
    let (status, body) = edge_health(&home, &edge, "/readyz");
    assert!(status == 503 && body.contains("knows no configuration yet"), "{status} {body}");
}

/// A way to a port that can be cut.
struct Cut {
    port: u16,
    line: Arc<Mutex<Line>>,
}

/// What passes, and how often it was cut: a connection that was on its way meanwhile does not outlive the cut.
#[derive(Default)]
struct Line {
    is_cut: bool,
    cuts: u32,
    open: Vec<TcpStream>,
}

impl Cut {
    fn to(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let line = Arc::new(Mutex::new(Line::default()));
        let cut = Self { port: listener.local_addr().unwrap().port(), line: line.clone() };
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let cuts = line.lock().unwrap().cuts;
                let Ok(there) = TcpStream::connect(("127.0.0.1", target)) else { continue };
                let ends = [(stream.try_clone(), there.try_clone()), (there.try_clone(), stream.try_clone())];
                {
                    let mut line = line.lock().unwrap();
                    if line.is_cut || line.cuts != cuts {
                        continue;
                    }
                    line.open.extend([stream, there]);
                }
                for (from, into) in ends {
                    let (mut from, mut into) = (from.unwrap(), into.unwrap());
                    thread::spawn(move || copy(&mut from, &mut into));
                }
            }
        });
        cut
    }

    /// Ends every connection, and lets further ones pass or not.
    fn cut(&self, is_cut: bool) {
        let mut line = self.line.lock().unwrap();
        line.is_cut = is_cut;
        line.cuts += 1;
        for stream in line.open.drain(..) {
            drop(stream.shutdown(Shutdown::Both));
        }
    }
}

fn copy(from: &mut TcpStream, into: &mut TcpStream) {
    let mut bytes = [0; 16_384];
    let mut once = || -> io::Result<bool> {
        let count = from.read(&mut bytes)?;
        into.write_all(&bytes[..count])?;
        Ok(count > 0)
    };
    while once().unwrap_or(false) {}
    drop(into.shutdown(Shutdown::Both));
}

#[test]
fn a_read_only_or_absent_database_is_reported_and_recovers() {
    let Some(server) = postgres::server() else { return };
    let home = Home::new();
    let Some(bus) = Bus::start(&home, "") else { return };
    let whole = createdb(server, "faulty_store");
    let port = server.port;
    let cut = Cut::to(port);
    let database = whole.replace(&format!(":{port}/"), &format!(":{}/", cut.port));
    let running = control(&home, &bus, &["--database", &database], &[]);
    home.account();
    let mut edge = EdgeHere::new(&home, "eu-1", "127.0.0.1");
    edge.start(&home, &["--join", &token(&home, "eu-1")]);
    let (id, host) = home.socket(&[]);
    wait_until("the socket is known", || edge.knows(&home, &host).then_some(()));
    let made = home.json(&["token", "create", "--name", "t", "--scope", "sockets:read", "--scope", "sockets:write"]);
    let bearer = format!("Authorization: Bearer {}", made["token"].as_str().unwrap());
    let ca = home.data().join("ca.pem");
    let call = |path: &str, more: &[&str]| {
        let url = format!("https://api.{DOMAIN}:{}{path}", edge.port);
        curl(&ca, &url, &[&["-H", &bearer], more].concat())
    };
    let body = json!({"name": "another", "type": "http"}).to_string();

    // Read-only while it runs: reading goes on, changes are refused with a sentence, edges serve.
    psql(port, "ALTER DATABASE faulty_store SET default_transaction_read_only = on");
    cut.cut(false);
    let response = wait_until("a refusal", || {
        let response = call("/v1/sockets", &["--json", &body]);
        (response.status == 503).then_some(response)
    });
    assert!(response.body.contains("\"read-only\"") && response.body.contains("can only read"), "{}", response.body);
    assert_eq!(call(&format!("/v1/sockets/{id}"), &[]).status, 200);
    assert!(edge.knows(&home, &host));
    // At a start it is reported.
    let other = home.dir.path().join("other");
    let url = bus.url();
    let args =
        ["control", "--domain", DOMAIN, "--bus", &url, "--data", other.to_str().unwrap(), "--listen", "127.0.0.1:0"];
    let start = |database: &str| {
        let output = home.run(&[&args[..], &["--listen-edges", "127.0.0.1:0", "--database", database]].concat());
        (output.status.code(), text(&output.stderr))
    };
    let (code, printed) = start(&database);
    assert!(code == Some(1) && printed.contains("read-only"), "{code:?} {printed}");
    psql(port, "ALTER DATABASE faulty_store RESET default_transaction_read_only");
    cut.cut(false);
    wait_until("changes again", || (call("/v1/sockets", &["--json", &body]).status == 201).then_some(()));

    // Away: a sentence, and back by itself.
    cut.cut(true);
    let response = wait_until("a refusal", || {
        let response = call("/v1/sockets", &[]);
        (response.status == 503).then_some(response)
    });
    assert!(response.body.contains("database-unreachable"), "{}", response.body);
    assert!(edge.knows(&home, &host));
    let (code, printed) = start(&database);
    assert!(code == Some(6) && printed.contains("cannot be reached"), "{code:?} {printed}");
    cut.cut(false);
    wait_until("it is back", || (call("/v1/sockets", &[]).status == 200).then_some(()));
    assert!(running.stop().success());

    // Of a newer program.
    let version = Command::new("psql")
        .args(["-h", "127.0.0.1", "-p", &port.to_string(), "-U", "postgres", "-q", "-d", "faulty_store", "-c"])
        .arg("UPDATE sallyport_schema SET version = version + 1")
        .status();
    assert!(version.unwrap().success());
    let (code, printed) = start(&whole);
    assert!(
        code == Some(1) && printed.contains("knows versions up to") && printed.contains("newer program"),
        "{code:?} {printed}"
    );
}

#[test]
fn the_owner_of_an_installation_hands_it_over_and_join_tokens_are_looked_after() {
    let home = Home::new();
    let Some(bus) = Bus::start(&home, "") else { return };
    let running = control(&home, &bus, &[], &[]);
    home.account();
    let made = token(&home, "eu-1");
    let listed = home.json(&["edge", "token", "ls"]);
    assert_eq!((listed[0]["name"].as_str(), listed[0]["state"].as_str()), (Some("eu-1"), Some("waiting")), "{listed}");
    assert!(!listed.to_string().contains(&made[..20]), "no secret is shown");
    let id = listed[0]["id"].as_str().unwrap();
    home.json(&["edge", "token", "rm", id]);
    let gone = home.run(&["edge", "token", "rm", id]);
    assert_eq!(gone.status.code(), Some(4), "{}", text(&gone.stderr));
    let data = home.dir.path().join("refused");
    let joined = home.run(&["edge", "--join", &made, "--data", data.to_str().unwrap(), "--listen", "127.0.0.1:0"]);
    assert!(joined.status.code() == Some(5) && text(&joined.stderr).contains("is unknown"), "{joined:?}");

    // The owner's account is needed as long as others could own the installation.
    let note: Value =
        serde_json::from_slice(&std::fs::read(home.dir.path().join("state/local.json")).unwrap()).unwrap();
    let (api, ca) = (note["api"].as_str().unwrap().to_owned(), home.data().join("ca.pem"));
    let post = |path: &str, body: Value| curl(&ca, &format!("{api}{path}"), &["--json", &body.to_string()]);
    let other = json!({"name": "Other", "email": "other@example.com", "password": PASSWORD});
    assert_eq!(post("/v1/accounts", other).status, 201);
    let session = post("/v1/login", json!({"email": "test@example.com", "password": PASSWORD}));
    let session: Value = serde_json::from_str(&session.body).unwrap();
    let bearer = format!("Authorization: Bearer {}", session["access_token"].as_str().unwrap());
    let delete = || curl(&ca, &format!("{api}/v1/account"), &["-X", "DELETE", "-H", &bearer]);
    let refused = delete();
    assert!(refused.status == 409 && refused.body.contains("hand-over"), "{} {}", refused.status, refused.body);
    let nobody = home.run(&["account", "hand-over", "nobody@example.com"]);
    assert_eq!(nobody.status.code(), Some(4), "{}", text(&nobody.stderr));
    home.json(&["account", "hand-over", "other@example.com"]);
    let output = home.run(&["edge", "ls"]);
    assert!(output.status.code() == Some(3) && text(&output.stderr).contains("owns this installation"), "{output:?}");
    assert_eq!(delete().status, 204);
    assert!(home.run(&["login", "--email", "other@example.com"]).status.success());
    assert_eq!(home.json(&["edge", "ls"]), json!([]));
    // The operator of the machine may name an owner, too.
    assert!(running.stop().success());
    let url = bus.url();
    let (data, at) = (home.data(), "127.0.0.1:0");
    let args = ["control", "--domain", DOMAIN, "--bus", &url, "--data", data.to_str().unwrap(), "--listen", at];
    let args = [&args[..], &["--listen-edges", at, "--owner", "nobody@example.com"]].concat();
    let output = home.run(&args);
    assert!(output.status.code() == Some(4) && text(&output.stderr).contains("there is no account"), "{output:?}");
}
