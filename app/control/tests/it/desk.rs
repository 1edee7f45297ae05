//! The desk: what browsers get, sessions, requests of other pages, and roles.

use axum::body::Body;
use http::{Request, StatusCode, header};
use serde_json::{Value, json};

use crate::harness::{Api, HttpResponse, PASSWORD};

const HOST: &str = "desk.localhost:8443";
const ORIGIN: &str = "https://desk.localhost:8443";
const ANN: &str = "ann@example.com";

/// A browser with the page of the desk.
struct Desk<'a> {
    api: &'a Api,
    cookie: Option<String>,
}

/// A request as the page of the desk sends it.
fn from_page(method: &str, path: &str, body: Option<Value>) -> Request<Body> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, HOST)
        .header(header::CONTENT_TYPE, "application/json")
        .header("sec-fetch-site", "same-origin");
    request.body(body.map_or_else(Body::empty, |body| Body::from(body.to_string()))).unwrap()
}

impl<'a> Desk<'a> {
    fn open(api: &'a Api) -> Self {
        Self { api, cookie: None }
    }

    async fn logged_in(api: &'a Api, email: &str) -> Self {
        let mut desk = Self::open(api);
        let response = desk.log_in(email, json!({})).await;
        assert_eq!(response.status, StatusCode::OK, "{}", response.text);
        desk
    }

    async fn log_in(&mut self, email: &str, more: Value) -> HttpResponse {
        let mut login = json!({"email": email, "password": PASSWORD});
        login.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.ask(from_page("POST", "/session", Some(login))).await
    }

    /// Sends a request with the cookie, and keeps the cookie of the response.
    async fn ask(&mut self, mut request: Request<Body>) -> HttpResponse {
        if let Some(cookie) = &self.cookie {
            request.headers_mut().insert(header::COOKIE, cookie.parse().unwrap());
        }
        let response = self.api.public(request).await;
        if let Some(set) = response.header("set-cookie") {
            let pair = set.split(';').next().unwrap();
            self.cookie = (!set.contains("Max-Age=0")).then(|| pair.to_owned());
        }
        response
    }

    async fn get(&mut self, path: &str) -> HttpResponse {
        self.ask(from_page("GET", path, None)).await
    }

    async fn post(&mut self, path: &str, body: Value) -> HttpResponse {
        self.ask(from_page("POST", path, Some(body))).await
    }

    async fn account(&mut self) -> Value {
        self.get("/session").await.json()["account"].clone()
    }
}

/// Asserts a refusal of the desk itself: a problem with this status and code.
#[track_caller]
fn assert_refused(response: &HttpResponse, status: StatusCode, code: &str) {
    assert_eq!((response.status, response.json_code().as_str()), (status, code), "{}", response.text);
    for (name, value) in [
        ("content-type", "application/problem+json"),
        ("cache-control", "no-store"),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("content-security-policy", "default-src 'none'; frame-ancestors 'none'"),
    ] {
        assert_eq!(response.header(name), Some(value), "{name}");
    }
    assert!(response.header("x-request-id").is_some_and(|id| !id.is_empty()), "{}", response.text);
}

async fn file(api: &Api, method: &str, path: &str, encoding: &str) -> HttpResponse {
    let request = Request::builder().method(method).uri(path).header(header::HOST, HOST);
    let request = request.header(header::ACCEPT_ENCODING, encoding).body(Body::empty()).unwrap();
    Api::response_bytes(api.control.public_router(), request).await.0
}

#[tokio::test]
async fn the_page_and_its_files_are_served_with_a_strict_policy_and_names_that_never_change_content() {
    let api = Api::start().await;
    let page = file(&api, "GET", "/", "").await;
    assert_eq!((page.status, page.header("cache-control")), (StatusCode::OK, Some("no-cache")));
    let policy = page.header("content-security-policy").unwrap();
    for part in
        ["default-src 'none'", "require-trusted-types-for 'script'", "trusted-types 'none'", "frame-ancestors 'none'"]
    {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("cross-origin-resource-policy", "same-origin"),
        ("cross-origin-opener-policy", "same-origin"),
    ] {
        assert_eq!(page.header(name), Some(value), "{name}");
    }
    let names: Vec<&str> = page.text.split('"').filter(|text| text.starts_with('/') && text.contains('.')).collect();
    assert_eq!(names.len(), 3, "the style, the script and the mark: {names:?}");
    for name in names {
        let plain = file(&api, "GET", name, "identity").await;
        assert_eq!(plain.header("cache-control"), Some("public, max-age=31536000, immutable"), "{name}");
        assert_eq!((plain.header("content-encoding"), plain.header("vary")), (None, Some("accept-encoding")));
        let request = Request::get(name).header(header::HOST, HOST).header(header::ACCEPT_ENCODING, "gzip, br");
        let (small, bytes) =
            Api::response_bytes(api.control.public_router(), request.body(Body::empty()).unwrap()).await;
        assert_eq!(small.header("content-encoding"), Some("gzip"), "{name}");
        let mut unpacked = String::new();
        std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(bytes.as_slice()), &mut unpacked).unwrap();
        assert_eq!(unpacked, plain.text, "{name}");
        let head = file(&api, "HEAD", name, "identity").await;
        assert_eq!((head.text.as_str(), head.header("content-length")), ("", plain.header("content-length")));
    }
    // Places in the page are the page; nothing else is there.
    assert_eq!(file(&api, "GET", "/sockets/abc", "").await.text, page.text);
    assert_eq!(file(&api, "POST", "/sockets", "").await.status, StatusCode::METHOD_NOT_ALLOWED);
    // Other hosts have no page.
    let elsewhere = Request::get("/").header(header::HOST, "api.localhost:8443").body(Body::empty()).unwrap();
    api.public(elsewhere).await.assert_problem(StatusCode::NOT_FOUND, "no-such-path");
}

#[tokio::test]
async fn an_installation_may_have_no_desk() {
    let dir = tempfile::tempdir().unwrap();
    let clock = crate::harness::TestClock::new();
    let api = Api::start_with(dir, clock, sallyport_control::SignUp::Open, |config| config.has_desk = false).await;
    for path in ["/", "/session", "/v1/info"] {
        api.public(from_page("GET", path, None)).await.assert_problem(StatusCode::NOT_FOUND, "no-desk");
    }
}

#[tokio::test]
async fn a_session_is_an_opaque_cookie_that_scripts_and_other_sites_do_not_get() {
    let api = Api::start().await;
    let mut desk = Desk::open(&api);
    assert_eq!(desk.get("/session").await.json(), json!({"account": null, "is_new": true, "needs_setup_token": false}));
    let new = json!({"name": "Ann", "email": ANN, "password": PASSWORD});
    assert_eq!(desk.post("/v1/accounts", new).await.status, StatusCode::CREATED);
    assert_eq!(desk.get("/session").await.json()["is_new"], false);
    desk.get("/v1/sockets").await.assert_problem(StatusCode::UNAUTHORIZED, "not-logged-in");

    let response = desk.log_in(ANN, json!({})).await;
    assert_eq!(response.json()["account"]["email"], ANN);
    let cookie = response.header("set-cookie").unwrap();
    assert!(cookie.starts_with("__Host-sallyport-desk=spd_"), "{cookie}");
    for part in ["; Path=/", "; Secure", "; HttpOnly", "; SameSite=Strict"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    assert!(!cookie.contains("Domain"), "{cookie}");
    assert_eq!(response.header("cache-control"), Some("no-store"));
    let secret = cookie.split(['=', ';']).nth(1).unwrap();
    assert!(!response.text.contains(secret), "the page does not know its secret");
    assert_eq!(desk.account().await["owns_installation"], true);
    assert_eq!(desk.post("/v1/sockets", json!({"name": "shop"})).await.status, StatusCode::CREATED);
    // The secret is no token, and no refresh token.
    api.get("/v1/account", Some(secret)).await.assert_problem(StatusCode::UNAUTHORIZED, "bad-token");
    let refresh = api.post("/v1/login/refresh", None, json!({"refresh_token": secret})).await;
    refresh.assert_problem(StatusCode::UNAUTHORIZED, "bad-refresh-token");

    let copy = desk.cookie.clone();
    let out = desk.ask(from_page("DELETE", "/session", None)).await;
    assert_eq!((out.status, desk.cookie.is_none()), (StatusCode::NO_CONTENT, true));
    desk.cookie = copy;
    assert_eq!(desk.account().await, Value::Null, "the session has ended at the server");
    desk.get("/v1/sockets").await.assert_problem(StatusCode::UNAUTHORIZED, "not-logged-in");
}

#[tokio::test]
async fn a_session_ends_when_it_is_idle_and_after_half_a_day() {
    let api = Api::start().await;
    api.create_account(ANN).await;
    let mut desk = Desk::logged_in(&api, ANN).await;
    api.clock.pass(3_599);
    assert_eq!(desk.get("/v1/account").await.status, StatusCode::OK);
    api.clock.pass(3_599);
    assert_eq!(desk.get("/v1/account").await.status, StatusCode::OK, "it was renewed");
    api.clock.pass(3_600);
    assert_eq!(desk.account().await, Value::Null, "an hour without a request");

    desk.log_in(ANN, json!({})).await;
    let mut passed = 0;
    while passed + 3_000 < 12 * 3_600 {
        api.clock.pass(3_000);
        passed += 3_000;
        assert_eq!(desk.get("/v1/account").await.status, StatusCode::OK, "{passed}");
    }
    api.clock.pass(12 * 3_600 - passed);
    assert_eq!(desk.account().await, Value::Null, "twelve hours");
}

#[tokio::test]
async fn a_session_is_listed_ends_with_the_password_and_is_replaced_by_a_login() {
    let api = Api::start().await;
    let token = api.account(ANN).await;
    let mut desk = Desk::logged_in(&api, ANN).await;
    let sessions = api.get("/v1/account/sessions", Some(&token)).await.json();
    assert_eq!(sessions["items"].as_array().unwrap().len(), 2);
    let former = desk.cookie.clone();
    desk.log_in(ANN, json!({})).await;
    assert_ne!(former, desk.cookie);
    let now = std::mem::replace(&mut desk.cookie, former);
    assert_eq!(desk.account().await, Value::Null, "a new login ends the former session of the browser");
    desk.cookie = now;
    assert_eq!(desk.account().await["email"], ANN);
    let other = json!({"current_password": PASSWORD, "new_password": "blue bicycle on a hill"});
    assert_eq!(api.post("/v1/account/password", Some(&token), other).await.status, StatusCode::NO_CONTENT);
    assert_eq!(desk.account().await, Value::Null, "another password ends the other sessions");
    // Two cookies of the name are none: a sibling host may have set one of them.
    let mut desk = Desk::open(&api);
    desk.cookie = Some("__Host-sallyport-desk=spd_a; __Host-sallyport-desk=spd_b".to_owned());
    assert_eq!(desk.account().await, Value::Null);
}

#[tokio::test]
async fn a_login_checks_what_the_api_checks() {
    let api = Api::start().await;
    api.create_account(ANN).await;
    let mut desk = Desk::open(&api);
    let wrong = desk.log_in(ANN, json!({"password": "wrong horse battery"})).await;
    wrong.assert_problem(StatusCode::UNAUTHORIZED, "wrong-login");
    assert!(wrong.header("set-cookie").is_none());
    let bad = desk.post("/session", json!({"email": ANN})).await;
    bad.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
    for _ in 0..10 {
        desk.log_in(ANN, json!({"password": "wrong horse battery"})).await;
    }
    desk.log_in(ANN, json!({})).await.assert_problem(StatusCode::TOO_MANY_REQUESTS, "too-many-attempts");
}

#[tokio::test]
async fn pages_of_sockets_and_of_other_sites_change_and_read_nothing() {
    let api = Api::start().await;
    api.create_account(ANN).await;
    let mut desk = Desk::logged_in(&api, ANN).await;
    let create = || from_page("POST", "/v1/sockets", Some(json!({"name": "shop"})));
    let foreign: [&[(&str, &str)]; 6] = [
        &[("sec-fetch-site", "same-site"), ("origin", "https://shop.localhost:8443")],
        &[("sec-fetch-site", "cross-site"), ("origin", "https://evil.example")],
        &[("sec-fetch-site", "same-site")],
        &[("sec-fetch-site", "same-origin"), ("origin", "null")],
        &[("sec-fetch-site", "none")],
        &[],
    ];
    for fields in foreign {
        let mut request = create();
        request.headers_mut().remove("sec-fetch-site");
        for (name, value) in fields {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        assert_refused(&desk.ask(request).await, StatusCode::FORBIDDEN, "cross-origin");
    }
    for path in ["/v1/account", "/session"] {
        let mut request = from_page("GET", path, None);
        request.headers_mut().insert("sec-fetch-site", "same-site".parse().unwrap());
        assert_refused(&desk.ask(request).await, StatusCode::FORBIDDEN, "cross-origin");
    }
    // A form of a sibling's page sends what needs no consent (a preflight) of the desk.
    for kind in ["application/x-www-form-urlencoded", "text/plain", "multipart/form-data", ""] {
        let mut request = create();
        request.headers_mut().insert(header::CONTENT_TYPE, kind.parse().unwrap());
        assert_refused(&desk.ask(request).await, StatusCode::UNSUPPORTED_MEDIA_TYPE, "not-json");
    }
    let mut login = from_page("POST", "/session", Some(json!({"email": ANN, "password": PASSWORD})));
    login.headers_mut().insert("sec-fetch-site", "same-site".parse().unwrap());
    assert_refused(&desk.ask(login).await, StatusCode::FORBIDDEN, "cross-origin");
    assert_eq!(desk.get("/v1/sockets").await.json()["items"], json!([]), "nothing was made");

    let mut by_origin = create();
    by_origin.headers_mut().remove("sec-fetch-site");
    by_origin.headers_mut().insert(header::ORIGIN, ORIGIN.parse().unwrap());
    assert_eq!(desk.ask(by_origin).await.status, StatusCode::CREATED, "an older browser");
}

#[tokio::test]
async fn a_token_in_the_request_counts_for_nothing_and_the_cookie_is_good_at_the_desk_alone() {
    let api = Api::start().await;
    let token = api.account(ANN).await;
    api.create_account("bob@example.com").await;
    let bearer = format!("Bearer {token}");
    let mut request = from_page("GET", "/v1/account", None);
    request.headers_mut().insert(header::AUTHORIZATION, bearer.parse().unwrap());
    let mut desk = Desk::open(&api);
    desk.ask(request).await.assert_problem(StatusCode::UNAUTHORIZED, "not-logged-in");
    let mut desk = Desk::logged_in(&api, "bob@example.com").await;
    let mut request = from_page("GET", "/v1/account", None);
    request.headers_mut().insert(header::AUTHORIZATION, bearer.parse().unwrap());
    assert_eq!(desk.ask(request).await.json()["email"], "bob@example.com");
    let mut request = from_page("GET", "/v1/account", None);
    request.headers_mut().insert(header::HOST, "api.localhost:8443".parse().unwrap());
    desk.ask(request).await.assert_problem(StatusCode::UNAUTHORIZED, "not-logged-in");
}

#[tokio::test]
async fn the_roles_of_the_api_are_those_of_the_desk() {
    let api = Api::start().await;
    let owner = api.account(ANN).await;
    let bob = api.account("bob@example.com").await;
    let invitation = json!({"email": "bob@example.com", "role": "viewer"});
    let invited = api.post("/v1/invitations", Some(&owner), invitation).await;
    let code = invited.json()["code"].as_str().unwrap().to_owned();
    let joined = api.post("/v1/account/invitations/accept", Some(&bob), json!({"code": code})).await;
    assert!(joined.status.is_success(), "{}", joined.text);
    let organisation = api.get("/v1/organisation", Some(&owner)).await.json()["id"].as_str().unwrap().to_owned();
    api.socket(&owner, "shop").await;
    let mut desk = Desk::logged_in(&api, "bob@example.com").await;
    let in_organisation = |mut request: Request<Body>| {
        request.headers_mut().insert("sallyport-organisation", organisation.parse().unwrap());
        request
    };
    let list = desk.ask(in_organisation(from_page("GET", "/v1/sockets", None))).await;
    assert_eq!(list.json()["items"].as_array().unwrap().len(), 1);
    let create = from_page("POST", "/v1/sockets", Some(json!({"name": "other"})));
    desk.ask(in_organisation(create)).await.assert_problem(StatusCode::FORBIDDEN, "missing-role");
    desk.get("/v1/edges").await.assert_problem(StatusCode::FORBIDDEN, "not-owner");
}

#[tokio::test]
async fn secrets_and_owners_need_a_recent_login() {
    let api = Api::start().await;
    api.create_account(ANN).await;
    let mut desk = Desk::logged_in(&api, ANN).await;
    let token = json!({"name": "ci", "scopes": ["sockets:read"]});
    assert_eq!(desk.post("/v1/tokens", token.clone()).await.status, StatusCode::CREATED);
    api.clock.pass(901);
    assert_refused(&desk.post("/v1/tokens", token.clone()).await, StatusCode::FORBIDDEN, "login-too-old");
    for (method, path) in [("PATCH", "/v1/members/x"), ("PUT", "/v1/installation/owner"), ("DELETE", "/v1/account")] {
        let response = desk.ask(from_page(method, path, Some(json!({})))).await;
        assert_refused(&response, StatusCode::FORBIDDEN, "login-too-old");
    }
    assert_eq!(desk.post("/v1/sockets", json!({"name": "shop"})).await.status, StatusCode::CREATED);
    desk.log_in(ANN, json!({})).await;
    assert_eq!(desk.post("/v1/tokens", token).await.status, StatusCode::CREATED);
}

#[tokio::test]
async fn what_the_desk_does_is_in_the_audit_log_under_the_account() {
    let api = Api::start().await;
    api.create_account(ANN).await;
    let mut desk = Desk::logged_in(&api, ANN).await;
    desk.post("/v1/sockets", json!({"name": "shop"})).await;
    let events = desk.get("/v1/audit?kind=admin").await.json();
    let found = events["items"]
        .as_array()
        .unwrap()
        .iter()
        .any(|event| event["admin"]["action"] == "socket.create" && event["admin"]["actor"] == ANN);
    assert!(found, "{events}");
    let logins = desk.get("/v1/audit?kind=login").await.json();
    assert!(!logins["items"].as_array().unwrap().is_empty(), "{logins}");
}
