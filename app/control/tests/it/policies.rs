//! Policies: written, attached, tested, and at edges once the API has answered.

use http::StatusCode;
use sallyport_api::{Page, Policy, PolicyTest, Socket};
use serde_json::{Value, json};

use crate::harness::Api;

async fn send(api: &Api, token: &str, method: &str, path: &str, body: Value) -> crate::harness::HttpResponse {
    api.send(method, path, Some(token), Some(body)).await
}

async fn create(api: &Api, token: &str, name: &str, document: Value) -> Policy {
    let body = json!({"name": name, "document": document});
    send(api, token, "POST", "/v1/policies", body).await.read(StatusCode::CREATED)
}

fn staff() -> Value {
    json!({"allow": [{"name": "staff", "who": {"email_domains": ["example.com"]}}]})
}

fn anyone() -> Value {
    json!({"allow": [{"who": {"anyone": true}}]})
}

fn names(api: &Api, socket: &Socket) -> Vec<String> {
    api.routes.get(socket.id).unwrap().policies.iter().map(|policy| policy.name.clone()).collect()
}

#[tokio::test]
async fn a_policy_is_made_shown_changed_and_deleted() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let made = create(&api, &token, "staff", staff()).await;
    assert_eq!((made.name.as_str(), made.everywhere, made.sockets.len()), ("staff", false, 0));
    for path in [format!("/v1/policies/{}", made.id), "/v1/policies/staff".to_owned()] {
        assert_eq!(api.get(&path, Some(&token)).await.read::<Policy>(StatusCode::OK), made);
    }
    create(&api, &token, "night", anyone()).await;
    let page: Page<Policy> = api.get("/v1/policies?limit=1", Some(&token)).await.read(StatusCode::OK);
    assert_eq!((page.items, page.next.is_some()), (vec![made.clone()], true));
    api.clock.pass(10);
    let update = json!({"name": "people", "document": anyone()});
    let changed: Policy = send(&api, &token, "PATCH", "/v1/policies/staff", update).await.read(StatusCode::OK);
    assert_eq!((changed.name.as_str(), changed.id), ("people", made.id));
    assert!(changed.updated_at > changed.created_at && changed.document != made.document);

    let again = json!({"name": "night", "document": staff()});
    let says = send(&api, &token, "POST", "/v1/policies", again)
        .await
        .assert_problem(StatusCode::CONFLICT, "policy-name-taken");
    assert!(says.contains("\"night\""), "{says}");
    let other = api.account("bob@example.com").await;
    for (method, path, body) in [
        ("GET", "/v1/policies/people", None),
        ("PATCH", "/v1/policies/people", Some(json!({}))),
        ("DELETE", "/v1/policies/people", None),
        ("POST", "/v1/policies/people/attach", Some(json!({"everywhere": true}))),
        ("POST", "/v1/policy-test", Some(json!({"policy": made.id}))),
    ] {
        api.send(method, path, Some(&other), body).await.assert_problem(StatusCode::NOT_FOUND, "not-found");
    }
    create(&api, &other, "people", staff()).await;
    assert_eq!(api.send("DELETE", "/v1/policies/people", Some(&token), None).await.status, StatusCode::NO_CONTENT);
    api.get("/v1/policies/people", Some(&token)).await.assert_problem(StatusCode::NOT_FOUND, "not-found");
}

#[tokio::test]
async fn rules_that_no_client_could_match_are_refused_with_the_reason() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    for (document, field, says) in [
        (json!({"allow": []}), "document", "allow is empty"),
        (json!({"allow": [{}]}), "document", "allow rule 1: it has no condition"),
        (json!({"allow": [{"who": {"emails": ["ann"]}}]}), "document.allow[0].who.emails[0]", "is no e-mail address"),
        (json!({"allow": [{"whom": {}}]}), "document.allow[0].whom", "there is no such field"),
        (json!({"allow": [{"when": {"not_after": "2027-01-15T08:00:00Z"}}]}), "document", "is in the past"),
        (
            json!({"allow": [{"who": {"groups": ["a"]}}], "deny": [{"who": {"anyone": true}}]}),
            "document",
            "denies every client that it allows",
        ),
        (
            json!({"deny": [{"where": ["::1"]}], "allow": [{"where": ["::1"]}]}),
            "document",
            "deny rule 1 covers allow rule 1",
        ),
        (json!({"deny": vec![json!({"where": ["::1"]}); 101]}), "document", "has 101 rules and may have 100"),
        (Value::Null, "document", "null"),
    ] {
        let body = json!({"name": "p", "document": document});
        let response = send(&api, &token, "POST", "/v1/policies", body).await;
        let detail = response.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
        assert_eq!((response.field().as_str(), detail.contains(says)), (field, true), "{document}: {detail}");
    }
    for name in ["", "Staff", "a b", "0b7e3c1a-5f0e-4c57-9f63-6a1f0f9e2d11"] {
        let response = send(&api, &token, "POST", "/v1/policies", json!({"name": name, "document": staff()})).await;
        response.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
        assert_eq!(response.field(), "name");
    }
}

#[tokio::test]
async fn edges_have_the_attached_policies_when_the_api_has_responded() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let policy = create(&api, &token, "staff", staff()).await;
    let identity = json!({"name": "app", "identity": {"email_addresses": ["ann@example.com"]}});
    let app: Socket = api.post("/v1/sockets", Some(&token), identity).await.read(StatusCode::CREATED);
    let open = api.socket(&token, "open").await;
    let act =
        async |act: &str, body: Value| send(&api, &token, "POST", &format!("/v1/policies/staff/{act}"), body).await;

    let attached: Policy = act("attach", json!({"socket": app.id})).await.read(StatusCode::OK);
    assert_eq!(attached.sockets, [app.id]);
    assert_eq!(names(&api, &app), ["staff"]);
    let shown: Socket = api.get(&format!("/v1/sockets/{}", app.id), Some(&token)).await.read(StatusCode::OK);
    assert_eq!(shown.policies, ["staff"]);
    let update = json!({"document": anyone(), "name": "people"});
    send(&api, &token, "PATCH", "/v1/policies/staff", update).await.read::<Policy>(StatusCode::OK);
    assert_eq!(names(&api, &app), ["people"]);
    assert!(api.routes.get(app.id).unwrap().policies[0].document.contains("anyone"));
    let update = json!({"document": staff(), "name": "staff"});
    send(&api, &token, "PATCH", "/v1/policies/people", update).await.read::<Policy>(StatusCode::OK);

    let says = api
        .send("DELETE", "/v1/policies/staff", Some(&token), None)
        .await
        .assert_problem(StatusCode::CONFLICT, "policy-attached");
    assert!(says.contains("detach it first"), "{says}");
    for body in [json!({}), json!({"socket": app.id, "everywhere": true})] {
        act("attach", body).await.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
    }
    act("attach", json!({"socket": "calm-bay-1000"})).await.assert_problem(StatusCode::NOT_FOUND, "not-found");

    // A socket without an identity setting identifies no persons: it would deny all of them.
    let says = act("attach", json!({"everywhere": true})).await.assert_problem(StatusCode::CONFLICT, "closes-sockets");
    assert!(says.contains(&open.dns_name) && !says.contains(&app.dns_name), "{says}");
    assert!(names(&api, &open).is_empty(), "nothing was changed");
    let forced: Policy = act("attach", json!({"everywhere": true, "force": true})).await.read(StatusCode::OK);
    assert!(forced.everywhere && forced.id == policy.id);
    assert_eq!((names(&api, &open), names(&api, &app)), (vec!["staff".to_owned()], vec!["staff".to_owned()]));
    // A new socket like it is refused too.
    let response = api.post("/v1/sockets", Some(&token), json!({"name": "new"})).await;
    let says = response.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
    assert!(says.contains("(staff) allow no client without a login"), "{says}");

    // Without the policy the socket would be open to every client again.
    let says = act("detach", json!({"everywhere": true})).await.assert_problem(StatusCode::CONFLICT, "opens-sockets");
    assert!(says.contains(&open.dns_name) && !says.contains(&app.dns_name), "{says}");
    act("detach", json!({"everywhere": true, "force": true})).await.read::<Policy>(StatusCode::OK);
    assert!(names(&api, &open).is_empty());
    let detached: Policy = act("detach", json!({"socket": app.dns_name})).await.read(StatusCode::OK);
    assert!(detached.sockets.is_empty() && names(&api, &app).is_empty());
    assert_eq!(api.send("DELETE", "/v1/policies/staff", Some(&token), None).await.status, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn a_socket_that_would_deny_every_client_is_refused() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    create(&api, &token, "staff", staff()).await;
    create(&api, &token, "blocked", json!({"deny": [{"who": {"emails": ["eve@example.com"]}}]})).await;
    for (body, field, says) in [
        (json!({"identity": {}}), "identity", "every client would be denied: give email_addresses"),
        (json!({"identity": {}, "policies": ["blocked"]}), "identity", "(blocked) only deny"),
        (json!({"policies": ["staff"]}), "identity", "set identity"),
        (json!({"policies": ["nobody"]}), "policies[0]", "no policy of this name"),
        (json!({"policies": vec!["staff"; 21]}), "policies", "at most 20 policies"),
        (json!({"identity": {"email_domains": ["x.org"]}, "type": "tcp"}), "identity", ""),
    ] {
        let mut body = body;
        body["name"] = json!("s");
        let response = api.post("/v1/sockets", Some(&token), body.clone()).await;
        let detail = response.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
        assert_eq!((response.field().as_str(), detail.contains(says)), (field, true), "{body}: {detail}");
    }
    let body = json!({"name": "s", "identity": {}, "policies": ["staff", "blocked"]});
    let made: Socket = api.post("/v1/sockets", Some(&token), body).await.read(StatusCode::CREATED);
    assert_eq!(made.policies, ["blocked", "staff"]);
    assert_eq!(names(&api, &made), ["blocked", "staff"]);

    let path = format!("/v1/sockets/{}", made.id);
    let response = send(&api, &token, "PATCH", &path, json!({"identity": null})).await;
    response.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
    assert_eq!(response.field(), "identity");
    send(&api, &token, "PATCH", &path, json!({"name": "t"})).await.read::<Socket>(StatusCode::OK);
    let says = send(&api, &token, "POST", "/v1/policies/staff/detach", json!({"socket": made.id})).await;
    let says = says.assert_problem(StatusCode::CONFLICT, "closes-sockets");
    assert!(says.contains("would deny every client"), "{says}");
    // Rules that only deny admit no client either.
    let update = json!({"document": {"deny": [{"where": ["::1"]}]}});
    let says = send(&api, &token, "PATCH", "/v1/policies/staff", update).await;
    says.assert_problem(StatusCode::CONFLICT, "closes-sockets");
}

#[tokio::test]
async fn what_concerns_one_socket_has_a_bound() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let socket = api.socket(&token, "s").await;
    for n in 0..21 {
        create(&api, &token, &format!("p{n}"), anyone()).await;
        let response =
            send(&api, &token, "POST", &format!("/v1/policies/p{n}/attach"), json!({"socket": socket.id})).await;
        if n < 20 {
            response.read::<Policy>(StatusCode::OK);
        } else {
            let says = response.assert_problem(StatusCode::CONFLICT, "limit-reached");
            assert!(says.contains("no more than 20 policies"), "{says}");
        }
    }
}

#[tokio::test]
async fn a_test_names_the_deciding_rule() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let document = json!({
        "allow": [{"name": "staff", "who": {"email_domains": ["example.com"]}, "where": ["10.0.0.0/8"]}],
        "deny": [{"what": {"paths": ["/admin"]}}],
    });
    create(&api, &token, "staff", document.clone()).await;
    let ask = async |body: Value| send(&api, &token, "POST", "/v1/policy-test", body).await;
    let test = async |body: Value| ask(body).await.read::<PolicyTest>(StatusCode::OK);
    let ann = json!({"policy": "staff", "email": "ann@example.com", "address": "10.1.2.3"});
    let allowed = test(ann.clone()).await;
    assert_eq!((allowed.allowed, allowed.policy.as_deref()), (true, Some("staff")));
    assert_eq!(allowed.by, "policy \"staff\", allow rule 1 (\"staff\")");
    assert_eq!(allowed.rules.iter().map(|rule| rule.unmet.as_deref()).collect::<Vec<_>>(), [Some("paths"), None]);
    let mut path = ann.clone();
    path["path"] = json!("/x/../%61dmin");
    let denied = test(path).await;
    assert_eq!((denied.allowed, denied.rule.as_deref()), (false, Some("deny rule 1")));
    let mut away = ann.clone();
    away["address"] = json!("192.0.2.1");
    let away = test(away).await;
    assert_eq!(
        (away.allowed, away.by.as_str(), away.rules[1].unmet.as_deref()),
        (false, "no rule allows it", Some("where"))
    );
    assert!(test(json!({"document": anyone()})).await.allowed);

    let body = json!({"name": "s", "identity": {"email_addresses": ["bob@other.org"]}, "policies": ["staff"]});
    let socket: Socket = api.post("/v1/sockets", Some(&token), body).await.read(StatusCode::CREATED);
    let bob = test(json!({"socket": socket.id, "email": "bob@other.org", "address": "::1"})).await;
    assert_eq!((bob.allowed, bob.by.as_str()), (true, "the socket's allowed e-mail addresses"));
    let nobody = test(json!({"socket": socket.dns_name, "address": "::1"})).await;
    assert_eq!((nobody.allowed, nobody.by.as_str()), (false, "no login"));

    for (body, field) in [
        (json!({}), "policy"),
        (json!({"policy": "staff", "document": document}), "policy"),
        (json!({"policy": "staff", "email": "a@example.com"}), "address"),
        (
            json!({"policy": "staff", "email": "a@example.com", "address": "::1", "service_token": "ci"}),
            "service_token",
        ),
        (json!({"policy": "staff", "groups": ["a"], "address": "::1"}), "email"),
        (json!({"policy": "staff", "country": "XX"}), "country"),
        (json!({"document": {"allow": []}}), "document"),
    ] {
        let response = ask(body.clone()).await;
        response.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
        assert_eq!(response.field(), field, "{body}");
    }
}

#[tokio::test]
async fn a_socket_without_a_provider_has_a_note() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    create(&api, &token, "staff", staff()).await;
    create(&api, &token, "machines", json!({"allow": [{"who": {"service_tokens": ["ci"]}}]})).await;
    let make =
        async |body: Value| -> Socket { api.post("/v1/sockets", Some(&token), body).await.read(StatusCode::CREATED) };
    let asks = make(json!({"name": "a", "identity": {"email_domains": ["example.com"]}})).await;
    let by_policy = make(json!({"name": "b", "identity": {}, "policies": ["staff"]})).await;
    for socket in [&asks, &by_policy] {
        assert_eq!(socket.notes.len(), 1, "{:?}", socket.notes);
        assert!(socket.notes[0].contains("the organisation has no identity provider"), "{:?}", socket.notes);
    }
    let machines = make(json!({"name": "c", "identity": {}, "policies": ["machines"]})).await;
    let open = make(json!({"name": "d"})).await;
    assert!(machines.notes.is_empty() && open.notes.is_empty(), "no person is to log in there");
    let noted = async || -> Vec<String> {
        let page: Page<Socket> = api.get("/v1/sockets", Some(&token)).await.read(StatusCode::OK);
        page.items.into_iter().filter(|socket| !socket.notes.is_empty()).map(|socket| socket.name.to_string()).collect()
    };
    assert_eq!(noted().await, ["a", "b"]);
    let path = format!("/v1/sockets/{}", open.id);
    let change = Some(json!({"identity": {"email_domains": ["example.com"]}}));
    let changed: Socket = api.send("PATCH", &path, Some(&token), change).await.read(StatusCode::OK);
    let shown: Socket = api.get(&path, Some(&token)).await.read(StatusCode::OK);
    assert_eq!((&changed.notes, &shown.notes), (&asks.notes, &asks.notes));

    let provider = json!({"name": "here", "kind": "local"});
    api.post("/v1/providers", Some(&token), provider).await.read::<Value>(StatusCode::CREATED);
    assert_eq!(noted().await, [""; 0]);
    let later = make(json!({"name": "e", "identity": {"email_domains": ["example.com"]}})).await;
    assert!(later.notes.is_empty(), "{:?}", later.notes);
}

#[tokio::test]
async fn tokens_need_the_scope_of_identity() {
    let api = Api::start().await;
    let owner = api.account("ann@example.com").await;
    create(&api, &owner, "staff", staff()).await;
    let reader = api.api_token(&owner, &["identity:read"]).await;
    let writer = api.api_token(&owner, &["identity:write"]).await;
    let sockets = api.api_token(&owner, &["sockets:write", "account:write"]).await;
    for (method, path, body) in [
        ("GET", "/v1/policies", None),
        ("GET", "/v1/policies/staff", None),
        ("POST", "/v1/policy-test", Some(json!({"policy": "staff"}))),
    ] {
        assert_eq!(api.send(method, path, Some(&reader), body.clone()).await.status, StatusCode::OK, "{path}");
        assert_eq!(api.send(method, path, Some(&writer), body.clone()).await.status, StatusCode::OK, "{path}");
        let says = api.send(method, path, Some(&sockets), body).await;
        assert!(says.assert_problem(StatusCode::FORBIDDEN, "missing-scope").contains("identity:read"));
    }
    for (method, path, body) in [
        ("POST", "/v1/policies", json!({"name": "x", "document": staff()})),
        ("PATCH", "/v1/policies/staff", json!({})),
        ("DELETE", "/v1/policies/staff", json!({})),
        ("POST", "/v1/policies/staff/attach", json!({"everywhere": true})),
        ("POST", "/v1/policies/staff/detach", json!({"everywhere": true})),
    ] {
        for token in [&reader, &sockets] {
            let says = api.send(method, path, Some(token), Some(body.clone())).await;
            assert!(says.assert_problem(StatusCode::FORBIDDEN, "missing-scope").contains("identity:write"));
        }
    }
    // A token for sockets alone may not change their identity setting.
    let asks = json!({"name": "a", "type": "http", "identity": {"email_domains": ["example.com"]}});
    let made = api.send("POST", "/v1/sockets", Some(&sockets), Some(asks)).await;
    let path = format!("/v1/sockets/{}", made.read::<sallyport_api::Socket>(StatusCode::CREATED).id);
    for identity in [json!(null), json!({"email_addresses": ["mallory@evil.test"]})] {
        let change = Some(json!({"identity": identity}));
        let says = api.send("PATCH", &path, Some(&sockets), change.clone()).await;
        assert!(says.assert_problem(StatusCode::FORBIDDEN, "missing-scope").contains("identity:write"));
    }
    let rename = Some(json!({"name": "b"}));
    assert_eq!(api.send("PATCH", &path, Some(&sockets), rename).await.status, StatusCode::OK);
    let opens = |force: bool| Some(json!({"identity": null, "force": force}));
    let refused = api.send("PATCH", &path, Some(&owner), opens(false)).await;
    let says = refused.assert_problem(StatusCode::CONFLICT, "opens-sockets");
    assert!(says.contains("would open") && says.contains(".localhost to every client"), "{says}");
    assert_eq!(api.send("PATCH", &path, Some(&owner), opens(true)).await.status, StatusCode::OK);
}

#[tokio::test]
async fn the_last_gate_is_not_taken_off_unasked() {
    let api = Api::start().await;
    let owner = api.account("ann@example.com").await;
    let serves = api.api_token(&owner, &["sockets:write"]).await;
    let password = json!({"username": "u", "password": "open sesame"});
    let made = send(&api, &owner, "POST", "/v1/sockets", json!({"name": "app", "protected": password})).await;
    let path = format!("/v1/sockets/{}", made.read::<sallyport_api::Socket>(StatusCode::CREATED).id);
    let patch = async |token: &str, body: Value| api.send("PATCH", &path, Some(token), Some(body)).await;
    // A token for serving sockets may set another password, but not remove it, even with force.
    let another = json!({"protected": {"username": "v", "password": "open barley"}});
    assert_eq!(patch(&serves, another).await.status, StatusCode::OK);
    for force in [false, true] {
        let says = patch(&serves, json!({"protected": null, "force": force})).await;
        assert!(says.assert_problem(StatusCode::FORBIDDEN, "missing-scope").contains("identity:write"));
    }
    patch(&owner, json!({"protected": null})).await.assert_problem(StatusCode::CONFLICT, "opens-sockets");
    // The same in two steps.
    let asks = json!({"identity": {"email_domains": ["example.com"]}, "protected": null});
    assert_eq!(patch(&owner, asks).await.status, StatusCode::OK);
    assert_eq!(patch(&owner, json!({"identity": null, "protected": password})).await.status, StatusCode::OK);
    let says = patch(&owner, json!({"protected": null})).await;
    assert!(says.assert_problem(StatusCode::CONFLICT, "opens-sockets").contains("to every client"));
    // A policy is a gate, too.
    let document = json!({"allow": [{"who": {"anyone": true}}]});
    create(&api, &owner, "office", document).await;
    let attach = json!({"socket": path.rsplit('/').next().unwrap()});
    let attached = send(&api, &owner, "POST", "/v1/policies/office/attach", attach.clone()).await;
    assert!(attached.status.is_success(), "{}", attached.text);
    assert_eq!(patch(&owner, json!({"protected": null})).await.status, StatusCode::OK);
    // Without a gate there is nothing to confirm.
    let plain = send(&api, &owner, "POST", "/v1/sockets", json!({"name": "plain"})).await;
    let plain = format!("/v1/sockets/{}", plain.json()["id"].as_str().unwrap());
    assert_eq!(send(&api, &owner, "PATCH", &plain, json!({"protected": null})).await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_socket_believes_only_providers_that_there_are() {
    let api = Api::start().await;
    let owner = api.account("ann@example.com").await;
    let asks = |providers: Value| json!({"email_domains": ["example.com"], "providers": providers});
    let create = |identity: Value| json!({"name": "app", "identity": identity});
    let refused = send(&api, &owner, "POST", "/v1/sockets", create(asks(json!(["goggle"])))).await;
    assert_eq!(refused.field(), "identity.providers[0]");
    assert!(refused.text.contains("there is no identity provider goggle: there are none yet"), "{}", refused.text);
    let google = json!({"name": "google", "kind": "google", "client_id": "c", "client_secret": "s"});
    assert_eq!(send(&api, &owner, "POST", "/v1/providers", google).await.status, StatusCode::CREATED);
    let made = send(&api, &owner, "POST", "/v1/sockets", create(asks(json!(["google"])))).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.text);
    let path = format!("/v1/sockets/{}", made.json()["id"].as_str().unwrap());
    let refused = send(&api, &owner, "PATCH", &path, json!({"identity": asks(json!(["google", "goggle"]))})).await;
    assert_eq!(refused.field(), "identity.providers[1]");
    assert!(refused.text.contains("there is google"), "{}", refused.text);
    // A deleted provider may stay in a socket's settings.
    let gone = api.send("DELETE", "/v1/providers/google?force=true", Some(&owner), None).await;
    assert_eq!(gone.status, StatusCode::NO_CONTENT);
    let kept = send(&api, &owner, "PATCH", &path, json!({"identity": asks(json!(["google"]))})).await;
    assert_eq!(kept.status, StatusCode::OK, "{}", kept.text);
}
