//! Options for slices of egress addresses.

use std::time::Duration;

use clap::Args;

use crate::duration;

/// Options of an edge that has slices of egress addresses.
#[derive(Debug, Clone, Args)]
pub(crate) struct EgressArgs {
    /// Dial direct origins from the machine's own address while the edge can use none of its slices of egress addresses
    /// [default: do not dial then]
    #[arg(long, env = "SALLYPORT_EGRESS_OWN_ADDRESS")]
    pub(crate) egress_own_address: bool,
}

/// The shortest lease: an edge beats every second, and a busy bus may take some.
const SHORTEST_LEASE: Duration = Duration::from_secs(5);

/// Reads the time that a lease lasts without a beat.
pub(crate) fn lease(text: &str) -> Result<Duration, String> {
    let lasts = duration::parse_long(text)?;
    if lasts < SHORTEST_LEASE {
        return Err(format!("a lease lasts {} seconds at least", SHORTEST_LEASE.as_secs()));
    }
    Ok(lasts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_of_no_time_is_refused() {
        assert_eq!(lease("5s"), Ok(SHORTEST_LEASE));
        assert_eq!(lease("24h"), Ok(Duration::from_secs(86_400)));
        assert!(lease("4s").unwrap_err().contains("5 seconds at least"));
        assert!(lease("soon").is_err());
    }
}
