//! Pebble, the ACME server of these tests, with the name server that it asks.

use std::{
    fs,
    net::{Shutdown, TcpListener, TcpStream},
    path::PathBuf,
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

use serde_json::{Value, json};

use crate::{
    harness::{Home, Program, text, wait_until},
    protocols::tool,
    tcp::free_port,
};

/// The id and the key of an account at its site.
pub(crate) const EXTERNAL_ACCOUNT: (&str, &str) =
    ("kid-1", "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W");

/// A way to a port of this machine that can be shut.
pub(crate) struct Gate {
    pub(crate) port: u16,
    state: Arc<GateState>,
}

#[derive(Default)]
struct GateState {
    is_shut: AtomicBool,
    refused: AtomicUsize,
    open: Mutex<Vec<TcpStream>>,
}

impl Gate {
    pub(crate) fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let gate = Self { port: listener.local_addr().unwrap().port(), state: Arc::default() };
        let state = gate.state.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if state.is_shut.load(SeqCst) {
                    state.refused.fetch_add(1, SeqCst);
                    continue;
                }
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                let ways = [(&client, &server), (&server, &client)].map(|(from, to)| (clone(from), clone(to)));
                state.open.lock().unwrap().extend([client, server]);
                for (mut from, mut to) in ways {
                    thread::spawn(move || {
                        let _ = std::io::copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Write);
                    });
                }
            }
        });
        gate
    }

    /// Ends all connections, and refuses others from now on.
    pub(crate) fn shut(&self) {
        self.state.is_shut.store(true, SeqCst);
        for stream in self.state.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    pub(crate) fn open(&self) {
        self.state.is_shut.store(false, SeqCst);
    }

    /// How many connections it has refused.
    pub(crate) fn refused(&self) -> usize {
        self.state.refused.load(SeqCst)
    }
}

fn clone(stream: &TcpStream) -> TcpStream {
    stream.try_clone().unwrap()
}

/// A Pebble, and the name server of its tests.
pub(crate) struct Pebble {
    pub(crate) dir: PathBuf,
    port: u16,
    management: u16,
    /// The port of the directory that servers are given: its own, or that of a [`Gate`].
    pub(crate) directory: u16,
    /// The ports at which it verifies names.
    pub(crate) tls: u16,
    pub(crate) http: u16,
    /// The name server that it asks, and where its records are set.
    dns: u16,
    records: u16,
    programs: Vec<Program>,
}

impl Pebble {
    /// `None` with a message if it is missing outside of CI. It asks the name server at `dns`, or one of its own.
    pub(crate) fn start(home: &Home, dns: Option<u16>, environment: &[(&str, &str)]) -> Option<Self> {
        Self::start_as(home, dns, environment, false)
    }

    /// The same, for accounts of its site alone: those of [`EXTERNAL_ACCOUNT`].
    pub(crate) fn start_for_members(home: &Home) -> Option<Self> {
        Self::start_as(home, None, &[], true)
    }

    fn start_as(home: &Home, dns: Option<u16>, environment: &[(&str, &str)], for_members: bool) -> Option<Self> {
        let (pebble, names) = (tool("pebble")?, tool("pebble-challtestsrv")?);
        let dir = home.dir.path().join("pebble");
        fs::create_dir_all(&dir).unwrap();
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"])
            .args(["-subj", "/CN=pebble", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout"])
            .arg(dir.join("key.pem"))
            .arg("-out")
            .arg(dir.join("cert.pem"))
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", text(&made.stderr));
        let [port, management, tls, http, records] = std::array::from_fn(|_| free_port());
        let mut programs = Vec::new();
        let dns = dns.unwrap_or_else(|| {
            let own = free_port();
            let mut command = Command::new(&names);
            command.args(["-defaultIPv4", "127.0.0.1", "-defaultIPv6", "", "-doh", ""]);
            command.args(["-http01", "", "-https01", "", "-tlsalpn01", "", "-dnsserver"]);
            command.arg(format!("127.0.0.1:{own}")).arg("-management").arg(format!("127.0.0.1:{records}"));
            programs.push(Program::start(&mut command));
            wait_until("pebble-challtestsrv", || TcpStream::connect(("127.0.0.1", records)).ok());
            own
        });
        let config = json!({"pebble": {
            "listenAddress": format!("127.0.0.1:{port}"), "managementListenAddress": format!("127.0.0.1:{management}"),
            "certificate": dir.join("cert.pem"), "privateKey": dir.join("key.pem"),
            "httpPort": http, "tlsPort": tls, "ocspResponderURL": "", "externalAccountBindingRequired": for_members,
            "externalAccountMACKeys": {EXTERNAL_ACCOUNT.0: EXTERNAL_ACCOUNT.1},
            "retryAfter": {"authz": 1, "order": 1},
            "profiles": {
                "default": {"description": "90 days", "validityPeriod": 7_776_000},
                "short": {"description": "6 days", "validityPeriod": 518_400},
            },
        }});
        fs::write(dir.join("pebble.json"), config.to_string()).unwrap();
        let mut command = Command::new(&pebble);
        command.arg("-config").arg(dir.join("pebble.json")).args(["-dnsserver", &format!("127.0.0.1:{dns}")]);
        command.env("PEBBLE_VA_NOSLEEP", "1").env("PEBBLE_WFE_NONCEREJECT", "0").envs(environment.iter().copied());
        programs.push(Program::start(&mut command));
        wait_until("pebble", || TcpStream::connect(("127.0.0.1", port)).ok());
        let new = Self { dir, port, management, directory: port, tls, http, dns, records, programs };
        let root = new.ask(&format!("https://127.0.0.1:{management}/roots/0"));
        fs::write(new.root(), root).unwrap();
        Some(new)
    }

    fn ask(&self, url: &str) -> String {
        let got =
            Command::new("curl").args(["-fsS", "--cacert"]).arg(self.dir.join("cert.pem")).arg(url).output().unwrap();
        assert!(got.status.success(), "{}", text(&got.stderr));
        text(&got.stdout)
    }

    /// The root of its certificates.
    pub(crate) fn root(&self) -> PathBuf {
        self.dir.join("root.pem")
    }

    /// Its port.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The URL of the directory that servers are given.
    fn url(&self) -> String {
        format!("https://127.0.0.1:{}/dir", self.directory)
    }

    /// Sets what it suggests for the renewal of a certificate in PEM: times such as `2026-01-01T00:00:00Z`.
    pub(crate) fn suggest_renewal(&self, certificate: &str, start: &str, end: &str) {
        let window = json!({"suggestedWindow": {"start": start, "end": end}}).to_string();
        let body = json!({"certificate": certificate, "ariResponse": window}).to_string();
        let url = format!("https://127.0.0.1:{}/set-renewal-info/", self.management);
        let mut curl = Command::new("curl");
        curl.args(["-fsS", "-d", &body, "--cacert"]).arg(self.dir.join("cert.pem")).arg(url);
        let set = curl.output().unwrap();
        assert!(set.status.success(), "{}", text(&set.stderr));
    }

    /// The options of a server for it.
    pub(crate) fn options(&self) -> Vec<String> {
        let words = [
            "--acme",
            "ann@example.com",
            "--acme-directory",
            &self.url(),
            "--acme-root",
            self.dir.join("cert.pem").to_str().unwrap(),
            "--resolver",
            &format!("127.0.0.1:{}", self.dns),
        ]
        .map(str::to_owned);
        words.to_vec()
    }

    /// Sets a record of its name server: `set-txt`, `add-a`.
    pub(crate) fn set(&self, what: &str, body: &Value) {
        let url = format!("http://127.0.0.1:{}/{what}", self.records);
        let set = Command::new("curl").args(["-fsS", "-d", &body.to_string(), &url]).output().unwrap();
        assert!(set.status.success(), "{}", text(&set.stderr));
    }

    /// How many certificates it has issued.
    pub(crate) fn issued(&self) -> usize {
        self.programs.last().unwrap().output().matches("Issued certificate").count()
    }
}

/// The certificate that openssl's client prints, if it has verified one.
///
/// The line about the verification alone says nothing: it is also printed when no certificate came.
pub(crate) fn verified_certificate(printed: &str) -> Option<String> {
    let begin = printed.find("-----BEGIN CERTIFICATE-----")?;
    const END: &str = "-----END CERTIFICATE-----\n";
    let end = printed.find(END)? + END.len();
    printed.contains("Verify return code: 0 (ok)").then(|| printed[begin..end].to_owned())
}

/// Proves a domain: sets its record, as `domain show` names it.
pub(crate) fn prove(home: &Home, pebble: &Pebble, name: &str) {
    let shown = home.json(&["domain", "show", name]);
    let (at, value) = (&shown["records"][0]["name"], &shown["records"][0]["value"]);
    pebble.set("set-txt", &json!({"host": format!("{}.", at.as_str().unwrap()), "value": value}));
}
