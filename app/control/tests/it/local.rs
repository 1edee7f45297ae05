//! Logins with a password of this installation, and every way in which they must fail.

use axum::body::Body;
use http::{Request, StatusCode, header};
use http_body_util::BodyExt as _;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use sallyport_api::Secret;
use sallyport_identity::{LoginRequest, totp};
use sallyport_model::ClientAddr;
use serde_json::json;
use tower_service::Service as _;

use crate::{
    fake_hook::path_of,
    fake_provider::FakeProvider,
    harness::{Api, HttpResponse, START},
    login::{Browser, Shop, assert_page},
};

const ORIGIN: &str = "https://login.localhost:8443";
const EMAIL: &str = "ann@example.com";
const PASSWORD: &str = "blue bicycle on a hill";
const WRONG: &str = "The e-mail address or the password is wrong.";

pub(crate) fn form(path: &str, fields: &[(&str, &str)]) -> Request<Body> {
    let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let pairs: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
    Request::post(path)
        .header(header::ORIGIN, ORIGIN)
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
        .body(Body::from(pairs.join("&")))
        .unwrap()
}

/// Sets a password by a link.
pub(crate) async fn set_password(api: &Api, link: &str, password: &str) -> HttpResponse {
    let key = link.split_once("key=").unwrap().1;
    let fields = [("key", key), ("password", password), ("again", password)];
    Browser::default().send(api, form("/local/link", &fields)).await
}

/// A login from page to page.
pub(crate) struct Walk<'a> {
    pub(crate) shop: &'a Shop,
    pub(crate) browser: Browser,
    pub(crate) state: String,
}

impl<'a> Walk<'a> {
    pub(crate) async fn begin(shop: &'a Shop) -> Self {
        Self::begin_with(shop, Browser::default(), shop.now_request()).await
    }

    pub(crate) async fn begin_switching(shop: &'a Shop, browser: Browser) -> Self {
        Self::begin_with(shop, browser, LoginRequest { switch: true, ..shop.now_request() }).await
    }

    async fn begin_with(shop: &'a Shop, mut browser: Browser, request: LoginRequest) -> Self {
        let path = format!("{}&provider=local", shop.start_path(&request));
        let response = browser.get(&shop.api, &path).await;
        assert_eq!(response.status, StatusCode::SEE_OTHER, "{}", response.text);
        let state = response.header("location").unwrap().strip_prefix("/local?login=").unwrap().to_owned();
        Self { shop, browser, state }
    }

    pub(crate) async fn show(&mut self) -> HttpResponse {
        self.browser.get(&self.shop.api, &format!("/local?login={}", self.state)).await
    }

    pub(crate) async fn post(&mut self, path: &str, fields: &[(&str, &str)]) -> HttpResponse {
        let mut all = vec![("login", self.state.as_str())];
        all.extend_from_slice(fields);
        self.browser.send(&self.shop.api, form(path, &all)).await
    }

    pub(crate) async fn password(&mut self, email: &str, password: &str) -> HttpResponse {
        self.post("/local", &[("email", email), ("password", password)]).await
    }

    pub(crate) async fn code(&mut self, code: &str) -> HttpResponse {
        self.post("/local", &[("code", code)]).await
    }

    /// Sends the password from this address.
    async fn password_from(&self, address: &str, email: &str, password: &str) -> HttpResponse {
        let fields = [("login", self.state.as_str()), ("email", email), ("password", password)];
        let mut request = form("/local", &fields);
        request.extensions_mut().insert(ClientAddr(format!("{address}:4000").parse().unwrap()));
        let cookies: Vec<String> = self.browser.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        request.headers_mut().insert(header::COOKIE, cookies.join("; ").parse().unwrap());
        let response = self.shop.api.login.clone().call(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        HttpResponse { status: parts.status, headers: parts.headers, text: String::from_utf8(bytes.to_vec()).unwrap() }
    }
}

impl Shop {
    fn now(&self) -> i64 {
        self.api.clock.unix_seconds()
    }

    fn now_request(&self) -> LoginRequest {
        LoginRequest { at: self.now(), ..self.request() }
    }

    /// The current code, or the one this many steps later.
    fn code(&self, secret: &[u8], steps: i64) -> String {
        format!("{:06}", totp(secret, self.now() / 30 + steps))
    }
}

/// The secret on a page.
fn secret_of(page: &HttpResponse) -> Vec<u8> {
    let text = page.text.split("<code id=\"secret\">").nth(1).unwrap().split('<').next().unwrap();
    let (mut bits, mut count, mut bytes) = (0_u32, 0, Vec::new());
    for letter in text.bytes().filter(|byte| *byte != b' ') {
        let at = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567".iter().position(|known| *known == letter).unwrap();
        bits = bits << 5 | at as u32;
        count += 5;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    bytes
}

fn recovery_codes(page: &HttpResponse) -> Vec<String> {
    let codes = page.text.split("<code class=\"recovery\">").skip(1);
    codes.map(|rest| rest.split('<').next().unwrap().to_owned()).collect()
}

/// The content of a page, without its random parts and the typed address.
fn content(response: &HttpResponse, walk: &Walk<'_>) -> (StatusCode, String) {
    let text = response.text.split("<footer>").next().unwrap().replace(&walk.state, "STATE").replace(" autofocus", "");
    let text = match text.split_once("maxlength=\"254\" value=\"") {
        Some((before, typed)) => format!("{before}{}", typed.split_once('"').unwrap().1),
        None => text,
    };
    (response.status, text)
}

#[tokio::test]
async fn an_invited_person_sets_a_password_once_and_logs_in() {
    let shop = Shop::open().await.with_local(json!({})).await;
    let invited = shop.invite(EMAIL).await;
    let link = path_of(invited.link.as_ref().map(Secret::expose).unwrap());
    let mut walk = Walk::begin(&shop).await;
    assert_page(&walk.password(EMAIL, PASSWORD).await, 403, WRONG);
    // Mail scanners open links, which does not use them up.
    for _ in 0..2 {
        assert_page(&Browser::default().get(&shop.api, &link).await, 200, EMAIL);
    }
    for (password, why) in [
        ("short", "too short"),
        ("password12345", "too easy to guess"),
        ("1234567890", "too easy to guess"),
        (&"x".repeat(1_025), "too long"),
    ] {
        assert_page(&set_password(&shop.api, &link, password).await, 422, why);
    }
    let key = link.split_once("key=").unwrap().1;
    let fields = [("key", key), ("password", PASSWORD), ("again", "another")];
    assert_page(&Browser::default().send(&shop.api, form("/local/link", &fields)).await, 422, "not the same");
    assert_page(&set_password(&shop.api, &link, PASSWORD).await, 200, "Your password is set");
    let dead = "This link does not work any more";
    assert_page(&set_password(&shop.api, &link, "another green bicycle").await, 404, dead);
    assert_page(&Browser::default().get(&shop.api, &link).await, 404, dead);

    assert_page(&walk.show().await, 200, "Log in");
    let response = walk.password(" Ann@Example.COM ", PASSWORD).await;
    let grant = shop.grant(&response);
    assert!(grant.is_for(shop.socket.id, &shop.binding, START) && grant.return_to == "/basket?item=7");
    assert!(!walk.browser.cookies.keys().any(|name| name.contains("-to-")), "the login's own cookie is gone");
    let session = shop.api.identities.session(grant.session).unwrap();
    let person = &session.person;
    assert_eq!(
        (person.email.as_str(), person.provider.as_str(), person.groups.join(" ")),
        (EMAIL, "local", "eng".into())
    );
    assert_eq!(person.subject, invited.person.id.to_string());
    let shown = shop.person(EMAIL).await;
    assert_eq!(
        (shown.verified_at.unwrap().unix_timestamp(), shown.last_login_at.unwrap().unix_timestamp()),
        (START, START)
    );
    let logins = shop.api.audit(&shop.token, "&order=oldest&kind=login").await;
    let outcomes: Vec<_> =
        logins.into_iter().map(|event| event.login.unwrap()).filter(|l| l.provider == "local").collect();
    assert_eq!(outcomes[0].reason.as_deref(), Some("the person has no password yet"));
    assert_eq!((outcomes[1].outcome.as_str(), outcomes[1].identity.as_str()), ("done", EMAIL));
    // One login is valid at all sockets of the organisation.
    let again = walk.browser.get(&shop.api, &shop.start_path(&shop.now_request())).await;
    assert_eq!(shop.grant(&again).session, grant.session);
}

#[tokio::test]
async fn a_link_is_good_for_a_day_and_no_other_text_is_one() {
    let shop = Shop::open().await.with_local(json!({})).await;
    let first = path_of(shop.invite(EMAIL).await.link.unwrap().expose());
    shop.api.clock.pass(86_399);
    assert_page(&Browser::default().get(&shop.api, &first).await, 200, EMAIL);
    shop.api.clock.pass(1);
    let dead = "This link does not work any more";
    assert_page(&Browser::default().get(&shop.api, &first).await, 404, dead);
    assert_page(&set_password(&shop.api, &first, PASSWORD).await, 404, dead);
    for key in ["", "spl_", "spl_AAAA", &"A".repeat(100), "spl_%00"] {
        assert_page(&Browser::default().get(&shop.api, &format!("/local/link?key={key}")).await, 404, dead);
    }
    assert_page(&Browser::default().get(&shop.api, "/local/link").await, 404, dead);
    assert_page(&Browser::default().get(&shop.api, &format!("{first}&key=spl_x")).await, 404, dead);
}

#[tokio::test]
async fn responses_do_not_reveal_which_addresses_have_accounts() {
    let shop = Shop::open().await.with_local(json!({})).await;
    shop.active(EMAIL, PASSWORD).await;
    shop.active("gone@example.com", PASSWORD).await;
    shop.change("gone@example.com", json!({"disabled": true})).await;
    shop.invite("invited@example.com").await;
    let mut walk = Walk::begin(&shop).await;
    let known = {
        let response = walk.password(EMAIL, "wrong").await;
        assert_page(&response, 403, WRONG);
        content(&response, &walk)
    };
    let long = "x".repeat(1_025);
    for (email, password) in [
        ("nobody@example.com", "wrong"),
        ("gone@example.com", PASSWORD),
        ("invited@example.com", PASSWORD),
        ("ann@example.com.", PASSWORD),
        ("ann+x@example.com", PASSWORD),
        ("ann@ex\u{430}mple.com", PASSWORD),
        ("", ""),
        (EMAIL, &long),
        (EMAIL, ""),
    ] {
        let response = walk.password(email, password).await;
        assert_eq!(content(&response, &walk), known, "{email:?}");
    }
    // Waits reveal nothing either.
    let tries = |email: &'static str| {
        let shop = &shop;
        async move {
            shop.api.clock.pass(200);
            let mut walk = Walk::begin(shop).await;
            for n in 0..8 {
                let response = walk.password(email, "wrong").await;
                if response.status == StatusCode::TOO_MANY_REQUESTS {
                    return (n, content(&response, &walk));
                }
            }
            panic!("no client waits");
        }
    };
    shop.active("bob@example.com", PASSWORD).await;
    let (unknown, known) = (tries("new@example.com").await, tries("bob@example.com").await);
    assert_eq!(unknown, known);
    assert_eq!(unknown.0, 5);
}

#[tokio::test]
async fn wrong_guesses_wait_longer_each_time_and_the_owner_sees_them() {
    let shop = Shop::open().await.with_local(json!({})).await;
    shop.active(EMAIL, PASSWORD).await;
    let mut walk = Walk::begin(&shop).await;
    for _ in 0..5 {
        assert_page(&walk.password(EMAIL, "wrong").await, 403, WRONG);
    }
    let waits = walk.password(EMAIL, PASSWORD).await;
    assert_page(&waits, 429, "Try again in 2 seconds");
    assert_eq!(waits.header("retry-after"), Some("2"));
    shop.api.clock.pass(2);
    assert_page(&walk.password(EMAIL, "wrong").await, 403, WRONG);
    shop.api.clock.pass(2);
    assert_page(&walk.password(EMAIL, PASSWORD).await, 429, "Try again later");
    assert!(shop.person(EMAIL).await.locked_until.is_none(), "one client does not lock a person");
    // Many clients fail, but the person's own client is not delayed.
    let home = "198.51.100.7";
    shop.grant(&walk.password_from(home, EMAIL, PASSWORD).await);
    let walk = Walk::begin(&shop).await;
    for n in 0..20 {
        let response = walk.password_from(&format!("203.0.113.{n}"), EMAIL, "wrong").await;
        assert_page(&response, 403, WRONG);
    }
    assert_page(&walk.password_from("203.0.113.99", EMAIL, PASSWORD).await, 429, "Try again later");
    assert_eq!(shop.person(EMAIL).await.locked_until.unwrap().unix_timestamp(), shop.now() + 3);
    let logins = shop.api.audit(&shop.token, "&order=oldest&kind=login").await;
    let locked = logins.iter().filter_map(|event| event.login.as_ref()?.reason.clone());
    assert!(locked.clone().any(|reason| reason.ends_with("attempts of this client are refused for 2 seconds")));
    assert_eq!(locked.filter(|reason| reason.contains("attempts of new clients are refused for 2 seconds")).count(), 1);
    shop.grant(&walk.password_from(home, EMAIL, PASSWORD).await);
    // Nor a client that has proved the address.
    let reset = shop.api.post("/v1/persons/ann@example.com/reset", Some(&shop.token), json!({})).await;
    let link = path_of(reset.read::<sallyport_api::InvitedPerson>(StatusCode::OK).link.unwrap().expose());
    let walk = Walk::begin(&shop).await;
    for n in 0..20 {
        assert_page(&walk.password_from(&format!("203.0.113.{n}"), EMAIL, "wrong").await, 403, WRONG);
    }
    assert!(shop.person(EMAIL).await.locked_until.is_some());
    assert_page(&set_password(&shop.api, &link, PASSWORD).await, 200, "Your password is set");
    assert!(shop.person(EMAIL).await.locked_until.is_none());
    for n in 0..20 {
        assert_page(&walk.password_from(&format!("203.0.113.{n}"), EMAIL, "wrong").await, 403, WRONG);
    }
    assert_page(&walk.password_from("203.0.113.99", EMAIL, PASSWORD).await, 429, "Try again later");
    let mut walk = Walk::begin(&shop).await;
    shop.grant(&walk.password(EMAIL, PASSWORD).await);
    // One client that tries many addresses is slowed down too.
    let walk = Walk::begin(&shop).await;
    let mut tried = 0;
    while walk.password_from("203.0.113.200", &format!("p{tried}@example.com"), "x").await.status
        == StatusCode::FORBIDDEN
    {
        tried += 1;
        assert!(tried <= 20);
    }
    assert_eq!(tried, 20);
}

#[tokio::test]
async fn codes_are_set_up_where_they_are_needed_and_are_good_once() {
    let shop = Shop::open().await.with_local(json!({"require_totp": true})).await;
    shop.active(EMAIL, PASSWORD).await;
    let mut walk = Walk::begin(&shop).await;
    let response = walk.password(EMAIL, PASSWORD).await;
    assert_eq!(response.header("location"), Some(format!("/local?login={}", walk.state).as_str()), "no grant yet");
    assert!(shop.sessions().await.is_empty());
    let page = walk.show().await;
    assert_page(&page, 200, "otpauth://totp/localhost:ann@example.com?secret=");
    assert!(page.text.contains("<svg "));
    let secret = secret_of(&page);
    assert_eq!(secret_of(&walk.show().await), secret, "the page may be loaded again");
    let wrong = walk.code("000000").await;
    assert_page(&wrong, 403, "This is not the current code");
    let codes = walk.code(&shop.code(&secret, 0)).await;
    assert_page(&codes, 200, "shown only now");
    let recovery = recovery_codes(&codes);
    assert_eq!(recovery.len(), 10);
    assert!(recovery.iter().all(|code| code.len() == 19) && recovery[0] != recovery[1]);
    assert_page(&walk.show().await, 200, "You are logged in");
    let done = walk.browser.clone();
    shop.grant(&walk.code("").await);
    let mut replayed = Walk { browser: done, ..Walk::begin(&shop).await };
    replayed.state.clone_from(&walk.state);
    assert_page(&replayed.code("").await, 400, "This login is not known here");
    let shown = shop.person(EMAIL).await;
    assert_eq!((shown.totp, shown.recovery_codes), (true, 10));

    // The code of the setup is used up; the next code works once.
    let asked = "This code is wrong, too old, or was used before.";
    let mut walk = Walk::begin(&shop).await;
    walk.password(EMAIL, PASSWORD).await;
    assert_page(&walk.show().await, 200, "Type the code");
    assert_page(&walk.code(&shop.code(&secret, 0)).await, 403, asked);
    shop.api.clock.pass(30);
    let code = shop.code(&secret, 0);
    shop.grant(&walk.code(&format!("{} {}", &code[..3], &code[3..])).await);
    let mut second = Walk::begin(&shop).await;
    second.password(EMAIL, PASSWORD).await;
    assert_page(&second.code(&code).await, 403, asked);
    shop.grant(&second.code(&recovery[3].replace('-', " ").to_uppercase()).await);
}

#[tokio::test]
async fn codes_follow_the_clock_and_recovery_codes_are_used_up() {
    let shop = Shop::open().await.with_local(json!({"require_totp": true})).await;
    shop.active(EMAIL, PASSWORD).await;
    let token = shop.api.api_token(&shop.token, &["identity:write"]).await;
    let mut walk = Walk::begin(&shop).await;
    walk.password(EMAIL, PASSWORD).await;
    let secret = secret_of(&walk.show().await);
    let recovery = recovery_codes(&walk.code(&shop.code(&secret, 0)).await);
    shop.api.clock.pass(600);
    let asked = "This code is wrong, too old, or was used before.";
    let log_in = async |code: String| {
        let mut walk = Walk::begin(&shop).await;
        let response = walk.password(EMAIL, PASSWORD).await;
        assert_eq!(response.status, StatusCode::SEE_OTHER, "{}", response.text);
        walk.code(&code).await
    };
    // A clock that is off by ten minutes, or by two steps.
    for steps in [-20, -2, 2, 20] {
        assert_page(&log_in(shop.code(&secret, steps)).await, 403, asked);
    }
    shop.grant(&log_in(shop.code(&secret, -1)).await);
    shop.grant(&log_in(shop.code(&secret, 1)).await);
    assert_page(&log_in(shop.code(&secret, 0)).await, 403, asked);
    shop.grant(&log_in(recovery[0].clone()).await);
    assert_page(&log_in(recovery[0].clone()).await, 403, asked);
    for nonsense in ["", "12345", "1234567", "aaaa-aaaa-aaaa-aaaa", "\u{661}23456", "' OR 1=1"] {
        shop.api.clock.pass(900);
        assert_page(&log_in(nonsense.to_owned()).await, 403, asked);
    }
    let shown = shop.api.get("/v1/persons/ann@example.com", Some(&token)).await;
    assert_eq!(shown.read::<sallyport_api::LocalPerson>(StatusCode::OK).recovery_codes, 9);
    // Wrong codes cause waits like wrong passwords, and a right password does not reset them.
    let mut statuses = Vec::new();
    for _ in 0..8 {
        let mut walk = Walk::begin(&shop).await;
        let first = walk.password(EMAIL, PASSWORD).await.status;
        statuses.push(if first == StatusCode::SEE_OTHER { walk.code("000000").await.status } else { first });
    }
    assert_eq!(statuses.last(), Some(&StatusCode::TOO_MANY_REQUESTS), "{statuses:?}");
    // The owner helps a person who has lost everything.
    let body = json!({"totp": true});
    let reset = shop.api.post("/v1/persons/ann@example.com/reset", Some(&token), body).await;
    let reset: sallyport_api::InvitedPerson = reset.read(StatusCode::OK);
    assert!(!reset.person.totp && reset.person.recovery_codes == 0);
}

#[tokio::test]
async fn a_login_goes_on_in_its_own_browser_from_a_page_of_ours_alone() {
    let shop = Shop::open().await.with_local(json!({})).await;
    shop.active(EMAIL, PASSWORD).await;
    let mut walk = Walk::begin(&shop).await;
    let fields = [("login", walk.state.as_str()), ("email", EMAIL), ("password", PASSWORD)];
    for origin in [None, Some("https://evil.test"), Some("null"), Some("https://shop.localhost:8443")] {
        let mut request = form("/local", &fields);
        request.headers_mut().remove(header::ORIGIN);
        if let Some(origin) = origin {
            request.headers_mut().insert(header::ORIGIN, origin.parse().unwrap());
        }
        assert_page(&walk.browser.clone().send(&shop.api, request).await, 403, "not sent from a page of this host");
    }
    let mut request = form("/local", &fields);
    request.headers_mut().insert("sec-fetch-site", "cross-site".parse().unwrap());
    assert_page(&walk.browser.clone().send(&shop.api, request).await, 403, "not sent from a page of this host");
    let unknown = "This login is not known here";
    assert_page(&Browser::default().send(&shop.api, form("/local", &fields)).await, 400, unknown);
    let mut forged = walk.browser.clone();
    let other = Walk::begin(&shop).await;
    let name = walk.browser.cookies.keys().next().unwrap();
    forged.cookies.insert(name.clone(), other.browser.cookies.values().next().unwrap().clone());
    assert_page(&forged.send(&shop.api, form("/local", &fields)).await, 400, unknown);
    // A state of another kind of provider is not accepted here, nor the reverse.
    let path =
        format!("/callback/{}/local?code=x&state={}", shop.api.routes.get(shop.socket.id).unwrap().account, walk.state);
    assert_page(&walk.browser.clone().get(&shop.api, &path).await, 400, unknown);
    let twice = [("login", walk.state.as_str()), ("email", EMAIL), ("email", "b@example.com"), ("password", PASSWORD)];
    assert_page(
        &walk.browser.clone().send(&shop.api, form("/local", &twice)).await,
        400,
        "The form does not come from a page of this server",
    );
    assert_page(
        &walk.post("/local", &[("email", EMAIL)]).await,
        400,
        "The form does not come from a page of this server",
    );
    assert!(shop.sessions().await.is_empty());

    let used = walk.browser.clone();
    shop.grant(&walk.password(EMAIL, PASSWORD).await);
    let mut again = Walk { shop: &shop, browser: used.clone(), state: walk.state.clone() };
    assert_page(&again.password(EMAIL, PASSWORD).await, 400, unknown);
    let mut late = Walk::begin(&shop).await;
    shop.api.clock.pass(601);
    assert_page(&late.password(EMAIL, PASSWORD).await, 400, unknown);
}

#[tokio::test]
async fn what_was_used_before_a_restart_is_used_after_it() {
    let shop = Shop::open().await.with_local(json!({})).await;
    let provider = FakeProvider::start().await;
    shop.add("dex", &provider, json!({})).await;
    shop.active(EMAIL, PASSWORD).await;
    let mut walk = Walk::begin(&shop).await;
    let local = (walk.browser.clone(), walk.state.clone());
    shop.grant(&walk.password(EMAIL, PASSWORD).await);
    let mut browser = Browser::default();
    let request = shop.request();
    let response = browser.get(&shop.api, &format!("{}&provider=dex", shop.start_path(&request))).await;
    let asked = crate::login::parameters(response.header("location").unwrap().split_once('?').unwrap().1);
    let code = provider.log_in(&asked);
    let back = Shop::back(&asked, &code);
    let stolen = browser.clone();
    shop.grant(&browser.get(&shop.api, &back).await);

    let Shop { api, token, socket, binding, at } = shop;
    let shop = Shop { api: api.restart().await, token, socket, binding, at };
    let unknown = "This login is not known here";
    assert_page(&stolen.clone().get(&shop.api, &back).await, 400, unknown);
    let mut again = Walk { shop: &shop, browser: local.0, state: local.1 };
    assert_page(&again.password(EMAIL, PASSWORD).await, 400, unknown);
    let mut fresh = Walk::begin(&shop).await;
    shop.grant(&fresh.password(EMAIL, PASSWORD).await);
}

#[tokio::test]
async fn a_password_of_one_organisation_opens_nothing_of_another() {
    let shop = Shop::open().await.with_local(json!({})).await;
    let provider = FakeProvider::start().await;
    shop.add("dex", &provider, json!({})).await;
    shop.active(EMAIL, PASSWORD).await;
    // The chooser offers both.
    let page = Browser::default().get(&shop.api, &shop.start_path(&shop.request())).await;
    assert_page(&page, 200, "Log in with a password");
    assert!(page.text.contains("Log in with dex"));
    let other = shop.api.account("other@example.com").await;
    let socket = shop.api.socket(&other, "other").await;
    let body = json!({"identity": {"email_domains": ["example.com"]}});
    shop.api.send("PATCH", &format!("/v1/sockets/{}", socket.id), Some(&other), Some(body)).await;
    let made = shop.api.post("/v1/providers", Some(&other), json!({"name": "local", "kind": "local"})).await;
    assert_eq!(made.status, StatusCode::CREATED);
    let request = LoginRequest { socket: socket.id, ..shop.request() };
    let mut walk = Walk::begin_with(&shop, Browser::default(), request).await;
    assert_page(&walk.password(EMAIL, PASSWORD).await, 403, WRONG);
    // A link sets the password of its own person, wherever it is opened.
    let theirs = shop.api.post("/v1/persons", Some(&other), json!({"email": EMAIL})).await;
    let theirs: sallyport_api::InvitedPerson = theirs.read(StatusCode::CREATED);
    set_password(&shop.api, &path_of(theirs.link.unwrap().expose()), "another green bicycle").await;
    let mut ours = Walk::begin(&shop).await;
    assert_page(&ours.password(EMAIL, "another green bicycle").await, 403, WRONG);
    shop.grant(&ours.password(EMAIL, PASSWORD).await);
    // A socket with other providers accepts no password.
    shop.asks(json!({"email_domains": ["example.com"], "providers": ["dex"]})).await;
    let mut walk = ours;
    walk.browser.cookies.clear();
    let path = format!("{}&provider=local", shop.start_path(&shop.request()));
    assert_page(&walk.browser.get(&shop.api, &path).await, 400, "This link does not work");
}

#[tokio::test]
async fn a_socket_that_changes_its_mind_ends_logins_that_go_on() {
    let shop = Shop::open().await.with_local(json!({"require_totp": true})).await;
    let provider = FakeProvider::start().await;
    shop.add("dex", &provider, json!({})).await;
    shop.active(EMAIL, PASSWORD).await;
    let mut walk = Walk::begin(&shop).await;
    walk.password(EMAIL, PASSWORD).await;
    let unknown = "This login is not known here";
    // The password changes while a code is awaited.
    shop.api.clock.pass(1);
    let reset = shop.api.post("/v1/persons/ann@example.com/reset", Some(&shop.token), json!({})).await;
    assert_eq!(reset.status, StatusCode::OK);
    assert_page(&walk.show().await, 400, unknown);
    assert_page(&walk.code("123456").await, 400, unknown);
    let mut walk = Walk::begin(&shop).await;
    shop.asks(json!({"email_domains": ["example.com"], "providers": ["dex"]})).await;
    assert_page(&walk.password(EMAIL, PASSWORD).await, 400, unknown);
}

#[tokio::test]
async fn a_person_changes_the_password_and_codes_and_logs_out_everywhere() {
    let shop = Shop::open().await.with_local(json!({})).await;
    shop.active(EMAIL, PASSWORD).await;
    assert_page(&Browser::default().get(&shop.api, "/account").await, 403, "Nobody is logged in");
    let mut walk = Walk::begin(&shop).await;
    let session = shop.grant(&walk.password(EMAIL, PASSWORD).await).session;
    let id = session.to_string();
    assert_page(&walk.browser.get(&shop.api, "/account").await, 200, EMAIL);
    let next = "another green bicycle";
    let change = |current: &str, password: &str, again: &str| {
        let fields = [("session", id.as_str()), ("action", "password"), ("current", current)];
        form("/account", &[&fields[..], &[("password", password), ("again", again)][..]].concat())
    };
    let mut foreign = change(PASSWORD, next, next);
    foreign.headers_mut().insert(header::ORIGIN, "https://shop.localhost:8443".parse().unwrap());
    assert_page(&walk.browser.send(&shop.api, foreign).await, 403, "not sent from a page of this host");
    assert_page(&Browser::default().send(&shop.api, change(PASSWORD, next, next)).await, 403, "Nobody is logged in");
    assert_page(&walk.browser.send(&shop.api, change("wrong", next, next)).await, 403, "current password is wrong");
    assert_page(&walk.browser.send(&shop.api, change(PASSWORD, next, "x")).await, 422, "not the same");
    assert_page(
        &walk.browser.send(&shop.api, change(PASSWORD, EMAIL, EMAIL)).await,
        422,
        "contains your e-mail address",
    );

    // Codes that the person turns on.
    let act = |action: &str, more: &[(&str, &str)]| {
        form("/account", &[&[("session", id.as_str()), ("action", action)][..], more].concat())
    };
    assert_page(&walk.browser.send(&shop.api, act("totp-on", &[("current", "wrong")])).await, 403, "current password");
    let page = walk.browser.send(&shop.api, act("totp-on", &[("current", PASSWORD)])).await;
    assert_page(&page, 200, "otpauth://totp/");
    let secret = secret_of(&page);
    let sealed = page.text.split("name=\"form\" value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let confirm = |code: &str| act("totp-confirm", &[("form", sealed.as_str()), ("code", code)]);
    assert_page(&walk.browser.send(&shop.api, confirm("000000")).await, 403, "not the current code");
    let codes = walk.browser.send(&shop.api, confirm(&shop.code(&secret, 0))).await;
    let recovery = recovery_codes(&codes);
    assert_eq!(recovery.len(), 10);
    shop.api.clock.pass(60);
    let mut second = Walk::begin(&shop).await;
    assert_eq!(second.password(EMAIL, PASSWORD).await.status, StatusCode::SEE_OTHER);
    shop.grant(&second.code(&shop.code(&secret, 0)).await);
    shop.api.clock.pass(60);
    let off = |code: &str| act("totp-off", &[("current", PASSWORD), ("code", code)]);
    assert_page(&walk.browser.send(&shop.api, off("000000")).await, 403, "code is wrong");
    assert_page(&walk.browser.send(&shop.api, off(&shop.code(&secret, 0))).await, 200, "Codes are off");
    assert!(!shop.person(EMAIL).await.totp);

    assert_page(&walk.browser.send(&shop.api, change(PASSWORD, next, next)).await, 200, "another one now");
    assert!(shop.api.identities.session(session).is_none() && shop.sessions().await.is_empty());
    let mut walk = Walk::begin(&shop).await;
    assert_page(&walk.password(EMAIL, PASSWORD).await, 403, WRONG);
    let third = shop.grant(&walk.password(EMAIL, next).await).session;
    let everywhere = form("/account", &[("session", &third.to_string()), ("action", "sign-out")]);
    assert_page(&walk.browser.send(&shop.api, everywhere).await, 200, "All your logins have ended");
    assert!(shop.api.identities.session(third).is_none());
    let acted: Vec<String> =
        shop.api.actions(&shop.token).await.into_iter().filter(|a| a.starts_with("person.")).collect();
    assert_eq!(
        acted,
        ["person.create", "person.password", "person.totp-on", "person.totp-off", "person.password", "person.sign-out"]
    );
}
