//! The output for new users: `up` on a terminal, `status`, `doctor`, and an `up` of another user.

use std::{
    net::TcpListener,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::harness::{Home, Origin, Program, text, wait_until};

/// The check of this name.
fn check<'a>(checks: &'a Value, name: &str) -> &'a Value {
    checks.as_array().unwrap().iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("{name}: {checks}"))
}

#[test]
fn status_shows_the_server_its_reachability_and_the_next_step() {
    let home = Home::new();
    let nothing = home.run(&["status", "-o", "json"]);
    assert_eq!(nothing.status.code(), Some(6), "nothing responds");
    let up = home.up(&[]);
    let new = home.json(&["status"]);
    assert!(new["next"][0].as_str().unwrap().contains("sallyport login"), "{new}");
    home.account();
    let origin = Origin::start("origin");
    let (id, _) = home.socket(&[]);
    let _connector = home.connector(&id, origin.address, &[]);
    home.socket(&[]);

    let seen = home.json(&["status"]);
    let program = |role: &str, pid: u32| {
        let programs = seen["programs"].as_array().unwrap();
        programs.iter().find(|one| one["pid"] == pid && one["role"] == role).unwrap_or_else(|| panic!("{seen}")).clone()
    };
    let server = program("up", up.program.pid());
    assert_eq!(server["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(server["data"], home.data().canonicalize().unwrap().to_str().unwrap());
    assert_eq!(server["listen"][0], format!("127.0.0.1:{}", up.port));
    program("connect", _connector.pid());
    assert_eq!((&seen["api"]["state"], &seen["edge"]["answers"]), (&"ready".into(), &true.into()));
    assert!(seen["certificate"]["root_fingerprint"].as_str().unwrap().starts_with("sha256:"), "{seen}");
    let names = seen["names"].as_array().unwrap();
    assert!(names.len() == 4 && names.iter().all(|name| name["is_here"] == true), "{seen}");
    assert_eq!(seen["login"], serde_json::json!({"state": "logged-in", "email": "test@example.com"}));
    assert_eq!((&seen["sockets"]["total"], &seen["sockets"]["up"]), (&2.into(), &1.into()));
    assert_eq!((&seen["sockets"]["tunnels_up"], &seen["sockets"]["failing"]), (&1.into(), &0.into()));
    let people = text(&home.run(&["status"]).stdout);
    assert!(people.contains("2, of which 1 have a tunnel that is up") && people.contains("(this machine)"), "{people}");

    assert!(up.program.stop().success());
    let gone = home.run(&["status", "-o", "json"]);
    assert_eq!(gone.status.code(), Some(6));
    let gone: Value = serde_json::from_slice(&gone.stdout).unwrap();
    assert_eq!(gone["api"]["state"], "unreachable");
}

#[test]
fn doctor_finds_faults_and_gives_advice() {
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let well = home.json(&["doctor"]);
    for name in ["data", "lock", "port", "clock", "certificate", "root", "names", "API", "login", "edge", "UDP"] {
        assert_eq!(check(&well, name)["state"], "ok", "{name}: {well}");
    }
    // In the order in which to mend: what others follow from comes first.
    let order: Vec<_> = well.as_array().unwrap().iter().map(|check| check["name"].as_str().unwrap()).collect();
    let at = |name: &str| order.iter().position(|one| *one == name).unwrap();
    assert!(at("data") < at("port") && at("port") < at("clock") && at("clock") < at("API") && at("API") < at("edge"));

    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(home.data(), open).unwrap();
    let output = home.run(&["doctor", "-o", "json"]);
    assert_eq!(output.status.code(), Some(1));
    let ill: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(check(&ill, "data")["state"], "fail", "{ill}");
    assert!(check(&ill, "data")["next"].as_str().unwrap().starts_with("chmod 700 "), "{ill}");
    std::fs::set_permissions(home.data(), std::fs::Permissions::from_mode(0o700)).unwrap();

    assert!(home.run(&["logout"]).status.success());
    assert_eq!(check(&home.json(&["doctor"]), "login")["state"], "warn", "that is no failure");
    assert!(up.program.stop().success());
    let output = home.run(&["doctor", "--data", home.data().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let printed = text(&output.stdout);
    assert!(printed.contains("fail  API") && printed.contains("sallyport up"), "{printed}");
}

#[test]
fn a_clock_that_is_wrong_is_found() {
    let Some(home) = Home::with_clock() else { return };
    let up = home.up(&[]);
    // The server goes on by its own clock, an hour behind.
    let mut doctor = home.command(&["doctor", "-o", "json"]);
    doctor.env("SALLYPORT_CA", &up.ca).env("FAKETIME", "+1h").env_remove("FAKETIME_TIMESTAMP_FILE");
    let output = doctor.output().unwrap();
    let checks: Value = serde_json::from_slice(&output.stdout).unwrap();
    let clock = check(&checks, "clock");
    assert_eq!(clock["state"], "fail", "{checks}");
    assert!(clock["found"].as_str().unwrap().contains("ahead of that of the API"), "{checks}");
    assert!(clock["next"].as_str().unwrap().contains("NTP"), "{checks}");
}

#[test]
fn up_on_a_terminal_shows_its_address_and_the_next_step_and_no_log() {
    let home = Home::new();
    let (data, script) = (home.data(), Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/clients/terminal.py"));
    let on_terminal = |word: &str, more: &[&str]| {
        let mut python = home.program("python3");
        python.arg(&script).args(["stop", word, env!("CARGO_BIN_EXE_sallyport"), "up"]);
        python.args(["--listen", "127.0.0.1:0", "--listen-http", "127.0.0.1:0", "--data", data.to_str().unwrap()]);
        let output = python.args(more).output().unwrap();
        assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
        text(&output.stdout)
    };
    let seen = on_terminal("account create", &[]);
    let lines: Vec<_> = seen.lines().collect();
    assert!(lines[0].starts_with("ready   https://api.localhost:"), "{seen}");
    assert!(lines[1].starts_with("desk    https://desk.localhost:"), "{seen}");
    assert!(lines[2].starts_with("data ") && lines[3].starts_with("root ") && lines[3].contains("ca.pem"), "{seen}");
    assert!(lines[4].starts_with("next, in another terminal: sallyport account create"), "{seen}");
    assert!(seen.contains("stopping: ") && seen.contains("\nstopped\n") && seen.ends_with("exit 0\n"), "{seen}");
    assert!(!seen.contains("INFO") && !seen.contains("ca_fingerprint"), "{seen}");
    let logged = on_terminal("ca_fingerprint", &["--log-format", "json"]);
    assert!(logged.contains("\"ca_fingerprint\"") && !logged.contains("next, in another terminal"), "{logged}");
}

#[test]
fn a_taken_port_for_redirects_is_reported_in_one_line_with_advice() {
    let home = Home::new();
    // Another program has the port: this test, or an unrelated one.
    let _taken = TcpListener::bind("127.0.0.1:8080").ok();
    let data = home.data();
    let up = Program::start(&mut home.command(&["up", "--listen", "127.0.0.1:0", "--data", data.to_str().unwrap()]));
    let line = up.wait_for("port 8080 is taken");
    assert!(line.contains("--listen-http :PORT") && line.contains("--listen-http none"), "{line}");
    up.wait_for("ready");
}

/// Runs a program for which a process and its own are the only ones on this machine, in a mount namespace whose `/proc`
/// has no others: whatever else runs here is not seen.
const ALONE_WITH: &str = r#"
set -e
proc=$1 seen=$2
shift 2
mkdir "$proc"
for process in "$seen" $$; do
    mkdir "$proc/$process"
    mount --bind "/proc/$process" "$proc/$process"
done
ln -s $$ "$proc/self"
mount --rbind "$proc" /proc
exec "$@"
"#;

#[test]
fn an_up_of_another_user_is_found_by_what_it_leaves_for_all_or_explained() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can act for two users");
        return;
    }
    let (home, other) = (Home::new(), Home::new());
    let run = home.dir.path().join("run");
    for dir in [home.dir.path(), other.dir.path()] {
        std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut up = home.command(&["up", "--listen", "127.0.0.1:0", "--listen-http", "none"]);
    up.args(["--data", home.data().to_str().unwrap()]).env("SALLYPORT_RUN_DIR", &run);
    let up = Program::start(&mut up);
    up.wait_for("ready");
    // Every user may run the program, and only root may read the data directory.
    let program = other.dir.path().join("sallyport");
    std::fs::copy(env!("CARGO_BIN_EXE_sallyport"), &program).unwrap();
    let up_pid = up.pid().to_string();
    let as_nobody = |proc: &str, run: &Path, args: &[&str]| {
        let mut unshare = other.program("unshare");
        unshare.args(["--mount", "sh", "-c", ALONE_WITH, "sh"]).arg(other.dir.path().join(proc)).arg(&up_pid);
        unshare.args(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program).args(args);
        unshare.env("SALLYPORT_RUN_DIR", run).env("HOME", "/nonexistent").env_remove("SALLYPORT_STATE_DIR");
        unshare.env_remove("XDG_CONFIG_HOME").stdin(Stdio::null()).output().unwrap()
    };
    let found = as_nobody("proc-1", &run, &["status", "-o", "json"]);
    let seen: Value = serde_json::from_slice(&found.stdout).unwrap_or_else(|_| panic!("{}", text(&found.stderr)));
    assert!(found.status.success(), "{}", text(&found.stderr));
    assert_eq!(seen["api"]["state"], "ready", "{seen}");
    let server = seen["programs"].as_array().unwrap().iter().find(|one| one["pid"] == up.pid()).unwrap();
    assert_eq!((&server["user"], &server["is_of_other"]), (&"root".into(), &true.into()));
    // One that leaves nothing for others is explained, and how to reach it all the same.
    let explained = as_nobody("proc-2", &home.dir.path().join("none"), &["socket", "ls"]);
    assert_eq!(explained.status.code(), Some(6));
    let printed = text(&explained.stderr);
    assert!(
        printed.contains("`sallyport up` of root runs on this machine") && printed.contains("--ca-fingerprint"),
        "{printed}"
    );
    // What was left for others goes with the process.
    assert!(up.stop().success());
    assert_eq!(std::fs::read_dir(&run).unwrap().count(), 0);
}

#[test]
fn why_a_service_gets_nothing_is_seen_where_people_look() {
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let check = ["--health-check", "http:/healthz", "--health-interval", "1s", "--unhealthy-threshold", "1"];
    let (id, host) = home.socket(&check);
    let dead = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let connector = home.connector(&id, dead, &[]);
    let line = connector.wait_for("\"event\":\"health\"");
    let event: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&event["health"], &event["failure"]["code"]), (&"unwell".into(), &"refused".into()), "{line}");
    let tunnel = home.json(&["tunnel", "ls", &id])[0].clone();
    assert_eq!((&tunnel["healthy"], &tunnel["failure"]["code"]), (&false.into(), &"refused".into()), "{tunnel}");
    let socket = home.json(&["socket", "show", &id]);
    assert_eq!((&socket["origins_failing"], &socket["failure"]["code"]), (&1.into(), &"refused".into()), "{socket}");
    let name = socket["name"].as_str().unwrap();
    let people = |args: &[&str]| {
        let output = home.run(args);
        format!("{}{}", text(&output.stdout), text(&output.stderr))
    };
    let listed = people(&["socket", "ls"]);
    assert!(listed.contains(&format!("{name}: one origin gets nothing: ")) && listed.contains(", since "), "{listed}");
    assert!(people(&["socket", "show", &id]).contains("one origin gets nothing: "));
    let listed = people(&["tunnel", "ls", &id]);
    assert!(listed.contains("unwell") && listed.contains(" gets nothing: "), "{listed}");
    assert_eq!(home.json(&["status"])["sockets"]["failing"], 1);

    // Requests that the edge refuses are shown too, in the live view and in the log of ended flows.
    let refused = up.curl(&host, "/x?key=secret", &[]);
    assert_eq!(refused.status, 503);
    assert!(home.run(&["socket", "edit", &id, "--deny", "127.0.0.0/8"]).status.success());
    assert_eq!(up.curl(&host, "/y?key=secret", &[]).status, 403);
    let line = connector.wait_for("\"refused\":\"denied\"");
    let event: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&event["request"]["status"], &event["request"]["target"]), (&403.into(), &"/y".into()), "{line}");
    let log = wait_until("both have ended", || {
        let log = home.json(&["flow", "log", "--socket", &id]);
        (log.as_array().unwrap().len() >= 2).then_some(log)
    });
    let denied = log.as_array().unwrap().iter().find(|one| one["status"] == 403).unwrap_or_else(|| panic!("{log}"));
    assert_eq!((&denied["verdict"], &denied["path"]), (&"denied".into(), &"/y".into()), "{log}");
}

#[test]
fn the_live_view_shows_failures_and_recoveries() {
    let home = Home::new();
    let _up = home.up(&[]);
    home.account();
    let check =
        ["--health-check", "tcp", "--health-interval", "1s", "--unhealthy-threshold", "1", "--healthy-threshold", "1"];
    let (id, _) = home.socket(&check);
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let port = address.port().to_string();
    let connector = Program::start(&mut home.command(&["tunnel", "connect", &id, &port]));
    let line = connector.wait_for("gets nothing");
    assert!(line.starts_with("note: the service gets nothing since ") && line.contains("nothing listens on"), "{line}");
    let _service = TcpListener::bind(address).unwrap();
    connector.wait_for("note: the service is well again");
}

#[test]
fn the_line_of_a_request_has_the_reason_of_a_failure() {
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let (id, host) = home.socket(&[]);
    let dead = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let connector = Program::start(&mut home.command(&["tunnel", "connect", &id, &dead.port().to_string()]));
    let response = wait_until("the tunnel is there", || {
        Some(up.curl(&host, "/x?y=z", &[])).filter(|response| response.status != 503)
    });
    assert_eq!(response.status, 502);
    let line = connector.wait_for("GET     /x?y=z");
    assert!(line.contains(" 502 ") && line.ends_with("nothing listens at the service's address"), "{line}");
}

#[test]
fn install_adds_and_removes_the_program_with_its_completion_and_page() {
    let home = Home::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let script = |args: &[&str]| {
        let mut command = Command::new(root.join("scripts/install"));
        command.args(args).current_dir(home.dir.path()).output().unwrap()
    };
    let stage = home.dir.path().join("stage");
    let to = ["--prefix", "/opt/sally", "--destdir", stage.to_str().unwrap(), "--systemd"];
    let output = script(&[&to[..], &["--binary", env!("CARGO_BIN_EXE_sallyport")]].concat());
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    let program = stage.join("opt/sally/bin/sallyport");
    for companion in ["sallyport-lab", "sallyport-kube"] {
        assert!(stage.join("opt/sally/bin").join(companion).exists(), "it is beside the one that was given");
    }
    let version = Command::new(&program).arg("version").output().unwrap();
    assert!(text(&version.stdout).contains(env!("CARGO_PKG_VERSION")));
    let share = stage.join("opt/sally/share");
    for (page, part) in [
        ("sallyport", "sallyport\\-doctor(1)"),
        ("sallyport-socket-create", "\\-\\-name"),
        ("sallyport-lab-up", ""),
        ("sallyport-kube", ""),
    ] {
        let printed = std::fs::read_to_string(share.join(format!("man/man1/{page}.1"))).unwrap();
        let title = page.to_uppercase();
        assert!(printed.contains(&format!(".TH {title} 1 \"\" \"sallyport ")) && printed.contains(part), "{printed}");
    }
    for file in [
        "bash-completion/completions/sallyport-lab",
        "zsh/site-functions/_sallyport-kube",
        "bash-completion/completions/sallyport",
        "zsh/site-functions/_sallyport",
        "fish/vendor_completions.d/sallyport.fish",
    ] {
        assert!(std::fs::read_to_string(share.join(file)).unwrap().contains("sallyport"), "{file}");
    }
    let unit = std::fs::read_to_string(stage.join("etc/systemd/system/sallyport.service")).unwrap();
    assert!(unit.contains("ExecStart=/opt/sally/bin/sallyport up "), "{unit}");
    assert!(stage.join("etc/systemd/system/sallyport.socket").exists());
    // Once more over itself, as an upgrade.
    let output = script(&[&to[..], &["--binary", env!("CARGO_BIN_EXE_sallyport")]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    // Without --systemd, units would be left that start a program which is gone.
    let output = script(&[&["--uninstall"], &to[..4]].concat());
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("add --systemd"), "{}", text(&output.stderr));
    assert!(program.exists());
    std::fs::write(stage.join("opt/sally/bin/other"), "").unwrap();
    let output = script(&[&["--uninstall"], &to[..]].concat());
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    let left = Command::new("find").arg(&stage).args(["-type", "f"]).output().unwrap();
    assert_eq!(text(&left.stdout).trim(), stage.join("opt/sally/bin/other").to_str().unwrap());
    for (bad, says) in [
        (&["--prefix", "relative"][..], "absolute"),
        (&["--nonsense"], "is no option"),
        (&["--binary"], "needs a value"),
        (&["--prefix", "/opt/a b", "--systemd"], "systemd reads /opt/a b in another way"),
        (&["--prefix", "/opt/a&b|c", "--systemd"], "a folder of letters and digits"),
    ] {
        let output = script(bad);
        assert_eq!(output.status.code(), Some(2), "{bad:?}");
        assert!(text(&output.stderr).contains(says), "{bad:?}: {}", text(&output.stderr));
    }
    let output = script(&["--prefix", "/opt/sally", "--destdir", stage.to_str().unwrap(), "--binary", "/no/such/file"]);
    assert_eq!(output.status.code(), Some(1));
    // However the folder of packages is spelled, its units are where packages have them.
    let to = ["--prefix", "//opt/../usr/.", "--destdir", stage.to_str().unwrap(), "--systemd"];
    let output = script(&[&to[..], &["--binary", env!("CARGO_BIN_EXE_sallyport")]].concat());
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    let unit = std::fs::read_to_string(stage.join("usr/lib/systemd/system/sallyport.service")).unwrap();
    assert!(unit.contains("ExecStart=/usr/bin/sallyport up "), "{unit}");
}
