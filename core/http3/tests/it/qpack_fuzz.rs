//! What the fuzzer of field sections in `fuzz/` runs, and the tests here replay.

use std::ops::ControlFlow;

use http::{HeaderName, HeaderValue};
use sallyport_http2::hpack::Field;
use sallyport_http3::qpack::{self, DecodeError};

/// Checks one field section. What is decoded is encoded again, and decoded as a response.
pub(crate) fn qpack_block(section: &[u8]) {
    let whole = decode(section, usize::MAX);
    for wanted in [1, 3] {
        // The rest of a section has no part in the first fields.
        let part = decode(section, wanted);
        if let (Ok(whole), Ok(part)) = (&whole, &part) {
            assert_eq!(*part, whole[..whole.len().min(part.len())]);
        }
    }
    let Ok(fields) = whole else { return };
    let mut out = Vec::new();
    qpack::begin(&mut out);
    for (name, value) in &fields {
        qpack::field(name, value, &mut out);
    }
    assert_eq!(decode(&out, usize::MAX).as_ref(), Ok(&fields));
}

/// The regular fields among the first `wanted` ones.
fn decode(section: &[u8], wanted: usize) -> Result<Vec<(HeaderName, HeaderValue)>, DecodeError> {
    let (mut fields, mut given) = (Vec::new(), 0);
    qpack::decode(section, |field, size| {
        given += 1;
        assert!(given <= section.len(), "a field has a byte at least");
        assert!(given <= wanted, "it is called no more");
        let len = match field {
            Field::Method(value) | Field::Scheme(value) => value.len() + 7,
            Field::Authority(value) => value.len() + 10,
            Field::Path(value) => value.len() + 5,
            Field::Protocol(value) => value.len() + 9,
            Field::Malformed => size - 32,
            Field::Regular(name, value) => {
                let len = name.as_str().len() + value.len();
                assert!(!matches!(value.as_bytes(), [b' ' | b'\t', ..] | [.., b' ' | b'\t']));
                fields.push((name, value));
                len
            }
        };
        assert_eq!(size, len + 32);
        if given == wanted { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(fields)
}
