//! Handshakes between our own two sides.

use std::sync::Arc;

use rustls::{
    CertificateError, ClientConfig, Error, HandshakeKind, ProtocolVersion,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
    version::TLS12,
};
use sallyport_net::{Negotiated, TlsFailure, Trust, TrustError, client_config, connect_tcp, connect_tls};
use tokio_rustls::TlsConnector;

use crate::support::{PATIENCE, TUNNEL_ALPN, TestServer, ask};

fn failure(error: &std::io::Error) -> &TlsFailure {
    error.get_ref().and_then(|inner| inner.downcast_ref()).unwrap_or_else(|| panic!("no TLS failure: {error}"))
}

#[tokio::test]
async fn a_client_that_trusts_the_root_reaches_every_name_of_the_domain() {
    let server = TestServer::start("localhost").await;
    let config = server.client(&[b"http/1.1"]);
    for name in ["localhost", "api.localhost", "wandering-shape-7752.localhost", "UPPER.localhost"] {
        let connected = connect_tls(name, server.addr.port(), name, config.clone(), PATIENCE).await;
        let mut stream = connected.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(stream.get_ref().1.protocol_version(), Some(ProtocolVersion::TLSv1_3));
        assert!(stream.get_ref().0.get_ref().nodelay().unwrap());
        assert!(ask(&mut stream).await.ends_with("Http1"));
    }
}

#[tokio::test]
async fn the_protocol_is_agreed_on() {
    let server = TestServer::start("localhost").await;
    let cases: [(&[&[u8]], Negotiated); 5] = [
        (&[], Negotiated::Http1),
        (&[b"http/1.1"], Negotiated::Http1),
        (&[b"h2", b"http/1.1"], Negotiated::Http2),
        (&[b"http/1.1", b"h2"], Negotiated::Http2),
        (&[TUNNEL_ALPN], Negotiated::Tunnel),
    ];
    for (alpn, expected) in cases {
        let mut stream =
            connect_tls("127.0.0.1", server.addr.port(), "x.localhost", server.client(alpn), PATIENCE).await.unwrap();
        assert!(ask(&mut stream).await.ends_with(&format!("{expected:?}")), "{alpn:?}");
    }
    let other = server.client(&[b"spdy/1"]);
    let error = connect_tls("127.0.0.1", server.addr.port(), "x.localhost", other, PATIENCE).await.unwrap_err();
    assert!(error.to_string().contains("is it a Sallyport edge"), "{error}");
}

#[tokio::test]
async fn a_tunnel_over_tls_1_2_is_a_separate_error() {
    let server = TestServer::start("localhost").await;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from(server.certificates.ca().unwrap().root().der.clone())).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&TLS12])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![TUNNEL_ALPN.to_vec()];
    let mut stream =
        connect_tls("127.0.0.1", server.addr.port(), "x.localhost", Arc::new(config), PATIENCE).await.unwrap();
    assert!(ask(&mut stream).await.ends_with("TunnelTooOld"));
}

#[tokio::test]
async fn aes_128_is_chosen_where_the_cpu_has_aes() {
    let server = TestServer::start("localhost").await;
    // The default order of this client begins with AES-256.
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from(server.certificates.ca().unwrap().root().der.clone())).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let config = Arc::new(config);
    let stream = connect_tls("127.0.0.1", server.addr.port(), "x.localhost", config, PATIENCE).await.unwrap();
    let suite = stream.get_ref().1.negotiated_cipher_suite().unwrap().suite();
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("aes") && std::arch::is_x86_feature_detected!("pclmulqdq") {
        assert_eq!(suite, rustls::CipherSuite::TLS13_AES_128_GCM_SHA256);
    }
    println!("{suite:?}");
}

#[tokio::test]
async fn names_that_are_not_the_domains_are_refused_with_a_sentence() {
    let server = TestServer::start("localhost").await;
    for name in ["door.example", "a.b.localhost"] {
        let config = server.client(&[]);
        let error = connect_tls("127.0.0.1", server.addr.port(), name, config, PATIENCE).await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains(&format!("has no certificate for {name}")), "{text}");
        assert!(!failure(&error).is_certificate());
    }
    assert_eq!(server.certificates.stats().refused_name, 2);
    assert_eq!(server.certificates.stats().made, 0);
}

#[tokio::test]
async fn a_client_that_names_no_host_learns_nothing() {
    let server = TestServer::start("localhost").await;
    let mut config = (*server.client(&[])).clone();
    config.enable_sni = false;
    let error = connect_tls("127.0.0.1", server.addr.port(), "x.localhost", Arc::new(config), PATIENCE).await;
    assert!(error.unwrap_err().to_string().contains("has no certificate"));
    // A client that connects to an address sends no name either (RFC 6066 section 3).
    let config = server.client(&[]);
    assert!(connect_tls("127.0.0.1", server.addr.port(), "127.0.0.1", config, PATIENCE).await.is_err());
    assert_eq!(server.certificates.stats().refused_without_name, 2);
}

#[tokio::test]
async fn a_server_that_is_not_trusted_is_refused_with_what_to_do() {
    let server = TestServer::start("localhost").await;
    let other = TestServer::start("localhost").await;
    for (config, what) in
        [(other.client(&[]), "another root"), (client_config(&Trust::System, &[]).unwrap(), "the system's roots")]
    {
        let error = connect_tls("localhost", server.addr.port(), "x.localhost", config, PATIENCE).await.unwrap_err();
        assert!(failure(&error).is_certificate(), "{what}");
        assert!(error.to_string().contains("--ca FILE"), "{what}: {error}");
    }
}

#[tokio::test]
async fn sessions_are_resumed_without_a_new_signature() {
    let server = TestServer::start("localhost").await;
    let config = server.client(&[b"http/1.1"]);
    let mut kinds = Vec::new();
    for _ in 0..4 {
        let mut stream =
            connect_tls("127.0.0.1", server.addr.port(), "x.localhost", config.clone(), PATIENCE).await.unwrap();
        ask(&mut stream).await;
        kinds.push(stream.get_ref().1.handshake_kind().unwrap());
    }
    assert_eq!(kinds[0], HandshakeKind::Full);
    assert_eq!(kinds[1..], [HandshakeKind::Resumed; 3]);
    // A ticket for one name does not resume a session for another name.
    let stream = connect_tls("127.0.0.1", server.addr.port(), "y.localhost", config, PATIENCE).await.unwrap();
    assert_eq!(stream.get_ref().1.handshake_kind(), Some(HandshakeKind::Full));
}

/// A stolen CA key is useless for other domains: the root is constrained to one domain.
#[tokio::test]
async fn a_stolen_root_key_cannot_speak_for_another_domain() {
    let server = TestServer::start("localhost").await;
    let stolen = std::fs::read_to_string(server.dir.path().join("ca.key")).unwrap();
    let root = CertificateDer::from(server.certificates.ca().unwrap().root().der.clone());
    let issuer = rcgen::Issuer::from_ca_cert_der(&root, rcgen::KeyPair::from_pem(&stolen).unwrap()).unwrap();
    for (name, is_accepted) in [("bank.example", false), ("x.localhost", true)] {
        let leaf_key = rcgen::KeyPair::generate().unwrap();
        let leaf = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&leaf_key, &issuer).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(leaf_key.serialize_der()));
        let config = rustls::ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![leaf.der().clone(), root.clone()], key)
            .unwrap();
        let (ours, theirs) = tokio::io::duplex(65_536);
        tokio::spawn(async move { tokio_rustls::TlsAcceptor::from(Arc::new(config)).accept(theirs).await });
        let connector = TlsConnector::from(server.client(&[]));
        let connected = connector.connect(name.to_owned().try_into().unwrap(), ours).await;
        assert_eq!(connected.is_ok(), is_accepted, "{name}: {:?}", connected.err());
    }
}

#[tokio::test]
async fn a_certificate_for_another_name_is_refused() {
    let server = TestServer::start("localhost").await;
    // The client asks for one name and compares the certificate with another.
    let stream = connect_tcp("127.0.0.1", server.addr.port(), PATIENCE).await.unwrap();
    let connector = TlsConnector::from(server.client(&[]));
    let stream = connector.connect("x.localhost".to_owned().try_into().unwrap(), stream).await.unwrap();
    let chain = stream.get_ref().1.peer_certificates().unwrap();
    let leaf = rustls::server::ParsedCertificate::try_from(&chain[0]).unwrap();
    let refused = rustls::client::verify_server_name(&leaf, &"y.localhost".try_into().unwrap()).unwrap_err();
    assert!(matches!(refused, Error::InvalidCertificate(CertificateError::NotValidForNameContext { .. })));
}

#[tokio::test]
async fn roots_that_cannot_be_used_are_named() {
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("ca.pem");
    let trust = Trust::Ca(path.clone());
    assert!(matches!(client_config(&trust, &[]), Err(TrustError::Read { .. })));
    for bad in [
        "",
        "nonsense",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        "-----BEGIN CERTIFICATE-----\n",
    ] {
        std::fs::write(&path, bad).unwrap();
        let error = client_config(&trust, &[]).unwrap_err();
        assert!(matches!(error, TrustError::NoCertificate(_)), "{bad:?}: {error}");
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    }
    let pin = Trust::Pinned("sha256:short".to_owned());
    assert!(matches!(client_config(&pin, &[]), Err(TrustError::Pin(_))));
}
