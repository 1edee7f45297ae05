//! What the fuzzer of header blocks in `fuzz/` runs, and the tests here replay: bytes that become header blocks.

use std::ops::ControlFlow;

use http::{HeaderName, HeaderValue, StatusCode};
use sallyport_http2::hpack::{DecodeError, Decoder, Encoder, Field};

/// Operations up to this byte are a block of so many bytes, plus one.
pub(crate) const MAX_BLOCK: u8 = 0xbf;
/// Operations from here on give the peer's table size to the encoder; those between are a longer block.
pub(crate) const TABLE_SIZE: u8 = 0xe0;

/// Takes bytes from the front, fewer when there are no more.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    fn two(&mut self) -> usize {
        usize::from(self.byte()) << 8 | usize::from(self.byte())
    }

    fn take(&mut self, len: usize) -> &'a [u8] {
        let (front, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        front
    }
}

/// A connection's header blocks. Two bytes are the table size that was announced to the client; then each byte is an
/// operation, with arguments. What is decoded is encoded again, and decoded as an answer.
pub(crate) fn hpack_input(data: &[u8]) {
    let mut bytes = Bytes(data);
    let limit = bytes.two();
    let mut decoder = Decoder::new(limit);
    let mut answers = (Encoder::new(), Decoder::new(4_096));
    while !bytes.0.is_empty() {
        let operation = bytes.byte();
        if operation >= TABLE_SIZE {
            answers.0.set_max_table_bytes(bytes.two() as u32);
            continue;
        }
        let len = if operation <= MAX_BLOCK { usize::from(operation) + 1 } else { bytes.two() };
        let block = bytes.take(len);
        // Some are wanted in part alone.
        let wanted = if operation % 16 == 15 { 3 } else { usize::MAX };
        let Ok(fields) = decode(&mut decoder, block, wanted) else { return };
        check_table(&mut decoder, limit);
        answer(&mut answers, &fields);
    }
}

fn decode(decoder: &mut Decoder, block: &[u8], wanted: usize) -> Result<Vec<(HeaderName, HeaderValue)>, DecodeError> {
    let (mut fields, mut given) = (Vec::new(), 0);
    decoder.decode(block, |field, size| {
        given += 1;
        assert!(given <= block.len(), "a field has a byte at least");
        assert!(given <= wanted, "it is called no more");
        let value_len = match field {
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
        assert_eq!(size, value_len + 32);
        if given == wanted { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(fields)
}

/// The dynamic table is no larger than was announced.
fn check_table(decoder: &mut Decoder, limit: usize) {
    let (mut total, mut index) = (0, 62);
    loop {
        let mut entry = vec![0xff];
        let mut rest = index - 0x7f_i32;
        if rest < 0 {
            entry[0] = 0x80 | index as u8;
        } else {
            while rest >= 0x80 {
                entry.push(rest as u8 | 0x80);
                rest >>= 7;
            }
            entry.push(rest as u8);
        }
        let result = decoder.decode(&entry, |_, size| {
            total += size;
            ControlFlow::Continue(())
        });
        if result.is_err() {
            assert_eq!(result, Err(DecodeError::NoSuchIndex(index as u32)));
            break;
        }
        assert!(total <= limit);
        index += 1;
    }
}

fn answer((encoder, decoder): &mut (Encoder, Decoder), fields: &[(HeaderName, HeaderValue)]) {
    let mut out = Vec::new();
    encoder.begin(&mut out);
    encoder.status(StatusCode::OK, &mut out);
    for (name, value) in fields {
        encoder.field(name, value, &mut out);
    }
    // `:status` is no field of a request.
    assert_eq!(decode(decoder, &out, usize::MAX).as_deref(), Ok(fields));
}
