//! TLS sockets that require a client certificate.

use std::{io, sync::Arc, time::Duration};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};
use rustls::{
    ClientConfig, HandshakeKind, SupportedProtocolVersion,
    pki_types::{PrivatePkcs8KeyDer, ServerName},
};
use sallyport_model::{AttachedPolicy, LoginSession, PolicyId, SocketType};
use sallyport_tunnel::ConnectorEvent;
use time::OffsetDateTime;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;

use crate::{
    flows::service,
    harness::*,
    identity::{IdentityFixture, asks, now},
};

/// The certificate authority of an organisation.
pub(crate) struct Authority {
    pub(crate) issuer: Issuer<'static, KeyPair>,
    pub(crate) der: Vec<u8>,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.distinguished_name.push(DnType::CommonName, name);
        let der = params.self_signed(&key).unwrap().der().to_vec();
        Self { issuer: Issuer::new(params, key), der }
    }
}

/// The contents of a certificate.
struct Wanted {
    email: String,
    socket: String,
    login: String,
    life: (OffsetDateTime, OffsetDateTime),
    purposes: Vec<ExtendedKeyUsagePurpose>,
}

struct Place {
    fixture: IdentityFixture,
    socket: TestSocket,
    connector: Connector,
    authority: Authority,
}

impl Place {
    /// Starts a `tls` socket for all of example.com, with an echo origin.
    async fn start() -> Self {
        let fixture = IdentityFixture::start().await;
        let mut socket = fixture.world.socket();
        let authority = Authority::new("an organisation");
        socket.set_type(&fixture.world, SocketType::Tls).await;
        let echo = service(|mut stream| async move {
            let (mut from, mut to) = stream.split();
            let _ = tokio::io::copy(&mut from, &mut to).await;
        });
        let connector = fixture.world.tunnel(&mut socket, echo.await).await;
        socket.route.client_authority = Some(authority.der.clone());
        socket.set(&fixture.world, |settings| settings.identity = asks("example.com"));
        Self { fixture, socket, connector, authority }
    }

    fn wanted(&self, session: &LoginSession) -> Wanted {
        let now = OffsetDateTime::now_utc();
        Wanted {
            email: session.person.email.to_string(),
            socket: self.socket.host(),
            login: format!("urn:uuid:{}", session.id),
            life: (now - Duration::from_secs(300), now + Duration::from_secs(300)),
            purposes: vec![ExtendedKeyUsagePurpose::ClientAuth],
        }
    }

    /// The configuration of a client with a certificate from this authority.
    fn client(
        &self,
        authority: &Authority,
        wanted: &Wanted,
        version: &'static SupportedProtocolVersion,
    ) -> ClientConfig {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::OrganizationName, wanted.socket.as_str());
        params.subject_alt_names = vec![
            SanType::Rfc822Name(wanted.email.as_str().try_into().unwrap()),
            SanType::DnsName(wanted.socket.as_str().try_into().unwrap()),
            SanType::URI(wanted.login.as_str().try_into().unwrap()),
        ];
        params.extended_key_usages = wanted.purposes.clone();
        (params.not_before, params.not_after) = wanted.life;
        let certificate = params.signed_by(&key, &authority.issuer).unwrap();
        self.builder(version)
            .with_client_auth_cert(
                vec![certificate.der().clone()],
                PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
            )
            .unwrap()
    }

    fn builder(
        &self,
        version: &'static SupportedProtocolVersion,
    ) -> rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[version]).unwrap();
        builder.with_root_certificates(self.fixture.world.roots())
    }

    /// Opens a connection and echoes a byte over it. In TLS 1.3 a client sees a refusal only when it reads.
    async fn connect_with(&self, config: impl Into<Arc<ClientConfig>>) -> io::Result<Client> {
        let tcp = tokio::net::TcpStream::connect(self.fixture.world.addr).await?;
        let name = ServerName::try_from(self.socket.host()).unwrap();
        let mut client = soon(TlsConnector::from(config.into()).connect(name, tcp)).await?;
        client.write_all(b"x").await?;
        let byte = soon(client.read_u8()).await?;
        assert_eq!(byte, b'x');
        Ok(client)
    }
}

const TLS13: &SupportedProtocolVersion = &rustls::version::TLS13;

/// Checks that the edge closed the connection with this alert.
pub(crate) fn assert_alert<T>(result: io::Result<T>, alert: &str) {
    let Err(error) = result else { panic!("the edge accepted the certificate") };
    let error = error.to_string();
    assert!(error.contains(alert), "{alert}: {error}");
}

#[tokio::test]
async fn a_certificate_of_this_socket_grants_access_and_is_recorded() {
    let mut place = Place::start().await;
    let ann = place.fixture.login(1, "ann@example.com");
    let wanted = place.wanted(&ann);
    for version in [TLS13, &rustls::version::TLS12] {
        let config = Arc::new(place.client(&place.authority, &wanted, version));
        for _ in 0..3 {
            let mut client = place.connect_with(config.clone()).await.unwrap();
            assert_eq!(
                client.get_ref().1.handshake_kind(),
                Some(HandshakeKind::Full),
                "a session ticket grants no access"
            );
            client.shutdown().await.unwrap();
            assert_eq!(read_rest(&mut client).await, b"");
        }
    }
    let record = loop {
        if let ConnectorEvent::Flow(record) = soon(place.connector.log.recv()).await.unwrap() {
            break record;
        }
    };
    assert_eq!((record.verdict.as_str(), record.identity.as_deref()), ("complete", Some("ann@example.com")));
    assert_eq!(record.rule.as_deref(), Some("the socket's allowed e-mail domains"));
}

#[tokio::test]
async fn invalid_certificates_are_refused() {
    let mut place = Place::start().await;
    let ann = place.fixture.login(1, "ann@example.com");
    let refused = async |place: &Place, wanted: &Wanted, alert: &str| {
        assert_alert(place.connect_with(place.client(&place.authority, wanted, TLS13)).await, alert);
    };
    assert_alert(place.connect_with(place.builder(TLS13).with_no_client_auth()).await, "CertificateRequired");
    for (name, alert) in [("another organisation", "UnknownCA"), ("an organisation", "DecryptError")] {
        let stranger = Authority::new(name);
        assert_alert(place.connect_with(place.client(&stranger, &place.wanted(&ann), TLS13)).await, alert);
    }
    let good = || place.wanted(&ann);
    let ago = |seconds| OffsetDateTime::now_utc() - Duration::from_secs(seconds);
    refused(&place, &Wanted { socket: "calm-bay-1999.localhost".into(), ..good() }, "AccessDenied").await;
    refused(&place, &Wanted { life: (ago(600), ago(1)), ..good() }, "CertificateExpired").await;
    let later = OffsetDateTime::now_utc() + Duration::from_secs(600);
    refused(&place, &Wanted { life: (later, later + Duration::from_secs(60)), ..good() }, "CertificateExpired").await;
    refused(
        &place,
        &Wanted { purposes: vec![ExtendedKeyUsagePurpose::ServerAuth], ..good() },
        "UnsupportedCertificate",
    )
    .await;
    refused(&place, &Wanted { purposes: Vec::new(), ..good() }, "AccessDenied").await;
    refused(&place, &Wanted { email: "bob@example.com".into(), ..good() }, "AccessDenied").await;
    refused(&place, &Wanted { login: "urn:uuid:nonsense".into(), ..good() }, "AccessDenied").await;
    let unknown = crate::identity::session(9, "ann@example.com");
    refused(&place, &place.wanted(&unknown), "AccessDenied").await;
    let foreign = sallyport_model::AccountId::from_random([9; 16]);
    place.fixture.identities.put_session(LoginSession { organisation: foreign, ..unknown.clone() });
    refused(&place, &place.wanted(&unknown), "AccessDenied").await;
    place.fixture.identities.put_session(LoginSession { expires_at: now(), ..unknown.clone() });
    refused(&place, &place.wanted(&unknown), "AccessDenied").await;
    let eve = place.fixture.login(3, "eve@evil.test");
    refused(&place, &place.wanted(&eve), "AccessDenied").await;
    // Refusals without an identity are recorded a few times for each address. Refusals with an identity are always
    // recorded.
    let (mut strangers, mut rules) = (0, std::collections::BTreeSet::new());
    let record = loop {
        let ConnectorEvent::Flow(record) = soon(place.connector.log.recv()).await.unwrap() else { continue };
        assert_eq!(record.verdict, "denied");
        if record.identity.is_some() {
            break record;
        }
        strangers += 1;
        rules.extend(record.rule);
    };
    assert_eq!(record.identity.as_deref(), Some("eve@evil.test"));
    assert_eq!(strangers, 5, "{rules:?}");
    assert!(rules.contains("no certificate was presented"), "{rules:?}");
    // Without an authority, every certificate is refused.
    let config = place.client(&place.authority, &place.wanted(&ann), TLS13);
    place.socket.route.client_authority = None;
    place.fixture.world.routes.put(place.socket.route.clone());
    assert_alert(place.connect_with(config).await, "AccessDenied");
}

#[tokio::test]
async fn a_flow_ends_with_its_login_or_its_permission() {
    let mut place = Place::start().await;
    let (ann, bob) = (place.fixture.login(1, "ann@example.com"), place.fixture.login(2, "bob@example.com"));
    let config_of = |session| Arc::new(place.client(&place.authority, &place.wanted(session), TLS13));
    let (of_ann, of_bob) = (config_of(&ann), config_of(&bob));
    let (mut anns, mut bobs) =
        (place.connect_with(of_ann.clone()).await.unwrap(), place.connect_with(of_bob.clone()).await.unwrap());
    place.fixture.identities.end_sessions(|session| session.id == ann.id);
    assert!(soon(anns.read_u8()).await.is_err());
    assert_alert(place.connect_with(of_ann).await, "AccessDenied");
    bobs.write_all(b"y").await.unwrap();
    assert_eq!(soon(bobs.read_u8()).await.unwrap(), b'y', "his goes on");
    let document = r#"{"deny":[{"who":{"emails":["bob@example.com"]}}]}"#.to_owned();
    place.socket.route.policies =
        vec![AttachedPolicy { id: PolicyId::from_random([1; 16]), name: "p".into(), document }];
    place.fixture.world.routes.put(place.socket.route.clone());
    assert!(soon(bobs.read_u8()).await.is_err());
    assert_alert(place.connect_with(of_bob).await, "AccessDenied");
    let metrics = place.fixture.world.edge.metrics_text().unwrap();
    assert!(metrics.contains(r#"flows_total{transport="tls",verdict="revoked"} 2"#), "{metrics}");
}
