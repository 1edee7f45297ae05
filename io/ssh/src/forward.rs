//! One `tcpip-forward` of a client, and its streams.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU32, Ordering},
    },
    time::Duration,
};

use tokio::time::timeout;

use crate::{Connection, SshStream, connection::Inner, stats::count};

const ASKED: u8 = 0;
const GRANTED: u8 = 1;
const REVOKED: u8 = 2;

/// The request of one `-R` option. Clones are the same forward, and equal.
#[derive(Debug, Clone)]
pub struct Forward {
    inner: Arc<ForwardInner>,
}

#[derive(Debug)]
struct ForwardInner {
    connection: Arc<Inner>,
    address: String,
    requested_port: u32,
    port: AtomicU32,
    state: AtomicU8,
    open_time: Duration,
}

/// Reason why a stream was not opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The client could not, or would not, connect to its origin.
    #[error("the ssh client could not connect to the service behind it: {reason}")]
    OriginNotReached {
        /// The reason as defined in RFC 4254 section 5.1.
        reason: &'static str,
    },
    /// The client did not answer in time.
    #[error("the ssh client did not open the stream within {} seconds", after.as_secs())]
    TimedOut {
        /// The timeout.
        after: Duration,
    },
    /// The forward or its connection has ended, or is ending.
    #[error("the ssh connection that this forward belongs to is over")]
    Gone,
    /// The connection has reached its limit of streams.
    #[error("the ssh connection has reached its limit of streams")]
    NoRoom,
}

impl Forward {
    pub(crate) fn new(connection: Arc<Inner>, address: &str, requested_port: u32, open_time: Duration) -> Self {
        let inner = ForwardInner {
            connection,
            address: address.to_owned(),
            requested_port,
            port: AtomicU32::new(requested_port),
            state: AtomicU8::new(ASKED),
            open_time,
        };
        Self { inner: Arc::new(inner) }
    }

    /// The connection of the forward.
    pub fn connection(&self) -> Connection {
        Connection::new(self.inner.connection.clone())
    }

    /// The requested listening address, which the gate interprets: empty, `localhost`, a name.
    pub fn address(&self) -> &str {
        &self.inner.address
    }

    /// The requested port; 0 leaves the choice to the gate.
    pub fn requested_port(&self) -> u32 {
        self.inner.requested_port
    }

    /// The port of the forward as known to the client; 0 until one was chosen.
    pub fn port(&self) -> u32 {
        self.inner.port.load(Ordering::Acquire)
    }

    /// Whether streams can be opened.
    pub fn is_usable(&self) -> bool {
        self.inner.state.load(Ordering::Acquire) == GRANTED && !self.inner.connection.is_closing()
    }

    pub(crate) fn set_port(&self, port: u32) {
        self.inner.port.store(port, Ordering::Release);
    }

    pub(crate) fn grant(&self) {
        self.inner.state.store(GRANTED, Ordering::Release);
    }

    pub(crate) fn revoke(&self) {
        self.inner.state.store(REVOKED, Ordering::Release);
    }

    /// Opens a stream to the client's origin for a visitor from `originator` (RFC 4254 section 7.2). Takes a round trip
    /// plus the client's connection to its origin, at most [`SshConfig::open_time`](crate::SshConfig::open_time).
    pub async fn open(&self, originator: SocketAddr) -> Result<SshStream, OpenError> {
        let connection = &self.inner.connection;
        let result = self.try_open(originator).await;
        match &result {
            Ok(_) => {}
            Err(OpenError::OriginNotReached { .. }) => count(&connection.stats().streams_refused),
            Err(_) => count(&connection.stats().streams_failed),
        }
        result
    }

    async fn try_open(&self, originator: SocketAddr) -> Result<SshStream, OpenError> {
        if !self.is_usable() {
            return Err(OpenError::Gone);
        }
        let connection = &self.inner.connection;
        let place = connection.stream_place().ok_or(OpenError::NoRoom)?;
        let forward = (self.inner.address.as_str(), self.port());
        // A stream that arrives after the caller has stopped waiting is closed again, and counts until then.
        let opened = connection.link().open(forward, originator, connection.clone(), place);
        match timeout(self.inner.open_time, opened.ok_or(OpenError::Gone)?).await {
            Ok(Ok(Ok(stream))) => {
                count(&connection.stats().streams);
                Ok(stream)
            }
            Ok(Ok(Err(code))) => Err(OpenError::OriginNotReached { reason: reason(code) }),
            Ok(Err(_)) => Err(OpenError::Gone),
            Err(_) => Err(OpenError::TimedOut { after: self.inner.open_time }),
        }
    }
}

impl PartialEq for Forward {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for Forward {}

/// The reasons of RFC 4254 section 5.1.
fn reason(code: u32) -> &'static str {
    match code {
        1 => "administratively prohibited",
        2 => "connect failed",
        3 => "unknown channel type",
        4 => "resource shortage",
        _ => "refused",
    }
}
