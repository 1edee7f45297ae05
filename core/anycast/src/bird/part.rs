//! The part of the configuration that is for one edge.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr},
    str::FromStr,
};

use ipnet::IpNet;
use sallyport_model::{EdgeName, RegionName};

use crate::model::{AllowList, Announcement, AnycastConfig, Community, Peer};

/// The most servers of RPKI that an edge asks.
pub const MAX_RPKI_SERVERS: usize = 8;

/// A prefix that an edge may announce.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartPrefix {
    /// The prefix.
    pub net: IpNet,
    /// The communities of each announcement.
    pub communities: Vec<Community>,
    /// Whether it is announced now.
    pub state: Announcement,
}

/// A server that knows which networks may announce which prefixes (RPKI to Router, RFC 8210).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RpkiServer {
    host: String,
    port: u16,
}

/// A text names no server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no server of RPKI: use HOST:PORT or [ADDRESS]:PORT")]
pub struct RpkiServerError(String);

/// What an edge announces, to whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EdgePart {
    /// Its name.
    pub edge: EdgeName,
    /// Its region, which is its site.
    pub region: Option<RegionName>,
    /// The number by which neighbours tell it from others.
    pub router_id: Ipv4Addr,
    /// The prefixes of its region.
    pub prefixes: Vec<PartPrefix>,
    /// All prefixes of the installation: what it listens to when neighbours send them back.
    pub own: Vec<IpNet>,
    /// Its neighbours.
    pub peers: Vec<Peer>,
    /// The servers of RPKI that it asks.
    pub rpki: Vec<RpkiServer>,
}

impl EdgePart {
    /// Takes the part of this edge. Nothing is announced in it yet.
    #[must_use]
    pub fn of(config: &AnycastConfig, edge: &EdgeName, region: Option<&RegionName>, router_id: Ipv4Addr) -> Self {
        let prefixes = config.prefixes.iter().filter(|prefix| prefix.is_for(region));
        Self {
            edge: edge.clone(),
            region: region.cloned(),
            router_id,
            prefixes: prefixes
                .map(|prefix| PartPrefix {
                    net: prefix.net,
                    communities: prefix.communities.clone(),
                    state: Announcement::Withdrawn,
                })
                .collect(),
            own: config.prefixes.iter().map(|prefix| prefix.net).collect(),
            peers: config.peers.iter().filter(|peer| peer.place.has(edge, region)).cloned().collect(),
            rpki: Vec::new(),
        }
    }

    /// Sets how a prefix is announced. False if the edge has no such prefix.
    pub fn set(&mut self, net: IpNet, state: Announcement) -> bool {
        let found = self.prefixes.iter_mut().find(|prefix| prefix.net == net);
        found.map(|prefix| prefix.state = state).is_some()
    }

    /// Drops prefixes that the operator of the edge does not permit, and returns them: whoever holds control cannot
    /// announce what belongs to others.
    pub fn keep_allowed(&mut self, allowed: &AllowList) -> Vec<IpNet> {
        let is_allowed = |net: &IpNet| allowed.0.iter().any(|allowed| allowed.contains(net));
        let dropped =
            self.prefixes.extract_if(.., |prefix| !is_allowed(&prefix.net)).map(|prefix| prefix.net).collect();
        self.own.retain(is_allowed);
        dropped
    }

    /// The number of the edge's site.
    #[must_use]
    pub fn site_number(&self) -> u32 {
        self.region.as_ref().map_or_else(|| site_number(self.edge.as_str()), |region| site_number(region.as_str()))
    }
}

/// The number of a site in communities: the first 24 bits of the FNV-1a hash (32 bits) of its region's name.
#[must_use]
pub fn site_number(name: &str) -> u32 {
    fnv1a(name) >> 8
}

/// A router id for an edge that has none of its own: stable, and another for each name.
#[must_use]
pub fn router_id_of(edge: &EdgeName) -> Ipv4Addr {
    // 0 is no router id, and multicast addresses look like mistakes.
    Ipv4Addr::from_bits((fnv1a(edge.as_str()) & 0x7fff_ffff).max(1))
}

fn fnv1a(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

impl RpkiServer {
    /// The host: an address or a name.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl FromStr for RpkiServer {
    type Err = RpkiServerError;
    fn from_str(text: &str) -> Result<Self, RpkiServerError> {
        let error = || RpkiServerError(text.chars().take(64).collect());
        let (host, port) = text.rsplit_once(':').ok_or_else(error)?;
        let is_digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        let port: u16 = port.parse().ok().filter(|port| *port > 0 && is_digits).ok_or_else(error)?;
        let address = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let is_label = |label: &str| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        let host = match address {
            Some(address) => address.parse::<IpAddr>().map_err(|_| error())?.to_string(),
            None if host.len() <= 253 && host.split('.').all(is_label) => host.to_owned(),
            None => return Err(error()),
        };
        // A name of digits alone is a mistyped address.
        let is_number = host.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        if is_number && host.parse::<Ipv4Addr>().is_err() { Err(error()) } else { Ok(Self { host, port }) }
    }
}

impl fmt::Display for RpkiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_of_rpki_are_read_and_written() {
        for good in ["127.0.0.1:3323", "[2001:db8::1]:323", "rtr.example.net:3323", "rtr:8282"] {
            assert_eq!(good.parse::<RpkiServer>().unwrap().to_string(), good);
        }
        for bad in [
            "",
            "rtr",
            "rtr:",
            "rtr:0",
            "rtr:+1",
            "a b:1",
            "a\"b:1",
            "a;b:1",
            "1.2.3:4",
            "2001:db8::1:323",
            "-a:1",
            "[x]:1",
        ] {
            assert!(bad.parse::<RpkiServer>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_site_has_a_stable_number() {
        assert_eq!(site_number("eu-west"), site_number("eu-west"));
        assert_ne!(site_number("eu-west"), site_number("us-east"));
        // The published test value of FNV-1a for "foobar" is bf9cf968.
        assert_eq!(site_number("foobar"), 0x00bf_9cf9);
    }
}
