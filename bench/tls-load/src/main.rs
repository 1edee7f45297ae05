//! The benchmark's load of TLS connections, with a request on each.
//!
//! usage: `sallyport-tls-load ADDRESS:PORT SERVER_NAME PATH CONNECTIONS SECONDS --full|--resume`
//!
//! So many connections are under way at a time. With `--full` each has a whole handshake; with `--resume` each but the
//! first of its place resumes the session of the one before. Says in a line of JSON how many there were, how many of
//! them resumed, how many failed and why the first of these did, how long it took, and the latency from the beginning
//! of a connection to the end of its answer.
//!
//! Every server gets the same offer, of which nothing is to be chosen, so that all do the same work: TLS 1.3, X25519,
//! AES-128-GCM with SHA-256 (which every server must have, RFC 8446 section 9.1), and no ALPN.

use std::{
    fmt,
    io::{ErrorKind, Read as _, Write as _, stdout},
    net::{SocketAddr, TcpStream},
    process::ExitCode,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, HandshakeKind, SignatureScheme, Stream,
    client::{
        Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{
        CryptoProvider,
        aws_lc_rs::{self, cipher_suite, kx_group},
    },
    pki_types::{CertificateDer, ServerName, UnixTime},
    version::TLS13,
};

#[cfg(test)]
mod tests;

const USAGE: &str = "usage: sallyport-tls-load ADDRESS:PORT SERVER_NAME PATH CONNECTIONS SECONDS --full|--resume";
/// How long a peer may take for each step; one that hangs fails its connection and not the run.
const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let load = match Load::parse(&words) {
        Ok(load) => load,
        Err(reason) => {
            eprintln!("{reason}");
            return ExitCode::from(2);
        }
    };
    match load.run() {
        Ok(said) => writeln!(stdout(), "{said}").map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS),
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}

/// What is asked for.
struct Load {
    address: SocketAddr,
    name: ServerName<'static>,
    request: String,
    connections: usize,
    lasts: Duration,
    resumes: bool,
}

impl Load {
    fn parse(words: &[String]) -> Result<Self, String> {
        let [address, name, path, connections, seconds, how] = words else { return Err(USAGE.to_owned()) };
        let wrong = |what: &str, word: &str| format!("{what}, not {word:?}; {USAGE}");
        let address: SocketAddr =
            address.parse().map_err(|_| wrong("ADDRESS:PORT is an IP address and a port", address))?;
        if !path.starts_with('/') {
            return Err(wrong("PATH begins with /", path));
        }
        Ok(Self {
            address,
            name: ServerName::try_from(name.clone()).map_err(|_| wrong("SERVER_NAME is a DNS name", name))?,
            request: format!("GET {path} HTTP/1.1\r\nHost: {name}:{}\r\nConnection: close\r\n\r\n", address.port()),
            connections: connections
                .parse()
                .ok()
                .filter(|count| *count > 0)
                .ok_or_else(|| wrong("CONNECTIONS is a number above 0", connections))?,
            lasts: seconds
                .parse()
                .ok()
                .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
                .ok_or_else(|| wrong("SECONDS is a number", seconds))?,
            resumes: match how.as_str() {
                "--full" => false,
                "--resume" => true,
                _ => return Err(wrong("the last word is --full or --resume", how)),
            },
        })
    }

    /// A thread for each connection that is under way, and what came out of all.
    fn run(&self) -> Result<serde_json::Value, Error> {
        let begin = Instant::now();
        let places = (0..self.connections).map(|_| Place::new(self)).collect::<Result<Vec<_>, _>>()?;
        let mut all = Tally::default();
        thread::scope(|scope| {
            let running: Vec<_> =
                places.iter().map(|place| scope.spawn(move || place.tally(begin + self.lasts))).collect();
            for one in running {
                all.add(one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
        });
        Ok(all.said(begin.elapsed()))
    }
}

/// Where one connection follows the other, each with the session of the one before where sessions are resumed.
struct Place<'a> {
    load: &'a Load,
    tls: Arc<ClientConfig>,
}

impl<'a> Place<'a> {
    fn new(load: &'a Load) -> Result<Self, Error> {
        let provider = CryptoProvider {
            cipher_suites: vec![cipher_suite::TLS13_AES_128_GCM_SHA256],
            kx_groups: vec![kx_group::X25519],
            ..aws_lc_rs::default_provider()
        };
        let mut tls = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyServer))
            .with_no_client_auth();
        tls.resumption = if load.resumes { Resumption::in_memory_sessions(1) } else { Resumption::disabled() };
        Ok(Self { load, tls: Arc::new(tls) })
    }

    /// Connections until then, and one at least.
    fn tally(&self, until: Instant) -> Tally {
        let mut tally = Tally::default();
        loop {
            let begin = Instant::now();
            match self.connect() {
                Ok(resumed) => {
                    tally.resumed += usize::from(resumed);
                    tally.times.push(begin.elapsed());
                }
                Err(failure) => {
                    tally.failed += 1;
                    tally.first_failure.get_or_insert_with(|| failure.to_string());
                }
            }
            if Instant::now() >= until {
                return tally;
            }
        }
    }

    /// One connection, its request and the whole answer; gives whether it resumed a session.
    fn connect(&self) -> Result<bool, Failure> {
        let mut tcp = TcpStream::connect_timeout(&self.load.address, PATIENCE)?;
        tcp.set_nodelay(true)?;
        tcp.set_read_timeout(Some(PATIENCE))?;
        tcp.set_write_timeout(Some(PATIENCE))?;
        let mut tls = ClientConnection::new(Arc::clone(&self.tls), self.load.name.clone())?;
        // Kept until the handshake allows it, and sent together with our Finished then.
        tls.writer().write_all(self.load.request.as_bytes())?;
        let (mut answer, mut part) = (Vec::new(), [0; 4096]);
        // To the end: tickets come beside the answer, and not every server says close_notify after it.
        loop {
            match Stream::new(&mut tls, &mut tcp).read(&mut part) {
                Ok(0) => break,
                Ok(length) => answer.extend_from_slice(&part[..length]),
                Err(error) if error.kind() == ErrorKind::UnexpectedEof && !answer.is_empty() => break,
                Err(error) => return Err(error.into()),
            }
        }
        if !answer.starts_with(b"HTTP/1.1 200") {
            return Err(Failure::Answer(answer));
        }
        Ok(tls.handshake_kind() == Some(HandshakeKind::Resumed))
    }
}

/// Why a connection counts as none.
enum Failure {
    Io(std::io::Error),
    Tls(Error),
    Answer(Vec<u8>),
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Tls(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Tls(error) => error.fmt(f),
            Self::Answer(answer) => {
                write!(f, "answered {:?}", String::from_utf8_lossy(&answer[..answer.len().min(60)]))
            }
        }
    }
}

/// What came of the connections of a place, or of all.
#[derive(Default)]
struct Tally {
    resumed: usize,
    failed: usize,
    first_failure: Option<String>,
    times: Vec<Duration>,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.resumed += other.resumed;
        self.failed += other.failed;
        self.first_failure = self.first_failure.take().or(other.first_failure);
        self.times.extend(other.times);
    }

    fn said(mut self, took: Duration) -> serde_json::Value {
        self.times.sort_unstable();
        let percentile = |percent: usize| {
            self.times.get(self.times.len() * percent / 100).map_or(0.0, |time| time.as_secs_f64() * 1e3)
        };
        serde_json::json!({
            "count": self.times.len(),
            "resumed": self.resumed,
            "failed": self.failed,
            "first_failure": self.first_failure.as_deref().unwrap_or_default(),
            "seconds": took.as_secs_f64(),
            "p50_ms": percentile(50),
            "p99_ms": percentile(99),
        })
    }
}

/// Takes every server for the right one. The load dials an address on its own machine, where the benchmark has just
/// started the server with a certificate that nobody signed, and sends nothing that is secret. What verifying would
/// cost (ECDSA in each whole handshake) is the load's own work, on processors that it may share with the server that is
/// measured.
#[derive(Debug)]
struct AnyServer;

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("the load speaks TLS 1.3 alone".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256, SignatureScheme::RSA_PSS_SHA256]
    }
}
