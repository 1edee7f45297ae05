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
//!
//! The load often shares its processors with the server that is measured, so it takes as little of them as it can: one
//! thread waits for all connections at once, and there is one for every processor, so that the load is not what bounds it.

use std::{
    io::{Write as _, stdout},
    net::SocketAddr,
    num::NonZero,
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use rustls::pki_types::ServerName;

use crate::{connection::Failure, places::Places, tally::Tally};

mod connection;
mod places;
mod tally;
#[cfg(test)]
mod tests;

const USAGE: &str = "usage: sallyport-tls-load ADDRESS:PORT SERVER_NAME PATH CONNECTIONS SECONDS --full|--resume";

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

    /// What came of all.
    fn run(&self) -> Result<serde_json::Value, Failure> {
        let begin = Instant::now();
        let threads = thread::available_parallelism().map_or(1, NonZero::get).min(self.connections);
        let of_each = (0..threads)
            .map(|one| Places::new(self, self.connections / threads + usize::from(one < self.connections % threads)))
            .collect::<Result<Vec<_>, _>>()?;
        let mut all = Tally::default();
        thread::scope(|scope| {
            let running: Vec<_> =
                of_each.into_iter().map(|places| scope.spawn(|| places.tally(begin + self.lasts))).collect();
            for one in running {
                all.add(one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
            }
            Ok::<_, Failure>(())
        })?;
        Ok(all.said(begin.elapsed()))
    }
}
