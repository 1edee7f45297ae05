//! The same policy as rules of the kernel's nftables, for what goes by the kernel.

use std::{fmt::Write as _, ops::RangeInclusive};

use ipnet::IpNet;

use super::{Action, FlowState, Policy, Rule};
use crate::parse::TCP;

/// The table that the rules are in. Nobody else writes it.
pub const POLICY_TABLE: &str = "sallyport_policy";

/// The script that removes the table, if it is there.
#[must_use]
pub fn policy_removal() -> String {
    format!("table inet {POLICY_TABLE}\ndelete table inet {POLICY_TABLE}\n")
}

/// The script that sets the whole table at once, in place of the one before. `device` names a device by its index.
///
/// Each rule of the policy is one rule of nftables, or two for two families. Its comment is `rule` and its place. The
/// first rule only names a state: then connection tracking puts fragments together, and no rule misses their ports. The
/// second one takes what XDP has accepted, which has the mark as the source of the link.
#[must_use]
pub fn policy_rules(policy: &Policy, mark: Option<[u8; 6]>, device: impl Fn(u32) -> String) -> String {
    let (mut sets, mut rules) = (String::new(), String::new());
    for (place, rule) in policy.rules().iter().enumerate() {
        let sides = [("from", "saddr", &rule.from), ("to", "daddr", &rule.to)];
        for (is_v4, family, kind) in [(true, "ip", "ipv4_addr"), (false, "ip6", "ipv6_addr")] {
            let mut condition = String::new();
            let mut is_possible = true;
            for (side, field, list) in &sides {
                if list.is_empty() {
                    continue;
                }
                let prefixes = policy.prefixes(list).into_iter();
                let prefixes: Vec<_> = prefixes.filter(|net| matches!(net, IpNet::V4(_)) == is_v4).collect();
                is_possible &= !prefixes.is_empty();
                let name = format!("rule{place}_{side}_{family}");
                write_set(&mut sets, &name, kind, &prefixes);
                let _ = write!(condition, "{family} {field} @{name} ");
            }
            // A rule without addresses is one rule for both families.
            let has_addresses = sides.iter().any(|(_, _, list)| !list.is_empty());
            if is_possible && (has_addresses || is_v4) {
                write_rule(&mut rules, place, rule, &condition, &device);
            }
        }
    }
    let default = verdict(policy.default_action());
    let chain = "\tchain forward {\n\t\ttype filter hook forward priority filter; policy accept;\n\t\tct state new";
    let mark = mark.map(|mark| mark.map(|byte| format!("{byte:02x}")).join(":"));
    let mark = mark.map(|mark| format!("\t\tether saddr {mark} accept\n")).unwrap_or_default();
    let removal = policy_removal();
    format!(
        "{removal}table inet {POLICY_TABLE} {{\n{sets}{chain}\n{mark}{rules}\t\tcounter {default} comment \"default\"\n\t}}\n}}\n"
    )
}

fn write_set(sets: &mut String, name: &str, kind: &str, prefixes: &[IpNet]) {
    if prefixes.is_empty() {
        return;
    }
    let elements: Vec<_> = prefixes.iter().map(ToString::to_string).collect();
    let _ = writeln!(
        sets,
        "\tset {name} {{\n\t\ttype {kind}\n\t\tflags interval\n\t\tauto-merge\n\t\telements = {{ {} }}\n\t}}",
        elements.join(", ")
    );
}

fn write_rule(rules: &mut String, place: usize, rule: &Rule, addresses: &str, device: &impl Fn(u32) -> String) {
    rules.push_str("\t\t");
    if !rule.states.is_empty() {
        let states: Vec<_> = rule.states.iter().map(|state| state_name(*state)).collect();
        let _ = write!(rules, "ct state {{ {} }} ", states.join(", "));
    }
    if let Some(protocol) = rule.protocol {
        let _ = write!(rules, "meta l4proto {protocol} ");
    }
    for (word, way) in [("iifname", rule.incoming), ("oifname", rule.outgoing)] {
        if let Some(index) = way {
            let _ = write!(rules, "{word} \"{}\" ", device(index));
        }
    }
    rules.push_str(addresses);
    let protocol = if rule.protocol == Some(TCP) { "tcp" } else { "udp" };
    for (field, ranges) in [("sport", &rule.source_ports), ("dport", &rule.destination_ports)] {
        if !ranges.is_empty() {
            let _ = write!(rules, "{protocol} {field} {{ {} }} ", merged(ranges).join(", "));
        }
    }
    let _ = writeln!(rules, "counter {} comment \"rule {place}\"", verdict(rule.action));
}

/// Ranges as nftables takes them: none overlaps another.
fn merged(ranges: &[RangeInclusive<u16>]) -> Vec<String> {
    let mut sorted: Vec<_> = ranges.iter().map(|range| (*range.start(), *range.end())).collect();
    sorted.sort_unstable();
    let mut merged: Vec<(u16, u16)> = Vec::new();
    for (first, last) in sorted {
        match merged.last_mut() {
            Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
            _ => merged.push((first, last)),
        }
    }
    let word = |(first, last): (u16, u16)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    merged.into_iter().map(word).collect()
}

fn state_name(state: FlowState) -> &'static str {
    match state {
        FlowState::New => "new",
        FlowState::Established => "established",
        FlowState::Related => "related",
        FlowState::Invalid => "invalid",
        FlowState::Untracked => "untracked",
    }
}

fn verdict(action: Action) -> &'static str {
    match action {
        Action::Accept => "accept",
        Action::Drop => "drop",
        Action::Reject => "reject with icmpx admin-prohibited",
    }
}
