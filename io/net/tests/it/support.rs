//! A small TLS server and its helpers.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use rustls::{ClientConfig, ServerConfig};
use sallyport_net::{Certificates, Listening, LocalCa, Trust, client_config, negotiated, server_config};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;

pub(crate) const TUNNEL_ALPN: &[u8] = b"sallyport-tunnel/1";
/// The longest wait in a test, long enough for a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct TestServer {
    pub(crate) dir: TempDir,
    pub(crate) addr: SocketAddr,
    pub(crate) certificates: Arc<Certificates>,
}

impl TestServer {
    pub(crate) async fn start(domain: &str) -> Self {
        Self::start_with(domain, |_| {}).await
    }

    /// Answers the first bytes of every connection with an HTTP response whose body lists the negotiated parameters.
    pub(crate) async fn start_with(domain: &str, change: impl FnOnce(&mut ServerConfig)) -> Self {
        let dir = TempDir::new().unwrap();
        let ca = LocalCa::open_or_create(dir.path(), domain).unwrap();
        let certificates = Certificates::new(ca, domain).unwrap();
        let mut config = server_config(certificates.clone(), TUNNEL_ALPN);
        change(Arc::get_mut(&mut config).unwrap());
        let listening = Listening::bind("127.0.0.1:0".parse().unwrap(), None).unwrap();
        let addr = listening.tls_addr().unwrap();
        tokio::spawn(serve(listening, config));
        Self { dir, addr, certificates }
    }

    pub(crate) fn ca_path(&self) -> PathBuf {
        self.certificates.ca().unwrap().pem_path().to_owned()
    }

    pub(crate) fn client(&self, alpn: &[&[u8]]) -> Arc<ClientConfig> {
        client_config(&Trust::Ca(self.ca_path()), alpn).unwrap()
    }
}

async fn serve(listening: Listening, config: Arc<ServerConfig>) {
    loop {
        let (stream, _) = listening.tls.accept().await.unwrap();
        assert!(stream.nodelay().unwrap(), "inherited from the listener");
        let acceptor = TlsAcceptor::from(config.clone());
        tokio::spawn(async move {
            let Ok(mut stream) = acceptor.accept(stream).await else { return };
            let tls = stream.get_ref().1;
            let kind = format!("{:?}", negotiated(tls.alpn_protocol(), tls.protocol_version(), TUNNEL_ALPN));
            let mut request = [0; 4_096];
            if stream.read(&mut request).await.is_ok_and(|bytes| bytes > 0) {
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", kind.len());
                let _ = stream.write_all(format!("{head}{kind}").as_bytes()).await;
                let _ = stream.shutdown().await;
            }
        });
    }
}

/// Sends bytes over a connection and returns all bytes of the answer.
pub(crate) async fn ask(stream: &mut (impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin)) -> String {
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// Whether a program can be run on this machine.
pub(crate) fn has_program(program: &str) -> bool {
    let found = std::process::Command::new(program)
        .arg("--version")
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status()
        .is_ok();
    if !found {
        println!("skipped: no {program} here");
    }
    found
}
