//! Domain names on the wire (RFC 1035 section 3.1), in lower case, and their canonical order (RFC 4034 section 6.1).
//!
//! May use: nothing else of this crate.

mod buffer;

use std::{cmp::Ordering, fmt, str::FromStr};

pub use buffer::NameBuf;

/// The longest name on the wire, in bytes, with the zero of the root.
pub const MAX_NAME_BYTES: usize = 255;
/// The longest label, in bytes.
pub const MAX_LABEL_BYTES: usize = 63;
/// The most labels of a name, without the root.
pub const MAX_LABELS: usize = 127;

/// Why a text is no domain name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no domain name: {reason}")]
pub struct NameError {
    /// The text.
    pub text: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

/// A domain name in wire form and lower case, with the zero of the root.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Name(Box<[u8]>);

impl Name {
    /// Reads a name in presentation form. It is absolute with or without a dot at the end.
    ///
    /// # Errors
    /// A label or the name is too long, empty, or has a bad escape.
    pub fn from_text(text: &str) -> Result<Self, NameError> {
        read_text(text).map_err(|reason| NameError { text: text.chars().take(MAX_NAME_BYTES).collect(), reason })
    }

    /// A name that is known to be valid and in lower case.
    pub(crate) fn from_wire(wire: &[u8]) -> Self {
        Self(wire.into())
    }

    /// The root.
    #[must_use]
    pub fn root() -> Self {
        Self(Box::new([0]))
    }

    /// The wire form, in lower case, with the zero of the root.
    #[must_use]
    pub fn as_wire(&self) -> &[u8] {
        &self.0
    }

    /// The labels, first one first, without the root.
    pub fn labels(&self) -> impl DoubleEndedIterator<Item = &[u8]> + Clone {
        labels(&self.0).into_iter()
    }

    /// Number of labels, without the root.
    #[must_use]
    pub fn label_count(&self) -> usize {
        labels(&self.0).len()
    }

    /// Whether this name is `other` or below it.
    #[must_use]
    pub fn is_within(&self, other: &Name) -> bool {
        is_suffix(&self.0, &other.0)
    }

    /// Whether the first label is `*` (RFC 4592).
    #[must_use]
    pub fn is_wildcard(&self) -> bool {
        self.0.starts_with(b"\x01*")
    }

    /// The name without its first label. The root has none.
    #[must_use]
    pub fn parent(&self) -> Option<Name> {
        let skip = 1 + usize::from(self.0[0]);
        (self.0.len() > 1).then(|| Self(self.0[skip..].into()))
    }

    /// The name with one more label in front.
    ///
    /// # Errors
    /// The label or the name is too long.
    pub fn child(&self, label: &str) -> Result<Name, NameError> {
        let text = if self.0.len() == 1 { format!("{label}.") } else { format!("{label}.{self}") };
        Self::from_text(&text)
    }
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::from_text(text)
    }
}

/// The presentation form, with a dot at the end (RFC 1035 section 5.1).
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.len() == 1 {
            return f.write_str(".");
        }
        for label in self.labels() {
            for byte in label {
                match byte {
                    b'.' | b'\\' | b'"' | b'(' | b')' | b';' | b'@' | b'$' => write!(f, "\\{}", char::from(*byte))?,
                    0x21..=0x7e => write!(f, "{}", char::from(*byte))?,
                    _ => write!(f, "\\{byte:03}")?,
                }
            }
            f.write_str(".")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The canonical order of DNSSEC.
impl Ord for Name {
    //= RFC 4034 section 6.1
    //# owner names are ordered by treating individual labels as unsigned
    //# left-justified octet strings.  The absence of a octet sorts before
    //# a zero value octet
    fn cmp(&self, other: &Self) -> Ordering {
        let (own, others) = (starts(&self.0), starts(&other.0));
        let label = |wire: &'_ [u8], at: u8| -> (usize, usize) {
            let at = usize::from(at);
            (at + 1, at + 1 + usize::from(wire[at]))
        };
        for (a, b) in own.0[..own.1].iter().rev().zip(others.0[..others.1].iter().rev()) {
            let ((a, a_end), (b, b_end)) = (label(&self.0, *a), label(&other.0, *b));
            match self.0[a..a_end].cmp(&other.0[b..b_end]) {
                Ordering::Equal => {}
                order => return order,
            }
        }
        own.1.cmp(&others.1)
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

//= RFC 1035 section 5.1
//# \DDD           where each D is a digit is the octet corresponding to the decimal number described by DDD.
fn read_text(text: &str) -> Result<Name, &'static str> {
    if text == "." {
        return Ok(Name::root());
    }
    let (mut wire, mut label_at, mut rest) = (vec![0_u8], 0, text.as_bytes());
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        let byte = match byte {
            b'.' => {
                if wire.len() == label_at + 1 {
                    return Err("a label is empty");
                }
                label_at = wire.len();
                wire.push(0);
                continue;
            }
            b'\\' => {
                let digits = after.get(..3).filter(|digits| digits.iter().all(u8::is_ascii_digit));
                let skip = if digits.is_some() { 3 } else { 1 };
                let escaped = match digits {
                    Some(digits) => digits.iter().fold(0_u16, |sum, digit| sum * 10 + u16::from(digit - b'0')),
                    None => after.first().copied().map_or(256, u16::from),
                };
                rest = after.get(skip..).unwrap_or_default();
                u8::try_from(escaped).map_err(|_| "an escape stands for no byte")?
            }
            0x80.. => return Err("a letter is not of ASCII: write the label as xn--"),
            byte => *byte,
        };
        wire.push(byte.to_ascii_lowercase());
        wire[label_at] += 1;
        if usize::from(wire[label_at]) > MAX_LABEL_BYTES {
            return Err("a label has more than 63 bytes");
        }
        if wire.len() >= MAX_NAME_BYTES {
            return Err("the name has more than 255 bytes");
        }
    }
    if wire[label_at] != 0 {
        wire.push(0);
    }
    if wire.len() == 1 {
        return Err("it is empty");
    }
    Ok(Name(wire.into()))
}

/// Whether the wire name ends with the labels of the other one.
pub(crate) fn is_suffix(wire: &[u8], suffix: &[u8]) -> bool {
    let Some(skip) = wire.len().checked_sub(suffix.len()) else { return false };
    if wire[skip..] != *suffix {
        return false;
    }
    // The suffix must begin at a label.
    let mut at = 0;
    while at < skip {
        at += 1 + usize::from(wire[at]);
    }
    at == skip
}

/// Where the labels begin, and how many there are.
fn starts(wire: &[u8]) -> ([u8; MAX_LABELS], usize) {
    let (mut starts, mut count, mut at) = ([0; MAX_LABELS], 0, 0_usize);
    while wire[at] != 0 {
        starts[count] = at as u8;
        count += 1;
        at += 1 + usize::from(wire[at]);
    }
    (starts, count)
}

fn labels(wire: &[u8]) -> Vec<&[u8]> {
    let (mut found, mut rest) = (Vec::with_capacity(8), wire);
    while let Some((len, after)) = rest.split_first() {
        if *len == 0 {
            break;
        }
        let (label, next) = after.split_at(usize::from(*len));
        found.push(label);
        rest = next;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::from_text(text).unwrap()
    }

    #[test]
    fn names_are_absolute_and_in_lower_case() {
        assert_eq!(name("WWW.Example.com"), name("www.example.com."));
        assert_eq!(name("a.b").as_wire(), b"\x01a\x01b\x00");
        assert_eq!(name(".").to_string(), ".");
        assert_eq!(name("a\\.b.c").to_string(), "a\\.b.c.");
        assert!(Name::from_text("").is_err());
        assert!(Name::from_text("a..b").is_err());
        assert!(Name::from_text("münchen.example").is_err());
        assert!(Name::from_text(&"a".repeat(64)).is_err());
        assert!(Name::from_text(&"a.".repeat(130)).is_err());
    }

    #[test]
    fn a_suffix_begins_at_a_label() {
        assert!(name("a.example.com").is_within(&name("example.com")));
        assert!(name("example.com").is_within(&name("example.com")));
        assert!(name("example.com").is_within(&Name::root()));
        assert!(!name("aexample.com").is_within(&name("example.com")));
        assert!(!name("com").is_within(&name("example.com")));
        // The wire form of example.com. inside of a label.
        assert!(!name("a\\007example\\003com.").is_within(&name("example.com")));
    }

    #[test]
    fn the_order_is_that_of_rfc_4034() {
        let sorted = [
            "example",
            "a.example",
            "yljkjljk.a.example",
            "Z.a.example",
            "zABC.a.EXAMPLE",
            "z.example",
            "\\001.z.example",
            "*.z.example",
            "\\200.z.example",
        ]
        .map(name);
        assert!(sorted.is_sorted());
    }
}
