//! A proxy before Pebble that does what CAs and networks do wrong.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

use crate::site::{PATIENCE, Site, read_message};

/// What goes wrong.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// This answer in place of Pebble's.
    Answer { status: u16, fields: &'static str, body: String },
    /// The connection ends without an answer.
    Drop,
    /// Pebble does as asked, and its answer is lost.
    LoseAnswer,
    /// A body without an end.
    Endless,
    /// A head without an end.
    EndlessHead,
    /// No answer, for longer than anybody waits.
    Silence,
    /// No HTTP.
    Garbage,
    /// In Pebble's answer every first text becomes the second.
    Replace(&'static str, &'static str),
}

impl Fault {
    pub(crate) fn problem(status: u16, fields: &'static str, kind: &str, detail: &str) -> Self {
        let body = format!(r#"{{"type":"urn:ietf:params:acme:error:{kind}","detail":"{detail}","status":{status}}}"#);
        Self::Answer { status, fields, body }
    }

    pub(crate) fn answer(status: u16, fields: &'static str, body: &str) -> Self {
        Self::Answer { status, fields, body: body.to_owned() }
    }
}

struct Rule {
    /// The beginning of the requests, such as `POST /order-plz`.
    of: &'static str,
    /// Requests that pass before it applies.
    after: u32,
    /// How often it applies.
    times: u32,
    fault: Fault,
}

pub(crate) struct Proxy {
    pub(crate) port: u16,
    site: Arc<Site>,
    pebble_port: u16,
    rules: Mutex<Vec<Rule>>,
    /// The heads of all requests.
    requests: Mutex<Vec<String>>,
}

impl Proxy {
    pub(crate) async fn start(site: Arc<Site>, pebble_port: u16) -> Arc<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let acceptor = TlsAcceptor::from(site.server());
        let proxy = Arc::new(Self { port, site, pebble_port, rules: Mutex::default(), requests: Mutex::default() });
        let serving = proxy.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (serving, acceptor) = (serving.clone(), acceptor.clone());
                tokio::spawn(async move { serving.serve(acceptor.accept(stream).await.ok()?).await });
            }
        });
        proxy
    }

    /// The next requests of this kind go wrong.
    pub(crate) fn spoil(&self, of: &'static str, times: u32, fault: Fault) {
        self.spoil_after(of, 0, times, fault);
    }

    pub(crate) fn spoil_after(&self, of: &'static str, after: u32, times: u32, fault: Fault) {
        self.rules.lock().unwrap().push(Rule { of, after, times, fault });
    }

    pub(crate) fn mend(&self) {
        self.rules.lock().unwrap().clear();
    }

    /// How many requests of this kind arrived.
    pub(crate) fn count(&self, of: &str) -> usize {
        self.requests.lock().unwrap().iter().filter(|request| request.starts_with(of)).count()
    }

    /// Whether every request so far has this header field.
    pub(crate) fn have_all(&self, field: &str) -> bool {
        self.requests.lock().unwrap().iter().all(|head| head.to_ascii_lowercase().contains(field))
    }

    fn fault(&self, head: &str) -> Option<Fault> {
        self.requests.lock().unwrap().push(head.to_owned());
        let mut rules = self.rules.lock().unwrap();
        let rule = rules.iter_mut().find(|rule| head.starts_with(rule.of) && rule.times > 0)?;
        if rule.after > 0 {
            rule.after -= 1;
            return None;
        }
        rule.times -= 1;
        Some(rule.fault.clone())
    }

    async fn serve<S: AsyncRead + AsyncWrite + Unpin>(&self, mut stream: S) -> Option<()> {
        let (head, body) = read_message(&mut stream).await?;
        let fault = self.fault(&head);
        let answer = match &fault {
            Some(Fault::Answer { status, fields, body }) => format!(
                "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n{fields}Content-Length: {}\r\n\r\n{body}",
                body.len()
            )
            .into_bytes(),
            Some(Fault::Drop) => return None,
            Some(Fault::Silence) => {
                tokio::time::sleep(PATIENCE * 10).await;
                return None;
            }
            Some(Fault::Garbage) => b"SSH-2.0-OpenSSH_9.9\r\n\r\n".to_vec(),
            Some(Fault::Endless) => return endless(&mut stream, "HTTP/1.1 200 OK\r\n\r\n", "{ \"a\": \"").await,
            Some(Fault::EndlessHead) => return endless(&mut stream, "HTTP/1.1 200 OK\r\n", "X: y\r\n").await,
            Some(Fault::LoseAnswer | Fault::Replace(..)) | None => self.forward(&head, &body).await?,
        };
        let answer = match fault {
            Some(Fault::LoseAnswer) => return None,
            Some(Fault::Replace(from, to)) => replaced(&answer, from, to),
            _ => answer,
        };
        stream.write_all(&answer).await.ok()?;
        stream.shutdown().await.ok()
    }

    async fn forward(&self, head: &str, body: &[u8]) -> Option<Vec<u8>> {
        let tls = sallyport_net::client_config_of_pem(self.site.root_pem.as_bytes(), &[])?;
        let stream = sallyport_net::connect_tcp("127.0.0.1", self.pebble_port, PATIENCE).await.ok()?;
        let stream = sallyport_net::start_tls(stream, "127.0.0.1", self.pebble_port, "localhost", tls, PATIENCE).await;
        let mut stream = stream.ok()?;
        stream.write_all(head.as_bytes()).await.ok()?;
        stream.write_all(body).await.ok()?;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        Some(answer)
    }
}

/// The answer with another text in its body, and without the length that is no longer right.
fn replaced(answer: &[u8], from: &str, to: &str) -> Vec<u8> {
    let text = String::from_utf8_lossy(answer);
    assert!(text.contains(from), "{text}");
    let lines = text.split_inclusive("\r\n").filter(|line| !line.to_ascii_lowercase().starts_with("content-length"));
    lines.collect::<String>().replace(from, to).into_bytes()
}

async fn endless<S: AsyncWrite + Unpin>(stream: &mut S, head: &str, part: &str) -> Option<()> {
    stream.write_all(head.as_bytes()).await.ok()?;
    let part = part.repeat(1_000);
    loop {
        stream.write_all(part.as_bytes()).await.ok()?;
        tokio::time::sleep(Duration::from_micros(10)).await;
    }
}
