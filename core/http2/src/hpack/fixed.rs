//! The static table (RFC 7541 appendix A) with parsed entries, and a perfect hash of its names.

use bytes::Bytes;
use http::{HeaderName, HeaderValue};

use super::{
    ENTRY_OVERHEAD_BYTES,
    field::{Field, Name},
};

/// Number of entries of the static table: its first index is 1, and the dynamic table follows.
pub(super) const LEN: u32 = 61;
/// The index of `:status 200`, and of its name.
pub(super) const STATUS: u8 = 8;

/// An entry of the static table.
pub(super) struct Entry {
    pub(super) field: Field,
    /// Size as in RFC 7541 section 4.1.
    pub(super) size: usize,
    pub(super) name_len: usize,
}

macro_rules! table {
    ($(($name:literal, $value:literal),)*) => {
        const NAMES: [&str; LEN as usize] = [$($name),*];
        static ENTRIES: [Entry; LEN as usize] = [$(entry($name, $value)),*];
    };
}

table! {
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
}

const fn entry(name: &'static str, value: &'static str) -> Entry {
    let field = match name.as_bytes() {
        b":authority" => Field::Authority(Bytes::from_static(value.as_bytes())),
        b":method" => Field::Method(Bytes::from_static(value.as_bytes())),
        b":path" => Field::Path(Bytes::from_static(value.as_bytes())),
        b":scheme" => Field::Scheme(Bytes::from_static(value.as_bytes())),
        b":status" => Field::Malformed,
        _ => Field::Regular(HeaderName::from_static(name), HeaderValue::from_static(value)),
    };
    Entry { field, size: name.len() + value.len() + ENTRY_OVERHEAD_BYTES, name_len: name.len() }
}

/// The entry of an index.
#[inline]
pub(super) fn get(index: u32) -> Option<&'static Entry> {
    ENTRIES.get((index as usize).wrapping_sub(1))
}

impl Entry {
    /// The name of an entry.
    #[inline]
    pub(super) fn name(&self) -> Name {
        Name::of(&self.field).unwrap_or(Name::Bad(self.name_len as u32))
    }
}

/// A digest of a string: of its length, its first and its last eight bytes. Equal strings have equal digests; callers
/// compare the strings too.
#[inline]
pub(super) const fn digest(bytes: &[u8]) -> u64 {
    let word = match (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
        (Some(first), Some(last)) => u64::from_le_bytes(*first) ^ u64::from_le_bytes(*last).rotate_left(23),
        _ => match (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
            (Some(first), Some(last)) => u32::from_le_bytes(*first) as u64 | (u32::from_le_bytes(*last) as u64) << 32,
            _ => match bytes {
                [a] => *a as u64 | (*a as u64) << 8 | (*a as u64) << 16,
                [a, b] => *a as u64 | (*b as u64) << 8 | (*b as u64) << 16,
                [a, b, c] => *a as u64 | (*b as u64) << 8 | (*c as u64) << 16,
                _ => 0,
            },
        },
    };
    word.wrapping_add(bytes.len() as u64)
}

/// With this factor no two names of the static table collide; otherwise the table below does not compile.
const FACTOR: u64 = 0x464e_d093_0c1e_f84d;
const PLACES_LOG2: u32 = 7;

/// The index of the name with this hash, or 0.
static PLACES: [u8; 1 << PLACES_LOG2] = {
    let mut places = [0; 1 << PLACES_LOG2];
    let mut n = 0;
    while n < NAMES.len() {
        let name = NAMES[n].as_bytes();
        if name[0] != b':' {
            let place = place(digest(name));
            assert!(places[place] == 0, "two names of the static table share a place");
            places[place] = n as u8 + 1;
        }
        n += 1;
    }
    places
};

const fn place(digest: u64) -> usize {
    (digest.wrapping_mul(FACTOR) >> (u64::BITS - PLACES_LOG2)) as usize
}

/// The index of a name in the static table, or 0; `digest` is that of the name.
#[inline]
pub(super) fn index_of(name: &HeaderName, digest: u64) -> u8 {
    let Some(index) = PLACES.get(place(digest)).copied() else { return 0 };
    match get(u32::from(index)) {
        Some(Entry { field: Field::Regular(at, _), .. }) if at == name => index,
        _ => 0,
    }
}
