//! Dials of regions for DNS, and what control publishes to steer the name server.

use std::time::Duration;

use http::StatusCode;
use sallyport_api::{AnycastAnswers, AnycastDials, AnycastResolution};
use sallyport_catchment::{Prefix, Row, Source};
use sallyport_model::EdgeId;
use sallyport_store::{JoiningEdge, NewEdgeToken};
use serde_json::{Value, json};

use crate::harness::Api;

const DIALS: &str = "/v1/anycast/dials";

/// A control with a name server, an owner, and edges in eu and us that have joined.
async fn installation() -> (Api, String) {
    let api = Api::start().await.restart_with_name_server().await;
    let owner = api.account("ann@example.com").await;
    for (number, region) in [(1_u8, "eu"), (2, "us")] {
        // Later than what is removed.
        let now = 4_000_000_000;
        let hash = [number; 32];
        let token = NewEdgeToken { hash, name: None, region: None, created_at: now, expires_at: now + 60 };
        api.store.create_edge_token(&token).await.unwrap();
        let name = Some(format!("{region}-1").parse().unwrap());
        let id = EdgeId::from_random([number; 16]);
        let joining = JoiningEdge { id, name, region: Some(region.parse().unwrap()), now };
        api.store.join_edge(hash, &joining).await.unwrap().unwrap();
    }
    (api, owner)
}

async fn set(api: &Api, owner: &str, body: Value) -> AnycastDials {
    api.send("PUT", DIALS, Some(owner), Some(body)).await.read(StatusCode::OK)
}

async fn resolve(api: &Api, owner: &str, query: &str) -> AnycastResolution {
    api.get(&format!("/v1/anycast/resolve?{query}"), Some(owner)).await.read(StatusCode::OK)
}

#[tokio::test]
async fn dials_are_kept_and_published() {
    let (api, owner) = installation().await;
    let none: AnycastDials = api.get(DIALS, Some(&owner)).await.read(StatusCode::OK);
    assert_eq!((none.dials.len(), none.is_steering, none.answers), (0, true, AnycastAnswers::Edges));
    let dials = set(&api, &owner, json!({"dials": {"eu": {"dial": 50, "share": 80}, "mars": {}}})).await;
    assert_eq!((dials.dials["eu"].dial, dials.dials["eu"].share, dials.dials["mars"].dial), (50, 80, 100));
    assert!(dials.notes.iter().any(|note| note.contains("one machine")), "{:?}", dials.notes);
    let eu = "eu".parse().unwrap();
    let published = |api: &Api| api.dns_steering.get(0).unwrap().regions[&eu].clone();
    assert_eq!((published(&api).dial, published(&api).share), (50, 80));
    // A restart publishes them again, before it serves.
    let api = api.restart_with_name_server().await;
    assert_eq!(published(&api).dial, 50);
    // Without a name server, nothing steers.
    let api = api.restart().await;
    assert_eq!(api.dns_steering.all().len(), 0);
    let off: AnycastDials = api.get(DIALS, Some(&owner)).await.read(StatusCode::OK);
    assert!(!off.is_steering && off.notes[0].contains("--name-server"), "{off:?}");
}

#[tokio::test]
async fn dials_that_leave_nothing_or_mean_nothing_are_refused() {
    let (api, owner) = installation().await;
    for (body, says) in [
        (json!({"dials": {"eu": {"dial": 0}, "us": {"share": 0}}}), "dials: the dials of all regions"),
        (json!({"dials": {"eu": {"dial": 101}}}), "0 to 100 percent"),
        (json!({"dials": {"eu": {"dial": -1}}}), "dial"),
        (json!({"dials": {"EU": {"dial": 1}}}), "region"),
        (json!({"dials": {"eu": {"dail": 1}}}), "dail"),
        (json!({}), "dials"),
    ] {
        let refused = api.send("PUT", DIALS, Some(&owner), Some(body.clone())).await;
        let detail = refused.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
        assert!(detail.contains(says), "{body}: {detail}");
    }
    let many: serde_json::Map<String, Value> = (0..65).map(|n| (format!("r{n}"), json!({"dial": 1}))).collect();
    let refused = api.send("PUT", DIALS, Some(&owner), Some(json!({"dials": many}))).await;
    let detail = refused.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
    assert!(detail.contains("at most 64"), "{detail}");
    // One that stays above 0 is enough.
    set(&api, &owner, json!({"dials": {"eu": {"dial": 0}, "mars": {"dial": 0}}})).await;
}

#[tokio::test]
async fn what_was_measured_becomes_rankings_of_regions_that_have_edges() {
    let (api, owner) = installation().await;
    let now = api.clock.unix_seconds();
    let row = |address: &str, site: &str, ms| Row {
        round_trip: Some(Duration::from_millis(ms)),
        requests: 100,
        ..Row::new(Prefix::of(address.parse().unwrap()), site.parse().unwrap(), Source::Ping, now)
    };
    let rows = [
        row("20.0.0.1", "eu", 10),
        row("20.0.0.1", "us", 90),
        row("20.0.1.1", "us", 10),
        row("20.0.2.1", "mars", 1),
        Row { seen: now - 100_000, ..row("20.0.3.1", "eu", 1) },
    ];
    api.store.put_catchment(&rows).await.unwrap();
    assert_eq!(api.dns_steering.all().len(), 1, "it is made anew every 30 seconds");
    let dials = set(&api, &owner, json!({"dials": {}})).await;
    assert_eq!(dials.networks, 2, "nobody has edges on mars, and old rows do not count");
    let mut rankings: Vec<String> = Vec::new();
    for part in api.dns_steering.all() {
        for one in &part.networks {
            let names = part.rankings[usize::from(one.1)].iter().map(|at| part.names[usize::from(*at)].as_str());
            rankings.push(format!("{} {} {}", one.0, names.collect::<Vec<_>>().join(" "), one.2));
        }
    }
    rankings.sort();
    assert_eq!(rankings, ["20.0.0.0/24 eu us 128", "20.0.1.0/24 us eu 64"], "who was not measured comes last");
}

#[tokio::test]
async fn control_says_why_a_client_is_not_steered() {
    let (api, owner) = installation().await;
    let found = resolve(&api, &owner, "client=192.0.2.7").await;
    assert!(found.region.is_none() && found.why.contains("nothing was measured yet"), "{found:?}");
    assert_eq!(found.client, "192.0.2.7/32");
    let found = resolve(&api, &owner, "client=192.0.2.7&name=www.elsewhere.example").await;
    assert!(found.why.contains("in no zone"), "{found:?}");
    for query in ["client=nonsense", "client=192.0.2.7&resolver=x"] {
        let refused = api.get(&format!("/v1/anycast/resolve?{query}"), Some(&owner)).await;
        refused.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
    }
    for query in ["", "client=192.0.2.7&resolve=x"] {
        let refused = api.get(&format!("/v1/anycast/resolve?{query}"), Some(&owner)).await;
        refused.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-query");
    }
}
