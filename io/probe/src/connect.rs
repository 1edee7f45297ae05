//! The time of a TCP connect.

use std::{
    io,
    net::SocketAddr,
    time::{Duration, Instant},
};

use sallyport_connectx::Connect;

use crate::{ProbeError, no_answer, unreachable};

/// The outcome of a connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connection {
    /// The time from the connect to its outcome, by the monotonic clock of this process.
    pub time: Duration,
    /// Whether the port is closed. The refusal was an answer, and its time is that of a round trip.
    pub is_refused: bool,
}

/// Connects to a port, and closes the connection. A refusal counts as an answer: a packet went there, and one came
/// back.
///
/// # Errors
/// Nothing answers in time, or the system cannot reach the address.
pub async fn connect(target: SocketAddr, timeout: Duration) -> Result<Connection, ProbeError> {
    let started = Instant::now();
    let outcome = tokio::time::timeout(timeout, Connect::to(target).tcp_async()).await;
    let time = started.elapsed();
    match outcome {
        Ok(Ok(_)) => Ok(Connection { time, is_refused: false }),
        Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(Connection { time, is_refused: true }),
        Ok(Err(error)) => Err(unreachable(target, error.into())),
        Err(_) => Err(no_answer(target, timeout)),
    }
}
