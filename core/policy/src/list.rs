//! Access lists: rules about the addresses of clients.

use std::net::IpAddr;

use sallyport_model::is_private;
use serde::{Deserialize, Serialize};

use crate::{Asn, Country, Rule, ranges::Ranges, rule::networks};

/// The most rules of a list, both kinds together.
pub const MAX_RULES: usize = 1_000;

/// An access list of a socket. The empty list admits everyone.
///
/// - A client that matches a rule of `deny` is refused, whatever `allow` has.
/// - If `allow` has rules, a client must match at least one of them.
/// - A client of unknown country or autonomous system counts as matching every such rule of `deny`, and none of
///   `allow`. So it is refused by a list that denies a country, and by one that only allows countries.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AccessList {
    /// Rules that admit; empty: everyone.
    pub allow: Vec<Rule>,
    /// Rules that refuse.
    pub deny: Vec<Rule>,
}

/// Reason why a list is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// There are too many rules.
    #[error("the access list has {count} rules and may have {MAX_RULES}: join networks that lie side by side")]
    TooManyRules {
        /// The number of rules.
        count: usize,
    },
    /// Every address is denied.
    #[error("the access list denies every address, so nobody could use the socket: deny less than all networks")]
    DeniesEveryone,
    /// Denials cover every rule that allows.
    #[error(
        "the access list denies everyone whom it allows, so nobody could use the socket: \
         {rule} is allowed and denied, and deny wins"
    )]
    AllowsNobody {
        /// The first covered rule.
        rule: Rule,
    },
}

/// The decision about one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListDecision {
    /// Whether the client is admitted.
    pub allowed: bool,
    /// The rule that decided, the narrowest network if several match. `None` if no rule matched: the client is admitted
    /// because the list does not mention it, or refused because only others are allowed.
    pub rule: Option<Rule>,
}

impl AccessList {
    /// Whether there are no rules.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.allow.is_empty() && self.deny.is_empty()
    }

    /// Whether there is a rule about countries, which needs an address database.
    #[must_use]
    pub fn needs_country(&self) -> bool {
        self.rules().any(|rule| matches!(rule, Rule::Country(_)))
    }

    /// Whether there is a rule about autonomous systems, which needs an address database.
    #[must_use]
    pub fn needs_asn(&self) -> bool {
        self.rules().any(|rule| matches!(rule, Rule::Asn(_)))
    }

    fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.allow.iter().chain(&self.deny)
    }

    /// Compiles the list.
    ///
    /// # Errors
    /// There are more than [`MAX_RULES`] rules, or provably no client could be admitted.
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

/// A compiled list: networks as sorted ranges, countries and autonomous systems sorted.
#[derive(Debug, Clone, Default)]
pub struct CompiledList {
    allow: Matcher,
    deny: Matcher,
}

impl CompiledList {
    /// Decides about a client. An unknown `country` or `asn` (`None`) counts as denied if any is denied, and never as
    /// allowed. Allocates nothing; takes logarithmic time in the number of rules.
    #[must_use]
    pub fn decide(&self, address: IpAddr, country: Option<Country>, asn: Option<Asn>) -> ListDecision {
        // An unknown property is denied: the address may be one of the denied ones.
        if let Some(rule) = self.deny.find(address, country, asn).or_else(|| self.deny.may_mean(address, country, asn))
        {
            return ListDecision { allowed: false, rule: Some(rule) };
        }
        let rule = self.allow.find(address, country, asn);
        ListDecision { allowed: rule.is_some() || self.allow.is_empty, rule }
    }

    /// Whether decisions depend on the client's country, so that it must be looked up.
    #[must_use]
    pub fn needs_country(&self) -> bool {
        self.allow.needs_country() || self.deny.needs_country()
    }

    /// Whether decisions depend on the client's autonomous system, so that it must be looked up.
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

    /// The first rule that may match an address of unknown location. Private addresses are known to be in no country
    /// and no autonomous system.
    fn may_mean(&self, address: IpAddr, country: Option<Country>, asn: Option<Asn>) -> Option<Rule> {
        // No database has the location of such an address.
        if is_private(address) {
            return None;
        }
        let by_asn = self.asns.first().filter(|_| asn.is_none()).map(|asn| Rule::Asn(*asn));
        by_asn.or_else(|| self.countries.first().filter(|_| country.is_none()).map(|country| Rule::Country(*country)))
    }

    /// Whether the address matches; `None` if its location is unknown.
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

    /// Whether every client that matches the rule matches here, too.
    fn covers(&self, rule: &Rule) -> bool {
        match rule {
            Rule::Network(network) => self.networks.cover(*network),
            Rule::Country(country) => self.countries.binary_search(country).is_ok(),
            Rule::Asn(asn) => self.asns.binary_search(asn).is_ok(),
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
