//! Lists of rules, and what they say of a client.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::{Asn, Country, Rule, ranges::Ranges, rule::networks};

/// How many rules a list has at most, allowed and denied ones together.
pub const MAX_RULES: usize = 1_000;

/// Who may use a socket. The empty list lets everyone in.
///
/// - Whoever a rule of `deny` means is kept out, whatever `allow` says.
/// - When `allow` has rules, everyone else is kept out too. Its rules are alternatives: one that matches is enough.
/// - A client whose country or autonomous system is not known may be of each that is denied, and is of none that is
///   allowed. So it is kept out by a list that denies by country, and by one that allows by country alone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AccessList {
    /// Who is let in; everyone when empty.
    pub allow: Vec<Rule>,
    /// Who is kept out.
    pub deny: Vec<Rule>,
}

/// Why a list cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// More rules than a list may have.
    #[error("the access list has {count} rules and may have {MAX_RULES}: join networks that lie side by side")]
    TooManyRules {
        /// How many it has.
        count: usize,
    },
    /// Every address is denied.
    #[error("the access list denies every address, so nobody could use the socket: deny less than all networks")]
    DeniesEveryone,
    /// Every rule that allows is denied.
    #[error(
        "the access list denies everyone whom it allows, so nobody could use the socket: \
         {rule} is allowed and denied, and deny wins"
    )]
    AllowsNobody {
        /// The first rule that allows and is of no use.
        rule: Rule,
    },
}

/// What a list says of one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListDecision {
    /// Whether the client may use the socket.
    pub allowed: bool,
    /// The rule that decided, the narrowest network where several do. None when no rule matched: the client is let in
    /// because nothing is said about it, or kept out because others are allowed.
    pub rule: Option<Rule>,
}

impl AccessList {
    /// Whether it lets everyone in because it has no rule.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.allow.is_empty() && self.deny.is_empty()
    }

    /// Whether it has a rule about a country, for which a database of addresses is needed.
    #[must_use]
    pub fn needs_country(&self) -> bool {
        self.rules().any(|rule| matches!(rule, Rule::Country(_)))
    }

    /// Whether it has a rule about an autonomous system, for which a database of addresses is needed.
    #[must_use]
    pub fn needs_asn(&self) -> bool {
        self.rules().any(|rule| matches!(rule, Rule::Asn(_)))
    }

    fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.allow.iter().chain(&self.deny)
    }

    /// The list as it is asked about clients.
    ///
    /// # Errors
    /// When it has more than [`MAX_RULES`] rules, and when it is sure that nobody could ever use the socket.
    pub fn compile(&self) -> Result<CompiledList, AccessError> {
        let count = self.rules().count();
        if count > MAX_RULES {
            return Err(AccessError::TooManyRules { count });
        }
        let compiled = CompiledList { allow: Matcher::new(&self.allow), deny: Matcher::new(&self.deny) };
        if compiled.deny.networks.cover_everything() {
            return Err(AccessError::DeniesEveryone);
        }
        match self.allow.first() {
            Some(rule) if self.allow.iter().all(|rule| compiled.deny.covers(rule)) => {
                Err(AccessError::AllowsNobody { rule: *rule })
            }
            _ => Ok(compiled),
        }
    }
}

/// A list that answers quickly: networks as sorted ranges, countries and autonomous systems sorted.
#[derive(Debug, Clone, Default)]
pub struct CompiledList {
    allow: Matcher,
    deny: Matcher,
}

impl CompiledList {
    /// Whether the client may use the socket. `country` and `asn` are None when they are not known: then they may be each
    /// of those that are denied, and none of those that are allowed. Allocates nothing;
    /// the time goes with the logarithm of the number of rules.
    #[must_use]
    pub fn decide(&self, address: IpAddr, country: Option<Country>, asn: Option<Asn>) -> ListDecision {
        // What nobody can tell is denied: the address may be one of those that are not let in.
        if let Some(rule) = self.deny.find(address, country, asn).or_else(|| self.deny.may_mean(address, country, asn))
        {
            return ListDecision { allowed: false, rule: Some(rule) };
        }
        let rule = self.allow.find(address, country, asn);
        ListDecision { allowed: rule.is_some() || self.allow.is_empty, rule }
    }

    /// Whether an answer depends on the client's country: else it need not be looked up.
    #[must_use]
    pub fn needs_country(&self) -> bool {
        self.allow.needs_country() || self.deny.needs_country()
    }

    /// Whether an answer depends on the client's autonomous system: else it need not be looked up.
    #[must_use]
    pub fn needs_asn(&self) -> bool {
        self.allow.needs_asn() || self.deny.needs_asn()
    }
}

/// The rules of one side of a list.
#[derive(Debug, Clone)]
pub(crate) struct Matcher {
    networks: Ranges,
    countries: Box<[Country]>,
    asns: Box<[Asn]>,
    is_empty: bool,
}

impl Default for Matcher {
    fn default() -> Self {
        Self::new(&[])
    }
}

impl Matcher {
    pub(crate) fn new(rules: &[Rule]) -> Self {
        let countries =
            rules.iter().filter_map(|rule| if let Rule::Country(country) = rule { Some(*country) } else { None });
        let asns = rules.iter().filter_map(|rule| if let Rule::Asn(asn) = rule { Some(*asn) } else { None });
        Self {
            networks: Ranges::new(networks(rules)),
            countries: sorted(countries),
            asns: sorted(asns),
            is_empty: rules.is_empty(),
        }
    }

    pub(crate) fn find(&self, address: IpAddr, country: Option<Country>, asn: Option<Asn>) -> Option<Rule> {
        self.networks
            .find(address)
            .or_else(|| asn.filter(|asn| self.asns.binary_search(asn).is_ok()).map(Rule::Asn))
            .or_else(|| country.filter(|country| self.countries.binary_search(country).is_ok()).map(Rule::Country))
    }

    /// The first rule that may mean an address of which it is not known where it is. Private addresses are in no country
    /// and of no autonomous system, which is known.
    fn may_mean(&self, address: IpAddr, country: Option<Country>, asn: Option<Asn>) -> Option<Rule> {
        if is_private(address) {
            return None;
        }
        let by_asn = self.asns.first().filter(|_| asn.is_none()).map(|asn| Rule::Asn(*asn));
        by_asn.or_else(|| self.countries.first().filter(|_| country.is_none()).map(|country| Rule::Country(*country)))
    }

    /// Whether the address is meant; `None`: nobody can tell, because it is not known where it is.
    pub(crate) fn means(&self, address: IpAddr, country: Option<Country>, asn: Option<Asn>) -> Option<bool> {
        match (self.find(address, country, asn), self.may_mean(address, country, asn)) {
            (Some(_), _) => Some(true),
            (None, Some(_)) => None,
            (None, None) => Some(false),
        }
    }

    /// Whether a rule is about a country.
    pub(crate) fn needs_country(&self) -> bool {
        !self.countries.is_empty()
    }

    /// Whether a rule is about an autonomous system.
    pub(crate) fn needs_asn(&self) -> bool {
        !self.asns.is_empty()
    }

    /// Whether everyone whom the rule means is meant here, too, whatever else is true of them.
    fn covers(&self, rule: &Rule) -> bool {
        match rule {
            Rule::Network(network) => self.networks.cover(*network),
            Rule::Country(country) => self.countries.binary_search(country).is_ok(),
            Rule::Asn(asn) => self.asns.binary_search(asn).is_ok(),
        }
    }
}

/// Whether the address is one of a private network, of a link, or of this machine: no database can know where it is.
fn is_private(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(four) => {
            let is_shared = four.octets()[0] == 100 && four.octets()[1] & 0xc0 == 64;
            four.is_private() || four.is_loopback() || four.is_link_local() || four.is_unspecified() || is_shared
        }
        IpAddr::V6(six) => {
            six.is_loopback() || six.is_unspecified() || six.is_unique_local() || six.is_unicast_link_local()
        }
    }
}

fn sorted<T: Ord>(values: impl Iterator<Item = T>) -> Box<[T]> {
    let mut values: Vec<T> = values.collect();
    values.sort_unstable();
    values.dedup();
    values.into_boxed_slice()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_at_most_two_ranges_for_each_network() {
        let rules: Vec<Rule> = (0u32..1_000)
            .map(|n| Rule::Network(format!("{}.{}.{}.0/24", n % 4, n % 7, n % 250).parse().unwrap()))
            .chain(["0.0.0.0/0", "0.0.0.0/6", "3.0.0.0/8", "::/0", "::/128"].map(|text| text.parse().unwrap()))
            .collect();
        assert!(Matcher::new(&rules).networks.len() <= rules.len() * 2);
    }
}
