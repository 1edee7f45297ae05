//! Logging in at real identity providers: Dex, and the npm package oidc-provider.

use std::{
    collections::BTreeMap,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use http::StatusCode;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{
    harness::free_port,
    login::{Browser, Shop},
};

/// The client secret, with characters that have to be encoded.
const SECRET: &str = "s3cret+with/signs";

/// A program of `scripts/tools`; `None` with a message if it is missing outside of CI.
fn tool(name: &str) -> Option<PathBuf> {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/tools");
    let output = Command::new(scripts).arg(name).output().unwrap();
    if output.status.success() {
        return Some(String::from_utf8(output.stdout).unwrap().trim().into());
    }
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(std::env::var_os("CI").is_none(), "{name}: {why}");
    println!("skipped: {name} cannot be had here: {}", why.trim());
    None
}

/// A program that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn now() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap()
}

/// A person's browser at the provider: plain HTTP, cookies, and filled forms.
struct Visitor {
    port: u16,
    cookies: BTreeMap<String, String>,
}

struct PlainResponse {
    status: u16,
    location: Option<String>,
    body: String,
}

impl Visitor {
    fn new(port: u16) -> Self {
        Self { port, cookies: BTreeMap::new() }
    }

    async fn ask(&mut self, url: &str, form: Option<&str>) -> Option<PlainResponse> {
        let path = url.strip_prefix(&format!("http://127.0.0.1:{}", self.port)).unwrap_or(url);
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.ok()?;
        let cookies: Vec<String> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let method = if form.is_some() { "POST" } else { "GET" };
        let form = form.unwrap_or_default();
        let request = format!(
            "{method} {path} HTTP/1.0\r\nHost: 127.0.0.1:{}\r\nCookie: {}\r\nAccept: text/html\r\n\
             Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{form}",
            self.port,
            cookies.join("; "),
            form.len()
        );
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut response = Vec::new();
        stream.read_to_end(&mut response).await.ok()?;
        let response = String::from_utf8_lossy(&response).into_owned();
        let (head, body) = response.split_once("\r\n\r\n")?;
        let mut location = None;
        for line in head.lines().skip(1) {
            let Some((name, value)) = line.split_once(": ") else { continue };
            if name.eq_ignore_ascii_case("location") {
                location = Some(value.to_owned());
            } else if name.eq_ignore_ascii_case("set-cookie") {
                let (name, value) = value.split(';').next()?.split_once('=')?;
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
        }
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some(PlainResponse { status, location, body: body.to_owned() })
    }

    /// Follows the provider's pages until the browser returns. Gives the path at the login host.
    async fn log_in(&mut self, to: &str, form: impl Fn(&str) -> String) -> String {
        let mut url = to.to_owned();
        for _ in 0..15 {
            if let Some(back) = url.strip_prefix("https://login.localhost:8443") {
                return back.to_owned();
            }
            let mut response = self.ask(&url, None).await.unwrap();
            if response.status == 200 {
                let action = response.body.split("action=\"").nth(1).map(|rest| rest.split('"').next().unwrap());
                let action =
                    action.filter(|action| !action.is_empty()).map_or(url.clone(), |a| a.replace("&amp;", "&"));
                response = self.ask(&action, Some(&form(&response.body))).await.unwrap();
            }
            assert!([302, 303].contains(&response.status), "{url}: {} {}", response.status, response.body);
            url = response.location.unwrap();
        }
        panic!("the provider does not finish: {url}");
    }
}

async fn wait_for(port: u16, path: &str) {
    for _ in 0..600 {
        if Visitor::new(port).ask(path, None).await.is_some_and(|response| response.status == 200) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("nothing responds on port {port}");
}

/// Adds the provider, and registers the redirect URI there.
async fn add(shop: &Shop, issuer: &str, more: serde_json::Value) -> String {
    let mut body =
        json!({"name": "real", "kind": "oidc", "issuer": issuer, "client_id": "edge", "client_secret": SECRET});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    let made = shop.api.post("/v1/providers", Some(&shop.token), body).await;
    made.read::<sallyport_api::Provider>(StatusCode::CREATED).redirect_uri
}

#[tokio::test]
async fn a_person_logs_in_at_dex() {
    let Some(dex) = tool("dex") else { return };
    let shop = Shop::open_at(now()).await;
    let port = free_port();
    let issuer = format!("http://127.0.0.1:{port}/dex");
    let redirect = add(&shop, &issuer, json!({"groups_claim": "groups"})).await;
    let hash = "$2b$10$e32Bo9v/ZSBAHQ5uoQPpCepvyn8y3hHu32mtSlaeroS5ignGXPDDu";
    let config = json!({
        "issuer": issuer,
        "storage": {"type": "memory"},
        "web": {"http": format!("127.0.0.1:{port}")},
        "oauth2": {"skipApprovalScreen": true},
        "enablePasswordDB": true,
        "staticPasswords": [
            {"email": "Alice@example.com", "username": "alice", "userID": "u-alice", "groups": ["eng"], "emailVerified": true,
             "hash": hash},
            {"email": "mallory@example.com", "username": "mallory", "userID": "u-mallory", "emailVerified": false,
             "hash": hash},
        ],
        "staticClients": [{"id": "edge", "name": "edge", "secret": SECRET, "redirectURIs": [redirect]}],
    });
    let file = shop.api.dir.path().join("dex.json");
    std::fs::File::create(&file).unwrap().write_all(config.to_string().as_bytes()).unwrap();
    let log = std::fs::File::create(shop.api.dir.path().join("dex.log")).unwrap();
    let _dex = Running(Command::new(dex).arg("serve").arg(&file).stdout(Stdio::null()).stderr(log).spawn().unwrap());
    wait_for(port, "/dex/.well-known/openid-configuration").await;

    let found = shop.api.post("/v1/providers/real/test", Some(&shop.token), json!({})).await.json();
    assert_eq!(found["works"], true, "{found}");
    let mut browser = Browser::default();
    let (to, _) = shop.begin(&mut browser, &shop.request()).await;
    let back = Visitor::new(port).log_in(&to, |_| "login=alice%40example.com&password=pw".to_owned()).await;
    let grant = shop.grant(&browser.get(&shop.api, &back).await);
    let session = shop.api.identities.session(grant.session).unwrap();
    assert_eq!(session.person.email.as_str(), "alice@example.com");
    assert_eq!(session.person.name.as_deref(), Some("alice"));

    // The same response again, from the browser's history.
    assert_eq!(browser.get(&shop.api, &back).await.status, StatusCode::BAD_REQUEST);

    let mut browser = Browser::default();
    let (to, _) = shop.begin(&mut browser, &shop.request()).await;
    let back = Visitor::new(port).log_in(&to, |_| "login=mallory%40example.com&password=pw".to_owned()).await;
    let refused = browser.get(&shop.api, &back).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN, "{}", refused.text);
    assert!(refused.text.contains("does not vouch for the e-mail address mallory@example.com"), "{}", refused.text);
    assert_eq!(shop.sessions().await.len(), 1);
}

#[tokio::test]
async fn a_person_logs_in_at_oidc_provider() {
    let Some(folder) = tool("oidc-provider") else { return };
    let shop = Shop::open_at(now()).await;
    let port = free_port();
    let issuer = format!("http://127.0.0.1:{port}");
    let redirect = add(&shop, &issuer, json!({"groups_claim": "groups", "scopes": ["groups"]})).await;
    let package = folder.join("node_modules/oidc-provider/lib/index.js");
    let script = format!(
        "import Provider from '{}';
const provider = new Provider('{issuer}', {{
  clients: [{{ client_id: 'edge', client_secret: '{SECRET}', redirect_uris: ['{redirect}'] }}],
  claims: {{ openid: ['sub'], email: ['email', 'email_verified'], profile: ['name'], groups: ['groups'] }},
  scopes: ['openid', 'email', 'profile', 'groups'],
  cookies: {{ keys: ['a key for tests'] }},
  findAccount: (_, id) => ({{ accountId: id, claims: () => ({{
    sub: id, email: id + '@example.com', email_verified: id !== 'mallory', name: 'Bob', groups: ['ops'] }}) }}),
}});
provider.listen({port}, '127.0.0.1');
",
        package.display()
    );
    let file = shop.api.dir.path().join("provider.mjs");
    std::fs::write(&file, script).unwrap();
    let log = std::fs::File::create(shop.api.dir.path().join("provider.log")).unwrap();
    let _node = Running(Command::new("node").arg(&file).stdout(Stdio::null()).stderr(log).spawn().unwrap());
    wait_for(port, "/.well-known/openid-configuration").await;

    let form = |user: &'static str| {
        move |page: &str| match page.contains("value=\"consent\"") {
            true => "prompt=consent".to_owned(),
            false => format!("prompt=login&login={user}&password=x"),
        }
    };
    let mut browser = Browser::default();
    let (to, asked) = shop.begin(&mut browser, &shop.request()).await;
    assert_eq!(asked["scope"], "openid email profile groups");
    let back = Visitor::new(port).log_in(&to, form("bob")).await;
    assert!(back.contains("&iss=http"), "the address names the provider: {back}");
    let without_issuer = back.split("&iss=").next().unwrap().to_owned();
    let stripped = browser.clone().get(&shop.api, &without_issuer).await;
    assert_eq!(stripped.status, StatusCode::BAD_REQUEST, "{}", stripped.text);

    let mut browser = Browser::default();
    let (to, _) = shop.begin(&mut browser, &shop.request()).await;
    let back = Visitor::new(port).log_in(&to, form("bob")).await;
    let grant = shop.grant(&browser.get(&shop.api, &back).await);
    let session = shop.api.identities.session(grant.session).unwrap();
    assert_eq!((session.person.email.as_str(), session.person.groups.join(" ")), ("bob@example.com", "ops".to_owned()));

    let mut browser = Browser::default();
    let (to, _) = shop.begin(&mut browser, &shop.request()).await;
    let back = Visitor::new(port).log_in(&to, form("mallory")).await;
    let refused = browser.get(&shop.api, &back).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN, "{}", refused.text);
}

/// The login pages at a port of their own, for providers. Ends with the test.
fn serve(shop: &Shop) -> (u16, tokio::task::JoinHandle<()>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    let (port, router) = (listener.local_addr().unwrap().port(), shop.api.login.clone());
    let serving = tokio::spawn(async move {
        while let Ok((stream, peer)) = listener.accept().await {
            let router = router.clone();
            tokio::spawn(async move { serve_one(stream, peer, router).await });
        }
    });
    (port, serving)
}

async fn serve_one(mut stream: TcpStream, peer: std::net::SocketAddr, router: axum::Router) -> Option<()> {
    let mut request = Vec::new();
    let (head, body) = loop {
        let mut chunk = [0; 4_096];
        let read = stream.read(&mut chunk).await.ok().filter(|read| *read > 0)?;
        request.extend_from_slice(&chunk[..read]);
        let text = String::from_utf8_lossy(&request).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length =
            head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
        if body.len() >= length.unwrap_or(0) {
            break (head.to_owned(), body.to_owned());
        }
    };
    let mut words = head.split(' ');
    let mut request = http::Request::builder().method(words.next()?).uri(words.next()?);
    for line in head.lines().skip(1) {
        let (name, value) = line.split_once(": ")?;
        request = request.header(name, value);
    }
    let mut request = request.body(axum::body::Body::from(body)).ok()?;
    request.extensions_mut().insert(sallyport_model::ClientAddr(peer));
    let response = crate::harness::Api::response(router, request).await;
    let text = format!(
        "HTTP/1.1 {} X\r\ncontent-length: {}\r\n\r\n{}",
        response.status.as_u16(),
        response.text.len(),
        response.text
    );
    stream.write_all(text.as_bytes()).await.ok()?;
    stream.shutdown().await.ok()
}

#[tokio::test]
async fn a_logout_or_disabling_at_oidc_provider_ends_the_login_here() {
    let Some(folder) = tool("oidc-provider") else { return };
    let shop = Shop::open_at(now()).await;
    let (port, (own_port, serving)) = (free_port(), serve(&shop));
    let issuer = format!("http://127.0.0.1:{port}");
    let redirect = add(&shop, &issuer, json!({})).await;
    let provider: sallyport_api::Provider =
        shop.api.get("/v1/providers/real", Some(&shop.token)).await.read(StatusCode::OK);
    let host = format!("http://127.0.0.1:{own_port}");
    let tells = provider.backchannel_logout_uri.replace("https://login.localhost:8443", &host);
    let package = folder.join("node_modules/oidc-provider/lib/index.js");
    let gone = shop.api.dir.path().join("carol-is-gone");
    let script = format!(
        "import fs from 'node:fs';
import Provider from '{}';
const provider = new Provider('{issuer}', {{
  clients: [{{ client_id: 'edge', client_secret: '{SECRET}', redirect_uris: ['{redirect}'],
    grant_types: ['authorization_code', 'refresh_token'], post_logout_redirect_uris: ['{back}'],
    backchannel_logout_uri: '{tells}', backchannel_logout_session_required: true }}],
  claims: {{ openid: ['sub'], email: ['email', 'email_verified'] }},
  cookies: {{ keys: ['a key for tests'] }},
  features: {{ backchannelLogout: {{ enabled: true }} }},
  issueRefreshToken: async () => true,
  // By default it does not connect to addresses of this machine.
  fetch: (url, {{ dispatcher, ...options }}) => globalThis.fetch(url, options),
  findAccount: (_, id) => id === 'carol' && fs.existsSync('{gone}') ? undefined : ({{
    accountId: id, claims: () => ({{ sub: id, email: id + '@example.com', email_verified: true }}) }}),
}});
provider.on('backchannel.error', (_, error) => console.error('backchannel', error));
provider.listen({port}, '127.0.0.1');
",
        package.display(),
        back = provider.post_logout_redirect_uri,
        gone = gone.display(),
    );
    let file = shop.api.dir.path().join("provider.mjs");
    std::fs::write(&file, script).unwrap();
    let log_file = shop.api.dir.path().join("provider.log");
    let log = std::fs::File::create(&log_file).unwrap();
    let _node = Running(Command::new("node").arg(&file).stdout(Stdio::null()).stderr(log).spawn().unwrap());
    wait_for(port, "/.well-known/openid-configuration").await;
    let found = shop.api.post("/v1/providers/real/test", Some(&shop.token), json!({})).await.json();
    assert!(found["detail"].as_str().unwrap().contains("it reports logouts"), "{found}");

    let form = |user: &'static str| {
        move |page: &str| match page.contains("value=\"consent\"") {
            true => "prompt=consent".to_owned(),
            false => format!("prompt=login&login={user}&password=x"),
        }
    };
    let log_in = async |visitor: &mut Visitor, browser: &mut Browser, user: &'static str| {
        let (to, _) = shop.begin(browser, &shop.request()).await;
        let back = visitor.log_in(&to, form(user)).await;
        shop.grant(&browser.get(&shop.api, &back).await).session
    };
    let is_in = |session| shop.api.identities.session(session).is_some();
    let (mut visitor, mut here, mut there) = (Visitor::new(port), Browser::default(), Browser::default());
    let first = log_in(&mut visitor, &mut here, "bob").await;
    let second = log_in(&mut visitor, &mut there, "bob").await;
    let carol = log_in(&mut Visitor::new(port), &mut Browser::default(), "carol").await;

    // Bob logs out here and at the provider, which reports that: the other browser is logged out, too.
    let ticket = sallyport_identity::LogoutRequest { session: first, socket: shop.socket.id, at: shop.at };
    let ticket = shop.api.sealer.seal(sallyport_identity::Purpose::Logout, &ticket, [5; 12]).unwrap();
    let page = here.get(&shop.api, &format!("/logout?ticket={ticket}")).await;
    assert!(!is_in(first) && is_in(second) && is_in(carol));
    let led = crate::pages::ways(&page);
    let link = led.iter().find(|to| to.contains("id_token_hint=")).unwrap_or_else(|| panic!("{led:?}"));
    let asked = visitor.ask(link, None).await.unwrap();
    assert_eq!(asked.status, 200, "{}", asked.body);
    let xsrf = asked.body.split("name=\"xsrf\" value=\"").nth(1).unwrap().split('"').next().unwrap();
    let confirm = asked.body.split("action=\"").nth(1).unwrap().split('"').next().unwrap();
    let done = visitor.ask(confirm, Some(&format!("xsrf={xsrf}&logout=yes"))).await.unwrap();
    let back = done.location.unwrap_or_default();
    assert!(back.starts_with(&format!("{}?state=", provider.post_logout_redirect_uri)), "{back} {}", done.body);
    let back = here.get(&shop.api, back.strip_prefix("https://login.localhost:8443").unwrap()).await;
    assert!(back.text.contains(&shop.socket.dns_name), "{}", back.text);
    for _ in 0..200 {
        if !is_in(second) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let log = std::fs::read_to_string(&log_file).unwrap();
    assert!(!is_in(second) && is_in(carol), "{log}");

    // Carol's login is checked, after she was disabled there.
    shop.api.clock.pass(300);
    assert_eq!((shop.api.control.check_providers().await.unwrap(), is_in(carol)), (1, true), "{log}");
    std::fs::write(&gone, "").unwrap();
    shop.api.clock.pass(300);
    assert_eq!((shop.api.control.check_providers().await.unwrap(), is_in(carol)), (1, false));
    serving.abort();
}
