//! The store in PostgreSQL, moving there, and backups.

use std::{os::unix::fs::PermissionsExt as _, process::Command};

use crate::{
    harness::{Home, Program, Up, text},
    postgres::{self, Server},
    tcp::free_port,
};

/// On a port of its own, each `up` is another API.
fn log_in(home: &Home, up: &Up) {
    let (api, ca) = (format!("https://api.localhost:{}", up.port), up.ca.to_str().unwrap());
    let output = home.run(&["login", "--email", "test@example.com", "--api", &api, "--ca", ca]);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// A new database of this name: its address.
pub(crate) fn createdb(server: &Server, name: &str) -> String {
    let mut psql = Command::new("psql");
    psql.args([&format!("{}/postgres", server.base()), "-q", "-c"]);
    assert!(psql.arg(format!("CREATE DATABASE {name} TEMPLATE template0")).status().unwrap().success());
    format!("{}/{name}", server.base())
}

#[test]
fn the_data_directory_moves_to_postgresql_and_works_there() {
    let Some(server) = postgres::server() else { return };
    let home = Home::new();
    let address = createdb(server, "moves");
    let data = home.data();
    let data = data.to_str().unwrap();
    let migrate = |more: &[&str]| home.run(&[&["migrate", "--data", data, "--to", &address][..], more].concat());

    let up = home.up(&[]);
    home.account();
    let (id, name) = home.socket(&[]);
    let running = migrate(&[]);
    assert_eq!(running.status.code(), Some(1));
    assert!(text(&running.stderr).contains("in use by process"), "{}", text(&running.stderr));
    assert!(up.program.stop().success());

    let dry = migrate(&["--dry-run"]);
    assert!(dry.status.success() && text(&dry.stdout).contains("would move"), "{}", text(&dry.stdout));
    let done = home.json(&["migrate", "--data", data, "--to", &address]);
    let sockets = done["tables"].as_array().unwrap().iter().find(|table| table["name"] == "sockets").unwrap();
    assert_eq!((&sockets["rows"], &done["dry_run"]), (&1.into(), &false.into()));
    let again = migrate(&[]);
    assert_eq!(again.status.code(), Some(5));
    assert!(text(&again.stderr).contains("is not empty"), "{}", text(&again.stderr));

    let file = home.dir.path().join("database");
    std::fs::write(&file, format!("{address}\n")).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::rename(home.data().join("sallyport.db"), home.dir.path().join("old.db")).unwrap();
    let up = home.up(&["--database-file", file.to_str().unwrap()]);
    log_in(&home, &up);
    let listed = home.json(&["socket", "ls"]);
    assert_eq!((&listed[0]["id"], &listed[0]["dns_name"]), (&id.into(), &name.as_str().into()));
    home.socket(&[]);
    assert!(!home.data().join("sallyport.db").exists());
    assert_eq!(up.curl("api.localhost", "/readyz", &[]).status, 200);

    // A second process over the database needs the keys of the first.
    let other = home.dir.path().join("other");
    let (other, kept) = (other.to_str().unwrap(), home.dir.path().join("kept"));
    std::fs::create_dir(other).unwrap();
    let start = ["up", "--data", other, "--listen", "127.0.0.1:0", "--listen-http", "none", "--database", &address];
    let stranger = home.run(&start);
    assert_eq!(stranger.status.code(), Some(5), "{}", text(&stranger.stderr));
    assert!(text(&stranger.stderr).contains("sallyport backup KEYS"), "{}", text(&stranger.stderr));
    home.json(&["backup", kept.to_str().unwrap(), "--data", data]);
    home.json(&["restore", kept.to_str().unwrap(), "--data", other]);
    let second = Program::start(&mut home.command(&start));
    second.wait_for("ready");
    assert!(second.stop().success() && up.program.stop().success());
}

#[test]
fn an_unusable_database_is_reported_without_its_password() {
    let home = Home::new();
    let data = home.data();
    std::fs::create_dir(&data).unwrap();
    let nobody = format!("127.0.0.1:{}", free_port());
    let file = home.dir.path().join("loose");
    std::fs::write(&file, "postgres://x@localhost/y").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let unreachable = format!("postgres://ann:geheim@{nobody}/sally");
    let both = ["--database", "postgres://x@localhost/y", "--database-file", file.to_str().unwrap()];
    for (args, code, printed) in [
        (&["--database", "mysql://ann:geheim@localhost/x"][..], 2, "postgres://USER@HOST"),
        (&["--database", "postgres://ann:geheim@localhost:99999/x"], 2, "cannot be read"),
        (&["--database", &unreachable], 6, "cannot be reached"),
        (&["--database-file", file.to_str().unwrap()], 1, "can be read by others"),
        (&both, 2, "two databases"),
    ] {
        let all = [&["up", "--data", data.to_str().unwrap(), "--listen", "127.0.0.1:0", "--listen-http", "none"], args];
        let output = home.run(&all.concat());
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        assert!(stderr.contains(printed) && !stderr.contains("geheim") && !stderr.contains("panicked"), "{stderr}");
    }
    let nothing = home.run(&["migrate", "--data", "/nonexistent", "--to", "postgres://x@localhost/y"]);
    assert_eq!(nothing.status.code(), Some(4), "{}", text(&nothing.stderr));
    let empty = home.run(&["migrate", "--data", data.to_str().unwrap(), "--to", "postgres://x@localhost/y"]);
    assert_eq!(empty.status.code(), Some(4), "{}", text(&empty.stderr));
}

#[test]
fn a_backup_of_a_running_up_is_restored_into_a_fresh_one() {
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let (id, name) = home.socket(&[]);
    let (data, kept) = (home.data(), home.dir.path().join("kept"));
    let (data, kept_text) = (data.to_str().unwrap(), kept.to_str().unwrap());
    let files = home.json(&["backup", kept_text, "--data", data]);
    for kept in ["token.key", "sallyport.db", "audit"] {
        assert!(files["files"].as_array().unwrap().contains(&kept.into()), "{files}");
    }
    // The log is in the backup, and is verified there.
    let before = home.json(&["audit", "verify", "--data", kept_text]);
    assert!(before["is_good"] == true && before["events"].as_u64().unwrap() > 0, "{before}");
    assert_eq!(std::fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(std::fs::metadata(kept.join("ca.key")).unwrap().permissions().mode() & 0o777, 0o600);
    let again = home.run(&["backup", kept_text, "--data", data]);
    assert_eq!(again.status.code(), Some(5), "{}", text(&again.stderr));
    let running = home.run(&["restore", kept_text, "--data", data]);
    assert_eq!(running.status.code(), Some(1), "{}", text(&running.stderr));
    home.socket(&[]);
    assert!(up.program.stop().success());
    let used = home.run(&["restore", kept_text, "--data", data]);
    assert_eq!(used.status.code(), Some(5), "{}", text(&used.stderr));

    std::fs::rename(home.data(), home.dir.path().join("lost")).unwrap();
    let restored = home.run(&["restore", kept_text, "--data", data]);
    assert!(restored.status.success(), "{}", text(&restored.stderr));
    let events = format!("the audit log has {} events", before["events"]);
    assert!(text(&restored.stderr).contains(&events), "{}", text(&restored.stderr));
    let up = home.up(&[]);
    log_in(&home, &up);
    let after = home.json(&["audit", "verify"]);
    assert!(after["is_good"] == true && after["gaps"] == before["gaps"], "{after}");
    assert!(after["events"].as_u64() > before["events"].as_u64(), "the login is on record behind them: {after}");
    let created = home.run(&["audit", "--kind", "admin", "--limit", "1000", "-o", "json"]);
    assert!(text(&created.stdout).contains("socket.create"), "{}", text(&created.stdout));
    let listed = home.json(&["socket", "ls"]);
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["id"]), (1, &id.into()), "{listed}");
    assert_eq!(listed[0]["dns_name"], name.as_str());
    assert!(up.program.stop().success());

    std::fs::write(kept.join("sallyport.db"), "no database at all").unwrap();
    let elsewhere = home.dir.path().join("elsewhere");
    let broken = home.run(&["restore", kept_text, "--data", elsewhere.to_str().unwrap()]);
    assert_eq!(broken.status.code(), Some(1), "{}", text(&broken.stderr));
    assert!(!elsewhere.exists(), "nothing was begun");
    // Without the log if not wanted, and never over another log.
    let lean = home.dir.path().join("lean");
    let files = home.json(&["backup", lean.to_str().unwrap(), "--data", data, "--without-audit"]);
    assert!(!files["files"].as_array().unwrap().contains(&"audit".into()) && !lean.join("audit").exists(), "{files}");
    std::fs::create_dir_all(elsewhere.join("audit")).unwrap();
    std::fs::write(elsewhere.join("audit/head"), "x").unwrap();
    let whole = home.dir.path().join("whole");
    home.json(&["backup", whole.to_str().unwrap(), "--data", data]);
    let over = home.run(&["restore", whole.to_str().unwrap(), "--data", elsewhere.to_str().unwrap()]);
    assert_eq!(over.status.code(), Some(5), "{}", text(&over.stderr));
    assert_eq!(home.run(&["restore", "/nonexistent", "--data", data]).status.code(), Some(4));
}
