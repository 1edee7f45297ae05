//! A name of a query, without allocation.

use super::{MAX_LABELS, MAX_NAME_BYTES};

/// A name in lower case on the stack, with the starts of its labels.
#[derive(Clone)]
pub struct NameBuf {
    bytes: [u8; MAX_NAME_BYTES],
    len: u8,
    starts: [u8; MAX_LABELS + 1],
    labels: u8,
}

impl NameBuf {
    /// The name of the root.
    pub(crate) fn root() -> Self {
        Self { bytes: [0; MAX_NAME_BYTES], len: 1, starts: [0; MAX_LABELS + 1], labels: 0 }
    }

    /// Reads an uncompressed name at the front of the bytes: labels up to the root. `None`: the name does not end, is
    /// too long or has a pointer.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let mut name = Self { bytes: [0; MAX_NAME_BYTES], len: 0, starts: [0; MAX_LABELS + 1], labels: 0 };
        let mut at = 0_usize;
        loop {
            let len = usize::from(*bytes.get(at)?);
            name.starts[usize::from(name.labels)] = at as u8;
            if len == 0 {
                name.len = at as u8 + 1;
                return Some(name);
            }
            // Two bits of a length are for pointers.
            if len > 63 || at + len + 2 > MAX_NAME_BYTES {
                return None;
            }
            name.bytes[at] = len as u8;
            let label = bytes.get(at + 1..at + 1 + len)?;
            for (to, from) in name.bytes[at + 1..].iter_mut().zip(label) {
                *to = from.to_ascii_lowercase();
            }
            name.labels += 1;
            at += 1 + len;
        }
    }

    /// The wire form, with the zero of the root.
    #[must_use]
    pub fn as_wire(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Number of labels, without the root.
    #[must_use]
    pub fn label_count(&self) -> usize {
        usize::from(self.labels)
    }

    /// The name of the last `labels` labels.
    pub(crate) fn suffix(&self, labels: usize) -> &[u8] {
        &self.as_wire()[self.suffix_at(labels)..]
    }

    /// Where the last `labels` labels begin.
    pub(crate) fn suffix_at(&self, labels: usize) -> usize {
        usize::from(self.starts[usize::from(self.labels).saturating_sub(labels)])
    }
}

impl std::fmt::Debug for NameBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", super::Name::from_wire(self.as_wire()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_up_to_the_root() {
        let name = NameBuf::read(b"\x03WwW\x07example\x03com\x00rest").unwrap();
        assert_eq!(name.as_wire(), b"\x03www\x07example\x03com\x00");
        assert_eq!(name.label_count(), 3);
        assert_eq!(name.suffix(2), b"\x07example\x03com\x00");
        assert_eq!(name.suffix(0), b"\x00");
        assert_eq!(name.suffix(3), name.as_wire());
    }

    #[test]
    fn bad_names_are_refused() {
        assert!(NameBuf::read(b"").is_none());
        assert!(NameBuf::read(b"\x03ww").is_none());
        assert!(NameBuf::read(b"\x03www").is_none());
        assert!(NameBuf::read(b"\xc0\x0c").is_none());
        assert!(NameBuf::read(b"\x41aaa").is_none());
        let longest = [vec![63; 64], vec![63; 64], vec![63; 64], vec![61; 62], vec![0]].concat();
        assert_eq!(NameBuf::read(&longest).unwrap().as_wire().len(), 255);
        let longer = [vec![63; 64], vec![63; 64], vec![63; 64], vec![62; 63], vec![0]].concat();
        assert!(NameBuf::read(&longer).is_none());
        let most = [[1, b'a'].repeat(127), vec![0]].concat();
        assert_eq!(NameBuf::read(&most).unwrap().label_count(), 127);
        assert!(NameBuf::read(&[[1, b'a'].repeat(128), vec![0]].concat()).is_none());
    }
}
