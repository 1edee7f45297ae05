//! Observability: metrics with their documented names, and one id for each request.

use std::process::Command;

use serde_json::Value;

use crate::{
    harness::{Home, Program, curl, text, wait_until},
    tcp::free_port,
};

#[test]
fn metrics_have_the_names_that_their_page_gives_them() {
    let home = Home::new();
    let up = home.up(&["--listen-dns", &format!("127.0.0.1:{}", free_port())]);
    home.account();
    assert_eq!(up.curl("nobody-nowhere-0000.localhost", "/", &[]).status, 404);
    let shown = up.curl("api.localhost", "/metrics", &[]).body;
    assert!(!shown.contains("sallyport_sallyport"), "{shown}");
    let page = include_str!("../../../../docs/metrics.md");
    let names = documented(page);
    assert!(names.len() > 10, "the page has a table of names: {names:?}");
    // A metric family appears with its first label: nothing of these kinds has happened here.
    let not_yet = [
        "sallyport_edge_handshakes_failed_total",
        "sallyport_edge_http2_connections_failed_total",
        "sallyport_edge_http2_streams_reset_total",
        "sallyport_edge_http3_connections_failed_total",
        "sallyport_edge_http3_requests_reset_total",
        "sallyport_edge_http3_connections_open",
        "sallyport_edge_http3_offered",
        "sallyport_edge_multipath_refused_total",
        "sallyport_edge_quic_retries_total",
        "sallyport_edge_quic_datagrams_routed_total",
        "sallyport_edge_quic_datagrams_dropped_total",
        "sallyport_edge_carriers_total",
        "sallyport_edge_flows_total",
        "sallyport_edge_direct_dials_total",
        "sallyport_edge_region_flows_total",
        "sallyport_dns_steered_total",
        "sallyport_edge_way_probes_total",
        "sallyport_edge_way_minimum_seconds",
        // This edge has no BIRD.
        "sallyport_edge_anycast_prefixes",
        "sallyport_edge_anycast_changes_total",
        "sallyport_edge_anycast_failures_total",
        "sallyport_edge_anycast_permit_refusals_total",
        "sallyport_edge_anycast_flow_edges",
        "sallyport_edge_anycast_bird_up",
        // This edge has no slice of an egress address.
        "sallyport_edge_egress_flows",
        "sallyport_edge_egress_dials_total",
        "sallyport_edge_egress_matches_total",
        "sallyport_edge_egress_refusals_total",
        "sallyport_catchment_rows_total",
        "sallyport_catchment_measurements_total",
        "sallyport_edge_steering_refused_assignments_total",
        "sallyport_steering_refused_reports_total",
        "sallyport_steering_demand_rps",
        "sallyport_steering_shed_rps",
        "sallyport_steering_planned_rps",
        "sallyport_steering_capacity_rps",
        "sallyport_edge_identity_total",
        "sallyport_edge_datagrams_dropped_total",
        "sallyport_edge_origins_healthy",
        "sallyport_edge_origin_health_changes_total",
        "sallyport_person_logins_total",
        "sallyport_person_links_total",
        "sallyport_edge_tunnels_asked_total",
        "sallyport_account_changes_total",
        "sallyport_account_messages_total",
        "sallyport_certificates",
        "sallyport_certificate_orders_total",
        "sallyport_provider_checks_total",
        "sallyport_provider_logouts_total",
    ];
    // A single machine has no bus.
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

/// The names of metrics in the tables of their page.
fn documented(page: &str) -> Vec<&str> {
    let is_name = |part: &&str| part.starts_with("sallyport_") || part.starts_with("process_");
    let rows = page.lines().filter(|line| line.starts_with("| `sallyport_") || line.starts_with("| `process_"));
    rows.flat_map(|line| line.split('`')).filter(is_name).collect()
}

/// Every text under this key, at any depth.
fn texts_of<'a>(value: &'a Value, key: &str, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| match value.as_str() {
            Some(text) if name == key => found.push(text),
            _ => texts_of(value, key, found),
        }),
        Value::Array(items) => items.iter().for_each(|item| texts_of(item, key, found)),
        _ => {}
    }
}

#[test]
fn the_dashboard_uses_existing_metrics() {
    let dashboard: Value =
        serde_json::from_str(include_str!("../../../../integrations/grafana/sallyport.json")).unwrap();
    let mut asked = Vec::new();
    for key in ["expr", "query", "definition"] {
        texts_of(&dashboard, key, &mut asked);
    }
    assert!(asked.len() > 20, "{asked:?}");
    let page = include_str!("../../../../docs/metrics.md");
    let known = documented(page);
    let mut names = Vec::new();
    for text in &asked {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        names.extend(words.filter(|word| word.starts_with("sallyport_") || word.starts_with("process_")));
    }
    assert!(names.len() > 20, "{names:?}");
    for name in names {
        let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        assert!(known.contains(&family), "the dashboard uses {name}, which is not in docs/metrics.md");
    }
}

#[test]
fn prometheus_scrapes_with_the_documented_configuration() {
    let Ok(version) = Command::new("prometheus").arg("--version").output() else {
        assert!(std::env::var_os("CI").is_none(), "prometheus must be there in CI");
        println!("skipped: there is no prometheus here");
        return;
    };
    let home = Home::new();
    let up = home.up(&[]);
    let page = include_str!("../../../../docs/metrics.md");
    let snippet = page.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    let ca = up.ca.to_str().unwrap();
    // The test has its own port and root, and shorter waits.
    let config = snippet.replace("/etc/prometheus/sallyport-ca.pem", ca).replace(":8443", &format!(":{}", up.port));
    let config = format!("global: {{scrape_interval: 1s, scrape_timeout: 1s}}\n{config}");
    assert!(config.contains(ca) && config.contains(&format!("127.0.0.1:{}", up.port)), "{config}");
    let (file, storage) = (home.dir.path().join("prometheus.yml"), home.dir.path().join("storage"));
    std::fs::write(&file, config).unwrap();
    let checked = Command::new("promtool").args(["check", "config"]).arg(&file).output().unwrap();
    assert!(checked.status.success(), "{}{}", text(&checked.stdout), text(&checked.stderr));
    let port = free_port();
    let prometheus = Program::start(
        Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", storage.display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}")),
    );
    let query =
        format!("http://127.0.0.1:{port}/api/v1/query?query=process_resident_memory_bytes%7Bjob%3D%22sallyport%22%7D");
    let asked = || {
        let output = Command::new("curl").args(["-s", &query]).output().unwrap();
        let response: Value = serde_json::from_slice(&output.stdout).ok()?;
        response["data"]["result"][0]["value"][1].as_str()?.parse::<f64>().ok()
    };
    let memory = wait_until("a first scrape", asked);
    assert!(memory > 1e6, "{memory} by {}", text(&version.stdout));
    drop(prometheus);
}

#[test]
fn a_machine_is_watched_by_its_own_address_alone() {
    let home = Home::new();
    let up = home.up(&[]);
    let asked =
        |path: &str, host: &str| curl(&up.ca, &up.url("api.localhost", path), &["-H", &format!("Host: {host}")]);
    let by_address = |path: &str| asked(path, &format!("127.0.0.1:{}", up.port));
    for (path, says) in [("/metrics", "process_cpu_seconds_total"), ("/healthz", "ok"), ("/readyz", "ready")] {
        let response = by_address(path);
        assert!(
            response.status == 200 && response.body.contains(says),
            "{path}: {} {}",
            response.status,
            response.body
        );
    }
    // An address serves nothing else, and other addresses are not of this machine.
    assert_eq!(by_address("/v1/info").status, 404);
    let other = asked("/metrics", "192.0.2.1");
    assert_eq!(other.status, 404, "{}", other.body);
}

#[test]
fn a_response_of_the_api_has_the_id_of_the_access_log_and_never_the_clients_nor_a_query() {
    let home = Home::new();
    let up = home.up(&["--log-format", "json"]);
    let response = up.curl("api.localhost", "/v1/account?key=secret", &["-H", "X-Request-Id: chosen-by-the-client"]);
    let id = response.header("x-request-id").expect("an id").to_owned();
    assert_ne!(id, "chosen-by-the-client");
    let problem: Value = serde_json::from_str(&response.body).unwrap();
    assert_eq!(problem["request_id"], id.as_str());
    up.program.wait_for(&format!("\"id\":\"{id}\""));
    let log = up.program.output();
    assert!(!log.contains("chosen-by-the-client") && !log.contains("secret"), "{log}");
    assert!(log.contains("\"path\":\"/v1/account\""), "{log}");
}

#[test]
fn the_access_log_has_the_reason_of_a_refusal_and_invents_no_method() {
    let home = Home::new();
    let up = home.up(&["--log-format", "json"]);
    let both =
        ["--http1.1", "-X", "DELETE", "-H", "Content-Length: 5", "-H", "Transfer-Encoding: chunked", "-d", "hello"];
    let response = up.curl("api.localhost", "/secret", &both);
    assert_eq!(response.status, 400, "{}", response.body);
    let id = response.header("x-request-id").expect("an id").to_owned();
    up.program.wait_for(&format!("\"id\":\"{id}\""));
    let log = up.program.output();
    let line = log.lines().find(|line| line.contains(&id)).unwrap();
    let event: Value = serde_json::from_str(line).unwrap();
    let field = |name: &str| event[name].as_str().or(event["fields"][name].as_str());
    assert_eq!((field("method"), field("path"), field("refused")), (Some(""), Some(""), Some("malformed")), "{line}");
    assert!(field("malformed").is_some_and(|text| text.contains("Transfer-Encoding")), "{line}");
}

#[test]
fn readiness_reports_a_failing_database_and_its_recovery() {
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
        let response = up.curl("api.localhost", "/readyz", &[]);
        (response.status == 503).then_some(response)
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
fn connect_can_be_stopped_while_the_api_is_silent() {
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
    connect.wait_for("stopped before the API answered");
}
