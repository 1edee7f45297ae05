//! The file of a policy.

use std::{collections::BTreeMap, ops::RangeInclusive, path::Path};

use ipnet::IpNet;
use sallyport_cli::failure::Failure;
use sallyport_packet_model::filter::{Action, AddressMatch, AddressSet, FlowState, Policy, Rule};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::{protocol, read};

/// The most bytes of the file.
const MAX_FILE_BYTES: u64 = 64 << 20;
/// The most bytes of the name of a device.
const MAX_DEVICE_BYTES: usize = 15;

/// The file.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PolicyFile {
    /// What becomes of a packet that no rule matches.
    default: ActionWord,
    /// Sets of networks, by name.
    #[serde(default)]
    sets: BTreeMap<String, Vec<Net>>,
    /// The rules, in their order.
    #[serde(default, rename = "rule")]
    rules: Vec<RuleSection>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ActionWord {
    Accept,
    Drop,
    Reject,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum StateWord {
    /// The other side has not answered yet
    New,
    /// The other side has answered
    Established,
    /// An ICMP error about a known flow
    Related,
    /// The packet can begin no flow, and belongs to none
    Invalid,
}

impl From<StateWord> for FlowState {
    fn from(word: StateWord) -> Self {
        match word {
            StateWord::New => Self::New,
            StateWord::Established => Self::Established,
            StateWord::Related => Self::Related,
            StateWord::Invalid => Self::Invalid,
        }
    }
}

/// A network, or one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
struct Net(IpNet);

impl TryFrom<String> for Net {
    type Error = String;

    fn try_from(word: String) -> Result<Self, String> {
        let net = word.parse().or_else(|_| word.parse().map(|address: std::net::IpAddr| IpNet::from(address)));
        net.map(Self).map_err(|_| format!("{word:?} is no network and no address"))
    }
}

/// A network, or a set of the file: `@name`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
struct Address(AddressMatch);

impl TryFrom<String> for Address {
    type Error = String;

    fn try_from(word: String) -> Result<Self, String> {
        match word.strip_prefix('@') {
            Some(name) => Ok(Self(AddressMatch::Set(name.to_owned()))),
            None => Net::try_from(word).map(|net| Self(AddressMatch::Net(net.0))),
        }
    }
}

/// A port, or a range of ports.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
enum Port {
    One(u16),
    Range(String),
}

impl Port {
    fn range(&self) -> Result<RangeInclusive<u16>, String> {
        match self {
            Self::One(port) => Ok(*port..=*port),
            Self::Range(word) => {
                let (first, last) = word.split_once('-').unwrap_or((word, word));
                match (first.trim().parse(), last.trim().parse()) {
                    (Ok(first), Ok(last)) => Ok(first..=last),
                    _ => Err(format!("{word:?} is no port and no range such as \"8000-8999\"")),
                }
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RuleSection {
    name: String,
    action: ActionWord,
    #[serde(default)]
    states: Vec<StateWord>,
    #[serde(default)]
    protocol: Option<Protocol>,
    #[serde(default)]
    from: Vec<Address>,
    #[serde(default)]
    to: Vec<Address>,
    #[serde(default)]
    source_ports: Vec<Port>,
    #[serde(default)]
    ports: Vec<Port>,
    #[serde(default, rename = "in")]
    incoming: Option<String>,
    #[serde(default, rename = "out")]
    outgoing: Option<String>,
}

/// A protocol by its name or number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "toml::Value")]
struct Protocol(u8);

impl TryFrom<toml::Value> for Protocol {
    type Error = String;

    fn try_from(value: toml::Value) -> Result<Self, String> {
        let number = value.as_integer().map(|number| number.to_string());
        let word = number.as_deref().or(value.as_str()).unwrap_or_default();
        protocol(word).map(Self)
    }
}

impl From<ActionWord> for Action {
    fn from(word: ActionWord) -> Self {
        match word {
            ActionWord::Accept => Self::Accept,
            ActionWord::Drop => Self::Drop,
            ActionWord::Reject => Self::Reject,
        }
    }
}

impl PolicyFile {
    /// Reads the file.
    pub(crate) fn read(file: &Path) -> Result<Self, Failure> {
        read(file, MAX_FILE_BYTES)
    }

    /// The digest of what the file says: comments and the order of sets change nothing.
    pub(crate) fn digest(&self) -> [u8; 32] {
        Sha256::digest(format!("{self:?}")).into()
    }

    /// The policy. `index` finds a device.
    pub(crate) fn to_policy(&self, mut index: impl FnMut(&str) -> Result<u32, Failure>) -> Result<Policy, Failure> {
        let mut rules = Vec::new();
        for section in &self.rules {
            let wrong = |reason: String| Failure::usage(format!("the rule {:?}: {reason}", section.name));
            let ranges = |ports: &[Port]| ports.iter().map(Port::range).collect::<Result<Vec<_>, _>>().map_err(wrong);
            let mut device = |name: &Option<String>| {
                let known = |name| device_name(name).map_err(wrong).and_then(&mut index);
                name.as_deref().map(known).transpose()
            };
            rules.push(Rule {
                name: section.name.clone(),
                action: section.action.into(),
                states: section.states.iter().map(|state| (*state).into()).collect(),
                protocol: section.protocol.map(|protocol| protocol.0),
                from: section.from.iter().map(|address| address.0.clone()).collect(),
                to: section.to.iter().map(|address| address.0.clone()).collect(),
                source_ports: ranges(&section.source_ports)?,
                destination_ports: ranges(&section.ports)?,
                incoming: device(&section.incoming)?,
                outgoing: device(&section.outgoing)?,
            });
        }
        let sets = self.sets.iter().map(|(name, nets)| {
            let set: AddressSet = nets.iter().map(|net| net.0.trunc()).collect();
            (name.clone(), set)
        });
        Policy::new(rules, sets.collect(), self.default.into()).map_err(|error| Failure::usage(error.to_string()))
    }
}

/// A name that a device can have, and that nftables takes as it is: there, `*` stands for any end, and `"` ends it.
fn device_name(name: &str) -> Result<&str, String> {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"\"\\*/:".contains(&byte);
    match (1..=MAX_DEVICE_BYTES).contains(&name.len()) && name.bytes().all(is_plain) {
        true => Ok(name),
        false => Err(format!("{name:?} is no name of a device: `ip link` lists the devices")),
    }
}

/// Numbers for devices by their names, for a policy that no kernel has.
#[derive(Debug, Default)]
pub(crate) struct Names(Vec<String>);

impl Names {
    /// The number of a device.
    pub(crate) fn index(&mut self, name: &str) -> u32 {
        let place = self.0.iter().position(|known| known == name).unwrap_or_else(|| {
            self.0.push(name.to_owned());
            self.0.len() - 1
        });
        place as u32 + 1
    }

    /// The device of a number.
    pub(crate) fn name(&self, index: u32) -> String {
        self.0.get((index as usize).wrapping_sub(1)).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;

    fn policy(text: &str) -> Result<Policy, String> {
        let mut names = Names::default();
        let file: PolicyFile = parse(text, "policy.toml").map_err(|failure| failure.message)?;
        file.to_policy(|name| Ok(names.index(name))).map_err(|failure| failure.message)
    }

    #[test]
    fn what_is_wrong_has_a_sentence() {
        let rule = "default = \"drop\"\n[[rule]]\nname = \"web\"\naction = \"accept\"\n";
        let wrong = |text: &str, words: &str| {
            let said = policy(text).unwrap_err();
            assert!(said.contains(words), "{said}");
        };
        wrong("", "missing field `default`");
        wrong(&format!("{rule}port = 80"), "policy.toml, line 5: unknown field `port`");
        wrong(&format!("{rule}ports = [80]"), "its protocol must be TCP or UDP");
        wrong(&format!("{rule}protocol = \"tcp\"\nports = [\"9-8\"]"), "ends before it begins");
        wrong(&format!("{rule}protocol = \"tcp\"\nports = [\"http\"]"), "is no port and no range");
        wrong(&format!("{rule}from = [\"@office\"]"), "names the set \"office\"");
        wrong(&format!("{rule}from = [\"office\"]"), "is no network and no address");
        wrong(&format!("{rule}protocol = \"tpc\""), "expected tcp, udp, icmp");
        for name in ["", "eth*", "eth1\\\" ; drop", "a b", "a\\nb", "sixteen-letters-"] {
            wrong(&format!("{rule}in = \"{name}\""), "is no name of a device");
            wrong(&format!("{rule}out = \"{name}\""), "is no name of a device");
        }
        wrong(&format!("{rule}[[rule]]\nname = \"web\"\naction = \"drop\""), "two rules have the name \"web\"");
    }
}
