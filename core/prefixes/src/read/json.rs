//! JSON of clouds and of RDAP, read as a stream: nothing but the prefixes is kept.
//!
//! The shapes differ in their keys only, so one reader serves all: a text is a prefix, a list has items, and of an
//! object the keys below are read.
//!
//! | shape | keys |
//! | --- | --- |
//! | AWS | `prefixes`, `ipv6_prefixes` with `ip_prefix`, `ipv6_prefix` |
//! | Google | `prefixes` with `ipv4Prefix`, `ipv6Prefix` |
//! | Azure | `values` with `properties` with `addressPrefixes` |
//! | RDAP, RFC 9083 section 5.4 | `startAddress`, `endAddress`, or `cidr0_cidrs`; also in `networks` and results |

use std::{
    fmt,
    io::{BufRead, BufReader},
    net::IpAddr,
};

use ipnet::IpNet;
use serde::{
    Deserialize,
    de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
};

use super::{
    ReadError, SourceKind,
    bounded::Bounded,
    collector::{Collector, PrefixError, shown},
};

/// Reads one JSON document.
pub(super) fn read(input: impl BufRead, collector: &mut Collector) -> Result<(SourceKind, Option<String>), ReadError> {
    let mut found = Found { collector, kind: SourceKind::List, date: None };
    let mut deserializer = serde_json::Deserializer::from_reader(BufReader::new(Bounded::new(input)));
    Item(&mut found).deserialize(&mut deserializer).map_err(ReadError::Json)?;
    deserializer.end().map_err(ReadError::Json)?;
    Ok((found.kind, found.date))
}

/// What the document has told so far.
struct Found<'a> {
    collector: &'a mut Collector,
    kind: SourceKind,
    date: Option<String>,
}

/// A key whose value is read.
#[derive(Deserialize)]
enum Key {
    #[serde(rename = "ip_prefix", alias = "ipv6_prefix", alias = "ipv4Prefix", alias = "ipv6Prefix")]
    #[serde(alias = "addressPrefixes")]
    Cloud,
    #[serde(rename = "prefixes", alias = "ipv6_prefixes", alias = "values", alias = "properties", alias = "networks")]
    #[serde(alias = "ipSearchResults", alias = "arin_originas0_networkSearchResults")]
    Within,
    #[serde(rename = "createDate", alias = "creationTime")]
    Date,
    #[serde(rename = "startAddress")]
    Start,
    #[serde(rename = "endAddress")]
    End,
    #[serde(rename = "cidr0_cidrs")]
    Cidrs,
    #[serde(other)]
    Other,
}

/// One prefix of `cidr0_cidrs`, an extension of RDAP.
#[derive(Deserialize)]
struct Cidr {
    #[serde(rename = "v4prefix", alias = "v6prefix")]
    prefix: IpAddr,
    length: u8,
}

/// A value that may hold prefixes.
struct Item<'a, 'b>(&'a mut Found<'b>);

impl<'de> DeserializeSeed<'de> for Item<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Item<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a prefix, or a list or an object with prefixes")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.0.collector.add_text(text).map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Item(self.0))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let (mut start, mut end): (Option<IpAddr>, Option<IpAddr>) = (None, None);
        let mut cidrs = 0;
        while let Some(key) = entries.next_key()? {
            match key {
                Key::Cloud => {
                    self.0.kind = SourceKind::Cloud;
                    entries.next_value_seed(Item(self.0))?;
                }
                Key::Within => entries.next_value_seed(Item(self.0))?,
                Key::Date => self.0.date = Some(shown(&entries.next_value::<String>()?)),
                Key::Start => start = Some(entries.next_value()?),
                Key::End => end = Some(entries.next_value()?),
                Key::Cidrs => cidrs = entries.next_value_seed(Cidrs(self.0))?,
                Key::Other => {
                    entries.next_value::<IgnoredAny>()?;
                }
            }
        }
        match (start, end) {
            // The prefixes say the same as the two addresses.
            _ if cidrs > 0 => {}
            (None, None) => return Ok(()),
            (Some(first), Some(last)) => self.0.collector.add_range(first, last).map_err(A::Error::custom)?,
            _ => return Err(A::Error::custom("an RDAP network has startAddress and endAddress, or neither")),
        }
        self.0.kind = SourceKind::Rdap;
        Ok(())
    }
}

/// The value of `cidr0_cidrs`; returns how many prefixes it has.
struct Cidrs<'a, 'b>(&'a mut Found<'b>);

impl<'de> DeserializeSeed<'de> for Cidrs<'_, '_> {
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<usize, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Cidrs<'_, '_> {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of prefixes, each with v4prefix or v6prefix, and length")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<usize, A::Error> {
        let mut count = 0;
        while let Some(Cidr { prefix, length }) = items.next_element()? {
            let text = format!("{prefix}/{length}");
            let network =
                IpNet::new(prefix, length).map_err(|_| A::Error::custom(PrefixError::Syntax(text.clone())))?;
            self.0.collector.add_network(network, &text).map_err(A::Error::custom)?;
            count += 1;
        }
        Ok(count)
    }
}
