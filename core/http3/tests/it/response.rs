//! The frames of responses.

use http::{HeaderMap, HeaderValue, StatusCode};
use sallyport_http3::response;

use crate::client::*;

#[test]
fn a_head_is_one_frame() {
    let mut fields = HeaderMap::new();
    fields.insert("content-type", HeaderValue::from_static("text/css"));
    fields.append("set-cookie", HeaderValue::from_static("&&"));
    let mut out = b"before".to_vec();
    response::write_head(StatusCode::OK, &fields, &mut out);
    let expected = [&b"before\x01\x40\x08\x00\x00\xd9\xf3"[..], &[0x5e, 2], b"&&"].concat();
    assert_eq!(out[..], expected);
}

#[test]
fn a_long_head_has_a_long_length() {
    let mut fields = HeaderMap::new();
    fields.insert("x-a", HeaderValue::from_str(&"{".repeat(20_000)).unwrap());
    let mut out = Vec::new();
    response::write_trailers(&fields, &mut out);
    let length = out.len() - 5;
    assert_eq!(out[..5], [vec![1], integer(length as u64)].concat());
    let decoded = decode(&out[5..]).unwrap();
    assert_eq!(decoded[0].1, 3 + 20_000 + 32);
}

#[test]
fn the_header_of_data_has_the_shortest_form() {
    for (length, expected) in [(0, &[0, 0][..]), (63, &[0, 63]), (64, &[0, 0x40, 64]), (16_384, &[0, 0x80, 0, 0x40, 0])]
    {
        let mut out = Vec::new();
        response::write_data_head(length, &mut out);
        assert_eq!(out, expected);
    }
}
