//! Tells secondaries that a zone has changed.

use std::{io, net::SocketAddr, time::Duration};

use sallyport_zone::{
    Name, TsigKeys, Zone,
    transfer::{NotifyAnswer, notify_message, read_notify_answer},
};
use tokio::{net::UdpSocket, time::timeout};

use crate::current::now;

/// How often a notice is sent until the secondary answers.
const MAX_TRIES: u32 = 5;
/// The wait for the first answer. Each further wait is twice as long.
const FIRST_WAIT: Duration = Duration::from_secs(2);
/// The longest answer, in bytes.
const MAX_ANSWER_BYTES: usize = 4_096;

/// Why a secondary does not know of a change.
#[derive(Debug, thiserror::Error)]
pub enum NotifyError {
    /// It does not answer.
    #[error("the secondary {0} does not answer notices")]
    Silent(SocketAddr),
    /// It refuses.
    #[error("the secondary {0} refuses notices with code {1}")]
    Refused(SocketAddr, u8),
    /// The key is not known.
    #[error("there is no TSIG key {0}")]
    NoKey(Name),
    /// The system refuses.
    #[error("a notice to {0} cannot be sent: {1}")]
    Socket(SocketAddr, io::Error),
}

/// Tells a secondary that the zone has changed, and waits for its answer. It asks for the changes by itself.
///
/// # Errors
/// The secondary refuses, or it does not answer five notices within a minute.
pub async fn notify(
    zone: &Zone,
    secondary: SocketAddr,
    keys: &TsigKeys,
    key: Option<&Name>,
) -> Result<(), NotifyError> {
    let socket_error = |source| NotifyError::Socket(secondary, source);
    let local: SocketAddr = if secondary.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0_u16; 8], 0).into() };
    let socket = UdpSocket::bind(local).await.map_err(socket_error)?;
    socket.connect(secondary).await.map_err(socket_error)?;
    let mut id = [0; 2];
    getrandom::fill(&mut id).map_err(|source| socket_error(io::Error::other(source.to_string())))?;
    let id = u16::from_be_bytes(id);
    let mut wait = FIRST_WAIT;
    let mut answer = vec![0; MAX_ANSWER_BYTES];
    for _ in 0..MAX_TRIES {
        let message = notify_message(zone, id, key.map(|key| (keys, key)), now().unix_seconds);
        let message = message.ok_or_else(|| NotifyError::NoKey(key.cloned().unwrap_or_else(Name::root)))?;
        // An error of an earlier notice shows here; the next one may arrive.
        let _ = socket.send(&message).await;
        let read = async {
            loop {
                let Ok(len) = socket.recv(&mut answer).await else {
                    // Nobody listens there now.
                    return std::future::pending().await;
                };
                if let Some(answer) = read_notify_answer(&answer[..len], id, zone.apex()) {
                    return answer;
                }
            }
        };
        match timeout(wait, read).await {
            Ok(NotifyAnswer::Accepted) => return Ok(()),
            Ok(NotifyAnswer::Refused(code)) => return Err(NotifyError::Refused(secondary, code)),
            Err(_) => wait *= 2,
        }
    }
    Err(NotifyError::Silent(secondary))
}
