//! What a balancer is to do: the file `balance.toml`, and what control publishes.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// The port of GUE that IANA has assigned.
pub const GUE_PORT: u16 = 6080;
/// Connections that a balancer remembers, where the file names no number.
const DEFAULT_CONNECTIONS: u32 = 1 << 18;
/// The most connections that a balancer remembers.
pub const MAX_CONNECTIONS: u32 = 1 << 24;
/// Sources that a balancer remembers, where the file names no number.
const DEFAULT_SOURCES: u32 = 1 << 16;
/// The share of an edge, where the file names none.
const DEFAULT_WEIGHT: u16 = 100;

/// What a balancer is to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BalanceConfig {
    /// The devices by which packets come.
    pub dev: Vec<String>,
    /// The addresses of this machine that encapsulated packets come from: one of a family at most.
    pub source: Vec<IpAddr>,
    /// How packets travel to edges.
    pub encapsulation: Encapsulation,
    /// The port of GUE at edges.
    pub gue_port: u16,
    /// Whether a packet names the second edge of its slot too. Only GUE has room for that.
    pub second_chance: bool,
    /// Connections to remember; 0 for none.
    pub connections: u32,
    /// What becomes of fragments to virtual addresses.
    pub fragments: Fragments,
    /// The seed of the slot of a flow. All balancers of a site have the same.
    pub seed: u32,
    /// The first three bits of QUIC connection ids with a server's number, from 0 to 6.
    pub quic_config: u8,
    /// The file that `balance run` writes its metrics to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<String>,
    /// What one source may send.
    pub shield: ShieldConfig,
    /// The edges.
    #[serde(rename = "edge")]
    pub edges: Vec<EdgeConfig>,
    /// What is balanced.
    #[serde(rename = "service")]
    pub services: Vec<ServiceConfig>,
    /// Machines that are no edges, and have slices of egress addresses.
    #[serde(rename = "machine")]
    pub machines: Vec<MachineConfig>,
    /// Other sites.
    #[serde(rename = "site")]
    pub sites: Vec<SiteConfig>,
    /// Egress addresses.
    #[serde(rename = "egress")]
    pub egress: Vec<EgressConfig>,
}

impl Default for BalanceConfig {
    fn default() -> Self {
        Self {
            dev: Vec::new(),
            source: Vec::new(),
            encapsulation: Encapsulation::default(),
            gue_port: GUE_PORT,
            second_chance: true,
            connections: DEFAULT_CONNECTIONS,
            fragments: Fragments::default(),
            seed: 0,
            quic_config: 0,
            metrics: None,
            shield: ShieldConfig::default(),
            edges: Vec::new(),
            services: Vec::new(),
            machines: Vec::new(),
            sites: Vec::new(),
            egress: Vec::new(),
        }
    }
}

/// What one source may send to virtual addresses: an address of IPv4, or a network of IPv6 with a prefix of 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ShieldConfig {
    /// Packets a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets: Option<u32>,
    /// New connections of TCP a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<u32>,
    /// Sources to remember.
    pub sources: u32,
}

impl Default for ShieldConfig {
    fn default() -> Self {
        Self { packets: None, connections: None, sources: DEFAULT_SOURCES }
    }
}

/// How packets travel to edges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encapsulation {
    /// In UDP, by Generic UDP Encapsulation.
    #[default]
    Gue,
    /// IP in IP (RFC 2003, RFC 2473).
    Ipip,
}

/// What becomes of fragments to virtual addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fragments {
    /// All fragments between two addresses go to one edge.
    #[default]
    Pair,
    /// They are dropped, and counted.
    Drop,
}

/// The state of an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EdgeState {
    /// It gets new connections.
    #[default]
    Serving,
    /// It keeps its connections, and gets no new ones.
    Draining,
    /// It gets nothing.
    Down,
}

impl EdgeState {
    /// Its word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Serving => "serving",
            Self::Draining => "draining",
            Self::Down => "down",
        }
    }
}

/// An edge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EdgeConfig {
    /// Its name.
    pub name: String,
    /// Its own address, to which encapsulated packets go.
    pub address: IpAddr,
    /// Its share of new connections, from 1 to 1,000.
    #[serde(default = "weight")]
    pub weight: u16,
    /// Its state.
    #[serde(default)]
    pub state: EdgeState,
    /// Its number in the connection ids of QUIC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<u16>,
}

/// A service: a virtual address, a protocol, and ports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceConfig {
    /// The virtual address.
    pub address: IpAddr,
    /// The protocol.
    pub protocol: Protocol,
    /// The port, or a range of ports.
    pub ports: Ports,
    /// The names of its edges; all edges where there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edges: Option<Vec<String>>,
    /// Whether packets of known QUIC connection ids go to the server that the id names.
    #[serde(default)]
    pub quic: bool,
}

/// The protocol of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl Protocol {
    /// Its number.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::Tcp => crate::parse::TCP,
            Self::Udp => crate::parse::UDP,
        }
    }

    /// Its word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// A port, or a range of ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "PortsText", into = "PortsText")]
pub struct Ports {
    /// The first port.
    pub first: u16,
    /// The last port, which is not below the first.
    pub last: u16,
}

impl Ports {
    /// One port.
    #[must_use]
    pub fn one(port: u16) -> Self {
        Self { first: port, last: port }
    }
}

impl std::fmt::Display for Ports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.first == self.last { write!(f, "{}", self.first) } else { write!(f, "{}-{}", self.first, self.last) }
    }
}

/// Ports as a file has them.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
enum PortsText {
    Number(u16),
    Text(String),
}

impl From<Ports> for PortsText {
    fn from(ports: Ports) -> Self {
        if ports.first == ports.last { Self::Number(ports.first) } else { Self::Text(ports.to_string()) }
    }
}

impl TryFrom<PortsText> for Ports {
    type Error = String;

    fn try_from(text: PortsText) -> Result<Self, String> {
        let text = match text {
            PortsText::Number(port) => return Self::checked(port, port),
            PortsText::Text(text) => text,
        };
        let (first, last) = text.split_once('-').unwrap_or((&text, &text));
        let number = |word: &str| word.trim().parse().map_err(|_| format!("`{text}` is no port and no range of ports"));
        Self::checked(number(first)?, number(last)?)
    }
}

impl Ports {
    fn checked(first: u16, last: u16) -> Result<Self, String> {
        if first == 0 || last < first {
            return Err(format!("the ports {first}-{last} are no range from 1 on"));
        }
        Ok(Self { first, last })
    }
}

/// A machine that has slices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineConfig {
    /// Its name.
    pub name: String,
    /// Its own address.
    pub address: IpAddr,
}

/// Another site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteConfig {
    /// Its name.
    pub name: String,
    /// The address of its balancer.
    pub balancer: IpAddr,
}

/// An egress address, which machines share by slices, or which another site has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EgressConfig {
    /// The address.
    pub address: IpAddr,
    /// The site that has it, if it is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// The slices that machines have.
    #[serde(default, rename = "slice")]
    pub slices: Vec<SliceConfig>,
}

/// A slice of an egress address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SliceConfig {
    /// Its number, from 1 to 31.
    pub number: u8,
    /// The name of an edge or of a machine.
    pub machine: String,
}

fn weight() -> u16 {
    DEFAULT_WEIGHT
}
