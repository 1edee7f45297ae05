//! Decoding of header blocks.

use std::{collections::VecDeque, ops::ControlFlow};

use super::{
    DEFAULT_TABLE_BYTES, ENTRY_OVERHEAD_BYTES,
    field::{Field, Name},
    fixed,
    integer::Input,
    string::Strings,
};

/// An error in the compression of a header block, which ends the connection.
//= RFC 9113 section 4.3
//# A decoding error in a field block MUST be treated as a connection error (Section 5.4.1) of type COMPRESSION_ERROR.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The block ends inside a field.
    #[error("the header block ends inside a field")]
    Truncated,
    /// A number is too large or too long (RFC 7541 section 5.1).
    #[error("a number in the header block is too large")]
    IntegerOverflow,
    /// An index beyond both tables (RFC 7541 section 2.3.3).
    #[error("no table of the header block has the index {0}")]
    NoSuchIndex(u32),
    /// An invalid Huffman code (RFC 7541 section 5.2).
    #[error("a string in the header block has an invalid Huffman code")]
    Huffman,
    /// The size of the dynamic table changes after a field (RFC 7541 section 4.2).
    #[error("the dynamic table changes its size after the first field of a header block")]
    LateSizeUpdate,
    /// The dynamic table exceeds the announced size (RFC 7541 section 6.3).
    #[error("the dynamic table exceeds the announced size: {0} bytes")]
    TooLargeTable(u32),
}

/// Decodes the header blocks of one connection, in order.
///
/// Between blocks it holds only its dynamic table; a new one holds no memory.
#[derive(Debug)]
pub struct Decoder {
    table: Table,
    /// The announced size.
    limit: usize,
}

impl Decoder {
    /// A decoder with an announced table size (`SETTINGS_HEADER_TABLE_SIZE`). A size below [`DEFAULT_TABLE_BYTES`] must
    /// have been acknowledged by the peer.
    #[must_use]
    pub fn new(max_table_bytes: usize) -> Self {
        let table = Table { max_size: max_table_bytes.min(DEFAULT_TABLE_BYTES), ..Table::default() };
        Self { table, limit: max_table_bytes }
    }

    /// Decodes a complete header block (RFC 7541 section 3.2), and passes each field to `field` with its size as in RFC
    /// 9113 section 6.5.2: name, value and 32 bytes. Fields are in order and unchecked; the caller assembles the
    /// request.
    ///
    /// After `field` breaks, the rest of the block is decoded only for the dynamic table.
    ///
    /// # Errors
    ///
    /// The compression is invalid; no more blocks may be decoded. Fields may have been passed to `field` before.
    pub fn decode(
        &mut self,
        block: &[u8],
        mut field: impl FnMut(Field, usize) -> ControlFlow<()>,
    ) -> Result<(), DecodeError> {
        let mut input = Input(block);
        self.size_updates(&mut input)?;
        let mut scratch = Strings::new();
        let mut wanted = true;
        while let Ok(first) = input.byte() {
            if first & 0x80 != 0 {
                let (indexed, size) = self.indexed(input.integer(first, 0x7f)?)?;
                if wanted {
                    wanted = field(indexed.clone(), size).is_continue();
                }
            } else if let Some((literal, size)) = self.literal(first, &mut input, wanted, &mut scratch)? {
                wanted = field(literal, size).is_continue();
            }
        }
        Ok(())
    }

    //= RFC 7541 section 4.2
    //# This dynamic table size update MUST occur at the beginning of the first header block following the change to the
    //# dynamic table size.
    fn size_updates(&mut self, input: &mut Input<'_>) -> Result<(), DecodeError> {
        while let Some(first) = input.peek().filter(|first| first & 0xe0 == 0x20) {
            input.byte()?;
            let size = input.integer(first, 0x1f)?;
            //= RFC 7541 section 6.3
            //# The new maximum size MUST be lower than or equal to the limit determined by the protocol using HPACK. A
            //# value that exceeds this limit MUST be treated as a decoding error.
            if size as usize > self.limit {
                return Err(DecodeError::TooLargeTable(size));
            }
            self.table.set_max_size(size as usize);
        }
        Ok(())
    }

    /// RFC 7541 section 6.1.
    #[inline]
    fn indexed(&self, index: u32) -> Result<(&Field, usize), DecodeError> {
        if let Some(entry) = fixed::get(index) {
            return Ok((&entry.field, entry.size));
        }
        let entry = self.table.get(index)?;
        Ok((&entry.field, entry.size))
    }

    /// RFC 7541 section 6.2.
    fn literal(
        &mut self,
        first: u8,
        input: &mut Input<'_>,
        wanted: bool,
        scratch: &mut Strings,
    ) -> Result<Option<(Field, usize)>, DecodeError> {
        let indexing = first & 0x40 != 0;
        if first & 0x60 == 0x20 {
            return Err(DecodeError::LateSizeUpdate);
        }
        let index = input.integer(first, if indexing { 0x3f } else { 0x0f })?;
        let name = if index == 0 {
            Name::parse(scratch.next(input)?)
        } else if let Some(entry) = fixed::get(index) {
            entry.name()
        } else {
            self.table.get(index)?.name()
        };
        let value = scratch.next(input)?;
        if !indexing && !wanted {
            return Ok(None);
        }
        let size = name.len() + value.len() + ENTRY_OVERHEAD_BYTES;
        let never_indexed = first & 0xf0 == 0x10;
        let (field, malformed) = match name.with(value, never_indexed) {
            Ok(field) => (field, None),
            Err(name) => (Field::Malformed, Some(name)),
        };
        if !indexing {
            return Ok(Some((field, size)));
        }
        let given = wanted.then(|| (field.clone(), size));
        self.table.insert(field, malformed, size);
        Ok(given)
    }
}

/// The dynamic table (RFC 7541 section 2.3.2).
#[derive(Debug, Default)]
struct Table {
    /// Newest first.
    entries: VecDeque<Entry>,
    size: usize,
    max_size: usize,
}

/// An entry with its own memory: as a slice of a block it would keep the whole block.
#[derive(Debug)]
struct Entry {
    field: Field,
    /// The name of a malformed field: another field may refer to it.
    malformed: Option<Box<Name>>,
    size: usize,
}

impl Entry {
    fn name(&self) -> Name {
        match &self.malformed {
            Some(name) => name.as_ref().clone(),
            None => Name::of(&self.field).unwrap_or(Name::Bad(0)),
        }
    }
}

impl Table {
    /// The entry of an index beyond the static table.
    #[inline]
    fn get(&self, index: u32) -> Result<&Entry, DecodeError> {
        //= RFC 7541 section 6.1
        //# The index value of 0 is not used. It MUST be treated as a decoding error if found in an indexed header field
        //# representation.
        let nth = (index as usize).wrapping_sub(fixed::LEN as usize + 1);
        self.entries.get(nth).ok_or(DecodeError::NoSuchIndex(index))
    }

    fn insert(&mut self, field: Field, malformed: Option<Name>, size: usize) {
        //= RFC 7541 section 4.4
        //# Before a new entry is added to the dynamic table, entries are evicted from the end of the dynamic table
        //# until the size of the dynamic table is less than or equal to (maximum size - new entry size) or until the
        //# table is empty. [...] an attempt to add an entry larger than the maximum size causes the table to be emptied
        //# of all existing entries and results in an empty table.
        self.evict(self.max_size.saturating_sub(size));
        if size <= self.max_size {
            self.size += size;
            self.entries.push_front(Entry { field, malformed: malformed.map(Box::new), size });
        }
    }

    fn set_max_size(&mut self, max_size: usize) {
        self.max_size = max_size;
        self.evict(max_size);
    }

    /// Drops the oldest entries until at most `size` bytes are left.
    fn evict(&mut self, size: usize) {
        while self.size > size {
            let Some(oldest) = self.entries.pop_back() else { return };
            self.size -= oldest.size;
        }
    }
}
