//! NSEC records that are made when a query comes, for one name each (RFC 9824).

use crate::{
    name::{MAX_LABEL_BYTES, MAX_NAME_BYTES},
    record::{TypeBitmap, write_bitmap},
};

/// Appends the name that follows this one immediately.
//= RFC 9824 section 3.1
//# The Next Domain Name field SHOULD be set to the immediate lexicographic successor of the QNAME.
//# This is accomplished by adding a leading label with a single null (zero-value) octet.
fn next_name(wire: &[u8], out: &mut Vec<u8>) {
    if wire.len() + 2 <= MAX_NAME_BYTES {
        out.extend([1, 0]);
        out.extend_from_slice(wire);
    } else {
        increment(wire, out);
    }
}

/// Appends the name that follows a delegation and everything below it.
//= RFC 9824 section 3.4
//# Instead, the Next Domain Name field is formed by appending a zero octet to the first label of the
//# Owner Name.
fn next_at_cut(wire: &[u8], out: &mut Vec<u8>) {
    let len = usize::from(wire.first().copied().unwrap_or(0));
    if len < MAX_LABEL_BYTES && wire.len() < MAX_NAME_BYTES {
        out.push(len as u8 + 1);
        out.extend_from_slice(&wire[1..=len]);
        out.push(0);
        out.extend_from_slice(&wire[1 + len..]);
    } else {
        increment(wire, out);
    }
}

/// Appends the least name above this one and all names below it, for names without room: the last byte of the first
/// label grows (RFC 4471 section 3.1.2).
fn increment(wire: &[u8], out: &mut Vec<u8>) {
    let len = usize::from(wire.first().copied().unwrap_or(0));
    let (label, rest) = (&wire[1..=len], &wire[1 + len..]);
    // A byte of 255 has nothing above it: the label ends before it.
    let kept = label.iter().rposition(|byte| *byte != 255).map_or(0, |last| last + 1);
    if kept == 0 {
        // Nothing in the zone follows with certainty: the chain ends here.
        out.extend_from_slice(rest);
        return;
    }
    out.push(kept as u8);
    out.extend_from_slice(&label[..kept]);
    if let Some(last) = out.last_mut() {
        // Capital letters sort as small ones.
        *last = if *last == b'A' - 1 { b'Z' + 1 } else { *last + 1 };
    }
    out.extend_from_slice(rest);
}

/// Appends the data of an NSEC record.
pub(crate) fn nsec_data(owner: &[u8], is_cut: bool, types: &TypeBitmap, out: &mut Vec<u8>) {
    if is_cut {
        next_at_cut(owner, out);
    } else {
        next_name(owner, out);
    }
    write_bitmap(types.types(), out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::{Name, NameBuf};

    fn next(wire: &[u8], is_cut: bool) -> Name {
        let mut out = Vec::new();
        if is_cut {
            next_at_cut(wire, &mut out)
        } else {
            next_name(wire, &mut out)
        };
        assert_eq!(NameBuf::read(&out).map(|name| name.as_wire().len()), Some(out.len()));
        Name::from_wire(&out)
    }

    #[test]
    fn the_examples_of_the_rfc() {
        let name = |text: &str| Name::from_text(text).unwrap();
        assert_eq!(next(name("a.example.com").as_wire(), false), name("\\000.a.example.com"));
        assert_eq!(next(name("sub.example.com").as_wire(), true), name("sub\\000.example.com"));
    }

    #[test]
    fn the_longest_names_have_a_successor() {
        let longest = |label: Vec<u8>| [vec![63; 64], vec![63; 64], vec![63; 64], label, vec![0]].concat();
        for last in [b'a', b'@', 0, 254, 255] {
            let mut label = [b'x'; 62];
            label[0] = 61;
            label[61] = last;
            let wire = [vec![61], label[1..].to_vec(), longest(vec![])[..193].to_vec()].concat();
            let owner = Name::from_wire(&wire);
            assert_eq!(owner.as_wire().len(), 255);
            assert!(next(&wire, false) > owner, "{last}");
            assert!(next(&wire, true) > owner, "{last}");
        }
    }
}
