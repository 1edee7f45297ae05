//! The choice of a slice for a connection.

use sallyport_model::RegionName;
use sallyport_policy::Country;

use crate::{EgressAddress, Slice};

/// A slice that may be used.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    /// Its address.
    pub address: &'a EgressAddress,
    /// The slice.
    pub slice: Slice,
    /// Number of connections from it.
    pub flows: usize,
}

/// What a connection is for.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// The country of the visitor, if known.
    pub country: Option<Country>,
    /// The site of this machine, if it is in one.
    pub site: Option<&'a RegionName>,
    /// The purpose.
    pub purpose: &'a str,
    /// Whether the destination is an IPv6 address.
    pub is_six: bool,
}

/// Why a candidate was chosen, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Match {
    /// The country of the visitor.
    Country,
    /// The site of this machine.
    Site,
    /// Nothing better is there.
    Any,
}

impl Match {
    /// The word for metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Country => "country",
            Self::Site => "site",
            Self::Any => "any",
        }
    }
}

/// The candidates that serve, the best first: the exact country, then the same site, then any. Of equals, the one with
/// the fewest connections is first.
#[must_use]
pub fn order<'a>(candidates: &[Candidate<'a>], wanted: &Wanted<'_>) -> Vec<(Candidate<'a>, Match)> {
    let serves =
        |one: &&Candidate<'a>| one.address.address.is_ipv6() == wanted.is_six && one.address.is_for(wanted.purpose);
    let matched = |one: &Candidate<'a>| {
        if wanted.country.is_some() && one.address.country == wanted.country {
            Match::Country
        } else if wanted.site.is_some() && one.address.site.as_ref() == wanted.site {
            Match::Site
        } else {
            Match::Any
        }
    };
    let mut ordered: Vec<_> = candidates.iter().filter(serves).map(|one| (*one, matched(one))).collect();
    ordered.sort_by_key(|(one, why)| (*why, one.flows, one.address.address, one.slice));
    ordered
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tagged(address: &str, country: &str, site: &str) -> EgressAddress {
        EgressAddress {
            country: country.parse().ok(),
            site: site.parse().ok(),
            ..EgressAddress::new(address.parse().unwrap())
        }
    }

    #[test]
    fn the_country_comes_before_the_site_and_the_site_before_any() {
        let (eu, slice) = ("eu".parse().unwrap(), Slice::try_from(1).unwrap());
        let all = [
            tagged("198.51.100.1", "DE", "us"),
            tagged("198.51.100.2", "CH", "us"),
            tagged("198.51.100.3", "FR", "eu"),
            tagged("2001:db8::1", "CH", "eu"),
            tagged("198.51.100.4", "FR", "eu"),
        ];
        let flows = [0, 9, 2, 0, 1];
        let candidates: Vec<_> =
            all.iter().zip(flows).map(|(address, flows)| Candidate { address, slice, flows }).collect();
        let wanted = |country: &str| Wanted {
            country: country.parse().ok(),
            site: Some(&eu),
            purpose: crate::ORIGINS,
            is_six: false,
        };
        let found = |country: &str| -> Vec<_> {
            let ordered = order(&candidates, &wanted(country));
            ordered.iter().map(|(one, why)| (one.address.address.to_string(), *why)).collect()
        };
        let as_text = |list: &[(&str, Match)]| -> Vec<_> { list.iter().map(|(a, m)| ((*a).to_owned(), *m)).collect() };
        let by_country = [
            ("198.51.100.2", Match::Country),
            ("198.51.100.4", Match::Site),
            ("198.51.100.3", Match::Site),
            ("198.51.100.1", Match::Any),
        ];
        assert_eq!(found("CH"), as_text(&by_country));
        assert_eq!(found("JP")[0], ("198.51.100.4".to_owned(), Match::Site));
        assert_eq!(found("")[0].1, Match::Site, "a visitor of no known country");
        let six = order(&candidates, &Wanted { is_six: true, ..wanted("CH") });
        assert_eq!(six.len(), 1);
        let dns = EgressAddress { purposes: vec!["dns".parse().unwrap()], ..tagged("198.51.100.5", "CH", "eu") };
        assert!(order(&[Candidate { address: &dns, slice, flows: 0 }], &wanted("CH")).is_empty());
    }
}
