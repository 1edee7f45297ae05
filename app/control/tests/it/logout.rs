//! The end of logins: at the provider, by its report or by a check, and here, after which the next visit asks.

use axum::body::Body;
use http::{Request, StatusCode, header};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use sallyport_api::{Page, Provider};
use sallyport_identity::{LoginRequest, LogoutRequest, Purpose};
use sallyport_model::LoginSessionId;
use serde_json::{Value, json};

use crate::{
    fake_provider::FakeProvider,
    harness::HttpResponse,
    login::{Browser, Shop, assert_page},
    pages::ways,
};

impl Shop {
    /// A provider with these settings. `with_tokens` is added to the tokens of a login.
    async fn with(more: Value, claims: Value, with_tokens: Value) -> (Self, FakeProvider, Provider) {
        let (shop, fake) = (Self::open().await, FakeProvider::start().await);
        {
            let mut says = fake.says();
            says.claims = claims;
            says.with_tokens = with_tokens;
            says.discovery = json!({
                "end_session_endpoint": format!("{}/end?x=1", fake.issuer),
                "introspection_endpoint": format!("{}/introspect", fake.issuer),
                "backchannel_logout_supported": true,
            });
        }
        let provider = shop.add("dex", &fake, more).await;
        (shop, fake, provider)
    }

    /// Makes a login in this browser.
    async fn in_browser(&self, browser: &mut Browser, fake: &FakeProvider) -> LoginSessionId {
        let response = self.log_in(browser, fake).await;
        self.grant(&response).session
    }

    fn is_in(&self, session: LoginSessionId) -> bool {
        self.api.identities.session(session).is_some()
    }

    async fn back_channel(&self, provider: &Provider, token: &str) -> HttpResponse {
        let path = provider.backchannel_logout_uri.strip_prefix("https://login.localhost:8443").unwrap();
        let body = format!("logout_token={}", utf8_percent_encode(token, NON_ALPHANUMERIC));
        let request = Request::post(path).header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        self.api.page(request.body(Body::from(body)).unwrap()).await
    }

    /// Lets time pass here and at the provider, and runs the due checks.
    async fn pass(&self, fake: &FakeProvider, seconds: u64) -> usize {
        self.api.clock.pass(seconds);
        fake.says().now += seconds.cast_signed();
        self.api.control.check_providers().await.unwrap()
    }

    /// A fresh token of the owner, because the first one has expired.
    async fn fresh_token(&self) -> String {
        self.api.login("owner@example.com").await.access_token.expose().to_owned()
    }

    async fn reasons(&self) -> Vec<String> {
        let token = self.fresh_token().await;
        let events = self.api.audit(&token, "&kind=login").await;
        events.into_iter().filter_map(|event| event.login?.reason).collect()
    }
}

#[tokio::test]
async fn a_provider_reports_the_end_of_a_login() {
    let (shop, fake, provider) = Shop::with(json!({}), json!({"sid": "s-1"}), json!({})).await;
    let token = |claims: Value| fake.says().logout_token(&fake.issuer, &claims);
    let first = shop.in_browser(&mut Browser::default(), &fake).await;
    fake.says().claims = json!({"sid": "s-2"});
    let second = shop.in_browser(&mut Browser::default(), &fake).await;
    fake.says().claims = json!({"sid": "s-3", "sub": "u-2"});
    let other = shop.in_browser(&mut Browser::default(), &fake).await;

    // A token with any fault ends nothing.
    for (claims, says) in [
        (json!({"iss": "https://evil.test"}), "`iss`"),
        (json!({"aud": "someone"}), "`aud`"),
        (json!({"nonce": "n"}), "`nonce`"),
        (json!({"events": {}}), "`events`"),
        (json!({"sub": null}), "`sub`"),
        (json!({"jti": null}), "`jti`"),
        (json!({"iat": fake.says().now - 3_600}), "not valid now"),
    ] {
        let refused = shop.back_channel(&provider, &token(claims)).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{}", refused.text);
        assert_eq!(refused.header("cache-control"), Some("no-store"));
        let body = refused.json();
        assert_eq!(body["error"], "invalid_request");
        assert!(body["error_description"].as_str().unwrap().contains(says), "{body}");
    }
    for nonsense in ["", "a.b.c", &"x".repeat(70_000)] {
        let refused = shop.back_channel(&provider, nonsense).await;
        assert!(refused.status.is_client_error(), "{}", refused.status);
    }
    let path = provider.backchannel_logout_uri.strip_prefix("https://login.localhost:8443").unwrap();
    let no_form = Request::post(path).body(Body::from("logout_token=x")).unwrap();
    assert_eq!(shop.api.page(no_form).await.status, StatusCode::BAD_REQUEST);
    let elsewhere = Provider {
        backchannel_logout_uri: provider.backchannel_logout_uri.replace("/dex", "/none"),
        ..provider.clone()
    };
    assert_eq!(shop.back_channel(&elsewhere, &token(json!({}))).await.status, StatusCode::BAD_REQUEST);
    assert!(shop.is_in(first) && shop.is_in(second) && shop.is_in(other));

    // One login of the person, by the provider's session id.
    let one = token(json!({"sid": "s-1"}));
    let ended = shop.back_channel(&provider, &one).await;
    assert_eq!((ended.status, ended.json()["ended"].clone()), (StatusCode::OK, json!(1)), "{}", ended.text);
    assert!(!shop.is_in(first) && shop.is_in(second) && shop.is_in(other));
    assert!(shop.reasons().await.iter().any(|reason| reason == "logged out at the provider"));
    // The same token counts once.
    let replayed = shop.back_channel(&provider, &one).await;
    assert!(replayed.is_refusal("was used before"), "{}", replayed.text);

    // All logins of the person, and no others.
    let ended = shop.back_channel(&provider, &token(json!({"jti": "j-2"}))).await;
    assert_eq!((ended.status, shop.is_in(second), shop.is_in(other)), (StatusCode::OK, false, true));
    // An unknown person is no error.
    let nobody = shop.back_channel(&provider, &token(json!({"jti": "j-3", "sub": "u-9"}))).await;
    assert_eq!((nobody.status, nobody.json()["ended"].clone()), (StatusCode::OK, json!(0)));
    // By the session id alone.
    let ended = shop.back_channel(&provider, &token(json!({"jti": "j-4", "sub": null, "sid": "s-3"}))).await;
    assert_eq!((ended.status, shop.is_in(other)), (StatusCode::OK, false));
}

impl HttpResponse {
    fn is_refusal(&self, says: &str) -> bool {
        self.status == StatusCode::BAD_REQUEST && self.json()["error_description"].as_str().unwrap().contains(says)
    }
}

#[tokio::test]
async fn a_login_without_a_name_at_the_provider_ends_with_any_of_the_person() {
    let (shop, fake, provider) = Shop::with(json!({}), json!({}), json!({})).await;
    let session = shop.in_browser(&mut Browser::default(), &fake).await;
    let token = fake.says().logout_token(&fake.issuer, &json!({"sid": "s-9"}));
    assert_eq!(shop.back_channel(&provider, &token).await.status, StatusCode::OK);
    assert!(!shop.is_in(session), "it may be the one that is meant");
}

#[tokio::test]
async fn a_login_on_its_way_back_ends_with_a_logout_that_overtakes_it() {
    let (shop, fake, provider) = Shop::with(json!({}), json!({"sid": "s-1"}), json!({})).await;
    let mut browser = Browser::default();
    let (_, asked) = shop.begin(&mut browser, &shop.request()).await;
    let code = fake.log_in(&asked);
    let token = fake.says().logout_token(&fake.issuer, &json!({"sid": "s-1"}));
    assert_eq!(shop.back_channel(&provider, &token).await.status, StatusCode::OK);
    let late = browser.get(&shop.api, &Shop::back(&asked, &code)).await;
    assert_eq!(late.status, StatusCode::BAD_REQUEST, "{}", late.text);
    assert!(shop.sessions().await.is_empty());
}

#[tokio::test]
async fn a_login_lasts_as_long_as_its_refresh_token() {
    let more = json!({"groups_claim": "groups", "check_minutes": 2});
    let (shop, fake, _) = Shop::with(more, json!({}), json!({"refresh_token": "r"})).await;
    let session = shop.in_browser(&mut Browser::default(), &fake).await;
    assert_eq!(shop.pass(&fake, 60).await, 0, "it is not time yet");
    assert_eq!((shop.pass(&fake, 60).await, shop.is_in(session)), (1, true));
    assert_eq!(fake.says().refresh_token.as_deref(), Some("r+"));
    // The next refresh uses the new token, and the provider's new description counts.
    fake.says().refreshed = Some(json!({"groups": ["leavers"]}));
    assert_eq!((shop.pass(&fake, 120).await, shop.is_in(session)), (1, true));
    assert_eq!(shop.api.identities.session(session).unwrap().person.groups, ["leavers"]);
    // A token without groups does not remove groups, unless userinfo removes them.
    fake.says().refreshed = Some(json!({"groups": null}));
    shop.pass(&fake, 120).await;
    assert_eq!(shop.api.identities.session(session).unwrap().person.groups, ["leavers"]);
    fake.says().userinfo = json!({"sub": "u-1"});
    shop.pass(&fake, 120).await;
    assert!(shop.api.identities.session(session).unwrap().person.groups.is_empty(), "none are left");
    // The tokens for checks are not in what edges know, and are sealed in the store.
    let stored = shop.api.store.provider_tokens(session).await.unwrap().unwrap();
    assert!(!stored.contains("r+"), "{stored}");
    // A provider that is down ends no login.
    fake.says().refresh_response = Some((503, "down".to_owned()));
    for _ in 0..5 {
        shop.pass(&fake, 1_000).await;
        assert!(shop.is_in(session));
    }
    fake.says().refresh_response = Some((401, json!({"error": "invalid_client"}).to_string()));
    shop.pass(&fake, 1_000).await;
    assert!(shop.is_in(session), "that is about us, and not about the person");
    fake.says().refresh_response = None;
    assert_eq!((shop.pass(&fake, 1_000).await, shop.is_in(session)), (1, true));
    // The login of a person who is disabled at the provider ends.
    fake.says().refresh_token = None;
    assert_eq!((shop.pass(&fake, 120).await, shop.is_in(session)), (1, false));
    assert!(shop.reasons().await.iter().any(|reason| reason.contains("invalid_grant (no such token)")));
    assert_eq!(shop.pass(&fake, 1_000).await, 0, "no login is left to check");
}

#[tokio::test]
async fn a_refreshed_person_that_is_not_allowed_is_logged_out() {
    for claims in [json!({"sub": "u-2"}), json!({"email_verified": false}), json!({"groups": [{"a": 1}]})] {
        let more = json!({"groups_claim": "groups"});
        let (shop, fake, _) = Shop::with(more, json!({}), json!({"refresh_token": "r"})).await;
        let session = shop.in_browser(&mut Browser::default(), &fake).await;
        fake.says().refreshed = Some(claims.clone());
        assert_eq!((shop.pass(&fake, 300).await, shop.is_in(session)), (1, false), "{claims}");
    }
}

#[tokio::test]
async fn the_access_token_is_introspected_where_there_is_no_refresh_token() {
    let tokens = json!({"expires_in": 1_000});
    let (shop, fake, _) = Shop::with(json!({}), json!({}), tokens.clone()).await;
    let session = shop.in_browser(&mut Browser::default(), &fake).await;
    assert_eq!((shop.pass(&fake, 300).await, shop.is_in(session)), (1, true));
    fake.says().introspection = (500, json!({}));
    assert_eq!((shop.pass(&fake, 300).await, shop.is_in(session)), (1, true));
    fake.says().introspection = (200, json!({"active": true}));
    // After the end of the token, no check is possible.
    shop.pass(&fake, 900).await;
    fake.says().introspection = (200, json!({"active": false}));
    shop.pass(&fake, 2_000).await;
    assert!(shop.is_in(session));

    let (shop, fake, _) = Shop::with(json!({}), json!({}), tokens).await;
    let session = shop.in_browser(&mut Browser::default(), &fake).await;
    fake.says().introspection = (200, json!({"active": false}));
    assert_eq!((shop.pass(&fake, 300).await, shop.is_in(session)), (1, false));
}

#[tokio::test]
async fn a_provider_is_not_checked_where_checks_are_off() {
    let (shop, fake, provider) =
        Shop::with(json!({"check_minutes": 0}), json!({}), json!({"refresh_token": "r"})).await;
    assert_eq!(provider.check_minutes, 0);
    let session = shop.in_browser(&mut Browser::default(), &fake).await;
    fake.says().refresh_token = None;
    assert_eq!((shop.pass(&fake, 3_000).await, shop.is_in(session)), (0, true));
    let bad = json!({"name": "x", "kind": "oidc", "issuer": fake.issuer, "client_id": "c", "check_minutes": 1_441});
    let refused = shop.api.post("/v1/providers", Some(&shop.fresh_token().await), bad).await;
    assert_eq!((refused.status, refused.field()), (StatusCode::UNPROCESSABLE_ENTITY, "check_minutes".to_owned()));
}

#[tokio::test]
async fn after_a_logout_the_next_visit_prompts_and_the_provider_can_be_logged_out_too() {
    let (shop, fake, provider) = Shop::with(json!({}), json!({}), json!({})).await;
    let mut browser = Browser::default();
    let session = shop.in_browser(&mut browser, &fake).await;
    let ticket = LogoutRequest { session, socket: shop.socket.id, at: shop.at };
    let ticket = shop.api.sealer.seal(Purpose::Logout, &ticket, [3; 12]).unwrap();
    let out = browser.get(&shop.api, &format!("/logout?ticket={ticket}")).await;
    assert_eq!(out.status, StatusCode::OK, "{}", out.text);
    assert!(!shop.is_in(session));
    let end = format!("{}/end?x=1&amp;client_id=sallyport&amp;id_token_hint=ey", fake.issuer);
    assert!(out.text.contains(&end) && out.text.contains("Log out at dex too"), "{}", out.text);
    let led = ways(&out);
    let link = led.iter().find(|to| to.starts_with(&format!("{}/end?", fake.issuer))).unwrap();
    let asked = crate::login::parameters(link.split_once('?').unwrap().1);
    assert_eq!(asked["post_logout_redirect_uri"], provider.post_logout_redirect_uri);
    // The provider returns the browser.
    let state = &asked["state"];
    let back = browser.get(&shop.api, &format!("/logged-out?state={state}")).await;
    assert_eq!(back.status, StatusCode::OK);
    assert!(back.text.contains(&format!("https://{}:8443/", shop.socket.dns_name)), "{}", back.text);
    let bare = browser.get(&shop.api, "/logged-out?state=nonsense").await;
    assert_eq!((bare.status, ways(&bare)), (StatusCode::OK, vec!["/logout".to_owned()]), "{}", bare.text);
    assert!(!bare.text.contains("You are logged out"), "the page claims nothing that is not certain: {}", bare.text);

    // The next visit asks the person, and so does the provider.
    let page = browser.get(&shop.api, &shop.start_path(&shop.request())).await;
    assert_page(&page, 200, "You have logged out in this browser");
    let asked = browser.get(&shop.api, &ways(&page)[0]).await;
    let to = asked.header("location").unwrap().to_owned();
    assert!(to.contains("prompt=login"), "{to}");
    // Another browser is redirected as before.
    let (to, _) = shop.begin(&mut Browser::default(), &shop.request()).await;
    assert!(!to.contains("prompt="), "{to}");
    // After a login everything is as before.
    let parameters = crate::login::parameters(asked.header("location").unwrap().split_once('?').unwrap().1);
    let code = fake.log_in(&parameters);
    let session = shop.grant(&browser.get(&shop.api, &Shop::back(&parameters, &code)).await).session;
    assert!(shop.is_in(session));
    let again =
        browser.get(&shop.api, &shop.start_path(&LoginRequest { return_to: "/x".to_owned(), ..shop.request() })).await;
    shop.grant(&again);
}

#[tokio::test]
async fn an_account_that_is_refused_may_be_another() {
    let (shop, fake, _) = Shop::with(json!({}), json!({"email_verified": false}), json!({})).await;
    let refused = shop.log_in(&mut Browser::default(), &fake).await;
    assert_page(&refused, 403, "does not vouch for the e-mail address");
    let again = format!("href=\"https://{}:8443/.sallyport/login?switch=1\"", shop.socket.dns_name);
    assert!(refused.text.contains(&again) && !refused.text.contains("Try again"), "{}", refused.text);
}

#[tokio::test]
async fn every_group_counts_or_no_person_is_admitted() {
    let claims = json!({"groups": ["eng", "r&d, special", "CN=leavers,OU=x"]});
    let (shop, fake, _) = Shop::with(json!({"groups_claim": "groups"}), claims, json!({})).await;
    let session = shop.in_browser(&mut Browser::default(), &fake).await;
    let person = shop.api.identities.session(session).unwrap().person.clone();
    assert_eq!((person.groups.len(), person.groups_stated), (3, true));
    assert_eq!(person.groups[1..], ["r&d, special", "CN=leavers,OU=x"]);
    let listed: Page<sallyport_api::LoginSession> =
        shop.api.get("/v1/login-sessions", Some(&shop.token)).await.read(StatusCode::OK);
    assert_eq!(listed.items[0].groups, person.groups);
    fake.says().userinfo = json!({"sub": "u-1"});
    for (claims, says) in [
        (json!({"groups": ["eng", {"name": "leavers"}]}), "cannot be kept to"),
        (json!({"groups": {"leavers": true}}), "cannot be kept to"),
        (json!({"groups": ["a\nb"]}), "cannot be kept to"),
        (json!({"groups": [""]}), "cannot be kept to"),
        (json!({"groups": ["x".repeat(600)]}), "cannot be kept to"),
        (json!({"groups": (0..300).map(|n| n.to_string()).collect::<Vec<_>>()}), "more than 200 groups"),
        (json!({"groups": (0..10).map(|n| format!("{n}{}", "y".repeat(500))).collect::<Vec<_>>()}), "bytes together"),
        (json!({"groups": null, "_claim_names": {"groups": "s"}}), "more groups of this account than it gives"),
    ] {
        fake.says().claims = claims.clone();
        let refused = shop.log_in(&mut Browser::default(), &fake).await;
        assert_page(&refused, 403, says);
        assert!(shop.reasons().await.iter().any(|reason| reason.contains(says)), "{claims}");
    }
    assert_eq!(shop.sessions().await.len(), 1);
}
