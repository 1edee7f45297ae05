//! Field sections: the examples of RFC 9204, and valid and invalid input.

use std::ops::ControlFlow;

use http::{HeaderName, HeaderValue, StatusCode};
use sallyport_http2::hpack::DecodeError as Primitive;
use sallyport_http3::qpack::{self, DecodeError};

use crate::client::*;

/// The static table of RFC 9204 appendix A: its first and last entries, and those around each change of a name.
const STATIC: [(usize, &str, &str); 36] = [
    (0, ":authority", ""),
    (1, ":path", "/"),
    (2, "age", "0"),
    (3, "content-disposition", ""),
    (4, "content-length", "0"),
    (5, "cookie", ""),
    (14, "set-cookie", ""),
    (15, ":method", "CONNECT"),
    (17, ":method", "GET"),
    (21, ":method", "PUT"),
    (22, ":scheme", "http"),
    (23, ":scheme", "https"),
    (29, "accept", "*/*"),
    (30, "accept", "application/dns-message"),
    (31, "accept-encoding", "gzip, deflate, br"),
    (32, "accept-ranges", "bytes"),
    (34, "access-control-allow-headers", "content-type"),
    (35, "access-control-allow-origin", "*"),
    (36, "cache-control", "max-age=0"),
    (41, "cache-control", "public, max-age=31536000"),
    (42, "content-encoding", "br"),
    (44, "content-type", "application/dns-message"),
    (54, "content-type", "text/plain;charset=utf-8"),
    (55, "range", "bytes=0-"),
    (56, "strict-transport-security", "max-age=31536000"),
    (60, "vary", "origin"),
    (61, "x-content-type-options", "nosniff"),
    (62, "x-xss-protection", "1; mode=block"),
    (72, "accept-language", ""),
    (74, "access-control-allow-credentials", "TRUE"),
    (75, "access-control-allow-headers", "*"),
    (83, "alt-svc", "clear"),
    (85, "content-security-policy", "script-src 'none'; object-src 'none'; base-uri 'none'"),
    (92, "server", ""),
    (97, "x-frame-options", "deny"),
    (98, "x-frame-options", "sameorigin"),
];

/// An indexed field of the static table.
fn indexed(index: usize) -> Vec<u8> {
    if index < 0x3f { vec![0xc0 | index as u8] } else { vec![0xff, (index - 0x3f) as u8] }
}

#[test]
fn the_example_of_a_literal_with_a_name_reference() {
    // RFC 9204 appendix B.1.
    let section = b"\x00\x00\x51\x0b/index.html";
    assert_eq!(texts(section).unwrap(), [":path: /index.html"]);
}

#[test]
fn the_examples_with_a_dynamic_table_are_refused() {
    // RFC 9204 appendix B.2 to B.4: required insert counts.
    for section in [&[0x03, 0x81, 0x10, 0x11][..], &[0x05, 0x00, 0x80, 0xc1, 0x81]] {
        assert_eq!(decode(section).unwrap_err(), DecodeError::DynamicTable);
    }
    // References without a required insert count: indexed, post-base, and names of both.
    for field in [&[0x80][..], &[0xbf, 0x01], &[0x10], &[0x1f, 0x00], &[0x40, 0x01, b'a'], &[0x00, 0x01, b'a']] {
        assert_eq!(decode(&[&[0, 0][..], field].concat()).unwrap_err(), DecodeError::DynamicTable, "{field:x?}");
    }
    // A negative base.
    assert_eq!(decode(&[0x00, 0x80, 0xc1]).unwrap_err(), DecodeError::DynamicTable);
}

#[test]
fn entries_of_the_static_table_are_read_and_written() {
    for (index, name, value) in STATIC {
        let section = [vec![0, 0], indexed(index)].concat();
        let fields = decode(&section).unwrap();
        assert_eq!(text(&fields[0].0), format!("{name}: {value}"));
        assert_eq!(fields[0].1, name.len() + value.len() + 32);
        if !name.starts_with(':') {
            assert_eq!(encoded(name, value), indexed(index), "{name}");
        }
    }
    // Statuses are no fields of a request, and have the length of their name all the same.
    for index in [24, 28, 63, 71] {
        let fields = decode(&[vec![0, 0], indexed(index)].concat()).unwrap();
        assert_eq!((text(&fields[0].0), fields[0].1), ("!".to_owned(), 7 + 3 + 32));
    }
    assert_eq!(decode(&[0, 0, 0xff, 36]).unwrap_err(), DecodeError::NoSuchIndex(99));
    assert_eq!(decode(&[0, 0, 0x5f, 84, 0]).unwrap_err(), DecodeError::NoSuchIndex(99));
}

#[test]
fn literals_of_all_kinds_are_read() {
    let name = |pattern, name| plain(pattern, 3, name);
    let value = |value| plain(0, 7, value);
    let section = [
        vec![0, 0],
        name(0x20, "x-a"),
        value("1"),
        // Never to be indexed.
        name(0x30, "x-b"),
        value("2"),
        // A name of the static table: `server`, and `cookie`, never to be indexed.
        vec![0x5f, 92 - 15],
        value("s"),
        vec![0x75],
        value("c"),
        name(0x20, ":protocol"),
        value("websocket"),
        name(0x20, "Upper"),
        value("1"),
        name(0x20, ":status"),
        value("200"),
        name(0x20, "x-c"),
        value(" space"),
    ];
    assert_eq!(
        texts(&section.concat()).unwrap(),
        ["x-a: 1", "x-b: 2 (sensitive)", "server: s", "cookie: c (sensitive)", ":protocol: websocket", "!", "!", "!"]
    );
    // Names and values with the Huffman code (RFC 7541 appendix C.4: `custom-key: custom-value`).
    let huffman = b"\x00\x00\x2f\x01\x25\xa8\x49\xe9\x5b\xa9\x7d\x7f\x89\x25\xa8\x49\xe9\x5b\xb8\xe8\xb4\xbf";
    assert_eq!(texts(huffman).unwrap(), ["custom-key: custom-value"]);
}

#[test]
fn a_section_that_is_cut_off_is_an_error() {
    let whole = [&b"\x00\x00\x51\x0b/index.html"[..], &plain(0x20, 3, "x-abcdefgh"), &plain(0, 7, "1")].concat();
    let ends = [2, 15, whole.len()];
    for len in 0..=whole.len() {
        let decoded = decode(&whole[..len]);
        match ends.contains(&len) {
            true => assert!(decoded.is_ok(), "{len}"),
            false => assert_eq!(decoded.unwrap_err(), DecodeError::Primitive(Primitive::Truncated), "{len}"),
        }
    }
    let long = decode(&[0, 0, 0xff, 0x80, 0x80, 0x80, 0x80, 0x80, 0]).unwrap_err();
    assert_eq!(long, DecodeError::Primitive(Primitive::IntegerOverflow));
    let code = decode(&[0, 0, 0x51, 0x84, 0xff, 0xff, 0xff, 0xff]).unwrap_err();
    assert_eq!(code, DecodeError::Primitive(Primitive::Huffman));
}

#[test]
fn nothing_is_decoded_after_a_break() {
    let (mut given, section) = (0, [0, 0, 0xd1, 0xd7, 0x80]);
    let decoded = qpack::decode(&section, |_, _| {
        given += 1;
        if given == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!((decoded, given), (Ok(()), 2), "the reference behind them is not read");
}

#[test]
fn a_status_is_one_or_two_bytes_if_the_static_table_has_it() {
    for code in 100..1_000 {
        let mut out = Vec::new();
        qpack::begin(&mut out);
        qpack::status(StatusCode::from_u16(code).unwrap(), &mut out);
        let is_short = matches!(out[2..], [0xd8..=0xdc] | [0xff, 0..=8]);
        let is_known = [100, 103, 200, 204, 206, 302, 304, 400, 403, 404, 421, 425, 500, 503].contains(&code);
        assert_eq!(is_short, is_known, "{code}: {out:x?}");
        if !is_known {
            // A literal with the name of index 24; few digits have short codes.
            let digits = [&[3], code.to_string().as_bytes()].concat();
            assert!(out[2..4] == [0x5f, 24 - 15] && (out[4..] == digits || out[4] == 0x82), "{code}: {out:x?}");
        }
    }
    let mut out = Vec::new();
    qpack::status(StatusCode::NOT_FOUND, &mut out);
    assert_eq!(out, [0xc0 | 27]);
}

#[test]
fn the_huffman_code_is_used_where_it_is_shorter() {
    // RFC 7541 appendix C.4.3.
    let custom = b"\x2f\x01\x25\xa8\x49\xe9\x5b\xa9\x7d\x7f\x89\x25\xa8\x49\xe9\x5b\xb8\xe8\xb4\xbf";
    assert_eq!(encoded("custom-key", "custom-value"), custom);
    // As long with it as without it.
    assert_eq!(encoded("server", "&&"), [&[0x5f, 92 - 15, 2][..], b"&&"].concat());
    assert_eq!(encoded("server", "{}<>"), [&[0x5f, 92 - 15, 4][..], b"{}<>"].concat());
}

#[test]
fn a_sensitive_value_is_never_indexed() {
    for (name, value, first) in [("cookie", "", 0x75), ("x-token", "s", 0x30), ("vary", "origin", 0x7f)] {
        let mut value = HeaderValue::from_static(value);
        value.set_sensitive(true);
        let mut out = Vec::new();
        qpack::begin(&mut out);
        qpack::field(&HeaderName::from_static(name), &value, &mut out);
        assert_eq!(out[2] & 0xf0, first & 0xf0, "{name}");
        assert!(texts(&out).unwrap()[0].ends_with("(sensitive)"));
    }
}
