//! A control over a store in a temporary folder, called without a network.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU16, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{Router, body::Body};
use http::{HeaderMap, Request, StatusCode, header};
use http_body::Body as _;
use http_body_util::BodyExt;
use sallyport_anycast::model::AllowList;
use sallyport_audit::{AuditConfig, AuditLog};
use sallyport_bus::{
    Asker, Bus, Directory, DnsSteering, Identities, LiveFlows, Responder, Routes, ServedAnycast, ServedBalancers,
    ServedCertificates, ServedEgress, ServedNetworks, ServedZones, SshLogins,
};
use sallyport_control::{
    AddressDatabases, Clock, Control, ControlConfig, MailHook, Moment, Reach, SETUP_TOKEN_FILE, Secrets, SignUp,
    SshInfo,
};
use sallyport_http::page::Site;
use sallyport_identity::Sealer;
use sallyport_model::ClientAddr;
use sallyport_policy::DialedNetworks;
use sallyport_ports::LeaseTimes;
use sallyport_ssh::UserAuthority;
use sallyport_store::Store;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tower_service::Service;

use crate::contract::{self, Exchange};

pub(crate) const PASSWORD: &str = "correct horse battery";
/// 2027-01-15T08:00:00Z.
pub(crate) const START: i64 = 1_800_000_000;

/// Both clocks, turned by the test.
#[derive(Clone)]
pub(crate) struct TestClock {
    origin: Instant,
    elapsed_seconds: Arc<AtomicU64>,
    unix_seconds: Arc<AtomicI64>,
}

impl TestClock {
    pub(crate) fn new() -> Self {
        Self { origin: Instant::now(), elapsed_seconds: Arc::default(), unix_seconds: Arc::new(AtomicI64::new(START)) }
    }

    /// Advances both clocks.
    pub(crate) fn pass(&self, seconds: u64) {
        self.elapsed_seconds.fetch_add(seconds, Ordering::SeqCst);
        self.unix_seconds.fetch_add(seconds.cast_signed(), Ordering::SeqCst);
    }

    /// Sets only the wall clock.
    pub(crate) fn jump(&self, seconds: i64) {
        self.unix_seconds.fetch_add(seconds, Ordering::SeqCst);
    }

    /// The wall clock.
    pub(crate) fn unix_seconds(&self) -> i64 {
        self.unix_seconds.load(Ordering::SeqCst)
    }

    fn clock(&self) -> Clock {
        let clock = self.clone();
        Clock::new(move || Moment {
            monotonic: clock.origin + Duration::from_secs(clock.elapsed_seconds.load(Ordering::SeqCst)),
            unix_seconds: clock.unix_seconds.load(Ordering::SeqCst),
        })
    }
}

/// A free port, below the ephemeral range, so that it stays free until it is used.
pub(crate) fn free_port() -> u16 {
    static TRIED: AtomicU16 = AtomicU16::new(0);
    let first = 21_000 + u16::try_from(std::process::id() % 8_000).unwrap();
    loop {
        let port = first + TRIED.fetch_add(1, Ordering::Relaxed);
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// The times of leases: short enough for a test to see the end of one, long enough for a busy machine.
const EGRESS_TIMES: LeaseTimes = LeaseTimes { lasts: Duration::from_secs(3_600), grace: Duration::from_secs(60) };

pub(crate) struct Api {
    pub(crate) router: Router,
    /// The login pages.
    pub(crate) login: Router,
    pub(crate) control: Control,
    pub(crate) store: Store,
    pub(crate) routes: Routes,
    pub(crate) ssh_logins: SshLogins,
    pub(crate) identities: Identities,
    pub(crate) directory: Directory,
    /// The sealer of edges and control.
    pub(crate) sealer: Sealer,
    pub(crate) clock: TestClock,
    pub(crate) dir: tempfile::TempDir,
    pub(crate) audit: AuditLog,
    pub(crate) flows: LiveFlows,
    /// What edges serve.
    pub(crate) zones: ServedZones,
    pub(crate) anycast: ServedAnycast,
    pub(crate) egress: ServedEgress,
    pub(crate) networks: ServedNetworks,
    pub(crate) balancers: ServedBalancers,
    pub(crate) dns_steering: DnsSteering,
    pub(crate) certificates: ServedCertificates,
    client: SocketAddr,
}

/// A response.
#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl HttpResponse {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    /// The body as a type of the API; the status must match.
    pub(crate) fn read<T: DeserializeOwned>(&self, status: StatusCode) -> T {
        assert_eq!(self.status, status, "{}", self.text);
        assert_eq!(self.headers[header::CONTENT_TYPE], "application/json");
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// Asserts a problem with this status and code. Returns its `detail`.
    #[track_caller]
    pub(crate) fn assert_problem(&self, status: StatusCode, code: &str) -> String {
        assert_eq!(self.status, status, "{}", self.text);
        assert_eq!(self.headers[header::CONTENT_TYPE], "application/problem+json");
        let problem: sallyport_api::Problem = serde_json::from_str(&self.text).unwrap();
        assert_eq!(problem.code, code, "{}", self.text);
        assert_eq!(problem.status, status.as_u16());
        assert!(!problem.detail.is_empty() && problem.instance.is_some() && problem.request_id.is_some());
        assert_eq!(self.headers["x-request-id"], problem.request_id.unwrap().as_str());
        problem.detail
    }

    /// The code of a problem; empty in other answers.
    pub(crate) fn json_code(&self) -> String {
        let json: Value = serde_json::from_str(&self.text).unwrap_or_default();
        json["code"].as_str().unwrap_or_default().to_owned()
    }

    /// The field of the first error of a problem.
    pub(crate) fn field(&self) -> String {
        self.json()["errors"][0]["field"].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

impl Api {
    pub(crate) async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self::start_in(dir, TestClock::new(), SignUp::Open).await
    }

    /// An API with closed sign-up.
    pub(crate) async fn start_closed() -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), TestClock::new(), SignUp::Closed).await
    }

    /// An API of an installation with this name and icon.
    pub(crate) async fn start_named(name: &str, icon: &[u8]) -> Self {
        let site = Site::of_domain("localhost").named(name).unwrap().with_icon(icon).unwrap();
        let dir = tempfile::tempdir().unwrap();
        Self::start_with(dir, TestClock::new(), SignUp::Open, |config| config.site = site).await
    }

    /// An API with its data in this folder.
    pub(crate) async fn start_under(parent: &std::path::Path) -> Self {
        Self::start_in(tempfile::tempdir_in(parent).unwrap(), TestClock::new(), SignUp::Open).await
    }

    /// An API with this many ports for each account.
    pub(crate) async fn start_with_ports(ports_per_account: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self::start_with(dir, TestClock::new(), SignUp::Open, |config| config.ports_per_account = ports_per_account)
            .await
    }

    /// An API that calls providers and hooks at public addresses only.
    pub(crate) async fn start_public() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self::start_with(dir, TestClock::new(), SignUp::Open, |config| config.provider_reach = Reach::Public).await
    }

    /// An API with edges that dial no direct origins.
    pub(crate) async fn start_without_direct_origins() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self::start_with(dir, TestClock::new(), SignUp::Open, |config| {
            config.direct_origins = DialedNetworks::default()
        })
        .await
    }

    /// An API beside an edge that answers like this.
    pub(crate) async fn start_beside(edge: Arc<dyn Responder>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self::start_with(dir, TestClock::new(), SignUp::Open, |config| config.asker = Asker::here(edge)).await
    }

    /// An API with this mail hook and closed sign-up.
    pub(crate) async fn start_with_hook(url: &str, secret: &str) -> Self {
        let (dir, hook) = (tempfile::tempdir().unwrap(), MailHook::new(url, secret.into(), None).unwrap());
        Self::start_with(dir, TestClock::new(), SignUp::Closed, |config| config.mail_hook = Some(hook)).await
    }

    /// An API whose first account needs the setup token.
    pub(crate) async fn start_with_setup(sign_up: SignUp) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(SETUP_TOKEN_FILE);
        Self::start_with(dir, TestClock::new(), sign_up, |config| config.setup_token_file = Some(file)).await
    }

    /// The same after a restart.
    pub(crate) async fn restart_with_setup(self) -> Self {
        self.store.close().await;
        self.audit.close().unwrap();
        let file = self.dir.path().join(SETUP_TOKEN_FILE);
        let change = |config: &mut ControlConfig| config.setup_token_file = Some(file);
        Self::start_with(self.dir, self.clock, SignUp::Closed, change).await
    }

    async fn start_in(dir: tempfile::TempDir, clock: TestClock, sign_up: SignUp) -> Self {
        Self::start_with(dir, clock, sign_up, |_| {}).await
    }

    /// An API with another configuration.
    pub(crate) async fn start_with(
        dir: tempfile::TempDir,
        clock: TestClock,
        sign_up: SignUp,
        change: impl FnOnce(&mut ControlConfig),
    ) -> Self {
        let store = Store::open(dir.path()).await.unwrap();
        let keys = dir.path().to_owned();
        Self::start_on(store, dir, &keys, clock, sign_up, change).await
    }

    /// A control over this store, with the keys in a folder.
    pub(crate) async fn start_on(
        store: Store,
        dir: tempfile::TempDir,
        keys: &std::path::Path,
        clock: TestClock,
        sign_up: SignUp,
        change: impl FnOnce(&mut ControlConfig),
    ) -> Self {
        let bus = Bus::default();
        let kept = AuditConfig {
            key: [1; 32],
            keep: Duration::from_secs(86_400),
            max_bytes: 1 << 30,
            syslog: None,
            otlp: None,
        };
        let audit = AuditLog::open(&dir.path().join("audit"), kept).unwrap();
        let flows = LiveFlows::default();
        let mut config = ControlConfig {
            id: [7; 16],
            databases: AddressDatabases { country: true, asn: true },
            direct_origins: DialedNetworks::new(vec!["10.0.0.0/8".parse().unwrap(), "fd00:1::/32".parse().unwrap()]),
            geo: None,
            domain: "localhost".into(),
            site: Site::of_domain("localhost"),
            public_port: 8443,
            tunnel_host: "tunnel.localhost".into(),
            quic_port: Some(8444),
            ca_pem: Some("PEM".into()),
            ca_fingerprint: Some("sha256:00".into()),
            sign_up,
            port_range: 20_000..=20_004,
            ports_per_account: 10,
            requires_amplification_guard: false,
            ssh: Some(SshInfo {
                host: "tunnel.localhost".into(),
                port: 2222,
                known_hosts: vec!["[tunnel.localhost]:2222 ssh-ed25519 AAAA".into()],
            }),
            ssh_authority: Some(UserAuthority::open_or_create(keys).unwrap()),
            provider_reach: Reach::Anywhere,
            audit: Some(audit.clone()),
            asker: Asker::here(Arc::new(flows.clone())),
            catchment_every: None,
            mail_hook: None,
            resolver: None,
            acme: None,
            has_name_server: false,
            dns_steering_every: Some(sallyport_control::DNS_STEERING_EVERY),
            anycast_allow: AllowList(vec!["198.51.100.0/22".parse().unwrap(), "2001:db8::/32".parse().unwrap()]),
            egress_times: EGRESS_TIMES,
            has_desk: true,
            labels: sallyport_control::ChosenLabels::default(),
            setup_token_file: None,
        };
        change(&mut config);
        let secrets = Secrets::open_or_create(keys).unwrap();
        let sealer = Sealer::new(secrets.derived("seal"));
        let control =
            Control::start_with_clock(config, store.clone(), bus.clone(), secrets, clock.clock()).await.unwrap();
        let (router, login) = (control.router(), control.login_router());
        let client = "192.0.2.1:40000".parse().unwrap();
        let Bus {
            routes,
            ssh_logins,
            identities,
            directory,
            zones,
            anycast,
            balancers,
            egress,
            networks,
            dns_steering,
            certificates,
            ..
        } = bus;
        Self {
            router,
            login,
            control,
            store,
            routes,
            ssh_logins,
            identities,
            directory,
            sealer,
            clock,
            dir,
            audit,
            flows,
            zones,
            anycast,
            egress,
            networks,
            balancers,
            dns_steering,
            certificates,
            client,
        }
    }

    /// The same data directory under a new control, as after a restart.
    pub(crate) async fn restart(self) -> Self {
        self.store.close().await;
        self.audit.close().unwrap();
        Self::start_in(self.dir, self.clock, SignUp::Open).await
    }

    /// The same after a restart with a name server.
    pub(crate) async fn restart_with_name_server(self) -> Self {
        self.store.close().await;
        self.audit.close().unwrap();
        Self::start_with(self.dir, self.clock, SignUp::Open, |config| config.has_name_server = true).await
    }

    /// The same after a restart with the required amplification guard.
    pub(crate) async fn restart_guarded(self) -> Self {
        self.store.close().await;
        self.audit.close().unwrap();
        let change = |config: &mut ControlConfig| config.requires_amplification_guard = true;
        Self::start_with(self.dir, self.clock, SignUp::Open, change).await
    }

    /// The same API, called from another address.
    pub(crate) fn client_at(&self, address: &str) -> Requests<'_> {
        Requests { api: self, client: address.parse().unwrap() }
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        token: Option<&str>,
        body: Option<Value>,
    ) -> HttpResponse {
        Requests { api: self, client: self.client }.send(method, path, token, body).await
    }

    pub(crate) async fn get(&self, path: &str, token: Option<&str>) -> HttpResponse {
        self.send("GET", path, token, None).await
    }

    pub(crate) async fn post(&self, path: &str, token: Option<&str>, body: Value) -> HttpResponse {
        self.send("POST", path, token, Some(body)).await
    }

    /// A `POST` with an idempotency key.
    pub(crate) async fn post_keyed(&self, path: &str, token: &str, key: &str, body: Value) -> HttpResponse {
        let request = Request::post(path)
            .header(header::AUTHORIZATION, format!("Bearer {token}"))
            .header(header::CONTENT_TYPE, "application/json")
            .header("Idempotency-Key", key)
            .body(Body::from(body.to_string()))
            .unwrap();
        self.raw(request).await
    }

    /// A `GET` with a header.
    pub(crate) async fn get_with(&self, path: &str, token: &str, name: &str, value: &str) -> HttpResponse {
        let request = Request::get(path).header(header::AUTHORIZATION, format!("Bearer {token}")).header(name, value);
        self.raw(request.body(Body::empty()).unwrap()).await
    }

    /// Any request.
    pub(crate) async fn raw(&self, mut request: Request<Body>) -> HttpResponse {
        request.extensions_mut().insert(ClientAddr(self.client));
        Self::as_described(self.router.clone(), request).await
    }

    /// The response of the API, which must conform to the description.
    async fn as_described(router: Router, request: Request<Body>) -> HttpResponse {
        let (parts, body) = request.into_parts();
        let (method, target) = (parts.method.clone(), parts.uri.to_string());
        // A body whose length is not known may have no end.
        let (asked, body) = if body.size_hint().exact().is_some() {
            let bytes = body.collect().await.unwrap().to_bytes();
            (Some(bytes.clone()), Body::from(bytes))
        } else {
            (None, body)
        };
        let response = Self::response(router, Request::from_parts(parts, body)).await;
        contract::check(&Exchange {
            method: method.as_str(),
            target: &target,
            request: asked.as_deref(),
            status: response.status.as_u16(),
            content_type: response.header("content-type").unwrap_or_default(),
            text: &response.text,
        });
        response
    }

    /// A request to one of the hosts that clients reach, which the request names.
    pub(crate) async fn public(&self, mut request: Request<Body>) -> HttpResponse {
        request.extensions_mut().insert(ClientAddr(self.client));
        Self::response(self.control.public_router(), request).await
    }

    /// A request to the place where people log in.
    pub(crate) async fn page(&self, mut request: Request<Body>) -> HttpResponse {
        request.extensions_mut().insert(ClientAddr(self.client));
        Self::response(self.login.clone(), request).await
    }

    /// What this answers.
    pub(crate) async fn response(router: Router, request: Request<Body>) -> HttpResponse {
        let (response, bytes) = Self::response_bytes(router, request).await;
        HttpResponse { text: String::from_utf8(bytes).unwrap(), ..response }
    }

    /// The same, with a body that may be no text.
    pub(crate) async fn response_bytes(mut router: Router, request: Request<Body>) -> (HttpResponse, Vec<u8>) {
        let response = router.call(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes().to_vec();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        (HttpResponse { status: parts.status, headers: parts.headers, text }, bytes)
    }

    pub(crate) async fn create_account(&self, email: &str) -> HttpResponse {
        self.post("/v1/accounts", None, json!({"name": "Ann", "email": email, "password": PASSWORD})).await
    }

    pub(crate) async fn login(&self, email: &str) -> sallyport_api::Session {
        self.post("/v1/login", None, json!({"email": email, "password": PASSWORD})).await.read(StatusCode::OK)
    }

    /// Makes an account and gives its access token.
    pub(crate) async fn account(&self, email: &str) -> String {
        assert_eq!(self.create_account(email).await.status, StatusCode::CREATED);
        self.login(email).await.access_token.expose().to_owned()
    }

    /// Makes an API token with these scopes.
    pub(crate) async fn api_token(&self, token: &str, scopes: &[&str]) -> String {
        let response = self.post("/v1/tokens", Some(token), json!({"name": "t", "scopes": scopes})).await;
        response.read::<sallyport_api::CreatedToken>(StatusCode::CREATED).token.expose().to_owned()
    }

    pub(crate) async fn socket(&self, token: &str, name: &str) -> sallyport_api::Socket {
        self.post("/v1/sockets", Some(token), json!({"name": name})).await.read(StatusCode::CREATED)
    }

    pub(crate) async fn tunnel(&self, token: &str, socket: &sallyport_api::Socket) -> sallyport_api::CreatedTunnel {
        let path = format!("/v1/sockets/{}/tunnels", socket.id);
        self.send("POST", &path, Some(token), None).await.read(StatusCode::CREATED)
    }
}

/// Requests from one client address.
pub(crate) struct Requests<'a> {
    api: &'a Api,
    client: SocketAddr,
}

impl Requests<'_> {
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        token: Option<&str>,
        body: Option<Value>,
    ) -> HttpResponse {
        let mut request = Request::builder().method(method).uri(path).extension(ClientAddr(self.client));
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let body = match body {
            Some(body) => {
                request = request.header(header::CONTENT_TYPE, "application/json");
                Body::from(body.to_string())
            }
            None => Body::empty(),
        };
        Api::as_described(self.api.router.clone(), request.body(body).unwrap()).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> HttpResponse {
        self.send("POST", path, None, Some(body)).await
    }
}
