//! The text that names links: `auto`, `eth0`, `10.0.0.2`, `wwan0,metered,weight=2,standby`.

use std::{fmt, net::IpAddr, str::FromStr};

/// The most links of one connector.
pub const MAX_LINKS: usize = 16;
/// The greatest weight.
pub const MAX_WEIGHT: u16 = 1_000;
/// The most bytes of a device's name in Linux (IFNAMSIZ without its zero).
const MAX_NAME_BYTES: usize = 15;

/// How a link may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Properties {
    /// The share of the link beside others, from 1 to [`MAX_WEIGHT`].
    pub weight: u16,
    /// Whether the link is used only if no other is there.
    pub is_standby: bool,
    /// Whether bytes cost money. A metered link comes after standby links.
    pub is_metered: bool,
}

impl Default for Properties {
    fn default() -> Self {
        Self { weight: 1, is_standby: false, is_metered: false }
    }
}

/// What names a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selector {
    /// The name of a device.
    Device(String),
    /// A source address of this machine.
    Address(IpAddr),
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(name) => f.write_str(name),
            Self::Address(address) => address.fmt(f),
        }
    }
}

/// A link that the user names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkSpec {
    /// The device or the address.
    pub selector: Selector,
    /// How the link may be used.
    pub properties: Properties,
}

/// Which links are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkChoice {
    /// Every link that reaches other networks.
    Auto,
    /// These links, in this order.
    Listed(Vec<LinkSpec>),
}

/// The text names no links.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChoiceError {
    /// There is no text.
    #[error("no link is named: give a device, an address, or auto")]
    Empty,
    /// The name can be neither a device nor an address.
    #[error("{0:?} is neither a device nor an address: a device has 1 to 15 characters, without spaces and slashes")]
    InvalidName(String),
    /// The property is not known.
    #[error("{0:?} is no property of a link: expected metered, standby or weight=N")]
    UnknownProperty(String),
    /// The weight is not in its range.
    #[error("{0:?} is no weight: expected a number from 1 to 1000")]
    InvalidWeight(String),
    /// One link twice.
    #[error("the link {0} is named twice")]
    Twice(String),
    /// `auto` with something else.
    #[error("auto takes every link: name no other link and no property beside it")]
    AutoBesideOthers,
    /// There are too many.
    #[error("more than 16 links are named")]
    TooMany,
}

impl FromStr for LinkSpec {
    type Err = ChoiceError;

    fn from_str(text: &str) -> Result<Self, ChoiceError> {
        let mut parts = text.split(',');
        let selector = selector(parts.next().unwrap_or_default())?;
        let mut properties = Properties::default();
        for part in parts {
            match part {
                "metered" => properties.is_metered = true,
                "standby" => properties.is_standby = true,
                _ => {
                    let Some(weight) = part.strip_prefix("weight=") else {
                        return Err(ChoiceError::UnknownProperty(part.to_owned()));
                    };
                    properties.weight = weight
                        .parse()
                        .ok()
                        .filter(|weight| (1..=MAX_WEIGHT).contains(weight))
                        .ok_or_else(|| ChoiceError::InvalidWeight(weight.to_owned()))?;
                }
            }
        }
        Ok(Self { selector, properties })
    }
}

impl LinkChoice {
    /// The choice that these texts make together, one text a link.
    ///
    /// # Errors
    /// A text is wrong, a link is named twice, or `auto` stands beside others.
    pub fn parse<T: AsRef<str>>(texts: &[T]) -> Result<Self, ChoiceError> {
        let is_auto = |text: &T| text.as_ref().split(',').next() == Some("auto");
        if texts.iter().any(is_auto) {
            return match texts {
                [only] if only.as_ref() == "auto" => Ok(Self::Auto),
                _ => Err(ChoiceError::AutoBesideOthers),
            };
        }
        if texts.len() > MAX_LINKS {
            return Err(ChoiceError::TooMany);
        }
        let mut specs: Vec<LinkSpec> = Vec::new();
        for text in texts {
            let spec: LinkSpec = text.as_ref().parse()?;
            if specs.iter().any(|known| known.selector == spec.selector) {
                return Err(ChoiceError::Twice(spec.selector.to_string()));
            }
            specs.push(spec);
        }
        if specs.is_empty() { Err(ChoiceError::Empty) } else { Ok(Self::Listed(specs)) }
    }
}

fn selector(name: &str) -> Result<Selector, ChoiceError> {
    if name.is_empty() {
        return Err(ChoiceError::Empty);
    }
    let invalid = || ChoiceError::InvalidName(name.to_owned());
    if let Ok(address) = name.parse::<IpAddr>() {
        let address = address.to_canonical();
        let is_usable = !address.is_unspecified() && !address.is_multicast();
        return if is_usable { Ok(Selector::Address(address)) } else { Err(invalid()) };
    }
    // The kernel's rule (dev_valid_name); a colon would name an alias.
    let is_device = name.len() <= MAX_NAME_BYTES
        && name != "."
        && name != ".."
        && !name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control());
    if is_device { Ok(Selector::Device(name.to_owned())) } else { Err(invalid()) }
}
