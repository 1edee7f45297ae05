//! Answers challenges as edges and a name server do, and notes what it is asked to do.

use std::{collections::HashMap, sync::Arc};

use rcgen::{CertificateParams, CustomExtension, KeyPair};
use rustls::{
    pki_types::{CertificateDer, PrivateKeyDer},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use sallyport_acme::{BoxFuture, Challenge, ChallengeKind, Solver, TLS_ALPN_PROTOCOL};
use serde_json::json;
use tokio::{io::AsyncWriteExt as _, net::TcpListener};
use tokio_rustls::TlsAcceptor;

use crate::site::{post, read_message, server_builder};

#[derive(Debug, Default)]
struct State {
    /// Paths and their answers.
    files: HashMap<String, String>,
    /// Names and the certificates of TLS-ALPN-01.
    certificates: HashMap<String, Arc<CertifiedKey>>,
    presented: Vec<Challenge>,
    removed: usize,
    orders: Vec<String>,
    /// Why the next order cannot be stored.
    store_failure: Option<String>,
    /// Why no challenge can be answered.
    failure: Option<String>,
    /// Whether answers are given that are wrong.
    is_wrong: bool,
}

/// A solver of all three kinds.
#[derive(Debug)]
pub(crate) struct Responder {
    names_port: u16,
    state: Arc<std::sync::Mutex<State>>,
}

impl Responder {
    pub(crate) async fn start(http_port: u16, tls_port: u16, names_port: u16) -> Arc<Self> {
        let state = Arc::new(std::sync::Mutex::new(State::default()));
        let http = TcpListener::bind(("127.0.0.1", http_port)).await.unwrap();
        tokio::spawn(serve_files(http, state.clone()));
        let tls = TcpListener::bind(("127.0.0.1", tls_port)).await.unwrap();
        tokio::spawn(serve_certificates(tls, state.clone()));
        Arc::new(Self { names_port, state })
    }

    fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.state.lock().unwrap())
    }

    /// The challenges that were presented so far.
    pub(crate) fn presented(&self) -> Vec<Challenge> {
        self.with(|state| state.presented.clone())
    }

    /// The challenges that are still answered.
    pub(crate) fn left(&self) -> usize {
        self.with(|state| state.presented.len() - state.removed)
    }

    /// The orders that were stored.
    pub(crate) fn orders(&self) -> Vec<String> {
        self.with(|state| state.orders.clone())
    }

    pub(crate) fn fail_to_store(&self, reason: &str) {
        self.with(|state| state.store_failure = Some(reason.to_owned()));
    }

    pub(crate) fn fail_to_present(&self, reason: &str) {
        self.with(|state| state.failure = Some(reason.to_owned()));
    }

    pub(crate) fn answer_wrongly(&self, is_wrong: bool) {
        self.with(|state| state.is_wrong = is_wrong);
    }

    async fn set_txt(&self, challenge: &Challenge, value: Option<&str>) {
        let host = format!("{}.", challenge.dns_name());
        let (path, body) = match value {
            Some(value) => ("/set-txt", json!({"host": host, "value": value})),
            None => ("/clear-txt", json!({"host": host})),
        };
        post(self.names_port, None, path, &body.to_string()).await;
    }
}

impl Solver for Responder {
    fn present<'a>(&'a self, challenge: &'a Challenge) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            let is_wrong = self.with(|state| {
                state.presented.push(challenge.clone());
                state.failure.clone().map_or(Ok(state.is_wrong), Err)
            })?;
            let shown = if is_wrong { "wrong" } else { &challenge.key_authorization };
            match challenge.kind {
                ChallengeKind::Http01 => self.with(|state| {
                    state.files.insert(challenge.http_path(), shown.to_owned());
                }),
                ChallengeKind::TlsAlpn01 => {
                    let digest = if is_wrong { [0; 32] } else { challenge.tls_alpn_digest() };
                    let certificate = Arc::new(certificate(&challenge.name, &digest));
                    self.with(|state| state.certificates.insert(challenge.name.clone(), certificate));
                }
                ChallengeKind::Dns01 => {
                    let value = if is_wrong { "wrong".to_owned() } else { challenge.dns_value() };
                    self.set_txt(challenge, Some(&value)).await;
                }
            }
            Ok(())
        })
    }

    fn remove<'a>(&'a self, challenge: &'a Challenge) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if challenge.kind == ChallengeKind::Dns01 {
                self.set_txt(challenge, None).await;
            }
            self.with(|state| {
                state.files.remove(&challenge.http_path());
                state.certificates.remove(&challenge.name);
                state.removed += 1;
            });
        })
    }

    fn order_created<'a>(&'a self, url: &'a str) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            self.with(|state| {
                state.orders.push(url.to_owned());
                state.store_failure.take().map_or(Ok(()), Err)
            })
        })
    }
}

async fn serve_files(listener: TcpListener, state: Arc<std::sync::Mutex<State>>) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let state = state.clone();
        tokio::spawn(async move {
            let (head, _) = read_message(&mut stream).await?;
            let body = state.lock().unwrap().files.get(head.split(' ').nth(1)?).cloned();
            let status = if body.is_some() { "200 OK" } else { "404 Not Found" };
            let body = body.unwrap_or_default();
            let answer =
                format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
            stream.write_all(answer.as_bytes()).await.ok()
        });
    }
}

#[derive(Debug)]
struct ByName(Arc<std::sync::Mutex<State>>);

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.lock().unwrap().certificates.get(hello.server_name()?).cloned()
    }
}

async fn serve_certificates(listener: TcpListener, state: Arc<std::sync::Mutex<State>>) {
    let mut config = server_builder().with_no_client_auth().with_cert_resolver(Arc::new(ByName(state)));
    config.alpn_protocols = vec![TLS_ALPN_PROTOCOL.to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    while let Ok((stream, _)) = listener.accept().await {
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            if let Ok(mut stream) = acceptor.accept(stream).await {
                let _ = stream.shutdown().await;
            }
        });
    }
}

fn certificate(name: &str, digest: &[u8; 32]) -> CertifiedKey {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let chain = vec![CertificateDer::from(params.self_signed(&key).unwrap().der().to_vec())];
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    CertifiedKey::new(chain, rustls::crypto::aws_lc_rs::sign::any_supported_type(&key).unwrap())
}
