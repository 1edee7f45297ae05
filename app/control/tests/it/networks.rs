//! Networks of machines: ranges, leases, policies, and what edges are told.

use std::collections::BTreeSet;

use http::StatusCode;
use sallyport_api::{CreatedMachine, Machine, Network, NetworkPolicy, Page};
use serde_json::{Value, json};

use crate::harness::{Api, HttpResponse};

const NETWORKS: &str = "/v1/networks";
const MACHINES: &str = "/v1/networks/office/machines";
const POLICY: &str = "/v1/networks/office/policy";

const PING: &str = "network = \"office\"\n[[allow]]\nname = \"ping\"\nfrom = [\"web\"]\nservices = [\"icmp\"]\n";

async fn office() -> (Api, String) {
    let api = Api::start().await;
    let owner = api.account("ann@example.com").await;
    let made = json!({"name": "office", "ranges": ["10.20.0.0/29", "fd00:20::/64"]});
    let made: Network = api.post(NETWORKS, Some(&owner), made).await.read(StatusCode::CREATED);
    assert_eq!((made.name.as_str(), made.machines, made.has_policy), ("office", 0, false));
    assert_eq!(made.organisation.to_string(), api.id_of(&owner).await);
    (api, owner)
}

async fn add(api: &Api, owner: &str, body: Value) -> CreatedMachine {
    api.post(MACHINES, Some(owner), body).await.read(StatusCode::CREATED)
}

async fn set_policy(api: &Api, owner: &str, document: &str, force: bool) -> HttpResponse {
    api.send("PUT", POLICY, Some(owner), Some(json!({"document": document, "force": force}))).await
}

#[tokio::test]
async fn edges_know_a_machine_before_its_credential_is_shown() {
    let (api, owner) = office().await;
    let body = json!({"name": "gate", "groups": ["web"], "routes": ["10.30.0.0/16"], "is_exit": true});
    let gate = add(&api, &owner, body).await;
    let addresses: Vec<_> = gate.details.addresses.iter().map(ToString::to_string).collect();
    assert_eq!(addresses, ["10.20.0.1", "fd00:20::1"]);
    assert!(gate.credential.expose().starts_with("spm_"));
    assert_eq!((gate.network.machines, gate.network.domain.starts_with("office.")), (1, true));
    let known = api.networks.all();
    let [network] = known.as_slice() else { panic!("{known:?}") };
    let machine = &network.machines[0];
    assert_eq!(api.networks.of_machine(machine.id).unwrap().id, network.id);
    assert_eq!((machine.id.uuid(), machine.is_exit), (gate.details.id, true));
    let of_office: Page<Machine> = api.get(MACHINES, Some(&owner)).await.read(StatusCode::OK);
    assert_eq!(of_office.items, std::slice::from_ref(&gate.details));
    let one: Machine = api.get(&format!("{MACHINES}/{}", gate.details.id), Some(&owner)).await.read(StatusCode::OK);
    assert_eq!(one, gate.details);
    // A restart publishes it again, before it serves.
    let api = api.restart().await;
    assert_eq!(api.networks.all()[0].machines.len(), 1);
    let owner = api.login("ann@example.com").await.access_token.expose().to_owned();
    assert_eq!(
        api.send("DELETE", &format!("{MACHINES}/gate"), Some(&owner), None).await.status,
        StatusCode::NO_CONTENT
    );
    assert!(api.networks.all()[0].machines.is_empty());
    let next = add(&api, &owner, json!({"name": "gate"})).await;
    assert_eq!(next.details.addresses[0].to_string(), "10.20.0.2", "a freed address is leased last");
}

#[tokio::test]
async fn a_network_without_ranges_gets_free_ones_and_goes_with_its_machines_only_by_force() {
    let (api, owner) = office().await;
    let made: Network = api.post(NETWORKS, Some(&owner), json!({"name": "shop"})).await.read(StatusCode::CREATED);
    assert!(made.ranges[0].ends_with("/24") && made.ranges[1].starts_with("fd"), "{:?}", made.ranges);
    let all: Page<Network> = api.get(NETWORKS, Some(&owner)).await.read(StatusCode::OK);
    assert_eq!(all.items.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["office", "shop"]);
    add(&api, &owner, json!({"name": "gate"})).await;
    let delete = |query: &'static str| {
        let (api, owner) = (&api, &owner);
        async move { api.send("DELETE", &format!("{NETWORKS}/office{query}"), Some(owner), None).await }
    };
    let said = delete("").await.assert_problem(StatusCode::CONFLICT, "network-in-use");
    assert!(said.contains("machines (1)"), "{said}");
    delete("?forced=1").await.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-query");
    assert_eq!(delete("?force=true").await.status, StatusCode::NO_CONTENT);
    assert_eq!(delete("?force=true").await.status, StatusCode::NOT_FOUND);
    assert_eq!(api.networks.all().len(), 1);
}

#[tokio::test]
async fn a_policy_fits_the_machines_and_reaches_edges() {
    let (api, owner) = office().await;
    let early =
        set_policy(&api, &owner, PING, false).await.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
    assert!(early.contains("the rule ping names web, which is no endpoint"), "{early}");
    let set: NetworkPolicy = set_policy(&api, &owner, PING, true).await.read(StatusCode::OK);
    assert_eq!((set.rules, set.document.as_str()), (1, PING));
    assert_eq!(api.networks.all()[0].policy.as_deref(), Some(PING));
    add(&api, &owner, json!({"name": "web-1", "groups": ["web"]})).await;
    assert_eq!(set_policy(&api, &owner, PING, false).await.status, StatusCode::OK);
    for (document, words) in [
        ("", "missing field `network`"),
        (&PING.replace("office", "shop"), "this network is office"),
        (&PING.replace("icmp", "tcp/0"), "line 5"),
        (&format!("{PING}[[endpoint]]\nname = \"x\"\naddresses = [\"10.20.0.1\"]\n"), "leave [[endpoint]] out"),
        (&format!("{PING}#{}", "x".repeat(48 * 1024)), "at most 49152 are allowed"),
    ] {
        let said = set_policy(&api, &owner, document, true).await;
        let said = said.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
        assert!(said.contains(words), "{said}");
    }
    let got: NetworkPolicy = api.get(POLICY, Some(&owner)).await.read(StatusCode::OK);
    assert_eq!(got, set);
    assert_eq!(api.send("DELETE", POLICY, Some(&owner), None).await.status, StatusCode::NO_CONTENT);
    assert_eq!(api.get(POLICY, Some(&owner)).await.status, StatusCode::NOT_FOUND);
    assert_eq!(api.networks.all()[0].policy, None);
}

#[tokio::test]
async fn bad_input_gets_a_sentence_and_leases_nothing() {
    let (api, owner) = office().await;
    add(&api, &owner, json!({"name": "gate", "routes": ["10.30.0.0/16"], "groups": ["web"]})).await;
    let invalid = (StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
    for (path, body, (status, code), words) in [
        (NETWORKS, json!({"name": "Office"}), invalid, "is no name"),
        (NETWORKS, json!({"name": "x", "ranges": []}), invalid, "needs a range"),
        (NETWORKS, json!({"name": "x", "ranges": ["10.0.0.0/24", "10.1.0.0/24"]}), invalid, "of one family"),
        (NETWORKS, json!({"name": "x", "ranges": ["10.0.0.1/24"]}), invalid, "bits behind its prefix"),
        (NETWORKS, json!({"name": "x", "ranges": ["127.0.0.0/8"]}), invalid, "never leaves a machine"),
        (NETWORKS, json!({"name": "office"}), (StatusCode::CONFLICT, "name-taken"), "another network has the name"),
        (
            NETWORKS,
            json!({"name": "x", "ranges": ["10.0.0.0/8"]}),
            (StatusCode::CONFLICT, "range-taken"),
            "10.20.0.0/29 of the network office",
        ),
        (MACHINES, json!({"name": "gate"}), (StatusCode::CONFLICT, "name-taken"), "in the network already"),
        (MACHINES, json!({"name": "web"}), (StatusCode::CONFLICT, "name-taken"), "of a machine and of a group"),
        (MACHINES, json!({"name": "x", "routes": ["10.20.0.0/16"]}), invalid, "the range 10.20.0.0/29 of the network"),
        (MACHINES, json!({"name": "x", "routes": ["10.30.1.0/24"]}), invalid, "10.30.0.0/16 of gate"),
        (MACHINES, json!({"name": "x", "routes": ["0.0.0.0/0"]}), invalid, "every address is in it"),
        (MACHINES, json!({"name": "x", "groups": ["We b"]}), invalid, "is no name"),
        (MACHINES, json!({"name": "x", "exit": true}), invalid, "exit"),
    ] {
        let said = api.post(path, Some(&owner), body.clone()).await.assert_problem(status, code);
        assert!(said.contains(words), "{body}: {said}");
    }
    assert_eq!(api.networks.all()[0].machines.len(), 1);
    let stranger = api.account("bob@example.com").await;
    assert_eq!(api.get(MACHINES, Some(&stranger)).await.status, StatusCode::NOT_FOUND);
    let by_id = format!("{NETWORKS}/{}", api.networks.all()[0].id);
    assert_eq!(api.get(&by_id, Some(&stranger)).await.status, StatusCode::NOT_FOUND);
    assert_eq!(api.get(&by_id, Some(&owner)).await.status, StatusCode::OK);
}

#[tokio::test]
async fn what_policies_and_others_go_by_needs_the_right_to_set_policies() {
    let (api, owner) = office().await;
    let scopes = json!({"name": "ci", "scopes": ["sockets:write", "sockets:read"]});
    let token: Value = api.post("/v1/tokens", Some(&owner), scopes).await.read(StatusCode::CREATED);
    let token = token["token"].as_str().unwrap();
    for body in [
        json!({"name": "x", "groups": ["web"]}),
        json!({"name": "x", "routes": ["10.30.0.0/16"]}),
        json!({"name": "x", "is_exit": true}),
    ] {
        let refused = api.post(MACHINES, Some(token), body).await;
        refused.assert_problem(StatusCode::FORBIDDEN, "missing-scope");
    }
    let plain = json!({"name": "x", "groups": [], "routes": []});
    assert_eq!(api.post(MACHINES, Some(token), plain).await.status, StatusCode::CREATED);
    add(&api, &owner, json!({"name": "gate", "is_exit": true})).await;
    let second = api.post(MACHINES, Some(&owner), json!({"name": "other", "is_exit": true})).await;
    let said = second.assert_problem(StatusCode::CONFLICT, "exit-taken");
    assert!(said.contains("gate is the exit"), "{said}");
}

#[tokio::test]
async fn members_remove_their_own_machines_and_those_that_set_policies_remove_any() {
    let (api, owner) = office().await;
    let id = api.id_of(&owner).await;
    let [bob, eve] = [
        api.member(&owner, &id, "bob@example.com", "member").await,
        api.member(&owner, &id, "eve@example.com", "member").await,
    ];
    let asked = async |method, path: &str, token: &str, body| api.send_for(method, path, token, &id, body).await;
    for name in ["one", "two"] {
        let made = asked("POST", MACHINES, &bob, Some(json!({"name": name}))).await;
        assert_eq!(made.status, StatusCode::CREATED, "{}", made.text);
    }
    let (one, all) = (format!("{MACHINES}/one"), format!("{NETWORKS}/office?force=true"));
    for path in [&one, &all] {
        asked("DELETE", path, &eve, None).await.assert_problem(StatusCode::FORBIDDEN, "missing-role");
    }
    let token = api.api_token(&owner, &["sockets:write"]).await;
    asked("DELETE", &one, &token, None).await.assert_problem(StatusCode::FORBIDDEN, "missing-scope");
    assert_eq!(api.networks.all()[0].machines.len(), 2);
    assert_eq!(asked("DELETE", &one, &bob, None).await.status, StatusCode::NO_CONTENT);
    assert_eq!(asked("DELETE", &format!("{MACHINES}/two"), &owner, None).await.status, StatusCode::NO_CONTENT);
    // Who has added all machines, removes the network with them.
    assert_eq!(asked("POST", MACHINES, &bob, Some(json!({"name": "one"}))).await.status, StatusCode::CREATED);
    assert_eq!(asked("DELETE", &all, &bob, None).await.status, StatusCode::NO_CONTENT);
    assert!(api.networks.all().is_empty());
}

#[tokio::test]
async fn machines_that_join_at_once_share_no_address_and_a_key_makes_one_machine() {
    let (api, owner) = office().await;
    let join = |number: usize| {
        let (api, owner) = (&api, &owner);
        async move { api.post(MACHINES, Some(owner), json!({"name": format!("m{number}")})).await }
    };
    let joined = tokio::join!(join(1), join(2), join(3), join(4), join(5));
    let joined = [joined.0, joined.1, joined.2, joined.3, joined.4];
    let addresses: BTreeSet<_> =
        joined.iter().flat_map(|joined| joined.read::<CreatedMachine>(StatusCode::CREATED).details.addresses).collect();
    assert_eq!(addresses.len(), 10);
    let body = json!({"name": "m6"});
    assert_eq!(api.post_keyed(MACHINES, &owner, "key", body.clone()).await.status, StatusCode::CREATED);
    let again = api.post_keyed(MACHINES, &owner, "key", body).await;
    again.assert_problem(StatusCode::CONFLICT, "secret-already-shown");
    let full = join(7).await.assert_problem(StatusCode::CONFLICT, "network-full");
    assert!(full.contains("every address of 10.20.0.0/29 is leased"), "{full}");
}
