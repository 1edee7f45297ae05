//! `/v1/persons`, and the messages that go to persons.

use axum::body::Body;
use http::{Request, StatusCode};
use sallyport_api::{InvitedPerson, LocalPerson, Page, PersonState, Provider, ProviderFound, Secret};
use sallyport_identity::hook_signature;
use serde_json::{Value, json};

use crate::{
    fake_hook::{FakeHook, Message, SECRET, path_of},
    harness::{Api, HttpResponse, START},
    local::{Walk, set_password},
    login::{Browser, Shop, assert_page},
};

impl Shop {
    /// An API with a provider of kind local, with these settings.
    pub(crate) async fn with_local(self, more: Value) -> Self {
        let mut body = json!({"name": "local", "kind": "local"});
        for (field, value) in more.as_object().unwrap() {
            body[field] = value.clone();
        }
        let made = self.api.post("/v1/providers", Some(&self.token), body).await;
        assert_eq!(made.read::<Provider>(StatusCode::CREATED).redirect_uri, "");
        self
    }

    pub(crate) async fn with_hook(self, hook: &FakeHook) -> Self {
        self.with_local(json!({"hook": hook.url, "client_secret": SECRET})).await
    }

    pub(crate) async fn invite(&self, email: &str) -> InvitedPerson {
        let body = json!({"email": email, "name": "Ann", "groups": ["eng"]});
        self.api.post("/v1/persons", Some(&self.token), body).await.read(StatusCode::CREATED)
    }

    pub(crate) async fn person(&self, email: &str) -> LocalPerson {
        let path = format!("/v1/persons/{}", email.replace('+', "%2B"));
        self.api.get(&path, Some(&self.token)).await.read(StatusCode::OK)
    }

    pub(crate) async fn change(&self, email: &str, body: Value) -> HttpResponse {
        self.api.send("PATCH", &format!("/v1/persons/{email}"), Some(&self.token), Some(body)).await
    }

    /// Makes a person with a password.
    pub(crate) async fn active(&self, email: &str, password: &str) {
        let invited = self.invite(email).await;
        let link = path_of(invited.link.as_ref().map(Secret::expose).unwrap());
        assert_page(&set_password(&self.api, &link, password).await, 200, "Your password is set");
    }
}

const PASSWORD: &str = "blue bicycle on a hill";

#[tokio::test]
async fn persons_are_added_shown_changed_and_removed() {
    let shop = Shop::open().await;
    let (api, token) = (&shop.api, Some(shop.token.as_str()));
    let refused = api.post("/v1/persons", token, json!({"email": "ann@example.com"})).await;
    refused.assert_problem(StatusCode::CONFLICT, "no-local-provider");
    let shop = shop.with_local(json!({})).await;
    let (api, token) = (&shop.api, Some(shop.token.as_str()));
    let invited = shop.invite("Ann+x@Example.com").await;
    assert_eq!(invited.person.email.as_str(), "ann+x@example.com");
    assert_eq!((invited.person.state, invited.sent, invited.problem.clone()), (PersonState::Invited, false, None));
    assert_eq!(invited.expires_at.unix_timestamp(), START + 86_400);
    let link = invited.link.unwrap();
    assert!(link.expose().starts_with("https://login.localhost:8443/local/link?key=spl_"), "{}", link.expose());
    // Addresses are compared without case, but with their tags.
    let again = api.post("/v1/persons", token, json!({"email": "ANN+X@example.com"})).await;
    again.assert_problem(StatusCode::CONFLICT, "person-taken");
    shop.invite("ann@example.com").await;
    for bad in ["ann@example.com.", "ann", "ann@\u{435}xample.com", "ann@example.com@evil.test", "", "a b@example.com"]
    {
        let refused = api.post("/v1/persons", token, json!({"email": bad})).await;
        refused.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
    }
    for (field, value) in [
        ("name", json!("a\nb")),
        ("name", json!("a\u{202e}b")),
        ("name", json!("a\u{2028}b")),
        ("groups", json!([" a"])),
        ("groups", json!([""])),
        ("groups", json!(["ops", "o\u{200b}ps"])),
    ] {
        let refused = api.post("/v1/persons", token, json!({"email": "x@example.com", field: value})).await;
        refused.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
        assert_eq!(refused.field(), field);
    }
    assert_eq!(shop.person("ann+x@example.com").await.id, invited.person.id);
    let changed = shop.change("ann@example.com", json!({"name": null, "groups": ["b", "a", "b"]})).await;
    let changed: LocalPerson = changed.read(StatusCode::OK);
    assert_eq!((changed.name, changed.groups), (None, vec!["a".to_owned(), "b".to_owned()]));
    let listed: Page<LocalPerson> = api.get("/v1/persons", token).await.read(StatusCode::OK);
    assert_eq!(listed.items.len(), 2);
    let path = format!("/v1/persons/{}", invited.person.id);
    assert_eq!(api.send("DELETE", &path, token, None).await.status, StatusCode::NO_CONTENT);
    api.get(&path, token).await.assert_problem(StatusCode::NOT_FOUND, "not-found");
    let gone = Browser::default().get(api, &path_of(link.expose())).await;
    assert_page(&gone, 404, "does not work any more");
    let acted: Vec<String> = api.actions(&shop.token).await.into_iter().filter(|a| a.starts_with("person.")).collect();
    assert_eq!(acted, ["person.create", "person.create", "person.edit", "person.delete"]);
}

#[tokio::test]
async fn persons_belong_to_their_organisation_and_take_scopes() {
    let shop = Shop::open().await.with_local(json!({})).await;
    shop.active("ann@example.com", PASSWORD).await;
    let other = shop.api.account("other@example.com").await;
    let missing = shop.api.get("/v1/persons/ann@example.com", Some(&other)).await;
    missing.assert_problem(StatusCode::NOT_FOUND, "not-found");
    let id = shop.person("ann@example.com").await.id;
    for path in [format!("/v1/persons/{id}"), "/v1/persons/ann@example.com".to_owned()] {
        let refused = shop.api.send("DELETE", &path, Some(&other), None).await;
        refused.assert_problem(StatusCode::NOT_FOUND, "not-found");
    }
    let reader = shop.api.api_token(&shop.token, &["identity:read"]).await;
    assert_eq!(shop.api.get("/v1/persons", Some(&reader)).await.status, StatusCode::OK);
    let refused = shop.api.post("/v1/persons", Some(&reader), json!({"email": "x@example.com"})).await;
    refused.assert_problem(StatusCode::FORBIDDEN, "missing-scope");
    let refused = shop.api.post("/v1/persons/ann@example.com/reset", Some(&reader), json!({})).await;
    refused.assert_problem(StatusCode::FORBIDDEN, "missing-scope");
    let writer = shop.api.api_token(&shop.token, &["sockets:write"]).await;
    shop.api.get("/v1/persons", Some(&writer)).await.assert_problem(StatusCode::FORBIDDEN, "missing-scope");
}

#[tokio::test]
async fn a_local_provider_is_one_and_has_nothing_of_others() {
    let shop = Shop::open().await.with_local(json!({})).await;
    let (api, token) = (&shop.api, Some(shop.token.as_str()));
    let second = api.post("/v1/providers", token, json!({"name": "more", "kind": "local"})).await;
    second.assert_problem(StatusCode::CONFLICT, "local-provider-taken");
    let changes = [
        (json!({"hook": "https://mail.example/"}), "client_secret"),
        (json!({"hook": "http://mail.example/", "client_secret": SECRET}), "hook"),
        (json!({"hook": "https://mail.example/", "client_secret": "short"}), "client_secret"),
        (json!({"client_secret": SECRET}), "client_secret"),
        (json!({"client_id": "x"}), "client_id"),
        (json!({"trust_email": true}), "trust_email"),
    ];
    for (body, field) in changes {
        let refused = api.send("PATCH", "/v1/providers/local", token, Some(body.clone())).await;
        refused.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
        assert_eq!(refused.field(), field, "{body}");
    }
    let body = json!({"hook": "https://mail.example/", "client_secret": SECRET, "require_totp": true});
    let set: Provider = api.send("PATCH", "/v1/providers/local", token, Some(body)).await.read(StatusCode::OK);
    assert!(set.has_secret && set.require_totp && set.hook.as_deref() == Some("https://mail.example/"));
    // The secret stays when the hook moves, and is not needed when the hook goes.
    for hook in [json!("https://mail.example/other"), Value::Null] {
        let response = api.send("PATCH", "/v1/providers/local", token, Some(json!({"hook": hook}))).await;
        assert_eq!(response.status, StatusCode::OK, "{}", response.text);
    }
}

#[track_caller]
fn assert_signed(message: &Message) {
    let signature = hook_signature(SECRET.as_bytes(), START, message.body.as_bytes());
    assert_eq!(message.header("sallyport-signature"), signature);
    assert_eq!(message.header("content-type"), "application/json");
    assert!(message.head.starts_with("POST /mail?for=shop HTTP/1.1\r\n"), "{}", message.head);
}

#[tokio::test]
async fn links_go_to_the_hook_signed_and_the_person_logs_in_with_them() {
    let hook = FakeHook::start().await;
    let shop = Shop::open().await.with_hook(&hook).await;
    let found = shop.api.post("/v1/providers/local/test", Some(&shop.token), json!({})).await;
    assert!(found.read::<ProviderFound>(StatusCode::OK).works);
    assert_signed(&hook.messages()[0]);
    assert_eq!(hook.messages()[0].json()["kind"], "test");
    let invited = shop.invite("ann@example.com").await;
    assert!(invited.sent && invited.link.is_none() && invited.problem.is_none());
    let message = hook.messages()[1].clone();
    assert_signed(&message);
    let says = message.json();
    assert_eq!(
        (&says["kind"], &says["email"], &says["name"]),
        (&json!("invitation"), &json!("ann@example.com"), &json!("Ann"))
    );
    assert_eq!((&says["provider"], &says["expires_at"]), (&json!("local"), &json!("2027-01-16T08:00:00Z")));
    assert_page(&set_password(&shop.api, &message.link(), PASSWORD).await, 200, "Your password is set");
    let mut walk = Walk::begin(&shop).await;
    shop.grant(&walk.password("ann@example.com", PASSWORD).await);
}

#[tokio::test]
async fn a_hook_that_does_not_take_a_link_leaves_it_to_the_owner() {
    let hook = FakeHook::start().await;
    let shop = Shop::open().await.with_hook(&hook).await;
    let elsewhere = FakeHook::start().await;
    hook.answers(&format!("307 Temporary Redirect\r\nLocation: {}", elsewhere.url));
    let invited = shop.invite("a@example.com").await;
    assert!(!invited.sent && invited.link.is_some());
    assert!(invited.problem.unwrap().contains("is a redirect"));
    assert!(elsewhere.messages().is_empty(), "redirects are not followed");
    hook.answers("400 Bad Request");
    let before = hook.messages().len();
    let invited = shop.invite("b@example.com").await;
    assert!(invited.problem.unwrap().contains("status 400") && hook.messages().len() == before + 1, "a no is a no");
    hook.answers("503 Service Unavailable");
    let before = hook.messages().len();
    assert!(shop.invite("c@example.com").await.problem.unwrap().contains("status 503"));
    assert_eq!(hook.messages().len(), before + 3, "another try may help");
    drop(hook);
    let body = json!({"hook": "http://127.0.0.1:9/", "client_secret": SECRET});
    shop.api.send("PATCH", "/v1/providers/local", Some(&shop.token), Some(body)).await;
    let invited = shop.invite("d@example.com").await;
    assert!(invited.problem.unwrap().contains("cannot be reached") && invited.link.is_some());
}

#[tokio::test]
async fn a_hook_inside_is_not_called_where_everybody_may_configure_one() {
    let hook = FakeHook::start().await;
    let shop = Shop::open_in(Api::start_public().await, START).await.with_hook(&hook).await;
    let invited = shop.invite("a@example.com").await;
    assert!(invited.problem.unwrap().contains("private address") && !invited.sent);
    let localhost = hook.url.replace("127.0.0.1", "localhost");
    let body = json!({"hook": localhost});
    assert_eq!(
        shop.api.send("PATCH", "/v1/providers/local", Some(&shop.token), Some(body)).await.status,
        StatusCode::OK
    );
    assert!(shop.invite("b@example.com").await.problem.unwrap().contains("private address"));
    assert!(hook.messages().is_empty());
}

#[tokio::test]
async fn a_forgotten_password_gets_a_link_and_unknown_addresses_the_same_response() {
    let hook = FakeHook::start().await;
    let shop = Shop::open().await.with_hook(&hook).await;
    for (n, email) in ["ann@example.com", "gone@example.com"].into_iter().enumerate() {
        shop.invite(email).await;
        set_password(&shop.api, &hook.messages()[n].link(), PASSWORD).await;
    }
    shop.change("gone@example.com", json!({"disabled": true})).await;
    let mut walk = Walk::begin(&shop).await;
    let session = shop.grant(&walk.password("ann@example.com", PASSWORD).await).session;
    assert!(walk.browser.get(&shop.api, "/account").await.text.contains("ann@example.com"));

    let mut walk = Walk::begin_switching(&shop, walk.browser).await;
    let page = walk.show().await;
    assert_page(&page, 200, &format!("/local/forgot?login={}", walk.state));
    assert_page(
        &walk.browser.get(&shop.api, &format!("/local/forgot?login={}", walk.state)).await,
        200,
        "A new password",
    );
    let mut answers = Vec::new();
    for email in ["nobody@example.com", "gone@example.com", "nonsense", " Ann@Example.com"] {
        let response = walk.post("/local/forgot", &[("email", email)]).await;
        assert_page(&response, 200, "a message is on its way");
        answers.push(response.text.split("<footer>").next().unwrap().to_owned());
    }
    answers.dedup();
    assert_eq!(answers.len(), 1);
    let message = hook.waits_for(3).await;
    assert_eq!(
        (message.json()["kind"].clone(), message.json()["email"].clone()),
        (json!("password-reset"), json!("ann@example.com"))
    );
    assert!(shop.api.identities.session(session).is_some(), "asking alone changes nothing");
    assert_page(&set_password(&shop.api, &message.link(), "another green bicycle").await, 200, "Your password is set");
    assert!(shop.api.identities.session(session).is_none(), "the former password's login has ended");
    assert_page(&walk.password("ann@example.com", PASSWORD).await, 403, "is wrong");
    shop.grant(&walk.password("ann@example.com", "another green bicycle").await);

    // Messages to one person, and of one client, are limited.
    let mut asked = 4;
    let mut walk = Walk::begin(&shop).await;
    while walk.post("/local/forgot", &[("email", "ann@example.com")]).await.status == StatusCode::OK {
        asked += 1;
        assert!(asked < 50);
    }
    assert_eq!(asked, 10);
    assert_page(&walk.post("/local/forgot", &[("email", "other@example.com")]).await, 429, "Try again later");
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(hook.messages().len() <= 5, "{}", hook.messages().len());
}

#[tokio::test]
async fn without_a_hook_there_is_nothing_to_be_forgotten_here() {
    let shop = Shop::open().await.with_local(json!({})).await;
    let mut walk = Walk::begin(&shop).await;
    assert_page(&walk.show().await, 200, "Ask the operator of the service for a new link");
    assert_page(&walk.browser.get(&shop.api, &format!("/local/forgot?login={}", walk.state)).await, 404, "No messages");
    assert_page(&walk.post("/local/forgot", &[("email", "a@example.com")]).await, 404, "No messages");
    let stranger = Request::get("/local/forgot?login=AAAA").body(Body::empty()).unwrap();
    assert_page(&Browser::default().send(&shop.api, stranger).await, 400, "This login is not known here");
}

#[tokio::test]
async fn disabled_removed_and_reset_persons_are_logged_out_at_once() {
    let shop = Shop::open().await.with_local(json!({})).await;
    let email = "ann@example.com";
    shop.active(email, PASSWORD).await;
    let log_in = async || {
        let mut walk = Walk::begin(&shop).await;
        let session = shop.grant(&walk.password(email, PASSWORD).await).session;
        assert!(shop.api.identities.session(session).is_some());
        session
    };
    let first = log_in().await;
    assert_eq!(shop.change(email, json!({"groups": ["ops"]})).await.status, StatusCode::OK);
    assert!(shop.api.identities.session(first).is_none(), "other groups mean another login");
    let second = log_in().await;
    assert_eq!(shop.api.identities.session(second).unwrap().person.groups, ["ops"]);
    shop.change(email, json!({"disabled": true})).await;
    assert!(shop.api.identities.session(second).is_none() && shop.sessions().await.is_empty());
    assert_eq!(shop.person(email).await.state, PersonState::Disabled);
    let mut walk = Walk::begin(&shop).await;
    assert_page(&walk.password(email, PASSWORD).await, 403, "is wrong");
    let refused = shop.api.post("/v1/persons/ann@example.com/reset", Some(&shop.token), json!({})).await;
    refused.assert_problem(StatusCode::CONFLICT, "person-disabled");
    shop.change(email, json!({"disabled": false})).await;
    let third = log_in().await;
    let codes = async |wanted: bool| {
        let body = Some(json!({"require_totp": wanted}));
        let changed = shop.api.send("PATCH", "/v1/providers/local", Some(&shop.token), body).await;
        assert_eq!(changed.status, StatusCode::OK, "{}", changed.text);
    };
    codes(true).await;
    assert!(shop.api.identities.session(third).is_none(), "no login succeeds without a code");
    codes(false).await;
    let third = log_in().await;
    codes(false).await;
    assert!(shop.api.identities.session(third).is_some());
    let reset = shop.api.post("/v1/persons/ann@example.com/reset", Some(&shop.token), json!({})).await;
    let reset: InvitedPerson = reset.read(StatusCode::OK);
    assert_eq!(reset.person.state, PersonState::Invited);
    assert!(shop.api.identities.session(third).is_none());
    let mut walk = Walk::begin(&shop).await;
    assert_page(&walk.password(email, PASSWORD).await, 403, "is wrong");
    set_password(&shop.api, &path_of(reset.link.unwrap().expose()), PASSWORD).await;
    let fourth = log_in().await;
    shop.api.send("DELETE", "/v1/persons/ann@example.com", Some(&shop.token), None).await;
    assert!(shop.api.identities.session(fourth).is_none());
    let fifth = {
        shop.active("bob@example.com", PASSWORD).await;
        let mut walk = Walk::begin(&shop).await;
        shop.grant(&walk.password("bob@example.com", PASSWORD).await).session
    };
    let refused = shop.api.send("DELETE", "/v1/providers/local", Some(&shop.token), None).await;
    refused.assert_problem(StatusCode::CONFLICT, "provider-has-persons");
    assert!(refused.text.contains("1 person would be removed with it"), "{}", refused.text);
    assert!(shop.api.identities.session(fifth).is_some());
    let reset = shop.api.post("/v1/persons/bob@example.com/reset", Some(&shop.token), json!({"totp": true})).await;
    let link = reset.read::<InvitedPerson>(StatusCode::OK).link.unwrap();
    set_password(&shop.api, &path_of(link.expose()), PASSWORD).await;
    let sixth = {
        let mut walk = Walk::begin(&shop).await;
        shop.grant(&walk.password("bob@example.com", PASSWORD).await).session
    };
    shop.api.send("DELETE", "/v1/providers/local?force=true", Some(&shop.token), None).await;
    assert!(shop.api.identities.session(sixth).is_none(), "its persons go with a provider");
    let acted = shop.api.actions(&shop.token).await;
    for action in ["person.disable", "person.enable", "person.reset", "person.reset-totp"] {
        assert!(acted.iter().any(|acted| acted == action), "{action}: {acted:?}");
    }
}
