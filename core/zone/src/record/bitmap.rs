//! The bit maps of types in NSEC records.

use super::RecordType;

/// The most types of one bit map: more than a name may have.
const MAX_TYPES: usize = 64;

/// A set of types, in order, without allocation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TypeBitmap {
    types: [u16; MAX_TYPES],
    len: usize,
}

impl TypeBitmap {
    pub(crate) fn new() -> Self {
        Self { types: [0; MAX_TYPES], len: 0 }
    }

    /// Adds the type. A set that is full stays as it is.
    pub(crate) fn insert(&mut self, rtype: RecordType) {
        let at = self.types[..self.len].partition_point(|known| *known < rtype.0);
        if self.len == MAX_TYPES || self.types[..self.len].get(at) == Some(&rtype.0) {
            return;
        }
        self.types.copy_within(at..self.len, at + 1);
        self.types[at] = rtype.0;
        self.len += 1;
    }

    pub(crate) fn types(&self) -> &[u16] {
        &self.types[..self.len]
    }
}

/// Writes the field of an NSEC record.
//= RFC 4034 section 4.1.2
//# Type Bit Maps Field = ( Window Block # | Bitmap Length | Bitmap )+
pub(crate) fn write_bitmap(types: &[u16], out: &mut Vec<u8>) {
    let mut rest = types;
    while let Some(first) = rest.first() {
        let window = (first >> 8) as u8;
        let count = rest.partition_point(|rtype| (rtype >> 8) as u8 == window);
        let (here, after) = rest.split_at(count);
        let mut bits = [0_u8; 32];
        for rtype in here {
            let low = (rtype & 0xff) as usize;
            bits[low / 8] |= 0x80 >> (low % 8);
        }
        let len = here.last().map_or(0, |last| usize::from(last & 0xff) / 8 + 1);
        out.extend([window, len as u8]);
        out.extend(&bits[..len]);
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_rfc() {
        // RFC 4034 section 4.3: A MX RRSIG NSEC TYPE1234.
        let mut bitmap = TypeBitmap::new();
        for rtype in [RecordType(1234), RecordType::NSEC, RecordType::A, RecordType::RRSIG, RecordType::MX] {
            bitmap.insert(rtype);
            bitmap.insert(rtype);
        }
        let mut out = Vec::new();
        write_bitmap(bitmap.types(), &mut out);
        let mut expected = vec![0, 6, 0x40, 1, 0, 0, 0, 3, 4, 27];
        expected.extend([0; 26]);
        expected.push(0x20);
        assert_eq!(out, expected);
    }
}
