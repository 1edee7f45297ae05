//! Options that several servers share: the domain, databases of addresses, stock ssh clients, accounts.

use std::{net::Ipv4Addr, path::PathBuf, sync::Arc, time::Duration};

use clap::{Args, ValueEnum};
use sallyport_geo::Geo;

use super::listen::{ListenAddress, listen_address};
use crate::duration;

/// Options for address databases.
#[derive(Debug, Clone, Args)]
pub(crate) struct GeoArgs {
    /// A database of countries by address (MMDB), for access rules such as country:CH; reloaded when the file changes
    #[arg(long, value_name = "FILE", env = "SALLYPORT_GEOIP_COUNTRY")]
    pub(crate) geoip_country: Option<PathBuf>,
    /// A database of autonomous systems by address (MMDB), for access rules such as asn:64500; reloaded when the file
    /// changes
    #[arg(long, value_name = "FILE", env = "SALLYPORT_GEOIP_ASN")]
    pub(crate) geoip_asn: Option<PathBuf>,
}

impl GeoArgs {
    /// Opens the databases; `None` when no option names one.
    ///
    /// # Errors
    /// A database cannot be read.
    pub(crate) fn open(&self) -> anyhow::Result<Option<Arc<Geo>>> {
        if self.geoip_country.is_none() && self.geoip_asn.is_none() {
            return Ok(None);
        }
        Ok(Some(Arc::new(Geo::open(self.geoip_country.as_deref(), self.geoip_asn.as_deref())?)))
    }
}

/// Options for what an edge measures.
#[derive(Debug, Clone, Args)]
pub(crate) struct MeasureArgs {
    /// How often the edge measures the ways to other edges and to direct origins: a second or more; 0s for never
    #[arg(long, value_name = "TIME", env = "SALLYPORT_MEASURE_EVERY", default_value = "10s")]
    #[arg(value_parser = measure_every)]
    measure_every: Duration,
    /// Let measurements of the catchment ping private addresses too: for laboratories
    #[arg(long, env = "SALLYPORT_MEASURE_PRIVATE")]
    pub(crate) measure_private: bool,
}

/// Options for where clients land.
#[derive(Debug, Clone, Args)]
pub(crate) struct CatchmentArgs {
    /// How often to gather from edges where clients land: a second or more; 0s for never
    #[arg(long, value_name = "TIME", env = "SALLYPORT_CATCHMENT_EVERY", default_value = "30s")]
    #[arg(value_parser = measure_every)]
    catchment_every: Duration,
}

impl CatchmentArgs {
    /// The interval; `None` for never.
    pub(crate) fn interval(&self) -> Option<Duration> {
        Some(self.catchment_every).filter(|time| !time.is_zero())
    }
}

impl MeasureArgs {
    /// The interval; `None` for never.
    pub(crate) fn interval(&self) -> Option<Duration> {
        Some(self.measure_every).filter(|time| !time.is_zero())
    }
}

fn measure_every(text: &str) -> Result<Duration, String> {
    let time = duration::parse(text)?;
    if !time.is_zero() && time < Duration::from_secs(1) {
        return Err("expected a second or more, or 0s for never".to_owned());
    }
    Ok(time)
}

/// Options for stock ssh clients.
#[derive(Debug, Clone, Args)]
pub(crate) struct SshArgs {
    /// Serve ssh clients on a port of their own too, besides the shared one: ADDR:PORT or :PORT
    #[arg(long, value_name = "ADDR:PORT", env = "SALLYPORT_LISTEN_SSH", value_parser = listen_address)]
    pub(crate) listen_ssh: Option<ListenAddress>,
    /// Serve no ssh clients
    #[arg(long, conflicts_with_all = ["listen_ssh", "ssh_guests"])]
    pub(crate) no_ssh: bool,
    /// Admit ssh clients without an account, for temporary sockets: `ssh -R 80:localhost:8000 HOST`
    #[arg(long, env = "SALLYPORT_SSH_GUESTS")]
    pub(crate) ssh_guests: bool,
}

/// Which accounts may be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SignUpChoice {
    Open,
    Closed,
}

/// A domain: labels of letters, digits and hyphens; kept in lower case without a final dot.
pub(crate) fn domain(text: &str) -> Result<String, String> {
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let label_ok = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    // Room for the label of a socket and its dot (RFC 1035 section 2.3.4: 255 octets in all).
    if name.len() > 253 - 64 || !name.split('.').all(label_ok) || name.parse::<Ipv4Addr>().is_ok() {
        return Err("expected a domain such as localhost or tunnels.example.com".to_owned());
    }
    Ok(name)
}

/// Whether the domain is the local machine everywhere (RFC 6761 section 6.3).
pub(crate) fn is_of_this_machine(domain: &str) -> bool {
    domain == "localhost" || domain.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_measure_each_second_at_most() {
        assert_eq!(measure_every("0s").unwrap(), Duration::ZERO);
        assert_eq!(measure_every("1s").unwrap(), Duration::from_secs(1));
        for bad in ["", "999ms", "-1s", "soon", "NaN", "2d"] {
            assert!(measure_every(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_domain_is_lower_case_and_leaves_room_for_names() {
        assert_eq!(domain("Tunnels.Example.COM.").unwrap(), "tunnels.example.com");
        for bad in ["", ".", "a..b", "-a.b", "a_b.c", "127.0.0.1", &"a.".repeat(120)] {
            assert!(domain(bad).is_err(), "{bad}");
        }
    }
}
