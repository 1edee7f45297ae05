//! A PostgreSQL server for tests. The tests of other crates that need one are built with this file too.

use std::{
    io::{BufRead, BufReader},
    net::TcpListener,
    path::Path,
    process::{ChildStdin, Command, Stdio},
    sync::OnceLock,
};

/// Starts a server in a folder of its own, prints its port, and stops the server at the end of standard input.
const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/postgres");
/// The count of ports tried, since another process may take a port after it was found free.
const ATTEMPTS: u16 = 3;

/// A server that runs as long as this program.
pub(crate) struct Server {
    pub(crate) port: u16,
    _input: ChildStdin,
}

/// The server; `None` where PostgreSQL is not installed, with the reason printed.
pub(crate) fn server() -> Option<&'static Server> {
    static SERVER_OF_ALL: OnceLock<Result<Server, String>> = OnceLock::new();
    match SERVER_OF_ALL.get_or_init(start_somewhere) {
        Ok(server) => Some(server),
        Err(reason) => {
            let is_there = Path::new("/usr/lib/postgresql").is_dir();
            assert!(!is_there || std::env::var_os("CI").is_none(), "PostgreSQL must start in CI: {reason}");
            println!("skipped: PostgreSQL cannot be started here: {reason}");
            None
        }
    }
}

impl Server {
    /// The start of the addresses of its databases.
    pub(crate) fn base(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}", self.port)
    }
}

/// Starts the server on a port below the ephemeral range of the system.
fn start_somewhere() -> Result<Server, String> {
    let first = 21_000 + u16::try_from(std::process::id() % 8_000).unwrap();
    let mut free = (first..).filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    let mut reason = String::new();
    for _ in 0..ATTEMPTS {
        match start(free.next().unwrap()) {
            Ok(server) => return Ok(server),
            Err(why) => reason = why,
        }
    }
    Err(reason)
}

fn start(port: u16) -> Result<Server, String> {
    let mut child = Command::new(SERVER)
        .arg(port.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).map_err(|error| error.to_string())?;
    if line.trim() != "ready" {
        let output = child.wait_with_output().map_err(|error| error.to_string())?;
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    Ok(Server { port, _input: child.stdin.take().unwrap() })
}
