//! Measures the way to a host: round trips by ICMP echo, and the time of TCP connects.
//!
//! Drives [`sallyport_ping`] over ping sockets (icmp(7)), or over raw sockets where only those are allowed. The kernel
//! stamps both packets (`SO_TIMESTAMPING`), so a busy processor does not make a way longer.

mod catch;
mod connect;
mod socket;
mod wire;

use std::{io, net::IpAddr, sync::Arc, time::Duration};

use parking_lot::Mutex;
use sallyport_ping::{BeginError, is_one_host};
pub use sallyport_ping::{
    Catcher, CaughtCounts, Family, Key, MAX_DATA_BYTES, MAX_TIMEOUT, MAX_WAITING, MIN_DATA_BYTES, Rejected, RoundTrip,
    Source, Statistics, Summary,
};

pub use self::catch::{CatchSocket, MAX_CATCH_RATE};
pub use self::connect::{Connection, connect};
use self::wire::Wire;

/// The data of an echo request unless another length is asked for, in bytes: as other programs send.
pub const DEFAULT_DATA_BYTES: usize = 56;

/// The wait after a socket was opened. The kernel switches stamps of arrivals on in a task of its own.
const STAMPS_PAUSE: Duration = Duration::from_millis(20);

/// Reason why a probe has no result.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// Neither ping sockets nor raw sockets are allowed.
    #[error(
        "echo requests are not allowed here: open ping sockets with `sudo sysctl -w \
         net.ipv4.ping_group_range=\"0 2147483647\"`, or run as root"
    )]
    NotAllowed,
    /// The host did not answer in time.
    #[error("{target} did not answer within {} ms", timeout.as_millis())]
    NoAnswer {
        /// The host; for connects with the port.
        target: String,
        /// The time.
        timeout: Duration,
    },
    /// The address is not of one host: a multicast, broadcast or unspecified address.
    #[error("{0} is not the address of one host")]
    NotOneHost(IpAddr),
    /// The address to send from is not one of this machine.
    #[error("{0} is not an address of this machine")]
    NotHere(IpAddr),
    /// The request cannot begin.
    #[error(transparent)]
    Begin(#[from] BeginError),
    /// The system did not send the request.
    #[error("cannot reach {target}: {source}")]
    Unreachable {
        /// The host; for connects with the port.
        target: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The system has no socket for echo requests.
    #[error("cannot open a socket for echo requests: {0}")]
    Socket(#[source] io::Error),
    /// The system has no random bytes.
    #[error("the system has no random bytes: {0}")]
    Random(#[source] getrandom::Error),
}

/// Counters of a prober since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Replies that were believed.
    pub answered: u64,
    /// Believed replies without stamps of the kernel, whose time is that of the monotonic clock of the process.
    pub unstamped: u64,
    /// Believed replies during which the wall clock jumped, whose time is that of the monotonic clock of the process.
    pub clock_jumps: u64,
    /// Replies that were not believed.
    pub rejected: Rejected,
}

/// Sends echo requests, and believes only replies that prove to answer them. Echoes may run at the same time.
#[derive(Debug)]
pub struct Prober {
    key: Key,
    /// Opened when first needed.
    v4: Mutex<Option<Arc<Wire>>>,
    v6: Mutex<Option<Arc<Wire>>>,
}

impl Prober {
    /// A prober with a random key. Sockets are opened when an address of their family is first probed.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub fn new() -> Result<Self, ProbeError> {
        let mut key = [0; 16];
        getrandom::fill(&mut key).map_err(ProbeError::Random)?;
        Ok(Self { key: Key::new(key), v4: Mutex::default(), v6: Mutex::default() })
    }

    /// Opens the socket of a family, if it is not open yet, and waits until the kernel is likely to stamp packets.
    ///
    /// # Errors
    /// The system does not allow echo requests, or has no sockets of this family.
    pub async fn open(&self, family: Family) -> Result<(), ProbeError> {
        self.wire(family).await.map(drop)
    }

    /// Sends an echo request with [`DEFAULT_DATA_BYTES`], and awaits its reply.
    ///
    /// # Errors
    /// The system does not allow echo requests or cannot send this one, or no right reply comes in time.
    pub async fn echo(&self, target: IpAddr, timeout: Duration) -> Result<RoundTrip, ProbeError> {
        self.echo_of(DEFAULT_DATA_BYTES, target, timeout).await
    }

    /// The same with this many bytes of data, from [`MIN_DATA_BYTES`] to [`MAX_DATA_BYTES`].
    ///
    /// # Errors
    /// Those of [`Self::echo`], and a number of bytes out of bounds.
    pub async fn echo_of(&self, bytes: usize, target: IpAddr, timeout: Duration) -> Result<RoundTrip, ProbeError> {
        let target = target.to_canonical();
        check_target(target)?;
        let wire = self.wire(Family::of(target)).await?;
        wire.echo(bytes, target, timeout).await
    }

    /// The counters.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let counts = [&self.v4, &self.v6].map(|wire| wire.lock().as_ref().map(|wire| wire.counts()));
        counts.into_iter().flatten().fold(Counts::default(), |sum, one| Counts {
            answered: sum.answered + one.answered,
            unstamped: sum.unstamped + one.unstamped,
            clock_jumps: sum.clock_jumps + one.clock_jumps,
            rejected: sum.rejected + one.rejected,
        })
    }

    async fn wire(&self, family: Family) -> Result<Arc<Wire>, ProbeError> {
        let (wire, is_new) = self.wire_now(family)?;
        if is_new {
            tokio::time::sleep(STAMPS_PAUSE).await;
        }
        Ok(wire)
    }

    /// The wire of a family, and whether it was opened by this call.
    fn wire_now(&self, family: Family) -> Result<(Arc<Wire>, bool), ProbeError> {
        let mut slot = match family {
            Family::V4 => self.v4.lock(),
            Family::V6 => self.v6.lock(),
        };
        if let Some(wire) = &*slot {
            return Ok((wire.clone(), false));
        }
        let wire = Wire::open(family, self.key.clone())?;
        *slot = Some(wire.clone());
        Ok((wire, true))
    }
}

/// Checks that an address can be of one host.
///
/// # Errors
/// It is a multicast, broadcast or unspecified address.
pub fn check_target(target: IpAddr) -> Result<(), ProbeError> {
    if is_one_host(target) { Ok(()) } else { Err(ProbeError::NotOneHost(target)) }
}

/// An error about a target.
fn unreachable(target: impl ToString, source: io::Error) -> ProbeError {
    ProbeError::Unreachable { target: target.to_string(), source }
}

/// No answer of a target, whether an address or an address with a port.
fn no_answer(target: impl ToString, timeout: Duration) -> ProbeError {
    ProbeError::NoAnswer { target: target.to_string(), timeout }
}
