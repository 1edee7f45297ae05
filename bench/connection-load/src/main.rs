//! The benchmark's load of connections, with a request on each.
//!
//! usage: `sallyport-connection-load ADDRESS:PORT SERVER_NAME PATH CONNECTIONS SECONDS --full|--resume|--plain`
//!
//! So many connections are under way at a time, and in 0 seconds there are so many at one moment and no more. With
//! `--full` each has a whole TLS handshake; with `--resume` each but the first of its place resumes the session of the
//! one before; with `--plain` they have no TLS. Says in a line of JSON how many there were, how many of them resumed,
//! how many failed and why the first of these did, how long it took, and the latency from the beginning of a connection
//! to the beginning of its answer and to its end.
//!
//! With TLS every server gets the same offer, of which nothing is to be chosen, so that all do the same work: TLS 1.3, X25519,
//! AES-128-GCM with SHA-256 (which every server must have, RFC 8446 section 9.1), and no ALPN.
//!
//! The load often shares its processors with the server that is measured, so it takes as little of them as it can: one
//! thread waits for all connections at once, and there is one for every processor, so that the load is not what bounds it.

use std::{
    io::{self, Write as _, stdout},
    net::SocketAddr,
    num::NonZero,
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use mio::Poll;
use rustls::pki_types::ServerName;

use crate::{connection::Failure, places::Places, tally::Tally};

mod connection;
mod offer;
mod places;
mod tally;
#[cfg(test)]
mod tests;

const USAGE: &str =
    "usage: sallyport-connection-load ADDRESS:PORT SERVER_NAME PATH CONNECTIONS SECONDS --full|--resume|--plain";

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

/// Lets the table of descriptors grow while there is one thread. With several, each time it grows the kernel waits until no
/// processor uses the old one any more (`expand_fdtable` in its `fs/file.c`), for some 10 ms of which a connection could be
/// under way.
fn make_room(connections: usize) -> io::Result<()> {
    let one = Poll::new()?;
    (0..connections).map(|_| one.registry().try_clone()).collect::<io::Result<Vec<_>>>().map(drop)
}

/// What is asked for.
struct Load {
    address: SocketAddr,
    name: ServerName<'static>,
    request: String,
    connections: usize,
    lasts: Duration,
    how: How,
}

/// What a connection has before its request.
#[derive(Clone, Copy)]
enum How {
    /// A whole TLS handshake.
    Full,
    /// A TLS handshake that resumes the session of the connection before.
    Resume,
    /// No TLS.
    Plain,
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
            how: match how.as_str() {
                "--full" => How::Full,
                "--resume" => How::Resume,
                "--plain" => How::Plain,
                _ => return Err(wrong("the last word is --full, --resume or --plain", how)),
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
        make_room(self.connections)?;
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
