//! What the encoder writes, byte by byte.

use http::{HeaderName, HeaderValue, StatusCode};
use sallyport_http2::hpack::Encoder;

use crate::{
    hpack::STATIC,
    hpack_code::{integer, plain},
};

fn begun(encoder: &mut Encoder) -> Vec<u8> {
    let mut out = Vec::new();
    encoder.begin(&mut out);
    out
}

fn field(encoder: &mut Encoder, name: &str, value: &str) -> Vec<u8> {
    let mut out = Vec::new();
    encoder.field(&HeaderName::from_bytes(name.as_bytes()).unwrap(), &HeaderValue::from_str(value).unwrap(), &mut out);
    out
}

/// A literal whose name is in the static table (`index`), or is not (0).
fn literal(pattern: u8, index: usize, name: &str, value: &str) -> Vec<u8> {
    let bits = if pattern == 0x40 { 6 } else { 4 };
    let name = if index == 0 { plain(name.as_bytes()) } else { Vec::new() };
    [integer(pattern, bits, index), name, plain(value.as_bytes())].concat()
}

#[test]
fn a_status_of_the_static_table_is_one_byte() {
    for code in 100..1_000 {
        let mut out = Vec::new();
        Encoder::new().status(StatusCode::from_u16(code).unwrap(), &mut out);
        let text = code.to_string();
        match STATIC.iter().position(|entry| *entry == (":status", &text)) {
            Some(n) => assert_eq!(out[..], [0x80 | (n as u8 + 1)]),
            None => assert_eq!(out[..], literal(0, 8, "", &text)),
        }
    }
}

const NOT_INDEXED: [&str; 13] = [
    "age",
    "authorization",
    "content-length",
    "content-range",
    "cookie",
    "etag",
    "if-modified-since",
    "if-none-match",
    "last-modified",
    "location",
    "proxy-authorization",
    "set-cookie",
    "www-authenticate",
];

#[test]
fn every_name_of_the_static_table_is_written_as_its_index() {
    for (n, (name, _)) in STATIC.iter().enumerate().filter(|(_, (name, _))| !name.starts_with(':')) {
        let pattern = if NOT_INDEXED.contains(name) { 0x00 } else { 0x40 };
        assert_eq!(field(&mut Encoder::new(), name, "17"), literal(pattern, n + 1, name, "17"));
    }
}

#[test]
fn what_was_written_before_is_one_byte() {
    let mut encoder = Encoder::new();
    assert_eq!(begun(&mut encoder), []);
    assert_eq!(field(&mut encoder, "x-a", "1"), literal(0x40, 0, "x-a", "1"));
    assert_eq!(field(&mut encoder, "x-a", "1"), [0xbe]);
    assert_eq!(field(&mut encoder, "server", "s"), literal(0x40, 54, "server", "s"));
    assert_eq!(field(&mut encoder, "x-a", "1"), [0xbf]);
    assert_eq!(field(&mut encoder, "server", "s"), [0xbe]);
    assert_eq!(field(&mut encoder, "server", "t"), literal(0x40, 54, "server", "t"));
    assert_eq!(field(&mut encoder, "x-b", "1"), literal(0x40, 0, "x-b", "1"));
    // Never those that change with every response.
    for _ in 0..2 {
        for name in NOT_INDEXED {
            assert_eq!(field(&mut encoder, name, "1")[0] & 0xf0, 0);
        }
    }
    // An index of two bytes.
    for n in 0..80 {
        let name = format!("y-{n}");
        assert_eq!(field(&mut encoder, &name, ""), literal(0x40, 0, &name, ""));
    }
    assert_eq!(field(&mut encoder, "x-a", "1"), integer(0x80, 7, 62 + 83));
}

#[test]
fn long_strings_have_long_lengths() {
    let (name, value) = ("n".repeat(200), "v".repeat(1_000));
    let written = field(&mut Encoder::new(), &name, &value);
    assert_eq!(written, [&[0x40, 0x7f, 73][..], name.as_bytes(), &[0x7f, 0xe9, 0x06], value.as_bytes()].concat());
}

#[test]
fn a_sensitive_value_is_never_indexed() {
    let mut value = HeaderValue::from_static("secret");
    let mut encoder = Encoder::new();
    // Not even when the same is in the table already.
    field(&mut encoder, "x-token", "secret");
    value.set_sensitive(true);
    for (name, index) in [("x-token", 0), ("set-cookie", 55), ("server", 54)] {
        let mut out = Vec::new();
        encoder.field(&HeaderName::from_static(name), &value, &mut out);
        assert_eq!(out[..], literal(0x10, index, name, "secret"));
    }
}

#[test]
fn the_table_is_no_larger_than_the_peer_and_we_like() {
    let mut encoder = Encoder::new();
    // Nothing changes.
    encoder.set_max_table_bytes(u32::MAX);
    encoder.set_max_table_bytes(4_096);
    assert_eq!(begun(&mut encoder), []);
    for name in ["x-a", "x-b"] {
        field(&mut encoder, name, "1");
    }
    // Down and up: the older of two goes.
    encoder.set_max_table_bytes(50);
    encoder.set_max_table_bytes(100);
    encoder.set_max_table_bytes(10_000);
    assert_eq!(begun(&mut encoder), [integer(0x20, 5, 50), integer(0x20, 5, 4_096)].concat());
    assert_eq!(begun(&mut encoder), []);
    assert_eq!(field(&mut encoder, "x-b", "1"), [0xbe]);
    assert_eq!(field(&mut encoder, "x-a", "1"), literal(0x40, 0, "x-a", "1"));
    // Down twice: the smaller, once.
    encoder.set_max_table_bytes(60);
    encoder.set_max_table_bytes(0);
    assert_eq!(begun(&mut encoder), [0x20]);
    for _ in 0..2 {
        assert_eq!(field(&mut encoder, "x-a", "1"), literal(0x00, 0, "x-a", "1"));
    }
    // Up: the final size alone.
    encoder.set_max_table_bytes(30);
    encoder.set_max_table_bytes(40);
    assert_eq!(begun(&mut encoder), integer(0x20, 5, 40));
    // A smaller size and back is announced too, because the table was emptied.
    encoder.set_max_table_bytes(0);
    encoder.set_max_table_bytes(40);
    assert_eq!(begun(&mut encoder), [integer(0x20, 5, 0), integer(0x20, 5, 40)].concat());
}

#[test]
fn a_field_that_would_empty_the_table_is_not_indexed() {
    let mut encoder = Encoder::new();
    field(&mut encoder, "x-a", "1");
    let large = "v".repeat(4_096 / 4 * 3 - 35);
    assert_eq!(field(&mut encoder, "x-l", &format!("{large}v"))[0], 0x00);
    assert_eq!(field(&mut encoder, "x-a", "1"), [0xbe]);
    assert_eq!(field(&mut encoder, "x-l", &large)[0], 0x40);
    assert_eq!(field(&mut encoder, "x-l", &large), [0xbe]);
    assert_eq!(field(&mut encoder, "x-a", "1"), [0xbf]);
    // Two of them do not fit.
    assert_eq!(field(&mut encoder, "x-m", &large)[0], 0x40);
    assert_eq!(field(&mut encoder, "x-a", "1")[0], 0x40);
}
