//! Pebble with its name server, and what stands before it.

use std::{
    fs,
    net::{TcpListener, TcpStream, UdpSocket},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rcgen::{CertificateParams, KeyPair};
use sallyport_acme::{AcmeAccount, CertificateRequest, ChallengeKind, DirectoryConfig};
use serde_json::json;

use crate::{
    proxy::Proxy,
    responder::Responder,
    site::{PATIENCE, Site, post},
};

/// A program of `scripts/tools`; `None` with a message if it is missing outside of CI.
fn tool(name: &str) -> Option<PathBuf> {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/tools");
    let output = Command::new(scripts).arg(name).output().unwrap();
    if output.status.success() {
        return Some(String::from_utf8(output.stdout).unwrap().trim().into());
    }
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(std::env::var_os("CI").is_none(), "{name}: {why}");
    println!("skipped: {name} cannot be had here: {}", why.trim());
    None
}

/// A free port, below the ephemeral range of the system, so that no other process gets it before its use.
pub(crate) fn free_port() -> u16 {
    static TRIED: AtomicU16 = AtomicU16::new(0);
    let first = 12_000 + u16::try_from(std::process::id() % 8_000).unwrap();
    loop {
        let port = first + TRIED.fetch_add(1, Ordering::Relaxed);
        // Name servers listen by both protocols.
        if TcpListener::bind(("127.0.0.1", port)).is_ok() && UdpSocket::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// A program that ends with the test, and the file with its output.
struct Running(Child, PathBuf);

impl Running {
    /// Waits until the program listens at these ports. The error is what it printed, after its end.
    fn listens(&mut self, ports: &[u16]) -> Result<(), String> {
        let end = Instant::now() + PATIENCE;
        for &port in ports {
            while TcpStream::connect(("127.0.0.1", port)).is_err() {
                let ended = self.0.try_wait().unwrap();
                if ended.is_some() || Instant::now() > end {
                    let printed = fs::read_to_string(&self.1).unwrap_or_default();
                    return Err(format!("nothing listens at port {port}, {ended:?}: {printed}"));
                }
                thread::sleep(Duration::from_millis(10));
            }
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a test wants of its Pebble.
#[derive(Default)]
pub(crate) struct Wishes {
    /// Whether accounts need a key of an external account.
    pub(crate) is_external_account_required: bool,
    /// How many nonces of a hundred are refused.
    pub(crate) bad_nonces_percent: u8,
    /// Whether valid authorizations are used again.
    pub(crate) reuses_authorizations: bool,
}

/// A running Pebble.
pub(crate) struct Pebble {
    pub(crate) site: Arc<Site>,
    pub(crate) port: u16,
    pub(crate) responder: Arc<Responder>,
    management_port: u16,
    _programs: [Running; 2],
    _dir: tempfile::TempDir,
}

pub(crate) const KID: &str = "kid-1";
pub(crate) const HMAC_KEY: &str = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W";

fn start(program: &Path, dir: &Path, arguments: &[String], environment: &[(&str, String)]) -> Running {
    let path = dir.join(format!("{}.log", program.file_name().unwrap().display()));
    let log = fs::File::create(&path).unwrap();
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    Running(command.envs(environment.iter().map(|(name, value)| (name, value))).spawn().unwrap(), path)
}

impl Pebble {
    /// A Pebble, or `None` if it cannot be had here.
    pub(crate) async fn start() -> Option<Self> {
        Self::start_with(Wishes::default()).await
    }

    pub(crate) async fn start_with(wishes: Wishes) -> Option<Self> {
        let (pebble, names) = (tool("pebble")?, tool("pebble-challtestsrv")?);
        let mut why = String::new();
        // Another program may have taken a port since it was looked for.
        for _ in 0..3 {
            match Self::run(&pebble, &names, &wishes).await {
                Ok(started) => return Some(started),
                Err(error) => why = error,
            }
        }
        panic!("{why}");
    }

    /// Pebble at free ports. The error is what a program printed that ended at once.
    async fn run(pebble: &Path, names: &Path, wishes: &Wishes) -> Result<Self, String> {
        let dir = tempfile::tempdir().unwrap();
        let site = Arc::new(Site::new());
        fs::write(dir.path().join("cert.pem"), &site.chain_pem).unwrap();
        fs::write(dir.path().join("key.pem"), &site.key_pem).unwrap();
        let [port, management_port, http_port, tls_port, dns_port, names_port] = std::array::from_fn(|_| free_port());
        let config = json!({"pebble": {
            "listenAddress": format!("127.0.0.1:{port}"),
            "managementListenAddress": format!("127.0.0.1:{management_port}"),
            "certificate": dir.path().join("cert.pem"),
            "privateKey": dir.path().join("key.pem"),
            "httpPort": http_port,
            "tlsPort": tls_port,
            "keyAlgorithm": "ecdsa",
            "externalAccountBindingRequired": wishes.is_external_account_required,
            "externalAccountMACKeys": {KID: HMAC_KEY},
            "profiles": {
                "default": {"description": "90 days", "validityPeriod": 7_776_000},
                "short": {"description": "6 days", "validityPeriod": 518_400},
            },
        }});
        fs::write(dir.path().join("pebble.json"), config.to_string()).unwrap();
        let server = |name: &str, port: u16| [format!("-{name}"), format!("127.0.0.1:{port}")];
        let mut arguments = [server("dnsserver", dns_port), server("management", names_port)].concat();
        for unused in ["-http01", "-https01", "-tlsalpn01", "-doh", "-defaultIPv6"] {
            arguments.extend([unused.to_owned(), String::new()]);
        }
        let mut names = start(names, dir.path(), &arguments, &[]);
        let config = dir.path().join("pebble.json").display().to_string();
        let arguments = ["-config".to_owned(), config, "-dnsserver".to_owned(), format!("127.0.0.1:{dns_port}")];
        let reuse = if wishes.reuses_authorizations { "100" } else { "0" };
        let environment = [
            ("PEBBLE_VA_NOSLEEP", "1".to_owned()),
            ("PEBBLE_AUTHZREUSE", reuse.to_owned()),
            ("PEBBLE_WFE_NONCEREJECT", wishes.bad_nonces_percent.to_string()),
        ];
        let mut pebble = start(pebble, dir.path(), &arguments, &environment);
        names.listens(&[dns_port, names_port])?;
        pebble.listens(&[port, management_port])?;
        let responder = Responder::start(http_port, tls_port, names_port).await;
        Ok(Self { site, port, responder, management_port, _programs: [names, pebble], _dir: dir })
    }

    /// The configuration of a client that goes straight to Pebble.
    pub(crate) fn config(&self) -> DirectoryConfig {
        self.config_at(self.port)
    }

    fn config_at(&self, port: u16) -> DirectoryConfig {
        DirectoryConfig {
            url: format!("https://localhost:{port}/dir"),
            roots_pem: Some(self.site.root_pem.clone()),
            contact: Some("me@example.com".to_owned()),
            ..DirectoryConfig::default()
        }
    }

    pub(crate) async fn account(&self) -> AcmeAccount {
        AcmeAccount::create(&self.config()).await.unwrap().0
    }

    /// A proxy before Pebble, and the configuration of a client that goes through it.
    pub(crate) async fn proxy(&self) -> (Arc<Proxy>, DirectoryConfig) {
        let proxy = Proxy::start(self.site.clone(), self.port).await;
        let config = self.config_at(proxy.port);
        (proxy, config)
    }

    /// Sets what Pebble answers about the renewal of a certificate.
    pub(crate) async fn set_renewal_info(&self, chain_pem: &str, answer: &str) {
        let body = json!({"certificate": chain_pem, "ariResponse": answer}).to_string();
        post(self.management_port, Some(&self.site.root_pem), "/set-renewal-info/", &body).await;
    }
}

/// Names and a signing request for them.
pub(crate) struct Wanted {
    pub(crate) names: Vec<String>,
    pub(crate) csr_der: Vec<u8>,
    pub(crate) kinds: Vec<ChallengeKind>,
}

impl Wanted {
    pub(crate) fn new(names: &[&str], kinds: &[ChallengeKind]) -> Self {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names.clone()).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        let csr = params.serialize_request(&KeyPair::generate().unwrap()).unwrap();
        Self { names, csr_der: csr.der().to_vec(), kinds: kinds.to_vec() }
    }

    pub(crate) fn request(&self) -> CertificateRequest<'_> {
        CertificateRequest {
            names: &self.names,
            csr_der: &self.csr_der,
            replaces: None,
            challenge_kinds: &self.kinds,
            profile: None,
            order_url: None,
            time_limit: PATIENCE,
        }
    }
}
