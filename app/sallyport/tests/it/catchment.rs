//! The round trips of real clients, by the network that they come from.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    process::{Command, Stdio},
};

use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};

use crate::{
    edge_quic_and_geo::{balancer, databases},
    fleet::{Bus, ControlHere, EdgeHere, edges},
    harness::{Home, Origin, Up, curl, text, wait_until},
    http3_client::Http3Client,
    networks::{Sockets, must, run_within},
    tcp::{free_ports, id, service, socket},
};

/// Waits for the group with these values.
fn listed(home: &Home, args: &[&str], wanted: &Value) -> Value {
    wait_until("a network of clients", || {
        let groups = home.json(&[&["edge", "clients", "--limit", "1000"], args].concat());
        let has = |group: &&Value| wanted.as_object().unwrap().iter().all(|(name, value)| group[name] == *value);
        groups.as_array().unwrap().iter().find(has).cloned()
    })
}

/// Asserts that the network has so many connections, and a sound round trip.
fn assert_listed(home: &Home, prefix: &str, connections: u64) {
    let group = listed(home, &[], &json!({"prefix": prefix, "connections": connections}));
    let ms = group["min_ms"].as_f64().unwrap_or_else(|| panic!("{group}"));
    assert!(ms > 0.0 && ms < 1_000.0, "{group}");
    assert_eq!((&group["edge"], &group["networks"]), (&json!("edge"), &json!(1)), "{group}");
}

/// A connection from this address.
fn connect_from(source: &str, port: u16) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::new(source.parse().unwrap(), 0).into()).unwrap();
    socket.connect(&SocketAddr::from(([127, 0, 0, 1], port)).into()).unwrap();
    socket.into()
}

fn metric(up: &Up, series: &str) -> u64 {
    let metrics = up.curl("api.localhost", "/metrics", &[]).body;
    let found = metrics.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok());
    found.unwrap_or_else(|| panic!("{series} is not in {metrics}"))
}

#[test]
fn clients_of_every_protocol_are_measured_once_for_each_connection() {
    let home = Home::new();
    let ports = free_ports(2);
    let up = home.up(&["--port-range", &format!("{}-{}", ports.start(), ports.end())]);
    home.account();
    let (web, host) = home.socket(&[]);
    let origin = Origin::start("origin");
    let _web = home.connector(&web, origin.address, &[]);
    let echo = service(|stream| drop(std::io::copy(&mut &stream, &mut &stream)));
    let (tcp, tls) = (socket(&home, "tcp", &[]), socket(&home, "tls", &[]));
    let _others = [&tcp, &tls].map(|socket| home.connector(id(socket), echo, &[]));

    // Three requests on one connection count once.
    let url = up.url(&host, "/");
    for (source, version) in [("127.0.10.1", "--http1.1"), ("127.0.11.7", "--http2")] {
        let response = curl(&up.ca, &url, &[version, "--interface", source, &url, &url]);
        assert_eq!(response.status, 200, "{}", response.body);
    }
    assert_listed(&home, "127.0.10.0/24", 1);
    assert_listed(&home, "127.0.11.0/24", 1);
    for source in ["127.0.12.1", "127.0.12.254"] {
        let mut stream = connect_from(source, port_of(&tcp));
        stream.write_all(b"hello").unwrap();
        stream.read_exact(&mut [0; 5]).unwrap();
    }
    assert_listed(&home, "127.0.12.0/24", 2);
    let mut openssl = Command::new("openssl");
    let to = format!("127.0.0.1:{}", port_of(&tls));
    openssl.args(["s_client", "-brief", "-connect", &to, "-bind", "127.0.13.1"]);
    assert!(openssl.stdin(Stdio::null()).output().unwrap().status.success());
    assert_listed(&home, "127.0.13.0/24", 1);
    wait_until("HTTP/3", || up.curl(&host, "/", &[]).header("alt-svc").map(drop));
    let client = Http3Client::new(&up.ca);
    client.rebind("127.0.14.1:0");
    let mut connection = client.connect(up.port, &host);
    assert_eq!((connection.get(&host, "/").status, connection.get(&host, "/").status), (200, 200));
    connection.quic.close(0_u32.into(), b"");
    assert_listed(&home, "127.0.14.0/24", 1);

    // Whole addresses are nowhere.
    let whole = home.json(&["edge", "clients"]).to_string();
    assert!(!whole.contains("127.0.12.1\"") && !whole.contains("127.0.12.254"), "{whole}");
    let table = text(&home.run(&["edge", "clients"]).stdout);
    let head: Vec<_> = table.lines().next().unwrap().split("  ").filter(|cell| !cell.is_empty()).collect();
    assert_eq!(
        head.iter().map(|cell| cell.trim()).collect::<Vec<_>>(),
        ["PREFIX", "COUNTRY", "EDGE", "MIN RTT", "CONNECTIONS", "LAST SEEN"]
    );
    assert!(metric(&up, "sallyport_edge_client_networks ") >= 5);
    assert!(metric(&up, "sallyport_edge_client_round_trips_total{outcome=\"recorded\"}") >= 6);
    assert_eq!(metric(&up, "sallyport_edge_client_round_trips_total{outcome=\"balanced\"}"), 0);
    // Without databases there is one group of systems.
    let systems = home.json(&["edge", "clients", "--by", "as"]);
    let systems = systems.as_array().unwrap();
    assert!(
        systems.len() == 1 && systems[0]["as"].is_null() && systems[0]["networks"].as_u64() >= Some(5),
        "{systems:?}"
    );

    for (args, sentence) in [
        (&["mars-1"][..], "there is no edge \"mars-1\""),
        (&["--limit", "0"], "0 is not in 1..=1000"),
        (&["--limit", "1001"], "1001 is not in 1..=1000"),
        (&["--by", "colour"], "invalid value 'colour'"),
    ] {
        let output = home.run(&[&["edge", "clients"], args].concat());
        assert!(text(&output.stderr).contains(sentence), "{args:?}: {}", text(&output.stderr));
    }
    for query in ["limit=0", "limit=1001", "limit=many", "by=colour", "colour=red"] {
        let path = format!("/v1/edges/clients?{query}");
        let token = home.json(&["token", "create", "--name", query, "--scope", "account:read"]);
        let bearer = format!("Authorization: Bearer {}", token["token"].as_str().unwrap());
        let response = up.curl("api.localhost", &path, &["-H", &bearer]);
        assert!((400..500).contains(&response.status), "{query}: {} {}", response.status, response.body);
    }
}

/// The own port of a socket.
fn port_of(socket: &Value) -> u16 {
    let port = socket["port"].as_u64().or_else(|| socket["tcp_ports"][0].as_u64());
    u16::try_from(port.unwrap_or_else(|| panic!("{socket}"))).unwrap()
}

#[test]
fn countries_and_systems_are_those_of_the_databases() {
    run_within(Sockets::Ping, &[], "catchment::within_many_networks");
}

#[test]
#[ignore = "runs within the network of countries_and_systems_are_those_of_the_databases"]
fn within_many_networks() {
    // Networks of MaxMind's test databases.
    let (bhutanese, nobodys, telstra, other_telstra) = ("67.43.156.9", "192.0.2.7", "1.128.0.1", "1.128.9.1");
    for address in [bhutanese, nobodys, telstra, other_telstra] {
        must(&format!("ip addr add {address}/32 dev lo"));
    }
    let home = Home::new();
    let [country, asn] = databases();
    let up = home.up(&["--geoip-country", &country, "--geoip-asn", &asn]);
    home.account();
    let url = up.url("api.localhost", "/v1/info");
    for (source, times) in [(bhutanese, 2), (nobodys, 1), (telstra, 3), (other_telstra, 2)] {
        for _ in 0..times {
            assert_eq!(curl(&up.ca, &url, &["--interface", source]).status, 200);
        }
    }
    let of_bhutan = listed(&home, &[], &json!({"prefix": "67.43.156.0/24", "connections": 2}));
    assert_eq!((&of_bhutan["country"], &of_bhutan["as"]), (&json!("BT"), &json!(35_908)), "{of_bhutan}");
    let unknown = listed(&home, &[], &json!({"prefix": "192.0.2.0/24", "connections": 1}));
    assert!(unknown["country"].is_null() && unknown["as"].is_null(), "{unknown}");
    let of_telstra = listed(&home, &["--by", "as"], &json!({"as": 1_221, "connections": 5}));
    assert_eq!(of_telstra["networks"], 2, "{of_telstra}");
    assert!(of_telstra["prefix"].is_null() && of_telstra["min_ms"].as_f64().unwrap() > 0.0, "{of_telstra}");
    let table = text(&home.run(&["edge", "clients", "edge", "--by", "as"]).stdout);
    assert!(table.lines().any(|line| line.starts_with("AS1221 ") && line.contains(" 5 ")), "{table}");
}

#[test]
fn clients_of_all_edges_are_listed_and_those_behind_a_balancer_are_not() {
    let home = Home::new();
    let Some(bus) = Bus::start(&home, "") else { return };
    let _control = ControlHere::start(&home, &bus);
    home.account();
    let trusts = ["--trust-proxy", "127.0.0.2"];
    let a = EdgeHere::join_with(&home, "eu-1", "eu", "127.0.0.1", &trusts);
    let b = EdgeHere::join_with(&home, "us-1", "us", "127.0.0.3", &[]);
    wait_until("both edges are there", || {
        let edges = edges(&home);
        (edges.len() == 2 && edges.iter().all(|edge| edge["state"] == "up")).then_some(())
    });
    for (edge, source) in [(&a, "127.0.20.1"), (&b, "127.0.21.1")] {
        let response = edge.curl(&home, "api.lab.localhost", "/healthz", &["--interface", source]);
        assert_eq!(response.status, 200, "{}", response.body);
    }
    // The balancer is near and its client is far: neither is listed with the round trip of the other.
    let at = balancer("89.160.20.113", format!("{}:{}", a.ip, a.port).parse().unwrap());
    let to = format!("api.lab.localhost:{}:{}:{}", a.port, at.ip(), at.port());
    let url = format!("https://api.lab.localhost:{}/healthz", a.port);
    assert_eq!(curl(&home.data().join("ca.pem"), &url, &["--connect-to", &to]).status, 200);
    listed(&home, &[], &json!({"prefix": "127.0.20.0/24", "edge": "eu-1", "connections": 1}));
    listed(&home, &["us-1"], &json!({"prefix": "127.0.21.0/24", "edge": "us-1", "connections": 1}));
    wait_until("the client of the balancer to be counted", || {
        let metrics = a.get(&home, "api.lab.localhost", "/metrics").1;
        let series = "sallyport_edge_client_round_trips_total{outcome=\"balanced\"} ";
        metrics.lines().find_map(|line| line.strip_prefix(series)?.parse::<u64>().ok()).filter(|count| *count >= 1)
    });
    let all = home.json(&["edge", "clients", "--limit", "1000"]).to_string();
    assert!(!all.contains("89.160.20.0/24"), "{all}");
    let connections: Vec<_> =
        home.json(&["edge", "clients"]).as_array().unwrap().iter().map(|one| one["connections"].as_u64()).collect();
    assert!(connections.is_sorted_by(|one, other| one >= other), "{connections:?}");
}
