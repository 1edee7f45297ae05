//! One `tcpip-forward` of a client, and the streams through it.

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

/// What the client asked for with one `-R`. Clones are the same forward, and equal.
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

/// Why a stream was not opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The client is there and could not, or would not, reach its origin.
    #[error("the ssh client could not connect to the service behind it: {reason}")]
    OriginNotReached {
        /// In the words of RFC 4254 section 5.1.
        reason: &'static str,
    },
    /// The client did not answer in time.
    #[error("the ssh client did not open the stream within {} seconds", after.as_secs())]
    TimedOut {
        /// How long it had.
        after: Duration,
    },
    /// The forward or its connection is over, or about to end.
    #[error("the ssh connection that this forward belongs to is over")]
    Gone,
    /// The connection carries as many streams as it may.
    #[error("the ssh connection carries as many streams as one may")]
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

    /// The connection it belongs to.
    pub fn connection(&self) -> Connection {
        Connection::new(self.inner.connection.clone())
    }

    /// The address to listen on as the client says it, for the gate to give a meaning: empty, `localhost`, a name.
    pub fn address(&self) -> &str {
        &self.inner.address
    }

    /// The port that the client asked for; 0 leaves the choice to the gate.
    pub fn requested_port(&self) -> u32 {
        self.inner.requested_port
    }

    /// The port that the client knows the forward by; 0 until a choice has been made.
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
    /// and the client's connection to its origin, and at most
    /// [`SshConfig::open_time`](crate::SshConfig::open_time).
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
        // A stream that comes when the caller has given up is closed again, and keeps its place until then.
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

/// The words of RFC 4254 section 5.1.
fn reason(code: u32) -> &'static str {
    match code {
        1 => "administratively prohibited",
        2 => "connect failed",
        3 => "unknown channel type",
        4 => "resource shortage",
        _ => "refused",
    }
}
