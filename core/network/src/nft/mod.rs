//! A policy as one table of nftables, for what this machine sends, receives and forwards. Uses `policy`.
//!
//! A packet takes four steps. Its source must belong to its device. Connection tracking accepts what belongs to a known
//! flow. Maps from addresses to chains lead the first packet of a flow to the rules filed under its endpoints, those
//! that deny before those that allow. What no rule has allowed is refused. So the number of rules that one packet meets
//! does not depend on the number of endpoints: [`Ruleset::depth`].

mod classes;
mod ruleset;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use ipnet::IpNet;

use self::{
    classes::Classes,
    ruleset::{Chain, Leads, Line, Map},
};
use crate::policy::{Action, ICMP, ICMPV6, Policy, Rule, Service, Side, TCP, UDP, Way};

pub use ruleset::{Ruleset, network_of_table, removal, table_name};

/// Chain that refuses a flow, so that the sender learns of it.
const REFUSE: &str = "refuse";
/// Counter of first packets that no rule allows.
pub const DEFAULT_COUNTER: &str = "default";
/// Counter of packets whose source and device do not belong together.
pub const SPOOFED_COUNTER: &str = "spoofed";
/// Counter of packets that neither begin a flow nor belong to one.
pub const INVALID_COUNTER: &str = "invalid";

/// A family of IP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

impl Family {
    const BOTH: [Self; 2] = [Self::V4, Self::V6];

    /// The word of nftables for its header.
    fn header(self) -> &'static str {
        match self {
            Self::V4 => "ip",
            Self::V6 => "ip6",
        }
    }

    /// The type of its addresses.
    fn kind(self) -> &'static str {
        match self {
            Self::V4 => "ipv4_addr",
            Self::V6 => "ipv6_addr",
        }
    }

    /// The chain of the first packet of a flow.
    fn begin(self) -> String {
        format!("begin-{}", self.header())
    }

    fn has(self, net: &IpNet) -> bool {
        matches!((self, net), (Self::V4, IpNet::V4(_)) | (Self::V6, IpNet::V6(_)))
    }
}

impl Way {
    fn field(self) -> &'static str {
        match self {
            Self::From => "saddr",
            Self::To => "daddr",
        }
    }
}

/// Name of the counter of a rule.
#[must_use]
pub fn counter_name(rule: &Rule) -> String {
    format!("{}-{}", rule.action.as_str(), rule.name)
}

/// The table of a policy.
#[must_use]
pub fn compile(policy: &Policy) -> Ruleset {
    let mut compiler = Compiler { policy, ruleset: Ruleset::new(policy.network()), sets: BTreeMap::new() };
    for counter in [INVALID_COUNTER, SPOOFED_COUNTER, DEFAULT_COUNTER] {
        compiler.ruleset.add_counter(counter.to_owned());
    }
    for rule in policy.rules() {
        compiler.ruleset.add_counter(counter_name(rule));
    }
    compiler.ruleset.add_chain(Chain::new(
        REFUSE,
        vec![Line::new("meta l4proto tcp reject with tcp reset"), Line::new("reject with icmpx admin-prohibited")],
    ));
    let dispatch: Vec<_> = [Action::Deny, Action::Allow].map(|action| compiler.action(action)).concat();
    compiler.begin(&dispatch);
    compiler.sources();
    compiler.hooks();
    compiler.ruleset
}

struct Compiler<'a> {
    policy: &'a Policy,
    ruleset: Ruleset,
    /// Names of sets by what they have.
    sets: BTreeMap<Vec<IpNet>, String>,
}

impl Compiler<'_> {
    /// The chains and maps of all rules with this action; returns the lines that lead to them, with their family.
    fn action(&mut self, action: Action) -> Vec<(Option<Family>, Line)> {
        let mut lines = Vec::new();
        for way in [Way::From, Way::To] {
            let classes = Classes::of(self.policy, action, way);
            for (name, rules) in classes.chains() {
                let chain = self.rules_chain(name, rules, Some(way));
                self.ruleset.add_chain(chain);
            }
            for family in Family::BOTH {
                let leads = |net: IpNet, chain: &str| (net, format!("jump {chain}"), chain.to_owned());
                let of_family = classes.members().filter(|(net, _)| family.has(net));
                let members: Vec<_> = of_family.map(|(net, chain)| leads(net, chain)).collect();
                // Single addresses are a hash, and networks a tree.
                let (networks, addresses): (Vec<_>, Vec<_>) =
                    members.into_iter().partition(|(net, ..)| net.prefix_len() < net.max_prefix_len());
                for (word, elements) in [("", addresses), ("-routes", networks)] {
                    if elements.is_empty() {
                        continue;
                    }
                    let name = format!("{}-{}{word}-{}", action.as_str(), way.as_str(), family.header());
                    let text = format!("{} {} vmap @{name}", family.header(), way.field());
                    lines.push((Some(family), Line::leading(text, Leads::Map(name.clone()))));
                    self.ruleset.add_map(Map::of_networks(name, family.kind(), elements));
                }
            }
        }
        let common = self.policy.filing().common(action).to_vec();
        if !common.is_empty() {
            let name = format!("{}-common", action.as_str());
            let chain = self.rules_chain(&name, &common, None);
            self.ruleset.add_chain(chain);
            lines.push((None, Line::leading(format!("jump {name}"), Leads::Jump(name))));
        }
        lines
    }

    /// The rules of a chain. The map that leads there has compared the side that they are filed under.
    fn rules_chain(&mut self, name: &str, rules: &[usize], filed: Option<Way>) -> Chain {
        let mut lines = Vec::new();
        for place in rules {
            let rule = &self.policy.rules()[*place];
            let mut sides: Vec<_> = [Way::From, Way::To].into_iter().filter(|way| Some(*way) != filed).collect();
            sides.retain(|way| *rule.side(*way) != Side::Anyone);
            let conditions: Vec<String> = if sides.is_empty() {
                vec![String::new()]
            } else {
                Family::BOTH.into_iter().filter_map(|family| self.addresses(rule, &sides, family)).collect()
            };
            let verdict = match rule.action {
                Action::Allow => "accept".to_owned(),
                Action::Deny => format!("goto {REFUSE}"),
            };
            for addresses in conditions {
                for service in services(&rule.services) {
                    let text = format!("{addresses}{service}counter name \"{}\" {verdict}", counter_name(rule));
                    lines.push(match rule.action {
                        Action::Allow => Line::new(text),
                        Action::Deny => Line::leading(text, Leads::Goto(REFUSE.to_owned())),
                    });
                }
            }
        }
        Chain::new(name, lines)
    }

    /// The condition on the addresses of these sides; none if no packet of the family can meet it.
    fn addresses(&mut self, rule: &Rule, sides: &[Way], family: Family) -> Option<String> {
        let mut condition = String::new();
        for way in sides {
            let Side::Some { endpoints, networks } = rule.side(*way) else { continue };
            let own = endpoints.iter().flat_map(|place| &self.policy.endpoints()[*place].networks);
            let all: Vec<_> = own.chain(networks).filter(|net| family.has(net)).copied().collect();
            let nets = IpNet::aggregate(&all);
            let what = match nets.as_slice() {
                [] => return None,
                [one] if one.prefix_len() == 0 => format!("{} {} {one} ", family.header(), way.field()),
                [one] if one.prefix_len() == one.max_prefix_len() => {
                    format!("{} {} {} ", family.header(), way.field(), one.addr())
                }
                [one] => format!("{} {} {one} ", family.header(), way.field()),
                _ => {
                    let name = format!("{}-{}-{}-{}", rule.action.as_str(), rule.name, way.as_str(), family.header());
                    let set = self.set(name, family, nets);
                    format!("{} {} @{set} ", family.header(), way.field())
                }
            };
            condition.push_str(&what);
        }
        Some(condition)
    }

    /// The set of these networks, which rules with the same share.
    fn set(&mut self, name: String, family: Family, nets: Vec<IpNet>) -> String {
        if let Some(known) = self.sets.get(&nets) {
            return known.clone();
        }
        self.ruleset.add_set(&name, family.kind(), &nets);
        self.sets.insert(nets, name.clone());
        name
    }

    /// The chains of the first packet of a flow of an endpoint, one for each family.
    fn begin(&mut self, dispatch: &[(Option<Family>, Line)]) {
        for family in Family::BOTH {
            // Connection tracking takes up a connection in the middle. One that was cut would go on from its other side.
            let middle =
                format!("tcp flags & (fin | syn | rst | ack) != syn counter name \"{INVALID_COUNTER}\" goto {REFUSE}");
            let mut lines = vec![
                Line::new(format!("ct state invalid counter name \"{INVALID_COUNTER}\" drop")),
                Line::leading(middle, Leads::Goto(REFUSE.to_owned())),
            ];
            let of_family = dispatch.iter().filter(|(of, _)| of.is_none_or(|of| of == family));
            lines.extend(of_family.map(|(_, line)| line.clone()));
            let text = format!("counter name \"{DEFAULT_COUNTER}\" goto {REFUSE}");
            lines.push(Line::leading(text, Leads::Goto(REFUSE.to_owned())));
            self.ruleset.add_chain(Chain::new(&family.begin(), lines));
        }
    }

    /// The chains of devices: each names the sources that come by it.
    fn sources(&mut self) {
        let mut devices: BTreeMap<_, Vec<IpNet>> = BTreeMap::new();
        for endpoint in self.policy.endpoints() {
            if let Some(device) = &endpoint.device {
                devices.entry(device).or_default().extend(&endpoint.networks);
            }
        }
        if devices.is_empty() {
            return;
        }
        let drop = || Line::new(format!("counter name \"{SPOOFED_COUNTER}\" drop"));
        let mut elements = vec![("\"lo\"".to_owned(), "accept".to_owned(), None)];
        for (number, (device, nets)) in (1..).zip(&devices) {
            let name = format!("source-{number}");
            let mut lines = Vec::new();
            for (family, link) in [(Family::V4, "0.0.0.0"), (Family::V6, "fe80::/10, ::")] {
                let own: Vec<_> = nets.iter().filter(|net| family.has(net)).copied().collect();
                let own = IpNet::aggregate(&own).iter().map(|net| format!(", {net}")).collect::<String>();
                lines.push(Line::new(format!("{} saddr {{ {link}{own} }} accept", family.header())));
            }
            lines.push(drop());
            self.ruleset.add_chain(Chain::new(&name, lines));
            elements.push((format!("\"{device}\""), format!("goto {name}"), Some(name)));
        }
        self.ruleset.add_map(Map::new("source-devices".to_owned(), "ifname", elements));
        let mut lines = vec![Line::leading("iifname vmap @source-devices", Leads::Map("source-devices".to_owned()))];
        let bound: Vec<_> = devices.into_values().flatten().collect();
        for family in Family::BOTH {
            let nets = IpNet::aggregate(&bound.iter().filter(|net| family.has(net)).copied().collect());
            if nets.is_empty() {
                continue;
            }
            let name = format!("bound-{}", family.header());
            self.ruleset.add_set(&name, family.kind(), &nets);
            lines.push(Line::new(format!("{} saddr @{name} counter name \"{SPOOFED_COUNTER}\" drop", family.header())));
        }
        self.ruleset.add_chain(Chain::hooked("prerouting", "prerouting", "raw", lines));
    }

    /// The chains that the kernel calls.
    fn hooks(&mut self) {
        let mut judge = vec![Line::new("ct state vmap { established : accept, related : accept }")];
        for family in Family::BOTH {
            let nets = self.policy.endpoints().iter().flat_map(|endpoint| &endpoint.networks);
            let (networks, addresses): (Vec<_>, Vec<_>) =
                nets.filter(|net| family.has(net)).copied().partition(|net| net.prefix_len() < net.max_prefix_len());
            for (name, nets) in [("endpoints", addresses), ("routes", networks)] {
                if nets.is_empty() {
                    continue;
                }
                let name = format!("{name}-{}", family.header());
                self.ruleset.add_set(&name, family.kind(), &nets);
                for way in [Way::From, Way::To] {
                    let begin = family.begin();
                    let text = format!("{} {} @{name} goto {begin}", family.header(), way.field());
                    judge.push(Line::leading(text, Leads::Goto(begin)));
                }
            }
        }
        self.ruleset.add_chain(Chain::new("judge", judge));
        let neighbours =
            "icmpv6 type { nd-router-solicit, nd-router-advert, nd-neighbor-solicit, nd-neighbor-advert } accept";
        for (hook, device) in [("input", Some("iifname")), ("forward", None), ("output", Some("oifname"))] {
            let mut lines = Vec::new();
            if let Some(device) = device {
                // Neighbour discovery is below every policy, and connection tracking does not know it.
                lines.extend([Line::new(format!("{device} \"lo\" accept")), Line::new(neighbours)]);
            }
            lines.push(Line::leading("jump judge", Leads::Jump("judge".to_owned())));
            self.ruleset.add_chain(Chain::hooked(hook, hook, "filter", lines));
        }
    }
}

/// Conditions on protocols and ports, one for each rule of nftables.
fn services(services: &[Service]) -> Vec<String> {
    if services.is_empty() {
        return vec![String::new()];
    }
    let mut conditions = Vec::new();
    for (protocol, word) in [(TCP, "tcp"), (UDP, "udp")] {
        let of_protocol = services.iter().filter_map(|service| match service {
            Service::Tcp(ports) if protocol == TCP => Some(ports),
            Service::Udp(ports) if protocol == UDP => Some(ports),
            _ => None,
        });
        let ports: Vec<_> = of_protocol.collect();
        if ports.iter().any(|ports| ports.is_none()) {
            conditions.push(format!("meta l4proto {word} "));
        } else if !ports.is_empty() {
            let ranges = merged(ports.into_iter().flatten().map(|range| (*range.start(), *range.end())).collect());
            conditions.push(format!("{word} dport {{ {} }} ", ranges.join(", ")));
        }
    }
    if services.contains(&Service::Icmp) {
        conditions.push(format!("meta l4proto {{ {ICMP}, {ICMPV6} }} "));
    }
    conditions
}

/// Ranges as nftables takes them: none overlaps another.
fn merged(mut ranges: Vec<(u16, u16)>) -> Vec<String> {
    ranges.sort_unstable();
    let mut merged: Vec<(u16, u16)> = Vec::new();
    for (first, last) in ranges {
        match merged.last_mut() {
            Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
            _ => merged.push((first, last)),
        }
    }
    let word = |(first, last): (u16, u16)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    merged.into_iter().map(word).collect()
}
