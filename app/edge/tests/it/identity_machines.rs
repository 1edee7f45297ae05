//! Service tokens: their scopes, and client certificates of machines.

use std::{io, sync::Arc, time::Duration};

use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use rcgen::{CertificateParams, DistinguishedName, ExtendedKeyUsagePurpose, KeyPair, SanType};
use rustls::{ClientConfig, HandshakeKind, pki_types::PrivatePkcs8KeyDer, pki_types::ServerName};
use sallyport_model::{AccountId, AttachedPolicy, PolicyId, ServiceTokenRoute, ServiceTokenScope, SocketType};
use time::OffsetDateTime;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsConnector;

use crate::{
    flows::service,
    harness::*,
    identity::{IdentityFixture, asks, machine, now},
    identity_tls::{Authority, assert_alert},
};

const URN: &str = "urn:sallyport:service-token:";

/// Sets a policy that allows the token `ci`.
fn allow_ci(socket: &mut TestSocket, world: &World) {
    let document = r#"{"allow":[{"who":{"service_tokens":["ci"]}}]}"#.to_owned();
    socket.route.policies =
        vec![AttachedPolicy { id: PolicyId::from_random([1; 16]), name: "machines".into(), document }];
    world.routes.put(socket.route.clone());
}

fn certified(number: u8) -> ServiceTokenRoute {
    ServiceTokenRoute { certified_until: Some(now() + 3_600), ..machine(number) }
}

/// The contents of a machine's certificate.
struct Wanted {
    names: Vec<String>,
    life: (OffsetDateTime, OffsetDateTime),
    purposes: Vec<ExtendedKeyUsagePurpose>,
}

fn wanted(token: &ServiceTokenRoute) -> Wanted {
    let now = OffsetDateTime::now_utc();
    Wanted {
        names: vec![format!("{URN}{}", token.id)],
        life: (now - Duration::from_secs(300), now + Duration::from_secs(300)),
        purposes: vec![ExtendedKeyUsagePurpose::ClientAuth],
    }
}

fn config(world: &World, authority: &Authority, wanted: &Wanted, alpn: &[&[u8]]) -> Arc<ClientConfig> {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.subject_alt_names =
        wanted.names.iter().map(|name| SanType::URI(name.as_str().try_into().unwrap())).collect();
    params.extended_key_usages = wanted.purposes.clone();
    (params.not_before, params.not_after) = wanted.life;
    let certificate = params.signed_by(&key, &authority.issuer).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let key = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
    let chain = vec![certificate.der().clone()];
    let mut config = builder.with_root_certificates(world.roots()).with_client_auth_cert(chain, key).unwrap();
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    Arc::new(config)
}

async fn open(world: &World, config: &Arc<ClientConfig>, name: &str) -> io::Result<Client> {
    let tcp = tokio::net::TcpStream::connect(world.addr).await?;
    let name = ServerName::try_from(name.to_owned()).unwrap();
    soon(TlsConnector::from(config.clone()).connect(name, tcp)).await
}

/// The response to a request over a new connection.
async fn get(
    world: &World,
    config: &Arc<ClientConfig>,
    name: &str,
    host: &str,
    more: &str,
) -> io::Result<HttpResponse> {
    let mut client = open(world, config, name).await?;
    let head = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{more}\r\n");
    client.write_all(head.as_bytes()).await?;
    // In TLS 1.3 a client sees a refusal only when it reads.
    let mut first = [0];
    client.read_exact(&mut first).await?;
    Ok(read_response(&mut (&first[..]).chain(client)).await)
}

#[tokio::test]
async fn a_token_is_limited_to_its_scope() {
    let fixture = IdentityFixture::start().await;
    let (mut socket, _connector) = fixture.socket().await;
    allow_ci(&mut socket, &fixture.world);
    let bound = |number, scope| fixture.identities.put_token(ServiceTokenRoute { scope, ..machine(number) });
    let free = ServiceTokenScope::default;
    let own_port = fixture.world.addr.port();
    bound(1, ServiceTokenScope { read_only: true, ..free() });
    bound(2, ServiceTokenScope { methods: vec!["POST".into()], paths: vec!["/api".into()], ..free() });
    bound(3, ServiceTokenScope { ports: vec![own_port], types: vec![SocketType::Http], ..free() });
    bound(4, ServiceTokenScope { ports: vec![own_port.wrapping_add(1).max(1)], ..free() });
    bound(5, ServiceTokenScope { types: vec![SocketType::Tls], ..free() });
    let upgrade = "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    for (number, line, more, status) in [
        (1, "GET /x", "", 200),
        (1, "HEAD /x", "", 200),
        (1, "POST /x", "", 403),
        (1, "GET /x", upgrade, 403),
        (1, "GET /x", "X-HTTP-Method-Override: DELETE\r\n", 403),
        (1, "GET /x", "x_http_method_override: DELETE\r\n", 403),
        (2, "POST /api/users", "", 200),
        (2, "POST /api/../admin", "", 403),
        (2, "POST /apis", "", 403),
        (2, "GET /api", "", 403),
        (3, "DELETE /x", "", 200),
        (4, "GET /x", "", 403),
        (5, "GET /x", "", 403),
    ] {
        let lines =
            format!("Sallyport-Token-Id: {}\r\nSallyport-Token-Secret: the secret\r\n{more}", machine(number).id);
        let mut client = fixture.world.client(&socket).await;
        let close = if more == upgrade { "" } else { "Connection: close\r\n" };
        let head = format!("{line} HTTP/1.1\r\nHost: {}\r\n{close}{lines}\r\n", socket.host());
        client.write_all(head.as_bytes()).await.unwrap();
        let head = read_head(&mut client).await;
        assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{number} {line} {more}: {head}");
    }
}

#[tokio::test]
async fn a_certificate_grants_access_at_the_host_of_its_handshake() {
    let fixture = IdentityFixture::start().await;
    let authority = Authority::new("an organisation");
    let (mut socket, _connector) = fixture.socket().await;
    let (mut other, _other_connector) = fixture.socket().await;
    for socket in [&mut socket, &mut other] {
        socket.route.client_authority = Some(authority.der.clone());
        allow_ci(socket, &fixture.world);
    }
    let (world, ci) = (&fixture.world, certified(1));
    let config = config(world, &authority, &wanted(&ci), &[]);
    // The edge requests no certificate before a machine of the organisation has one.
    let response = get(world, &config, &socket.host(), &socket.host(), "").await.unwrap();
    assert_eq!(response.status, 401);
    fixture.identities.put_token(ci.clone());
    for _ in 0..2 {
        let response = get(world, &config, &socket.host(), &socket.host(), "").await.unwrap();
        assert_eq!(response.status, 200, "{}", response.text());
        assert!(response.text().contains("x-auth-name: ci") && response.text().contains("x-auth-provider: service"));
        let client = open(world, &config, &socket.host()).await.unwrap();
        assert_eq!(client.get_ref().1.handshake_kind(), Some(HandshakeKind::Full), "a session ticket grants no access");
    }
    // The certificate counts only at the host of the handshake, for any Host field.
    for host in [other.host(), format!("api.{}", "localhost"), "elsewhere.localhost".to_owned()] {
        let response = get(world, &config, &socket.host(), &host, "").await.unwrap();
        assert_eq!(response.status, 421, "{host}: {}", response.text());
    }
    let response = get(world, &config, &other.host(), &other.host(), "").await.unwrap();
    assert_eq!(response.status, 200);
    // A cross-site request gains nothing from a certificate that the browser presents by itself.
    let cross = format!("Origin: https://{}\r\nUpgrade: websocket\r\n", other.host());
    let response = get(world, &config, &socket.host(), &socket.host(), &cross).await.unwrap();
    assert!(response.status == 403 || response.status == 400, "{}", response.text());
    // Token headers take precedence over the certificate, even if they are invalid.
    let bad = format!("Sallyport-Token-Id: {}\r\nSallyport-Token-Secret: no\r\n", ci.id);
    assert_eq!(get(world, &config, &socket.host(), &socket.host(), &bad).await.unwrap().status, 401);
    // Without a certificate, a client still gets 401.
    let none = fixture.ask(&socket, "GET /", "").await;
    assert_eq!(none.status, 401);
    // HTTP/2 behaves the same, although a client may use one connection for several names.
    let h2 = self::config(world, &authority, &wanted(&ci), &[b"h2"]);
    let client = open(world, &h2, &socket.host()).await.unwrap();
    let io = hyper_util::rt::TokioIo::new(client);
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(hyper_util::rt::TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    for (host, status) in [(socket.host(), 200), (other.host(), 421), (socket.host(), 200)] {
        let request = Request::get(format!("https://{host}/")).body(Empty::<bytes::Bytes>::new()).unwrap();
        let response = soon(sender.send_request(request)).await.unwrap();
        assert_eq!(response.status(), StatusCode::from_u16(status).unwrap(), "{host}");
        response.into_body().collect().await.unwrap();
    }
    // The connection outlives the token. Requests over it are refused.
    fixture.identities.remove_token(ci.id);
    let request = Request::get(format!("https://{}/", socket.host())).body(Empty::new()).unwrap();
    assert_eq!(soon(sender.send_request(request)).await.unwrap().status(), StatusCode::UNAUTHORIZED);
    assert_alert(get(world, &config, &socket.host(), &socket.host(), "").await, "AccessDenied");
}

#[tokio::test]
async fn invalid_machine_certificates_are_refused() {
    let fixture = IdentityFixture::start().await;
    let authority = Authority::new("an organisation");
    let (mut socket, _connector) = fixture.socket().await;
    socket.route.client_authority = Some(authority.der.clone());
    allow_ci(&mut socket, &fixture.world);
    let world = &fixture.world;
    fixture.identities.put_token(certified(1));
    fixture.identities.put_token(ServiceTokenRoute { expires_at: Some(now()), ..certified(2) });
    let foreign = AccountId::from_random([9; 16]);
    fixture.identities.put_token(ServiceTokenRoute { organisation: foreign, ..certified(3) });
    let elsewhere = vec![sallyport_model::SocketId::from_random([77; 16])];
    fixture.identities.put_token(ServiceTokenRoute { sockets: elsewhere, ..certified(4) });
    let refused = async |authority: &Authority, wanted: &Wanted, alert: &str| {
        let config = config(world, authority, wanted, &[]);
        assert_alert(get(world, &config, &socket.host(), &socket.host(), "").await, alert);
    };
    for (name, alert) in [("another organisation", "UnknownCA"), ("an organisation", "DecryptError")] {
        refused(&Authority::new(name), &wanted(&machine(1)), alert).await;
    }
    let good = || wanted(&machine(1));
    let ago = |seconds| OffsetDateTime::now_utc() - Duration::from_secs(seconds);
    let later = OffsetDateTime::now_utc() + Duration::from_secs(600);
    let client = || vec![ExtendedKeyUsagePurpose::ClientAuth];
    let named = |names: &[&str]| Wanted { names: names.iter().map(|name| (*name).to_owned()).collect(), ..good() };
    let id = machine(1).id.to_string();
    for (wanted, alert) in [
        (Wanted { life: (ago(600), ago(1)), ..good() }, "CertificateExpired"),
        (Wanted { life: (later, later + Duration::from_secs(60)), ..good() }, "CertificateExpired"),
        (Wanted { purposes: vec![ExtendedKeyUsagePurpose::ServerAuth], ..good() }, "UnsupportedCertificate"),
        (Wanted { purposes: Vec::new(), ..good() }, "AccessDenied"),
        (Wanted { purposes: [client(), vec![ExtendedKeyUsagePurpose::Any]].concat(), ..good() }, "AccessDenied"),
        (wanted(&machine(2)), "AccessDenied"),
        (wanted(&machine(3)), "AccessDenied"),
        (wanted(&machine(4)), "AccessDenied"),
        (wanted(&machine(9)), "AccessDenied"),
        (named(&[&format!("urn:uuid:{id}")]), "AccessDenied"),
        (named(&[&format!("{URN}{id}"), &format!("{URN}{id}")]), "AccessDenied"),
        (named(&[&format!("{URN}{id}"), "urn:uuid:1"]), "AccessDenied"),
    ] {
        refused(&authority, &wanted, alert).await;
    }
    let metrics = fixture.world.edge.metrics_text().unwrap();
    assert!(metrics.contains("identity_total{outcome=\"certificate-refused\"}"), "{metrics}");
    // A socket of another organisation does not request this certificate, and so never receives it.
    let mut theirs = fixture.world.socket();
    theirs.route.account = foreign;
    let _theirs_connector = fixture.world.tunnel(&mut theirs, named_origin("theirs").await).await;
    theirs.set(world, |settings| settings.identity = asks("example.com"));
    let config = config(world, &authority, &good(), &[]);
    assert_eq!(get(world, &config, &theirs.host(), &theirs.host(), "").await.unwrap().status, 401);
}

#[tokio::test]
async fn a_machine_keeps_access_to_a_tls_socket_until_its_token_ends() {
    let fixture = IdentityFixture::start().await;
    let authority = Authority::new("an organisation");
    let mut socket = fixture.world.socket();
    socket.set_type(&fixture.world, SocketType::Tls).await;
    let echo = service(|mut stream| async move {
        let (mut from, mut to) = stream.split();
        let _ = tokio::io::copy(&mut from, &mut to).await;
    });
    let _connector = fixture.world.tunnel(&mut socket, echo.await).await;
    socket.route.client_authority = Some(authority.der.clone());
    socket.set(&fixture.world, |settings| settings.identity = asks("example.com"));
    allow_ci(&mut socket, &fixture.world);
    let connect_with = async |wanted: &Wanted| {
        let config = config(&fixture.world, &authority, wanted, &[]);
        let mut client = open(&fixture.world, &config, &socket.host()).await?;
        client.write_all(b"x").await?;
        soon(client.read_u8()).await?;
        Ok::<_, io::Error>(client)
    };
    let ci = certified(1);
    assert_alert(connect_with(&wanted(&ci)).await, "AccessDenied");
    fixture.identities.put_token(ci.clone());
    let scope = ServiceTokenScope { read_only: true, ..ServiceTokenScope::default() };
    fixture.identities.put_token(ServiceTokenRoute { scope, ..certified(2) });
    fixture.identities.put_token(ServiceTokenRoute { name: "other".into(), ..certified(3) });
    let mut client = connect_with(&wanted(&ci)).await.unwrap();
    assert_alert(connect_with(&wanted(&machine(2))).await, "AccessDenied");
    assert_alert(connect_with(&wanted(&machine(3))).await, "AccessDenied");
    fixture.identities.remove_token(ci.id);
    assert!(soon(client.read_u8()).await.is_err(), "what was open is cut");
    assert_alert(connect_with(&wanted(&ci)).await, "AccessDenied");
}
