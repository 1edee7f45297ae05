//! Programs of persons: logins and certificates.

use std::process::{Command, Stdio};

use axum::body::Body;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{Request, StatusCode, header};
use sallyport_api::{
    AuditEvent, ClientCertificate, ClientLogin, ClientSshCertificate, ClientToken, DeviceLogin, Page, Socket,
};
use sallyport_control::Secrets;
use sallyport_identity::{Purpose, Sealer};
use sallyport_model::{LoginSession, LoginSessionId, Person};
use serde_json::{Value, json};

use crate::harness::{Api, HttpResponse, START};

const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ ann@laptop";
/// A verifier and its challenge: RFC 7636 appendix B.
pub(crate) const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
pub(crate) const BACK: &str = "http://127.0.0.1:4000/callback";

/// An organisation with a `tls` socket for addresses at example.com, and Ann, who has logged in.
pub(crate) struct World {
    pub(crate) api: Api,
    pub(crate) token: String,
    pub(crate) socket: Socket,
    pub(crate) session: LoginSessionId,
    pub(crate) cookie: String,
}

fn person(email: &str) -> Person {
    Person {
        email: email.parse().unwrap(),
        name: Some("Ann".into()),
        groups: Vec::new(),
        groups_stated: true,
        provider: "dex".parse().unwrap(),
        subject: "1".into(),
    }
}

async fn tls_socket(api: &Api, token: &str, identity: Value) -> Socket {
    static MADE: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(1);
    let number = MADE.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let body = json!({"name": format!("db {number}"), "type": "tls", "identity": identity});
    api.post("/v1/sockets", Some(token), body).await.read(StatusCode::CREATED)
}

/// Logs a person in at the socket's organisation. Returns the login and the cookie of the login host.
async fn log_in(api: &Api, socket: &Socket, email: &str, id: u8) -> (LoginSessionId, String) {
    let organisation = api.routes.get(socket.id).unwrap().account;
    let session = LoginSessionId::from_random([id; 16]);
    let authenticated_at = api.clock.unix_seconds();
    let expires_at = authenticated_at + 8 * 3_600;
    let login = LoginSession { id: session, organisation, person: person(email), authenticated_at, expires_at };
    api.store.begin_person_session(&login).await.unwrap();
    api.identities.put_session(login);
    let sealer = Sealer::new(Secrets::open_or_create(api.dir.path()).unwrap().derived("seal"));
    let value = sealer.seal(Purpose::SignOn, &json!({ "session": session }), [id; 12]).unwrap();
    let digits = organisation.uuid().simple().to_string();
    (session, format!("__Host-sallyport-sso-{}={value}", &digits[..12]))
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::started_at(|_| {}).await
    }

    /// The same at another time.
    pub(crate) async fn started_at(set_clock: impl FnOnce(&Api)) -> Self {
        let api = Api::start().await;
        set_clock(&api);
        Self::at(api).await
    }

    /// The same at this control.
    pub(crate) async fn at(api: Api) -> Self {
        let token = api.account("owner@example.com").await;
        let socket = tls_socket(&api, &token, json!({"email_domains": ["example.com"]})).await;
        let (session, cookie) = log_in(&api, &socket, "ann@example.com", 1).await;
        Self { api, token, socket, session, cookie }
    }

    pub(crate) fn host(&self) -> &str {
        &self.socket.dns_name
    }

    fn client_query(&self) -> Vec<(&'static str, String)> {
        vec![
            ("response_type", "code".into()),
            ("client_id", "sallyport".into()),
            ("redirect_uri", "http%3A%2F%2F127.0.0.1%3A4000%2Fcallback".into()),
            ("state", "state-1234567".into()),
            ("code_challenge", CHALLENGE.into()),
            ("code_challenge_method", "S256".into()),
            ("host", self.host().into()),
        ]
    }

    pub(crate) async fn get_page(&self, path: &str, cookie: Option<&str>) -> HttpResponse {
        let mut request = Request::get(path);
        if let Some(cookie) = cookie {
            request = request.header(header::COOKIE, cookie);
        }
        self.api.page(request.body(Body::empty()).unwrap()).await
    }

    pub(crate) async fn decide(&self, path: &str, page: &HttpResponse, decision: &str) -> HttpResponse {
        self.decide_as(path, page, decision, &self.cookie, "https://login.localhost:8443").await
    }

    async fn decide_as(
        &self,
        path: &str,
        page: &HttpResponse,
        decision: &str,
        cookie: &str,
        origin: &str,
    ) -> HttpResponse {
        let form = page.text.split("name=\"form\" value=\"").nth(1).and_then(|rest| rest.split('"').next());
        let body = format!("form={}&decision={decision}", form.unwrap_or_else(|| panic!("no form: {}", page.text)));
        let request = Request::post(path)
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(header::ORIGIN, origin)
            .header(header::COOKIE, cookie)
            .body(Body::from(body))
            .unwrap();
        self.api.page(request).await
    }

    /// The code that the browser brings to the program.
    pub(crate) async fn code(&self) -> String {
        let page = self.get_page(&path(&self.client_query()), Some(&self.cookie)).await;
        assert_eq!(page.status, StatusCode::OK, "{}", page.text);
        let sent = self.decide("/client", &page, "allow").await;
        assert_eq!(sent.status, StatusCode::SEE_OTHER, "{}", sent.text);
        let to = sent.header("location").unwrap().to_owned();
        let (code, state) = to.strip_prefix(&format!("{BACK}?code=")).unwrap().split_once("&state=").unwrap();
        assert_eq!(state, "state-1234567");
        code.to_owned()
    }

    pub(crate) async fn exchange(&self, code: &str, verifier: &str, redirect: &str) -> HttpResponse {
        let body = json!({"code": code, "code_verifier": verifier, "redirect_uri": redirect});
        self.api.post("/v1/client/token", None, body).await
    }

    /// A program's token.
    pub(crate) async fn client_token(&self) -> String {
        let token: ClientToken = self.exchange(&self.code().await, VERIFIER, BACK).await.read(StatusCode::OK);
        assert_eq!((token.email.as_str(), token.host.as_str()), ("ann@example.com", self.host()));
        token.token.expose().to_owned()
    }

    async fn tls(&self, token: &str, host: &str, csr: &str) -> HttpResponse {
        self.api.post("/v1/client/tls-certificate", Some(token), json!({"host": host, "csr": csr})).await
    }

    /// Changes the socket's identity setting.
    async fn change(&self, identity: Value) -> StatusCode {
        let path = format!("/v1/sockets/{}", self.socket.id);
        let token = self.api.login("owner@example.com").await.access_token;
        self.api.send("PATCH", &path, Some(token.expose()), Some(json!({ "identity": identity }))).await.status
    }

    pub(crate) async fn ssh(&self, token: &str, host: &str, key: &str) -> HttpResponse {
        self.api.post("/v1/client/ssh-certificate", Some(token), json!({"host": host, "public_key": key})).await
    }
}

fn path(query: &[(&str, String)]) -> String {
    let query: Vec<String> = query.iter().map(|(name, value)| format!("{name}={value}")).collect();
    format!("/client?{}", query.join("&"))
}

/// A certificate request by openssl.
fn csr(args: &[&str]) -> String {
    let mut command = Command::new("openssl");
    command.args(["req", "-new", "-nodes", "-keyout", "/dev/null", "-subj", "/CN=root@evil.example/O=evil"]);
    let output = command.args(args).stderr(Stdio::null()).output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

fn p256_csr() -> String {
    csr(&["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"])
}

#[tokio::test]
async fn a_program_logs_in_through_the_browser_and_gets_certificates() {
    let world = World::new().await;
    let token = world.client_token().await;
    let login: ClientLogin = world.api.get("/v1/client", Some(&token)).await.read(StatusCode::OK);
    assert_eq!((login.email.as_str(), login.provider.as_str()), ("ann@example.com", "dex"));

    let made: ClientCertificate = world.tls(&token, world.host(), &p256_csr()).await.read(StatusCode::OK);
    let dir = tempfile::tempdir().unwrap();
    let (leaf, ca) = (dir.path().join("leaf.pem"), dir.path().join("ca.pem"));
    std::fs::write(&leaf, &made.certificate).unwrap();
    std::fs::write(&ca, &made.authority).unwrap();
    let route = world.api.routes.get(world.socket.id).unwrap();
    assert!(route.client_authority.is_some(), "edges have the authority's certificate");
    assert_eq!(world.socket.client_authority.as_deref(), Some(made.authority.as_str()));
    let verify = Command::new("openssl")
        .args(["verify", "-purpose", "sslclient", "-attime", &START.to_string(), "-x509_strict", "-CAfile"])
        .args([&ca, &leaf])
        .output()
        .unwrap();
    assert!(verify.status.success(), "{verify:?}");
    for (at, purpose) in [(START + 301, "sslclient"), (START - 301, "sslclient"), (START, "sslserver")] {
        let refused = Command::new("openssl")
            .args(["verify", "-purpose", purpose, "-attime", &at.to_string(), "-CAfile"])
            .args([&ca, &leaf])
            .output()
            .unwrap();
        assert!(!refused.status.success(), "{at} {purpose}");
    }
    let shown = Command::new("openssl").args(["x509", "-noout", "-text", "-in"]).arg(&leaf).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    for wanted in [
        format!("CN = ann@example.com, O = {}", world.host()),
        format!("email:ann@example.com, DNS:{}, URI:urn:uuid:{}", world.host(), world.session),
        "TLS Web Client Authentication".to_owned(),
    ] {
        assert!(shown.contains(&wanted), "{wanted}: {shown}");
    }
    assert!(!shown.contains("evil"), "{shown}");

    let signed: ClientSshCertificate = world.ssh(&token, world.host(), KEY).await.read(StatusCode::OK);
    assert_eq!(signed.principals, ["ann@example.com", "sallyport_ssh_signed"]);
    assert_eq!(world.socket.ssh_authority.as_deref(), Some(signed.authority.as_str()));
    let file = dir.path().join("id-cert.pub");
    std::fs::write(&file, &signed.certificate).unwrap();
    let shown = Command::new("ssh-keygen").args(["-L", "-f"]).arg(&file).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("user certificate") && shown.contains("Key ID: \"ann@example.com\""), "{shown}");
    assert!(shown.contains("permit-pty") && !shown.contains("force-command"), "{shown}");
    let issued = world.api.store.issued_certificates(route.account).await.unwrap();
    assert_eq!(issued.len(), 2);
    assert!(issued.iter().all(|issued| issued.subject == "ann@example.com" && issued.socket == Some(world.socket.id)));
}

#[tokio::test]
async fn a_program_logs_out_and_the_login_is_worth_nothing_anywhere() {
    let world = World::new().await;
    let (token, other) = (world.client_token().await, world.client_token().await);
    let bob = log_in(&world.api, &world.socket, "bob@example.com", 2).await.0;
    let code = world.code().await;
    let end = |token: Option<String>| {
        let api = &world.api;
        async move { api.send("DELETE", "/v1/client", token.as_deref(), None).await }
    };
    end(None).await.assert_problem(StatusCode::UNAUTHORIZED, "not-logged-in");
    end(Some(world.token.clone())).await.assert_problem(StatusCode::UNAUTHORIZED, "login-required");
    assert_eq!(end(Some(token.clone())).await.status, StatusCode::NO_CONTENT);
    assert!(world.api.identities.session(world.session).is_none(), "edges get the change at once");
    assert!(world.api.identities.session(bob).is_some(), "others stay");
    for token in [&token, &other] {
        end(Some(token.clone())).await.assert_problem(StatusCode::UNAUTHORIZED, "login-required");
        world.tls(token, world.host(), &p256_csr()).await.assert_problem(StatusCode::UNAUTHORIZED, "login-required");
    }
    world.exchange(&code, VERIFIER, BACK).await.assert_problem(StatusCode::BAD_REQUEST, "bad-code");
    let page = world.get_page(&path(&world.client_query()), Some(&world.cookie)).await;
    assert_eq!(page.status, StatusCode::SEE_OTHER, "the browser logs in again");
}

#[tokio::test]
async fn what_a_person_decides_and_is_refused_is_on_record() {
    let world = World::new().await;
    let token = world.client_token().await;
    let page = world.get_page(&path(&world.client_query()), Some(&world.cookie)).await;
    world.decide("/client", &page, "deny").await;
    world.tls(&token, world.host(), &p256_csr()).await;
    assert_eq!(world.change(json!({"email_domains": ["example.org"]})).await, StatusCode::OK);
    world.tls(&token, world.host(), &p256_csr()).await.assert_problem(StatusCode::FORBIDDEN, "not-allowed");
    world.api.send("DELETE", "/v1/client", Some(&token), None).await;
    world.api.audit.flush().unwrap();
    let seen = async |query: &str| {
        let path = format!("/v1/audit?limit=100&order=oldest&identity=ann@example.com{query}");
        world.api.get(&path, Some(&world.token)).await.read::<Page<AuditEvent>>(StatusCode::OK).items
    };
    let admin: Vec<_> = seen("&kind=admin").await.into_iter().filter_map(|event| event.admin).collect();
    let actions: Vec<_> = admin.iter().map(|one| (one.action.as_str(), one.outcome.as_str())).collect();
    let expected = [("program.let-in", "done"), ("program.let-in", "refused"), ("certificate.create", "refused")];
    assert_eq!(actions, expected);
    assert!(admin.iter().all(|one| one.client.is_some() && one.target.as_deref() == Some(world.host())), "{admin:?}");
    assert_eq!(admin[2].reason.as_deref(), Some("no rule allows it"));
    let certificates = seen("&kind=certificate").await;
    assert_eq!(certificates.len(), 1);
    assert!(certificates[0].certificate.as_ref().unwrap().client.is_some(), "the address of the request");
    let logins = seen("&kind=login").await;
    assert_eq!(logins[0].login.as_ref().unwrap().outcome, "ended");
    // By each of the socket's names.
    let label = world.host().split('.').next().unwrap().to_owned();
    let by_name = seen(&format!("&socket={label}")).await;
    assert_eq!(by_name.len(), 4, "{by_name:?}");
    let url = format!("tls%3A%2F%2F{}%3A8443", world.host());
    for name in [world.host().to_owned(), world.socket.id.to_string(), url, label.to_uppercase()] {
        assert_eq!(seen(&format!("&socket={name}")).await, by_name, "{name}");
    }
    assert!(seen("&socket=other-name-1000").await.is_empty());
}

#[tokio::test]
async fn a_code_works_once_for_the_program_that_requested_it() {
    let world = World::new().await;
    let code = world.code().await;
    let again = world.code().await;
    world.exchange(&again, &"x".repeat(43), BACK).await.assert_problem(StatusCode::BAD_REQUEST, "bad-code");
    world.exchange(&again, VERIFIER, BACK).await.assert_problem(StatusCode::BAD_REQUEST, "bad-code");
    assert_eq!(world.exchange(&code, VERIFIER, BACK).await.status, StatusCode::OK);
    world.exchange(&code, VERIFIER, BACK).await.assert_problem(StatusCode::BAD_REQUEST, "bad-code");
    let elsewhere = world.code().await;
    let response = world.exchange(&elsewhere, VERIFIER, "http://127.0.0.1:4001/callback").await;
    response.assert_problem(StatusCode::BAD_REQUEST, "bad-code");
    let late = world.code().await;
    world.api.clock.pass(61);
    world.exchange(&late, VERIFIER, BACK).await.assert_problem(StatusCode::BAD_REQUEST, "bad-code");
    for forged in ["", "x", &late[1..], &world.cookie] {
        world.exchange(forged, VERIFIER, BACK).await.assert_problem(StatusCode::BAD_REQUEST, "bad-code");
    }
}

#[tokio::test]
async fn a_wrong_request_of_a_program_gets_nothing() {
    let world = World::new().await;
    for (name, value) in [
        ("redirect_uri", "https%3A%2F%2Fevil.test%2F"),
        ("redirect_uri", "http%3A%2F%2Flocalhost%3A4000%2F"),
        ("redirect_uri", "http%3A%2F%2F127.0.0.1%3A4000%40evil.test%2F"),
        ("response_type", "token"),
        ("code_challenge_method", "plain"),
        ("code_challenge", "short"),
        ("state", "short"),
        ("state", "with%0aline"),
        ("host", "other.localhost"),
    ] {
        let mut query = world.client_query();
        query.retain(|(known, _)| *known != name);
        let page = world.get_page(&path(&query), Some(&world.cookie)).await;
        assert_eq!(page.status, StatusCode::BAD_REQUEST, "without {name}: {}", page.text);
        query.push((name, value.to_owned()));
        let page = world.get_page(&path(&query), Some(&world.cookie)).await;
        assert!(page.status.is_client_error() && page.header("location").is_none(), "{name}={value}: {}", page.text);
        assert!(page.header("content-type").unwrap().starts_with("text/html"), "{name}");
        query.push((name, value.to_owned()));
        let page = world.get_page(&path(&query), Some(&world.cookie)).await;
        assert!(page.status.is_client_error(), "{name} twice");
    }
}

#[tokio::test]
async fn a_person_cannot_agree_for_another_person() {
    let world = World::new().await;
    let address = path(&world.client_query());
    let stranger = world.get_page(&address, None).await;
    assert_eq!(stranger.status, StatusCode::SEE_OTHER);
    let to = stranger.header("location").unwrap();
    assert!(to.starts_with(&format!("/sign-on?socket={}&to=%2Fclient%3Fresponse_type", world.host())), "{to}");
    let page = world.get_page(&address, Some(&world.cookie)).await;
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"), "{policy}");

    let (_, bob) = log_in(&world.api, &world.socket, "bob@example.com", 2).await;
    let good = "https://login.localhost:8443";
    let other = world.decide_as("/client", &page, "allow", &bob, good).await;
    assert_eq!((other.status, other.header("location")), (StatusCode::BAD_REQUEST, None));
    for origin in ["https://evil.test", "null", "https://api.localhost:8443"] {
        let foreign = world.decide_as("/client", &page, "allow", &world.cookie, origin).await;
        assert_eq!((foreign.status, foreign.header("location")), (StatusCode::FORBIDDEN, None), "{origin}");
    }
    assert_eq!(world.decide("/client", &page, "perhaps").await.status, StatusCode::BAD_REQUEST);
    let refused = world.decide("/client", &page, "deny").await;
    let to = refused.header("location").unwrap();
    assert_eq!(to, format!("{BACK}?error=access_denied&state=state-1234567"));

    // A cookie of another organisation is no login here, under any name.
    let token = world.api.account("other@example.com").await;
    let socket = tls_socket(&world.api, &token, json!({"email_addresses": ["nobody@example.com"]})).await;
    let (_, foreign) = log_in(&world.api, &socket, "ann@example.com", 3).await;
    let value = foreign.split_once('=').unwrap().1;
    let renamed = format!("{}={value}", world.cookie.split_once('=').unwrap().0);
    for cookie in [foreign.as_str(), &renamed, &format!("{}; {renamed}", world.cookie)] {
        assert_eq!(world.get_page(&address, Some(cookie)).await.status, StatusCode::SEE_OTHER, "{cookie}");
    }
    world.api.clock.pass(601);
    assert_eq!(world.decide("/client", &page, "allow").await.status, StatusCode::BAD_REQUEST, "the page is too old");
}

#[tokio::test]
async fn certificates_are_for_persons_that_the_socket_admits_now() {
    let world = World::new().await;
    let (token, csr) = (world.client_token().await, p256_csr());
    let host = world.host().to_owned();

    // Another socket of the organisation that admits no client; one without identity; one of another organisation.
    let closed =
        tls_socket(&world.api, &world.token, json!({"email_addresses": ["nobody@example.com"]})).await.dns_name;
    world.tls(&token, &closed, &csr).await.assert_problem(StatusCode::FORBIDDEN, "not-allowed");
    world.ssh(&token, &closed, KEY).await.assert_problem(StatusCode::FORBIDDEN, "not-allowed");
    let without_identity = world.api.socket(&world.token, "web").await.dns_name;
    world.tls(&token, &without_identity, &csr).await.assert_problem(StatusCode::CONFLICT, "no-identity");
    let other = world.api.account("other@example.com").await;
    let foreign = tls_socket(&world.api, &other, json!({"email_domains": ["example.com"]})).await.dns_name;
    world.tls(&token, &foreign, &csr).await.assert_problem(StatusCode::UNAUTHORIZED, "login-required");
    world.ssh(&token, &foreign, KEY).await.assert_problem(StatusCode::UNAUTHORIZED, "login-required");
    for unknown in ["", "x", "calm-bay-1000.localhost", "evil.test"] {
        world.tls(&token, unknown, &csr).await.assert_problem(StatusCode::NOT_FOUND, "not-found");
    }
    for bad in ["", "nonsense", &csr[..200], &csr.replace("REQUEST", "X")] {
        world.tls(&token, &host, bad).await.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
    }
    let short = self::csr(&["-newkey", "rsa:1024"]);
    world.tls(&token, &host, &short).await.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
    assert_eq!(world.tls(&token, &host, &self::csr(&["-newkey", "rsa:2048"])).await.status, StatusCode::OK);
    for bad in ["", "ssh-ed25519 AAAA", "ssh-dss AAAA", &format!("{KEY}\n{KEY}")] {
        world.ssh(&token, &host, bad).await.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
    }
    for forged in ["", "x", &token[1..], &world.token, world.cookie.split_once('=').unwrap().1] {
        assert_eq!(world.tls(forged, &host, &csr).await.status, StatusCode::UNAUTHORIZED, "{forged}");
    }

    // The socket's rules change; the login grows old, and ends.
    assert_eq!(world.change(json!({"email_addresses": ["bob@example.com"]})).await, StatusCode::OK);
    world.tls(&token, &host, &csr).await.assert_problem(StatusCode::FORBIDDEN, "not-allowed");
    let google = json!({"name": "google", "kind": "google", "client_id": "c", "client_secret": "s"});
    assert_eq!(world.api.post("/v1/providers", Some(&world.token), google).await.status, StatusCode::CREATED);
    assert_eq!(
        world.change(json!({"email_addresses": ["ann@example.com"], "providers": ["google"]})).await,
        StatusCode::OK
    );
    world.tls(&token, &host, &csr).await.assert_problem(StatusCode::UNAUTHORIZED, "login-required");
    assert_eq!(
        world.change(json!({"email_addresses": ["ann@example.com"], "session_minutes": 30})).await,
        StatusCode::OK
    );
    assert_eq!(world.tls(&token, &host, &csr).await.status, StatusCode::OK);
    world.api.clock.pass(30 * 60);
    world.tls(&token, &host, &csr).await.assert_problem(StatusCode::UNAUTHORIZED, "login-required");
    assert_eq!(world.change(json!({"email_addresses": ["ann@example.com"]})).await, StatusCode::OK);
    assert_eq!(world.ssh(&token, &host, KEY).await.status, StatusCode::OK);
    let organisation = world.api.identities.session(world.session).unwrap().organisation;
    let ended = world.api.store.end_person_sessions(organisation, Some(world.session), None, None).await.unwrap();
    assert_eq!((ended.len(), world.api.identities.end_sessions(|session| session.id == world.session)), (1, 1));
    world.ssh(&token, &host, KEY).await.assert_problem(StatusCode::UNAUTHORIZED, "login-required");
    world.api.get("/v1/client", Some(&token)).await.assert_problem(StatusCode::UNAUTHORIZED, "login-required");
}

#[tokio::test]
async fn a_program_without_a_browser_shows_a_code() {
    let world = World::new().await;
    let begin = || world.api.post("/v1/client/device", None, json!({"host": world.host()}));
    let login: DeviceLogin = begin().await.read(StatusCode::OK);
    assert_eq!(login.verification_uri, "https://login.localhost:8443/device");
    let poll = |login: &DeviceLogin| {
        let body = json!({"device_code": login.device_code.expose()});
        async { world.api.post("/v1/client/device/token", None, body).await }
    };
    poll(&login).await.assert_problem(StatusCode::BAD_REQUEST, "slow-down");
    world.api.clock.pass(10);
    poll(&login).await.assert_problem(StatusCode::BAD_REQUEST, "authorization-pending");

    let empty = world.get_page("/device", None).await;
    assert!(empty.status == StatusCode::OK && empty.text.contains("name=\"code\""), "{}", empty.text);
    let address = format!("/device?code={}", login.user_code.to_lowercase());
    assert_eq!(world.get_page(&address, None).await.status, StatusCode::SEE_OTHER, "log in first");
    let page = world.get_page(&address, Some(&world.cookie)).await;
    assert!(page.text.contains("192.0.2.1") && page.text.contains(&login.user_code), "{}", page.text);
    let agreed = world.decide("/device", &page, "allow").await;
    assert!(agreed.status == StatusCode::OK && agreed.text.contains("is logged in"), "{}", agreed.text);
    assert_eq!(world.decide("/device", &page, "allow").await.status, StatusCode::BAD_REQUEST, "once");
    world.api.clock.pass(10);
    let token: ClientToken = poll(&login).await.read(StatusCode::OK);
    assert_eq!(world.tls(token.token.expose(), world.host(), &p256_csr()).await.status, StatusCode::OK);
    world.api.clock.pass(10);
    poll(&login).await.assert_problem(StatusCode::BAD_REQUEST, "expired-code");

    let refused: DeviceLogin = begin().await.read(StatusCode::OK);
    let page = world.get_page(&format!("/device?code={}", refused.user_code), Some(&world.cookie)).await;
    world.decide("/device", &page, "deny").await;
    world.api.clock.pass(5);
    poll(&refused).await.assert_problem(StatusCode::BAD_REQUEST, "access-denied");
    let late: DeviceLogin = begin().await.read(StatusCode::OK);
    world.api.clock.pass(600);
    poll(&late).await.assert_problem(StatusCode::BAD_REQUEST, "expired-code");
    let unknown = world.api.post("/v1/client/device", None, json!({"host": "x.localhost"})).await;
    unknown.assert_problem(StatusCode::NOT_FOUND, "not-found");
}

#[tokio::test]
async fn codes_are_not_guessed() {
    let world = World::new().await;
    let mut tries = 0;
    loop {
        let page = world.get_page("/device?code=BCDF-GHJK", Some(&world.cookie)).await;
        if page.status == StatusCode::TOO_MANY_REQUESTS {
            break;
        }
        assert_eq!(page.status, StatusCode::NOT_FOUND);
        tries += 1;
        assert!(tries < 50, "the number of guesses is limited");
    }
    assert_eq!(tries, 10);
}

#[tokio::test]
async fn the_original_clients_log_in_with_their_own_words() {
    let world = World::new().await;
    let auth = world.api.get(&format!("/mtls-ca/socket/{}/auth?port=4711", world.host()), None).await;
    assert_eq!(auth.status, StatusCode::FOUND);
    let to = auth.header("location").unwrap();
    let page = to.strip_prefix("https://login.localhost:8443").unwrap();
    assert_eq!(page, format!("/client/mysocket?host={}&port=4711", world.host()));
    assert_eq!(world.get_page(page, None).await.status, StatusCode::SEE_OTHER);
    let consent = world.get_page(page, Some(&world.cookie)).await;
    // The program redirects the browser to its own site, to which the form's policy applies too.
    let policy = consent.header("content-security-policy").unwrap();
    let forms = "form-action 'self' http://127.0.0.1:* http://localhost:* https:";
    assert!(policy.split("; ").any(|directive| directive == forms), "{policy}");
    let sent = world.decide("/client/mysocket", &consent, "allow").await;
    let token = sent.header("location").unwrap().strip_prefix("http://localhost:4711/?token=").unwrap().to_owned();
    // The claims that they read unverified.
    let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap();
    let claims: Value = serde_json::from_slice(&claims).unwrap();
    assert_eq!(claims["user_email"], "ann@example.com");
    assert_eq!(claims["socket_dns"], world.host());
    assert_eq!(claims["socket_port"], world.socket.port.unwrap());
    assert_eq!(claims["exp"].as_i64().unwrap() - START, 300);

    let send = |host: &str, what: &str, token: &str, body: Value| {
        let request = Request::post(format!("/mtls-ca/socket/{host}/{what}"))
            .header("x-access-token", token)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(body.to_string()))
            .unwrap();
        async { world.api.raw(request).await }
    };
    let csr = json!({"csr": csr(&["-newkey", "rsa:2048"])});
    let made = send(world.host(), "csr", &token, csr.clone()).await;
    assert_eq!(made.status, StatusCode::OK, "{}", made.text);
    assert!(made.json()["client_certificate"].as_str().unwrap().starts_with("-----BEGIN CERTIFICATE-----"));
    let signed = send(world.host(), "ssh", &token, json!({"ssh_public_key": KEY})).await;
    assert!(signed.json()["signed_ssh_cert"].as_str().unwrap().starts_with("ssh-ed25519-cert-v01@openssh.com "));

    // The suffix of the ssh recipe is not part of the name.
    let dummy = format!("{}.mysocket-dummy", world.host());
    let auth = world.api.get(&format!("/mtls-ca/socket/{dummy}/auth?port=4711"), None).await;
    assert_eq!((auth.status, auth.header("location")), (StatusCode::FOUND, Some(to)));
    let signed = send(&dummy, "ssh", &token, json!({"ssh_public_key": KEY})).await;
    assert_eq!(signed.status, StatusCode::OK, "{}", signed.text);
    assert_eq!(send(&dummy, "csr", &token, csr.clone()).await.status, StatusCode::OK);

    let second = tls_socket(&world.api, &world.token, json!({"email_domains": ["example.com"]})).await.dns_name;
    for (host, token) in [(second.as_str(), token.as_str()), (world.host(), "x"), (world.host(), &world.token)] {
        let refused = send(host, "csr", token, csr.clone()).await;
        assert_eq!(refused.status, StatusCode::UNAUTHORIZED, "{}", refused.text);
        assert!(refused.json()["error_message"].is_string());
    }
    for bad in ["auth", "auth?port=0", "auth?port=x", "auth?port=1&port=2"] {
        let refused = world.api.get(&format!("/mtls-ca/socket/{}/{bad}", world.host()), None).await;
        assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY, "{bad}");
    }
    world.api.clock.pass(361);
    assert_eq!(send(world.host(), "csr", &token, csr).await.status, StatusCode::UNAUTHORIZED, "minutes");
    // The response to the owner.
    let shown = world.api.get("/socket", None).await;
    assert_eq!(shown.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn owners_say_what_ssh_certificates_allow_and_have_hosts_signed() {
    let world = World::new().await;
    let owner = Some(world.token.as_str());
    let change = |body: Value| async { world.api.send("PATCH", "/v1/ssh-authority", owner, Some(body)).await };
    let before = world.api.get("/v1/ssh-authority", owner).await.json();
    assert_eq!(before["public_key"].as_str(), world.socket.ssh_authority.as_deref());
    for (body, field) in [
        (json!({"extensions": ["permit-all"]}), "extensions[0]"),
        (json!({"extensions": ["permit-pty", "permit-pty"]}), "extensions[1]"),
        (json!({"force_command": ""}), "force_command"),
        (json!({"force_command": "a\nb"}), "force_command"),
    ] {
        let refused = change(body).await;
        refused.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
        assert_eq!(refused.field(), field);
    }
    let body = json!({"extensions": ["permit-pty"], "force_command": "/usr/bin/uptime", "mysocket_principal": true});
    assert_eq!(change(body).await.status, StatusCode::OK);
    let token = world.client_token().await;
    let signed: ClientSshCertificate = world.ssh(&token, world.host(), KEY).await.read(StatusCode::OK);
    assert_eq!(signed.principals.last().map(String::as_str), Some("mysocket_ssh_signed"));
    let dir = tempfile::tempdir().unwrap();
    let shown = |certificate: &str| {
        let file = dir.path().join("cert.pub");
        std::fs::write(&file, certificate).unwrap();
        let shown = Command::new("ssh-keygen").args(["-L", "-f"]).arg(&file).output().unwrap();
        String::from_utf8(shown.stdout).unwrap()
    };
    let text = shown(&signed.certificate);
    assert!(text.contains("force-command /usr/bin/uptime") && !text.contains("permit-port-forwarding"), "{text}");
    assert_eq!(change(json!({"force_command": null})).await.json()["extensions"], json!(["permit-pty"]));

    let path = format!("/v1/sockets/{}/ssh-host-certificate", world.socket.id);
    let host = world.api.post(&path, owner, json!({"public_key": KEY})).await;
    let host: sallyport_api::SshHostCertificate = host.read(StatusCode::OK);
    let text = shown(&host.certificate);
    assert!(text.contains("host certificate") && text.contains(world.host()), "{text}");
    assert!(host.known_hosts.starts_with("@cert-authority ") && host.known_hosts.contains(&signed.authority));
    let api_token = world.api.api_token(&world.token, &["sockets:write"]).await;
    let refused = world.api.post(&path, Some(&api_token), json!({"public_key": KEY})).await;
    refused.assert_problem(StatusCode::FORBIDDEN, "missing-scope");
    let stranger = world.api.account("other@example.com").await;
    world
        .api
        .post(&path, Some(&stranger), json!({"public_key": KEY}))
        .await
        .assert_problem(StatusCode::NOT_FOUND, "not-found");
}

#[tokio::test]
async fn authorities_outlive_a_restart() {
    let world = World::new().await;
    let before = world.socket.clone();
    let api = world.api.restart().await;
    let after: Socket = api.get(&format!("/v1/sockets/{}", before.id), Some(&world.token)).await.read(StatusCode::OK);
    assert_eq!((after.ssh_authority, after.client_authority), (before.ssh_authority, before.client_authority));
    assert!(api.routes.get(before.id).unwrap().client_authority.is_some());
}

#[tokio::test]
async fn an_unknown_person_logs_in_and_returns_to_the_page() {
    let world = World::new().await;
    let address = path(&world.client_query());
    let stranger = world.get_page(&address, None).await;
    let begin = world.get_page(stranger.header("location").unwrap(), None).await;
    assert_eq!(begin.status, StatusCode::SEE_OTHER, "{}", begin.text);
    let start = begin.header("location").unwrap();
    assert!(start.starts_with("/start?request="), "{start}");
    // A known browser returns at once, within this host.
    let back = world.get_page(start, Some(&world.cookie)).await;
    assert_eq!((back.status, back.header("location")), (StatusCode::SEE_OTHER, Some(address.as_str())));
    for bad in [
        "",
        "to=%2Fclient",
        "socket=SOCKET",
        "socket=SOCKET&to=",
        "socket=SOCKET&to=%2Flogout",
        "socket=SOCKET&to=%2Fclients",
        "socket=SOCKET&to=%2F%2Fevil.test%2Fclient",
        "socket=SOCKET&to=https%3A%2F%2Fevil.test%2Fclient",
        "socket=SOCKET&to=%2Fclient%0d%0ax",
        "socket=SOCKET&to=%2Fclient%5C..",
        "socket=other.localhost&to=%2Fclient",
        "socket=SOCKET&to=%2Fclient&to=%2Fclient",
    ] {
        let refused = world.get_page(&format!("/sign-on?{}", bad.replace("SOCKET", world.host())), None).await;
        assert!(refused.status.is_client_error() && refused.header("location").is_none(), "{bad}: {}", refused.text);
    }
}
