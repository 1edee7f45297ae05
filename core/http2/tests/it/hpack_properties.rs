//! Header blocks of all kinds: what the encoder writes is what the decoder reads, and no bytes are too much for it.

use std::ops::ControlFlow;

use http::{HeaderName, HeaderValue, StatusCode};
use proptest::{
    collection::vec,
    prelude::*,
    sample::{Index, select},
};
use sallyport_http2::hpack::{Decoder, Encoder, Field};

use crate::{
    hpack::{STATIC, decode},
    hpack_code::{encoded, huffman, integer, plain, reference},
};

/// What a response may have, and how often the same again.
fn field() -> impl Strategy<Value = (HeaderName, HeaderValue)> {
    let name = prop_oneof![
        (14..61_usize).prop_map(|n| STATIC[n].0.to_owned()),
        select(&["x-a", "x-b", "x-request-id", "x-content-type-options"][..]).prop_map(str::to_owned),
        "[a-z0-9-]{1,70}",
    ];
    let value = prop_oneof![
        4 => select(&["", "a", "nosniff", "max-age=3600", "text/html; charset=utf-8"][..]).prop_map(str::to_owned),
        2 => "[!-~]{0,40}",
        1 => (0..4_200_usize).prop_map(|len| "v".repeat(len)),
    ];
    (name, value, prop::bool::weighted(0.1)).prop_map(|(name, value, sensitive)| {
        let mut value = HeaderValue::from_str(&value).unwrap();
        value.set_sensitive(sensitive);
        (HeaderName::from_bytes(name.as_bytes()).unwrap(), value)
    })
}

/// The sizes that a peer gives before a block: mostly none.
fn sizes() -> impl Strategy<Value = Vec<u32>> {
    let size = prop_oneof![0..200_u32, 0..5_000_u32, Just(4_096), Just(u32::MAX)];
    prop_oneof![3 => Just(Vec::new()), 1 => vec(size, 1..4)]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_encoded_is_decoded(
        all in vec(field(), 1..20),
        blocks in vec((sizes(), prop::option::of(100..1_000_u16), vec(any::<Index>(), 0..20)), 1..20),
    ) {
        let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new(4_096));
        for (sizes, status, fields) in blocks {
            for size in sizes {
                encoder.set_max_table_bytes(size);
            }
            let mut out = b"before".to_vec();
            encoder.begin(&mut out);
            if let Some(status) = status {
                encoder.status(StatusCode::from_u16(status).unwrap(), &mut out);
            }
            let fields: Vec<_> = fields.iter().map(|n| n.get(&all)).collect();
            for (name, value) in &fields {
                encoder.field(name, value, &mut out);
            }
            prop_assert!(out.starts_with(b"before"));
            let mut decoded = decode(&mut decoder, &out[6..]).unwrap().into_iter();
            if status.is_some() {
                prop_assert!(matches!(decoded.next(), Some((Field::Malformed, 42))));
            }
            prop_assert_eq!(decoded.len(), fields.len());
            for ((name, value), (field, size)) in fields.into_iter().zip(decoded) {
                let Field::Regular(decoded_name, decoded_value) = &field else { panic!("{field:?}") };
                prop_assert_eq!((decoded_name, decoded_value), (name, value));
                prop_assert_eq!(decoded_value.is_sensitive(), value.is_sensitive());
                prop_assert_eq!(size, name.as_str().len() + value.len() + 32);
            }
        }
    }

    /// Blocks of nothing but bytes, and blocks that are nearly right.
    #[test]
    fn no_block_is_too_much_for_the_decoder(
        size in 0..10_000_usize,
        blocks in vec(vec(part(), 0..20), 1..8),
        wanted in 0..30_usize,
    ) {
        let mut decoder = Decoder::new(size);
        for block in blocks {
            let block = block.concat();
            let mut given = 0;
            let result = decoder.decode(&block, |field, size| {
                given += 1;
                assert!(given <= block.len());
                match field {
                    Field::Regular(name, value) => assert_eq!(size, name.as_str().len() + value.len() + 32),
                    Field::Malformed => assert!(size >= 32),
                    Field::Path(value) => assert_eq!(size, 5 + value.len() + 32),
                    _ => {}
                }
                if given == wanted { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            assert!(wanted == 0 || given <= wanted);
            if result.is_err() {
                break;
            }
        }
    }

    #[test]
    fn strings_in_the_huffman_code_are_those_found_bit_by_bit(
        bytes in vec(any::<u8>(), 0..80), text in "[ -~]{0,300}"
    ) {
        let (random, good) = (reference(&bytes), Some(text.clone().into_bytes()));
        for (string, expected) in [(encoded(&bytes), random), (huffman(text.as_bytes()), good)] {
            let block = [integer(0, 4, 28), string].concat();
            let size = decode(&mut Decoder::new(4_096), &block).ok().map(|fields| fields[0].1 - 14 - 32);
            prop_assert_eq!(size, expected.map(|value| value.len()));
        }
    }
}

/// A piece of a block.
fn part() -> impl Strategy<Value = Vec<u8>> {
    let string = || {
        prop_oneof![
            4 => "[!-~]{0,30}".prop_map(|text| plain(text.as_bytes())),
            4 => "[!-~]{0,30}".prop_map(|text| huffman(text.as_bytes())),
            1 => vec(any::<u8>(), 0..60).prop_map(|bytes| plain(&bytes)),
            1 => vec(any::<u8>(), 0..60).prop_map(|bytes| encoded(&bytes)),
            1 => (0..3_000_usize).prop_map(|len| huffman(&vec![b'a'; len])),
        ]
    };
    let representation = select(&[(0x00, 4), (0x10, 4), (0x40, 6)][..]);
    prop_oneof![
        8 => (1..70_usize).prop_map(|index| integer(0x80, 7, index)),
        6 => (representation.clone(), 1..70_usize, string())
            .prop_map(|((pattern, bits), index, value)| [integer(pattern, bits, index), value].concat()),
        6 => (representation, "[a-z:-]{1,10}", string())
            .prop_map(|((pattern, _), name, value)| [vec![pattern], plain(name.as_bytes()), value].concat()),
        1 => (0..12_000_usize).prop_map(|size| integer(0x20, 5, size)),
        1 => vec(any::<u8>(), 0..40),
    ]
}
