//! TLS of the tests' servers, and plain requests to the tools' own interfaces.

use std::{sync::Arc, time::Duration};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer},
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// The longest wait in a test, generous for busy machines.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A root, and a certificate of it for this machine.
pub(crate) struct Site {
    pub(crate) root_pem: String,
    pub(crate) chain_pem: String,
    pub(crate) key_pem: String,
}

impl Site {
    pub(crate) fn new() -> Self {
        let root_key = KeyPair::generate().unwrap();
        let mut root = CertificateParams::new(Vec::new()).unwrap();
        root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root_pem = root.self_signed(&root_key).unwrap().pem();
        let key = KeyPair::generate().unwrap();
        let leaf = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        let leaf = leaf.signed_by(&key, &Issuer::new(root, root_key)).unwrap();
        Self { root_pem, chain_pem: leaf.pem(), key_pem: key.serialize_pem() }
    }

    pub(crate) fn server(&self) -> Arc<ServerConfig> {
        use rustls::pki_types::pem::PemObject as _;
        let chain = vec![CertificateDer::from_pem_slice(self.chain_pem.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(self.key_pem.as_bytes()).unwrap();
        Arc::new(server_builder().with_no_client_auth().with_single_cert(chain, key).unwrap())
    }
}

pub(crate) fn server_builder() -> rustls::ConfigBuilder<ServerConfig, rustls::WantsVerifier> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap()
}

/// One HTTP message, head and body.
pub(crate) async fn read_message<S: AsyncRead + Unpin>(stream: &mut S) -> Option<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        bytes.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(bytes).ok()?;
    let length =
        head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).await.ok()?;
    Some((head, body))
}

/// Sends a request to a tool's own interface, and gives the whole answer.
pub(crate) async fn post(port: u16, root_pem: Option<&str>, path: &str, body: &str) -> String {
    let request = format!(
        "POST {path} HTTP/1.0\r\nHost: localhost:{port}\r\nUser-Agent: test\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let stream = sallyport_net::connect_tcp("127.0.0.1", port, PATIENCE).await.unwrap();
    let Some(pem) = root_pem else { return exchange(stream, &request).await };
    let tls = sallyport_net::client_config_of_pem(pem.as_bytes(), &[]).unwrap();
    let stream = sallyport_net::start_tls(stream, "127.0.0.1", port, "localhost", tls, PATIENCE).await.unwrap();
    exchange(stream, &request).await
}

async fn exchange<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, request: &str) -> String {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    assert!(answer.contains(" 200 "), "{answer}");
    answer
}
