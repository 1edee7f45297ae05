//! What can be seen from outside: metrics under the names that the pages give them, one id a request.

use std::process::Command;

use serde_json::Value;

use crate::harness::{Home, Program, text, wait_until};

#[test]
fn metrics_have_the_names_that_their_page_gives_them() {
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    assert_eq!(up.curl("nobody-nowhere-0000.localhost", "/", &[]).status, 404);
    let shown = up.curl("api.localhost", "/metrics", &[]).body;
    assert!(!shown.contains("sallyport_sallyport"), "{shown}");
    let page = include_str!("../../../../docs/metrics.md");
    let names = page.lines().filter(|line| line.starts_with("| `sallyport_"));
    let names: Vec<&str> =
        names.flat_map(|line| line.split('`')).filter(|part| part.starts_with("sallyport_")).collect();
    assert!(names.len() > 10, "the page has a table of names: {names:?}");
    // A family shows up with its first label: nothing of these kinds has happened here.
    let not_yet = [
        "sallyport_edge_handshakes_failed_total",
        "sallyport_edge_http2_connections_failed_total",
        "sallyport_edge_http2_streams_reset_total",
        "sallyport_edge_carriers_total",
        "sallyport_edge_flows_total",
        "sallyport_edge_direct_dials_total",
        "sallyport_edge_region_flows_total",
        "sallyport_edge_identity_total",
        "sallyport_edge_datagrams_dropped_total",
        "sallyport_edge_origins_healthy",
        "sallyport_edge_origin_health_changes_total",
        "sallyport_person_logins_total",
        "sallyport_person_links_total",
    ];
    // And there is no bus on one machine.
    let of_many = |name: &str| {
        ["bus", "directory", "config", "mesh", "audit_stream"]
            .iter()
            .any(|part| name.starts_with(&format!("sallyport_{part}_")))
    };
    for name in names.into_iter().filter(|name| !not_yet.contains(name) && !of_many(name)) {
        let is_shown = shown.lines().any(|line| line.starts_with(name));
        assert!(is_shown, "{name} is not among the metrics:\n{shown}");
    }
}

#[test]
fn an_answer_of_the_api_has_the_id_of_the_access_log_and_never_the_clients_nor_a_query() {
    let home = Home::new();
    let up = home.up(&["--log-format", "json"]);
    let answer = up.curl("api.localhost", "/v1/account?key=secret", &["-H", "X-Request-Id: chosen-by-the-client"]);
    let id = answer.header("x-request-id").expect("an id").to_owned();
    assert_ne!(id, "chosen-by-the-client");
    let problem: Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(problem["request_id"], id.as_str());
    up.program.wait_for(&format!("\"id\":\"{id}\""));
    let log = up.program.output();
    assert!(!log.contains("chosen-by-the-client") && !log.contains("secret"), "{log}");
    assert!(log.contains("\"path\":\"/v1/account\""), "{log}");
}

#[test]
fn readiness_tells_of_a_database_that_fails_and_of_its_return() {
    let home = Home::new();
    let up = home.up(&[]);
    let rename = |from: &str, to: &str| {
        let script = "import sqlite3, sys; sqlite3.connect(sys.argv[1], 30).execute(sys.argv[2])";
        let sql = format!("ALTER TABLE {from} RENAME TO {to}");
        let mut python = Command::new("python3");
        python.args(["-c", script, home.data().join("sallyport.db").to_str().unwrap(), &sql]);
        assert!(python.status().unwrap().success());
    };
    assert_eq!(up.curl("api.localhost", "/readyz", &[]).status, 200);
    rename("accounts", "gone");
    let failing = wait_until("the failure to be noticed", || {
        let answer = up.curl("api.localhost", "/readyz", &[]);
        (answer.status == 503).then_some(answer)
    });
    let reason: Value = serde_json::from_str(&failing.body).unwrap_or_else(|e| panic!("{e}: {}", failing.body));
    assert_eq!(reason["ready"], false);
    assert_eq!(reason["reason"], "control cannot use its database", "and nothing of what is inside");
    assert_eq!(up.curl("api.localhost", "/healthz", &[]).status, 200, "the process lives");
    up.program.wait_for("not ready");
    rename("gone", "accounts");
    wait_until("readiness to return", || (up.curl("api.localhost", "/readyz", &[]).status == 200).then_some(()));
}

#[test]
fn a_data_directory_may_have_a_long_path() {
    let home = Home::new();
    let data = home.dir.path().join("d".repeat(150));
    let data = data.to_str().unwrap();
    let start = |more: &[&str]| {
        let args = ["up", "--listen", "127.0.0.1:0", "--listen-http", "none", "--data", data];
        Program::start(&mut home.command(&[&args[..], more].concat()))
    };
    let first = start(&[]);
    first.wait_for("ready");
    let second = start(&["--takeover"]);
    second.wait_for("ready");
    assert!(first.ended().success(), "{}", first.output());
}

#[test]
fn what_a_command_line_lacks_is_named_in_json_too() {
    let home = Home::new();
    let output = home.run(&["connect", "-o", "json"]);
    assert_eq!(output.status.code(), Some(2));
    let error: Value =
        serde_json::from_slice(&output.stderr).unwrap_or_else(|e| panic!("{e}: {}", text(&output.stderr)));
    assert!(error["error"]["message"].as_str().unwrap().contains("--port"), "{error}");
}

#[test]
fn connect_can_be_stopped_while_the_api_says_nothing() {
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    up.program.signal("STOP");
    let connect = Program::start(&mut home.command(&["connect", "--port", "1", "--name", "x", "-v"]));
    connect.wait_for("making a socket");
    connect.signal("INT");
    let status = connect.ended();
    up.program.signal("CONT");
    assert_eq!(status.code(), Some(1), "{}", connect.output());
    connect.wait_for("stopped before the API said");
}
