//! The static table (RFC 7541 appendix A) with parsed entries, and a perfect hash of its names.

use http::HeaderName;

use super::{
    entry::{Entry, digest},
    field::Field,
};

/// Number of entries of the static table: its first index is 1, and the dynamic table follows.
pub(super) const LEN: u32 = 61;
/// The index of `:status 200`, and of its name.
pub(super) const STATUS: u8 = 8;

macro_rules! table {
    ($(($name:literal, $value:literal),)*) => {
        const NAMES: [&str; LEN as usize] = [$($name),*];
        static ENTRIES: [Entry; LEN as usize] = [$(Entry::new($name, $value)),*];
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

/// The entry of an index.
#[inline]
pub(super) fn get(index: u32) -> Option<&'static Entry> {
    ENTRIES.get((index as usize).wrapping_sub(1))
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
