//! The static table (RFC 9204 appendix A) with parsed entries, and a perfect hash of its names.

use http::HeaderName;
use sallyport_http2::hpack::{Entry, Field, digest};

/// Number of entries of the static table.
const LEN: usize = 99;
/// An index of the name `:status`.
pub(super) const STATUS: u8 = 24;
/// No index.
const NONE: u8 = u8::MAX;

macro_rules! table {
    ($(($name:literal, $value:literal),)*) => {
        const NAMES: [&str; LEN] = [$($name),*];
        const VALUES: [&str; LEN] = [$($value),*];
        static ENTRIES: [Entry; LEN] = [$(Entry::new($name, $value)),*];
    };
}

table! {
    (":authority", ""),
    (":path", "/"),
    ("age", "0"),
    ("content-disposition", ""),
    ("content-length", "0"),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("referer", ""),
    ("set-cookie", ""),
    (":method", "CONNECT"),
    (":method", "DELETE"),
    (":method", "GET"),
    (":method", "HEAD"),
    (":method", "OPTIONS"),
    (":method", "POST"),
    (":method", "PUT"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "103"),
    (":status", "200"),
    (":status", "304"),
    (":status", "404"),
    (":status", "503"),
    ("accept", "*/*"),
    ("accept", "application/dns-message"),
    ("accept-encoding", "gzip, deflate, br"),
    ("accept-ranges", "bytes"),
    ("access-control-allow-headers", "cache-control"),
    ("access-control-allow-headers", "content-type"),
    ("access-control-allow-origin", "*"),
    ("cache-control", "max-age=0"),
    ("cache-control", "max-age=2592000"),
    ("cache-control", "max-age=604800"),
    ("cache-control", "no-cache"),
    ("cache-control", "no-store"),
    ("cache-control", "public, max-age=31536000"),
    ("content-encoding", "br"),
    ("content-encoding", "gzip"),
    ("content-type", "application/dns-message"),
    ("content-type", "application/javascript"),
    ("content-type", "application/json"),
    ("content-type", "application/x-www-form-urlencoded"),
    ("content-type", "image/gif"),
    ("content-type", "image/jpeg"),
    ("content-type", "image/png"),
    ("content-type", "text/css"),
    ("content-type", "text/html; charset=utf-8"),
    ("content-type", "text/plain"),
    ("content-type", "text/plain;charset=utf-8"),
    ("range", "bytes=0-"),
    ("strict-transport-security", "max-age=31536000"),
    ("strict-transport-security", "max-age=31536000; includesubdomains"),
    ("strict-transport-security", "max-age=31536000; includesubdomains; preload"),
    ("vary", "accept-encoding"),
    ("vary", "origin"),
    ("x-content-type-options", "nosniff"),
    ("x-xss-protection", "1; mode=block"),
    (":status", "100"),
    (":status", "204"),
    (":status", "206"),
    (":status", "302"),
    (":status", "400"),
    (":status", "403"),
    (":status", "421"),
    (":status", "425"),
    (":status", "500"),
    ("accept-language", ""),
    ("access-control-allow-credentials", "FALSE"),
    ("access-control-allow-credentials", "TRUE"),
    ("access-control-allow-headers", "*"),
    ("access-control-allow-methods", "get"),
    ("access-control-allow-methods", "get, post, options"),
    ("access-control-allow-methods", "options"),
    ("access-control-expose-headers", "content-length"),
    ("access-control-request-headers", "content-type"),
    ("access-control-request-method", "get"),
    ("access-control-request-method", "post"),
    ("alt-svc", "clear"),
    ("authorization", ""),
    ("content-security-policy", "script-src 'none'; object-src 'none'; base-uri 'none'"),
    ("early-data", "1"),
    ("expect-ct", ""),
    ("forwarded", ""),
    ("if-range", ""),
    ("origin", ""),
    ("purpose", "prefetch"),
    ("server", ""),
    ("timing-allow-origin", "*"),
    ("upgrade-insecure-requests", "1"),
    ("user-agent", ""),
    ("x-forwarded-for", ""),
    ("x-frame-options", "deny"),
    ("x-frame-options", "sameorigin"),
}

/// The entry of an index.
#[inline]
pub(super) fn get(index: u32) -> Option<&'static Entry> {
    ENTRIES.get(index as usize)
}

/// With this factor no two names of the static table collide; otherwise the table below does not compile.
const FACTOR: u64 = 0x5181_3b0d_9f93_f407;
const PLACES_LOG2: u32 = 7;

const fn place(digest: u64) -> usize {
    (digest.wrapping_mul(FACTOR) >> (u64::BITS - PLACES_LOG2)) as usize
}

/// How names are found.
struct Places {
    /// The first index of the name with this hash.
    first: [u8; 1 << PLACES_LOG2],
    /// The next index of the same name.
    next: [u8; LEN],
}

static PLACES: Places = {
    let mut places = Places { first: [NONE; 1 << PLACES_LOG2], next: [NONE; LEN] };
    let mut n = LEN;
    while n > 0 {
        n -= 1;
        let name = NAMES[n].as_bytes();
        if name[0] != b':' {
            let place = place(digest(name));
            let later = places.first[place];
            assert!(
                later == NONE || is_equal(name, NAMES[later as usize].as_bytes()),
                "two names of the static table share a place"
            );
            places.next[n] = later;
            places.first[place] = n as u8;
        }
    }
    places
};

const fn is_equal(a: &[u8], b: &[u8]) -> bool {
    let mut n = 0;
    while n < a.len() && n < b.len() && a[n] == b[n] {
        n += 1;
    }
    n == a.len() && n == b.len()
}

/// An index of this name, and whether its value is this one too.
#[inline]
pub(super) fn find(name: &HeaderName, value: &[u8]) -> Option<(u8, bool)> {
    let first = PLACES.first.get(place(digest(name.as_str().as_bytes()))).copied()?;
    match get(first.into()) {
        Some(Entry { field: Field::Regular(at, _), .. }) if at == name => {}
        _ => return None,
    }
    let mut index = first;
    while let Some(known) = VALUES.get(usize::from(index)) {
        if known.as_bytes() == value {
            return Some((index, true));
        }
        index = PLACES.next.get(usize::from(index)).copied().unwrap_or(NONE);
    }
    Some((first, false))
}
