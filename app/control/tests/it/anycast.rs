//! Prefixes that edges announce, their neighbours, and orders about edges.

use http::StatusCode;
use sallyport_api::{AnycastOrder, AnycastPeer, AnycastPrefix, AnycastStatus, Page};
use sallyport_identity::{Purpose, Sealer};
use serde_json::json;

use crate::harness::Api;

const PREFIXES: &str = "/v1/anycast/prefixes";
const PEERS: &str = "/v1/anycast/peers";
const ORDERS: &str = "/v1/anycast/orders";

async fn installation() -> (Api, String) {
    let api = Api::start().await;
    let owner = api.account("ann@example.com").await;
    (api, owner)
}

#[tokio::test]
async fn an_owner_sets_up_a_prefix_and_edges_get_it() {
    let (api, owner) = installation().await;
    let made: AnycastPrefix =
        api.post(PREFIXES, Some(&owner), json!({"prefix": "198.51.100.0/24"})).await.read(StatusCode::CREATED);
    assert_eq!((made.prefix.as_str(), made.min_sites), ("198.51.100.0/24", 1));
    assert_eq!(made.addresses, ["198.51.100.1".parse::<std::net::IpAddr>().unwrap()], "the first host");
    let six = json!({
        "prefix": "2001:db8:1::/48", "addresses": ["2001:db8:1::5"], "communities": ["64500:1", "64500:1:2"],
        "regions": ["eu"], "min_sites": 2,
    });
    let six: AnycastPrefix = api.post(PREFIXES, Some(&owner), six).await.read(StatusCode::CREATED);
    assert!(six.notes.iter().any(|note| note.contains("one machine")), "{:?}", six.notes);
    let served = api.anycast.get();
    assert_eq!(served.prefixes.len(), 2);
    let page: Page<AnycastPrefix> = api.get(PREFIXES, Some(&owner)).await.read(StatusCode::OK);
    assert_eq!(page.items.len(), 2);
    // A restart publishes it again, before it serves.
    let api = api.restart().await;
    assert_eq!(*api.anycast.get(), *served);
    let gone = api.send("DELETE", &format!("{PREFIXES}/{}", made.id), Some(&owner), None).await;
    assert_eq!(gone.status, StatusCode::NO_CONTENT);
    assert_eq!(api.anycast.get().prefixes.len(), 1);
    let again = api.send("DELETE", &format!("{PREFIXES}/{}", made.id), Some(&owner), None).await;
    again.assert_problem(StatusCode::NOT_FOUND, "not-found");
}

#[tokio::test]
async fn bad_prefixes_are_refused_in_one_sentence() {
    let (api, owner) = installation().await;
    api.post(PREFIXES, Some(&owner), json!({"prefix": "198.51.101.0/24"}))
        .await
        .read::<AnycastPrefix>(StatusCode::CREATED);
    for (body, says) in [
        (json!({"prefix": "203.0.113.0/24"}), "not within a prefix of --anycast-allow"),
        (json!({"prefix": "0.0.0.0/0"}), "too short"),
        (json!({"prefix": "::/0"}), "too short"),
        (json!({"prefix": "127.0.0.0/24"}), "loopback"),
        (json!({"prefix": "fe80::/48"}), "link-local"),
        (json!({"prefix": "198.51.100.1/24"}), "bits after its length: use 198.51.100.0/24"),
        (json!({"prefix": "198.51.100.0/24; protocol static x {}"}), "is no prefix"),
        (json!({"prefix": "198.51.101.0/24"}), "already"),
        (json!({"prefix": "198.51.100.0/24", "addresses": []}), "no service address"),
        (json!({"prefix": "198.51.100.0/24", "addresses": ["198.51.101.1"]}), "not within"),
        (json!({"prefix": "198.51.100.0/24", "addresses": ["198.51.100.0"]}), "network or broadcast"),
        (json!({"prefix": "198.51.100.0/24", "addresses": ["198.51.100.1", "198.51.100.1"]}), "twice"),
        (json!({"prefix": "198.51.100.0/24", "addresses": vec!["198.51.100.1"; 17]}), "twice"),
        (json!({"prefix": "198.51.100.0/24", "addresses": ["x\ny"]}), "no address"),
        (json!({"prefix": "198.51.100.0/24", "communities": ["65536:1"]}), "is no community"),
        (json!({"prefix": "198.51.100.0/24", "communities": vec!["1:1"; 33]}), "at most 32"),
        (json!({"prefix": "198.51.100.0/24", "regions": ["eu; x"]}), "region"),
        (json!({"prefix": "198.51.100.0/24", "min_sites": 1001}), "at most 1000"),
    ] {
        let answer = api.post(PREFIXES, Some(&owner), body.clone()).await;
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{body}: {}", answer.text);
        assert!(answer.text.contains(says), "{body}: {}", answer.text);
    }
    assert_eq!(api.anycast.get().prefixes.len(), 1);
}

#[tokio::test]
async fn the_password_of_a_neighbour_comes_back_nowhere() {
    let (api, owner) = installation().await;
    let body = json!({
        "name": "transit-a", "place": "edge:mars-1", "address": "192.0.2.1", "remote_as": 64_500, "local_as": 64_501,
        "password": "hunter2-hunter2", "bfd": {"interval_ms": 100, "multiplier": 3}, "prepend": 2,
        "drain_communities": ["64500:70"], "no_export": true,
    });
    let answer = api.post(PEERS, Some(&owner), body).await;
    assert!(!answer.text.contains("hunter2"), "{}", answer.text);
    let made: AnycastPeer = answer.read(StatusCode::CREATED);
    assert!(made.has_password && made.role.as_deref() == Some("provider") && made.hops == 1);
    assert!(!made.notes.is_empty(), "a place without an edge is accepted and noted");
    let listed = api.get(PEERS, Some(&owner)).await;
    assert!(listed.text.contains("has_password") && !listed.text.contains("hunter2"), "{}", listed.text);
    // Neither the database nor the bus has it in the clear, and edges can read it.
    let stored = api.store.anycast().await.unwrap().config();
    let sealed = stored.peers[0].password.clone().unwrap();
    assert!(!sealed.contains("hunter2"));
    assert_eq!(api.anycast.get().config, stored);
    let secrets = sallyport_control::Secrets::open_or_create(api.dir.path()).unwrap();
    let opened: Option<String> = Sealer::new(secrets.derived("seal")).open(Purpose::RouterPassword, &sealed);
    assert_eq!(opened.as_deref(), Some("hunter2-hunter2"));
    let usual = json!({"name": "b", "address": "2001:db8::1", "remote_as": 64_500, "local_as": 64_501, "role": "none"});
    let usual: AnycastPeer = api.post(PEERS, Some(&owner), usual).await.read(StatusCode::CREATED);
    assert_eq!((usual.role, usual.place.as_str(), usual.has_password), (None, "everywhere", false));
    let gone = api.send("DELETE", &format!("{PEERS}/{}", made.id), Some(&owner), None).await;
    assert_eq!(gone.status, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn bad_neighbours_and_orders_are_refused() {
    let (api, owner) = installation().await;
    let peer = |more: serde_json::Value| {
        let mut peer = json!({"name": "a", "address": "192.0.2.1", "remote_as": 64_500, "local_as": 64_501});
        peer.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        peer
    };
    for (more, field) in [
        (json!({"name": "A"}), "name"),
        (json!({"name": "a\"; }"}), "name"),
        (json!({"address": "router.example.com"}), "address"),
        (json!({"address": "224.0.0.5"}), "address"),
        (json!({"remote_as": 0}), "remote_as"),
        (json!({"role": "friend"}), "role"),
        (json!({"place": "nowhere"}), "place"),
        (json!({"place": "region:a b"}), "place"),
        (json!({"password": "a\"; }"}), "password"),
        (json!({"password": ""}), "password"),
        (json!({"hops": 0}), "hops"),
        (json!({"bfd": {"interval_ms": 1, "multiplier": 3}}), "bfd"),
        (json!({"max_prefixes": 0}), "max_prefixes"),
        (json!({"prepend": 11}), "prepend"),
        (json!({"communities": ["1:2:3:4"]}), "communities"),
        (json!({"unknown": 1}), "unknown"),
    ] {
        let answer = api.post(PEERS, Some(&owner), peer(more.clone())).await;
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{more}: {}", answer.text);
        assert_eq!(answer.field(), field, "{more}: {}", answer.text);
    }
    api.post(PEERS, Some(&owner), peer(json!({}))).await.read::<AnycastPeer>(StatusCode::CREATED);
    for taken in [json!({}), json!({"name": "b"})] {
        let answer = api.post(PEERS, Some(&owner), peer(taken)).await;
        answer.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "anycast-taken");
    }
    for bad in [json!({"place": "x", "kind": "drain"}), json!({"place": "everywhere", "kind": "stop"})] {
        let answer = api.post(ORDERS, Some(&owner), bad).await;
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{}", answer.text);
    }
}

#[tokio::test]
async fn an_order_replaces_the_former_one_and_status_says_what_is_missing() {
    let (api, owner) = installation().await;
    let order = |kind: &str| json!({"place": "everywhere", "kind": kind});
    api.post(ORDERS, Some(&owner), order("maintain")).await.read::<AnycastOrder>(StatusCode::CREATED);
    let drain: AnycastOrder = api.post(ORDERS, Some(&owner), order("drain")).await.read(StatusCode::CREATED);
    let orders: Page<AnycastOrder> = api.get(ORDERS, Some(&owner)).await.read(StatusCode::OK);
    assert_eq!(orders.items.iter().map(|order| order.id).collect::<Vec<_>>(), [drain.id]);
    assert_eq!(api.anycast.get().orders.len(), 1);
    let status: AnycastStatus = api.get("/v1/anycast/status", Some(&owner)).await.read(StatusCode::OK);
    assert!(status.notes[0].contains("anycast prefix add"), "{:?}", status.notes);
    api.post(PREFIXES, Some(&owner), json!({"prefix": "198.51.100.0/24"})).await;
    let status: AnycastStatus = api.get("/v1/anycast/status", Some(&owner)).await.read(StatusCode::OK);
    assert!(status.notes.iter().any(|note| note.contains("--bird")), "{:?}", status.notes);
    assert_eq!(api.get("/v1/anycast/preview", Some(&owner)).await.status, StatusCode::OK);
    assert_eq!(api.get("/v1/anycast/explain", Some(&owner)).await.status, StatusCode::OK);
    for bad in ["?prefix=x", "?prefix=198.51.102.0/24", "?colour=red"] {
        let answer = api.get(&format!("/v1/anycast/explain{bad}"), Some(&owner)).await;
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{bad}: {}", answer.text);
    }
    let gone = api.send("DELETE", &format!("{ORDERS}/{}", drain.id), Some(&owner), None).await;
    assert_eq!(gone.status, StatusCode::NO_CONTENT);
    assert!(api.anycast.get().orders.is_empty());
}

#[tokio::test]
async fn a_repeated_request_with_a_key_makes_one_prefix() {
    let (api, owner) = installation().await;
    let mut ids = Vec::new();
    for _ in 0..2 {
        let body = json!({"prefix": "198.51.100.0/24"});
        let answer = api.post_keyed(PREFIXES, &owner, "once", body).await;
        ids.push(answer.read::<AnycastPrefix>(StatusCode::CREATED).id);
    }
    assert_eq!(ids[0], ids[1]);
}
