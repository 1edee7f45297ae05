//! The section `[nat]` of the file of a router.

use std::{
    hash::{BuildHasher as _, Hasher as _},
    net::{Ipv4Addr, SocketAddrV4},
    ops::RangeInclusive,
    time::Duration,
};

use ipnet::Ipv4Net;
use sallyport_cli::failure::Failure;
use sallyport_packet_model::nat::{Filtering, MAX_POOL, NatConfig, PortForward, Timeouts};
use sallyport_xdp::nat::{MAX_INSIDE, NatEngine, NatSetup};
use serde::Deserialize;

/// The longest time that a session may live without packets, in seconds: 30 days.
const MAX_TIMEOUT_SECONDS: u64 = 30 * 24 * 3600;
/// The most sessions of a NAT in XDP.
const MAX_SESSIONS: usize = 4_194_304;

/// The section.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct NatSection {
    /// What translates.
    #[serde(default)]
    engine: Engine,
    /// Networks whose sources are translated.
    inside: Vec<Ipv4Net>,
    /// Addresses outside: `203.0.113.10`, or `203.0.113.10-203.0.113.13`.
    pool: Vec<String>,
    /// Ports of new mappings: `1024-65535`.
    #[serde(default)]
    ports: Option<String>,
    /// Who may send to a mapping.
    #[serde(default)]
    filtering: Who,
    /// The most sessions.
    #[serde(default)]
    max_sessions: Option<usize>,
    /// The most sessions that an inside address has begun, and the most that others have begun with it.
    #[serde(default)]
    max_sessions_per_user: Option<usize>,
    /// How long a session lives without packets, in seconds.
    #[serde(default)]
    timeouts: TimeoutSection,
    /// Outside ports that lead inside.
    #[serde(default, rename = "forward")]
    forwards: Vec<ForwardSection>,
}

/// What translates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Engine {
    /// XDP, with tables of its own.
    #[default]
    Xdp,
    /// The kernel's connection tracking, and XDP for known flows.
    Conntrack,
}

/// Who may send to a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Who {
    /// Peers to whose address and port the inside has sent.
    #[default]
    PortRestricted,
    /// Every peer.
    EndpointIndependent,
}

/// How long a session lives without packets, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct TimeoutSection {
    tcp_transitory: Option<u64>,
    tcp_established: Option<u64>,
    udp: Option<u64>,
    icmp: Option<u64>,
    half_open: Option<u64>,
    tcp_closing: Option<u64>,
}

/// An outside port that leads inside.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct ForwardSection {
    #[serde(default)]
    protocol: Protocol,
    external: SocketAddrV4,
    inside: SocketAddrV4,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Protocol {
    #[default]
    Tcp,
    Udp,
}

impl NatSection {
    /// The NAT, with the seed of the one that stands.
    pub(crate) fn to_setup(&self, seed: Option<u32>) -> Result<NatSetup, Failure> {
        let wrong = |reason: String| Failure::usage(format!("the section [nat]: {reason}"));
        let default = NatConfig::default();
        let forwards = self.forwards.iter().map(|forward| PortForward {
            protocol: match forward.protocol {
                Protocol::Tcp => 6,
                Protocol::Udp => 17,
            },
            external: forward.external,
            inside: forward.inside,
        });
        let config = NatConfig {
            inside: self.inside.iter().map(Ipv4Net::trunc).collect(),
            pool: addresses(&self.pool).map_err(wrong)?,
            ports: self.ports.as_deref().map_or(Ok(default.ports.clone()), ports).map_err(wrong)?,
            filtering: match self.filtering {
                Who::PortRestricted => Filtering::PortRestricted,
                Who::EndpointIndependent => Filtering::EndpointIndependent,
            },
            forwards: forwards.collect(),
            max_sessions: self.max_sessions.unwrap_or(default.max_sessions),
            max_sessions_per_user: self.max_sessions_per_user.unwrap_or(default.max_sessions_per_user),
            timeouts: self.timeouts.to_timeouts().map_err(wrong)?,
            seed: seed.unwrap_or_else(random),
        };
        let bounds = [("max-sessions", config.max_sessions), ("max-sessions-per-user", config.max_sessions_per_user)];
        if let Some((name, _)) = bounds.iter().find(|(_, most)| !(1..=MAX_SESSIONS).contains(most)) {
            return Err(wrong(format!("`{name}` must be from 1 to {MAX_SESSIONS}")));
        }
        config.validate().map_err(|error| wrong(error.to_string()))?;
        let is_empty = config.inside.is_empty();
        if is_empty || config.inside.len() > MAX_INSIDE {
            return Err(wrong(format!("`inside` has from 1 to {MAX_INSIDE} networks, not {}", config.inside.len())));
        }
        if let Some(forward) = config.forwards.iter().find(|forward| !config.is_inside(*forward.inside.ip())) {
            return Err(wrong(format!("the forward to {} leads to no network of `inside`", forward.inside)));
        }
        let engine = match self.engine {
            Engine::Xdp => NatEngine::Xdp,
            Engine::Conntrack => NatEngine::Conntrack,
        };
        if engine == NatEngine::Conntrack && config.filtering == Filtering::EndpointIndependent {
            return Err(wrong(
                "connection tracking knows only port-restricted filtering: use engine = \"xdp\" for the other"
                    .to_owned(),
            ));
        }
        Ok(NatSetup { engine, config, was_liberal: false, mark: [0; 6] })
    }
}

impl TimeoutSection {
    fn to_timeouts(self) -> Result<Timeouts, String> {
        let default = Timeouts::default();
        let time = |name: &str, seconds: Option<u64>, default| match seconds {
            None => Ok(default),
            Some(seconds @ 1..=MAX_TIMEOUT_SECONDS) => Ok(Duration::from_secs(seconds)),
            Some(seconds) => Err(format!("`timeouts.{name}` is from 1 to {MAX_TIMEOUT_SECONDS} s, not {seconds}")),
        };
        Ok(Timeouts {
            tcp_transitory: time("tcp-transitory", self.tcp_transitory, default.tcp_transitory)?,
            tcp_established: time("tcp-established", self.tcp_established, default.tcp_established)?,
            udp: time("udp", self.udp, default.udp)?,
            icmp: time("icmp", self.icmp, default.icmp)?,
            half_open: time("half-open", self.half_open, default.half_open)?,
            tcp_closing: time("tcp-closing", self.tcp_closing, default.tcp_closing)?,
        })
    }
}

/// The addresses of a pool.
fn addresses(words: &[String]) -> Result<Vec<Ipv4Addr>, String> {
    let mut pool: Vec<Ipv4Addr> = Vec::new();
    for word in words {
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        let parse = |text: &str| text.trim().parse::<Ipv4Addr>().map(Ipv4Addr::to_bits);
        let (Ok(first), Ok(last)) = (parse(first), parse(last)) else {
            return Err(format!("{word:?} of `pool` is no address and no range such as 203.0.113.10-203.0.113.13"));
        };
        if last < first || (last - first) as usize >= MAX_POOL || pool.len() + (last - first) as usize >= MAX_POOL {
            return Err(format!("{word:?} of `pool` is empty, or the pool has more than {MAX_POOL} addresses"));
        }
        for bits in first..=last {
            let address = Ipv4Addr::from_bits(bits);
            if !is_host(address) {
                return Err(format!("{address} in `pool` is no address of a host"));
            }
            if pool.contains(&address) {
                return Err(format!("{address} is in `pool` twice"));
            }
            pool.push(address);
        }
    }
    Ok(pool)
}

/// Whether packets can have this source on the wire.
fn is_host(address: Ipv4Addr) -> bool {
    (1..224).contains(&address.octets()[0]) && !address.is_loopback()
}

/// A range of ports.
fn ports(word: &str) -> Result<RangeInclusive<u16>, String> {
    let range =
        word.split_once('-').and_then(|(first, last)| Some(first.trim().parse().ok()?..=last.trim().parse().ok()?));
    range.ok_or_else(|| format!("`ports` is a range such as 1024-65535, not {word:?}"))
}

/// A number that strangers do not know.
fn random() -> u32 {
    std::hash::RandomState::new().build_hasher().finish() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup(text: &str) -> Result<NatSetup, String> {
        let section: NatSection = toml::from_str(text).map_err(|error| error.message().to_owned())?;
        section.to_setup(Some(1)).map_err(|failure| failure.message)
    }

    #[test]
    fn a_section_is_read() {
        let text = "inside = [\"10.0.0.1/8\"]\npool = [\"203.0.113.10-203.0.113.12\", \"203.0.113.20\"]\n\
                    ports = \"2000-2999\"\nfiltering = \"endpoint-independent\"\n[timeouts]\nudp = 7\nhalf-open = 3\n\
                    [[forward]]\nexternal = \"203.0.113.10:80\"\ninside = \"10.0.0.80:8080\"\n";
        let NatSetup { engine, config, .. } = setup(text).unwrap();
        assert_eq!((engine, config.pool.len(), config.ports), (NatEngine::Xdp, 4, 2_000..=2_999));
        let times = &config.timeouts;
        assert_eq!((times.udp.as_secs(), times.half_open.as_secs(), times.tcp_closing.as_secs()), (7, 3, 10));
        assert_eq!(config.forwards[0].protocol, 6);
    }

    #[test]
    fn what_is_wrong_has_a_sentence() {
        let with = |line: &str| {
            let inside = if line.starts_with("inside =") { "" } else { "inside = [\"10.0.0.0/8\"]\n" };
            let pool = if line.starts_with("pool =") { "" } else { "pool = [\"203.0.113.10\"]\n" };
            setup(&format!("{inside}{pool}{line}")).unwrap_err()
        };
        assert!(with("pool = [\"203.0.113.9-203.0.113.1\"]").contains("is empty"));
        assert!(with("pool = [\"10.0.0.9\"]").contains("10.0.0.9 of the pool is in an inside network"));
        assert!(with("pool = [\"x\"]").contains("no address and no range"));
        for pool in ["0.0.0.0", "0.1.2.3", "127.0.0.1", "126.255.255.255-127.0.0.1", "224.0.0.1", "255.255.255.255"] {
            assert!(with(&format!("pool = [\"{pool}\"]")).contains("is no address of a host"), "{pool}");
        }
        assert!(with("ports = \"80\"").contains("a range such as 1024-65535"));
        assert!(with("ports = \"0-80\"").contains("begins with 0"));
        assert!(with("inside = []").contains("from 1 to 16 networks"));
        assert!(with("max-sessions = 0").contains("`max-sessions` must be from 1 to 4194304"));
        assert!(with("timeouts = { udp = 0 }").contains("`timeouts.udp` is from 1"));
        assert!(with("engine = \"conntrack\"\nfiltering = \"endpoint-independent\"").contains("only port-restricted"));
        let forward = "[[forward]]\nexternal = \"203.0.113.10:80\"\ninside = \"192.0.2.1:80\"";
        assert!(with(forward).contains("leads to no network of `inside`"));
        assert!(with("engine = \"vpp\"").contains("unknown variant `vpp`"));
    }
}
