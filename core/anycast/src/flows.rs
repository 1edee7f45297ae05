//! The share of a site's flows that each of its edges serves: a Maglev table as rules of nftables.
//!
//! Routers in front of a site spread packets over its edges by a hash. When an edge comes or goes, many routers spread
//! most flows anew. Edges that balance among themselves do not depend on that: whichever edge gets a packet, the table
//! says which edge serves the flow. Responses go to the client directly.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    net::IpAddr,
};

use sallyport_balance::{HashKey, Weight, maglev::Maglev};
use sallyport_model::EdgeId;

/// The table of nftables.
pub const TABLE: &str = "sallyport_flows";
/// The most edges of a site.
pub const MAX_SITE_EDGES: usize = 64;
/// The code point of packets from another edge, which go no further: one for local use (RFC 2474 section 6).
const DSCP_OF_BALANCED: u8 = 43;
/// The key of the table and the seed of the hash: all edges of a site, of any version, must agree.
const TABLE_KEY: [u8; 16] = *b"sallyport-flows1";
const HASH_SEED: u32 = 0x5a11_9047;

/// An edge of a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteEdge {
    /// Its id.
    pub id: EdgeId,
    /// Its addresses in the network of the site, at most one of each family.
    pub addresses: Vec<IpAddr>,
}

/// What an edge balances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteFlows {
    /// The device in the network of the site, through which clients' packets come.
    pub device: String,
    /// This edge.
    pub own: EdgeId,
    /// The addresses at which all edges of the site serve.
    pub services: Vec<IpAddr>,
    /// All edges of the site that serve, with this one.
    pub edges: Vec<SiteEdge>,
}

/// Why flows are not balanced.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FlowsError {
    /// The name of the device.
    #[error("{0:?} is no name of a network device")]
    Device(String),
    /// Too many edges.
    #[error("a site has at most {MAX_SITE_EDGES} edges that balance flows, and not {0}")]
    TooManyEdges(usize),
}

/// One family of addresses.
struct Family<'a> {
    /// The keyword of nftables: `ip` or `ip6`.
    word: &'static str,
    services: Vec<IpAddr>,
    /// The address of each edge.
    edges: BTreeMap<&'a EdgeId, IpAddr>,
}

impl<'a> Family<'a> {
    fn new(flows: &'a SiteFlows, is_v4: bool) -> Self {
        let of_family = |address: &IpAddr| address.is_ipv4() == is_v4;
        let address_of = |edge: &'a SiteEdge| Some((&edge.id, *edge.addresses.iter().find(|one| of_family(one))?));
        let services: BTreeSet<IpAddr> = flows.services.iter().copied().filter(of_family).collect();
        Self {
            word: if is_v4 { "ip" } else { "ip6" },
            services: services.into_iter().collect(),
            edges: flows.edges.iter().filter_map(address_of).collect(),
        }
    }

    /// The edge of each slot.
    fn owners(&self) -> Vec<EdgeId> {
        let edges: Vec<_> = self.edges.keys().map(|id| (*id.as_bytes(), Weight::ONE)).collect();
        let table = Maglev::new(&HashKey::new(TABLE_KEY), &edges);
        table.map(|table| table.owners().map(|id| EdgeId::from_bytes(*id)).collect()).unwrap_or_default()
    }

    /// The rules of the chain, and what they use; `None` while there is nothing to balance.
    fn rules(&self, flows: &SiteFlows) -> Option<(String, String)> {
        if self.edges.len() < 2 || !self.edges.contains_key(&flows.own) || self.services.is_empty() {
            return None;
        }
        let (mut own, mut others) = (Vec::new(), Vec::new());
        for (slot, edge) in self.owners().iter().enumerate() {
            if *edge == flows.own {
                own.push(slot.to_string());
            } else {
                others.push(format!("{slot} : {}", self.edges[edge]));
            }
        }
        let (word, device, slots) = (self.word, &flows.device, own.len() + others.len());
        let services: Vec<String> = self.services.iter().map(ToString::to_string).collect();
        let (services, own, others) = (services.join(", "), own.join(", "), others.join(", "));
        let (address, fragments) = match word {
            // Later fragments have no ports: the edge that gets them keeps them.
            "ip" => ("ipv4_addr", "    ip frag-off & 0x1fff != 0 accept\n"),
            _ => ("ipv6_addr", ""),
        };
        let rules = format!(
            "    {word} dscp {DSCP_OF_BALANCED} accept\n{fragments}\
             \x20   {word} daddr {{ {services} }} meta l4proto {{ tcp, udp }} \
             meta mark set jhash {word} saddr . {word} daddr . th sport . th dport mod {slots} seed {HASH_SEED:#x} \
             goto {word}_slots\n"
        );
        let uses = format!(
            "  set {word}_own {{\n    type mark\n    elements = {{ {own} }}\n  }}\n\
             \x20 map {word}_others {{\n    type mark : {address}\n    elements = {{ {others} }}\n  }}\n\
             \x20 chain {word}_slots {{\n    meta mark @{word}_own meta mark set 0 accept\n\
             \x20   {word} dscp set {DSCP_OF_BALANCED} fwd {word} to meta mark map @{word}_others device \"{device}\"\n  }}\n"
        );
        Some((rules, uses))
    }
}

/// Whether the text is the name of a network device that is safe in rules.
fn is_device(name: &str) -> bool {
    let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'@');
    (1..=15).contains(&name.len()) && name.bytes().all(is_safe) && name != "." && name != ".."
}

impl SiteFlows {
    /// The input of `nft -f` that replaces the table at once; `None` while there is nothing to balance: the edge is
    /// alone, or has no service address.
    ///
    /// # Errors
    /// The name of the device is none, or there are too many edges.
    pub fn script(&self) -> Result<Option<String>, FlowsError> {
        if !is_device(&self.device) {
            return Err(FlowsError::Device(self.device.chars().take(32).collect()));
        }
        if self.edges.len() > MAX_SITE_EDGES {
            return Err(FlowsError::TooManyEdges(self.edges.len()));
        }
        let (mut rules, mut uses) = (String::new(), String::new());
        for is_v4 in [true, false] {
            let Some((more_rules, more_uses)) = Family::new(self, is_v4).rules(self) else { continue };
            rules += &more_rules;
            uses += &more_uses;
        }
        if rules.is_empty() {
            return Ok(None);
        }
        let mut script = removal();
        let _ = write!(
            script,
            "table netdev {TABLE} {{\n{uses}  chain clients {{\n    type filter hook ingress device \"{}\" priority 0; \
             policy accept;\n{rules}  }}\n}}\n",
            self.device
        );
        Ok(Some(script))
    }
}

/// The input of `nft -f` that removes the table, if there is one.
#[must_use]
pub fn removal() -> String {
    format!("table netdev {TABLE} {{ }}\ndelete table netdev {TABLE}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u8) -> EdgeId {
        EdgeId::from_random([number; 16])
    }

    fn site(own: u8, edges: &[u8]) -> SiteFlows {
        let addresses = |number: u8| vec![IpAddr::from([10, 0, 0, number]), format!("fd00::{number}").parse().unwrap()];
        SiteFlows {
            device: "eth0".to_owned(),
            own: id(own),
            services: vec!["198.51.100.1".parse().unwrap(), "2001:db8:a::1".parse().unwrap()],
            edges: edges.iter().map(|number| SiteEdge { id: id(*number), addresses: addresses(*number) }).collect(),
        }
    }

    #[test]
    fn two_more_edges_move_little_more_than_their_share_of_the_flows() {
        let owners = |edges: &[u8]| Family::new(&site(1, edges), true).owners();
        for (before, after) in [(&[1, 2][..], &[1, 2, 3, 4][..]), (&[1, 2, 3, 4], &[1, 2, 4]), (&[1, 2], &[1, 2, 3])] {
            let (old, new) = (owners(before), owners(after));
            let moved = old.iter().zip(&new).filter(|(old, new)| old != new).count();
            let (less, more) = (before.len().min(after.len()), before.len().max(after.len()));
            let ideal = old.len() * (more - less) / more;
            assert!(moved >= ideal * 9 / 10 && moved <= ideal * 12 / 10, "{before:?} to {after:?}: {moved} of {ideal}");
        }
    }

    #[test]
    fn all_edges_of_a_site_agree_whatever_the_order() {
        let owners = |own: u8, edges: &[u8]| Family::new(&site(own, edges), true).owners();
        assert_eq!(owners(1, &[1, 2, 3]), owners(3, &[3, 1, 2]));
        let of = |own: u8| site(own, &[1, 2]).script().unwrap().unwrap();
        assert!(of(1).contains("10.0.0.2") && !of(1).contains("10.0.0.1"), "an edge sends nothing to itself");
        assert!(of(2).contains("fd00::1") && of(2).starts_with(&removal()));
    }

    #[test]
    fn an_edge_alone_balances_nothing() {
        assert_eq!(site(1, &[1]).script(), Ok(None));
        assert_eq!(site(1, &[2, 3]).script(), Ok(None), "this edge does not serve");
        assert_eq!(SiteFlows { services: Vec::new(), ..site(1, &[1, 2]) }.script(), Ok(None));
        let mut v4 = site(1, &[1, 2]);
        v4.edges[1].addresses.pop();
        let script = v4.script().unwrap().unwrap();
        assert!(!script.contains("ip6"), "the other edge has no IPv6 address: {script}");
    }

    #[test]
    fn devices_and_numbers_of_edges_are_checked() {
        for device in ["", "a\" accept", "0123456789abcdef", "eth0\n", "..", "a/b"] {
            let flows = SiteFlows { device: device.to_owned(), ..site(1, &[1, 2]) };
            assert_eq!(flows.script(), Err(FlowsError::Device(device.to_owned())));
        }
        let many: Vec<u8> = (1..=65).collect();
        assert_eq!(site(1, &many).script(), Err(FlowsError::TooManyEdges(65)));
    }
}
