//! What may talk to what: endpoints, groups and rules. Uses names and addresses.
//!
//! A rule under `deny` wins over every rule under `allow`, and what no rule allows is denied. So the order of rules does
//! not matter, and each rule can be filed under the endpoints that it names.

mod document;
mod filing;
mod service;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
};

use ipnet::IpNet;

pub use document::{Document, DocumentError, TextError, Unknown};
pub(crate) use filing::Filing;
pub use service::{ICMP, ICMPV6, Service, ServiceError, TCP, UDP};

use crate::{
    address::overlap,
    name::{Name, NameError},
};

/// The most endpoints of a policy.
pub const MAX_ENDPOINTS: usize = 20_000;
/// The most rules of a policy.
pub const MAX_RULES: usize = 20_000;
/// The most rules that one packet is compared with, of each action and each side of the packet.
pub const MAX_RULES_OF_PACKET: usize = 256;
/// The most addresses, routes and groups of an endpoint, and entries in a list of a rule.
pub const MAX_LIST: usize = 256;
/// The most networks that the rules of a network's policy name, those of their sets included. A packet may be compared
/// with all of them.
pub const MAX_NAMED_NETWORKS: usize = 4_096;
/// The most bytes of the name of a device.
const MAX_DEVICE_BYTES: usize = 15;

/// A machine of the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The name, which no other endpoint and no group has.
    pub name: Name,
    /// The networks of its own: addresses, and the routes to what lies behind.
    pub networks: Vec<IpNet>,
    /// The groups that the endpoint is in.
    pub groups: BTreeSet<Name>,
    /// The device by which alone its packets come.
    pub device: Option<Device>,
}

/// The name of a device of the kernel.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Device(String);

impl TryFrom<String> for Device {
    type Error = String;

    /// A name that nftables takes as it is: there, `*` stands for any end, and `"` ends a name.
    fn try_from(name: String) -> Result<Self, String> {
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"\"\\*/:".contains(&byte);
        match (1..=MAX_DEVICE_BYTES).contains(&name.len()) && name.bytes().all(is_plain) && name != "lo" {
            true => Ok(Self(name)),
            false => Err(format!("{name:?} is no device by which packets of others come: `ip link` lists the devices")),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a rule does with a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// The flow begins.
    Allow,
    /// The flow is refused.
    Deny,
}

impl Action {
    /// The word of the document.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}

/// A side of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Way {
    /// The side that begins the flow.
    From,
    /// The side that answers.
    To,
}

impl Way {
    /// The word of the document.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::From => "from",
            Self::To => "to",
        }
    }
}

/// Whom a rule names on one side of a flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Side {
    /// Everyone, endpoint or not.
    Anyone,
    /// These endpoints, by their places, and these networks.
    Some {
        /// Places of endpoints in the policy.
        endpoints: BTreeSet<usize>,
        /// Networks of anyone.
        networks: Vec<IpNet>,
    },
}

/// A rule. A flow matches if both sides and one service do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The name, which no other rule has.
    pub name: Name,
    /// What becomes of a flow that matches.
    pub action: Action,
    /// Who begins the flow.
    pub from: Side,
    /// Who answers.
    pub to: Side,
    /// Protocols with ports; any if there are none.
    pub services: Vec<Service>,
}

impl Rule {
    /// Whom the rule names on this side.
    #[must_use]
    pub fn side(&self, way: Way) -> &Side {
        match way {
            Way::From => &self.from,
            Way::To => &self.to,
        }
    }
}

/// The first packet of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flow {
    /// Who sends.
    pub source: IpAddr,
    /// Who shall answer, of the same family.
    pub destination: IpAddr,
    /// Protocol number (RFC 791 section 3.1).
    pub protocol: u8,
    /// Port of the destination; 0 if the protocol has none.
    pub port: u16,
}

/// What a policy says of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision<'a> {
    /// Neither side is an endpoint: the policy says nothing.
    Foreign,
    /// This rule decides.
    Rule(&'a Rule),
    /// No rule allows the flow.
    Default,
}

impl Decision<'_> {
    /// Whether the flow may begin.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        match self {
            Self::Foreign => true,
            Self::Rule(rule) => rule.action == Action::Allow,
            Self::Default => false,
        }
    }
}

/// The policy of a network.
#[derive(Debug, Clone)]
pub struct Policy {
    network: Name,
    endpoints: Vec<Endpoint>,
    rules: Vec<Rule>,
    filing: Filing,
    /// The endpoint of each network, by its first address. No two networks overlap.
    owners: BTreeMap<IpAddr, (IpNet, usize)>,
}

/// What is wrong with a policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// No endpoint.
    #[error("the policy has no endpoint")]
    NoEndpoint,
    /// No rule that allows.
    #[error("the policy has no rule under allow, so it would stop every flow")]
    NothingAllowed,
    /// Too many of something.
    #[error("a policy has at most {1} {0}")]
    TooMany(&'static str, usize),
    /// Two things with one name.
    #[error("{0} is the name of two {1}")]
    SameName(Name, &'static str),
    /// An endpoint without an address.
    #[error("the endpoint {0} has no address")]
    NoAddress(Name),
    /// A long list.
    #[error("a list of {0} has more than {MAX_LIST} entries")]
    LongList(Name),
    /// Two networks with an address in common.
    #[error("{0} of {1} and {2} of {3} have addresses in common")]
    Overlap(IpNet, Name, IpNet, Name),
    /// A rule that every flow matches.
    #[error("the rule {0} denies every flow: say from, to or services")]
    DeniesAll(Name),
    /// Too many rules for one packet.
    #[error(
        "a packet would be compared with more than {MAX_RULES_OF_PACKET} rules {0}: say groups, sets and services \
         together in one rule"
    )]
    ManyRules(String),
    /// A name is none.
    #[error(transparent)]
    Name(#[from] NameError),
}

impl Policy {
    /// A policy. Each place in a side of a rule is one of `endpoints`.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn new(network: Name, endpoints: Vec<Endpoint>, rules: Vec<Rule>) -> Result<Self, PolicyError> {
        if endpoints.len() > MAX_ENDPOINTS {
            return Err(PolicyError::TooMany("endpoints", MAX_ENDPOINTS));
        }
        if rules.len() > MAX_RULES {
            return Err(PolicyError::TooMany("rules", MAX_RULES));
        }
        if !rules.iter().any(|rule| rule.action == Action::Allow) {
            return Err(PolicyError::NothingAllowed);
        }
        check_names(&endpoints, &rules)?;
        for rule in &rules {
            let is_total = rule.from == Side::Anyone && rule.to == Side::Anyone && rule.services.is_empty();
            if rule.action == Action::Deny && is_total {
                return Err(PolicyError::DeniesAll(rule.name.clone()));
            }
        }
        let owners = owners(&endpoints)?;
        let filing = Filing::of(&endpoints, &rules)?;
        Ok(Self { network, endpoints, rules, filing, owners })
    }

    /// The policy of a network that has none: each endpoint may talk to each other, and nobody else to any.
    ///
    /// # Errors
    /// The first thing that is wrong with the endpoints.
    pub fn trusting(network: Name, endpoints: Vec<Endpoint>) -> Result<Self, PolicyError> {
        let all = || Side::Some { endpoints: (0..endpoints.len()).collect(), networks: Vec::new() };
        let (action, name, services) = (Action::Allow, "members".parse()?, Vec::new());
        let rule = Rule { name, action, from: all(), to: all(), services };
        Self::new(network, endpoints, vec![rule])
    }

    /// The name of the network.
    #[must_use]
    pub fn network(&self) -> &Name {
        &self.network
    }

    /// The endpoints.
    #[must_use]
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// The rules.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    pub(crate) fn filing(&self) -> &Filing {
        &self.filing
    }

    /// Place of the endpoint that has this address.
    #[must_use]
    pub fn owner(&self, address: IpAddr) -> Option<usize> {
        let (_, (net, place)) = self.owners.range(..=address).next_back()?;
        net.contains(&address).then_some(*place)
    }

    /// The endpoint of this name.
    #[must_use]
    pub fn endpoint(&self, name: &str) -> Option<&Endpoint> {
        self.endpoints.iter().find(|endpoint| endpoint.name.as_str() == name)
    }

    /// Whether an endpoint is bound to a device, and the packet's source and device do not belong together.
    #[must_use]
    pub fn is_spoofed(&self, source: IpAddr, device: &str) -> bool {
        let is_bound_here =
            |endpoint: &Endpoint| endpoint.device.as_ref().is_some_and(|bound| bound.to_string() == device);
        match self.owner(source).map(|place| &self.endpoints[place]) {
            Some(owner) if owner.device.is_some() => !is_bound_here(owner),
            _ => self.endpoints.iter().any(is_bound_here) && !is_of_link(source),
        }
    }

    /// What becomes of a flow, and which rule decides.
    ///
    /// Of several rules with one action, the first in this order decides: those of the source, those of the
    /// destination, and those of neither. The compiled rules count in the same order.
    #[must_use]
    pub fn decide(&self, flow: &Flow) -> Decision<'_> {
        let (source, destination) = (self.owner(flow.source), self.owner(flow.destination));
        if source.is_none() && destination.is_none() {
            return Decision::Foreign;
        }
        for action in [Action::Deny, Action::Allow] {
            let filed = self.filing.of_packet(action, source, destination);
            let mut rules = filed.map(|place| &self.rules[place]);
            if let Some(rule) = rules.find(|rule| self.matches(rule, flow, source, destination)) {
                return Decision::Rule(rule);
            }
        }
        Decision::Default
    }

    fn matches(&self, rule: &Rule, flow: &Flow, source: Option<usize>, destination: Option<usize>) -> bool {
        let has = |side: &Side, address: &IpAddr, owner: Option<usize>| match side {
            Side::Anyone => true,
            Side::Some { endpoints, networks } => {
                owner.is_some_and(|owner| endpoints.contains(&owner))
                    || networks.iter().any(|net| net.contains(address))
            }
        };
        has(&rule.from, &flow.source, source)
            && has(&rule.to, &flow.destination, destination)
            && (rule.services.is_empty() || rule.services.iter().any(|one| one.matches(flow.protocol, flow.port)))
    }
}

/// Whether an address holds on a link only, as every machine uses them there, or stands for none yet.
fn is_of_link(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_unspecified(),
        IpAddr::V6(address) => address.is_unspecified() || address.is_unicast_link_local(),
    }
}

fn check_names(endpoints: &[Endpoint], rules: &[Rule]) -> Result<(), PolicyError> {
    let mut names = BTreeSet::new();
    for endpoint in endpoints {
        if endpoint.networks.is_empty() {
            return Err(PolicyError::NoAddress(endpoint.name.clone()));
        }
        if endpoint.networks.len() > MAX_LIST || endpoint.groups.len() > MAX_LIST {
            return Err(PolicyError::LongList(endpoint.name.clone()));
        }
        if !names.insert(&endpoint.name) {
            return Err(PolicyError::SameName(endpoint.name.clone(), "endpoints"));
        }
    }
    for group in endpoints.iter().flat_map(|endpoint| &endpoint.groups) {
        if names.contains(group) {
            return Err(PolicyError::SameName(group.clone(), "things: an endpoint and a group"));
        }
    }
    let mut names = BTreeSet::new();
    for rule in rules {
        if rule.services.len() > MAX_LIST {
            return Err(PolicyError::LongList(rule.name.clone()));
        }
        if !names.insert(&rule.name) {
            return Err(PolicyError::SameName(rule.name.clone(), "rules"));
        }
    }
    Ok(())
}

/// The endpoint of each network, by its first address.
fn owners(endpoints: &[Endpoint]) -> Result<BTreeMap<IpAddr, (IpNet, usize)>, PolicyError> {
    let all = endpoints.iter().enumerate();
    let mut sorted: Vec<_> =
        all.flat_map(|(place, endpoint)| endpoint.networks.iter().map(move |net| (net.trunc(), place))).collect();
    // A network sorts before those within it, so that neighbours alone need comparing.
    sorted.sort_unstable();
    for pair in sorted.windows(2) {
        let [(one, first), (other, second)] = pair else { continue };
        if overlap(one, other) {
            let (first, second) = (endpoints[*first].name.clone(), endpoints[*second].name.clone());
            return Err(PolicyError::Overlap(*one, first, *other, second));
        }
    }
    Ok(sorted.into_iter().map(|(net, place)| (net.network(), (net, place))).collect())
}
