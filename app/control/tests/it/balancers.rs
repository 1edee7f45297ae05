//! Balancers of sites.

use http::StatusCode;
use sallyport_api::{
    AnycastPrefix, BalancedEdgeState, BalancedProtocol, Balancer, BalancerEncapsulation, Page, Socket,
};
use sallyport_model::EdgeId;
use sallyport_store::{JoiningEdge, NewEdgeToken};
use serde_json::{Value, json};

use crate::harness::Api;

const EU: &str = "/v1/balancers/eu";

/// An edge that has joined.
async fn join(api: &Api, number: u8, name: &str, region: &str) {
    let now = 4_000_000_000;
    let token = NewEdgeToken { hash: [number; 32], name: None, region: None, created_at: now, expires_at: now + 60 };
    api.store.create_edge_token(&token).await.unwrap();
    let (name, region) = (Some(name.parse().unwrap()), Some(region.parse().unwrap()));
    let joining = JoiningEdge { id: EdgeId::from_random([number; 16]), name, region, now };
    api.store.join_edge([number; 32], &joining).await.unwrap().unwrap();
}

async fn installation() -> (Api, String) {
    let api = Api::start().await;
    let owner = api.account("ann@example.com").await;
    for (number, name, region) in [(1, "eu-1", "eu"), (2, "us-1", "us"), (3, "eu-2", "eu")] {
        join(&api, number, name, region).await;
    }
    (api, owner)
}

fn body(more: Value) -> Value {
    let mut body = json!({"addresses": ["198.51.100.1", "2001:db8::1"], "balancers": ["192.0.2.5"]});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

#[tokio::test]
async fn a_site_gets_a_balancer_and_edges_get_told() {
    let (api, owner) = installation().await;
    let none: Page<Balancer> = api.get("/v1/balancers", Some(&owner)).await.read(StatusCode::OK);
    assert!(none.items.is_empty());
    api.get(EU, Some(&owner)).await.assert_problem(StatusCode::NOT_FOUND, "not-found");
    let set = body(json!({"encapsulation": "ipip", "weights": {"eu-2": 3}}));
    let made: Balancer = api.send("PUT", EU, Some(&owner), Some(set)).await.read(StatusCode::OK);
    assert_eq!((made.site.as_str(), made.encapsulation), ("eu", BalancerEncapsulation::Ipip));
    let edges: Vec<_> =
        made.edges.iter().map(|edge| (edge.name.as_str(), edge.server, edge.weight, edge.state)).collect();
    let down = BalancedEdgeState::Down;
    assert_eq!(edges, [("eu-1", 1, 100, down), ("eu-2", 3, 3, down)], "those of the site, with numbers of their own");
    assert!(made.notes.iter().any(|note| note.contains("--behind-balancer")), "{:?}", made.notes);
    assert_eq!(api.balancers.of(&"eu".parse().unwrap()).unwrap().addresses, made.addresses);
    // What is left out stays as it was.
    let again: Balancer =
        api.send("PUT", EU, Some(&owner), Some(body(json!({"addresses": ["10.7.0.1"]})))).await.read(StatusCode::OK);
    assert_eq!((again.encapsulation, again.weights["eu-2"]), (BalancerEncapsulation::Ipip, 3));
    assert_eq!(again.created_at, made.created_at);
    assert!(again.notes.iter().any(|note| note.contains("10.7.0.1 is private")), "{:?}", again.notes);
    let listed: Page<Balancer> = api.get("/v1/balancers", Some(&owner)).await.read(StatusCode::OK);
    assert_eq!(listed.items.iter().map(|one| one.site.as_str()).collect::<Vec<_>>(), ["eu"]);
    let actions = api.actions(&owner).await;
    assert!(actions.ends_with(&["balancer.set".to_owned(), "balancer.set".to_owned()]), "{actions:?}");
    // A restart publishes it again, before it serves.
    let api = api.restart().await;
    assert_eq!(api.balancers.all().len(), 1);
    assert_eq!(api.send("DELETE", EU, Some(&owner), None).await.status, StatusCode::NO_CONTENT);
    assert!(api.balancers.all().is_empty());
    let gone = api.send("DELETE", EU, Some(&owner), None).await;
    gone.assert_problem(StatusCode::NOT_FOUND, "not-found");
}

#[tokio::test]
async fn the_ports_of_sockets_are_services_and_a_tag_says_whether_anything_changed() {
    let (api, owner) = installation().await;
    api.send("PUT", EU, Some(&owner), Some(body(json!({})))).await.read::<Balancer>(StatusCode::OK);
    let first = api.get(EU, Some(&owner)).await;
    let tag = first.header("etag").unwrap().to_owned();
    assert!(first.read::<Balancer>(StatusCode::OK).services.is_empty());
    let known = api.get_with(EU, &owner, "if-none-match", &tag).await;
    assert_eq!((known.status, known.text.as_str()), (StatusCode::NOT_MODIFIED, ""));
    let mut ports = Vec::new();
    for kind in ["tcp", "udp"] {
        let made = api.post("/v1/sockets", Some(&owner), json!({"name": kind, "type": kind})).await;
        ports.push(made.read::<Socket>(StatusCode::CREATED).port.unwrap());
    }
    let changed = api.get_with(EU, &owner, "if-none-match", &tag).await;
    assert_ne!(changed.header("etag"), Some(tag.as_str()));
    let services = changed.read::<Balancer>(StatusCode::OK).services;
    let found: Vec<_> = services.iter().map(|one| (one.protocol, one.first_port, one.last_port)).collect();
    let expected = [(BalancedProtocol::Tcp, ports[0], ports[0]), (BalancedProtocol::Udp, ports[1], ports[1])];
    assert_eq!(found, expected);
}

#[tokio::test]
async fn bad_balancers_are_refused_in_one_sentence() {
    let (api, owner) = installation().await;
    api.send("PUT", EU, Some(&owner), Some(body(json!({})))).await.read::<Balancer>(StatusCode::OK);
    for (site, more, says) in [
        ("eu", json!({"addresses": ["nonsense"]}), "is no address"),
        ("eu", json!({"addresses": ["198.51.100.0/24"]}), "is no address"),
        ("eu", json!({"addresses": []}), "needs a virtual address"),
        ("eu", json!({"addresses": ["127.0.0.1"]}), "loopback"),
        ("eu", json!({"addresses": vec!["198.51.100.1"; 17]}), "at most 16"),
        ("eu", json!({"balancers": []}), "needs the address of a balancer"),
        ("eu", json!({"balancers": ["198.51.100.1"]}), "a virtual address and a balancer"),
        ("eu", json!({"balancers": ["fe80::1"]}), "link-local"),
        ("eu", json!({"encapsulation": "vxlan"}), "vxlan"),
        ("eu", json!({"weights": {"eu-9": 1}}), "there is no edge \"eu-9\""),
        ("eu", json!({"weights": {"us-1": 1}}), "us-1 is in us, and not in eu"),
        ("eu", json!({"weights": {"eu-1": 1001}}), "0 to 1000"),
        ("eu", json!({"colour": "green"}), "colour"),
        ("mars", json!({}), "no edge has joined in the region mars"),
        ("us", json!({"addresses": ["2001:db8::1"]}), "the site eu has the virtual address 2001:db8::1"),
        ("E%20U", json!({}), "region"),
    ] {
        let answer = api.send("PUT", &format!("/v1/balancers/{site}"), Some(&owner), Some(body(more.clone()))).await;
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{site} {more}: {}", answer.text);
        assert!(
            answer.text.contains(says) || answer.json()["detail"].as_str().unwrap().contains(says),
            "{}",
            answer.text
        );
    }
    assert_eq!(api.balancers.all().len(), 1);
    // Anycast brings packets to one address to two sites.
    let prefix = json!({"prefix": "198.51.100.0/24"});
    api.post("/v1/anycast/prefixes", Some(&owner), prefix).await.read::<AnycastPrefix>(StatusCode::CREATED);
    let us = json!({"addresses": ["198.51.100.1"]});
    let us = api.send("PUT", "/v1/balancers/us", Some(&owner), Some(body(us))).await;
    us.read::<Balancer>(StatusCode::OK);
}

#[tokio::test]
async fn one_machine_has_no_sites() {
    let api = Api::start().await;
    let owner = api.account("ann@example.com").await;
    let refused = api.send("PUT", EU, Some(&owner), Some(body(json!({})))).await;
    refused.assert_problem(StatusCode::CONFLICT, "one-machine");
}
