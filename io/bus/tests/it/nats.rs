//! A NATS server for the tests.

use std::{
    net::{TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicU16, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use sallyport_bus::{BusConfig, BusCredentials};

/// The longest wait in a test, generous for busy machines.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The path of the NATS server; `None` where it is not installed outside of CI, with the reason printed.
fn program() -> Option<PathBuf> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    FOUND
        .get_or_init(|| {
            let tools = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/tools");
            let found = Command::new(tools).arg("nats-server").stderr(Stdio::inherit()).output().ok();
            let path = found.filter(|found| found.status.success());
            let path = path.map(|found| PathBuf::from(String::from_utf8_lossy(&found.stdout).trim()));
            if path.is_none() {
                assert!(std::env::var_os("CI").is_none(), "nats-server must be there in CI: scripts/tools nats-server");
                println!("skipped: nats-server cannot be built here (scripts/tools nats-server says why)");
            }
            path
        })
        .clone()
}

/// A running server, stopped on drop.
pub(crate) struct Nats {
    child: Option<Child>,
    dir: tempfile::TempDir,
    program: PathBuf,
    pub(crate) port: u16,
    more: String,
}

/// A free port, below the ephemeral range of the system. No other process gets the port before its use, nor while the
/// server is stopped.
fn free_port() -> u16 {
    static TRIED: AtomicU16 = AtomicU16::new(0);
    let first = 21_000 + u16::try_from(std::process::id() % 8_000).unwrap();
    loop {
        let port = first + TRIED.fetch_add(1, Ordering::Relaxed);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

impl Nats {
    pub(crate) fn start(more: &str) -> Option<Self> {
        let program = program()?;
        let port = free_port();
        let mut nats = Self { child: None, dir: tempfile::tempdir().unwrap(), program, port, more: more.to_owned() };
        nats.resume();
        Some(nats)
    }

    /// Starts the server again on the same port.
    pub(crate) fn resume(&mut self) {
        let config = self.dir.path().join("nats.conf");
        let store = self.dir.path().join("store");
        let text = format!(
            "listen: 127.0.0.1:{}\njetstream {{ store_dir: {:?}, max_mem: 64M, max_file: 256M }}\n{}\n",
            self.port, store, self.more
        );
        std::fs::write(&config, text).unwrap();
        let log = std::fs::File::create(self.dir.path().join("log")).unwrap();
        let mut command = Command::new(&self.program);
        command.arg("-c").arg(&config).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.child = Some(command.spawn().unwrap());
        let end = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(Instant::now() < end, "{}", std::fs::read_to_string(self.dir.path().join("log")).unwrap());
            thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            drop(child.kill());
            drop(child.wait());
        }
    }

    /// Deletes all stored data.
    pub(crate) fn wipe(&mut self) {
        self.kill();
        std::fs::remove_dir_all(self.dir.path().join("store")).unwrap();
    }

    pub(crate) fn config(&self) -> BusConfig {
        BusConfig {
            servers: vec![format!("nats://127.0.0.1:{}", self.port)],
            credentials: BusCredentials::None,
            ca: None,
            name: "test".to_owned(),
            is_edge: false,
        }
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Polls until the condition holds.
pub(crate) async fn until(what: &str, mut ask: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !ask() {
        assert!(Instant::now() < end, "waited {PATIENCE:?} for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
