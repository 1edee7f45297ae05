//! A table of nftables: counters, sets, maps and chains, and how many rules a packet meets at most.

use std::{
    collections::HashMap,
    fmt::{self, Write as _},
};

use ipnet::IpNet;

use crate::name::Name;

/// What a table's name begins with. The name of the network follows.
const TABLE_PREFIX: &str = "sallyport_network_";

/// Name of the table of a network. Nobody else writes it.
#[must_use]
pub fn table_name(network: &Name) -> String {
    format!("{TABLE_PREFIX}{network}")
}

/// The network of a table; `None` if the table is not of a network.
#[must_use]
pub fn network_of_table(table: &str) -> Option<Name> {
    table.strip_prefix(TABLE_PREFIX)?.parse().ok()
}

/// The script that removes the table of a network, if it is there.
#[must_use]
pub fn removal(network: &Name) -> String {
    let table = table_name(network);
    format!("table inet {table}\ndelete table inet {table}\n")
}

/// A table. Its text is a script of `nft` that sets the whole table in place of the one before, or nothing.
#[derive(Debug, Clone)]
pub struct Ruleset {
    network: Name,
    counters: Vec<String>,
    sets: String,
    maps: Vec<Map>,
    chains: Vec<Chain>,
}

impl Ruleset {
    pub(super) fn new(network: &Name) -> Self {
        Self {
            network: network.clone(),
            counters: Vec::new(),
            sets: String::new(),
            maps: Vec::new(),
            chains: Vec::new(),
        }
    }

    pub(super) fn add_counter(&mut self, name: String) {
        self.counters.push(name);
    }

    pub(super) fn add_set(&mut self, name: &str, kind: &str, nets: &[IpNet]) {
        let has_interval = nets.iter().any(is_interval);
        let flags = if has_interval { "\t\tflags interval\n" } else { "" };
        let elements: Vec<_> = nets.iter().map(element).collect();
        let elements = elements.join(", ");
        let _ = writeln!(self.sets, "\tset {name} {{\n\t\ttype {kind}\n{flags}\t\telements = {{ {elements} }}\n\t}}");
    }

    pub(super) fn add_map(&mut self, map: Map) {
        self.maps.push(map);
    }

    pub(super) fn add_chain(&mut self, chain: Chain) {
        self.chains.push(chain);
    }

    /// The most rules that a packet meets, look-ups in maps included.
    #[must_use]
    pub fn depth(&self) -> usize {
        let maps = self.maps.iter().map(|map| (map.name.as_str(), map)).collect();
        let chains = self.chains.iter().map(|chain| (chain.name.as_str(), chain)).collect();
        let mut walk = Walk { maps, chains, known: HashMap::new() };
        let depth = |hook: &str, walk: &mut Walk<'_>| walk.chain(hook);
        let before = depth("prerouting", &mut walk);
        before + ["input", "forward", "output"].map(|hook| depth(hook, &mut walk)).into_iter().max().unwrap_or_default()
    }
}

/// The longest way through a table.
struct Walk<'a> {
    maps: HashMap<&'a str, &'a Map>,
    chains: HashMap<&'a str, &'a Chain>,
    known: HashMap<&'a str, usize>,
}

impl<'a> Walk<'a> {
    fn chain(&mut self, name: &str) -> usize {
        let Some(chain) = self.chains.get(name).copied() else { return 0 };
        if let Some(known) = self.known.get(name) {
            return *known;
        }
        let (mut met, mut most) = (0, 0);
        for line in &chain.lines {
            met += 1;
            match &line.leads {
                Leads::Nowhere => {}
                Leads::Goto(chain) => most = most.max(met + self.chain(chain)),
                Leads::Jump(chain) => met += self.chain(chain),
                Leads::Map(map) => met += self.map(map),
            }
        }
        let depth = most.max(met);
        self.known.insert(&chain.name, depth);
        depth
    }

    fn map(&mut self, name: &str) -> usize {
        let elements = self.maps.get(name).map_or(&[][..], |map| &map.elements);
        elements.iter().filter_map(|(.., chain)| Some(self.chain(chain.as_deref()?))).max().unwrap_or_default()
    }
}

/// Where a rule can lead.
#[derive(Debug, Clone)]
pub(super) enum Leads {
    Nowhere,
    /// To a chain, for good.
    Goto(String),
    /// To a chain that returns.
    Jump(String),
    /// To chains of a map, which return.
    Map(String),
}

/// A rule of nftables.
#[derive(Debug, Clone)]
pub(super) struct Line {
    text: String,
    leads: Leads,
}

impl Line {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self::leading(text, Leads::Nowhere)
    }

    pub(super) fn leading(text: impl Into<String>, leads: Leads) -> Self {
        Self { text: text.into(), leads }
    }
}

/// A chain.
#[derive(Debug, Clone)]
pub(super) struct Chain {
    name: String,
    /// The line that binds the chain to a hook of the kernel.
    hook: Option<String>,
    lines: Vec<Line>,
}

impl Chain {
    pub(super) fn new(name: &str, lines: Vec<Line>) -> Self {
        Self { name: name.to_owned(), hook: None, lines }
    }

    pub(super) fn hooked(name: &str, hook: &str, priority: &str, lines: Vec<Line>) -> Self {
        let hook = format!("type filter hook {hook} priority {priority}; policy accept;");
        Self { hook: Some(hook), ..Self::new(name, lines) }
    }
}

/// A map from keys to verdicts.
#[derive(Debug, Clone)]
pub(super) struct Map {
    name: String,
    kind: &'static str,
    has_interval: bool,
    /// Key, verdict, and the chain that it leads to.
    elements: Vec<(String, String, Option<String>)>,
}

impl Map {
    pub(super) fn new(name: String, kind: &'static str, elements: Vec<(String, String, Option<String>)>) -> Self {
        Self { name, kind, has_interval: false, elements }
    }

    /// A map of networks, each with its verdict and its chain.
    pub(super) fn of_networks(name: String, kind: &'static str, elements: Vec<(IpNet, String, String)>) -> Self {
        let has_interval = elements.iter().any(|(net, ..)| is_interval(net));
        let elements = elements.into_iter().map(|(net, verdict, chain)| (element(&net), verdict, Some(chain)));
        Self { has_interval, ..Self::new(name, kind, elements.collect()) }
    }
}

fn is_interval(net: &IpNet) -> bool {
    net.prefix_len() < net.max_prefix_len()
}

/// A network as nftables writes it.
fn element(net: &IpNet) -> String {
    if is_interval(net) { net.to_string() } else { net.addr().to_string() }
}

impl fmt::Display for Ruleset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&removal(&self.network))?;
        writeln!(f, "table inet {} {{", table_name(&self.network))?;
        for counter in &self.counters {
            writeln!(f, "\tcounter {counter} {{ }}")?;
        }
        f.write_str(&self.sets)?;
        for map in &self.maps {
            let flags = if map.has_interval { "\t\tflags interval\n" } else { "" };
            writeln!(f, "\tmap {} {{\n\t\ttype {} : verdict\n{flags}\t\telements = {{", map.name, map.kind)?;
            for (key, verdict, _) in &map.elements {
                writeln!(f, "\t\t\t{key} : {verdict},")?;
            }
            writeln!(f, "\t\t}}\n\t}}")?;
        }
        for chain in &self.chains {
            writeln!(f, "\tchain {} {{", chain.name)?;
            for text in chain.hook.iter().chain(chain.lines.iter().map(|line| &line.text)) {
                writeln!(f, "\t\t{text}")?;
            }
            writeln!(f, "\t}}")?;
        }
        writeln!(f, "}}")
    }
}
