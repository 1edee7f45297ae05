//! Records and sets of records: their types, their text, and their bytes as they stand in messages.
//!
//! May use: `name`.

mod bitmap;
mod data;
mod lexer;
mod set;
mod show;
mod text;
mod types;

pub(crate) use bitmap::{TypeBitmap, write_bitmap};
pub(crate) use set::SetPlace;
pub use set::{MAX_SET_BYTES, RecordSet, SetError};
pub use text::{MAX_MASTER_FILE_BYTES, RecordTextError, parse_master_file, parse_record};
pub use types::RecordType;

use crate::name::Name;

/// The longest TTL, in seconds (RFC 2181 section 8).
pub const MAX_TTL_SECONDS: u32 = 0x7fff_ffff;

/// A record of a zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its name.
    pub owner: Name,
    /// How long others may keep it, in seconds.
    pub ttl: u32,
    /// What it says.
    pub data: RecordData,
}

/// The content of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordData {
    /// A record of DNS: its type, and its RDATA in canonical form (RFC 4034 section 6.2).
    Plain(RecordType, Vec<u8>),
    /// The addresses of the edges of this group that are healthy now. They come from the view.
    Edges(String),
    /// The addresses of another name. Somebody else resolves the name, and hands the addresses into the view.
    Alias(Name),
}

/// The longest name of a group of edges, in bytes.
pub const MAX_GROUP_NAME_BYTES: usize = 64;

/// Whether a group of edges may have this name: letters, digits, and `-`, `_`, `.`.
pub(crate) fn is_group_name(name: &str) -> bool {
    let is_plain = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    (1..=MAX_GROUP_NAME_BYTES).contains(&name.len()) && name.bytes().all(is_plain)
}

impl Record {
    /// A record of DNS with RDATA in canonical form.
    #[must_use]
    pub fn plain(owner: Name, ttl: u32, rtype: RecordType, rdata: Vec<u8>) -> Self {
        Self { owner, ttl, data: RecordData::Plain(rtype, rdata) }
    }
}
