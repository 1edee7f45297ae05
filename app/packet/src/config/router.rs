//! The file of a router.

use std::path::{Path, PathBuf};

use sallyport_cli::failure::Failure;
use sallyport_xdp::{FibSizes, Urpf};
use serde::Deserialize;

use super::{NatSection, read};

/// The most bytes of the file.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// Where routes are looked up.
    #[serde(default)]
    pub(crate) lookup: Lookup,
    /// The ports.
    #[serde(default, rename = "port")]
    pub(crate) ports: Vec<PortConfig>,
    /// Devices that stand for VLANs; devices of the kernel's kind `vlan` are found without.
    #[serde(default, rename = "vlan")]
    pub(crate) vlans: Vec<VlanConfig>,
    /// How much the lookup `fib` holds.
    #[serde(default)]
    pub(crate) limits: Limits,
    /// The file that `router run` writes its metrics to.
    #[serde(default)]
    pub(crate) metrics: Option<PathBuf>,
    /// The file of the policy, beside this one.
    #[serde(default)]
    pub(crate) policy: Option<PathBuf>,
    /// The NAT.
    #[serde(default)]
    pub(crate) nat: Option<NatSection>,
}

/// How much the lookup `fib` holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Limits {
    /// Routes that the process keeps in its memory, of about 200 bytes: all of the tables `local` and `main`.
    pub(crate) routes: u32,
    /// Blocks of IPv4, of 1 KiB: one for each /24 that has longer prefixes.
    pub(crate) ipv4_blocks: u32,
    /// Nodes of IPv6, of 96 bytes: at most two for each prefix.
    pub(crate) ipv6_nodes: u32,
    /// Next hops.
    pub(crate) next_hops: u32,
    /// Groups of next hops, of 1 KiB.
    pub(crate) groups: u32,
    /// Neighbours.
    pub(crate) neighbors: u32,
    /// Bytes of events that wait for the process.
    pub(crate) netlink_bytes: u32,
}

impl Default for Limits {
    fn default() -> Self {
        let FibSizes { blocks, nodes, next_hops, groups, neighbors } = FibSizes::default();
        Self {
            routes: 4_000_000,
            ipv4_blocks: blocks,
            ipv6_nodes: nodes,
            next_hops,
            groups,
            neighbors,
            netlink_bytes: 32 << 20,
        }
    }
}

impl Limits {
    /// The sizes of the tables.
    ///
    /// # Errors
    /// A number is 0 or too large.
    pub(crate) fn sizes(self) -> Result<FibSizes, Failure> {
        let Self { routes, ipv4_blocks, ipv6_nodes, next_hops, groups, neighbors, netlink_bytes } = self;
        let numbers = [
            ("routes", routes, 1 << 26),
            ("ipv4_blocks", ipv4_blocks, 1 << 20),
            ("ipv6_nodes", ipv6_nodes, 1 << 24),
            ("next_hops", next_hops, 1 << 22),
            ("groups", groups, 1 << 16),
            ("neighbors", neighbors, 1 << 20),
            ("netlink_bytes", netlink_bytes, 1 << 30),
        ];
        match numbers.iter().find(|(_, number, most)| !(1..=*most).contains(number)) {
            Some((name, number, most)) => {
                Err(Failure::usage(format!("limits: {name} is {number}, and must be from 1 to {most}")))
            }
            None => Ok(FibSizes { blocks: ipv4_blocks, nodes: ipv6_nodes, next_hops, groups, neighbors }),
        }
    }
}

/// A device that stands for a VLAN of a port, where the kernel has no kind `vlan`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct VlanConfig {
    /// The device, which has the addresses and the routes.
    pub(crate) dev: String,
    /// The port that carries the frames.
    pub(crate) port: String,
    /// The number of the VLAN, from 1 to 4094.
    pub(crate) id: u16,
}

/// A port.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PortConfig {
    /// The device.
    pub(crate) dev: String,
    /// The check of sources, which its VLANs have too.
    #[serde(default)]
    pub(crate) urpf: Check,
}

/// Where routes are looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Lookup {
    /// In the kernel's own table, for each packet
    #[default]
    Kernel,
    /// In tables of the program's own, which `router run` keeps equal to those of the kernel
    Fib,
}

/// The check of sources (RFC 3704).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Check {
    /// None
    #[default]
    Off,
    /// A route to the source is there
    Loose,
    /// The route to the source leads back by the device that the packet came from
    Strict,
}

impl From<Check> for Urpf {
    fn from(check: Check) -> Self {
        match check {
            Check::Off => Self::Off,
            Check::Loose => Self::Loose,
            Check::Strict => Self::Strict,
        }
    }
}

impl Config {
    /// Reads the file.
    pub(crate) fn read(file: &Path) -> Result<Self, Failure> {
        read(file, MAX_FILE_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;

    #[test]
    fn a_file_has_ports_and_what_is_wrong_has_a_sentence() {
        let config = parse::<Config>("[[port]]\ndev = \"eth1\"\nurpf = \"strict\"\n[[port]]\ndev = \"eth2\"\n", "r");
        let config = config.unwrap();
        assert_eq!((config.ports[0].urpf, config.ports[1].urpf), (Check::Strict, Check::Off));
        assert_eq!(config.lookup, Lookup::Kernel);
        let wrong = parse::<Config>("[[port]]\ndev = \"eth1\"\nrpf = 1\n", "router.toml").unwrap_err();
        let whole = "lookup = \"fib\"\nmetrics = \"/run/m\"\n[limits]\nipv4_blocks = 7\n[[port]]\ndev = \"eth1\"\n";
        let whole = parse::<Config>(whole, "r").unwrap();
        assert_eq!((whole.lookup, whole.limits.sizes().unwrap().blocks), (Lookup::Fib, 7));
        assert_eq!(whole.limits.sizes().unwrap().groups, FibSizes::default().groups);
        let none = Limits { groups: 0, ..Limits::default() }.sizes().unwrap_err();
        assert_eq!(none.message, "limits: groups is 0, and must be from 1 to 65536");
        assert!(wrong.message.starts_with("router.toml, line 3: unknown field `rpf`"), "{}", wrong.message);
    }
}
