//! Domains, certificates and zones when their organisation goes, or another one proves the name.

use http::StatusCode;
use sallyport_api::{Certificate, Domain, DomainState, Zone, ZoneRecord};
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
    let hers = add(&api, &ann, NAME).await;
    service.set(&proof_line(&hers, "_sallyport"));
    assert_eq!(check(&api, &ann).await.state, DomainState::Verified);
    make_zone(&api, &ann).await.read::<Zone>(StatusCode::CREATED);
    let imported = api.post("/v1/certificates", Some(&ann), certificate(&[NAME], api.clock.unix_seconds())).await;
    imported.read::<Certificate>(StatusCode::CREATED);
    assert_eq!((served_zones(&api), api.certificates.all().len()), (vec![NAME.into(), "localhost".into()], 1));
    assert_eq!(api.send("DELETE", "/v1/account", Some(&ann), None).await.status, StatusCode::NO_CONTENT);
    assert_eq!((served_zones(&api), api.certificates.all().len()), (vec!["localhost".into()], 0));

    // The next owner has a zone of their own.
    let refused = api.post("/v1/domains", Some(&bob), json!({ "name": NAME })).await;
    let detail = refused.assert_problem(StatusCode::CONFLICT, "domain-taken");
    service.set(&format!("_sallyport 60 TXT \"{}\"", detail.split('"').nth(1).unwrap()));
    assert_eq!(add(&api, &bob, NAME).await.state, DomainState::Verified);
    make_zone(&api, &bob).await.read::<Zone>(StatusCode::CREATED);
    assert_eq!(served_zones(&api), [NAME, "localhost"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zone_goes_with_the_proof_of_another_organisation() {
    let service = NameService::start();
    let api = api_with(&service, true).await;
    let (_owner, ann) = (api.account("own@example.com").await, api.account("ann@example.com").await);
    let bob = api.account("bob@example.com").await;
    let hers = add(&api, &ann, NAME).await;
    service.set(&proof_line(&hers, "_sallyport"));
    check(&api, &ann).await;
    make_zone(&api, &ann).await.read::<Zone>(StatusCode::CREATED);
    let kept = api.send("DELETE", &format!("/v1/domains/{NAME}"), Some(&ann), None).await;
    let detail = kept.assert_problem(StatusCode::CONFLICT, "has-zone");
    assert!(detail.contains("sallyport zone rm example.org"), "{detail}");

    let refused = api.post("/v1/domains", Some(&bob), json!({ "name": NAME })).await;
    let detail = refused.assert_problem(StatusCode::CONFLICT, "domain-taken");
    service.set(&format!("_sallyport 60 TXT \"{}\"", detail.split('"').nth(1).unwrap()));
    assert_eq!(add(&api, &bob, NAME).await.state, DomainState::Verified);
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
}
