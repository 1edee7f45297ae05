//! One `tcpip-forward` of a client, and the streams through it.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU32, Ordering},
    },
    time::Duration,
};

use russh::ChannelOpenFailure;
use tokio::{sync::oneshot, time::timeout};

use crate::{
    Connection, SshStream,
    connection::{Inner, StreamPlace},
    stats::count,
};

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
        let place = self.inner.connection.stream_place().ok_or(OpenError::NoRoom)?;
        let (sender, opened) = oneshot::channel();
        let forward = self.clone();
        // A task of its own: the client's answer must be taken even when the caller has given up, and then the channel
        // is closed again by the stream that nobody takes.
        tokio::spawn(async move {
            let _ = sender.send(forward.open_channel(originator, place).await);
        });
        match timeout(self.inner.open_time, opened).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(OpenError::Gone),
            Err(_) => Err(OpenError::TimedOut { after: self.inner.open_time }),
        }
    }

    async fn open_channel(&self, originator: SocketAddr, place: StreamPlace) -> Result<SshStream, OpenError> {
        let connection = &self.inner.connection;
        let handle = connection.handle().ok_or(OpenError::Gone)?;
        let (address, from) = (self.inner.address.as_str(), originator.ip().to_canonical().to_string());
        let opening =
            handle.channel_open_forwarded_tcpip(address, self.port(), from, u32::from(originator.port())).await;
        match opening {
            Ok(channel) => {
                let inbound = connection.channel(channel.id()).ok_or(OpenError::Gone)?;
                place.count_open();
                Ok(SshStream::new(channel, inbound, connection.clone(), place))
            }
            Err(russh::Error::ChannelOpenFailure(failure)) => {
                Err(OpenError::OriginNotReached { reason: reason(failure) })
            }
            Err(_) => Err(OpenError::Gone),
        }
    }
}

impl PartialEq for Forward {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for Forward {}

fn reason(failure: ChannelOpenFailure) -> &'static str {
    match failure {
        ChannelOpenFailure::AdministrativelyProhibited => "administratively prohibited",
        ChannelOpenFailure::ConnectFailed => "connect failed",
        ChannelOpenFailure::UnknownChannelType => "unknown channel type",
        ChannelOpenFailure::ResourceShortage => "resource shortage",
        _ => "refused",
    }
}
