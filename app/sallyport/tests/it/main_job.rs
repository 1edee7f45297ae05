//! The main job: a private web service answers on a public name.

use crate::harness::{Home, Origin, Program, text, wait_until};

#[test]
fn connect_gives_a_private_service_a_public_name_until_it_is_stopped() {
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let origin = Origin::start("origin");
    let port = origin.address.port().to_string();
    let connect = Program::start(&mut home.command(&[
        "connect",
        "--host",
        "127.0.0.1",
        "--port",
        &port,
        "--name",
        "my test service",
    ]));
    let line = connect.wait_for("https://");
    let url = line.split_whitespace().find(|word| word.starts_with("https://")).unwrap().to_owned();
    let host = url.trim_start_matches("https://").split([':', '/']).next().unwrap().to_owned();
    let words: Vec<&str> = host.split('.').next().unwrap().split('-').collect();
    assert!(words.len() == 3 && words[2].parse::<u16>().is_ok(), "a name such as wandering-shape-7752: {host}");

    let response = up.curl(&host, "/hello?a=b", &[]);
    assert_eq!(response.status, 200, "{}", response.body);
    assert!(response.body.starts_with("origin GET /hello?a=b\n"), "{}", response.body);
    assert!(response.header("x-request-id").is_some(), "{}", response.head);
    connect.wait_for("/hello?a=b");

    let listed = home.json(&["socket", "ls"]);
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed}");

    connect.signal("INT");
    assert!(connect.ended().success(), "{}", connect.output());
    connect.wait_for("the socket 'my test service' stays");
    let listed = home.json(&["socket", "ls"]);
    assert_eq!((&listed[0]["name"], &listed[0]["tunnels_total"]), (&"my test service".into(), &0.into()), "{listed}");
    assert_eq!(up.curl(&host, "/", &[]).status, 503, "nothing serves it");

    let connect = Program::start(&mut home.command(&["connect", "--host", "127.0.0.1", "--port", &port]));
    let url = connect.wait_for("https://");
    assert!(!url.contains(&host), "{url}");
    connect.signal("INT");
    assert!(connect.ended().success(), "{}", connect.output());
    connect.wait_for("socket removed");
    assert_eq!(home.json(&["socket", "ls"]).as_array().map(Vec::len), Some(1), "a socket without a name is removed");
}

#[test]
fn the_port_may_be_a_word_and_a_socket_that_could_not_be_taken_back_is_named() {
    let home = Home::new();
    let up = home.up(&[]);
    let started = up.program.output();
    assert_eq!(started.matches("database").count(), 1, "one line for all steps of a new database: {started}");
    home.account();
    let origin = Origin::start("origin");
    let port = origin.address.port().to_string();
    let connect = Program::start(&mut home.command(&["connect", &port, "--host", "127.0.0.1"]));
    let line = connect.wait_for("https://");
    let host = line.split("https://").nth(1).unwrap().split([':', '/']).next().unwrap().to_owned();
    assert_eq!(up.curl(&host, "/", &[]).status, 200);
    up.program.signal("KILL");
    up.program.ended();
    connect.signal("INT");
    assert_eq!(connect.ended().code(), Some(6), "{}", connect.output());
    let name = host.split('.').next().unwrap();
    connect.wait_for(&format!("the socket {name} may still be there: cannot reach https://"));
    connect.wait_for(&format!("remove it with `sallyport socket delete {name}`"));
}

#[test]
fn twenty_requests_over_four_origins_are_five_each() {
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let (socket, host) = home.socket(&[]);
    let origins: Vec<Origin> = ["a", "b", "c", "d"].into_iter().map(Origin::start).collect();
    let _connectors: Vec<Program> = origins.iter().map(|o| home.connector(&socket, o.address, &[])).collect();
    for _ in 0..20 {
        assert_eq!(up.curl(&host, "/", &[]).status, 200);
    }
    assert_eq!(origins.iter().map(Origin::count).collect::<Vec<_>>(), [5, 5, 5, 5]);
}

#[test]
fn client_headers_for_the_origin_come_from_the_edge_alone() {
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let (socket, host) = home.socket(&[]);
    let origin = Origin::start("origin");
    let _connector = home.connector(&socket, origin.address, &[]);
    let spoofed = [
        "-H",
        "X-Forwarded-For: 6.6.6.6",
        "-H",
        "X-Real-Ip: 6.6.6.6",
        "-H",
        "Forwarded: for=6.6.6.6",
        "-H",
        "X_Forwarded_For: 6.6.6.6",
        "-H",
        "X-Auth-Email: boss@example.com",
        "-H",
        "X-Request-Id: mine",
        "-H",
        "Connection: close, X-Secret-Hop",
        "-H",
        "X-Secret-Hop: 1",
    ];
    for version in ["--http1.1", "--http2"] {
        let mut more = spoofed.to_vec();
        more.push(version);
        let response = up.curl(&host, "/", &more);
        assert_eq!(response.status, 200, "{version}: {}", response.body);
        let body = response.body.to_ascii_lowercase();
        // HTTP/2 has no Connection field to name hop-by-hop fields (RFC 9113 section 8.2.2).
        let hop = if version == "--http1.1" { "x-secret-hop" } else { "\nconnection:" };
        for lie in ["6.6.6.6", "boss@example.com", "x-request-id: mine", hop] {
            assert!(!body.contains(lie), "{version}: {lie} reached the origin:\n{body}");
        }
        for truth in
            ["x-forwarded-for: 127.0.0.1", "x-forwarded-proto: https", "x-real-ip: 127.0.0.1", "forwarded: for="]
        {
            assert!(body.contains(truth), "{version}: {truth} is missing:\n{body}");
        }
        assert!(body.contains(&format!("x-forwarded-host: {host}")), "{body}");
        assert!(body.contains(&format!("\nhost: {host}:{}", up.port)), "{body}");
    }
}

#[test]
fn a_protected_socket_requires_its_password() {
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let mut create = home.command(&[
        "socket",
        "create",
        "--name",
        "p",
        "--type",
        "http",
        "--protected",
        "--username",
        "ann",
        "-o",
        "json",
    ]);
    let output = create.env("SALLYPORT_SOCKET_PASSWORD", "open sesame now").output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let socket: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let (id, host) = (socket["id"].as_str().unwrap(), socket["dns_name"].as_str().unwrap());
    let origin = Origin::start("origin");
    let _connector = home.connector(id, origin.address, &[]);
    let refused = up.curl(host, "/", &[]);
    assert_eq!(refused.status, 401);
    assert!(refused.header("www-authenticate").unwrap().starts_with("Basic realm="), "{}", refused.head);
    assert_eq!(up.curl(host, "/", &["-u", "ann:wrong"]).status, 401);
    assert_eq!(origin.count(), 0, "no request without the password reached the service");
    let response = up.curl(host, "/", &["-u", "ann:open sesame now"]);
    assert_eq!(response.status, 200);
    assert!(
        !response.body.to_ascii_lowercase().contains("\nauthorization:"),
        "the edge's password is not the origin's business"
    );
}

#[test]
fn the_names_of_flags_may_be_written_with_underscores_and_sockets_named_by_their_name() {
    let home = Home::new();
    let _up = home.up(&[]);
    home.account();
    let (socket, host) = home.socket(&[]);
    let shown = home.json(&["socket", "show", "--socket_id", &socket]);
    assert_eq!(shown["dns_name"], *host);
    let label = host.split('.').next().unwrap();
    assert_eq!(home.json(&["socket", "show", "--socket-id", label])["id"], *socket);
    assert!(home.run(&["socket", "delete", "--socket_id", label]).status.success());
    let gone = home.run(&["socket", "show", "--socket-id", &socket]);
    assert_eq!(gone.status.code(), Some(4), "{}", text(&gone.stderr));
}

#[test]
fn a_token_for_connectors_alone_holds_a_tunnel_and_makes_no_socket() {
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let (socket, host) = home.socket(&[]);
    let token = home.json(&["token", "create", "--name", "ci", "--scope", "tunnels:connect"]);
    let token = token["token"].as_str().unwrap();
    let origin = Origin::start("origin");
    let connector = home.connector(&socket, origin.address, &["--token", token]);
    assert_eq!(up.curl(&host, "/", &[]).status, 200);
    assert_eq!(connector.stop().code(), Some(0), "{}", connector.output());
    assert!(
        home.json(&["tunnel", "ls", "--socket-id", &socket]).as_array().unwrap().is_empty(),
        "its tunnel is removed"
    );
    let output = home.run(&["socket", "create", "--name", "x", "--type", "http", "--token", token]);
    assert!(text(&output.stderr).contains("sockets:write"), "{}", text(&output.stderr));
}

#[test]
fn metrics_count_what_was_served() {
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let (socket, host) = home.socket(&[]);
    let origin = Origin::start("origin");
    let _connector = home.connector(&socket, origin.address, &[]);
    for _ in 0..3 {
        assert_eq!(up.curl(&host, "/", &[]).status, 200);
    }
    assert_eq!(up.curl("api.localhost", "/healthz", &[]).status, 200);
    assert_eq!(up.curl("api.localhost", "/readyz", &[]).status, 200);
    let label = host.split('.').next().unwrap();
    wait_until("the metrics of three requests", || {
        let metrics = up.curl("api.localhost", "/metrics", &[]).body;
        metrics.lines().any(|l| l.contains("requests_total") && l.contains(label) && l.ends_with(" 3")).then_some(())
    });
}
