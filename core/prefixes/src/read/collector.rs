//! Texts of prefixes become blocks of addresses, within a bound.

use std::net::IpAddr;

use ipnet::IpNet;

/// The blocks of addresses in a file, at most.
pub const MAX_PREFIXES: usize = 16 << 20;

/// The characters of a text in an error, at most.
const MAX_SHOWN_CHARS: usize = 64;

/// What happens to prefixes with bits behind their length, such as `10.0.0.1/8`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum HostBits {
    /// The file is refused: such a prefix is often a typing error.
    #[default]
    Refuse,
    /// The bits are cleared.
    Mask,
}

/// What is wrong with a text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PrefixError {
    /// It is no prefix.
    #[error("{0:?} is no prefix, address or range of addresses")]
    Syntax(String),
    /// It has host bits.
    #[error("{text:?} has bits behind its length: write {network}, or give --mask")]
    HostBits {
        /// The text.
        text: String,
        /// The prefix without these bits.
        network: IpNet,
    },
    /// It is a default route.
    #[error("{0:?} is the default route, which nobody holds: leave it out")]
    DefaultRoute(String),
    /// The last address of a range stands before its first, or is of the other family.
    #[error("{0:?} is no range: the last address stands before the first, or is of the other family")]
    Range(String),
    /// A number of delegated statistics is wrong.
    #[error("{0:?} is no count of addresses, or no length, that fits its address")]
    Value(String),
    /// A line of delegated statistics lacks fields.
    #[error("{0:?} has less than the seven fields of delegated statistics")]
    Fields(String),
    /// A line is too long or no text.
    #[error("it is longer than {} bytes, or no text", super::MAX_LINE_BYTES)]
    NoText,
    /// There are too many.
    #[error("there are more than {MAX_PREFIXES} prefixes: split the file")]
    TooMany,
}

/// A text for an error, cut.
pub(super) fn shown(text: &str) -> String {
    text.chars().take(MAX_SHOWN_CHARS).collect()
}

/// The blocks found so far.
pub(super) struct Collector {
    host_bits: HostBits,
    pub(super) v4: Vec<(u32, u32)>,
    pub(super) v6: Vec<(u128, u128)>,
}

impl Collector {
    pub(super) fn new(host_bits: HostBits) -> Self {
        Self { host_bits, v4: Vec::new(), v6: Vec::new() }
    }

    /// Adds a prefix, an address, or `FIRST-LAST`.
    pub(super) fn add_text(&mut self, text: &str) -> Result<(), PrefixError> {
        let text = text.trim();
        if let Some((first, last)) = text.split_once('-') {
            let parse = |part: &str| part.trim().parse().map_err(|_| PrefixError::Syntax(shown(text)));
            return self.add_range(parse(first)?, parse(last)?);
        }
        let network = match text.parse::<IpNet>() {
            Ok(network) => network,
            Err(_) => IpNet::from(text.parse::<IpAddr>().map_err(|_| PrefixError::Syntax(shown(text)))?),
        };
        self.add_network(network, text)
    }

    /// Adds a prefix; the text is for errors.
    pub(super) fn add_network(&mut self, network: IpNet, text: &str) -> Result<(), PrefixError> {
        if network.prefix_len() == 0 {
            return Err(PrefixError::DefaultRoute(shown(text)));
        }
        if self.host_bits == HostBits::Refuse && network.addr() != network.network() {
            return Err(PrefixError::HostBits { text: shown(text), network: network.trunc() });
        }
        self.add_range(network.network(), network.broadcast())
    }

    /// Adds a range from a first to a last address.
    pub(super) fn add_range(&mut self, first: IpAddr, last: IpAddr) -> Result<(), PrefixError> {
        if self.v4.len() + self.v6.len() >= MAX_PREFIXES {
            return Err(PrefixError::TooMany);
        }
        match (first, last) {
            (IpAddr::V4(first), IpAddr::V4(last)) if first <= last => {
                self.v4.push((first.to_bits(), last.to_bits()));
            }
            (IpAddr::V6(first), IpAddr::V6(last)) if first <= last => {
                self.v6.push((first.to_bits(), last.to_bits()));
            }
            _ => return Err(PrefixError::Range(format!("{first}-{last}"))),
        }
        Ok(())
    }
}
