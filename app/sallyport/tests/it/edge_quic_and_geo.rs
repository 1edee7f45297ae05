//! Edges: connectors over QUIC, and policies by country and autonomous system.

use std::{net::SocketAddr, path::Path, thread};

use serde_json::Value;
use tokio::{
    io::AsyncWriteExt as _,
    net::{TcpListener, TcpSocket},
};

use crate::{
    fleet::{Bus, ControlHere, DOMAIN, EdgeHere, connect, edges, token},
    harness::{Home, Origin, curl, text, wait_until},
};

/// The address of the balancer before an edge, which sends the PROXY protocol.
const BALANCER: &str = "127.0.0.2";

/// MaxMind's own test databases.
pub(crate) fn databases() -> [String; 2] {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../io/geo/tests/data");
    ["GeoLite2-Country-Test.mmdb", "GeoLite2-ASN-Test.mmdb"].map(|name| data.join(name).to_str().unwrap().to_owned())
}

fn both_up(home: &Home) {
    wait_until("both edges are there", || {
        let edges = edges(home);
        (edges.len() == 2 && edges.iter().all(|edge| edge["state"] == "up")).then_some(())
    });
}

#[test]
fn a_connector_over_quic_at_an_edge_serves_clients_of_all_edges() {
    let home = Home::new();
    let Some(bus) = Bus::start(&home, "") else { return };
    let mut a = EdgeHere::new(&home, "eu-1", "127.0.0.1");
    let _control = ControlHere::start_with(&home, &bus, &["--quic-port", &a.port.to_string()]);
    home.account();
    let join = home.json(&["edge", "token", "create", "--name", "eu-1"]);
    a.start(&home, &["--join", join["token"].as_str().unwrap(), "--region", "eu", "--listen-quic"]);
    let b = EdgeHere::join(&home, "us-1", "us");
    both_up(&home);
    let offer = || edges(&home).iter().find(|edge| edge["name"] == "eu-1").map(|edge| edge["http3_port"].clone());
    wait_until("the offer of HTTP/3", || (offer()? == a.port).then_some(()));
    let (socket, host) = home.socket(&[]);
    wait_until("the socket is known at both", || (a.knows(&home, &host) && b.knows(&home, &host)).then_some(()));
    let (origin, token) = (Origin::start("origin"), token(&home));
    for legs in ["512", "0"] {
        let more = ["--token", &token, "--transport", "quic", "--max-legs", legs, "--redundancy", "1"];
        let connector = connect(&home, &a, &socket, &origin, &more);
        let event: Value = serde_json::from_str(&connector.wait_for("\"connected\"")).unwrap();
        assert_eq!((&event["transport"], &event["edge"]), (&"quic".into(), &"eu-1".into()), "{event}");
        for edge in [&a, &b] {
            wait_until("the tunnel is found", || (edge.get(&home, &host, "/hello").0 == 200).then_some(()));
            assert_eq!(edge.get(&home, &host, "/bytes/1000000").1.len(), 1_000_000);
            let upload = "x".repeat(100_000);
            let response = edge.curl(&home, &host, "/upload", &["--data-binary", &upload]);
            assert!(response.status == 200 && response.body.ends_with(&upload), "{}", response.body.len());
        }
        assert!(connector.stop().success(), "{}", connector.output());
    }
    let metrics = a.get(&home, &format!("api.{DOMAIN}"), "/metrics").1;
    for kind in ["control", "leg"] {
        let series = format!("sallyport_edge_carriers_total{{transport=\"quic\",kind=\"{kind}\"}} ");
        let count = metrics.lines().find_map(|line| line.strip_prefix(&series)?.parse::<u64>().ok());
        assert!(count.is_some_and(|count| count >= 1), "{series}{count:?}");
    }
}

/// A balancer before an edge that reports this client for all connections.
pub(crate) fn balancer(client: &'static str, edge: SocketAddr) -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            listener.set_nonblocking(true).unwrap();
            let listener = TcpListener::from_std(listener).unwrap();
            while let Ok((mut near, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let far = TcpSocket::new_v4().unwrap();
                    far.bind(format!("{BALANCER}:0").parse().unwrap()).unwrap();
                    let mut far = far.connect(edge).await.unwrap();
                    let header = format!("PROXY TCP4 {client} 198.51.100.1 5000 443\r\n");
                    far.write_all(header.as_bytes()).await.unwrap();
                    drop(tokio::io::copy_bidirectional(&mut near, &mut far).await);
                });
            }
        });
    });
    at
}

#[test]
fn a_policy_by_country_and_a_rule_by_system_hold_at_edges() {
    let home = Home::new();
    let Some(bus) = Bus::start(&home, "") else { return };
    let [country, asn] = databases();
    let geo = ["--geoip-country", &country, "--geoip-asn", &asn];
    let mut control = ControlHere::start(&home, &bus);
    home.account();
    // Control accepts such rules only if the edges have databases.
    let refused = home.run(&["socket", "create", "--name", "x", "--deny", "country:GB"]);
    assert!(!refused.status.success() && text(&refused.stderr).contains("--geoip-country"), "{refused:?}");
    control.program = None;
    control.more = geo.iter().map(|word| (*word).to_owned()).collect();
    control.resume(&home);

    let joins = |name: &'static str, region: &str, more: &[&str]| {
        let token = home.json(&["edge", "token", "create", "--name", name]);
        let mut edge = EdgeHere::new(&home, name, "127.0.0.1");
        let join = ["--join", token["token"].as_str().unwrap(), "--region", region];
        edge.start(&home, &[&join, more].concat());
        edge
    };
    let trusts = ["--trust-proxy", BALANCER];
    let (a, b) = (
        joins("eu-1", "eu", &[&geo[..], &trusts[..]].concat()),
        joins("us-1", "us", &[&geo[..], &trusts[..]].concat()),
    );
    both_up(&home);
    home.json(&["policy", "create", "nordic", "--anyone", "--from", "country:SE"]);
    let (socket, host) = home.socket(&["--policy", "nordic"]);
    let (by_system, other_host) = home.socket(&["--deny", "asn:1221"]);
    let all_known = || [&host, &other_host].iter().all(|host| a.knows(&home, host) && b.knows(&home, host));
    wait_until("the sockets are known at both", || all_known().then_some(()));
    let (origin, token) = (Origin::start("origin"), token(&home));
    let more = ["--token", token.as_str(), "--redundancy", "1"];
    let _connectors = [&socket, &by_system].map(|socket| connect(&home, &a, socket, &origin, &more));

    let (swedish, british, telstra) = ("89.160.20.113", "2.125.160.217", "1.128.0.1");
    for edge in [&a, &b] {
        let at: SocketAddr = format!("{}:{}", edge.ip, edge.port).parse().unwrap();
        let [from_sweden, from_britain, from_telstra] = [swedish, british, telstra].map(|client| balancer(client, at));
        let asks = |host: &str, by: SocketAddr| {
            let to = format!("{host}:{}:{}:{}", edge.port, by.ip(), by.port());
            let url = format!("https://{host}:{}/", edge.port);
            curl(&home.data().join("ca.pem"), &url, &["--connect-to", &to]).status
        };
        wait_until("the tunnels are found", || {
            (asks(&host, from_sweden) == 200 && asks(&other_host, from_sweden) == 200).then_some(())
        });
        // The system of the British address is unknown, so it counts as the denied one.
        assert_eq!((asks(&host, from_britain), asks(&other_host, from_britain)), (403, 403), "{}", edge.port);
        assert_eq!((asks(&host, from_telstra), asks(&other_host, from_telstra)), (403, 403), "{}", edge.port);
        assert_eq!(edge.get(&home, &host, "/").0, 403, "an address of no country is not allowed");
    }
    // An edge without the databases admits no client to sockets with such rules.
    let c = joins("us-2", "us", &[]);
    wait_until("the socket is known there too", || c.knows(&home, &host).then_some(()));
    assert_eq!((c.get(&home, &host, "/").0, c.get(&home, &other_host, "/").0), (403, 403));
}
