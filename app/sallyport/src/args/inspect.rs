//! Options of the inspector.

use std::{fmt, net::SocketAddr, str::FromStr};

use clap::Args;
use sallyport_inspect::Bounds;

/// The inspector: a local page with the requests that pass.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "The inspector")]
pub(crate) struct InspectArgs {
    /// The local address of the page with all requests: a port, 127.0.0.1:PORT or [::1]:PORT [default: on a terminal
    /// 127.0.0.1:4040 or the next free port, otherwise no inspector]
    #[arg(long, value_name = "ADDRESS", conflicts_with = "no_inspect")]
    pub(crate) inspect: Option<InspectAddress>,
    /// No inspector: no page, and nothing of requests is kept
    #[arg(long)]
    pub(crate) no_inspect: bool,
    /// How many requests the inspector keeps, or how much memory they may take, or both: 500, 50MiB or 500,50MiB
    #[arg(long, value_name = "COUNT,SIZE", default_value_t = InspectKeep::default(), hide_default_value = true)]
    pub(crate) inspect_keep: InspectKeep,
}

/// An address of this machine alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InspectAddress(pub(crate) SocketAddr);

impl FromStr for InspectAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || "expected a port, 127.0.0.1:PORT or [::1]:PORT".to_owned();
        if let Ok(port) = text.parse::<u16>() {
            return Ok(Self(SocketAddr::from(([127, 0, 0, 1], port))));
        }
        let text = text.strip_prefix("localhost:").map_or_else(|| text.to_owned(), |port| format!("127.0.0.1:{port}"));
        let address: SocketAddr = text.parse().map_err(|_| expected())?;
        if !address.ip().is_loopback() {
            return Err(format!(
                "the inspector shows secrets of requests, so it is for this machine alone: {}",
                expected()
            ));
        }
        Ok(Self(address))
    }
}

/// The bounds of what is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct InspectKeep(pub(crate) Bounds);

impl fmt::Display for InspectKeep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}MiB", self.0.exchanges, self.0.bytes >> 20)
    }
}

impl FromStr for InspectKeep {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected =
            || "expected a number of requests from 1 to 100000, a size from 1MiB to 4096MiB, or both".to_owned();
        let mut bounds = Bounds::default();
        for part in text.split(',').map(str::trim) {
            let size = match (part.strip_suffix("MiB"), part.strip_suffix("GiB")) {
                (Some(number), _) => Some((number, 1_usize)),
                (_, Some(number)) => Some((number, 1_024)),
                _ => None,
            };
            match size {
                Some((number, scale)) => {
                    let mebibytes = number.trim().parse::<usize>().ok().and_then(|number| number.checked_mul(scale));
                    let mebibytes = mebibytes.filter(|size| (1..=4_096).contains(size)).ok_or_else(expected)?;
                    bounds.bytes = mebibytes << 20;
                }
                None => {
                    let count = part.parse().ok().filter(|count| (1..=100_000).contains(count));
                    bounds.exchanges = count.ok_or_else(expected)?;
                }
            }
        }
        Ok(Self(bounds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_of_this_machine() {
        let of = |text: &str| text.parse::<InspectAddress>().map(|address| address.0.to_string());
        assert_eq!(of("5000").as_deref(), Ok("127.0.0.1:5000"));
        assert_eq!(of("localhost:5000").as_deref(), Ok("127.0.0.1:5000"));
        assert_eq!(of("[::1]:0").as_deref(), Ok("[::1]:0"));
        for bad in ["0.0.0.0:4040", "192.168.1.2:4040", "example.com:4040", "", "70000", ":4040"] {
            assert!(of(bad).unwrap_err().contains("expected a port"), "{bad}");
        }
    }

    #[test]
    fn bounds_are_a_count_a_size_or_both() {
        let of = |text: &str| text.parse::<InspectKeep>().map(|keep| keep.to_string());
        assert_eq!(of("20").as_deref(), Ok("20,50MiB"));
        assert_eq!(of("1GiB").as_deref(), Ok("500,1024MiB"));
        assert_eq!(of("20, 8MiB").as_deref(), Ok("20,8MiB"));
        for bad in ["", "0", "-1", "0MiB", "5GB", "5000GiB", "1,,2", "99999999999999999999MiB"] {
            assert!(of(bad).unwrap_err().contains("expected a number"), "{bad}");
        }
    }
}
