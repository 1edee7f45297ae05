//! Trust in one root by its fingerprint.

use std::sync::Arc;

use rustls::{
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
};
use sallyport_net::{Trust, client_config, connect_tls, fetch_root};
use tokio::net::TcpListener;

use crate::support::{PATIENCE, TestServer, ask};

fn pinned(pin: &str) -> Arc<rustls::ClientConfig> {
    client_config(&Trust::Pinned(pin.to_owned()), &[b"http/1.1"]).unwrap()
}

#[tokio::test]
async fn a_client_that_knows_the_fingerprint_needs_no_file() {
    let server = TestServer::start("localhost").await;
    let fingerprint = server.certificates.ca().unwrap().fingerprint().to_string();
    for pin in [fingerprint.clone(), fingerprint.to_uppercase(), fingerprint.trim_start_matches("sha256:").to_owned()] {
        let config = pinned(&pin);
        for name in ["api.localhost", "x.localhost"] {
            let mut stream = connect_tls(name, server.addr.port(), name, config.clone(), PATIENCE).await.unwrap();
            assert!(ask(&mut stream).await.ends_with("Http1"));
        }
    }
}

#[tokio::test]
async fn another_root_is_refused_with_both_fingerprints() {
    let server = TestServer::start("localhost").await;
    let other = TestServer::start("localhost").await;
    let (theirs, pin) =
        (server.certificates.ca().unwrap().fingerprint(), other.certificates.ca().unwrap().fingerprint());
    let error = connect_tls("localhost", server.addr.port(), "x.localhost", pinned(&pin.to_string()), PATIENCE)
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains(&theirs.to_string()) && error.contains(&pin.to_string()), "{error}");
}

/// A server with this chain, for one connection.
async fn serve_chain(chain: Vec<CertificateDer<'static>>, key: &rcgen::KeyPair) -> u16 {
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let _ = tokio_rustls::TlsAcceptor::from(Arc::new(config)).accept(stream).await;
    });
    port
}

#[tokio::test]
async fn showing_the_pinned_root_is_not_enough() {
    let server = TestServer::start("localhost").await;
    let root = CertificateDer::from(server.certificates.ca().unwrap().root().der.clone());
    let pin = server.certificates.ca().unwrap().fingerprint().to_string();
    let key = rcgen::KeyPair::generate().unwrap();
    // An attacker in between presents the right root behind another certificate.
    let forged = rcgen::CertificateParams::new(vec!["x.localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    let port = serve_chain(vec![forged.der().clone(), root.clone()], &key).await;
    let error = connect_tls("127.0.0.1", port, "x.localhost", pinned(&pin), PATIENCE).await.unwrap_err();
    assert!(error.to_string().contains("not trusted here"), "{error}");

    // The right root, but the certificate is for another name, or has expired.
    let stolen = std::fs::read_to_string(server.dir.path().join("ca.key")).unwrap();
    let issuer = rcgen::Issuer::from_ca_cert_der(&root, rcgen::KeyPair::from_pem(&stolen).unwrap()).unwrap();
    let other =
        rcgen::CertificateParams::new(vec!["y.localhost".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    let port = serve_chain(vec![other.der().clone(), root.clone()], &key).await;
    let error = connect_tls("127.0.0.1", port, "x.localhost", pinned(&pin), PATIENCE).await.unwrap_err();
    assert!(error.to_string().contains("is not for x.localhost"), "{error}");
    let mut params = rcgen::CertificateParams::new(vec!["x.localhost".to_owned()]).unwrap();
    params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let ended = params.signed_by(&key, &issuer).unwrap();
    let port = serve_chain(vec![ended.der().clone(), root.clone()], &key).await;
    let error = connect_tls("127.0.0.1", port, "x.localhost", pinned(&pin), PATIENCE).await.unwrap_err();
    assert!(error.to_string().contains("has ended"), "{error}");
}

#[tokio::test]
async fn the_root_of_a_server_can_be_asked_for() {
    let server = TestServer::start("localhost").await;
    let root = fetch_root("api.localhost", server.addr.port(), "api.localhost", PATIENCE).await.unwrap();
    assert_eq!(root.fingerprint, server.certificates.ca().unwrap().fingerprint());
    assert_eq!(root.pem, server.certificates.ca().unwrap().root_pem());
    assert!(root.subject.contains("Sallyport root for localhost"), "{}", root.subject);
}

#[tokio::test]
async fn a_root_that_did_not_sign_the_certificate_is_not_given() {
    let server = TestServer::start("localhost").await;
    let root = CertificateDer::from(server.certificates.ca().unwrap().root().der.clone());
    let key = rcgen::KeyPair::generate().unwrap();
    let forged = rcgen::CertificateParams::new(vec!["x.localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    let port = serve_chain(vec![forged.der().clone(), root], &key).await;
    assert!(fetch_root("127.0.0.1", port, "x.localhost", PATIENCE).await.is_err());
    let port = serve_chain(vec![forged.der().clone()], &key).await;
    let error = fetch_root("127.0.0.1", port, "x.localhost", PATIENCE).await.unwrap_err();
    assert!(error.to_string().contains("no root of its own"), "{error}");
}
