//! HTTP/3 to clients: the offer, the requests, the rules, and real clients.

use std::{
    net::{SocketAddr, UdpSocket},
    path::Path,
    process::Command,
    time::Duration,
};

use bytes::Bytes;
use http::Method;
use serde_json::Value;

use crate::{
    harness::{Home, Origin, Up, text, wait_until},
    http3_client::Http3Client,
    protocols::{client, tool},
};

/// The offer of HTTP/3 in responses over HTTP/2, once there is one.
fn offer(up: &Up, host: &str) -> String {
    wait_until("the offer of HTTP/3", || {
        let offer = up.curl(host, "/", &[]).header("alt-svc").map(str::to_owned);
        offer.filter(|offer| offer.starts_with("h3="))
    })
}

#[test]
fn requests_over_http3_take_the_way_of_all_requests() {
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let (socket, host) = home.socket(&[]);
    let origin = Origin::start("origin");
    let _connector = home.connector(&socket, origin.address, &[]);
    assert_eq!(offer(&up, &host), format!("h3=\":{}\"; ma=86400", up.port));

    let client = Http3Client::new(&up.ca);
    let mut connection = client.connect(up.port, &host);
    let response = connection.get(&host, "/page?a=b");
    let seen = response.text().to_ascii_lowercase();
    assert_eq!(response.status, 200);
    assert!(seen.starts_with("origin get /page?a=b\n"), "{seen}");
    assert!(seen.contains("\r\nvia: 3 sallyport\r\n") && seen.contains("x-forwarded-for: 127.0.0.1\r\n"), "{seen}");
    assert!(seen.contains("x-forwarded-proto: https\r\n"), "{seen}");
    assert_eq!(response.header("alt-svc"), None, "the client has come by it");
    let id = response.header("x-request-id").unwrap().to_owned();
    let line = up.program.wait_for(&id);
    assert!(line.contains("version=\"HTTP/3.0\"") && line.contains("path=\"/page\""), "{line}");

    let head = connection.send(Method::HEAD, &host, "/page", &[], None).unwrap();
    assert!(head.status == 200 && head.body.is_empty() && head.header("content-length").is_some(), "{head:?}");
    let large = Bytes::from(vec![b'u'; 5_000_000]);
    let echoed = connection.send(Method::POST, &host, "/upload", &[("content-length", "5000000")], Some(large));
    assert!(echoed.unwrap().body.ends_with(&[b'u'; 5_000_000]));
    let download = connection.get(&host, "/bytes/20000000");
    assert!(download.body.len() == 20_000_000 && download.body.iter().all(|byte| *byte == b'x'));
    assert_eq!(connection.get("nobody.localhost", "/").status, 404);
    assert_eq!(connection.get("api.localhost", "/v1/info").status, 200);

    let forged = [("x-auth-email", "eve@evil.test"), ("forwarded", "for=192.0.2.9"), ("alt-svc", "h3=\":1\"")];
    let seen = connection.send(Method::GET, &host, "/", &forged, None).unwrap().text().to_ascii_lowercase();
    assert!(!seen.contains("eve@") && !seen.contains("192.0.2.9"), "{seen}");
    for (field, value) in [("connection", "close"), ("transfer-encoding", "chunked"), ("te", "gzip")] {
        let refused = connection.send(Method::GET, &host, "/", &[(field, value)], None).unwrap_err();
        assert!(refused.contains("H3_MESSAGE_ERROR") || refused.contains("REMOTE_RESET"), "{field}: {refused}");
    }
    assert_eq!(connection.get(&host, "/still").status, 200, "only the streams were reset");
}

#[test]
fn without_http3_nothing_is_offered_and_the_port_is_for_connectors_or_closed() {
    let home = Home::new();
    for (args, is_open) in [(&["--no-http3"][..], false), (&["--no-http3", "--listen-quic"], true)] {
        let up = home.up(args);
        if !is_open {
            home.account();
        }
        let address = SocketAddr::from(([127, 0, 0, 1], up.port));
        assert_eq!(UdpSocket::bind(address).is_err(), is_open, "{args:?}");
        assert_eq!(
            up.curl("api.localhost", "/v1/info", &[]).header("alt-svc"),
            Some("clear"),
            "clients forget earlier offers"
        );
        let client = Http3Client::new(&up.ca);
        if is_open {
            assert!(client.try_connect(up.port, "api.localhost").is_err(), "HTTP/3 is no protocol there");
        }
        assert!(up.program.stop().success());
    }
    let refused = home.run(&["up", "--data", "x", "--listen-quic", "nowhere"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("--listen-quic"), "{}", text(&refused.stderr));
}

#[test]
fn addresses_of_both_families_are_recorded_alike() {
    let home = Home::new();
    let up = home.up(&["--listen", &format!("[::]:{}", crate::tcp::free_port())]);
    let client = Http3Client::new(&up.ca);
    let mut connection = client.connect(up.port, "api.localhost");
    for _ in 0..2 {
        let response = connection.get("api.localhost", "/v1/info");
        let line = up.program.wait_for(response.header("x-request-id").unwrap());
        assert!(response.status == 200 && line.contains("client=127.0.0.1:"), "{line}");
    }
}

#[test]
fn a_taken_udp_port_is_no_reason_not_to_start_unless_it_is_asked_for() {
    let home = Home::new();
    // No other test uses this address, so nothing takes its TCP port.
    let taken = UdpSocket::bind("127.0.111.3:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let data = home.data();
    let args = ["up", "--listen", &address, "--listen-http", "none", "--data", data.to_str().unwrap()];
    let refused = home.run(&[&args[..], &["--listen-quic"]].concat());
    assert_ne!(refused.status.code(), Some(0));
    assert!(text(&refused.stderr).contains("--listen-quic"), "{}", text(&refused.stderr));
    let up = crate::harness::Program::start(&mut home.command(&args));
    up.wait_for("no HTTP/3");
    up.wait_for("ready");
    assert!(up.stop().success());
}

#[test]
fn a_client_by_another_library_gets_all_its_answers() {
    let Some(python) = tool("aioquic") else { return };
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let (socket, host) = home.socket(&[]);
    let origin = Origin::start("origin");
    let _connector = home.connector(&socket, origin.address, &[]);
    let output = Command::new(python)
        .args([&client("http3.py"), "door", up.ca.to_str().unwrap(), &host, &up.port.to_string()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    assert!(text(&output.stdout).contains("all answers came"), "{}", text(&output.stdout));
}

#[test]
fn a_client_in_go_is_served_on_many_connections_and_streams() {
    let Some(load) = tool("http3-load") else { return };
    let home = Home::new();
    let up = home.up(&["--no-access-log"]);
    home.account();
    let (socket, host) = home.socket(&[]);
    let origin = Origin::start("origin");
    let _connector = home.connector(&socket, origin.address, &[]);
    let address = format!("127.0.0.1:{}", up.port);
    // Connections, streams on each, seconds; then connections at a time, seconds.
    for (what, numbers) in [("requests", &["4", "8", "1"][..]), ("new", &["4", "1"])] {
        let args = [&[what, "3", &address, &host, "/bytes/10000"], numbers].concat();
        let output = Command::new(&load).args(args).output().unwrap();
        assert!(output.status.success(), "{what}: {}", text(&output.stderr));
        let counts: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(counts["failed"], 0, "{what}: {counts}");
        assert!(counts["count"].as_u64().unwrap() > 0, "{what}: {counts}");
    }
    assert!(origin.count() > 20);
}

/// What Chromium saw of this socket; QUIC is tried at once where `forced`.
fn seen_by_chromium(home: &Home, (chromium, playwright): (&Path, &Path), address: &str, forced: Option<&str>) -> Value {
    let mut command = home.program("node");
    command.arg(client("http3.mjs")).args([playwright, chromium]).arg(address).args(forced);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn chromium_comes_by_http3_and_where_udp_is_blocked_by_http2_without_a_delay() {
    let Some(chromium) = crate::browser::browser() else { return };
    let Some(playwright) = tool("playwright") else { return };
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let (socket, host) = home.socket(&[]);
    let origin = Origin::start("origin");
    let _connector = home.connector(&socket, origin.address, &[]);
    offer(&up, &host);
    home.json(&["trust", "install", "--only-browsers"]);
    let (address, browser) = (format!("https://{host}:{}", up.port), (&*chromium, &*playwright));
    // Chromium believes QUIC servers with certificates of private authorities only where it is told to use QUIC.
    let seen = seen_by_chromium(&home, browser, &address, Some(&format!("{host}:{}", up.port)));
    assert_eq!(seen["protocols"], serde_json::json!(["h3", "h3"]), "{seen}");
    assert!(seen["texts"][1].as_str().unwrap().starts_with("origin GET /second"), "{seen}");
    assert!(seen["uploaded"].as_u64().unwrap() > 300_000, "{seen}");

    let seen = seen_by_chromium(&home, browser, &address, None);
    assert_eq!(seen["protocols"], serde_json::json!(["h2", "h2"]), "{seen}");
    let time = seen["times"][1].as_u64().unwrap();
    assert!(Duration::from_millis(time) < Duration::from_secs(5), "{seen}");
}
