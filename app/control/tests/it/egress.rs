//! Egress addresses, the leases of their slices, and the geofeed.

use std::time::{Duration, Instant};

use http::StatusCode;
use sallyport_api::{EgressAddress, EgressSlice, EgressSliceState, Page};
use sallyport_control::LONE_EDGE;
use sallyport_model::EdgeId;
use sallyport_ports::{Lease, Phase, Slice, SliceUse, UseState};
use serde_json::{Value, json};

use crate::harness::Api;

const ADDRESSES: &str = "/v1/egress/addresses";
const SLICES: &str = "/v1/egress/slices";
/// How long a change may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

async fn installation() -> (Api, String) {
    let api = Api::start().await;
    let owner = api.account("ann@example.com").await;
    (api, owner)
}

async fn add(api: &Api, owner: &str, body: Value) -> EgressAddress {
    api.post(ADDRESSES, Some(owner), body).await.read(StatusCode::CREATED)
}

async fn slices(api: &Api, owner: &str) -> Vec<EgressSlice> {
    api.get(SLICES, Some(owner)).await.read::<Page<EgressSlice>>(StatusCode::OK).items
}

/// Waits until the published leases are so.
async fn leases(api: &Api, is_so: impl Fn(&[Lease]) -> bool) -> Vec<Lease> {
    let began = Instant::now();
    loop {
        let config = api.egress.get();
        if is_so(&config.leases) {
            return config.leases.clone();
        }
        assert!(began.elapsed() < PATIENCE, "{:?}", config.leases);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn used(lease: &Lease, state: UseState, has_flows: bool) -> SliceUse {
    SliceUse { address: lease.address, slice: lease.slice, term: lease.term, state, has_flows, problem: None }
}

/// A lease of a machine that is no edge of this installation.
async fn lease_of_another(api: &Api, slice: u8, phase: Phase) -> Lease {
    let lease = Lease {
        address: "198.51.100.7".parse().unwrap(),
        slice: Slice::try_from(slice).unwrap(),
        machine: EdgeId::from_random([9; 16]),
        term: 1,
        lasts_seconds: 3_600,
        phase,
    };
    assert!(api.store.put_egress_lease(&lease, None).await.unwrap());
    lease
}

#[tokio::test]
async fn an_owner_adds_an_address_and_gives_the_edge_a_slice() {
    let (api, owner) = installation().await;
    let tags = json!({
        "address": "198.51.100.7", "country": "ch", "subdivision": "CH-ZH", "city": "Zürich", "site": "local",
        "purposes": ["origins"],
    });
    let made = add(&api, &owner, tags).await;
    assert_eq!((made.country.as_deref(), made.slices, made.free_slices), (Some("CH"), 0, 31));
    assert!(made.notes[0].contains("sallyport egress slice add 198.51.100.7"), "{:?}", made.notes);
    let body = json!({"address": "198.51.100.7", "edge": "edge", "slice": 3});
    let slice: EgressSlice = api.post(SLICES, Some(&owner), body).await.read(StatusCode::CREATED);
    assert_eq!((slice.id.as_str(), slice.first_port, slice.last_port), ("198.51.100.7-3", 6_144, 8_191));
    assert_eq!(
        (slice.edge.as_str(), slice.site.as_deref(), slice.state),
        ("edge", Some("local"), EgressSliceState::Held)
    );
    // The first free one: slice 0 has the ports of services.
    let six = add(&api, &owner, json!({"address": "2001:db8::7"})).await;
    let body = json!({"address": "2001:db8:0::7", "edge": LONE_EDGE});
    let other: EgressSlice = api.post(SLICES, Some(&owner), body).await.read(StatusCode::CREATED);
    assert_eq!((other.id.as_str(), other.first_port), ("2001:db8::7-1", 2_048));
    assert_eq!(api.egress.get().addresses.len(), 2);
    let known = slices(&api, &owner).await;
    assert_eq!(known.len(), 2);
    assert!(known[0].notes[0].contains("does not know of the lease yet"), "{:?}", known[0].notes);
    // A restart publishes it again, before it serves.
    let served = api.egress.get();
    let api = api.restart().await;
    assert_eq!(*api.egress.get(), *served);
    let in_use = api.send("DELETE", &format!("{ADDRESSES}/{}", six.address), Some(&owner), None).await;
    in_use.assert_problem(StatusCode::CONFLICT, "address-in-use");
}

#[tokio::test]
async fn bad_input_is_refused_in_one_sentence() {
    let (api, owner) = installation().await;
    add(&api, &owner, json!({"address": "198.51.100.7"})).await;
    for (body, says) in [
        (json!({"address": "x"}), "is no address"),
        (json!({"address": "198.51.100.0/24"}), "is no address"),
        (json!({"address": "127.0.0.1"}), "no address that machines can share"),
        (json!({"address": "198.51.100.8", "country": "ZZ"}), "is not a country"),
        (json!({"address": "198.51.100.8", "country": "Switzerland"}), "is not a country"),
        (json!({"address": "198.51.100.8", "country": "CH", "subdivision": "DE-BE"}), "is no subdivision"),
        (json!({"address": "198.51.100.8", "city": "a,b"}), "is no name of a city"),
        (json!({"address": "198.51.100.8", "purposes": ["A"]}), "is no purpose"),
        (json!({"address": "198.51.100.8", "site": "EU!"}), "is no name of"),
    ] {
        let answer = api.post(ADDRESSES, Some(&owner), body.clone()).await;
        answer.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
        assert!(answer.text.contains(says), "{body}: {}", answer.text);
    }
    let twice = api.post(ADDRESSES, Some(&owner), json!({"address": "198.51.100.7"})).await;
    twice.assert_problem(StatusCode::CONFLICT, "egress-taken");
    for (body, says) in [
        (json!({"address": "198.51.100.9", "edge": "edge"}), "is no egress address: add it first"),
        (json!({"address": "198.51.100.7", "edge": "eu-1"}), "there is no edge"),
        (json!({"address": "198.51.100.7", "edge": "edge", "slice": 0}), "is no slice: use 1 to 31"),
        (json!({"address": "198.51.100.7", "edge": "edge", "slice": 32}), "is no slice: use 1 to 31"),
    ] {
        let answer = api.post(SLICES, Some(&owner), body.clone()).await;
        answer.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
        assert!(answer.text.contains(says), "{body}: {}", answer.text);
    }
    for id in ["198.51.100.7-4", "198.51.100.7-0", "198.51.100.7", "x-1", "198.51.100.9-1"] {
        let gone = api.send("DELETE", &format!("{SLICES}/{id}"), Some(&owner), None).await;
        gone.assert_problem(StatusCode::NOT_FOUND, "not-found");
        let gone = api.post(&format!("{SLICES}/{id}/move"), Some(&owner), json!({"edge": "edge"})).await;
        gone.assert_problem(StatusCode::NOT_FOUND, "not-found");
    }
    let long = api.send("DELETE", &format!("{SLICES}/198.51.100.7-4?within_seconds=86401"), Some(&owner), None).await;
    long.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
    let unknown = api.send("DELETE", &format!("{SLICES}/198.51.100.7-4?force=1"), Some(&owner), None).await;
    unknown.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-query");
    let gone = api.send("DELETE", &format!("{ADDRESSES}/198.51.100.9"), Some(&owner), None).await;
    gone.assert_problem(StatusCode::NOT_FOUND, "not-found");
}

#[tokio::test]
async fn two_machines_never_get_one_slice() {
    let (api, owner) = installation().await;
    add(&api, &owner, json!({"address": "198.51.100.7"})).await;
    lease_of_another(&api, 3, Phase::Held).await;
    let body = json!({"address": "198.51.100.7", "edge": "edge", "slice": 3});
    let taken = api.post(SLICES, Some(&owner), body).await;
    taken.assert_problem(StatusCode::CONFLICT, "slice-taken");
    assert!(taken.text.contains("slice 3 of 198.51.100.7 is at the edge"), "{}", taken.text);
    // Thirty are left, whoever asks first.
    for number in 0..30 {
        let body = json!({"address": "198.51.100.7", "edge": "edge"});
        let slice: EgressSlice = api.post(SLICES, Some(&owner), body).await.read(StatusCode::CREATED);
        assert_ne!(slice.slice, 3, "{number}");
    }
    let full = api.post(SLICES, Some(&owner), json!({"address": "198.51.100.7", "edge": "edge"})).await;
    full.assert_problem(StatusCode::CONFLICT, "no-slice-free");
    // The slice of a machine that was removed is its own until an operator says that the machine is off.
    let known = slices(&api, &owner).await;
    let lost = known.iter().find(|slice| slice.slice == 3).unwrap();
    assert!(lost.notes[0].contains("--is-off"), "{:?}", lost.notes);
    let path = format!("{SLICES}/198.51.100.7-3");
    let moving: EgressSlice =
        api.post(&format!("{path}/move"), Some(&owner), json!({"edge": "edge"})).await.read(StatusCode::OK);
    assert_eq!((moving.state, moving.next_edge.as_deref()), (EgressSliceState::Moving, Some("edge")));
    assert_eq!(moving.edge_id, EdgeId::from_random([9; 16]).uuid(), "its packets go to the former machine");
    let off = json!({"edge": "edge", "is_off": true});
    let moved: EgressSlice = api.post(&format!("{path}/move"), Some(&owner), off).await.read(StatusCode::OK);
    assert_eq!((moved.state, moved.edge.as_str(), moved.term), (EgressSliceState::Held, "edge", 2));
    let again = api.post(&format!("{path}/move"), Some(&owner), json!({"edge": "edge"})).await;
    again.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
}

#[tokio::test]
async fn a_slice_in_use_is_free_only_when_its_edge_has_stopped() {
    let (api, owner) = installation().await;
    add(&api, &owner, json!({"address": "198.51.100.7"})).await;
    let body = json!({"address": "198.51.100.7", "edge": "edge"});
    api.post(SLICES, Some(&owner), body.clone()).await.read::<EgressSlice>(StatusCode::CREATED);
    let held = leases(&api, |leases| leases.len() == 1).await.remove(0);
    api.egress.report(vec![used(&held, UseState::Open, false)]);
    assert_eq!(slices(&api, &owner).await[0].is_open, Some(true));
    let path = format!("{SLICES}/198.51.100.7-1");
    assert_eq!(api.send("DELETE", &path, Some(&owner), None).await.status, StatusCode::NO_CONTENT);
    let releasing = slices(&api, &owner).await;
    assert_eq!(releasing[0].state, EgressSliceState::Releasing);
    api.post(SLICES, Some(&owner), json!({"address": "198.51.100.7", "edge": "edge", "slice": 1}))
        .await
        .assert_problem(StatusCode::CONFLICT, "slice-taken");
    // The edge has stopped opening connections, and has some open.
    api.egress.report(vec![used(&held, UseState::Closed, true)]);
    let draining = leases(&api, |leases| matches!(leases[0].phase, Phase::Draining { .. })).await;
    assert_eq!(draining[0].receiver(), Some(LONE_EDGE));
    api.egress.report(vec![used(&held, UseState::Closed, false)]);
    leases(&api, |leases| leases[0].phase == Phase::Free).await;
    assert_eq!(slices(&api, &owner).await, []);
    let next: EgressSlice = api.post(SLICES, Some(&owner), body).await.read(StatusCode::CREATED);
    assert_eq!((next.slice, next.term), (1, 2));
    // An edge that started anew says that it does not trust the lease, and gets the next one.
    let anew = leases(&api, |leases| leases[0].term == 2).await.remove(0);
    api.egress.report(vec![used(&anew, UseState::Closed, false)]);
    leases(&api, |leases| leases[0].term == 3).await;
    let off = api.send("DELETE", &format!("{path}?is_off=true"), Some(&owner), None).await;
    assert_eq!(off.status, StatusCode::NO_CONTENT);
    let gone = api.send("DELETE", &format!("{ADDRESSES}/198.51.100.7"), Some(&owner), None).await;
    assert_eq!(gone.status, StatusCode::NO_CONTENT);
    assert!(api.egress.get().addresses.is_empty());
}

#[tokio::test]
async fn what_an_edge_cannot_use_is_a_note_of_the_slice() {
    let (api, owner) = installation().await;
    add(&api, &owner, json!({"address": "198.51.100.7", "site": "us"})).await;
    let body = json!({"address": "198.51.100.7", "edge": "edge"});
    api.post(SLICES, Some(&owner), body).await.read::<EgressSlice>(StatusCode::CREATED);
    let lease = api.egress.get().leases[0].clone();
    let problem = Some("its ports are not within ip_local_port_range".to_owned());
    api.egress.report(vec![SliceUse { problem, ..used(&lease, UseState::Open, false) }]);
    let slice = slices(&api, &owner).await.remove(0);
    assert_eq!(slice.is_open, Some(false));
    assert!(slice.notes[0].contains("ip_local_port_range"), "{:?}", slice.notes);
    assert!(slice.notes[1].contains("come to the site us, and the edge is in local"), "{:?}", slice.notes);
}

#[tokio::test]
async fn everybody_reads_the_geofeed() {
    let (api, owner) = installation().await;
    add(&api, &owner, json!({"address": "2001:db8::7", "country": "US"})).await;
    let zurich = json!({"address": "198.51.100.7", "country": "CH", "subdivision": "CH-ZH", "city": "Zürich"});
    add(&api, &owner, zurich).await;
    add(&api, &owner, json!({"address": "198.51.100.8"})).await;
    let feed = api.get("/geofeed.csv", None).await;
    assert_eq!(
        (feed.status, &feed.headers["content-type"]),
        (StatusCode::OK, &"text/csv; charset=utf-8".parse().unwrap())
    );
    let lines: Vec<_> = feed.text.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(lines, ["198.51.100.7/32,CH,CH-ZH,Zürich,", "2001:db8::7/128,US,,,"]);
}
