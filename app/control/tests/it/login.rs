//! Logins by browser, without an edge: from a sealed request to a sealed grant, and every way in which they must fail.

use std::collections::{BTreeMap, HashMap};

use axum::body::Body;
use http::{HeaderMap, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use percent_encoding::percent_decode_str;
use sallyport_api::{EndedLoginSessions, LoginSession, Page, Provider, Socket};
use sallyport_identity::{Binding, Grant, LoginRequest, LogoutRequest, Purpose};
use sallyport_model::{ClientAddr, SocketId};
use serde_json::{Value, json};
use tower_service::Service as _;

use crate::{
    fake_provider::{CLIENT_ID, FakeProvider, SECRET, Signing},
    harness::{Api, HttpResponse, START},
};

pub(crate) fn parameters(query: &str) -> HashMap<String, String> {
    let decoded = |text: &str| percent_decode_str(text).decode_utf8().unwrap().into_owned();
    query.split('&').filter_map(|pair| pair.split_once('=')).map(|(n, v)| (decoded(n), decoded(v))).collect()
}

/// A browser that keeps cookies, and follows no redirect.
#[derive(Default, Clone)]
pub(crate) struct Browser {
    pub(crate) cookies: BTreeMap<String, String>,
}

impl Browser {
    pub(crate) async fn send(&mut self, api: &Api, mut request: Request<Body>) -> HttpResponse {
        request.extensions_mut().insert(ClientAddr("192.0.2.7:4000".parse().unwrap()));
        let cookies: Vec<String> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        if !cookies.is_empty() {
            request.headers_mut().insert(header::COOKIE, cookies.join("; ").parse().unwrap());
        }
        let response = api.login.clone().call(request).await.unwrap();
        let (parts, body) = response.into_parts();
        self.keep(&parts.headers);
        assert_hardened(&parts.headers);
        let bytes = body.collect().await.unwrap().to_bytes();
        HttpResponse { status: parts.status, headers: parts.headers, text: String::from_utf8(bytes.to_vec()).unwrap() }
    }

    pub(crate) async fn get(&mut self, api: &Api, path: &str) -> HttpResponse {
        self.send(api, Request::get(path).body(Body::empty()).unwrap()).await
    }

    fn keep(&mut self, headers: &HeaderMap) {
        for cookie in headers.get_all(header::SET_COOKIE) {
            let cookie = cookie.to_str().unwrap();
            let (pair, attributes) = cookie.split_once("; ").unwrap();
            let (name, value) = pair.split_once('=').unwrap();
            assert!(name.starts_with("__Host-") && !attributes.contains("Domain"), "{cookie}");
            for attribute in ["Path=/", "Secure", "HttpOnly", "SameSite=Lax"] {
                assert!(attributes.split("; ").any(|has| has == attribute), "{cookie}");
            }
            if attributes.contains("Max-Age=0") {
                self.cookies.remove(name);
            } else {
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
        }
    }
}

fn assert_hardened(headers: &HeaderMap) {
    let policy = headers[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
    assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"), "{policy}");
    assert!(!policy.contains("script"), "{policy}");
    assert_eq!(headers[header::CACHE_CONTROL], "no-store");
    assert_eq!(headers[header::REFERRER_POLICY], "same-origin");
    assert_eq!(headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
}

/// An account with a socket that needs a login, and a provider named `dex`.
pub(crate) struct Shop {
    pub(crate) api: Api,
    pub(crate) token: String,
    pub(crate) socket: Socket,
    pub(crate) binding: Binding,
    /// The time of requests, in seconds since 1970.
    pub(crate) at: i64,
}

impl Shop {
    pub(crate) async fn open() -> Self {
        Self::open_at(START).await
    }

    /// At this time, in seconds since 1970.
    pub(crate) async fn open_at(at: i64) -> Self {
        Self::open_in(Api::start().await, at).await
    }

    pub(crate) async fn open_in(api: Api, at: i64) -> Self {
        api.clock.jump(at - START);
        let token = api.account("owner@example.com").await;
        let socket = api.socket(&token, "shop").await;
        let shop = Self { api, token, socket, binding: Binding { secret: [7; 32], at }, at };
        shop.asks(json!({"email_domains": ["example.com"]})).await;
        shop
    }

    pub(crate) async fn asks(&self, identity: Value) {
        let path = format!("/v1/sockets/{}", self.socket.id);
        let response = self.api.send("PATCH", &path, Some(&self.token), Some(json!({"identity": identity}))).await;
        assert_eq!(response.status, StatusCode::OK, "{}", response.text);
    }

    pub(crate) async fn add(&self, name: &str, provider: &FakeProvider, more: Value) -> Provider {
        let mut body = json!({"name": name, "kind": "oidc", "issuer": provider.issuer, "client_id": CLIENT_ID,
                              "client_secret": SECRET});
        for (field, value) in more.as_object().unwrap() {
            body[field] = value.clone();
        }
        self.api.post("/v1/providers", Some(&self.token), body).await.read(StatusCode::CREATED)
    }

    /// The sealed request of an edge.
    pub(crate) fn request(&self) -> LoginRequest {
        LoginRequest {
            socket: self.socket.id,
            binding: self.binding.hash(),
            return_to: "/basket?item=7".to_owned(),
            host: None,
            switch: false,
            is_of_login_host: false,
            at: self.at,
        }
    }

    pub(crate) fn start_path(&self, request: &LoginRequest) -> String {
        let sealed = self.api.sealer.seal(Purpose::LoginRequest, request, rand12()).unwrap();
        format!("/start?request={sealed}")
    }

    /// Begins a login. Returns the provider's address and its parameters.
    pub(crate) async fn begin(
        &self,
        browser: &mut Browser,
        request: &LoginRequest,
    ) -> (String, HashMap<String, String>) {
        let response = browser.get(&self.api, &self.start_path(request)).await;
        assert_eq!(response.status, StatusCode::SEE_OTHER, "{}", response.text);
        let to = response.header("location").unwrap().to_owned();
        let (_, query) = to.split_once('?').unwrap();
        (to.clone(), parameters(query))
    }

    /// The path of the returning browser.
    pub(crate) fn back(asked: &HashMap<String, String>, code: &str) -> String {
        let path = asked["redirect_uri"].strip_prefix("https://login.localhost:8443").unwrap();
        format!("{path}?code={code}&state={}", asked["state"])
    }

    /// A whole login at this provider.
    pub(crate) async fn log_in(&self, browser: &mut Browser, provider: &FakeProvider) -> HttpResponse {
        let (_, asked) = self.begin(browser, &self.request()).await;
        let code = provider.log_in(&asked);
        browser.get(&self.api, &Self::back(&asked, &code)).await
    }

    /// The grant in the redirect to the socket.
    #[track_caller]
    pub(crate) fn grant(&self, response: &HttpResponse) -> Grant {
        assert_eq!(response.status, StatusCode::SEE_OTHER, "{}", response.text);
        let to = response.header("location").unwrap();
        let prefix = format!("https://{}:8443/.sallyport/callback?grant=", self.socket.dns_name);
        self.api.sealer.open(Purpose::Grant, to.strip_prefix(&prefix).expect(to)).unwrap()
    }

    pub(crate) async fn sessions(&self) -> Vec<LoginSession> {
        let listed = self.api.get("/v1/login-sessions", Some(&self.token)).await;
        listed.read::<Page<LoginSession>>(StatusCode::OK).items
    }
}

fn rand12() -> [u8; 12] {
    let mut bytes = [0; 12];
    getrandom::fill(&mut bytes).unwrap();
    bytes
}

#[track_caller]
pub(crate) fn assert_page(response: &HttpResponse, status: u16, says: &str) {
    assert_eq!(response.status.as_u16(), status, "{}", response.text);
    assert!(response.text.contains(says), "{says:?} is not in {}", response.text);
    assert!(response.header("location").is_none() && !response.text.contains("<script"));
    let is_signed_on = response.headers.get_all(header::SET_COOKIE).iter().any(|cookie| {
        let cookie = cookie.to_str().unwrap();
        cookie.contains("-sso-") && !cookie.contains("Max-Age=0")
    });
    assert!(!is_signed_on, "a refusal logs no person in");
}

#[tokio::test]
async fn a_person_logs_in_and_returns_to_the_socket() {
    let (shop, provider) = (Shop::open().await, FakeProvider::start().await);
    let made = shop.add("dex", &provider, json!({"groups_claim": "groups"})).await;
    let mut browser = Browser::default();
    let (to, asked) = shop.begin(&mut browser, &shop.request()).await;
    assert!(to.starts_with(&format!("{}/authorize?tenant=1&", provider.issuer)), "{to}");
    assert_eq!(made.redirect_uri, asked["redirect_uri"]);
    assert_eq!(asked["scope"], "openid email profile groups");
    assert!(!asked.contains_key("prompt"));
    let code = provider.log_in(&asked);
    let response = browser.get(&shop.api, &Shop::back(&asked, &code)).await;
    let grant = shop.grant(&response);
    assert!(grant.is_for(shop.socket.id, &shop.binding, START));
    assert_eq!(grant.return_to, "/basket?item=7");
    assert_eq!(browser.cookies.len(), 1, "the login's own cookie is gone: {:?}", browser.cookies.keys());

    let session = shop.api.identities.session(grant.session).unwrap();
    assert_eq!(session.person.email.as_str(), "ann@example.com");
    assert_eq!(session.person.name.as_deref(), Some("Ann \u{c5}"));
    assert_eq!((session.person.groups.join(" "), session.person.subject.as_str()), ("eng ops".to_owned(), "u-1"));
    assert_eq!((session.authenticated_at, session.expires_at), (START, START + 720 * 60));
    assert_eq!(session.organisation, shop.api.routes.get(shop.socket.id).unwrap().account);
    let listed = shop.sessions().await;
    assert_eq!((listed.len(), listed[0].id, listed[0].email.as_str()), (1, session.id, "ann@example.com"));
}

#[tokio::test]
async fn the_second_socket_needs_no_prompt_until_the_login_is_old_or_the_person_switches() {
    let (shop, provider) = (Shop::open().await, FakeProvider::start().await);
    shop.add("dex", &provider, json!({})).await;
    let mut browser = Browser::default();
    let first = shop.grant(&shop.log_in(&mut browser, &provider).await);
    let again = browser.get(&shop.api, &shop.start_path(&shop.request())).await;
    let second = shop.grant(&again);
    assert!(second.session == first.session && second.id != first.id);
    let stranger = Browser::default().get(&shop.api, &shop.start_path(&shop.request())).await;
    assert!(stranger.header("location").unwrap().starts_with(&provider.issuer));

    let switch = LoginRequest { switch: true, ..shop.request() };
    let page = browser.get(&shop.api, &shop.start_path(&switch)).await;
    assert_page(&page, 200, "provider=dex");
    let path = format!("{}&provider=dex", shop.start_path(&switch));
    let response = browser.get(&shop.api, &path).await;
    let asked = parameters(response.header("location").unwrap().split_once('?').unwrap().1);
    assert_eq!(asked["prompt"], "login");
    provider.says().claims = json!({"sub": "u-2", "email": "bob@example.com"});
    let code = provider.log_in(&asked);
    let third = shop.grant(&browser.get(&shop.api, &Shop::back(&asked, &code)).await);
    assert_eq!(shop.api.identities.session(third.session).unwrap().person.email.as_str(), "bob@example.com");
    assert!(shop.api.identities.session(first.session).is_none(), "the former login of the browser has ended");

    shop.api.clock.pass(720 * 60);
    provider.says().now = START + 720 * 60;
    let late = LoginRequest { at: START + 720 * 60, ..shop.request() };
    let asked_again = browser.get(&shop.api, &shop.start_path(&late)).await;
    assert!(asked_again.header("location").unwrap().starts_with(&provider.issuer));
}

#[tokio::test]
async fn a_login_of_one_organisation_is_worth_nothing_at_another() {
    let (shop, provider) = (Shop::open().await, FakeProvider::start().await);
    shop.add("dex", &provider, json!({})).await;
    let mut browser = Browser::default();
    shop.grant(&shop.log_in(&mut browser, &provider).await);
    let other = shop.api.account("other@example.com").await;
    let socket = shop.api.socket(&other, "other").await;
    let elsewhere = LoginRequest { socket: socket.id, ..shop.request() };
    let response = browser.get(&shop.api, &shop.start_path(&elsewhere)).await;
    assert_page(&response, 503, "Nobody can log in here yet");
    // The login cookie under the name of the other organisation's.
    let organisation = shop.api.routes.get(socket.id).unwrap().account;
    let value = browser.cookies.values().next().unwrap().clone();
    let name = format!("__Host-sallyport-sso-{}", &organisation.uuid().simple().to_string()[..12]);
    browser.cookies.insert(name, value);
    let response = browser.get(&shop.api, &shop.start_path(&elsewhere)).await;
    assert_page(&response, 503, "Nobody can log in here yet");
    let missing = shop.api.get("/v1/providers/dex", Some(&other)).await;
    missing.assert_problem(StatusCode::NOT_FOUND, "not-found");
    let id = shop.sessions().await[0].id;
    let path = format!("/v1/login-sessions/{id}");
    shop.api.send("DELETE", &path, Some(&other), None).await.assert_problem(StatusCode::NOT_FOUND, "not-found");
}

#[tokio::test]
async fn requests_that_no_edge_made_are_refused() {
    let (shop, provider) = (Shop::open().await, FakeProvider::start().await);
    shop.add("dex", &provider, json!({})).await;
    let mut browser = Browser::default();
    let forged = shop.api.sealer.seal(Purpose::Form, &shop.request(), rand12()).unwrap();
    for path in [
        "/start",
        "/start?request=",
        "/start?request=AAAA",
        &format!("/start?request={forged}"),
        "/start?request=a&request=b",
    ] {
        assert_page(&browser.get(&shop.api, path).await, 400, "This link does not work");
    }
    assert_page(
        &browser.get(&shop.api, &format!("{}&provider=x", shop.start_path(&shop.request()))).await,
        400,
        "This link",
    );
    let gone = LoginRequest { socket: SocketId::from_random([1; 16]), ..shop.request() };
    assert_page(&browser.get(&shop.api, &shop.start_path(&gone)).await, 404, "The service is gone");
    for at in [START - 601, START + 61] {
        let old = LoginRequest { at, ..shop.request() };
        assert_page(&browser.get(&shop.api, &shop.start_path(&old)).await, 400, "This link is too old");
    }
    let long = browser.get(&shop.api, &format!("/start?request={}", "A".repeat(9_000))).await;
    assert_page(&long, 414, "Address too long");
    assert_page(&browser.get(&shop.api, "/elsewhere").await, 404, "No such page");
    assert_page(&browser.get(&shop.api, "/").await, 200, "Sign in");
    let post = Request::post("/start").body(Body::empty()).unwrap();
    assert_eq!(browser.send(&shop.api, post).await.status, StatusCode::METHOD_NOT_ALLOWED);
    assert!(browser.cookies.is_empty() && shop.sessions().await.is_empty());
}

#[tokio::test]
async fn the_way_back_is_never_to_another_host() {
    let (shop, provider) = (Shop::open().await, FakeProvider::start().await);
    shop.add("dex", &provider, json!({})).await;
    for evil in ["//evil.test/", "https://evil.test/", "/\\evil.test", "/a\r\nLocation: https://evil.test"] {
        let mut browser = Browser::default();
        let request = LoginRequest { return_to: evil.to_owned(), ..shop.request() };
        let (_, asked) = shop.begin(&mut browser, &request).await;
        let code = provider.log_in(&asked);
        let response = browser.get(&shop.api, &Shop::back(&asked, &code)).await;
        assert_eq!(shop.grant(&response).return_to, "/", "{evil:?}");
    }
}

#[tokio::test]
async fn a_state_is_good_once_in_its_own_browser_for_its_own_provider() {
    let (shop, provider) = (Shop::open().await, FakeProvider::start().await);
    shop.add("dex", &provider, json!({})).await;
    let mut browser = Browser::default();
    let (_, asked) = shop.begin(&mut browser, &shop.request()).await;
    let code = provider.log_in(&asked);
    let back = Shop::back(&asked, &code);
    let with_cookie = browser.clone();

    let refused = "This login is not known here";
    assert_page(&Browser::default().get(&shop.api, &back).await, 400, refused);
    let mut forged = asked.clone();
    forged.insert("state".to_owned(), format!("{}AAAAAAAAAA", &asked["state"][..12]));
    assert_page(&with_cookie.clone().get(&shop.api, &Shop::back(&forged, &code)).await, 400, refused);
    let no_state = back.split("&state").next().unwrap().to_owned();
    assert_page(&with_cookie.clone().get(&shop.api, &no_state).await, 400, "This link does not work");
    assert_page(
        &with_cookie.clone().get(&shop.api, &format!("{back}&code=other")).await,
        400,
        "This link does not work",
    );
    let elsewhere = back.replacen("/dex?", "/other?", 1);
    assert_page(&with_cookie.clone().get(&shop.api, &elsewhere).await, 400, refused);
    assert!(!provider.asked().contains(&"/token".to_owned()), "no code was sent anywhere");

    // The attempt at another provider's address has used the state up; a new login shows single use.
    let mut browser = Browser::default();
    let (_, asked) = shop.begin(&mut browser, &shop.request()).await;
    let code = provider.log_in(&asked);
    let back = Shop::back(&asked, &code);
    let stolen = browser.clone();
    shop.grant(&browser.get(&shop.api, &back).await);
    assert_page(&browser.get(&shop.api, &back).await, 400, refused);
    assert_page(&stolen.clone().get(&shop.api, &back).await, 400, refused);

    let mut late = Browser::default();
    let (_, asked) = shop.begin(&mut late, &shop.request()).await;
    let code = provider.log_in(&asked);
    shop.api.clock.pass(601);
    assert_page(&late.get(&shop.api, &Shop::back(&asked, &code)).await, 400, refused);
    assert_eq!(shop.sessions().await.len(), 1);
}

#[tokio::test]
async fn a_code_of_another_login_is_worth_nothing() {
    let (shop, provider) = (Shop::open().await, FakeProvider::start().await);
    shop.add("dex", &provider, json!({})).await;
    let (mut ann, mut eve) = (Browser::default(), Browser::default());
    let (_, asked_ann) = shop.begin(&mut ann, &shop.request()).await;
    let (_, asked_eve) = shop.begin(&mut eve, &shop.request()).await;
    let code = provider.log_in(&asked_eve);
    let response = ann.get(&shop.api, &Shop::back(&asked_ann, &code)).await;
    assert_page(&response, 400, "refused: invalid_grant (&lt;no such code&gt;)");
    assert!(shop.sessions().await.is_empty());
}

#[tokio::test]
async fn forged_tokens_admit_no_person() {
    let (shop, provider) = (Shop::open().await, FakeProvider::start().await);
    shop.add("dex", &provider, json!({})).await;
    for (signing, says) in [
        (Signing::Nothing, "signed with none"),
        (Signing::PublicKeyAsSecret, "signed with HS256"),
        (Signing::ForeignKey, "The signature of the provider&#39;s ID token is wrong"),
    ] {
        provider.says().signing = signing;
        assert_page(&shop.log_in(&mut Browser::default(), &provider).await, 400, says);
    }
    provider.says().signing = Signing::Right;
    for (claims, says) in [
        (json!({"iss": "https://evil.test"}), "wrong <code>iss</code>"),
        (json!({"aud": "other"}), "wrong <code>aud</code>"),
        (json!({"aud": [CLIENT_ID, "other"]}), "wrong <code>azp</code>"),
        (json!({"nonce": "replayed"}), "wrong <code>nonce</code>"),
        (json!({"nonce": null}), "wrong <code>nonce</code>"),
        (json!({"exp": START - 121}), "not valid now"),
        (json!({"iat": START + 121, "exp": START + 500}), "not valid now"),
        (json!({"iat": START - 1_000}), "not valid now"),
    ] {
        provider.says().claims = claims.clone();
        assert_page(&shop.log_in(&mut Browser::default(), &provider).await, 400, says);
    }
    // Small differences of the clocks do not matter.
    for skew in [-110, 110] {
        provider.says().claims = json!({"iat": START + skew, "exp": START + 300 + skew});
        shop.grant(&shop.log_in(&mut Browser::default(), &provider).await);
    }
    assert_eq!(shop.sessions().await.len(), 2);
}

#[tokio::test]
async fn only_a_verified_address_counts_and_tricks_with_it_do_not() {
    let (shop, provider) = (Shop::open().await, FakeProvider::start().await);
    shop.add("dex", &provider, json!({})).await;
    for (claims, status, says) in [
        (json!({"email_verified": false}), 403, "does not vouch"),
        (json!({"email_verified": "false"}), 403, "does not vouch"),
        (json!({"email": "ann@example.com."}), 403, "not a usable e-mail address"),
        (json!({"email": "ann@ex\u{430}mple.com"}), 403, "not a usable e-mail address"),
        (json!({"email": "ann@example.com\u{0}"}), 403, "not a usable e-mail address"),
        (json!({"email": "a@evil.test, b@example.com"}), 403, "not a usable e-mail address"),
        (json!({"sub": null}), 400, "sub"),
    ] {
        provider.says().claims = claims.clone();
        let response = shop.log_in(&mut Browser::default(), &provider).await;
        if status == 400 {
            assert!(!response.status.is_success() && response.header("location").is_none(), "{}", response.text);
        } else {
            assert_page(&response, status, says);
        }
    }
    assert!(shop.sessions().await.is_empty());
    for (email, kept) in [("ANN+x@EXAMPLE.com", "ann+x@example.com"), ("ann@sub.example.com", "ann@sub.example.com")] {
        provider.says().claims = json!({"email": email, "email_verified": "true"});
        let grant = shop.grant(&shop.log_in(&mut Browser::default(), &provider).await);
        assert_eq!(shop.api.identities.session(grant.session).unwrap().person.email.as_str(), kept);
    }
}

#[tokio::test]
async fn missing_claims_are_requested_and_belong_to_the_same_person() {
    let (shop, provider) = (Shop::open().await, FakeProvider::start().await);
    shop.add("dex", &provider, json!({"groups_claim": "groups"})).await;
    provider.says().claims = json!({"email": null, "email_verified": null, "groups": null});
    let userinfo = json!({"sub": "u-1", "email": "carol@example.com", "email_verified": true, "groups": ["ops"]});
    provider.says().userinfo = userinfo.clone();
    let grant = shop.grant(&shop.log_in(&mut Browser::default(), &provider).await);
    let session = shop.api.identities.session(grant.session).unwrap();
    assert_eq!(
        (session.person.email.as_str(), session.person.groups.as_slice()),
        ("carol@example.com", &["ops".to_owned()][..])
    );
    let mut others = userinfo;
    others["sub"] = json!("u-2");
    provider.says().userinfo = others;
    assert_page(&shop.log_in(&mut Browser::default(), &provider).await, 400, "wrong <code>sub</code>");
    // An unverified address in the token is not verified by another one in userinfo.
    provider.says().claims = json!({"email": "ceo@example.com", "email_verified": null});
    provider.says().userinfo = json!({"sub": "u-1", "email_verified": true});
    assert_page(&shop.log_in(&mut Browser::default(), &provider).await, 403, "does not vouch");
}

#[tokio::test]
async fn keys_rotate_and_a_provider_that_is_down_is_reported_in_a_sentence() {
    let (shop, provider) = (Shop::open().await, FakeProvider::start().await);
    shop.add("dex", &provider, json!({})).await;
    shop.grant(&shop.log_in(&mut Browser::default(), &provider).await);
    shop.grant(&shop.log_in(&mut Browser::default(), &provider).await);
    assert_eq!(provider.asked().iter().filter(|path| *path == "/keys").count(), 1, "keys are remembered");
    provider.rotate("k2");
    shop.grant(&shop.log_in(&mut Browser::default(), &provider).await);
    provider.rotate("k2");
    shop.grant(&shop.log_in(&mut Browser::default(), &provider).await);
    // Keys that never match do not cause endless fetches.
    provider.says().signing = Signing::ForeignKey;
    for _ in 0..12 {
        assert_page(&shop.log_in(&mut Browser::default(), &provider).await, 400, "signature");
    }
    assert!(provider.asked().iter().filter(|path| *path == "/keys").count() <= 8);

    provider.says().signing = Signing::Right;
    let mut browser = Browser::default();
    let (_, asked) = shop.begin(&mut browser, &shop.request()).await;
    let code = provider.log_in(&asked);
    provider.stop().await;
    let response = browser.get(&shop.api, &Shop::back(&asked, &code)).await;
    assert_page(&response, 502, "The identity provider at 127.0.0.1 cannot be reached: nothing listens there.");
    let found = shop.api.post("/v1/providers/dex/test", Some(&shop.token), json!({})).await.json();
    assert_eq!(
        (found["works"].as_bool(), found["detail"].as_str().unwrap().contains("cannot be reached")),
        (Some(false), true)
    );
}

#[tokio::test]
async fn a_refusal_of_a_provider_is_a_clear_page() {
    let (shop, provider) = (Shop::open().await, FakeProvider::start().await);
    shop.add("dex", &provider, json!({})).await;
    for (error, status, says) in [
        ("access_denied", 403, "You did not log in at the identity provider"),
        ("server_error", 502, "refused to let you log in here: server_error."),
        ("%3Cscript%3Ealert(1)%3C/script%3E", 502, "&lt;script&gt;"),
    ] {
        let mut browser = Browser::default();
        let (_, asked) = shop.begin(&mut browser, &shop.request()).await;
        let path = Shop::back(&asked, "x").replace("code=x", &format!("error={error}"));
        assert_page(&browser.get(&shop.api, &path).await, status, says);
        assert_page(&browser.get(&shop.api, &path).await, 400, "not known here");
    }
    for (response, status, says) in [
        ((400, r#"{"error":"invalid_client"}"#), 400, "refused: invalid_client"),
        ((500, "oops"), 502, "status 500"),
        ((200, "oops"), 502, "an invalid answer"),
        ((200, "{}"), 400, "malformed"),
        ((302, "{}"), 502, "is a redirect"),
    ] {
        provider.says().token_response = Some((response.0, response.1.to_owned()));
        assert_page(&shop.log_in(&mut Browser::default(), &provider).await, status, says);
    }
    provider.says().token_response = Some((200, " ".repeat(600 * 1_024)));
    assert_page(&shop.log_in(&mut Browser::default(), &provider).await, 502, "longer than");
}

#[tokio::test]
async fn one_provider_does_not_pass_for_another() {
    let (shop, honest, evil) = (Shop::open().await, FakeProvider::start().await, FakeProvider::start().await);
    shop.add("honest", &honest, json!({})).await;
    shop.add("evil", &evil, json!({})).await;
    let mut browser = Browser::default();
    let page = browser.get(&shop.api, &shop.start_path(&shop.request())).await;
    assert_page(&page, 200, "provider=evil");
    let path = format!("{}&provider=evil", shop.start_path(&shop.request()));
    let response = browser.get(&shop.api, &path).await;
    let asked = parameters(response.header("location").unwrap().split_once('?').unwrap().1);
    // The evil provider redirects to the honest one, whose code returns with the evil one's state.
    let code = honest.log_in(&asked);
    let back = Shop::back(&asked, &code).replacen("/evil?", "/honest?", 1);
    assert_page(&browser.get(&shop.api, &back).await, 400, "not known here");
    assert!(!evil.asked().contains(&"/token".to_owned()), "the honest one's code went to the evil one");

    let mut browser = Browser::default();
    let path = format!("{}&provider=honest", shop.start_path(&shop.request()));
    let response = browser.get(&shop.api, &path).await;
    let asked = parameters(response.header("location").unwrap().split_once('?').unwrap().1);
    let code = honest.log_in(&asked);
    let back = format!("{}&iss=https%3A%2F%2Fevil.test", Shop::back(&asked, &code));
    assert_page(&browser.get(&shop.api, &back).await, 400, "wrong <code>iss</code>");
    // A provider that announces `iss` in its responses must send it (RFC 9207 section 2.4).
    evil.says().discovery = json!({"authorization_response_iss_parameter_supported": true});
    shop.api.post("/v1/providers/evil/test", Some(&shop.token), json!({})).await;
    shop.asks(json!({"email_domains": ["example.com"], "providers": ["evil"]})).await;
    assert_page(&shop.log_in(&mut Browser::default(), &evil).await, 400, "wrong <code>iss</code>");
}

#[tokio::test]
async fn the_discovery_document_is_checked() {
    let shop = Shop::open().await;
    for (lie, says) in [
        (json!({"issuer": "https://evil.test"}), "issuer of the identity provider is https://evil.test"),
        (json!({"token_endpoint": "http://evil.test/token"}), "which is not an https address"),
        (json!({"authorization_endpoint": "javascript:alert(1)"}), "which is not an https address"),
        (json!({"jwks_uri": null}), "an invalid answer"),
    ] {
        let provider = FakeProvider::start().await;
        provider.says().discovery = lie;
        shop.add("dex", &provider, json!({})).await;
        let response = Browser::default().get(&shop.api, &shop.start_path(&shop.request())).await;
        assert_page(&response, 502, says);
        let gone = shop.api.send("DELETE", "/v1/providers/dex?force=true", Some(&shop.token), None).await;
        assert_eq!(gone.status, StatusCode::NO_CONTENT);
    }
}

#[tokio::test]
async fn logins_end_at_once_everywhere() {
    let (shop, provider) = (Shop::open().await, FakeProvider::start().await);
    shop.add("dex", &provider, json!({})).await;
    let mut ids = Vec::new();
    for email in ["ann@example.com", "ann@example.com", "bob@example.com", "carol@example.com"] {
        provider.says().claims = json!({"email": email});
        ids.push(shop.grant(&shop.log_in(&mut Browser::default(), &provider).await).session);
    }
    let mut changes = shop.api.identities.subscribe();
    let path = format!("/v1/login-sessions/{}", ids[3]);
    assert_eq!(shop.api.send("DELETE", &path, Some(&shop.token), None).await.status, StatusCode::NO_CONTENT);
    assert!(shop.api.identities.session(ids[3]).is_none() && changes.has_changed().unwrap());
    changes.mark_unchanged();
    let end = |body: Value| shop.api.post("/v1/login-sessions/end", Some(&shop.token), body);
    let ended = end(json!({"email": "Ann@Example.com"})).await.read::<EndedLoginSessions>(StatusCode::OK);
    assert_eq!((ended.ended, shop.sessions().await.len()), (2, 1));
    assert!(changes.has_changed().unwrap() && shop.api.identities.sessions().len() == 1);
    for nothing in [json!({}), json!({"all": true, "email": "ann@example.com"})] {
        assert_eq!(end(nothing).await.status, StatusCode::UNPROCESSABLE_ENTITY);
    }
    assert_eq!(end(json!({"all": true})).await.read::<EndedLoginSessions>(StatusCode::OK).ended, 1);
    assert!(shop.api.identities.sessions().is_empty());
    // Deleting the provider ends all its logins.
    let session = shop.grant(&shop.log_in(&mut Browser::default(), &provider).await).session;
    let delete = async |query: &str| {
        shop.api.send("DELETE", &format!("/v1/providers/dex{query}"), Some(&shop.token), None).await
    };
    for query in ["", "?force=false"] {
        let says = delete(query).await.assert_problem(StatusCode::CONFLICT, "provider-in-use");
        assert!(says.contains("people log in through dex at ") && says.contains(".localhost"), "{says}");
    }
    assert_eq!(delete("?force=perhaps").await.field(), "force");
    assert!(shop.api.identities.session(session).is_some());
    assert_eq!(delete("?force=true").await.status, StatusCode::NO_CONTENT);
    assert!(shop.api.identities.session(session).is_none() && shop.sessions().await.is_empty());
}

#[tokio::test]
async fn logins_survive_a_restart_until_they_end() {
    let (shop, provider) = (Shop::open().await, FakeProvider::start().await);
    shop.add("dex", &provider, json!({})).await;
    let session = shop.grant(&shop.log_in(&mut Browser::default(), &provider).await).session;
    let api = shop.api.restart().await;
    assert_eq!(api.identities.session(session).unwrap().person.email.as_str(), "ann@example.com");
    api.clock.pass(720 * 60 + 1);
    let api = api.restart().await;
    assert!(api.identities.session(session).is_none());
}

#[tokio::test]
async fn a_browser_logs_out() {
    let (shop, provider) = (Shop::open().await, FakeProvider::start().await);
    shop.add("dex", &provider, json!({})).await;
    let mut browser = Browser::default();
    assert_page(&browser.get(&shop.api, "/logout").await, 200, "Nobody is logged in here");
    let session = shop.grant(&shop.log_in(&mut browser, &provider).await).session;
    assert_page(&browser.get(&shop.api, "/logout").await, 200, "ann@example.com");
    assert!(shop.api.identities.session(session).is_some(), "a GET ends nothing");
    for (origin, site) in [
        (None, None),
        (Some("https://evil.test"), None),
        (Some("null"), None),
        (Some("https://login.localhost:8443.evil.test"), None),
        (Some("https://shop.localhost:8443"), None),
        (Some("https://login.localhost:8443"), Some("same-site")),
    ] {
        let mut post = Request::post("/logout");
        for (name, value) in [("origin", origin), ("sec-fetch-site", site)] {
            if let Some(value) = value {
                post = post.header(name, value);
            }
        }
        let refused = browser.send(&shop.api, post.body(Body::empty()).unwrap()).await;
        assert_page(&refused, 403, "Not from here");
        assert!(shop.api.identities.session(session).is_some());
    }
    let post = Request::post("/logout").header("origin", "https://login.localhost:8443").body(Body::empty()).unwrap();
    assert_page(&browser.send(&shop.api, post).await, 200, "The login has ended");
    let has_logged_out =
        |browser: &Browser| browser.cookies.keys().all(|name| name.starts_with("__Host-sallyport-out-"));
    assert!(shop.api.identities.session(session).is_none() && has_logged_out(&browser));
    browser.cookies.clear();

    // From a socket, with a ticket that only its edge can make.
    let session = shop.grant(&shop.log_in(&mut browser, &provider).await).session;
    let ticket = |at: i64| {
        let ticket = LogoutRequest { session, socket: shop.socket.id, at };
        format!("/logout?ticket={}", shop.api.sealer.seal(Purpose::Logout, &ticket, rand12()).unwrap())
    };
    assert_page(&browser.get(&shop.api, &ticket(START - 61)).await, 200, "Log out everywhere");
    assert!(shop.api.identities.session(session).is_some());
    assert_page(&browser.get(&shop.api, &ticket(START)).await, 200, "Log in again");
    assert!(shop.api.identities.session(session).is_none() && has_logged_out(&browser));
}

#[tokio::test]
async fn providers_are_checked_sealed_and_never_shown_whole() {
    let (shop, provider) = (Shop::open().await, FakeProvider::start().await);
    let made = shop.add("dex", &provider, json!({})).await;
    assert!(made.has_secret);
    let shown = shop.api.get("/v1/providers", Some(&shop.token)).await;
    assert!(!shown.text.contains("s3 cret"), "{}", shown.text);
    for entry in std::fs::read_dir(shop.api.dir.path()).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap_or_default();
        assert!(!bytes.windows(6).any(|window| window == b"s3 cre"), "the secret lies in the data directory");
    }
    let add = |body: Value| shop.api.post("/v1/providers", Some(&shop.token), body);
    let plain = json!({"name": "dex", "kind": "oidc", "issuer": "https://id.example.com", "client_id": "c"});
    add(plain.clone()).await.assert_problem(StatusCode::CONFLICT, "provider-taken");
    for (field, value, wrong) in [
        ("name", json!("No Name"), "name"),
        ("kind", json!("saml"), "kind"),
        ("issuer", json!("http://id.example.com"), "issuer"),
        ("client_id", json!(""), "client_id"),
        ("client_secret", json!("a\nb"), "client_secret"),
        ("client_secret", json!(""), "client_secret"),
        ("ca_pem", json!("x"), "ca_pem"),
        ("secret", json!("x"), "secret"),
    ] {
        let mut body = plain.clone();
        body["name"] = json!("new");
        body[field] = value;
        let response = add(body).await;
        assert_eq!(
            (response.status, response.field().as_str()),
            (StatusCode::UNPROCESSABLE_ENTITY, wrong),
            "{}",
            response.text
        );
    }
    let github = json!({"name": "github", "kind": "github", "client_id": "c"});
    assert_eq!(add(github).await.field(), "client_secret");
    let found = shop.api.post("/v1/providers/dex/test", Some(&shop.token), json!({})).await.json();
    assert_eq!((found["works"].clone(), found["keys"].clone()), (json!(true), json!(1)));
    let reader = shop.api.api_token(&shop.token, &["identity:read"]).await;
    assert_eq!(shop.api.get("/v1/providers/dex", Some(&reader)).await.status, StatusCode::OK);
    for (method, path) in
        [("DELETE", "/v1/providers/dex"), ("POST", "/v1/providers/dex/test"), ("POST", "/v1/providers")]
    {
        let body = (path == "/v1/providers").then(|| plain.clone());
        let refused = shop.api.send(method, path, Some(&reader), body).await;
        refused.assert_problem(StatusCode::FORBIDDEN, "missing-scope");
    }
    let session = shop.grant(&shop.log_in(&mut Browser::default(), &provider).await).session;
    let patch = |body: Value| shop.api.send("PATCH", "/v1/providers/dex", Some(&shop.token), Some(body));
    assert_eq!(patch(json!({"scopes": ["groups"]})).await.status, StatusCode::OK);
    assert!(shop.api.identities.session(session).is_some(), "the same provider still");
    assert_eq!(patch(json!({"groups_claim": "groups"})).await.status, StatusCode::OK);
    assert!(shop.api.identities.session(session).is_none(), "a person with another claim has unknown groups");
    let session = shop.grant(&shop.log_in(&mut Browser::default(), &provider).await).session;
    assert_eq!(patch(json!({"client_id": "another"})).await.status, StatusCode::OK);
    assert!(shop.api.identities.session(session).is_none(), "another client is another provider");
    assert_eq!(patch(json!({"issuer": null})).await.field(), "issuer");
}

#[tokio::test]
async fn too_many_steps_of_one_client_have_to_wait() {
    let shop = Shop::open().await;
    let mut browser = Browser::default();
    let mut last = browser.get(&shop.api, "/start").await;
    for _ in 0..400 {
        last = browser.get(&shop.api, "/start").await;
    }
    assert_page(&last, 429, "Too many attempts");
    assert!(last.header("retry-after").is_some());
}

#[tokio::test]
async fn github_and_facebook_speak_their_own_dialects() {
    let (shop, provider) = (Shop::open().await, FakeProvider::start().await);
    let mails = |primary: Value| json!([{"email": "x@evil.test", "primary": false, "verified": true}, primary]);
    shop.add("github", &provider, json!({"kind": "github"})).await;
    provider.says().github_emails =
        mails(json!({"email": "Ann@example.com", "primary": true, "verified": true, "visibility": null}));
    let mut browser = Browser::default();
    let grant = shop.grant(&shop.log_in(&mut browser, &provider).await);
    let person = shop.api.identities.session(grant.session).unwrap().person.clone();
    assert_eq!((person.email.as_str(), person.subject.as_str()), ("ann@example.com", "583231"));
    assert_eq!(person.name.as_deref(), Some("octocat"));
    for emails in [
        mails(json!({"email": "ann@example.com", "primary": true, "verified": false})),
        mails(json!({"email": "ann@example.com", "primary": false, "verified": true})),
        json!([]),
        json!({}),
    ] {
        provider.says().github_emails = emails;
        let response = shop.log_in(&mut Browser::default(), &provider).await;
        assert_page(&response, 403, "This account cannot be used");
    }
    // GitHub reports errors with a good status.
    provider.says().token_response = Some((200, r#"{"error":"bad_verification_code"}"#.to_owned()));
    assert_page(&shop.log_in(&mut Browser::default(), &provider).await, 400, "refused: bad_verification_code");
    provider.says().token_response = None;

    let facebook = json!({"name": "facebook", "kind": "facebook", "issuer": provider.issuer, "client_id": CLIENT_ID,
                          "client_secret": SECRET});
    let response = shop.api.post("/v1/providers", Some(&shop.token), facebook).await;
    assert_eq!(response.field(), "trust_email", "{}", response.text);
    shop.add("facebook", &provider, json!({"kind": "facebook", "trust_email": true})).await;
    shop.asks(json!({"email_domains": ["example.com"], "providers": ["facebook"]})).await;
    let grant = shop.grant(&shop.log_in(&mut browser, &provider).await);
    let person = shop.api.identities.session(grant.session).unwrap().person.clone();
    assert_eq!((person.email.as_str(), person.provider.as_str()), ("fay@example.com", "facebook"));
}
