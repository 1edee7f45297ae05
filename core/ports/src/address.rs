//! Egress addresses and their tags.

use std::{fmt, net::IpAddr, str::FromStr};

use sallyport_model::{RegionName, misleads};
use sallyport_policy::Country;
use serde::{Deserialize, Serialize};

/// The longest name of a city in characters.
pub const MAX_CITY_CHARS: usize = 64;
/// The most purposes of an address.
pub const MAX_PURPOSES: usize = 8;
/// The longest purpose in characters.
const MAX_PURPOSE_CHARS: usize = 32;
/// The purpose of addresses from which edges dial direct origins. An address without purposes serves it too.
pub const ORIGINS: &str = "origins";

/// An address that machines share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EgressAddress {
    /// The address, of IPv4 or IPv6.
    pub address: IpAddr,
    /// The country whose visitors leave by it.
    #[serde(default, with = "country_text", skip_serializing_if = "Option::is_none")]
    pub country: Option<Country>,
    /// The subdivision of the country by ISO 3166-2, such as `CH-ZH`, for the geofeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subdivision: Option<String>,
    /// The city, for the geofeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub city: Option<String>,
    /// What it is for; everything if there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub purposes: Vec<Purpose>,
    /// The site to which its packets come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<RegionName>,
}

/// Reason why an address with its tags is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// No machine leaves by it.
    #[error("{0} is no address that machines can share: name a unicast address, not a loopback or link-local one")]
    NotShared(IpAddr),
    /// The text is no subdivision of the country.
    #[error("{0:?} is no subdivision of the country: use its code of ISO 3166-2, such as CH-ZH, beside --country")]
    Subdivision(String),
    /// The text is no city.
    #[error(
        "{0:?} is no name of a city: use at most {MAX_CITY_CHARS} visible characters, without comma, quote and hash, \
         the first one none of = + - @"
    )]
    City(String),
    /// There are too many purposes.
    #[error("an address has at most {MAX_PURPOSES} purposes, each once")]
    Purposes,
}

impl EgressAddress {
    /// An address without tags.
    #[must_use]
    pub fn new(address: IpAddr) -> Self {
        Self { address, country: None, subdivision: None, city: None, purposes: Vec::new(), site: None }
    }

    /// Checks the address and its tags.
    ///
    /// # Errors
    /// The first part that is not accepted.
    pub fn check(&self) -> Result<(), AddressError> {
        if !is_shared(self.address) {
            return Err(AddressError::NotShared(self.address));
        }
        if let Some(text) = &self.subdivision
            && !is_subdivision(text, self.country)
        {
            return Err(AddressError::Subdivision(cut(text)));
        }
        if let Some(text) = &self.city
            && !is_city(text)
        {
            return Err(AddressError::City(cut(text)));
        }
        let mut purposes: Vec<_> = self.purposes.iter().collect();
        purposes.sort_unstable();
        purposes.dedup();
        if purposes.len() != self.purposes.len() || purposes.len() > MAX_PURPOSES {
            return Err(AddressError::Purposes);
        }
        Ok(())
    }

    /// Whether the address serves a purpose.
    #[must_use]
    pub fn is_for(&self, purpose: &str) -> bool {
        self.purposes.is_empty() || self.purposes.iter().any(|one| one.as_str() == purpose)
    }
}

fn is_shared(address: IpAddr) -> bool {
    if address.is_unspecified() || address.is_loopback() || address.is_multicast() {
        return false;
    }
    match address {
        // 0.0.0.0/8 is "this network", and addresses from 240.0.0.0 on are reserved (RFC 6890).
        IpAddr::V4(four) => !four.is_link_local() && (1..240).contains(&four.octets()[0]),
        IpAddr::V6(six) => !six.is_unicast_link_local() && six.to_ipv4_mapped().is_none(),
    }
}

fn is_subdivision(text: &str, country: Option<Country>) -> bool {
    let Some((country, (first, rest))) = country.zip(text.split_once('-')) else { return false };
    let is_code = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit();
    first == country.as_str() && (1..=3).contains(&rest.len()) && rest.bytes().all(is_code)
}

fn is_city(text: &str) -> bool {
    let is_bad = |one: char| misleads(one) || matches!(one, ',' | '"' | '#');
    // A spreadsheet that opens the geofeed takes a field with such a beginning for a formula.
    let is_formula = text.starts_with(['=', '+', '-', '@']);
    !is_formula
        && text.trim() == text
        && !text.is_empty()
        && text.chars().count() <= MAX_CITY_CHARS
        && !text.contains(is_bad)
}

fn cut(text: &str) -> String {
    text.chars().take(64).collect()
}

/// What an address is for: a word of lower-case letters, digits and hyphens.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Purpose(String);

/// The text is no purpose.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no purpose: use 1 to {MAX_PURPOSE_CHARS} lower-case letters, digits and hyphens, such as {ORIGINS}")]
pub struct PurposeError(String);

impl Purpose {
    /// The word.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Purpose {
    type Err = PurposeError;
    fn from_str(text: &str) -> Result<Self, PurposeError> {
        let is_good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let is_word = (1..=MAX_PURPOSE_CHARS).contains(&text.len()) && text.bytes().all(is_good);
        is_word.then(|| Self(text.to_owned())).ok_or_else(|| PurposeError(cut(text)))
    }
}

impl TryFrom<String> for Purpose {
    type Error = PurposeError;
    fn try_from(text: String) -> Result<Self, PurposeError> {
        text.parse()
    }
}

impl From<Purpose> for String {
    fn from(purpose: Purpose) -> Self {
        purpose.0
    }
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A country as its two letters.
mod country_text {
    use sallyport_policy::Country;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(country: &Option<Country>, to: S) -> Result<S::Ok, S::Error> {
        match country {
            Some(country) => to.serialize_some(country.as_str()),
            None => to.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Country>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        text.map(|text| text.parse().map_err(D::Error::custom)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> EgressAddress {
        EgressAddress::new(text.parse().unwrap())
    }

    #[test]
    fn an_address_that_no_machine_can_share_is_refused() {
        for bad in [
            "127.0.0.1",
            "::1",
            "0.0.0.0",
            "::",
            "224.0.0.1",
            "ff02::1",
            "169.254.1.1",
            "fe80::1",
            "::ffff:1.2.3.4",
            "0.1.2.3",
            "240.0.0.1",
            "255.255.255.255",
        ] {
            assert!(
                address(bad).check().unwrap_err().to_string().contains("no address that machines can share"),
                "{bad}"
            );
        }
        for good in ["198.51.100.7", "10.0.0.1", "2001:db8::7"] {
            address(good).check().unwrap();
        }
    }

    #[test]
    fn tags_fit_a_geofeed() {
        let mut one = address("198.51.100.7");
        one.country = "ch".parse().ok();
        (one.subdivision, one.city) = (Some("CH-ZH".into()), Some("Zürich".into()));
        one.purposes = vec!["origins".parse().unwrap()];
        one.check().unwrap();
        assert!(one.is_for(ORIGINS) && !one.is_for("dns"));
        for bad in ["DE-BE", "CH", "CH-", "CH-zh", "CH-ZHZH", ""] {
            assert!(EgressAddress { subdivision: Some(bad.into()), ..one.clone() }.check().is_err(), "{bad}");
        }
        assert!(EgressAddress { country: None, ..one.clone() }.check().is_err(), "a subdivision of no country");
        for bad in ["a,b", " a", "", "a\nb", "\"a\"", "#a", &"a".repeat(65)] {
            assert!(EgressAddress { city: Some(bad.to_owned()), ..one.clone() }.check().is_err(), "{bad}");
        }
        for bad in ["=1+1", "+1", "-1", "@a", "a\u{2028}198.51.100.9/32", "a\u{202e}b", "a\u{200b}b", "\u{feff}a"] {
            assert!(EgressAddress { city: Some(bad.to_owned()), ..one.clone() }.check().is_err(), "{bad:?}");
        }
        for good in ["'s-Hertogenbosch", "São Paulo", "Baden-Baden", "東京", "St. John's"] {
            EgressAddress { city: Some(good.to_owned()), ..one.clone() }.check().unwrap();
        }
        for bad in ["", "A", "a b", &"a".repeat(33)] {
            assert!(bad.parse::<Purpose>().is_err(), "{bad}");
        }
        one.purposes.push("origins".parse().unwrap());
        assert_eq!(one.check(), Err(AddressError::Purposes));
    }
}
