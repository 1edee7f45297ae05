//! Sets of records with their bytes as they stand in messages.

use super::RecordType;
use crate::name::{Name, is_suffix};

/// The longest set, in bytes: it fits into one message over TCP, with its signatures.
pub const MAX_SET_BYTES: usize = 60_000;
/// Type, class, TTL and length of the data.
const FIXED_BYTES: usize = 10;
/// The class IN.
const CLASS_IN: u16 = 1;
/// A pointer to the question, which follows the header (RFC 1035 section 4.1.4).
const POINTER_TO_QUESTION: [u8; 2] = [0xc0, 12];

/// Why records make no set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SetError {
    /// There is no record.
    #[error("a set needs a record")]
    Empty,
    /// The set does not fit into a message.
    #[error("the records of one name and type have more than {MAX_SET_BYTES} bytes")]
    TooLong,
}

/// The records of one name and type. The name is not part of it: the set of a wildcard answers for many names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordSet {
    rtype: RecordType,
    ttl: u32,
    /// The records as they stand in an answer: each begins with a pointer to the question.
    wire: Box<[u8]>,
    /// Where each record begins in `wire`.
    starts: Box<[u32]>,
    /// Where `wire` has pointers to the apex of the zone.
    apex_pointers: Box<[u32]>,
    /// The data in canonical form and order, each with its length in front (RFC 4034 section 6.3).
    canonical: Box<[u8]>,
}

/// Where in a message the names are to which a set points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SetPlace {
    /// The name of the set.
    pub(crate) owner: u16,
    /// The apex of the zone.
    pub(crate) apex: u16,
}

impl RecordSet {
    /// A set of these data in canonical form. Names in the data that end with the apex are compressed.
    ///
    /// # Errors
    /// There is no record, or there are too many bytes.
    pub fn new(rtype: RecordType, ttl: u32, mut data: Vec<Vec<u8>>, apex: Option<&Name>) -> Result<Self, SetError> {
        //= RFC 4034 section 6.3
        //# RRs with the same owner name, class, and type are sorted by treating the RDATA portion of the
        //# canonical form of each RR as a left-justified unsigned octet sequence
        data.sort();
        data.dedup();
        if data.is_empty() {
            return Err(SetError::Empty);
        }
        if data.iter().map(|rdata| rdata.len() + 12).sum::<usize>() > MAX_SET_BYTES {
            return Err(SetError::TooLong);
        }
        let (mut wire, mut starts, mut apex_pointers, mut canonical) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for rdata in &data {
            starts.push(wire.len() as u32);
            wire.extend(POINTER_TO_QUESTION);
            wire.extend(rtype.0.to_be_bytes());
            wire.extend(CLASS_IN.to_be_bytes());
            wire.extend(ttl.to_be_bytes());
            let length_at = wire.len();
            wire.extend([0, 0]);
            compress(rtype, rdata, apex, &mut wire, &mut apex_pointers);
            let len = (wire.len() - length_at - 2) as u16;
            wire[length_at..length_at + 2].copy_from_slice(&len.to_be_bytes());
            canonical.extend((rdata.len() as u16).to_be_bytes());
            canonical.extend(rdata);
        }
        Ok(Self {
            rtype,
            ttl,
            wire: wire.into(),
            starts: starts.into(),
            apex_pointers: apex_pointers.into(),
            canonical: canonical.into(),
        })
    }

    /// The same records with another TTL.
    #[must_use]
    pub(crate) fn with_ttl(&self, ttl: u32) -> Self {
        let mut other = self.clone();
        other.ttl = ttl;
        for start in &self.starts {
            let at = *start as usize + 6;
            other.wire[at..at + 4].copy_from_slice(&ttl.to_be_bytes());
        }
        other
    }

    /// The type.
    #[must_use]
    pub fn rtype(&self) -> RecordType {
        self.rtype
    }

    /// The TTL, in seconds.
    #[must_use]
    pub fn ttl(&self) -> u32 {
        self.ttl
    }

    /// Number of records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Whether there is no record. A set always has one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// The data of each record, in canonical form and order.
    pub fn data(&self) -> impl Iterator<Item = &[u8]> + Clone {
        SetData(&self.canonical)
    }

    /// Length of each record in a message, in bytes.
    pub(crate) fn record_lens(&self) -> impl Iterator<Item = usize> {
        let ends = self.starts.iter().skip(1).copied().chain([self.wire.len() as u32]);
        ends.zip(&self.starts).map(|(end, start)| (end - start) as usize)
    }

    /// Length of the set in a message, in bytes.
    pub(crate) fn wire_len(&self) -> usize {
        self.wire.len()
    }

    /// Appends the set to a message. The places are below 16,384.
    pub(crate) fn write(&self, place: SetPlace, out: &mut Vec<u8>) {
        let base = out.len();
        out.extend_from_slice(&self.wire);
        if place.owner != 12 {
            let pointer = (0xc000 | place.owner).to_be_bytes();
            for start in &self.starts {
                let at = base + *start as usize;
                out[at..at + 2].copy_from_slice(&pointer);
            }
        }
        let pointer = (0xc000 | place.apex).to_be_bytes();
        for at in &self.apex_pointers {
            let at = base + *at as usize;
            out[at..at + 2].copy_from_slice(&pointer);
        }
    }

    /// Where the data of the first record begins in [`RecordSet::write`]'s output.
    pub(crate) const fn first_data_at() -> usize {
        2 + FIXED_BYTES
    }
}

/// Data, each with its length in front.
#[derive(Clone)]
struct SetData<'a>(&'a [u8]);

impl<'a> Iterator for SetData<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (len, after) = self.0.split_first_chunk::<2>()?;
        let (data, rest) = after.split_at_checked(usize::from(u16::from_be_bytes(*len)))?;
        self.0 = rest;
        Some(data)
    }
}

/// Where names begin in data whose names may be compressed.
//= RFC 3597 section 4
//# servers MUST NOT compress domain names embedded in the RDATA of types that are class-specific
//# or not well-known
fn names_in(rtype: RecordType, rdata: &[u8]) -> [Option<usize>; 2] {
    match rtype {
        RecordType::NS | RecordType::CNAME | RecordType::PTR => [Some(0), None],
        RecordType::MX => [Some(2), None],
        RecordType::SOA => [Some(0), Some(name_len(rdata))],
        _ => [None, None],
    }
}

/// Length of the name at the front, in bytes.
fn name_len(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(len) = bytes.get(at).filter(|len| **len != 0) {
        at += 1 + usize::from(*len);
    }
    at + 1
}

fn compress(rtype: RecordType, rdata: &[u8], apex: Option<&Name>, wire: &mut Vec<u8>, pointers: &mut Vec<u32>) {
    let mut copied = 0;
    // The root is shorter than a pointer.
    for at in names_in(rtype, rdata).into_iter().flatten().filter(|_| apex.is_some_and(|apex| apex.as_wire().len() > 2))
    {
        let (Some(apex), Some(rest)) = (apex, rdata.get(at..)) else { continue };
        let name = &rest[..name_len(rest).min(rest.len())];
        if is_suffix(name, apex.as_wire()) {
            wire.extend_from_slice(&rdata[copied..at + name.len() - apex.as_wire().len()]);
            pointers.push(wire.len() as u32);
            wire.extend([0xc0, 0]);
            copied = at + name.len();
        }
    }
    wire.extend_from_slice(&rdata[copied..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::from_text(text).unwrap()
    }

    #[test]
    fn a_set_is_written_with_its_pointers() {
        let mail = [&[0, 10][..], name("mail.example.com").as_wire()].concat();
        let other = [&[0, 5][..], name("mx.example.net").as_wire()].concat();
        let data = vec![mail.clone(), other.clone(), mail.clone()];
        let set = RecordSet::new(RecordType::MX, 300, data, Some(&name("example.com"))).unwrap();
        assert_eq!(set.len(), 2);
        assert_eq!(set.data().collect::<Vec<_>>(), [&other[..], &mail[..]]);
        let mut out = vec![0; 30];
        set.write(SetPlace { owner: 20, apex: 24 }, &mut out);
        let expected = [
            &[0; 30][..],
            b"\xc0\x14\x00\x0f\x00\x01\x00\x00\x01\x2c\x00\x12\x00\x05\x02mx\x07example\x03net\x00",
            b"\xc0\x14\x00\x0f\x00\x01\x00\x00\x01\x2c\x00\x09\x00\x0a\x04mail\xc0\x18",
        ];
        assert_eq!(out, expected.concat());
        assert_eq!(out.len() - 30, set.wire_len());
        assert_eq!(set.with_ttl(7).with_ttl(300), set);
    }

    #[test]
    fn a_set_has_records_and_a_bound() {
        assert_eq!(RecordSet::new(RecordType::A, 1, vec![], None), Err(SetError::Empty));
        let many = (0..10_000_u32).map(|n| n.to_be_bytes().to_vec()).collect();
        assert_eq!(RecordSet::new(RecordType::A, 1, many, None), Err(SetError::TooLong));
    }
}
