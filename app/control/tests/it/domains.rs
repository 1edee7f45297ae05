//! Domains of organisations, against a name server whose records the tests set.

use std::{net::SocketAddr, sync::Arc};

use http::StatusCode;
use sallyport_api::{Certificate, Domain, DomainState, Page, Socket, Zone, ZoneRecord};
use sallyport_control::{ChosenLabels, SignUp};
use sallyport_dns::{Server, ServerConfig};
use sallyport_resolver::Resolver;
use sallyport_zone::{Name, Zone as ServedZone, Zones};
use serde_json::json;

use crate::harness::{Api, TestClock};

/// A name server with the zone `example.org`.
pub(crate) struct NameService {
    server: Server,
    pub(crate) address: SocketAddr,
}

impl NameService {
    pub(crate) fn start() -> Self {
        let (udp, tcp) = sallyport_dns::bind("127.0.0.1:0".parse().unwrap(), 1, false).unwrap();
        let address = tcp.local_addr().unwrap();
        let server = Server::start(&ServerConfig::default(), Arc::default(), Arc::default(), udp, vec![tcp]).unwrap();
        let service = Self { server, address };
        service.set("");
        service
    }

    /// Sets the records of `example.org`, as lines of a master file.
    pub(crate) fn set(&self, lines: &str) {
        let head = "@ 60 SOA ns hostmaster 1 3600 600 86400 1\n@ 60 NS ns\nns 60 A 127.0.0.1\n";
        let apex = Name::from_text("example.org").unwrap();
        let zone = ServedZone::from_master_file(apex, &format!("{head}{lines}\n"), None).unwrap();
        self.server.set_zones(Arc::new(Zones::new([Arc::new(zone)]).unwrap()));
    }
}

pub(crate) async fn api_with(service: &NameService, has_name_server: bool) -> Api {
    let resolver = Resolver::new(&[service.address]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    Api::start_with(dir, TestClock::new(), SignUp::Open, |config| {
        config.resolver = Some(resolver);
        config.has_name_server = has_name_server;
    })
    .await
}

pub(crate) async fn add(api: &Api, token: &str, name: &str) -> Domain {
    api.post("/v1/domains", Some(token), json!({"name": name})).await.read(StatusCode::CREATED)
}

/// The TXT record that proves names of the organisation, as a line.
pub(crate) fn proof_line(domain: &Domain, label: &str) -> String {
    format!("{label} 60 TXT \"{}\"", domain.records[0].value)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_domain_leads_to_a_socket_once_its_record_is_there() {
    let service = NameService::start();
    let api = api_with(&service, false).await;
    let token = api.account("ann@example.com").await;
    let socket = api.socket(&token, "web").await;
    let added = add(&api, &token, "App.Example.ORG.").await;
    assert_eq!(
        (added.name.as_str(), added.state, added.socket.clone()),
        ("app.example.org", DomainState::Pending, None)
    );
    assert_eq!(added.records[0].name, "_sallyport.app.example.org");
    assert_eq!((added.records[1].record_type.as_str(), added.records[1].value.as_str()), ("CNAME", "tunnel.localhost"));
    assert!(added.problem.unwrap().contains("has no TXT record"));
    let again = api.post("/v1/domains", Some(&token), json!({"name": "app.example.org"})).await;
    again.assert_problem(StatusCode::CONFLICT, "domain-taken");

    let edit = async |domains| {
        let body = json!({ "domains": domains });
        api.send("PATCH", &format!("/v1/sockets/{}", socket.id), Some(&token), Some(body)).await
    };
    let detail = edit(json!(["app.example.org"])).await.assert_problem(StatusCode::CONFLICT, "domain-not-verified");
    assert!(detail.contains("has no TXT record") && detail.contains("sallyport domain show"), "{detail}");
    assert!(api.routes.by_domain("app.example.org").is_none());

    // A record of another organisation proves nothing.
    service.set("_sallyport.app 60 TXT \"sallyport-domain=0000\"");
    let checked = api.send("POST", "/v1/domains/app.example.org/check", Some(&token), None).await;
    let checked: Domain = checked.read(StatusCode::OK);
    assert_eq!((checked.state, checked.records[0].found), (DomainState::Pending, Some(false)));
    assert!(checked.records[0].problem.as_ref().unwrap().contains("sallyport-domain=0000"));

    service.set(&format!("{}\napp 60 A 192.0.2.99", proof_line(&checked, "_sallyport.app")));
    let edited: Socket = edit(json!(["APP.example.org", "app.example.org."])).await.read(StatusCode::OK);
    assert_eq!(edited.domains, ["app.example.org"]);
    assert_eq!(api.routes.by_domain("app.example.org").unwrap().id, socket.id);
    let shown: Domain = api.get("/v1/domains/app.example.org", Some(&token)).await.read(StatusCode::OK);
    assert_eq!((shown.state, shown.socket.as_deref()), (DomainState::Verified, Some(socket.dns_name.as_str())));
    let elsewhere: Domain =
        api.send("POST", "/v1/domains/app.example.org/check", Some(&token), None).await.read(StatusCode::OK);
    let problem = elsewhere.records[1].problem.clone().unwrap();
    // Names below localhost are this machine (RFC 6761 section 6.3).
    assert!(problem.contains("leads to 192.0.2.99") && problem.contains("127.0.0.1"), "{problem}");

    // It lasts over a restart, moves to another socket, and goes with the domain.
    let other = api.socket(&token, "other").await;
    let body = json!({"domains": ["app.example.org"]});
    api.send("PATCH", &format!("/v1/sockets/{}", other.id), Some(&token), Some(body))
        .await
        .read::<Socket>(StatusCode::OK);
    assert_eq!(api.routes.by_domain("app.example.org").unwrap().id, other.id);
    assert!(api.routes.get(socket.id).unwrap().domains.is_empty());
    let api = api.restart().await;
    assert_eq!(api.routes.by_domain("app.example.org").unwrap().id, other.id);
    let gone = api.send("DELETE", "/v1/domains/app.example.org", Some(&token), None).await;
    assert_eq!(gone.status, StatusCode::NO_CONTENT);
    assert!(api.routes.by_domain("app.example.org").is_none());
    let missing = api.get("/v1/domains/app.example.org", Some(&token)).await;
    missing.assert_problem(StatusCode::NOT_FOUND, "not-found");
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_takes_a_name_over_without_a_record_of_their_own() {
    let service = NameService::start();
    let api = api_with(&service, false).await;
    let (ann, bob) = (api.account("ann@example.com").await, api.account("bob@example.com").await);
    let hers = add(&api, &ann, "app.example.org").await;
    let her_line = proof_line(&hers, "_sallyport.app");
    service.set(&her_line);
    let check = "/v1/domains/app.example.org/check";
    assert_eq!(
        api.send("POST", check, Some(&ann), None).await.read::<Domain>(StatusCode::OK).state,
        DomainState::Verified
    );

    let take = async || api.post("/v1/domains", Some(&bob), json!({"name": "app.example.org"})).await;
    let detail = take().await.assert_problem(StatusCode::CONFLICT, "domain-taken");
    assert!(detail.contains("_sallyport.app.example.org") && detail.contains("sallyport-domain="), "{detail}");
    // After its owner has removed it, with the alias still there, the name is nobody's yet.
    assert_eq!(
        api.send("DELETE", "/v1/domains/app.example.org", Some(&ann), None).await.status,
        StatusCode::NO_CONTENT
    );
    take().await.assert_problem(StatusCode::CONFLICT, "domain-taken");
    let socket = api.socket(&bob, "web").await;
    let body = json!({"domains": ["app.example.org"]});
    let edit = api.send("PATCH", &format!("/v1/sockets/{}", socket.id), Some(&bob), Some(body)).await;
    edit.assert_problem(StatusCode::CONFLICT, "domain-not-verified");
    // The former owner may add it again, and has it at once with the record.
    assert_eq!(add(&api, &ann, "app.example.org").await.state, DomainState::Verified);

    // With both records the present owner keeps it; with only his own the name is his.
    let value = detail.split('"').nth(1).unwrap();
    let his_line = format!("_sallyport.app 60 TXT \"{value}\"");
    service.set(&format!("{her_line}\n{his_line}"));
    let detail = take().await.assert_problem(StatusCode::CONFLICT, "domain-taken");
    assert!(detail.contains("still there"), "{detail}");
    service.set(&his_line);
    assert_eq!(take().await.read::<Domain>(StatusCode::CREATED).state, DomainState::Verified);
    let hers: Domain = api.get("/v1/domains/app.example.org", Some(&ann)).await.read(StatusCode::OK);
    assert_eq!(hers.state, DomainState::Pending);

    // A name below belongs to another organisation only by a record of that organisation.
    let below = add(&api, &ann, "deep.app.example.org").await;
    assert_eq!(below.state, DomainState::Pending, "his record does not prove her name");
    assert_eq!(add(&api, &bob, "deep.app.example.org").await.state, DomainState::Verified, "a parent's record does");
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_nobody_can_have_are_refused_with_a_sentence() {
    let service = NameService::start();
    let api = api_with(&service, false).await;
    let token = api.account("ann@example.com").await;
    for (name, says) in [
        ("web.localhost", "belongs to this installation"),
        ("co.uk", "public suffix"),
        ("192.0.2.7", "an IP address"),
        ("*.*.example.org", "only for the whole first label"),
        ("p\u{430}ypal.example.org", "several scripts"),
        (&format!("{}example.org", "abcdefgh.".repeat(28)), "at most 253"),
    ] {
        let refused = api.post("/v1/domains", Some(&token), json!({"name": name})).await;
        let detail = refused.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
        let errors = refused.json()["errors"].to_string();
        assert!(format!("{detail}{errors}").contains(says), "{name}: {}", refused.text);
        assert_eq!(refused.field(), "name");
    }
    let udp = json!({"name": "u", "type": "udp", "domains": ["app.example.org"]});
    let refused = api.post("/v1/sockets", Some(&token), udp).await;
    assert_eq!(refused.field(), "domains", "{}", refused.text);
    let reader = api.api_token(&token, &["sockets:read"]).await;
    let refused = api.post("/v1/domains", Some(&reader), json!({"name": "app.example.org"})).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    let none: Page<Domain> = api.get("/v1/domains", Some(&reader)).await.read(StatusCode::OK);
    assert!(none.items.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_domain_without_its_record_is_served_for_three_days_more() {
    let service = NameService::start();
    let api = api_with(&service, false).await;
    let token = api.account("ann@example.com").await;
    let token = api.api_token(&token, &["sockets:read", "sockets:write"]).await;
    let added = add(&api, &token, "app.example.org").await;
    service.set(&proof_line(&added, "_sallyport"));
    let socket = json!({"name": "web", "domains": ["app.example.org"]});
    let socket: Socket = api.post("/v1/sockets", Some(&token), socket).await.read(StatusCode::CREATED);
    assert_eq!(socket.domains, ["app.example.org"], "the record of a parent proves the name");
    service.set("");
    let check = async || {
        let checked = api.send("POST", "/v1/domains/app.example.org/check", Some(&token), None).await;
        checked.read::<Domain>(StatusCode::OK).state
    };
    assert_eq!(check().await, DomainState::Missing);
    api.clock.pass(71 * 3_600);
    assert_eq!(check().await, DomainState::Missing);
    assert!(api.routes.by_domain("app.example.org").is_some());
    api.clock.pass(2 * 3_600);
    assert_eq!(check().await, DomainState::Pending);
    assert!(api.routes.by_domain("app.example.org").is_none());
    service.set(&proof_line(&added, "_sallyport"));
    assert_eq!(check().await, DomainState::Verified);
    assert!(api.routes.by_domain("app.example.org").is_some(), "it leads where it led before");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_label_is_chosen_where_the_operator_allows_it() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let shop = json!({"name": "shop", "label": "shop"});
    let refused = api.post("/v1/sockets", Some(&token), shop.clone()).await;
    refused.assert_problem(StatusCode::FORBIDDEN, "labels-not-allowed");

    let dir = tempfile::tempdir().unwrap();
    let labels = ChosenLabels { are_allowed: true, reserved: vec!["billing".into()] };
    let api = Api::start_with(dir, TestClock::new(), SignUp::Open, |config| config.labels = labels).await;
    let (ann, bob) = (api.account("ann@example.com").await, api.account("bob@example.com").await);
    let made: Socket = api.post("/v1/sockets", Some(&ann), shop.clone()).await.read(StatusCode::CREATED);
    assert_eq!(made.dns_name, "shop.localhost");
    let create = async |token: &str, label: &str| {
        api.post("/v1/sockets", Some(token), json!({"name": format!("{label} two"), "label": label})).await
    };
    create(&ann, "shop").await.assert_problem(StatusCode::CONFLICT, "label-taken");
    for reserved in ["billing", "api", "-x"] {
        assert_eq!(create(&ann, reserved).await.status, StatusCode::UNPROCESSABLE_ENTITY, "{reserved}");
    }
    // The label of a deleted socket is for its organisation only.
    let gone = api.send("DELETE", &format!("/v1/sockets/{}", made.id), Some(&ann), None).await;
    assert_eq!(gone.status, StatusCode::NO_CONTENT);
    create(&bob, "shop").await.assert_problem(StatusCode::CONFLICT, "label-taken");
    assert_eq!(create(&ann, "shop").await.status, StatusCode::CREATED);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_is_imported_for_domains_of_the_organisation_alone() {
    let service = NameService::start();
    let api = api_with(&service, false).await;
    let (ann, bob) = (api.account("ann@example.com").await, api.account("bob@example.com").await);
    let added = add(&api, &ann, "app.example.org").await;
    service.set(&proof_line(&added, "_sallyport.app"));
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["app.example.org".into()]).unwrap();
    params.not_after = time::OffsetDateTime::from_unix_timestamp(api.clock.unix_seconds() + 86_400).unwrap();
    let certificate = params.self_signed(&key).unwrap().pem();
    let body = json!({"chain": certificate, "key": key.serialize_pem()});
    let import = async |token: &str, body| api.post("/v1/certificates", Some(token), body).await;
    import(&ann, body.clone()).await.assert_problem(StatusCode::CONFLICT, "domain-not-verified");
    api.send("POST", "/v1/domains/app.example.org/check", Some(&ann), None).await.read::<Domain>(StatusCode::OK);
    import(&bob, body.clone()).await.assert_problem(StatusCode::CONFLICT, "domain-not-verified");
    let imported: Certificate = import(&ann, body).await.read(StatusCode::CREATED);
    assert_eq!((imported.names.clone(), imported.source.as_str()), (vec!["app.example.org".into()], "imported"));
    let other = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let wrong = import(&ann, json!({"chain": certificate, "key": other})).await;
    assert_eq!(wrong.field(), "key", "{}", wrong.text);
    let wrong = import(&ann, json!({"chain": "x", "key": other})).await;
    assert_eq!(wrong.field(), "chain", "{}", wrong.text);
    let one = "/v1/certificates/app.example.org";
    assert_eq!(api.get(one, Some(&ann)).await.read::<Certificate>(StatusCode::OK), imported);
    api.get(one, Some(&bob)).await.assert_problem(StatusCode::NOT_FOUND, "not-found");
    let renew = api.send("POST", &format!("{one}/renew"), Some(&ann), None).await;
    renew.assert_problem(StatusCode::CONFLICT, "certificate-imported");
    assert_eq!(api.get("/v1/certificates", Some(&ann)).await.read::<Page<Certificate>>(StatusCode::OK).items.len(), 1);
    assert_eq!(api.send("DELETE", one, Some(&ann), None).await.status, StatusCode::NO_CONTENT);
    api.get(one, Some(&ann)).await.assert_problem(StatusCode::NOT_FOUND, "not-found");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wildcard_gives_no_certificate_for_a_name_that_another_organisation_has_proved() {
    let service = NameService::start();
    let api = api_with(&service, false).await;
    let (ann, bob) = (api.account("ann@example.com").await, api.account("bob@example.com").await);
    let wide = add(&api, &ann, "*.example.org").await;
    let narrow = add(&api, &bob, "app.example.org").await;
    let both = format!("{}\n{}", proof_line(&wide, "_sallyport"), proof_line(&narrow, "_sallyport.app"));
    service.set(&proof_line(&wide, "_sallyport"));
    let check = async |token: &str, name: &str| {
        let path = format!("/v1/domains/{name}/check");
        api.send("POST", &path, Some(token), None).await.read::<Domain>(StatusCode::OK)
    };
    check(&ann, "*.example.org").await;
    let now = api.clock.unix_seconds();
    let certificate = |names: &[&str], begins: i64| {
        let key = rcgen::KeyPair::generate().unwrap();
        let names = names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let mut params = rcgen::CertificateParams::new(names).unwrap();
        params.not_before = time::OffsetDateTime::from_unix_timestamp(begins).unwrap();
        params.not_after = time::OffsetDateTime::from_unix_timestamp(begins + 86_400).unwrap();
        json!({"chain": params.self_signed(&key).unwrap().pem(), "key": key.serialize_pem()})
    };
    let import = async |token: &str, body| api.post("/v1/certificates", Some(token), body).await;
    let names = ["bar.example.org", "app.example.org"];
    let early = import(&ann, certificate(&names, now + 60)).await;
    assert_eq!(early.field(), "chain", "{}", early.text);
    // Before anybody has proved the name it is the wildcard's.
    import(&ann, certificate(&names, now - 60)).await.read::<Certificate>(StatusCode::CREATED);
    let seen = async |token: &str| {
        let path = "/v1/domains/app.example.org";
        api.get(path, Some(token)).await.read::<Domain>(StatusCode::OK).certificate
    };
    assert_eq!(seen(&bob).await, None, "a certificate of another organisation is not shown");
    service.set(&both);
    assert_eq!(check(&bob, "app.example.org").await.state, DomainState::Verified);
    let listed: Page<Certificate> = api.get("/v1/certificates", Some(&ann)).await.read(StatusCode::OK);
    assert!(listed.items.is_empty(), "the import went with the proof: {listed:?}");
    import(&ann, certificate(&names, now - 60)).await.assert_problem(StatusCode::CONFLICT, "domain-taken");
    import(&ann, certificate(&["*.example.org"], now - 60)).await.read::<Certificate>(StatusCode::CREATED);
    import(&bob, certificate(&["app.example.org"], now - 60)).await.read::<Certificate>(StatusCode::CREATED);
    assert!(seen(&bob).await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zone_of_a_verified_domain_has_records_keys_and_name_servers() {
    let service = NameService::start();
    let api = api_with(&service, false).await;
    let token = api.account("ann@example.com").await;
    let refused = api.post("/v1/zones", Some(&token), json!({"name": "example.org"})).await;
    refused.assert_problem(StatusCode::CONFLICT, "no-name-server");

    let api = api_with(&service, true).await;
    let (owner, ann) = (api.account("own@example.com").await, api.account("ann@example.com").await);
    let ann = api.api_token(&ann, &["sockets:read", "sockets:write"]).await;
    let own: Page<Zone> = api.get("/v1/zones", Some(&owner)).await.read(StatusCode::OK);
    assert_eq!((own.items.len(), own.items[0].name.as_str(), own.items[0].is_of_installation), (1, "localhost", true));
    assert!(api.get("/v1/zones", Some(&ann)).await.read::<Page<Zone>>(StatusCode::OK).items.is_empty());
    let create = async || api.post("/v1/zones", Some(&ann), json!({"name": "example.org"})).await;
    create().await.assert_problem(StatusCode::CONFLICT, "domain-not-verified");
    let domain = add(&api, &ann, "example.org").await;
    service.set(&proof_line(&domain, "_sallyport"));
    api.send("POST", "/v1/domains/example.org/check", Some(&ann), None).await.read::<Domain>(StatusCode::OK);
    let zone: Zone = create().await.read(StatusCode::CREATED);
    assert_eq!(zone.name_servers, ["ns1.localhost", "ns2.localhost"]);
    assert_eq!((zone.ds.len(), zone.records), (1, 0));
    assert_eq!((zone.keys[0].role.as_str(), zone.keys[0].algorithm.as_str()), ("csk", "ecdsa-p256"));
    let zsk = api.send("POST", "/v1/zones/example.org/rollover?key=zsk", Some(&ann), None).await;
    assert!(zsk.text.contains("it has no ZSK"), "{}", zsk.text);
    create().await.assert_problem(StatusCode::CONFLICT, "zone-taken");

    let path = "/v1/zones/example.org/records";
    let put = async |name: &str, kind: &str, value: &str| {
        api.post(path, Some(&ann), json!({"name": name, "type": kind, "value": value})).await
    };
    let www: ZoneRecord = put("www", "a", "192.0.2.1").await.read(StatusCode::CREATED);
    assert_eq!((www.name.as_str(), www.record_type.as_str(), www.ttl), ("www.example.org", "A", 300));
    put("@", "ALIAS", "tunnel.localhost.").await.read::<ZoneRecord>(StatusCode::CREATED);
    put("@", "MX", "10 mail.example.net.").await.read::<ZoneRecord>(StatusCode::CREATED);
    for (name, kind, value, says) in [
        ("www", "CNAME", "a.example.org.", "a CNAME record is alone"),
        ("www.example.com.", "A", "192.0.2.1", "not within the zone"),
        ("b", "A", "300.1.1.1", "b.example.org"),
        ("b", "RRSIG", "x", "RRSIG"),
        ("@", "SOA", "x", "makes the SOA and NS records"),
    ] {
        let refused = put(name, kind, value).await;
        assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY, "{name} {kind}: {}", refused.text);
        assert!(refused.text.contains(says), "{name} {kind}: {}", refused.text);
    }
    let listed: Page<ZoneRecord> = api.get(path, Some(&ann)).await.read(StatusCode::OK);
    assert_eq!(listed.items.iter().filter(|record| record.id.is_some()).count(), 3);
    assert!(listed.items.iter().any(|record| record.name == "_sallyport.example.org" && record.id.is_none()));
    let gone = api.send("DELETE", &format!("{path}/{}", www.id.unwrap()), Some(&ann), None).await;
    assert_eq!(gone.status, StatusCode::NO_CONTENT);

    // The key is replaced in two steps: the former one stays until the parent has the new DS record.
    let roll = async || api.send("POST", "/v1/zones/example.org/rollover", Some(&ann), None).await;
    assert_eq!(roll().await.read::<Zone>(StatusCode::OK).ds, zone.ds, "not before others know both keys");
    roll().await.assert_problem(StatusCode::CONFLICT, "rollover-too-early");
    api.clock.pass(3 * 3_600);
    let swapped: Zone = api.get("/v1/zones/example.org", Some(&ann)).await.read(StatusCode::OK);
    assert!(swapped.ds.len() == 1 && swapped.ds != zone.ds, "{:?}", swapped.ds);
    assert_eq!(roll().await.read::<Zone>(StatusCode::OK).ds, swapped.ds);
    roll().await.assert_problem(StatusCode::CONFLICT, "rollover-runs");
    let api = api.restart_with_name_server().await;
    assert_eq!(api.get("/v1/zones/example.org", Some(&ann)).await.read::<Zone>(StatusCode::OK).ds, swapped.ds);
    let owner = api.login("own@example.com").await.access_token.expose().to_owned();
    api.get("/v1/zones/example.org", Some(&owner)).await.assert_problem(StatusCode::NOT_FOUND, "not-found");
    let kept = api.send("DELETE", "/v1/zones/localhost", Some(&owner), None).await;
    kept.assert_problem(StatusCode::CONFLICT, "own-zone");
    assert_eq!(api.send("DELETE", "/v1/zones/example.org", Some(&ann), None).await.status, StatusCode::NO_CONTENT);
}

#[tokio::test(flavor = "multi_thread")]
async fn split_keys_of_a_zone_are_replaced_one_by_one() {
    let service = NameService::start();
    let api = api_with(&service, true).await;
    let owner = api.account("own@example.com").await;
    for (more, says) in
        [(json!({"algorithm": "rsa"}), "ed25519"), (json!({"signed": false, "split_keys": true}), "has no keys")]
    {
        let mut body = json!({"name": "example.org"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let refused = api.post("/v1/zones", Some(&owner), body).await;
        assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY, "{}", refused.text);
        assert!(refused.text.contains(says), "{}", refused.text);
    }
    let body = json!({"name": "example.org", "algorithm": "ed25519", "split_keys": true});
    let zone: Zone = api.post("/v1/zones", Some(&owner), body).await.read(StatusCode::CREATED);
    // An API token outlives the waits.
    let owner = api.api_token(&owner, &["sockets:read", "sockets:write"]).await;
    let keys = |zone: &Zone| {
        let text = |key: &sallyport_api::ZoneKey| format!("{} {} {}", key.role, key.algorithm, key.is_active);
        zone.keys.iter().map(text).collect::<Vec<_>>()
    };
    assert_eq!(keys(&zone), ["ksk ed25519 true", "zsk ed25519 true"]);
    assert!(zone.ds.len() == 1 && zone.ds[0].contains(" 15 2 "), "{:?}", zone.ds);
    let roll = async |what: &str| {
        let path = format!("/v1/zones/example.org/rollover{what}");
        api.send("POST", &path, Some(&owner), None).await
    };
    let show = async || api.get("/v1/zones/example.org", Some(&owner)).await.read::<Zone>(StatusCode::OK);
    assert_eq!(roll("?key=ksk").await.field(), "key");

    // The parent knows nothing of the key of the records: it changes by itself when others know the new one.
    let rolled: Zone = roll("?key=zsk").await.read(StatusCode::OK);
    assert_eq!(keys(&rolled)[1..], ["zsk ed25519 true", "zsk ed25519 false"]);
    assert_eq!(rolled.ds, zone.ds);
    roll("?key=zsk").await.assert_problem(StatusCode::CONFLICT, "rollover-runs");
    api.clock.pass(2 * 3_600);
    assert_eq!(keys(&show().await)[1..], ["zsk ed25519 false", "zsk ed25519 true"]);
    api.clock.pass(2 * 3_600);
    assert_eq!(keys(&show().await), ["ksk ed25519 true", "zsk ed25519 true"], "the former one is gone");

    // The key of the keys waits for its DS record at the parent.
    let rolled: Zone = roll("").await.read(StatusCode::OK);
    assert_eq!((rolled.ds.len(), &rolled.ds[0]), (2, &zone.ds[0]), "both, until the parent has the new one");
    assert_eq!(keys(&rolled)[2], "ksk ed25519 false");
    api.clock.pass(90 * 86_400);
    assert_eq!(keys(&show().await)[2], "ksk ed25519 false", "not before the parent has it");
    roll("").await.read::<Zone>(StatusCode::OK);
    roll("").await.assert_problem(StatusCode::CONFLICT, "rollover-runs");
    api.clock.pass(2 * 86_400);
    let done = show().await;
    assert_eq!(keys(&done), ["zsk ed25519 true", "ksk ed25519 true"]);
    assert!(done.ds.len() == 1 && done.ds != zone.ds, "{:?}", done.ds);
}
