//! The tables of the firewall: compiles a policy of core/packet into the tables of packet/bpf/policy.h.

use std::{fs, net::IpAddr, ops::RangeInclusive, path::Path};

use ipnet::IpNet;
use libbpf_rs::{MapCore as _, MapFlags, OpenObject};
use sallyport_packet_model::filter::{Action, FlowState, Policy, Timeouts};

use crate::{XdpError, error::asked, pins::map};

/// The most rules of a router: `POLICY_MAX_RULES`.
pub const MAX_RULES: usize = 1024;
/// The most ranges of ports of a rule: `POLICY_RANGES`.
pub const MAX_RANGES: usize = 8;
/// The most prefixes of all rules.
pub const MAX_PREFIXES: usize = 1_048_576;
/// The most flows of each of two tables: assured ones, and others. A new one takes the place of the one that was silent
/// longest.
const MAX_FLOWS: u32 = 262_144;
/// The bytes of `struct policy_settings`.
pub(crate) const SETTINGS_BYTES: usize = 88;
/// Where the settings have the digest of the file, and the mark.
const DIGEST: std::ops::Range<usize> = 48..80;
const MARK: std::ops::Range<usize> = 80..86;
/// The tables. They are pinned as long as the router has a policy.
pub(crate) const NAMES: [&str; 5] = ["policy_rules", "policy_hits", "policy_sets", "policy_flows", "policy_openings"];

/// Whether a table outlives a change of the policy.
fn is_of_flows(name: &str) -> bool {
    matches!(name, "policy_flows" | "policy_openings")
}

/// What the program cannot hold of a policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyTooLarge {
    /// Too many rules.
    #[error("the policy has {0} rules, and the router holds {MAX_RULES}")]
    Rules(usize),
    /// Too many ranges of ports.
    #[error("the rule {0:?} has more than {MAX_RANGES} ranges of ports in one list: make two rules of it")]
    Ranges(String),
    /// Too many prefixes.
    #[error("the rules have {0} networks, and the router holds {MAX_PREFIXES}")]
    Prefixes(usize),
}

/// A compiled policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompiledPolicy {
    settings: [u8; SETTINGS_BYTES],
    rules: Vec<Vec<u8>>,
    /// Keys of prefixes.
    prefixes: Vec<Vec<u8>>,
}

impl CompiledPolicy {
    /// Compiles a policy.
    ///
    /// # Errors
    /// It is too large.
    pub fn new(policy: &Policy, timeouts: &Timeouts) -> Result<Self, PolicyTooLarge> {
        if policy.rules().len() > MAX_RULES {
            return Err(PolicyTooLarge::Rules(policy.rules().len()));
        }
        let (mut rules, mut prefixes) = (Vec::new(), Vec::new());
        let mut sets = 0_u32;
        for rule in policy.rules() {
            if rule.source_ports.len().max(rule.destination_ports.len()) > MAX_RANGES {
                return Err(PolicyTooLarge::Ranges(rule.name.clone()));
            }
            let mut set = |list: &[_]| {
                if list.is_empty() {
                    return 0;
                }
                sets += 1;
                prefixes.extend(policy.prefixes(list).iter().map(|net| prefix_key(sets, net)));
                sets
            };
            let states = rule.states.iter().fold(0, |bits, state| bits | state_bit(*state));
            let words = [
                action_number(rule.action),
                states,
                rule.protocol.map_or(ANY_PROTOCOL, u32::from),
                rule.incoming.unwrap_or(0),
                rule.outgoing.unwrap_or(0),
                set(&rule.from),
                set(&rule.to),
            ];
            let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            let lists = [&rule.source_ports, &rule.destination_ports];
            for list in lists {
                bytes.extend((list.len() as u16).to_ne_bytes());
            }
            for list in lists {
                let mut ranges: Vec<u8> = list.iter().flat_map(range_bytes).collect();
                ranges.resize(MAX_RANGES * 4, 0);
                bytes.extend(ranges);
            }
            rules.push(bytes);
        }
        if prefixes.len() > MAX_PREFIXES {
            return Err(PolicyTooLarge::Prefixes(prefixes.len()));
        }
        let mut bytes = Vec::with_capacity(SETTINGS_BYTES);
        for word in [1, rules.len() as u32, action_number(policy.default_action()), 0] {
            bytes.extend(word.to_ne_bytes());
        }
        let times = [timeouts.tcp_transitory, timeouts.tcp_established, timeouts.unanswered, timeouts.answered];
        bytes.extend(times.iter().flat_map(|time| (time.as_nanos() as u64).to_ne_bytes()));
        let mut settings = [0; SETTINGS_BYTES];
        settings[..bytes.len()].copy_from_slice(&bytes);
        Ok(Self { settings, rules, prefixes })
    }

    /// The same policy, with the digest of its file.
    #[must_use]
    pub fn with_digest(mut self, digest: [u8; 32]) -> Self {
        self.settings[DIGEST].copy_from_slice(&digest);
        self
    }

    /// The same policy, with the source of the link by which the rules of the kernel know what XDP has accepted.
    #[must_use]
    pub fn with_mark(mut self, mark: [u8; 6]) -> Self {
        self.settings[MARK].copy_from_slice(&mark);
        self
    }
}

const ANY_PROTOCOL: u32 = 256;
/// The bit of fragments, which no packet has here: the kernel has them.
const UNTRACKED: u32 = 16;

/// The bit of a set's number that stands for IPv4: `POLICY_SET_V4`.
const SET_V4: u32 = 0x8000_0000;

fn state_bit(state: FlowState) -> u32 {
    match state {
        FlowState::New => 1,
        FlowState::Established => 2,
        FlowState::Related => 4,
        FlowState::Invalid => 8,
        FlowState::Untracked => UNTRACKED,
    }
}

fn action_number(action: Action) -> u32 {
    match action {
        Action::Accept => 0,
        Action::Drop => 1,
        Action::Reject => 2,
    }
}

fn range_bytes(range: &RangeInclusive<u16>) -> Vec<u8> {
    [range.start().to_ne_bytes(), range.end().to_ne_bytes()].concat()
}

/// The key of a prefix: `struct policy_prefix`.
fn prefix_key(set: u32, net: &IpNet) -> Vec<u8> {
    let (address, length, set) = match net.network() {
        IpAddr::V4(address) => (address.to_ipv6_mapped(), 96 + u32::from(net.prefix_len()), set | SET_V4),
        IpAddr::V6(address) => (address, u32::from(net.prefix_len()), set),
    };
    [&(32 + length).to_ne_bytes()[..], &set.to_ne_bytes(), &address.octets()].concat()
}

/// Sets the settings and the sizes, before the programs are loaded. Returns the settings.
pub(crate) fn prepare(
    open: &mut OpenObject,
    pins: &Path,
    policy: Option<Option<&CompiledPolicy>>,
    may_make: bool,
) -> Result<(), XdpError> {
    let settings = match policy {
        Some(policy) => policy.map_or([0; SETTINGS_BYTES], |policy| policy.settings),
        None => standing(pins),
    };
    let is_on = settings[0] != 0;
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if name == ".rodata.policy" {
            map.set_initial_value(&settings).map_err(asked("set the settings of the policy"))?;
        }
        let Some(name) = NAMES.iter().find(|known| **known == name) else { continue };
        if !is_on {
            continue;
        }
        let size = match *name {
            "policy_sets" => MAX_PREFIXES as u32,
            name if is_of_flows(name) => MAX_FLOWS,
            _ => map.max_entries(),
        };
        map.set_max_entries(size).map_err(asked(format!("set the size of {name}")))?;
        let pin = pins.join(name);
        // A new policy has new rules and new sets: the program before keeps its own until it is replaced.
        if policy.is_some() && !is_of_flows(name) {
            continue;
        }
        if may_make || pin.exists() {
            map.set_pin_path(&pin).map_err(asked(format!("pin {}", pin.display())))?;
        }
    }
    Ok(())
}

/// Writes the rules and the sets into the maps of the program that is not yet attached.
pub(crate) fn fill(object: &libbpf_rs::Object, policy: Option<&CompiledPolicy>) -> Result<(), XdpError> {
    let Some(policy) = policy else { return Ok(()) };
    let table = |name: &str| object.maps().find(|map| map.name() == name).ok_or(XdpError::NoProgram);
    let (rules, sets) = (table("policy_rules")?, table("policy_sets")?);
    let failed = || asked("fill the tables of the policy");
    for (place, rule) in policy.rules.iter().enumerate() {
        rules.update(&(place as u32).to_ne_bytes(), rule, MapFlags::ANY).map_err(failed())?;
    }
    for prefix in &policy.prefixes {
        sets.update(prefix, &1_u32.to_ne_bytes(), MapFlags::ANY).map_err(failed())?;
    }
    Ok(())
}

/// After the program is attached: pins its tables, and removes those that no policy needs.
pub(crate) fn finish(
    pins: &Path,
    object: &mut libbpf_rs::Object,
    policy: Option<&CompiledPolicy>,
) -> Result<(), XdpError> {
    let settings = policy.map_or([0; SETTINGS_BYTES], |policy| policy.settings);
    let kept = map(pins, "policy_settings")?;
    kept.update(&[0; 4], &settings, MapFlags::ANY).map_err(asked("keep the settings of the policy"))?;
    for name in NAMES.iter().filter(|name| policy.is_none() || !is_of_flows(name)) {
        drop(fs::remove_file(pins.join(name)));
    }
    if policy.is_some() {
        for mut map in object.maps_mut() {
            if let Some(name) = NAMES.iter().find(|name| map.name() == **name && !is_of_flows(name)) {
                map.pin(pins.join(name)).map_err(asked(format!("pin {name}")))?;
            }
        }
    }
    Ok(())
}

/// The digest of the file, and the mark, of the policy that stands.
pub(crate) fn standing_digest(pins: &Path) -> ([u8; 32], [u8; 6]) {
    let settings = standing(pins);
    let (mut digest, mut mark) = ([0; 32], [0; 6]);
    digest.copy_from_slice(&settings[DIGEST]);
    mark.copy_from_slice(&settings[MARK]);
    (digest, mark)
}

/// The settings of the router that stands.
pub(crate) fn standing(pins: &Path) -> [u8; SETTINGS_BYTES] {
    let read = || map(pins, "policy_settings").ok()?.lookup(&[0; 4], MapFlags::ANY).ok()?;
    read().and_then(|bytes| bytes.try_into().ok()).unwrap_or([0; SETTINGS_BYTES])
}
