//! One probe of one way.

use std::{io, net::SocketAddr, time::Duration};

use sallyport_probe::{ProbeError, Prober, connect};

use super::PROBE_TIMEOUT;

/// The round trip of a probe, and the address that answered, if that is of interest.
pub(super) type ProbeOutcome = Result<(Duration, Option<SocketAddr>), Unmeasured>;

/// Reason why a probe has no round trip.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unmeasured {
    /// The reason, as a sentence without its stop.
    pub(super) why: String,
    /// Whether a packet was sent, so that the probe counts as lost.
    pub(super) is_lost: bool,
}

impl Unmeasured {
    /// No packet was sent.
    pub(super) fn not_sent(why: impl Into<String>) -> Self {
        Self { why: why.into(), is_lost: false }
    }
}

impl From<ProbeError> for Unmeasured {
    fn from(error: ProbeError) -> Self {
        let is_lost = match &error {
            ProbeError::NoAnswer { .. } => true,
            // Without a local port there was no packet.
            ProbeError::Unreachable { source, .. } => source.kind() != io::ErrorKind::AddrNotAvailable,
            _ => false,
        };
        Self { why: error.to_string(), is_lost }
    }
}

/// The first of these addresses that answers an echo request.
pub(super) async fn echo_first(prober: &Prober, addresses: &[SocketAddr]) -> ProbeOutcome {
    let mut failed = Unmeasured::not_sent("there is no address");
    for address in addresses {
        match prober.echo(address.ip(), PROBE_TIMEOUT).await {
            Ok(answer) => return Ok((answer.time, Some(SocketAddr::new(address.ip(), 0)))),
            Err(error) => failed = error.into(),
        }
    }
    Err(failed)
}

/// The first of these addresses that answers a TCP connect.
pub(super) async fn connect_first(addresses: &[SocketAddr]) -> ProbeOutcome {
    let mut failed = Unmeasured::not_sent("there is no address");
    for address in addresses {
        match connect(*address, PROBE_TIMEOUT).await {
            Ok(connection) => return Ok((connection.time, Some(*address))),
            Err(error) => failed = error.into(),
        }
    }
    Err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_without_a_local_port_is_not_lost() {
        let lost = |kind: io::ErrorKind| {
            let error = ProbeError::Unreachable { target: "192.0.2.1:443".to_owned(), source: kind.into() };
            Unmeasured::from(error).is_lost
        };
        assert!(lost(io::ErrorKind::HostUnreachable) && !lost(io::ErrorKind::AddrNotAvailable));
    }
}
