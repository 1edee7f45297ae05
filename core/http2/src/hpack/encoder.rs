//! Encoding of header blocks.

use std::collections::VecDeque;

use http::{HeaderName, HeaderValue, StatusCode};

use super::{DEFAULT_TABLE_BYTES, ENTRY_OVERHEAD_BYTES, entry::digest, fixed, integer};

/// RFC 7541 section 6.2.1.
const WITH_INDEXING: (u8, u8) = (0x40, 0x3f);
/// RFC 7541 section 6.2.2.
const WITHOUT_INDEXING: (u8, u8) = (0x00, 0x0f);
/// RFC 7541 section 6.2.3.
const NEVER_INDEXED: (u8, u8) = (0x10, 0x0f);

/// Static indexes of names whose values are not indexed: they differ in every response, or are secrets that another
/// response must not be able to probe (RFC 7541 section 7.1).
const NOT_INDEXED: u64 = {
    const INDEXES: [u32; 13] = [
        21, // age
        23, // authorization
        28, // content-length
        30, // content-range
        32, // cookie
        34, // etag
        40, // if-modified-since
        41, // if-none-match
        44, // last-modified
        46, // location
        49, // proxy-authorization
        55, // set-cookie
        61, // www-authenticate: nonces
    ];
    let mut bits = 0;
    let mut n = 0;
    while n < INDEXES.len() {
        bits |= 1 << INDEXES[n];
        n += 1;
    }
    bits
};

/// Encodes the header blocks of one connection, in order.
///
/// Strings are written without the Huffman code. An encoder holds no memory until a field enters its dynamic table.
#[derive(Debug)]
pub struct Encoder {
    table: Table,
    /// Maximum size of the table from the next block on.
    max_size: u32,
    /// The smallest maximum since the last block.
    smallest: u32,
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Encoder {
    /// An encoder for a peer that has not announced a table size.
    #[must_use]
    pub fn new() -> Self {
        let max_size = DEFAULT_TABLE_BYTES as u32;
        Self { table: Table::new(max_size), max_size, smallest: max_size }
    }

    /// Sets the peer's `SETTINGS_HEADER_TABLE_SIZE`. At most [`DEFAULT_TABLE_BYTES`] are used. The next block starts
    /// with the size update.
    pub fn set_max_table_bytes(&mut self, bytes: u32) {
        self.max_size = bytes.min(DEFAULT_TABLE_BYTES as u32);
        self.smallest = self.smallest.min(self.max_size);
    }

    /// Begins a header block; its fields follow by [`Encoder::status`] and [`Encoder::field`].
    #[inline]
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        if self.smallest != self.table.max_size || self.max_size != self.table.max_size {
            self.resize(out);
        }
    }

    //= RFC 7541 section 4.2
    //# Multiple updates to the maximum table size can occur between the transmission of two header blocks. In the case
    //# that this size is changed more than once in this interval, the smallest maximum table size that occurs in that
    //# interval MUST be signaled in a dynamic table size update. The final maximum size is always signaled, resulting
    //# in at most two dynamic table size updates.
    #[cold]
    fn resize(&mut self, out: &mut Vec<u8>) {
        if self.smallest < self.max_size && self.smallest < self.table.max_size {
            self.table.set_max_size(self.smallest);
            integer::write(out, 0x20, 0x1f, self.smallest as usize);
        }
        self.table.set_max_size(self.max_size);
        integer::write(out, 0x20, 0x1f, self.max_size as usize);
        self.smallest = self.max_size;
    }

    /// Writes `:status`, which precedes all other fields (RFC 9113 section 8.3.2).
    #[inline]
    pub fn status(&mut self, status: StatusCode, out: &mut Vec<u8>) {
        let index = match status.as_u16() {
            200 => 8,
            204 => 9,
            206 => 10,
            304 => 11,
            400 => 12,
            404 => 13,
            500 => 14,
            _ => {
                // Three digits are not worth an entry.
                out.extend_from_slice(&[WITHOUT_INDEXING.0 | fixed::STATUS, 3]);
                return out.extend_from_slice(status.as_str().as_bytes());
            }
        };
        out.extend_from_slice(&[0x80 | index]);
    }

    /// Writes a field.
    ///
    /// A sensitive value is never indexed, also not by intermediaries (RFC 7541 section 7.1.3); a value that will not
    /// repeat is not indexed either.
    pub fn field(&mut self, name: &HeaderName, value: &HeaderValue, out: &mut Vec<u8>) {
        let (name_bytes, value_bytes) = (name.as_str().as_bytes(), value.as_bytes());
        let name_digest = digest(name_bytes);
        let index = fixed::index_of(name, name_digest);
        let kind = if value.is_sensitive() {
            NEVER_INDEXED
        } else if NOT_INDEXED >> index & 1 != 0 {
            WITHOUT_INDEXING
        } else {
            let hash = hash(name_digest, value_bytes);
            if let Some(nth) = self.table.find(hash, name_bytes, value_bytes) {
                return integer::write(out, 0x80, 0x7f, fixed::LEN as usize + 1 + nth);
            }
            if self.table.insert(hash, name_bytes, value_bytes) { WITH_INDEXING } else { WITHOUT_INDEXING }
        };
        literal(kind, index, name_bytes, value_bytes, out);
    }
}

/// A literal field; `index` is that of its name in the static table, or 0.
#[inline]
fn literal((pattern, mask): (u8, u8), index: u8, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    if index == 0 || value.len() >= 0x7f {
        return long_literal((pattern, mask), index, name, value, out);
    }
    let len = value.len() as u8;
    if index < mask {
        out.extend_from_slice(&[pattern | index, len]);
    } else {
        // No index of the static table needs a third byte.
        out.extend_from_slice(&[pattern | mask, index - mask, len]);
    }
    out.extend_from_slice(value);
}

#[inline(never)]
fn long_literal((pattern, mask): (u8, u8), index: u8, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.reserve(name.len() + value.len() + 16);
    integer::write(out, pattern, mask, usize::from(index));
    if index == 0 {
        integer::write(out, 0, 0x7f, name.len());
        out.extend_from_slice(name);
    }
    integer::write(out, 0, 0x7f, value.len());
    out.extend_from_slice(value);
}

/// The hash of a field, from the digest of its name, and its value.
#[inline]
fn hash(name: u64, value: &[u8]) -> u32 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mixed = (name.wrapping_mul(FACTOR).rotate_left(29) ^ digest(value)).wrapping_mul(FACTOR);
    (mixed >> 32) as u32
}

/// Number of hash chains; a table of 4,096 bytes has at most 124 entries, usually 60.
const CHAINS: usize = 64;

/// The dynamic table (RFC 7541 section 2.3.2), equal to the peer's.
///
/// Entries are numbered from 1 in order. Entries of similar hash form a chain from newer to older ones. A chain ends at
/// a number that is no longer in the table, so evictions need no work on chains.
#[derive(Debug)]
struct Table {
    /// Newest first.
    entries: VecDeque<Entry>,
    /// The number of the newest entry in each chain. Created with the first entry.
    chains: Option<Box<[u32; CHAINS]>>,
    /// The number of the newest entry.
    newest: u32,
    size: u32,
    max_size: u32,
}

#[derive(Debug)]
struct Entry {
    /// Name and value.
    data: Box<[u8]>,
    name_len: u32,
    hash: u32,
    /// The number of the previous entry in this chain.
    before: u32,
}

impl Entry {
    fn size(&self) -> u32 {
        (self.data.len() + ENTRY_OVERHEAD_BYTES) as u32
    }

    #[inline]
    fn is(&self, hash: u32, name: &[u8], value: &[u8]) -> bool {
        self.hash == hash
            && self.name_len as usize == name.len()
            && self.data.split_at_checked(name.len()).is_some_and(|data| data == (name, value))
    }
}

impl Table {
    fn new(max_size: u32) -> Self {
        Self { entries: VecDeque::new(), chains: None, newest: 0, size: 0, max_size }
    }

    /// The position of a field: 0 is the newest.
    #[inline]
    fn find(&self, hash: u32, name: &[u8], value: &[u8]) -> Option<usize> {
        let chains = self.chains.as_ref()?;
        let mut nth = self.newest.wrapping_sub(chains[hash as usize % CHAINS]);
        loop {
            let entry = self.entries.get(nth as usize)?;
            if entry.is(hash, name, value) {
                return Some(nth as usize);
            }
            let older = self.newest.wrapping_sub(entry.before);
            // After numbers have wrapped around, an old one may look new.
            if older <= nth {
                return None;
            }
            nth = older;
        }
    }

    /// Adds a field, unless it is so large that it would evict most others.
    fn insert(&mut self, hash: u32, name: &[u8], value: &[u8]) -> bool {
        let size = name.len() + value.len() + ENTRY_OVERHEAD_BYTES;
        if size > self.max_size as usize / 4 * 3 {
            return false;
        }
        let size = size as u32;
        self.evict(self.max_size - size);
        self.size += size;
        self.newest = self.newest.wrapping_add(1);
        let chain = &mut self.chains.get_or_insert_with(|| Box::new([0; CHAINS]))[hash as usize % CHAINS];
        let before = std::mem::replace(chain, self.newest);
        let data = [name, value].concat().into_boxed_slice();
        self.entries.push_front(Entry { data, name_len: name.len() as u32, hash, before });
        true
    }

    fn set_max_size(&mut self, max_size: u32) {
        self.max_size = max_size;
        self.evict(max_size);
    }

    /// Drops the oldest entries until at most `size` bytes are left.
    fn evict(&mut self, size: u32) {
        while self.size > size {
            let Some(oldest) = self.entries.pop_back() else { return };
            self.size -= oldest.size();
        }
    }
}
