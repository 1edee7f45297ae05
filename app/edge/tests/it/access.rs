//! Access rules by client address, country and autonomous system.

use std::{path::Path, sync::Arc};

use sallyport_geo::Geo;
use sallyport_model::{AccessRules, SocketType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    flows::{ask, connect, connect_from, echo_with_greeting, service},
    harness::*,
};

fn allow(rules: &[&str]) -> AccessRules {
    AccessRules { allow: rules.iter().map(|rule| (*rule).to_owned()).collect(), deny: Vec::new() }
}

fn deny(rules: &[&str]) -> AccessRules {
    AccessRules { allow: Vec::new(), deny: allow(rules).allow }
}

/// MaxMind's test databases.
fn geo() -> Arc<Geo> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../io/geo/tests/data");
    let (country, asn) = (data.join("GeoLite2-Country-Test.mmdb"), data.join("GeoLite2-ASN-Test.mmdb"));
    Arc::new(Geo::open(Some(&country), Some(&asn)).unwrap())
}

#[tokio::test]
async fn a_denied_client_gets_403_and_no_origin_is_reached() {
    let world = World::start().await;
    let mut socket = world.socket();
    let _connector = world.tunnel(&mut socket, named_origin("here").await).await;
    assert_eq!(world.get(&socket, "/").await.status, 200);
    socket.set(&world, |settings| settings.access = deny(&["127.0.0.0/8"]));
    let response = world.get(&socket, "/").await;
    assert_eq!(response.status, 403);
    assert!(response.text().contains("does not accept requests from your network address"), "{}", response.text());
    socket.set(&world, |settings| settings.access = allow(&["192.0.2.0/24"]));
    assert_eq!(world.get(&socket, "/").await.status, 403, "with an allow list, all other addresses are denied");
    socket.set(&world, |settings| settings.access = allow(&["127.0.0.1"]));
    assert_eq!(world.get(&socket, "/").await.status, 200);
    assert!(world.edge.metrics_text().unwrap().contains(r#"refusals_total{reason="denied"} 2"#));
}

#[tokio::test]
async fn access_rules_apply_before_the_password() {
    let world = World::start().await;
    let mut socket = world.socket();
    socket.protect(&world, "ann", "secret");
    socket.set(&world, |settings| settings.access = deny(&["127.0.0.1"]));
    assert_eq!(world.get(&socket, "/").await.status, 403);
    socket.set(&world, |settings| settings.access = deny(&["127.0.0.2"]));
    assert_eq!(world.get(&socket, "/").await.status, 401);
}

#[tokio::test]
async fn a_denied_tcp_connection_is_reset() {
    let world = World::start().await;
    let mut socket = world.socket();
    let addr = socket.set_type(&world, SocketType::Tcp).await;
    let _connector = world.tunnel(&mut socket, service(echo_with_greeting).await).await;
    drop(connect(addr).await);
    socket.set(&world, |settings| settings.access = deny(&["127.0.0.2"]));
    let mut denied = connect_from([127, 0, 0, 2], addr).await;
    let error = soon(denied.read(&mut [0; 1])).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    assert_eq!(ask(connect_from([127, 0, 0, 3], addr).await, b"x").await, b"hello x bye");
    assert!(world.edge.metrics_text().unwrap().contains(r#"flows_total{transport="tcp",verdict="denied"} 1"#));
}

#[tokio::test]
async fn access_rules_match_countries_and_autonomous_systems() {
    let world = World::start_with(|config| {
        config.trusted_proxies = vec!["127.0.0.2/32".parse().unwrap()];
        config.geo = Some(geo());
    })
    .await;
    let mut socket = world.socket();
    let addr = socket.set_type(&world, SocketType::Tcp).await;
    let _connector = world.tunnel(&mut socket, service(echo_with_greeting).await).await;
    let is_admitted = async |client: &str| {
        let mut stream = connect_from([127, 0, 0, 2], addr).await;
        let header = format!("PROXY TCP4 {client} 198.51.100.1 5000 443\r\n");
        stream.write_all(header.as_bytes()).await.unwrap();
        let mut word = [0; 5];
        soon(stream.read_exact(&mut word)).await.is_ok()
    };
    let (british, swedish, telstra, unlisted) = ("2.125.160.217", "89.160.20.113", "1.128.0.1", "203.0.113.1");
    socket.set(&world, |settings| settings.access = deny(&["country:GB"]));
    // An address that no database lists may be in the denied country.
    assert!(!is_admitted(british).await && is_admitted(swedish).await && !is_admitted(unlisted).await);
    socket.set(&world, |settings| settings.access = allow(&["country:se", "asn:1221"]));
    assert!(is_admitted(swedish).await && is_admitted(telstra).await);
    assert!(
        !is_admitted(british).await && !is_admitted(unlisted).await,
        "an address without a known country is not allowed"
    );
    socket.set(&world, |settings| settings.access = deny(&["asn:1221"]));
    assert!(!is_admitted(telstra).await && is_admitted(swedish).await, "the Swedish address is in another system");
    assert!(!is_admitted(british).await, "an address without a known system may be in the denied one");
}

#[tokio::test]
async fn an_unenforceable_list_denies_every_client() {
    let world = World::start().await;
    let mut socket = world.socket();
    let _connector = world.tunnel(&mut socket, named_origin("here").await).await;
    for access in [deny(&["country:CH"]), deny(&["asn:64500"]), deny(&["no rule at all"]), deny(&["0.0.0.0/0", "::/0"])]
    {
        socket.set(&world, |settings| settings.access = access.clone());
        assert_eq!(world.get(&socket, "/").await.status, 403, "{access:?}");
    }
    socket.set(&world, |settings| settings.access = AccessRules::default());
    assert_eq!(world.get(&socket, "/").await.status, 200);
}
