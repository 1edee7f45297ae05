//! Field sections of all kinds: what the encoder writes is what the decoder reads.

use http::{HeaderName, HeaderValue, StatusCode};
use proptest::{collection::vec, prelude::*, sample::select};
use sallyport_http2::hpack::{Field, huffman};
use sallyport_http3::qpack;

use crate::{client::decode, qpack_fuzz::qpack_block};

fn field() -> impl Strategy<Value = (HeaderName, HeaderValue)> {
    let name = prop_oneof![
        select(&["content-type", "vary", "server", "cookie", "x-frame-options", "access-control-allow-headers"][..])
            .prop_map(str::to_owned),
        "[a-z0-9-]{1,70}",
    ];
    let value = prop_oneof![
        4 => select(&["", "nosniff", "origin", "text/css", "text/html; charset=utf-8", "*"][..]).prop_map(str::to_owned),
        2 => "[!-~]{0,40}",
        1 => (0..4_200_usize).prop_map(|len| "v".repeat(len)),
    ];
    (name, value, prop::bool::weighted(0.1)).prop_map(|(name, value, sensitive)| {
        let mut value = HeaderValue::from_str(&value).unwrap();
        value.set_sensitive(sensitive);
        (HeaderName::from_bytes(name.as_bytes()).unwrap(), value)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_encoded_is_decoded(status in prop::option::of(100..1_000_u16), fields in vec(field(), 0..20)) {
        let mut out = b"before".to_vec();
        qpack::begin(&mut out);
        if let Some(status) = status {
            qpack::status(StatusCode::from_u16(status).unwrap(), &mut out);
        }
        for (name, value) in &fields {
            qpack::field(name, value, &mut out);
        }
        prop_assert!(out.starts_with(b"before"));
        let mut decoded = decode(&out[6..]).unwrap().into_iter();
        if status.is_some() {
            prop_assert!(matches!(decoded.next(), Some((Field::Malformed, 42))));
        }
        prop_assert_eq!(decoded.len(), fields.len());
        for ((name, value), (field, size)) in fields.into_iter().zip(decoded) {
            let Field::Regular(decoded_name, decoded_value) = &field else { panic!("{field:?}") };
            prop_assert_eq!((decoded_name, decoded_value), (&name, &value));
            prop_assert_eq!(decoded_value.is_sensitive(), value.is_sensitive());
            prop_assert_eq!(size, name.as_str().len() + value.len() + 32);
        }
    }

    #[test]
    fn any_bytes_have_a_huffman_code(bytes in vec(any::<u8>(), 0..300)) {
        let mut code = b"before".to_vec();
        huffman::encode(&bytes, &mut code);
        prop_assert!(code.starts_with(b"before"));
        let code = &code[6..];
        prop_assert_eq!(code.len(), huffman::encoded_len(&bytes));
        let mut out = vec![0; huffman::max_decoded_len(code.len()) + 8];
        let len = huffman::decode(code, &mut out).unwrap();
        prop_assert_eq!(&out[..len], &bytes[..]);
    }

    #[test]
    fn no_section_is_too_much_for_the_decoder(data in vec(any::<u8>(), 0..600)) {
        qpack_block(&data);
        // Most sections begin so.
        qpack_block(&[&[0, 0][..], &data].concat());
    }
}
