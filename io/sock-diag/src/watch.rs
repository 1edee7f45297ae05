//! Repeated readings of the same connections.

use std::{net::SocketAddr, time::Duration};

use sallyport_tcp_window::{Sample, Target};

use crate::{Reader, Reading, SockDiagError, socket_inodes};

/// The most connections that are watched at a time.
pub const MAX_WATCHED: usize = 64;
/// The most readings that are kept of a connection.
pub const MAX_SAMPLES: usize = 100_000;

/// The connections of a target, with their readings.
#[derive(Debug)]
pub struct Watch {
    reader: Reader,
    watched: Vec<Watched>,
    left_out: usize,
}

/// One connection, with its readings in the order of time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watched {
    cookie: u64,
    /// The local end.
    pub local: SocketAddr,
    /// The remote end.
    pub remote: SocketAddr,
    /// Whether it ended while it was watched.
    pub has_ended: bool,
    /// The readings.
    pub samples: Vec<Sample>,
}

impl Watch {
    /// Finds the connections that the target has now, and reads them for the first time.
    ///
    /// # Errors
    /// Sockets cannot be read, there is no such process, or it is of another user.
    pub fn begin(target: Target) -> Result<Self, SockDiagError> {
        let inodes = match target {
            Target::Process(pid) => socket_inodes(pid)?,
            Target::Port(_) | Target::Flow(..) => Default::default(),
        };
        let mut reader = Reader::open()?;
        let is_meant =
            |reading: &Reading| target.has_ends(reading.local, reading.remote) || inodes.contains(&reading.inode);
        let mut found = reader.connections()?;
        found.retain(is_meant);
        let left_out = found.len().saturating_sub(MAX_WATCHED);
        let watched = found.into_iter().take(MAX_WATCHED).map(|reading| Watched {
            cookie: reading.cookie,
            local: reading.local,
            remote: reading.remote,
            has_ended: false,
            samples: vec![reading.sample],
        });
        let watched = watched.collect();
        Ok(Self { reader, watched, left_out })
    }

    /// Reads all connections again, at this time since the first reading.
    ///
    /// # Errors
    /// Sockets cannot be read.
    pub fn read(&mut self, since_first: Duration) -> Result<(), SockDiagError> {
        let found = self.reader.connections()?;
        let at_us = u64::try_from(since_first.as_micros()).unwrap_or(u64::MAX);
        for watched in &mut self.watched {
            match found.iter().find(|reading| reading.cookie == watched.cookie) {
                Some(reading) if !watched.has_ended && watched.samples.len() < MAX_SAMPLES => {
                    watched.samples.push(Sample { at_us, ..reading.sample });
                }
                Some(_) => {}
                None => watched.has_ended = true,
            }
        }
        Ok(())
    }

    /// Whether a connection still runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.watched.iter().any(|watched| !watched.has_ended)
    }

    /// The connections.
    #[must_use]
    pub fn watched(&self) -> &[Watched] {
        &self.watched
    }

    /// How many connections of the target are not watched, because there are more than [`MAX_WATCHED`].
    #[must_use]
    pub fn left_out(&self) -> usize {
        self.left_out
    }
}
