//! HTTP sockets that require a login: the login itself, the identity headers for the origin, and attacks.

use std::{
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt;
use sallyport_bus::Identities;
use sallyport_edge::{EdgeConfig, EdgeIdentity};
use sallyport_identity::{AssertionKey, Grant, LoginRequest, LogoutRequest, Purpose, Sealer, SocketCookie};
use sallyport_model::{
    AccountId, AttachedPolicy, IdentitySettings, LoginSession, LoginSessionId, Person, PolicyId, ServiceTokenId,
    ServiceTokenRoute, ServiceTokenScope, SocketId,
};
use sha2::{Digest, Sha256};

use crate::harness::*;

const BROWSER: &str = "Accept: text/html,*/*;q=0.8\r\nSec-Fetch-Mode: navigate\r\n";

/// A world with an edge that knows identities, and the data that control would send to the edge.
pub(crate) struct IdentityFixture {
    pub(crate) world: World,
    pub(crate) identities: Identities,
    sealer: Sealer,
}

pub(crate) fn now() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap()
}

pub(crate) fn session(number: u8, email: &str) -> LoginSession {
    LoginSession {
        id: LoginSessionId::from_random([number; 16]),
        organisation: AccountId::from_random([0; 16]),
        person: Person {
            email: email.parse().unwrap(),
            name: Some("J\u{fc}rg".to_owned()),
            groups: vec!["staff".to_owned(), "a,admins".to_owned()],
            groups_stated: true,
            provider: "dex".parse().unwrap(),
            subject: format!("sub-{number}"),
        },
        authenticated_at: now(),
        expires_at: now() + 3_600,
    }
}

pub(crate) fn asks(domain: &str) -> Option<IdentitySettings> {
    Some(IdentitySettings { email_domains: vec![domain.parse().unwrap()], ..IdentitySettings::default() })
}

impl IdentityFixture {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| ()).await
    }

    pub(crate) async fn start_with(change: impl FnOnce(&mut EdgeConfig)) -> Self {
        let identities = Identities::default();
        let parts = EdgeIdentity {
            sealer: Arc::new(Sealer::new([1; 32])),
            identities: identities.clone(),
            assertions: Arc::new(AssertionKey::new([2; 32]).unwrap()),
        };
        let world = World::start_with(|config| {
            config.identity = Some(parts);
            change(config);
        })
        .await;
        Self { world, identities, sealer: Sealer::new([1; 32]) }
    }

    /// Adds a socket for all of example.com. The origin responds with the identity headers of the request.
    pub(crate) async fn socket(&self) -> (TestSocket, Connector) {
        let mut socket = self.world.socket();
        let addr =
            origin(
                |request| async move { Response::new(text(identity_headers(request.uri().path(), request.headers()))) },
            );
        let connector = self.world.tunnel(&mut socket, addr.await).await;
        socket.set(&self.world, |settings| settings.identity = asks("example.com"));
        (socket, connector)
    }

    pub(crate) fn login(&self, number: u8, email: &str) -> LoginSession {
        let session = session(number, email);
        self.identities.put_session(session.clone());
        session
    }

    pub(crate) fn cookie(&self, socket: SocketId, session: &LoginSession, seen_at: i64) -> String {
        let cookie = SocketCookie { socket, session: session.id, seen_at };
        let text = self.sealer.seal(Purpose::SocketCookie, &cookie, nonce()).unwrap();
        format!("Cookie: a=1; __Host-sallyport={text}; b=2\r\n")
    }

    /// Sends a request with these lines in its head.
    pub(crate) async fn ask(&self, socket: &TestSocket, line: &str, lines: &str) -> HttpResponse {
        let head = format!(
            "{line} HTTP/1.1\r\nHost: {}\r\nContent-Length: 0\r\nConnection: close\r\n{lines}\r\n",
            socket.host()
        );
        let mut client = self.world.client(socket).await;
        tokio::io::AsyncWriteExt::write_all(&mut client, head.as_bytes()).await.unwrap();
        read_response(&mut client).await
    }

    /// Starts a login. Returns the login request in the redirect, and the browser's cookie.
    async fn begin(&self, socket: &TestSocket, path: &str) -> (LoginRequest, String) {
        let response = self.ask(socket, &format!("GET {path}"), BROWSER).await;
        assert_eq!(response.status, 302, "{}", response.head);
        self.begun(&response)
    }

    fn begun(&self, response: &HttpResponse) -> (LoginRequest, String) {
        let start = format!("https://login.localhost:{}/start?request=", self.world.addr.port());
        let sealed = response.header("location").unwrap().strip_prefix(&start).unwrap().to_owned();
        let request: LoginRequest = self.sealer.open(Purpose::LoginRequest, &sealed).unwrap();
        let cookie = response.header("set-cookie").unwrap().split(';').next().unwrap();
        (request, format!("Cookie: {cookie}\r\n"))
    }

    fn grant(&self, request: &LoginRequest, session: &LoginSession, change: impl FnOnce(&mut Grant)) -> String {
        let mut grant = Grant {
            id: nonce_of(),
            socket: request.socket,
            binding: request.binding,
            session: session.id,
            return_to: request.return_to.clone(),
            at: now(),
        };
        change(&mut grant);
        let sealed = self.sealer.seal(Purpose::Grant, &grant, nonce()).unwrap();
        format!("GET /.sallyport/callback?grant={sealed}")
    }
}

fn nonce() -> [u8; 12] {
    let mut bytes = [0; 12];
    getrandom::fill(&mut bytes).unwrap();
    bytes
}

fn nonce_of() -> [u8; 16] {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).unwrap();
    bytes
}

/// The path and the identity headers of a request to the origin, one a line.
fn identity_headers(path: &str, headers: &HeaderMap) -> String {
    let mut lines = vec![format!("path: {path}")];
    for (name, value) in headers {
        let is_told =
            ["x-auth", "x_auth", "x.auth", "x-sallyport", "x_sallyport", "cookie", "sallyport", "authorization"]
                .iter()
                .any(|start| name.as_str().starts_with(start));
        if is_told {
            lines.push(format!("{name}: {}", value.to_str().unwrap()));
        }
    }
    lines.sort();
    lines.join("\n")
}

fn field<'a>(headers: &'a str, name: &str) -> Option<&'a str> {
    headers.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

fn login_cookie(response: &HttpResponse) -> String {
    let cookie = response.header("set-cookie").unwrap();
    for part in ["; Path=/", "; Secure", "; HttpOnly", "; SameSite=Lax"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    assert!(cookie.starts_with("__Host-sallyport=") && !cookie.contains("Domain"), "{cookie}");
    format!("Cookie: {}\r\n", cookie.split(';').next().unwrap())
}

#[tokio::test]
async fn a_browser_logs_in_and_the_origin_gets_the_identity() {
    let fixture = IdentityFixture::start().await;
    let (socket, _connector) = fixture.socket().await;
    let ann = fixture.login(1, "ann@example.com");
    let (request, binding) = fixture.begin(&socket, "/page?x=1").await;
    assert_eq!((request.socket, request.return_to.as_str(), request.switch), (socket.route.id, "/page?x=1", false));
    let back = fixture.ask(&socket, &fixture.grant(&request, &ann, |_| ()), &binding).await;
    assert_eq!((back.status, back.header("location")), (303, Some("/page?x=1")), "{}", back.head);
    assert_eq!(back.header("cache-control"), Some("no-store"));
    let cookie = login_cookie(&back);

    let response = fixture.ask(&socket, "GET /page?x=1", &cookie).await;
    let echoed = response.text();
    assert_eq!(field(echoed, "x-auth-email"), Some("ann@example.com"));
    assert_eq!(field(echoed, "x-auth-name"), Some("J%C3%BCrg"));
    assert_eq!(field(echoed, "x-auth-groups"), Some("staff,a%2Cadmins"));
    assert_eq!(field(echoed, "x-auth-provider"), Some("dex"));
    assert_eq!(field(echoed, "cookie"), None, "ours goes no further");
    let claims = field(echoed, "x-sallyport-assertion").unwrap().split('.').nth(1).unwrap();
    let claims: serde_json::Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).unwrap()).unwrap();
    let url = format!("https://{}:{}", socket.host(), fixture.world.addr.port());
    assert_eq!((&claims["aud"], &claims["email"]), (&url.into(), &"ann@example.com".into()));
    assert!(claims["exp"].as_i64().unwrap() <= now() + 120 && claims["groups"][1] == "a,admins");
    let keys = fixture.ask(&socket, "GET /.sallyport/jwks.json", "").await;
    assert!(keys.status == 200 && keys.text().contains("\"kty\":\"EC\"") && !keys.text().contains("\"d\":"));
    let me = fixture.ask(&socket, "GET /.sallyport/whoami", &cookie).await;
    let me: serde_json::Value = serde_json::from_slice(&me.body).unwrap();
    assert_eq!((&me["email"], &me["allowed"]), (&"ann@example.com".into(), &true.into()));
    let metrics = fixture.world.edge.metrics_text().unwrap();
    for outcome in ["login-wanted", "login-granted", "allowed"] {
        assert!(metrics.contains(&format!("identity_total{{outcome=\"{outcome}\"}} 1")), "{metrics}");
    }
}

#[tokio::test]
async fn programs_get_a_challenge_instead_of_a_redirect() {
    let fixture = IdentityFixture::start().await;
    let (socket, _connector) = fixture.socket().await;
    for (line, lines) in [
        ("GET /", "Accept: application/json\r\n"),
        ("GET /", ""),
        ("POST /", BROWSER),
        ("GET /", "Accept: text/html\r\nX-Requested-With: XMLHttpRequest\r\n"),
        ("GET /", "Accept: text/html\r\nSec-Fetch-Mode: cors\r\n"),
        ("GET /", "Accept: text/html;q=0\r\n"),
        ("OPTIONS /", "Origin: https://a.test\r\nAccess-Control-Request-Method: PUT\r\n"),
        ("GET /", "Accept: text/html\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"),
    ] {
        let response = fixture.ask(&socket, line, lines).await;
        assert_eq!(response.status, 401, "{line} {lines}");
        let url = format!("https://{}:{}/.sallyport/login", socket.host(), fixture.world.addr.port());
        assert_eq!(response.header("www-authenticate"), Some(&format!("Sallyport login=\"{url}\"")[..]));
        assert_eq!(response.header("content-type"), Some("application/problem+json"));
        assert_eq!((response.header("set-cookie"), response.header("cache-control")), (None, Some("no-store")));
        let problem: serde_json::Value = serde_json::from_slice(&response.body).unwrap();
        assert_eq!((&problem["code"], &problem["login_url"]), (&"login-required".into(), &url.into()));
    }
    let grpc = fixture.ask(&socket, "POST /svc/Call", "Content-Type: application/grpc\r\n").await;
    assert_eq!((grpc.status, grpc.header("grpc-status")), (200, Some("16")));
    let mut client = fixture.world.client(&socket).await;
    let head = format!("HEAD / HTTP/1.1\r\nHost: {}\r\n{BROWSER}\r\n", socket.host());
    tokio::io::AsyncWriteExt::write_all(&mut client, head.as_bytes()).await.unwrap();
    assert!(read_head(&mut client).await.starts_with("HTTP/1.1 302"));
}

#[tokio::test]
async fn identity_headers_of_a_client_never_reach_the_origin() {
    let fixture = IdentityFixture::start().await;
    let (mut socket, _connector) = fixture.socket().await;
    let ann = fixture.login(1, "ann@example.com");
    let spoofed: String = [
        "X-Auth-Email",
        "x-auth-email",
        "X_AUTH_EMAIL",
        "X.Auth.Email",
        "X-Auth-User",
        "X-Sallyport-Assertion",
        "x_sallyport_assertion",
        "X-AUTH_GROUPS",
    ]
    .iter()
    .map(|name| format!("{name}: root@evil.test\r\n"))
    .collect();
    let cookie = fixture.cookie(socket.route.id, &ann, now());
    let echoed = fixture.ask(&socket, "GET /", &format!("{cookie}{spoofed}Connection: X-Auth-Email, close\r\n")).await;
    assert!(!echoed.text().contains("evil"), "{}", echoed.text());
    assert_eq!(echoed.text().matches("ann@example.com").count(), 1, "{}", echoed.text());
    assert_eq!(field(echoed.text(), "cookie"), Some("a=1; b=2"));

    let mut sender = fixture.world.http2(&socket).await;
    let mut request = Request::builder().uri(format!("https://{}/", socket.host())).body(text("")).unwrap();
    for line in format!("{cookie}{spoofed}").lines() {
        let (name, value) = line.split_once(": ").unwrap();
        request.headers_mut().append(http::HeaderName::try_from(name).unwrap(), value.parse().unwrap());
    }
    let response = soon(sender.send_request(request)).await.unwrap();
    let echoed = response.into_body().collect().await.unwrap().to_bytes();
    let echoed = std::str::from_utf8(&echoed).unwrap();
    assert!(!echoed.contains("evil") && field(echoed, "x-auth-email") == Some("ann@example.com"), "{echoed}");

    // A socket without identity settings sends no identity headers.
    socket.set(&fixture.world, |settings| settings.identity = None);
    let echoed = fixture.ask(&socket, "GET /", &format!("{cookie}{spoofed}")).await;
    assert_eq!(echoed.text(), "cookie: a=1; b=2\npath: /");
}

#[tokio::test]
async fn a_grant_is_valid_once_in_one_browser_at_one_socket_for_a_minute() {
    let fixture = IdentityFixture::start().await;
    let (socket, _connector) = fixture.socket().await;
    let (other, _other_connector) = fixture.socket().await;
    let ann = fixture.login(1, "ann@example.com");
    let (request, binding) = fixture.begin(&socket, "/").await;
    let (stranger, others_binding) = fixture.begin(&socket, "/").await;
    assert_ne!(request.binding, stranger.binding);
    let good = fixture.grant(&request, &ann, |_| ());
    let foreign = LoginSession { organisation: AccountId::from_random([9; 16]), ..session(2, "eve@example.com") };
    fixture.identities.put_session(foreign.clone());
    let refused = async |socket: &TestSocket, line: &str, lines: &str, why: &str| {
        let response = fixture.ask(socket, line, lines).await;
        assert_eq!((response.status, response.header("set-cookie")), (400, None), "{why}");
        assert!(response.text().contains("Log in again"), "{why}");
    };
    refused(&socket, &good, "", "no browser").await;
    refused(&socket, &good, &others_binding, "another browser").await;
    refused(&other, &good, &binding, "another socket").await;
    refused(&socket, &fixture.grant(&request, &ann, |grant| grant.at -= 61), &binding, "too old").await;
    refused(&socket, &fixture.grant(&request, &ann, |grant| grant.at += 120), &binding, "of the future").await;
    refused(&socket, &fixture.grant(&request, &foreign, |_| ()), &binding, "another organisation").await;
    refused(&socket, &fixture.grant(&request, &session(7, "x@example.com"), |_| ()), &binding, "no such login").await;
    let forged = Sealer::new([9; 32]).seal(Purpose::Grant, &"x", [0; 12]).unwrap();
    refused(&socket, &format!("GET /.sallyport/callback?grant={forged}"), &binding, "forged").await;
    refused(&socket, "GET /.sallyport/callback", &binding, "none").await;
    // Neither a cookie nor a login request is a grant.
    let cookie = fixture.cookie(socket.route.id, &ann, now());
    let sealed = cookie.split("__Host-sallyport=").nth(1).unwrap().split(';').next().unwrap();
    refused(&socket, &format!("GET /.sallyport/callback?grant={sealed}"), &binding, "a cookie").await;
    assert_eq!(fixture.ask(&socket, &good.replace("GET", "POST"), &binding).await.status, 404, "not by POST");

    assert_eq!(fixture.ask(&socket, &good, &binding).await.status, 303);
    refused(&socket, &good, &binding, "replayed").await;
    // In a logged-in browser, a spent grant sets no cookie and redirects.
    let again =
        fixture.ask(&socket, &good, &format!("{}Cookie: x=y\r\n", fixture.cookie(socket.route.id, &ann, now()))).await;
    assert_eq!((again.status, again.header("set-cookie")), (303, None));
    let metrics = fixture.world.edge.metrics_text().unwrap();
    assert!(metrics.contains("outcome=\"login-granted\"} 1"), "{metrics}");
}

#[tokio::test]
async fn a_cookie_is_valid_at_its_own_socket_during_its_login() {
    let fixture = IdentityFixture::start().await;
    let (mut socket, _connector) = fixture.socket().await;
    let (other, _other_connector) = fixture.socket().await;
    let ann = fixture.login(1, "ann@example.com");
    let id = socket.route.id;
    let good = fixture.cookie(id, &ann, now());
    assert_eq!(fixture.ask(&socket, "GET /", &good).await.status, 200);
    let refused = async |socket: &TestSocket, lines: &str, why: &str| {
        assert_eq!(fixture.ask(socket, "GET /", lines).await.status, 401, "{why}");
    };
    refused(&other, &good, "stolen for another socket").await;
    refused(&socket, &fixture.cookie(id, &ann, now() - 3_601), "at rest for too long").await;
    refused(&socket, &fixture.cookie(id, &ann, now() + 120), "of the future").await;
    refused(&socket, &good.replace("__Host-sallyport=", "__Host-sallyport=A"), "forged").await;
    refused(&socket, &good.replace("__Host-sallyport=", "__host-sallyport="), "not the name").await;
    let foreign = LoginSession { organisation: AccountId::from_random([9; 16]), ..session(2, "eve@example.com") };
    fixture.identities.put_session(foreign.clone());
    refused(&socket, &fixture.cookie(id, &foreign, now()), "another organisation's login").await;
    let ended = LoginSession { expires_at: now(), ..session(3, "bob@example.com") };
    fixture.identities.put_session(ended.clone());
    refused(&socket, &fixture.cookie(id, &ended, now()), "ended").await;
    let early = LoginSession { authenticated_at: now() - 13 * 3_600, ..session(4, "cy@example.com") };
    fixture.identities.put_session(early.clone());
    refused(&socket, &fixture.cookie(id, &early, now()), "logged in too long ago for this socket").await;
    socket.set(&fixture.world, |settings| {
        settings.identity.as_mut().unwrap().providers = vec!["google".parse().unwrap()];
    });
    refused(&socket, &good, "another provider's word").await;
    socket.set(&fixture.world, |settings| settings.identity.as_mut().unwrap().providers.clear());
    assert_eq!(fixture.ask(&socket, "GET /", &good).await.status, 200);
    fixture.identities.end_sessions(|session| session.id == ann.id);
    refused(&socket, &good, "revoked").await;
}

#[tokio::test]
async fn a_cookie_in_use_is_renewed_except_in_public_responses() {
    let fixture = IdentityFixture::start().await;
    let mut socket = fixture.world.socket();
    let addr = origin(|request| async move {
        let mut response = Response::new(text("x"));
        if request.uri().path() == "/public" {
            response.headers_mut().insert("cache-control", "public, max-age=60".parse().unwrap());
        }
        response
    });
    let _connector = fixture.world.tunnel(&mut socket, addr.await).await;
    socket.set(&fixture.world, |settings| settings.identity = asks("example.com"));
    let ann = fixture.login(1, "ann@example.com");
    let fresh = fixture.ask(&socket, "GET /", &fixture.cookie(socket.route.id, &ann, now())).await;
    assert_eq!(fresh.header("set-cookie"), None);
    let older = fixture.cookie(socket.route.id, &ann, now() - 300);
    login_cookie(&fixture.ask(&socket, "GET /", &older).await);
    let public = fixture.ask(&socket, "GET /public", &older).await;
    assert_eq!((public.header("set-cookie"), public.header("cache-control")), (None, Some("public, max-age=60")));
}

#[tokio::test]
async fn redirects_never_lead_to_another_host() {
    let fixture = IdentityFixture::start().await;
    let (socket, _connector) = fixture.socket().await;
    let ann = fixture.login(1, "ann@example.com");
    let cookie = fixture.cookie(socket.route.id, &ann, now());
    let (request, binding) = fixture.begin(&socket, "/").await;
    for bad in ["//evil.test/", "https://evil.test/", "/\\evil.test", "/\t/evil.test", ""] {
        let grant = fixture.grant(&request, &ann, |grant| grant.return_to = bad.to_owned());
        let response = fixture.ask(&socket, &grant, &binding).await;
        assert_eq!((response.status, response.header("location")), (303, Some("/")), "{bad}");
        let to = URL_SAFE_NO_PAD.encode(bad);
        let response = fixture.ask(&socket, &format!("GET /.sallyport/login?to={to}"), &cookie).await;
        assert_eq!((response.status, response.header("location")), (302, Some("/")), "{bad}");
        let response = fixture.ask(&socket, &format!("GET /.sallyport/login?to={to}"), "").await;
        assert_eq!(fixture.begun(&response).0.return_to, "/", "{bad}");
    }
    assert_eq!(fixture.begin(&socket, "//evil.test/").await.0.return_to, "/");
}

#[tokio::test]
async fn a_person_without_access_sees_the_account_and_may_switch() {
    let fixture = IdentityFixture::start().await;
    let (socket, _connector) = fixture.socket().await;
    for (number, email) in [(1, "eve@evil.test"), (2, "eve@sub.example.com"), (3, "eve@example.com.evil.test")] {
        let cookie = fixture.cookie(socket.route.id, &fixture.login(number, email), now());
        let page = fixture.ask(&socket, "GET /secret?a=b", &format!("{BROWSER}{cookie}")).await;
        assert_eq!((page.status, page.header("cache-control")), (403, Some("no-store")));
        assert!(page.text().contains(email) && page.text().contains("Use another account"), "{}", page.text());
        let start = page.text().find("class=\"act\" href=\"").unwrap() + 18;
        let link = page.text()[start..].split('"').next().unwrap().replace("&amp;", "&");
        let (request, _) =
            fixture.begun(&fixture.ask(&socket, &format!("GET {link}"), &format!("{BROWSER}{cookie}")).await);
        assert!(request.switch && request.return_to == "/secret?a=b");
        let program = fixture.ask(&socket, "GET /", &cookie).await;
        let problem: serde_json::Value = serde_json::from_slice(&program.body).unwrap();
        assert_eq!((program.status, &problem["code"]), (403, &"not-allowed".into()));
        assert_eq!(program.header("www-authenticate"), None);
    }
}

#[tokio::test]
async fn logout_requires_a_page_of_the_same_site() {
    let fixture = IdentityFixture::start().await;
    let (socket, _connector) = fixture.socket().await;
    let ann = fixture.login(1, "ann@example.com");
    let cookie = fixture.cookie(socket.route.id, &ann, now());
    let page = fixture.ask(&socket, "GET /.sallyport/logout", &cookie).await;
    assert!(page.status == 200 && page.text().contains("<form method=\"post\" action=\"/.sallyport/logout\">"));
    for origin in ["", "Origin: https://evil.localhost\r\n", "Origin: null\r\n"] {
        let response = fixture.ask(&socket, "POST /.sallyport/logout", &format!("{cookie}{origin}")).await;
        assert_eq!((response.status, response.header("set-cookie")), (403, None), "{origin}");
    }
    let own = format!("{cookie}Origin: https://{}\r\n", socket.host());
    let response = fixture.ask(&socket, "POST /.sallyport/logout", &own).await;
    let login = format!("https://login.localhost:{}/logout?ticket=", fixture.world.addr.port());
    let ticket = response.header("location").unwrap().strip_prefix(&login).unwrap();
    let ticket: LogoutRequest = fixture.sealer.open(Purpose::Logout, ticket).unwrap();
    assert_eq!((response.status, ticket.session, ticket.socket), (303, ann.id, socket.route.id));
    assert!(response.header("set-cookie").unwrap().starts_with("__Host-sallyport=; "), "{}", response.head);
    assert!(response.header("set-cookie").unwrap().ends_with("Max-Age=0"), "{}", response.head);
    // A person without a session here may have one elsewhere. The logout returns to this socket in the end.
    let response =
        fixture.ask(&socket, "POST /.sallyport/logout", &format!("Origin: https://{}\r\n", socket.host())).await;
    let login = format!("https://login.localhost:{}/logout?from={}", fixture.world.addr.port(), socket.route.name);
    assert!(response.status == 303 && response.header("location").unwrap().starts_with(&login), "{}", response.head);
}

#[tokio::test]
async fn a_page_of_another_site_cannot_use_a_login() {
    let fixture = IdentityFixture::start().await;
    let (socket, _connector) = fixture.socket().await;
    let cookie = fixture.cookie(socket.route.id, &fixture.login(1, "ann@example.com"), now());
    let own = format!("Origin: https://{}\r\n", socket.host());
    let upgrade = "Connection: upgrade\r\nUpgrade: websocket\r\n";
    for (line, lines, status) in [
        ("POST /", own.as_str(), 200),
        ("POST /", "", 200),
        ("POST /", "Sec-Fetch-Site: same-origin\r\n", 200),
        ("GET /", "Origin: https://evil.localhost\r\nSec-Fetch-Site: same-site\r\n", 200),
        ("POST /", "Origin: https://evil.localhost\r\n", 403),
        ("POST /", "Origin: null\r\n", 403),
        ("POST /", "Origin: null\r\nSec-Fetch-Site: same-origin\r\n", 200),
        ("POST /", "Origin: null\r\nSec-Fetch-Site: cross-site\r\n", 403),
        ("POST /", "Origin: https://evil.localhost\r\nSec-Fetch-Site: same-origin\r\n", 403),
        ("DELETE /", "Sec-Fetch-Site: same-site\r\n", 403),
        ("GET /", &format!("{upgrade}Origin: https://evil.localhost\r\n"), 403),
        ("GET /", &format!("{upgrade}{own}"), 200),
        ("POST /", &format!("{own}Origin: https://evil.localhost\r\n"), 403),
    ] {
        let response = fixture.ask(&socket, line, &format!("{cookie}{lines}")).await;
        assert_eq!(response.status, status, "{line} {lines}");
    }
}

/// A service token with the secret `the secret`.
pub(crate) fn machine(number: u8) -> ServiceTokenRoute {
    ServiceTokenRoute {
        id: ServiceTokenId::from_random([number; 16]),
        organisation: AccountId::from_random([0; 16]),
        name: "ci".to_owned(),
        hash: Sha256::digest("the secret").into(),
        sockets: Vec::new(),
        expires_at: None,
        scope: ServiceTokenScope::default(),
        certified_until: None,
        email: None,
        display_name: None,
    }
}

#[tokio::test]
async fn a_service_token_grants_access() {
    let fixture = IdentityFixture::start().await;
    let (mut socket, _connector) = fixture.socket().await;
    let token = machine;
    let policy = r#"{"allow":[{"who":{"service_tokens":["ci"]},"what":{"methods":["GET"]}}]}"#;
    socket.route.policies =
        vec![AttachedPolicy { id: PolicyId::from_random([1; 16]), name: "machines".into(), document: policy.into() }];
    fixture.world.routes.put(socket.route.clone());
    fixture.identities.put_token(token(1));
    fixture.identities.put_token(ServiceTokenRoute { organisation: AccountId::from_random([9; 16]), ..token(2) });
    fixture.identities.put_token(ServiceTokenRoute { expires_at: Some(now()), ..token(3) });
    fixture.identities.put_token(ServiceTokenRoute { sockets: vec![SocketId::from_random([77; 16])], ..token(4) });
    fixture.identities.put_token(ServiceTokenRoute { name: "other".into(), ..token(5) });
    let token_fields = |number: u8, secret: &str| {
        format!("Sallyport-Token-Id: {}\r\nSallyport-Token-Secret: {secret}\r\n", token(number).id)
    };
    let echoed = fixture.ask(&socket, "GET /", &token_fields(1, "the secret")).await;
    assert_eq!(echoed.status, 200, "{}", echoed.text());
    assert!(
        field(echoed.text(), "x-auth-provider") == Some("service") && field(echoed.text(), "x-auth-name") == Some("ci")
    );
    assert!(
        field(echoed.text(), "x-auth-email").is_none() && !echoed.text().contains("the secret"),
        "{}",
        echoed.text()
    );
    let ann = fixture.cookie(socket.route.id, &fixture.login(1, "ann@example.com"), now());
    for (line, lines, status) in [
        ("GET /", token_fields(1, "another"), 401),
        ("GET /", token_fields(9, "the secret"), 401),
        ("GET /", token_fields(2, "the secret"), 401),
        ("GET /", token_fields(3, "the secret"), 401),
        ("GET /", token_fields(4, "the secret"), 401),
        ("GET /", token_fields(5, "the secret"), 403),
        ("POST /", token_fields(1, "the secret"), 403),
        ("GET /", format!("{ann}{}", token_fields(1, "another")), 401),
        ("GET /", format!("{}{}", token_fields(1, "the secret"), token_fields(1, "the secret")), 401),
        ("GET /", format!("Sallyport-Token-Id: {}\r\n", token(1).id), 401),
        ("GET /", token_fields(1, &"x".repeat(300)), 401),
    ] {
        assert_eq!(fixture.ask(&socket, line, &lines).await.status, status, "{line} {lines}");
    }
    fixture.identities.remove_token(token(1).id);
    assert_eq!(fixture.ask(&socket, "GET /", &token_fields(1, "the secret")).await.status, 401);
}

#[tokio::test]
async fn a_service_token_shows_its_configured_identity_and_matches_no_person() {
    let fixture = IdentityFixture::start().await;
    let (mut socket, _connector) = fixture.socket().await;
    let named = ServiceTokenRoute {
        email: Some("ann@example.com".parse().unwrap()),
        display_name: Some("Ann's calendar".to_owned()),
        ..machine(1)
    };
    fixture.identities.put_token(named.clone());
    let token_fields = format!("Sallyport-Token-Id: {}\r\nSallyport-Token-Secret: the secret\r\n", named.id);
    // The socket allows all of example.com, by its own list and by a policy. The address of a token is not a person's
    // address.
    let people = r#"{"allow":[{"who":{"emails":["ann@example.com"]}},{"who":{"email_domains":["example.com"]}}]}"#;
    let machines = r#"{"allow":[{"who":{"service_tokens":["ci"]}}]}"#;
    for (document, status) in [(people, 403), (machines, 200)] {
        socket.route.policies =
            vec![AttachedPolicy { id: PolicyId::from_random([1; 16]), name: "p".into(), document: document.into() }];
        fixture.world.routes.put(socket.route.clone());
        let response = fixture.ask(&socket, "GET /", &token_fields).await;
        assert_eq!(response.status, status, "{}", response.text());
        if status == 200 {
            let echoed = response.text();
            assert_eq!(field(echoed, "x-auth-email"), Some("ann@example.com"));
            assert_eq!(field(echoed, "x-auth-name"), Some("Ann's calendar"));
            assert_eq!(field(echoed, "x-auth-provider"), Some("service"), "the provider shows a machine");
        }
    }
    let who = fixture.ask(&socket, "GET /.sallyport/whoami", &token_fields).await;
    assert!(who.text().contains("\"service\":\"ci\",\"email\":\"ann@example.com\""), "{}", who.text());
}

#[tokio::test]
async fn an_invalid_policy_or_a_missing_identity_setup_denies_access() {
    let fixture = IdentityFixture::start().await;
    let (mut socket, _connector) = fixture.socket().await;
    let cookie = fixture.cookie(socket.route.id, &fixture.login(1, "ann@example.com"), now());
    for document in ["{", "[]", r#"{"allow":[{"nonsense":1}]}"#, ""] {
        socket.route.policies =
            vec![AttachedPolicy { id: PolicyId::from_random([1; 16]), name: "p".into(), document: document.into() }];
        fixture.world.routes.put(socket.route.clone());
        assert_eq!(fixture.ask(&socket, "GET /", &cookie).await.status, 403, "{document}");
    }
    // An edge without an identity setup.
    let world = World::start().await;
    let mut socket = world.socket();
    let _connector = world.tunnel(&mut socket, named_origin("here").await).await;
    socket.set(&world, |settings| settings.identity = asks("example.com"));
    let response = world.get(&socket, "/").await;
    assert_eq!(response.status, 503);
    assert!(response.text().contains("Sign-in is unavailable"), "{}", response.text());
}

#[tokio::test]
async fn a_password_is_required_after_the_login() {
    let fixture = IdentityFixture::start().await;
    let (mut socket, _connector) = fixture.socket().await;
    socket.protect(&fixture.world, "ann", "secret");
    let cookie = fixture.cookie(socket.route.id, &fixture.login(1, "ann@example.com"), now());
    let password = "Authorization: Basic YW5uOnNlY3JldA==\r\n";
    assert!(fixture.ask(&socket, "GET /", password).await.header("www-authenticate").unwrap().starts_with("Sallyport"));
    assert!(fixture.ask(&socket, "GET /", &cookie).await.header("www-authenticate").unwrap().starts_with("Basic"));
    assert_eq!(fixture.ask(&socket, "GET /", &format!("{cookie}{password}")).await.status, 200);
}

#[tokio::test]
async fn reserved_paths_reach_no_origin_and_control_serves_the_login_host() {
    let fixture = IdentityFixture::start().await;
    let (socket, _connector) = fixture.socket().await;
    let cookie = fixture.cookie(socket.route.id, &fixture.login(1, "ann@example.com"), now());
    for path in ["/.sallyport/", "/.sallyport/anything", "/.sallyport/callback/x"] {
        let response = fixture.ask(&socket, &format!("GET {path}"), &cookie).await;
        assert_eq!(response.status, 404, "{path}");
        assert!(!response.text().contains("path: "), "{path}");
    }
    let anonymous = fixture.ask(&socket, "GET /.sallyport/whoami", "").await;
    assert_eq!((anonymous.status, anonymous.text()), (401, r#"{"email":null}"#));
    let mut client = fixture.world.client_with("login.localhost", &[b"http/1.1"]).await;
    let head = b"GET /start?request=x HTTP/1.1\r\nHost: login.localhost\r\n\r\n";
    tokio::io::AsyncWriteExt::write_all(&mut client, head).await.unwrap();
    assert_eq!(read_response(&mut client).await.text(), "api /start for 127.0.0.1");
    let head = b"GET /healthz HTTP/1.1\r\nHost: login.localhost\r\n\r\n";
    tokio::io::AsyncWriteExt::write_all(&mut client, head).await.unwrap();
    assert_eq!(
        read_response(&mut client).await.text(),
        "api /healthz for 127.0.0.1",
        "the edge's own paths are at api."
    );
}

#[tokio::test]
async fn tabs_of_one_browser_share_the_binding_of_their_logins() {
    let fixture = IdentityFixture::start().await;
    let (socket, _connector) = fixture.socket().await;
    let (first, binding) = fixture.begin(&socket, "/one").await;
    let second = fixture.ask(&socket, "GET /two", &format!("{BROWSER}{binding}")).await;
    let (second, binding) = fixture.begun(&second);
    assert_eq!(first.binding, second.binding);
    let ann = fixture.login(1, "ann@example.com");
    for request in [first, second] {
        assert_eq!(fixture.ask(&socket, &fixture.grant(&request, &ann, |_| ()), &binding).await.status, 303);
    }
}

#[tokio::test]
async fn policies_with_methods_or_paths_remove_override_headers() {
    let world = World::start().await;
    let mut socket = world.socket();
    let addr = origin(|request| async move {
        let names: Vec<_> = request.headers().keys().map(|name| name.as_str().to_owned()).collect();
        Response::new(text(names.join("\n")))
    });
    let _connector = world.tunnel(&mut socket, addr.await).await;
    let overrides = [
        "X-HTTP-Method-Override: DELETE",
        "x_http_method_override: DELETE",
        "X.Http.Method.Override: DELETE",
        "X-HTTP-Method: DELETE",
        "X-Method-Override: DELETE",
        "X-Original-URL: /admin",
        "x-original_url: /admin",
        "X-Rewrite-URL: /admin",
        "X-REWRITE_URL: /admin",
    ];
    let head = format!(
        "GET /open HTTP/1.1\r\nHost: {}\r\n{}\r\nConnection: close\r\n\r\n",
        socket.host(),
        overrides.join("\r\n")
    );
    for (document, reach) in [
        (None, true),
        (Some(r#"{"allow":[{"where":["127.0.0.0/8"]}]}"#), true),
        (Some(r#"{"allow":[{"what":{"methods":["GET"]}}]}"#), false),
        (Some(r#"{"allow":[{"who":{"anyone":true}}],"deny":[{"what":{"paths":["/admin"]}}]}"#), false),
    ] {
        socket.route.policies = document.map(crate::identity_flows::policy).unwrap_or_default();
        world.routes.put(socket.route.clone());
        let response = world.raw(&socket, head.as_bytes()).await;
        assert_eq!(response.status, 200, "{}", response.head);
        let echoed = response.text();
        assert_eq!(echoed.contains("method") || echoed.contains("url"), reach, "{document:?}: {echoed}");
    }
    // HTTP/2 clients get the same treatment.
    let mut sender = world.http2(&socket).await;
    let request = Request::get(format!("https://{}/open", socket.host())).header("x-http-method-override", "DELETE");
    let response = soon(sender.send_request(request.body(text("")).unwrap())).await.unwrap();
    let echoed = response.into_body().collect().await.unwrap().to_bytes();
    assert!(!String::from_utf8_lossy(&echoed).contains("method"), "{echoed:?}");
}

#[tokio::test]
async fn an_origin_cannot_set_the_edges_cookies() {
    let fixture = IdentityFixture::start().await;
    let mut socket = fixture.world.socket();
    let addr = origin(|_| async move {
        let mut response = Response::new(text("here"));
        for cookie in ["__Host-sallyport=forged; Path=/; Secure", "own=1", "__Host-sallyport-login=x; Path=/; Secure"] {
            response.headers_mut().append("set-cookie", cookie.parse().unwrap());
        }
        response
    });
    let _connector = fixture.world.tunnel(&mut socket, addr.await).await;
    // Without identity settings, these cookie names have no meaning.
    assert_eq!(fixture.world.get(&socket, "/").await.head.matches("sallyport").count(), 2);
    socket.set(&fixture.world, |settings| settings.identity = asks("example.com"));
    let ann = fixture.login(1, "ann@example.com");
    let response = fixture.ask(&socket, "GET /", &fixture.cookie(socket.route.id, &ann, now())).await;
    assert_eq!((response.status, response.header("set-cookie")), (200, Some("own=1")), "{}", response.head);
    assert!(!response.head.contains("forged") && !response.head.contains("__Host-sallyport-login"));
    let metrics = fixture.world.edge.metrics_text().unwrap();
    assert!(metrics.contains(r#"identity_total{outcome="origin-cookie"} 1"#), "{metrics}");
}

#[tokio::test]
async fn no_response_affects_the_cookies_of_other_sockets() {
    let fixture = IdentityFixture::start().await;
    let world = &fixture.world;
    let mut socket = world.socket();
    let domain = socket.host().split_once('.').unwrap().1.to_owned();
    let domain = domain.split(':').next().unwrap().to_owned();
    let reaching = format!(
        "set-cookie: wide=1; Domain={domain}\r\nset-cookie: kept=1; Path=/\r\nset-cookie: login=1; Domain=.login.{domain}\r\n\
         clear-site-data: \"cache\", \"cookies\"\r\nclear-site-data: \"*\"\r\n"
    );
    let (addr, _) = raw_origin(move |mut tcp| {
        let reaching = reaching.clone();
        async move {
            use tokio::io::AsyncWriteExt;
            let head = read_head(&mut tcp).await;
            let response = if head.starts_with("GET /ws") {
                format!("HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: websocket\r\n{reaching}\r\n")
            } else {
                format!(
                    "HTTP/1.1 103 Early Hints\r\n{reaching}\r\n\
                     HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 4\r\n{reaching}\r\nhere"
                )
            };
            tcp.write_all(response.as_bytes()).await.unwrap();
            read_rest(&mut tcp).await;
        }
    })
    .await;
    let _connector = world.tunnel(&mut socket, addr).await;
    let is_kept_at_home = |head: &str| {
        let head = head.to_ascii_lowercase();
        assert_eq!(head.matches("set-cookie:").count(), 1, "{head}");
        assert!(
            head.contains("set-cookie: kept=1; path=/") && head.contains("clear-site-data: \"cache\"\r\n"),
            "{head}"
        );
        assert!(!head.contains("cookies\"") && !head.contains("\"*\""), "{head}");
    };
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
    for asked in [false, true] {
        let mut lines = String::new();
        if asked {
            socket.set(world, |settings| settings.identity = asks("example.com"));
            let ann = fixture.login(1, "ann@example.com");
            lines = fixture.cookie(socket.route.id, &ann, now());
        }
        is_kept_at_home(&fixture.ask(&socket, "GET /", &lines).await.head);
        let mut client = world.client(&socket).await;
        let head = format!("GET /ws HTTP/1.1\r\nHost: {}\r\n{upgrade}{lines}\r\n", socket.host());
        tokio::io::AsyncWriteExt::write_all(&mut client, head.as_bytes()).await.unwrap();
        let head = read_head(&mut client).await;
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        is_kept_at_home(&head);
        let mut sender = world.http2(&socket).await;
        let mut request = Request::get(format!("https://{}/", socket.host()));
        if let Some((_, cookie)) = lines.trim_end().split_once(": ") {
            request = request.header("cookie", cookie);
        }
        let response = soon(sender.send_request(request.body(text("")).unwrap())).await.unwrap();
        assert_eq!(response.status(), 200);
        let values = |name| response.headers().get_all(name).iter().collect::<Vec<_>>();
        assert_eq!(values("set-cookie"), ["kept=1; Path=/"]);
        assert_eq!(values("clear-site-data"), ["\"cache\""]);
    }
    let metrics = world.edge.metrics_text().unwrap();
    assert!(metrics.contains(r#"identity_total{outcome="origin-cookie"} 6"#), "{metrics}");
}
