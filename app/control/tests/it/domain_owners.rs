//! Domains, certificates and zones when their organisation goes, or another one proves the name.

use http::StatusCode;
use sallyport_api::{Certificate, Domain, DomainState, Socket, Zone, ZoneRecord};
use sallyport_model::CertificateId;
use sallyport_store::{IssuedChain, WantedCertificate};
use serde_json::{Value, json};

use crate::{
    domains::{NameService, add, api_with, proof_line},
    harness::{Api, HttpResponse},
};

const NAME: &str = "example.org";

async fn check(api: &Api, token: &str) -> Domain {
    api.send("POST", &format!("/v1/domains/{NAME}/check"), Some(token), None).await.read(StatusCode::OK)
}

async fn make_zone(api: &Api, token: &str) -> HttpResponse {
    api.post("/v1/zones", Some(token), json!({ "name": NAME })).await
}

/// Proves the name for an organisation, and makes its zone.
async fn prove_with_zone(service: &NameService, api: &Api, token: &str) {
    let added = add(api, token, NAME).await;
    service.set(&proof_line(&added, "_sallyport"));
    assert_eq!(check(api, token).await.state, DomainState::Verified);
    make_zone(api, token).await.read::<Zone>(StatusCode::CREATED);
}

/// Proves the name, which another organisation has or had, with the record that the refusal names.
async fn take_over(service: &NameService, api: &Api, token: &str) {
    let refused = api.post("/v1/domains", Some(token), json!({ "name": NAME })).await;
    let detail = refused.assert_problem(StatusCode::CONFLICT, "domain-taken");
    service.set(&format!("_sallyport 60 TXT \"{}\"", detail.split('"').nth(1).unwrap()));
    assert_eq!(add(api, token, NAME).await.state, DomainState::Verified);
}

fn certificate(names: &[&str], now: i64) -> Value {
    let key = rcgen::KeyPair::generate().unwrap();
    let names = names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let mut params = rcgen::CertificateParams::new(names).unwrap();
    params.not_before = time::OffsetDateTime::from_unix_timestamp(now - 60).unwrap();
    params.not_after = time::OffsetDateTime::from_unix_timestamp(now + 86_400).unwrap();
    json!({"chain": params.self_signed(&key).unwrap().pem(), "key": key.serialize_pem()})
}

/// The names of the zones that edges serve.
fn served_zones(api: &Api) -> Vec<String> {
    let mut served: Vec<_> = api.zones.all().iter().map(|zone| zone.apex.clone()).collect();
    served.sort_unstable();
    served
}

#[tokio::test(flavor = "multi_thread")]
async fn zones_and_certificates_of_a_deleted_account_are_served_no_more() {
    let service = NameService::start();
    let api = api_with(&service, true).await;
    let (_owner, ann) = (api.account("own@example.com").await, api.account("ann@example.com").await);
    let bob = api.account("bob@example.com").await;
    prove_with_zone(&service, &api, &ann).await;
    let imported = api.post("/v1/certificates", Some(&ann), certificate(&[NAME], api.clock.unix_seconds())).await;
    imported.read::<Certificate>(StatusCode::CREATED);
    assert_eq!((served_zones(&api), api.certificates.all().len()), (vec![NAME.into(), "localhost".into()], 1));
    assert_eq!(api.send("DELETE", "/v1/account", Some(&ann), None).await.status, StatusCode::NO_CONTENT);
    assert_eq!((served_zones(&api), api.certificates.all().len()), (vec!["localhost".into()], 0));

    // The next owner has a zone of their own.
    take_over(&service, &api, &bob).await;
    make_zone(&api, &bob).await.read::<Zone>(StatusCode::CREATED);
    assert_eq!(served_zones(&api), [NAME, "localhost"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zone_goes_with_the_proof_of_another_organisation() {
    let service = NameService::start();
    let api = api_with(&service, true).await;
    let (_owner, ann) = (api.account("own@example.com").await, api.account("ann@example.com").await);
    let bob = api.account("bob@example.com").await;
    prove_with_zone(&service, &api, &ann).await;
    let kept = api.send("DELETE", &format!("/v1/domains/{NAME}"), Some(&ann), None).await;
    let detail = kept.assert_problem(StatusCode::CONFLICT, "has-zone");
    assert!(detail.contains("sallyport zone rm example.org"), "{detail}");

    take_over(&service, &api, &bob).await;
    assert_eq!(served_zones(&api), ["localhost"], "nothing of the former owner is answered");
    api.get(&format!("/v1/zones/{NAME}"), Some(&ann)).await.assert_problem(StatusCode::NOT_FOUND, "not-found");
    make_zone(&api, &bob).await.read::<Zone>(StatusCode::CREATED);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_names_of_the_installation_are_for_its_owner_alone() {
    let service = NameService::start();
    let api = {
        let resolver = sallyport_resolver::Resolver::new(&[service.address]).unwrap();
        let dir = tempfile::tempdir().unwrap();
        Api::start_with(dir, crate::harness::TestClock::new(), sallyport_control::SignUp::Open, |config| {
            config.resolver = Some(resolver);
            config.domain = "tunnels.example.org".into();
        })
        .await
    };
    let (owner, ann) = (api.account("own@example.com").await, api.account("ann@example.com").await);
    let wide = api.post("/v1/domains", Some(&ann), json!({"name": "*.example.org"})).await;
    assert!(wide.text.contains("would cover tunnels.example.org"), "{}", wide.text);
    assert_eq!(wide.status, StatusCode::UNPROCESSABLE_ENTITY);
    let now = api.clock.unix_seconds();
    for name in ["tunnels.example.org", "*.tunnels.example.org", "api.tunnels.example.org"] {
        let import = async |token: &str| api.post("/v1/certificates", Some(token), certificate(&[name], now)).await;
        import(&ann).await.assert_problem(StatusCode::CONFLICT, "domain-taken");
        import(&owner).await.read::<Certificate>(StatusCode::CREATED);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn imports_and_the_bytes_of_a_zone_have_bounds() {
    let service = NameService::start();
    let api = api_with(&service, true).await;
    let (_owner, ann) = (api.account("own@example.com").await, api.account("ann@example.com").await);
    let hers = add(&api, &ann, "*.example.org").await;
    service.set(&proof_line(&hers, "_sallyport"));
    let path = "/v1/domains/*.example.org/check";
    api.send("POST", path, Some(&ann), None).await.read::<Domain>(StatusCode::OK);
    let now = api.clock.unix_seconds();
    let organisation =
        api.store.verified_domain(&"*.example.org".parse().unwrap()).await.unwrap().unwrap().organisation;
    for number in 0..1_000_u16 {
        let mut id = [7; 16];
        id[..2].copy_from_slice(&number.to_be_bytes());
        let names = vec![format!("h{number}.example.org").parse().unwrap()];
        let new = WantedCertificate { id: CertificateId::from_random(id), organisation: Some(organisation), names };
        let issued = IssuedChain {
            chain: String::new(),
            sealed_key: String::new(),
            not_before: now - 60,
            not_after: now + 86_400,
        };
        api.store.import_certificate(&new, &issued, now).await.unwrap();
    }
    let import = async |name: &str| api.post("/v1/certificates", Some(&ann), certificate(&[name], now)).await;
    import("more.example.org").await.assert_problem(StatusCode::CONFLICT, "limit-reached");
    // A successor takes the place of one that is there.
    import("h7.example.org").await.read::<Certificate>(StatusCode::CREATED);

    let hers = add(&api, &ann, NAME).await;
    assert_eq!(hers.state, DomainState::Verified);
    make_zone(&api, &ann).await.read::<Zone>(StatusCode::CREATED);
    let long = "x".repeat(45_000);
    let put = async |number: usize| {
        let record = json!({"name": format!("n{number}"), "type": "TXT", "value": long});
        api.post(&format!("/v1/zones/{NAME}/records"), Some(&ann), record).await
    };
    for number in 0..19 {
        put(number).await.read::<ZoneRecord>(StatusCode::CREATED);
    }
    put(19).await.assert_problem(StatusCode::CONFLICT, "limit-reached");
    // What makes a zone no longer is not bound by it.
    let roll = api.send("POST", &format!("/v1/zones/{NAME}/rollover"), Some(&ann), None).await;
    roll.read::<Zone>(StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_socket_takes_a_domain_from_an_idle_one_alone() {
    let service = NameService::start();
    let api = api_with(&service, false).await;
    let ann = api.account("ann@example.com").await;
    let hers = add(&api, &ann, NAME).await;
    service.set(&proof_line(&hers, "_sallyport"));
    check(&api, &ann).await;
    let body = |name: &str| json!({"name": name, "type": "http", "domains": [NAME]});
    // The same request again has the same answer.
    let first = api.post_keyed("/v1/sockets", &ann, "one", body("one")).await;
    let one: Socket = first.read(StatusCode::CREATED);
    assert_eq!(one.domains, [NAME]);
    assert_eq!(
        api.post_keyed("/v1/sockets", &ann, "one", body("one")).await.read::<Socket>(StatusCode::CREATED).id,
        one.id
    );
    // A command that was killed leaves such a socket behind.
    let two: Socket = api.post("/v1/sockets", Some(&ann), body("two")).await.read(StatusCode::CREATED);
    let domains = async |socket: &Socket| {
        api.get(&format!("/v1/sockets/{}", socket.id), Some(&ann)).await.read::<Socket>(StatusCode::OK).domains
    };
    assert_eq!((domains(&one).await, domains(&two).await), (vec![], vec![NAME.to_owned()]));
    let origins = format!("/v1/sockets/{}/origins", two.id);
    let origin = api.post(&origins, Some(&ann), json!({"address": "10.0.0.7:80"})).await;
    assert_eq!(origin.status, StatusCode::CREATED, "{}", origin.text);
    let refused = api.post("/v1/sockets", Some(&ann), body("three")).await;
    let detail = refused.assert_problem(StatusCode::CONFLICT, "domain-in-use");
    assert!(detail.contains("sallyport socket edit"), "{detail}");
    // A name that is taken comes first, so that commands with one name share it.
    let same = api.post("/v1/sockets", Some(&ann), body("two")).await;
    same.assert_problem(StatusCode::CONFLICT, "name-taken");
    let edit =
        api.send("PATCH", &format!("/v1/sockets/{}", one.id), Some(&ann), Some(json!({"domains": [NAME]}))).await;
    assert_eq!(edit.read::<Socket>(StatusCode::OK).domains, [NAME], "an edit moves any domain");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zone_below_is_removed_by_the_owner_of_the_one_above() {
    let service = NameService::start();
    let api = api_with(&service, true).await;
    let (_owner, ann) = (api.account("own@example.com").await, api.account("ann@example.com").await);
    let bob = api.account("bob@example.com").await;
    let hers = add(&api, &ann, "www.example.org").await;
    let her_line = proof_line(&hers, "_sallyport.www");
    service.set(&her_line);
    let path = "/v1/domains/www.example.org/check";
    api.send("POST", path, Some(&ann), None).await.read::<Domain>(StatusCode::OK);
    let zone = json!({"name": "www.example.org"});
    api.post("/v1/zones", Some(&ann), zone).await.read::<Zone>(StatusCode::CREATED);
    let his = add(&api, &bob, NAME).await;
    service.set(&format!("{her_line}\n{}", proof_line(&his, "_sallyport")));
    let below = "/v1/zones/www.example.org";
    let remove = async || api.send("DELETE", below, Some(&bob), None).await;
    check(&api, &bob).await;
    remove().await.assert_problem(StatusCode::NOT_FOUND, "not-found");
    make_zone(&api, &bob).await.read::<Zone>(StatusCode::CREATED);
    assert_eq!(served_zones(&api), [NAME, "localhost", "www.example.org"], "each has proved its own");
    let taken = api.post("/v1/domains", Some(&bob), json!({"name": "www.example.org"})).await;
    let detail = taken.assert_problem(StatusCode::CONFLICT, "domain-taken");
    assert!(detail.contains("sallyport zone rm www.example.org"), "{detail}");
    assert_eq!(remove().await.status, StatusCode::NO_CONTENT);
    assert_eq!(served_zones(&api), [NAME, "localhost"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zone_that_was_removed_is_not_brought_back_by_a_change() {
    let service = NameService::start();
    let api = std::sync::Arc::new(api_with(&service, true).await);
    let owner = api.account("own@example.com").await;
    for round in 0..12 {
        let name = format!("zone{round}.test.example");
        api.post("/v1/zones", Some(&owner), json!({"name": name})).await.read::<Zone>(StatusCode::CREATED);
        let mut writers = tokio::task::JoinSet::new();
        for number in 0..8 {
            let (api, owner, name) = (api.clone(), owner.clone(), name.clone());
            writers.spawn(async move {
                let record = json!({"name": format!("n{number}"), "type": "A", "value": "192.0.2.1"});
                api.post(&format!("/v1/zones/{name}/records"), Some(&owner), record).await.status
            });
        }
        let gone = api.send("DELETE", &format!("/v1/zones/{name}"), Some(&owner), None).await;
        assert_eq!(gone.status, StatusCode::NO_CONTENT);
        while let Some(status) = writers.join_next().await {
            assert!(matches!(status.unwrap(), StatusCode::CREATED | StatusCode::NOT_FOUND));
        }
        assert_eq!(served_zones(&api), ["localhost"], "round {round}");
    }
}
