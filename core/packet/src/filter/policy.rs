//! Rules, and which of them decides.

use std::{
    collections::{BTreeMap, HashSet},
    net::IpAddr,
    ops::RangeInclusive,
};

use ipnet::IpNet;

use super::{AddressSet, FlowState, MAX_SET_PREFIXES};
use crate::parse::{Flow, TCP, UDP};

/// The most rules of a policy.
pub const MAX_RULES: usize = 10_000;
/// The most networks, sets or ranges of ports in one list of a rule.
pub const MAX_MATCHES: usize = 256;

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The packet goes on.
    Accept,
    /// The packet vanishes.
    Drop,
    /// The packet vanishes, and the kernel answers.
    Reject,
}

/// Addresses in a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AddressMatch {
    /// A network.
    Net(IpNet),
    /// A set of the policy, by its name.
    Set(String),
}

/// A rule. A packet matches if it matches every list that is not empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The name, which no other rule has.
    pub name: String,
    /// What becomes of a packet that matches.
    pub action: Action,
    /// States of the flow.
    pub states: Vec<FlowState>,
    /// Protocol number.
    pub protocol: Option<u8>,
    /// Sources.
    pub from: Vec<AddressMatch>,
    /// Destinations.
    pub to: Vec<AddressMatch>,
    /// Source ports; the protocol is TCP or UDP then.
    pub source_ports: Vec<RangeInclusive<u16>>,
    /// Destination ports; the protocol is TCP or UDP then.
    pub destination_ports: Vec<RangeInclusive<u16>>,
    /// Index of the interface that the packet came by.
    pub incoming: Option<u32>,
    /// Index of the interface that the packet leaves by.
    pub outgoing: Option<u32>,
}

impl Rule {
    /// A rule that every packet matches.
    #[must_use]
    pub fn new(name: &str, action: Action) -> Self {
        Self {
            name: name.to_owned(),
            action,
            states: Vec::new(),
            protocol: None,
            from: Vec::new(),
            to: Vec::new(),
            source_ports: Vec::new(),
            destination_ports: Vec::new(),
            incoming: None,
            outgoing: None,
        }
    }
}

/// Rules in their order: the first that matches decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    rules: Vec<Rule>,
    sets: BTreeMap<String, AddressSet>,
    default: Action,
}

/// What a rule looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// Addresses, ports and protocol.
    pub flow: Flow,
    /// Whether the flow's ports are those of the packet. Later fragments have none.
    pub has_ports: bool,
    /// The state of the flow.
    pub state: FlowState,
    /// Interface that the packet came by, if known.
    pub incoming: Option<u32>,
    /// Interface that the packet leaves by, if known.
    pub outgoing: Option<u32>,
}

/// Why a rule does not match: the first list that differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// The state.
    #[error("the flow has another state")]
    State,
    /// The protocol.
    #[error("the protocol differs")]
    Protocol,
    /// The incoming interface.
    #[error("the packet came by another interface")]
    Incoming,
    /// The outgoing interface.
    #[error("the packet leaves by another interface")]
    Outgoing,
    /// The source.
    #[error("the source is not in the rule")]
    From,
    /// The destination.
    #[error("the destination is not in the rule")]
    To,
    /// The source port.
    #[error("the source port is not in the rule")]
    SourcePort,
    /// The destination port.
    #[error("the destination port is not in the rule")]
    DestinationPort,
}

/// What a policy says of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// What becomes of the packet.
    pub action: Action,
    /// Place of the rule that decides; `None` if the default does.
    pub rule: Option<usize>,
}

/// What is wrong with a policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// Too many rules.
    #[error("a policy has at most {MAX_RULES} rules, not {0}")]
    TooManyRules(usize),
    /// A rule without a name.
    #[error("rule {0} has no name")]
    NoName(usize),
    /// Two rules with one name.
    #[error("two rules have the name {0:?}")]
    SameName(String),
    /// A list is too long.
    #[error("a list of rule {0:?} has more than {MAX_MATCHES} entries")]
    LongList(String),
    /// A set that the policy does not have.
    #[error("rule {rule:?} names the set {set:?}, which the policy does not have")]
    UnknownSet {
        /// Name of the rule.
        rule: String,
        /// Name of the set.
        set: String,
    },
    /// Ports of a protocol without ports.
    #[error("rule {0:?} has ports, so its protocol must be TCP or UDP")]
    PortsWithoutProtocol(String),
    /// A range of ports that ends before it begins.
    #[error("rule {0:?} has a range of ports that ends before it begins")]
    EmptyRange(String),
    /// A set is too large.
    #[error("the set {0:?} has more than {MAX_SET_PREFIXES} prefixes")]
    LargeSet(String),
}

impl Policy {
    /// A policy.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn new(rules: Vec<Rule>, sets: BTreeMap<String, AddressSet>, default: Action) -> Result<Self, PolicyError> {
        if rules.len() > MAX_RULES {
            return Err(PolicyError::TooManyRules(rules.len()));
        }
        if let Some((name, _)) = sets.iter().find(|(_, set)| set.count() > MAX_SET_PREFIXES) {
            return Err(PolicyError::LargeSet(name.clone()));
        }
        let mut names = HashSet::new();
        for (index, rule) in rules.iter().enumerate() {
            if rule.name.is_empty() {
                return Err(PolicyError::NoName(index + 1));
            }
            if !names.insert(rule.name.as_str()) {
                return Err(PolicyError::SameName(rule.name.clone()));
            }
            validate(rule, &sets)?;
        }
        Ok(Self { rules, sets, default })
    }

    /// The rules.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// What becomes of a packet that no rule matches.
    #[must_use]
    pub fn default_action(&self) -> Action {
        self.default
    }

    /// The prefixes that a list of a rule means: its networks, and those of its sets.
    #[must_use]
    pub fn prefixes(&self, list: &[AddressMatch]) -> Vec<IpNet> {
        let mut prefixes: Vec<IpNet> = Vec::new();
        for one in list {
            match one {
                AddressMatch::Net(net) => prefixes.push(net.trunc()),
                AddressMatch::Set(name) => {
                    prefixes.extend(self.sets.get(name).into_iter().flat_map(AddressSet::prefixes))
                }
            }
        }
        prefixes.sort_unstable();
        prefixes.dedup();
        prefixes
    }

    /// A set, to change its prefixes.
    pub fn set_mut(&mut self, name: &str) -> Option<&mut AddressSet> {
        self.sets.get_mut(name)
    }

    /// The first rule that matches decides, else the default.
    #[must_use]
    pub fn decide(&self, facts: &Facts) -> Decision {
        match self.rules.iter().position(|rule| self.compare(rule, facts).is_ok()) {
            Some(index) => Decision { action: self.rules[index].action, rule: Some(index) },
            None => Decision { action: self.default, rule: None },
        }
    }

    /// Why the rules before the deciding one do not match.
    pub fn mismatches(&self, facts: &Facts) -> impl Iterator<Item = (&Rule, Mismatch)> {
        self.rules.iter().map_while(move |rule| Some((rule, self.compare(rule, facts).err()?)))
    }

    fn compare(&self, rule: &Rule, facts: &Facts) -> Result<(), Mismatch> {
        let flow = &facts.flow;
        let has_address = |list: &[AddressMatch], address: IpAddr| {
            list.is_empty()
                || list.iter().any(|one| match one {
                    AddressMatch::Net(net) => net.contains(&address),
                    AddressMatch::Set(name) => self.sets.get(name).is_some_and(|set| set.contains(address)),
                })
        };
        let has_port = |list: &[RangeInclusive<u16>], port: u16| {
            list.is_empty() || (facts.has_ports && list.iter().any(|range| range.contains(&port)))
        };
        let is_way = |wanted: Option<u32>, way: Option<u32>| wanted.is_none() || wanted == way;
        let checks = [
            (rule.states.is_empty() || rule.states.contains(&facts.state), Mismatch::State),
            (rule.protocol.is_none_or(|protocol| protocol == flow.protocol), Mismatch::Protocol),
            (is_way(rule.incoming, facts.incoming), Mismatch::Incoming),
            (is_way(rule.outgoing, facts.outgoing), Mismatch::Outgoing),
            (has_address(&rule.from, flow.source), Mismatch::From),
            (has_address(&rule.to, flow.destination), Mismatch::To),
            (has_port(&rule.source_ports, flow.source_port), Mismatch::SourcePort),
            (has_port(&rule.destination_ports, flow.destination_port), Mismatch::DestinationPort),
        ];
        checks.into_iter().find(|(matches, _)| !matches).map_or(Ok(()), |(_, mismatch)| Err(mismatch))
    }
}

fn validate(rule: &Rule, sets: &BTreeMap<String, AddressSet>) -> Result<(), PolicyError> {
    let name = || rule.name.clone();
    let lengths = [rule.from.len(), rule.to.len(), rule.source_ports.len(), rule.destination_ports.len()];
    if lengths.into_iter().any(|length| length > MAX_MATCHES) {
        return Err(PolicyError::LongList(name()));
    }
    for one in rule.from.iter().chain(&rule.to) {
        match one {
            AddressMatch::Set(set) if !sets.contains_key(set) => {
                return Err(PolicyError::UnknownSet { rule: name(), set: set.clone() });
            }
            _ => {}
        }
    }
    let mut ports = rule.source_ports.iter().chain(&rule.destination_ports).peekable();
    if ports.peek().is_some() && !matches!(rule.protocol, Some(TCP | UDP)) {
        return Err(PolicyError::PortsWithoutProtocol(name()));
    }
    if ports.any(RangeInclusive::is_empty) {
        return Err(PolicyError::EmptyRange(name()));
    }
    Ok(())
}
