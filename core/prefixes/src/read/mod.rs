//! Files of prefixes become sources. Uses `set`.
//!
//! The first bytes tell the format: JSON of clouds and of RDAP, delegated statistics of a registry, or a plain list.

mod bounded;
mod collector;
mod delegated;
mod json;
mod list;

use std::io::{self, BufRead};

pub use bounded::MAX_TEXT_BYTES;
use collector::Collector;
pub use collector::{HostBits, MAX_PREFIXES, PrefixError};

use crate::set::{AddressSet, Ranges, Repeats, repeats};

/// The bytes of a line of text, at most.
pub const MAX_LINE_BYTES: u64 = 4_096;

/// How a file is read.
#[derive(Debug, Clone, Default)]
pub struct ReadOptions {
    /// What happens to prefixes with host bits.
    pub host_bits: HostBits,
    /// Of delegated statistics, only what this opaque id holds.
    pub holder: Option<String>,
}

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourceKind {
    /// Ranges that a cloud publishes as in use: AWS, Google, Azure.
    Cloud,
    /// Networks of a registry by RDAP (RFC 9083).
    Rdap,
    /// Delegated statistics of a registry, also the extended ones.
    Delegated,
    /// A list of prefixes, addresses and ranges.
    List,
}

/// How many blocks of addresses a file names, for each family.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// All of them.
    pub listed: u64,
    /// Those that the file names again.
    pub duplicates: u64,
    /// Those inside a larger one.
    pub nested: u64,
}

/// What a file has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// What the file is.
    pub kind: SourceKind,
    /// When the file says it was made, as written there.
    pub date: Option<String>,
    /// Its addresses.
    pub set: AddressSet,
    /// Its IPv4 blocks.
    pub v4: Counts,
    /// Its IPv6 blocks.
    pub v6: Counts,
}

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The reader failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The JSON is broken or has a wrong prefix; the text ends with line and column.
    #[error("{0}")]
    Json(serde_json::Error),
    /// A line is wrong.
    #[error("line {line}: {error}")]
    Line {
        /// Its number, from 1.
        line: u64,
        /// What is wrong.
        error: PrefixError,
    },
    /// There is nothing.
    #[error(
        "it has no prefixes: known are ip-ranges JSON of clouds, RDAP networks, delegated statistics, and lists of \
         prefixes"
    )]
    Empty,
    /// The holder is not there.
    #[error("no allocated or assigned block is held by the opaque id {0:?}")]
    NoHolder(String),
}

/// Reads a file in any of the known formats.
///
/// # Errors
/// The file is in none of them, has a prefix that is wrong, or more than [`MAX_PREFIXES`].
pub fn read(mut input: impl BufRead, options: &ReadOptions) -> Result<Source, ReadError> {
    if input.fill_buf()?.starts_with(b"\xef\xbb\xbf") {
        input.consume(3);
    }
    let start = input.fill_buf()?.iter().copied().find(|byte| !byte.is_ascii_whitespace());
    let mut collector = Collector::new(options.host_bits);
    let (kind, date) = match start {
        Some(b'{' | b'[') => json::read(input, &mut collector)?,
        _ => list::read(input, &mut collector, options.holder.as_deref())?,
    };
    let Collector { mut v4, mut v6, .. } = collector;
    if v4.is_empty() && v6.is_empty() {
        let holder = options.holder.clone().filter(|_| kind == SourceKind::Delegated);
        return Err(holder.map_or(ReadError::Empty, ReadError::NoHolder));
    }
    let counts = |listed: usize, Repeats { duplicates, nested }| Counts { listed: listed as u64, duplicates, nested };
    let (v4_counts, v6_counts) = (counts(v4.len(), repeats(&mut v4)), counts(v6.len(), repeats(&mut v6)));
    let set = AddressSet { v4: Ranges::new(v4), v6: Ranges::new(v6) };
    Ok(Source { kind, date, set, v4: v4_counts, v6: v6_counts })
}
