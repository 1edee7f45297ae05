//! Which site a text or an address is of.

use std::{collections::BTreeMap, fmt, net::IpAddr, str::FromStr};

use sallyport_model::RegionName;

/// The most rules of a command.
pub const MAX_SITE_RULES: usize = 256;
/// The longest beginning of a rule, in bytes: that of a text of the DNS.
const MAX_BEGINNING_BYTES: usize = 255;

/// Answers that begin with a text are of a site, or addresses within a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteRule {
    beginning: Beginning,
    site: RegionName,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Beginning {
    Text(String),
    Network(IpAddr, u8),
}

/// The text is no rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no rule: use TEXT=REGION for answers that begin with TEXT, or ADDRESS/BITS=REGION")]
pub struct SiteRuleError {
    /// The text, cut to 64 characters.
    text: String,
}

impl FromStr for SiteRule {
    type Err = SiteRuleError;

    fn from_str(text: &str) -> Result<Self, SiteRuleError> {
        let refused = || SiteRuleError { text: text.chars().take(64).collect() };
        let (beginning, site) = text.rsplit_once('=').ok_or_else(refused)?;
        let site = site.parse().map_err(|_| refused())?;
        if beginning.is_empty() || beginning.len() > MAX_BEGINNING_BYTES {
            return Err(refused());
        }
        let beginning = network(beginning).unwrap_or_else(|| Beginning::Text(beginning.to_ascii_lowercase()));
        Ok(Self { beginning, site })
    }
}

impl fmt::Display for SiteRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.beginning {
            Beginning::Text(text) => write!(f, "{text}={}", self.site),
            Beginning::Network(address, bits) => write!(f, "{address}/{bits}={}", self.site),
        }
    }
}

/// An address, or an address with a number of bits.
fn network(text: &str) -> Option<Beginning> {
    let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
    let address: IpAddr = address.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.map_or(Some(most), |bits| bits.parse().ok()).filter(|bits| *bits <= most)?;
    Some(Beginning::Network(address, bits))
}

/// The names of edges with their regions, and further rules.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SiteNames {
    edges: BTreeMap<String, RegionName>,
    rules: Vec<SiteRule>,
}

impl SiteNames {
    /// These edges, and these rules, which count before the names of edges. Rules after the first [`MAX_SITE_RULES`] do
    /// not count.
    pub fn new(edges: impl IntoIterator<Item = (String, RegionName)>, rules: Vec<SiteRule>) -> Self {
        let mut rules = rules;
        rules.truncate(MAX_SITE_RULES);
        Self { edges: edges.into_iter().collect(), rules }
    }

    /// The site that an answer names: by the rule with the longest beginning, or by the name of an edge, which may be
    /// the first label of a longer name.
    #[must_use]
    pub fn of_text(&self, text: &str) -> Option<&RegionName> {
        let text = text.trim().to_ascii_lowercase();
        let matching = self.rules.iter().filter_map(|rule| match &rule.beginning {
            Beginning::Text(beginning) => text.starts_with(beginning).then_some((beginning.len(), &rule.site)),
            Beginning::Network(..) => None,
        });
        let by_rule = matching.max_by_key(|(length, _)| *length).map(|(_, site)| site);
        let label = || text.split('.').next().and_then(|label| self.edges.get(label));
        by_rule.or_else(|| self.edges.get(&text)).or_else(label)
    }

    /// The site of an address: by the rule with the smallest network.
    #[must_use]
    pub fn of_address(&self, address: IpAddr) -> Option<&RegionName> {
        let matching = self.rules.iter().filter_map(|rule| match rule.beginning {
            Beginning::Network(network, bits) => has(network, bits, address).then_some((bits, &rule.site)),
            Beginning::Text(_) => None,
        });
        matching.max_by_key(|(bits, _)| *bits).map(|(_, site)| site)
    }
}

fn has(network: IpAddr, bits: u8, address: IpAddr) -> bool {
    let (one, other, width) = match (network, address.to_canonical()) {
        (IpAddr::V4(one), IpAddr::V4(other)) => (u128::from(one.to_bits()), u128::from(other.to_bits()), 32),
        (IpAddr::V6(one), IpAddr::V6(other)) => (one.to_bits(), other.to_bits(), 128),
        _ => return false,
    };
    (one ^ other).checked_shr(width - u32::from(bits)).unwrap_or(0) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(rules: &[&str]) -> SiteNames {
        let edges = [("eu-1", "eu"), ("us-1", "us")];
        let edges = edges.map(|(edge, region)| (edge.to_owned(), region.parse().unwrap()));
        SiteNames::new(edges, rules.iter().map(|rule| rule.parse().unwrap()).collect())
    }

    #[test]
    fn answers_name_edges_or_fit_a_rule() {
        let names =
            names(&["fra=eu", "fra-test=lab", "198.51.100.0/24=ap", "198.51.100.128/25=sa", "2001:db8::/32=ap"]);
        for (text, site) in [
            ("eu-1", Some("eu")),
            ("EU-1.edges.example", Some("eu")),
            (" us-1\n", Some("us")),
            ("fra02.example", Some("eu")),
            ("fra-test9", Some("lab")),
            ("eu-10", None),
            ("", None),
            ("198.51.100.1", None),
        ] {
            assert_eq!(names.of_text(text).map(RegionName::as_str), site, "{text:?}");
        }
        for (address, site) in [
            ("198.51.100.127", Some("ap")),
            ("::ffff:198.51.100.128", Some("sa")),
            ("198.51.101.1", None),
            ("2001:db8::9", Some("ap")),
            ("::198.51.100.1", None),
        ] {
            assert_eq!(names.of_address(address.parse().unwrap()).map(RegionName::as_str), site, "{address}");
        }
        let all = self::names(&["0.0.0.0/0=eu", "::/0=us"]);
        assert_eq!(all.of_address("9.9.9.9".parse().unwrap()).unwrap().as_str(), "eu");
        assert_eq!(all.of_address("ffff::".parse().unwrap()).unwrap().as_str(), "us");
    }

    #[test]
    fn rules_are_read_as_they_are_written() {
        for text in ["fra=eu", "a=b=eu", "192.0.2.0/24=eu", "192.0.2.1/32=eu", "2001:db8::/32=eu"] {
            assert_eq!(text.parse::<SiteRule>().unwrap().to_string(), text);
        }
        let long = format!("{}=eu", "x".repeat(256));
        for bad in ["", "fra", "=eu", "fra=", "fra=EU", long.as_str()] {
            let error = bad.parse::<SiteRule>().unwrap_err().to_string();
            assert!(error.contains("is no rule: use TEXT=REGION"), "{error}");
        }
    }
}
