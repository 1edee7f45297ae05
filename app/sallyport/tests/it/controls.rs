//! Several controls over one PostgreSQL and one NATS, with an edge that changes to another control when its own is
//! gone.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::Command,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    database::createdb,
    fleet::{Bus, DOMAIN, EdgeHere},
    harness::{Home, HttpResponse, Origin, PASSWORD, Program, curl, text, wait_until},
    postgres,
    ssh::{host_in, make_key, to},
    tcp::free_port,
};

/// A control over a database, on fixed ports.
pub(crate) struct Control {
    pub(crate) program: Option<Program>,
    pub(crate) ports: (u16, u16),
    pub(crate) data: PathBuf,
    args: Vec<String>,
}

impl Control {
    fn new(home: &Home, name: &str, database: &str, bus: &Bus, more: &[&str]) -> Self {
        let (ports, data) = ((free_port(), free_port()), home.dir.path().join(name));
        let (listen, edges) = (format!("127.0.0.1:{}", ports.0), format!("127.0.0.1:{}", ports.1));
        let (bus, path) = (bus.url(), data.to_str().unwrap().to_owned());
        let fixed = ["control", "--domain", DOMAIN, "--database", database, "--bus", &bus, "--listen", &listen];
        let rest = ["--listen-edges", &edges, "--data", &path, "--sign-up", "open"];
        let args = fixed.iter().chain(&rest).chain(more).map(|arg| (*arg).to_owned()).collect();
        Self { program: None, ports, data, args }
    }

    fn start(home: &Home, name: &str, database: &str, bus: &Bus, more: &[&str]) -> Self {
        let mut control = Self::new(home, name, database, bus, more);
        control.resume(home);
        control
    }

    fn command(&self, home: &Home) -> Command {
        home.command(&self.args.iter().map(String::as_str).collect::<Vec<_>>())
    }

    pub(crate) fn resume(&mut self, home: &Home) {
        let program = Program::start(&mut self.command(home));
        program.wait_for(" ready ");
        self.program = Some(program);
    }

    /// Kills the control by SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.program = None;
    }

    pub(crate) fn api(&self) -> String {
        format!("https://api.{DOMAIN}:{}", self.ports.0)
    }

    pub(crate) fn get(&self, path: &str, more: &[&str]) -> HttpResponse {
        curl(&self.data.join("ca.pem"), &format!("{}{path}", self.api()), more)
    }

    fn post(&self, path: &str, body: &Value) -> HttpResponse {
        self.get(path, &["--json", &body.to_string()])
    }
}

/// A command of this home at this API.
pub(crate) fn at(home: &Home, api: &str, ca: &std::path::Path, args: &[&str]) -> Value {
    home.json(&[args, &["--api", api, "--ca", ca.to_str().unwrap()]].concat())
}

pub(crate) fn log_in(home: &Home, api: &str, ca: &std::path::Path) {
    let ca = ca.to_str().unwrap();
    let output = home.run(&["login", "--email", "test@example.com", "--api", api, "--ca", ca]);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// Two controls and an account.
fn two_controls(home: &Home, database: &str, bus: &Bus) -> (Control, Control) {
    two_controls_with(home, database, bus, &[])
}

/// Two controls with these further options, and an account.
pub(crate) fn two_controls_with(home: &Home, database: &str, bus: &Bus, more: &[&str]) -> (Control, Control) {
    let one = Control::start(home, "one", database, bus, more);
    let account = json!({"name": "Test", "email": "test@example.com", "password": PASSWORD});
    assert_eq!(one.post("/v1/accounts", &account).status, 201);
    let key = one.data.join("installation.key");
    let two = Control::start(home, "two", database, bus, &[&["--key-file", key.to_str().unwrap()], more].concat());
    (one, two)
}

/// An edge that joins by this control.
fn join(home: &Home, control: &Control, name: &str, more: &[&str]) -> EdgeHere {
    join_with(home, control, EdgeHere::new(home, name, "127.0.0.1"), name, more)
}

/// Lets an edge join by this control, under this name.
pub(crate) fn join_with(home: &Home, control: &Control, edge: EdgeHere, name: &str, more: &[&str]) -> EdgeHere {
    join_in(home, control, edge, (name, "eu"), more)
}

/// Lets an edge join by this control, under this name, in this region.
pub(crate) fn join_in(
    home: &Home,
    control: &Control,
    mut edge: EdgeHere,
    (name, region): (&str, &str),
    more: &[&str],
) -> EdgeHere {
    let (api, ca) = (control.api(), control.data.join("ca.pem"));
    let token = wait_until("a token that names both controls", || {
        let made = at(home, &api, &ca, &["edge", "token", "create", "--name", name]);
        let token = made["token"].as_str().unwrap().to_owned();
        token.contains(',').then_some(token)
    });
    edge.start(home, &[&["--join", &token, "--region", region], more].concat());
    edge
}

#[test]
fn keys_are_in_the_database_and_open_with_one_that_each_control_is_given() {
    let Some(server) = postgres::server() else { return };
    let home = Home::new();
    let Some(bus) = Bus::start(&home, "") else { return };
    let database = createdb(server, "keys_of_controls");
    let one = Control::start(&home, "one", &database, &bus, &[]);
    let printed = one.program.as_ref().unwrap().output();
    assert!(printed.contains("sealed with a key that was made now") && !printed.contains("spk_"), "{printed}");
    assert!(!printed.contains("stream not found"), "{printed}");
    let key = one.data.join("installation.key");
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    for file in ["token.key", "ca.key", "nodes", ".keys", "ssh_host_ed25519_key"] {
        assert!(!one.data.join(file).exists(), "{file} is in the database");
    }

    let refused = |control: &Control, env: &[(&str, &str)], code: i32, expected: &str| {
        let output = control.command(&home).envs(env.iter().copied()).output().unwrap();
        let printed = text(&output.stderr);
        assert!(output.status.code() == Some(code) && printed.contains(expected), "{:?} {printed}", output.status);
        assert!(!printed.contains("spk_A") && !control.data.join(".keys").exists(), "{printed}");
    };
    let two = Control::new(&home, "two", &database, &bus, &[]);
    refused(&two, &[], 5, "are sealed, and there is no key");
    assert!(!two.data.join("installation.key").exists());
    let other = format!("spk_{}", "A".repeat(43));
    refused(&two, &[("SALLYPORT_KEY", &other)], 5, "this key does not open the keys of the installation");
    refused(&two, &[("SALLYPORT_KEY", "nonsense")], 2, "holds no key of an installation");
    let loose = home.dir.path().join("loose");
    fs::copy(&key, &loose).unwrap();
    fs::set_permissions(&loose, Permissions::from_mode(0o644)).unwrap();
    let loose = Control::new(&home, "loose_one", &database, &bus, &["--key-file", loose.to_str().unwrap()]);
    refused(&loose, &[], 1, "can be read by others (mode 0644)");
    fs::create_dir_all(&two.data).unwrap();
    fs::write(two.data.join("token.key"), format!("{}\n", "A".repeat(43))).unwrap();
    let secret = fs::read_to_string(&key).unwrap();
    refused(&two, &[("SALLYPORT_KEY", secret.trim())], 5, "has keys of another installation");
    fs::remove_file(two.data.join("token.key")).unwrap();
    let second = Program::start(two.command(&home).env("SALLYPORT_KEY", secret.trim()));
    second.wait_for(" ready ");
    assert_eq!(fs::read(one.data.join("ca.pem")).unwrap(), fs::read(two.data.join("ca.pem")).unwrap());
    assert!(!two.data.join("installation.key").exists(), "what came from elsewhere stays there");
    drop(second);

    // A new key; the former one opens nothing.
    let new = home.dir.path().join("new.key");
    let (new_text, key_text) = (new.to_str().unwrap(), key.to_str().unwrap());
    home.json(&["rekey", new_text, "--database", &database, "--key-file", key_text]);
    refused(&two, &[("SALLYPORT_KEY", secret.trim())], 5, "this key does not open");
    let again = home.run(&["rekey", new_text, "--database", &database, "--key-file", key_text]);
    assert_eq!(again.status.code(), Some(5), "{}", text(&again.stderr));
    let second = Program::start(two.command(&home).env("SALLYPORT_KEY_FILE", &new));
    second.wait_for(" ready ");
}

#[test]
fn a_control_may_be_killed_in_the_middle_of_calls_and_of_a_login() {
    let Some(server) = postgres::server() else { return };
    let home = Home::new();
    let Some(bus) = Bus::start(&home, "") else { return };
    let (mut one, mut two) = two_controls(&home, &createdb(server, "killed_controls"), &bus);
    let ca = one.data.join("ca.pem");
    log_in(&home, &one.api(), &ca);
    let mut edge = join(&home, &one, "eu-1", &[]);
    log_in(&home, &edge.api(), &ca);
    let token = at(&home, &edge.api(), &ca, &["token", "create", "--name", "load", "--scope", "sockets:read"]);
    let bearer = format!("Authorization: Bearer {}", token["token"].as_str().unwrap());

    // A program begins to log in at the first control; a person would answer at the second.
    let socket = at(
        &home,
        &edge.api(),
        &ca,
        &["socket", "create", "--name", "db", "--type", "tls", "--allowed-email-domains", "example.com", "--cloudauth"],
    );
    let host = socket["dns_name"].as_str().unwrap().to_owned();
    let begun = one.post("/v1/client/device", &json!({ "host": host }));
    let begun: Value = serde_json::from_str(&begun.body).unwrap();

    let (is_over, asked, failed) = (AtomicBool::new(false), AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                let url = format!("{}/v1/sockets", edge.api());
                let response = curl(&ca, &url, &["-H", &bearer]);
                asked.fetch_add(1, Ordering::SeqCst);
                if response.status != 200 {
                    println!("{} {}", response.status, response.body);
                    failed.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        let calls = |count: u32| {
            let until = asked.load(Ordering::SeqCst) + count;
            wait_until("calls", || (asked.load(Ordering::SeqCst) >= until).then_some(()));
        };
        calls(10);
        one.kill();
        calls(20);
        let poll = two.post("/v1/client/device/token", &json!({ "device_code": begun["device_code"] }));
        assert!(poll.status == 400 && poll.body.contains("authorization-pending"), "{}", poll.body);
        one.resume(&home);
        // The edge knows it again before the other one ends.
        wait_until("both are reported", || {
            let shown = fs::read_to_string(edge.data.join("edge.json")).unwrap();
            let shown: Value = serde_json::from_str(&shown).unwrap();
            (shown["world"]["controls"].as_array().unwrap().len() == 2).then_some(())
        });
        two.kill();
        calls(20);
        let poll = one.post("/v1/client/device/token", &json!({ "device_code": begun["device_code"] }));
        assert!(poll.status == 400 && poll.body.contains("authorization-pending"), "{}", poll.body);
        is_over.store(true, Ordering::SeqCst);
    });
    let (asked, failed) = (asked.into_inner(), failed.into_inner());
    println!("{failed} of {asked} calls failed while each control was killed once");
    assert!(failed <= 2, "{failed} of {asked} calls failed");
    // The login that was made at the edge is still valid.
    assert_eq!(at(&home, &edge.api(), &ca, &["socket", "ls"]).as_array().unwrap().len(), 1);
    // A control that ends in order is not listed any more.
    two.resume(&home);
    assert!(two.program.take().unwrap().stop().success());
    wait_until("the one that has ended is forgotten", || {
        let made = at(&home, &one.api(), &ca, &["edge", "token", "create"]);
        (!made["token"].as_str().unwrap().contains(',')).then_some(())
    });
    edge.kill();
}

#[test]
fn stock_ssh_clients_come_to_an_edge_and_outlive_the_control() {
    let Some(server) = postgres::server() else { return };
    let home = Home::new();
    let Some(bus) = Bus::start(&home, "") else { return };
    let (mut one, two) = two_controls(&home, &createdb(server, "ssh_at_edges"), &bus);
    let ca = one.data.join("ca.pem");
    log_in(&home, &one.api(), &ca);
    log_in(&home, &two.api(), &ca);
    let ssh_port = free_port();
    let edge = join(&home, &one, "eu-1", &["--listen-ssh", &format!("127.0.0.1:{ssh_port}")]);
    let key = make_key(&home, "key");
    let account = at(&home, &one.api(), &ca, &["account", "show"]);
    let user = account["ssh_user"].as_str().unwrap();
    at(&home, &one.api(), &ca, &["ssh-key", "add", &format!("{key}.pub")]);
    let socket = at(&home, &one.api(), &ca, &["socket", "create", "--name", "s", "--type", "http"]);
    let host_keys = socket["ssh"]["known_hosts"].as_array().unwrap();
    // The keys are those of the API, at every port of the edge.
    let known: Vec<String> = host_keys
        .iter()
        .flat_map(|line| {
            let key = line.as_str().unwrap().split_once(' ').unwrap().1;
            [format!("[localhost]:{ssh_port} {key}"), format!("[localhost]:{} {key}", edge.port)]
        })
        .collect();
    let known_hosts = home.dir.path().join("known_hosts");
    fs::write(&known_hosts, known.join("\n") + "\n").unwrap();

    let ssh = |port: u16, forward: &str| {
        let mut command = Command::new("ssh");
        command.args(["-F", "none", "-p", &port.to_string(), "-l", user, "-i", &key, "-R", forward]);
        for option in [
            "IdentitiesOnly=yes",
            "StrictHostKeyChecking=yes",
            "GlobalKnownHostsFile=none",
            "ExitOnForwardFailure=yes",
            &format!("UserKnownHostsFile={}", known_hosts.display()),
        ] {
            command.args(["-o", option]);
        }
        command.env_remove("SSH_AUTH_SOCK").env("LC_ALL", "C").arg("localhost");
        command.stdin(std::process::Stdio::null());
        command
    };
    let origin = Origin::start("origin");
    let forward = to("80", origin.address);
    let first = wait_until("a login by the key, which the edge has received", || {
        let program = Program::start(&mut ssh(edge.port, &forward));
        let shown = wait_until("ssh prints something", || {
            let printed = program.output();
            (printed.contains("is open") || printed.contains("Permission denied")).then_some(printed)
        });
        shown.contains("is open").then_some(program)
    });
    let host = host_in(&first.wait_for("is open"));
    let get = |host: &str| curl(&ca, &format!("https://{host}:{}/hello", edge.port), &[]);
    wait_until("the way to the origin", || (get(&host).status == 200).then_some(()));
    // At its own port too, and by the name of a socket.
    let label = socket["dns_name"].as_str().unwrap().split('.').next().unwrap().to_owned();
    let second = Program::start(&mut ssh(ssh_port, &to(&format!("{label}:80"), origin.address)));
    second.wait_for("is open");
    wait_until("the socket's origin", || (get(socket["dns_name"].as_str().unwrap()).status == 200).then_some(()));

    // A control that starts, and one that is killed, do not affect them.
    one.kill();
    one.resume(&home);
    thread::sleep(Duration::from_secs(1));
    assert_eq!(get(&host).status, 200);
    one.kill();
    assert_eq!(get(&host).status, 200);
    // It ends while its control is away, and its socket is removed all the same.
    drop(first);
    wait_until("the temporary socket to be removed", || (get(&host).status == 404).then_some(()));
    let left = at(&home, &two.api(), &ca, &["socket", "ls"]);
    assert_eq!(left.as_array().unwrap().len(), 1, "{left}");
    drop(second);
}
