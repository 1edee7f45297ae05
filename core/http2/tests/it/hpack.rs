//! Header blocks: the examples of RFC 7541, and valid and invalid input.

use std::ops::ControlFlow;

use http::HeaderName;
use sallyport_http2::hpack::{DecodeError, Decoder, Field};

use crate::hpack_code::{Bits, CODE, EOS, encoded, huffman, integer, plain, reference};

/// A field as text, `!` if it is malformed.
fn text(field: &Field) -> String {
    let pseudo = |name: &str, value: &[u8]| format!("{name}: {}", std::str::from_utf8(value).unwrap());
    match field {
        Field::Method(value) => pseudo(":method", value),
        Field::Scheme(value) => pseudo(":scheme", value),
        Field::Authority(value) => pseudo(":authority", value),
        Field::Path(value) => pseudo(":path", value),
        Field::Protocol(value) => pseudo(":protocol", value),
        Field::Regular(name, value) => {
            format!("{name}: {}{}", value.to_str().unwrap(), if value.is_sensitive() { " (sensitive)" } else { "" })
        }
        Field::Malformed => "!".to_owned(),
    }
}

/// The fields of a block, and their sizes.
pub(crate) fn decode(decoder: &mut Decoder, block: &[u8]) -> Result<Vec<(Field, usize)>, DecodeError> {
    let mut fields = Vec::new();
    decoder.decode(block, |field, size| {
        fields.push((field, size));
        ControlFlow::Continue(())
    })?;
    Ok(fields)
}

fn texts(decoder: &mut Decoder, block: &[u8]) -> Result<Vec<String>, DecodeError> {
    Ok(decode(decoder, block)?.iter().map(|(field, _)| text(field)).collect())
}

/// The fields of one block, with a new decoder.
fn once(block: &[u8]) -> Result<Vec<String>, DecodeError> {
    texts(&mut Decoder::new(4_096), block)
}

/// The dynamic table, newest entry first, and its size, read by the indexes from 62 on.
fn table(decoder: &mut Decoder) -> (Vec<String>, usize) {
    let (mut entries, mut size) = (Vec::new(), 0);
    for index in 62.. {
        match decode(decoder, &integer(0x80, 7, index)) {
            Ok(fields) => {
                entries.push(text(&fields[0].0));
                size += fields[0].1;
            }
            Err(error) => {
                assert_eq!(error, DecodeError::NoSuchIndex(index as u32));
                break;
            }
        }
    }
    (entries, size)
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
}

/// A block, its fields, and the table afterwards: newest entry first, and its size.
type Step<'a> = (&'a str, &'a [&'a str], &'a [&'a str], usize);

fn check(mut decoder: Decoder, steps: &[Step<'_>]) {
    for (block, fields, entries, size) in steps {
        assert_eq!(texts(&mut decoder, &hex(block)).unwrap(), *fields, "{block}");
        assert_eq!(table(&mut decoder), (entries.iter().map(|entry| (*entry).to_owned()).collect(), *size), "{block}");
    }
}

#[test]
fn single_fields_are_those_of_appendix_c_2() {
    let custom = "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572";
    check(Decoder::new(4_096), &[(custom, &["custom-key: custom-header"], &["custom-key: custom-header"], 55)]);
    check(Decoder::new(4_096), &[("040c 2f73 616d 706c 652f 7061 7468", &[":path: /sample/path"], &[], 0)]);
    let secret = "1008 7061 7373 776f 7264 0673 6563 7265 74";
    check(Decoder::new(4_096), &[(secret, &["password: secret (sensitive)"], &[], 0)]);
    check(Decoder::new(4_096), &[("82", &[":method: GET"], &[], 0)]);
}

const FIRST: &[&str] = &[":method: GET", ":scheme: http", ":path: /", ":authority: www.example.com"];
const SECOND: &[&str] =
    &[":method: GET", ":scheme: http", ":path: /", ":authority: www.example.com", "cache-control: no-cache"];
const THIRD: &[&str] = &[
    ":method: GET",
    ":scheme: https",
    ":path: /index.html",
    ":authority: www.example.com",
    "custom-key: custom-value",
];

fn requests(blocks: [&str; 3]) {
    let entries = ["custom-key: custom-value", "cache-control: no-cache", ":authority: www.example.com"];
    check(
        Decoder::new(4_096),
        &[
            (blocks[0], FIRST, &entries[2..], 57),
            (blocks[1], SECOND, &entries[1..], 110),
            (blocks[2], THIRD, &entries, 164),
        ],
    );
}

#[test]
fn requests_are_those_of_appendix_c_3() {
    requests([
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ]);
}

#[test]
fn requests_in_the_huffman_code_are_those_of_appendix_c_4() {
    requests([
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ]);
}

/// `:status` is invalid in a request, but gets an entry in the table.
fn responses(blocks: [&str; 3]) {
    const LOCATION: &str = "location: https://www.example.com";
    const DATE: &str = "date: Mon, 21 Oct 2013 20:13:21 GMT";
    const LATER: &str = "date: Mon, 21 Oct 2013 20:13:22 GMT";
    const COOKIE: &str = "set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1";
    const GZIP: &str = "content-encoding: gzip";
    const PRIVATE: &str = "cache-control: private";
    check(
        Decoder::new(256),
        &[
            (blocks[0], &["!", PRIVATE, DATE, LOCATION], &[LOCATION, DATE, PRIVATE, "!"], 222),
            (blocks[1], &["!", PRIVATE, DATE, LOCATION], &["!", LOCATION, DATE, PRIVATE], 222),
            (blocks[2], &["!", PRIVATE, LATER, LOCATION, GZIP, COOKIE], &[COOKIE, GZIP, LATER], 215),
        ],
    );
}

#[test]
fn responses_are_those_of_appendix_c_5() {
    responses([
        "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3120 474d \
         546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "4803 3330 37c1 c0bf",
        "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a 6970 7738 666f \
         6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33 3630 303b \
         2076 6572 7369 6f6e 3d31",
    ]);
}

#[test]
fn responses_in_the_huffman_code_are_those_of_appendix_c_6() {
    responses([
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad 1718 63c7 \
         8f0b 97c8 e9ae 82ae 43d3",
        "4883 640e ffc1 c0bf",
        "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 e6c7 b335 \
         dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
    ]);
}

/// RFC 7541 appendix A.
pub(crate) const STATIC: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

#[test]
fn every_entry_of_the_static_table_has_its_index() {
    let mut decoder = Decoder::new(4_096);
    for (n, (name, value)) in STATIC.iter().enumerate() {
        let fields = decode(&mut decoder, &integer(0x80, 7, n + 1)).unwrap();
        let expected = if *name == ":status" { "!".to_owned() } else { format!("{name}: {value}") };
        assert_eq!((text(&fields[0].0), fields[0].1), (expected, name.len() + value.len() + 32));
        // The name alone.
        let block = [integer(0, 4, n + 1), plain(b"other")].concat();
        let fields = decode(&mut decoder, &block).unwrap();
        let expected = if *name == ":status" { "!".to_owned() } else { format!("{name}: other") };
        assert_eq!((text(&fields[0].0), fields[0].1), (expected, name.len() + 5 + 32));
    }
    assert_eq!(table(&mut decoder), (vec![], 0));
}

#[test]
fn every_pseudo_header_field_of_a_request_is_known_by_its_name() {
    for name in [":method", ":scheme", ":authority", ":path", ":protocol"] {
        for name_bytes in [plain(name.as_bytes()), huffman(name.as_bytes())] {
            for pattern in [0x00, 0x10, 0x40] {
                let mut decoder = Decoder::new(4_096);
                let block = [vec![pattern], name_bytes.clone(), plain(b"a")].concat();
                let fields = decode(&mut decoder, &block).unwrap();
                assert_eq!((text(&fields[0].0), fields[0].1), (format!("{name}: a"), name.len() + 33));
                if pattern == 0x40 {
                    // Its name alone, from the dynamic table.
                    let block = [integer(0, 4, 62), plain(b"bc")].concat();
                    let fields = decode(&mut decoder, &block).unwrap();
                    assert_eq!((text(&fields[0].0), fields[0].1), (format!("{name}: bc"), name.len() + 34));
                }
            }
        }
    }
}

#[test]
fn fields_that_no_request_has_are_malformed_and_keep_the_tables_in_step() {
    let long = "a".repeat(70_000);
    let cases: [(&[u8], &[u8]); 16] = [
        (b":status", b"200"),
        (b":unknown", b"1"),
        (b":", b"1"),
        (b":Method", b"GET"),
        (b"", b"1"),
        (b"Upper", b"1"),
        (b"a name", b"1"),
        (b"a\0", b"1"),
        (b"a\xff", b"1"),
        (long.as_bytes(), b"1"),
        (b"name", b" begins with a space"),
        (b"name", b"ends with a tab\t"),
        (b"name", b"a\0b"),
        (b"name", b"a\nb"),
        (b"name", b"a\rb"),
        (b":path", b" /"),
    ];
    for (name, value) in cases {
        for pattern in [0x00, 0x10, 0x40] {
            let mut decoder = Decoder::new(100_000);
            texts(&mut decoder, &integer(0x20, 5, 100_000)).unwrap();
            let block = [vec![pattern], plain(name), huffman(value), plain_field("after", "1")].concat();
            let fields = decode(&mut decoder, &block).unwrap();
            assert_eq!(fields.len(), 2, "{name:?} {value:?}");
            assert_eq!((text(&fields[0].0), fields[0].1), ("!".to_owned(), name.len() + value.len() + 32));
            assert_eq!(text(&fields[1].0), "after: 1");
            let expected = if pattern == 0x40 { (vec!["!".to_owned()], fields[0].1) } else { (vec![], 0) };
            assert_eq!(table(&mut decoder), expected);
        }
    }
}

fn plain_field(name: &str, value: &str) -> Vec<u8> {
    [vec![0], plain(name.as_bytes()), plain(value.as_bytes())].concat()
}

#[test]
fn the_name_of_a_malformed_field_serves_others() {
    let mut decoder = Decoder::new(4_096);
    let block = [vec![0x40], plain(b"name"), plain(b" 1"), integer(0x40, 6, 62), plain(b"2")].concat();
    assert_eq!(texts(&mut decoder, &block).unwrap(), ["!", "name: 2"]);
    assert_eq!(table(&mut decoder), (vec!["name: 2".to_owned(), "!".to_owned()], 37 + 38));
    let block = [vec![0x40], plain(b"Name"), plain(b"1"), integer(0x00, 4, 62), plain(b"22")].concat();
    let fields = decode(&mut decoder, &block).unwrap();
    assert_eq!((text(&fields[1].0), fields[1].1), ("!".to_owned(), 38));
}

#[test]
fn values_may_have_every_byte_that_a_header_value_may() {
    let value: Vec<u8> = (b'!'..=0xff).filter(|byte| *byte != 0x7f).chain([b'\t', b' ', b'a']).collect();
    for string in [plain(&value), huffman(&value)] {
        let fields = decode(&mut Decoder::new(4_096), &[vec![0], plain(b"name"), string].concat()).unwrap();
        let Field::Regular(name, decoded) = &fields[0].0 else { panic!("{fields:?}") };
        assert_eq!((name, decoded.as_bytes()), (&HeaderName::from_static("name"), &value[..]));
    }
}

#[test]
fn every_symbol_is_decoded() {
    for byte in 0..=255_u8 {
        for len in 1..70 {
            let value = [vec![b'<'; len % 5], vec![byte; len], vec![b'>'; len % 3]].concat();
            let fields = decode(&mut Decoder::new(4_096), &[vec![4], huffman(&value)].concat()).unwrap();
            match &fields[0].0 {
                Field::Path(path) => assert_eq!(*path, value),
                Field::Malformed => assert!(matches!(byte, b' ' | b'\t'), "{byte}"),
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn long_strings_in_the_huffman_code_are_decoded() {
    for len in (150..170).chain(250..260).chain([1_000, 16_000]) {
        for byte in [b'a', b'~', 0xff] {
            let value = vec![byte; len];
            let block = [vec![4], huffman(&value), vec![4], huffman(b"/short")].concat();
            let fields = decode(&mut Decoder::new(4_096), &block).unwrap();
            let (Field::Path(long), Field::Path(short)) = (&fields[0].0, &fields[1].0) else { panic!("{fields:?}") };
            assert_eq!((&long[..], &short[..]), (&value[..], &b"/short"[..]));
        }
    }
}

/// A path whose Huffman code is these bytes.
fn path(bytes: &[u8]) -> Result<Vec<String>, DecodeError> {
    once(&[vec![4], encoded(bytes)].concat())
}

#[test]
fn the_padding_of_a_string_is_the_beginning_of_eos_and_shorter_than_a_byte() {
    assert_eq!(path(&[]), Ok(vec![":path: ".to_owned()]));
    // From 0 to 7 bits of padding, after strings of every length.
    for len in 1..40 {
        for last in [&b""[..], b"a", b"aa", b" ", b"   ", b"A", b"&", b"?", b"#", b"\0", b"\xff"] {
            let value = [&vec![b'0'; len][..], last, b"0"].concat();
            let good = Bits::text(&value).padded();
            let decode = |bytes: &[u8]| decode(&mut Decoder::new(4_096), &[vec![4], encoded(bytes)].concat());
            let fields = decode(&good).unwrap();
            let Field::Path(path) = &fields[0].0 else { panic!("{fields:?}") };
            assert_eq!(*path, value);
            // One whole byte more.
            for more in 1..6 {
                let long = [good.clone(), vec![0xff; more]].concat();
                assert_eq!(decode(&long).unwrap_err(), DecodeError::Huffman, "{value:?} and {more} bytes");
            }
            // Zeros instead of ones: another string or an error, but not this one.
            let zeros = Bits::text(&value).unpadded();
            if zeros != good {
                match decode(&zeros) {
                    Ok(fields) => assert!(matches!(&fields[0].0, Field::Path(path) if *path != value)),
                    Err(error) => assert_eq!(error, DecodeError::Huffman),
                }
            }
        }
    }
    // `0` is 00000, and the rest is too short for a code.
    assert_eq!(path(&[0b0000_0111]), Ok(vec![":path: 0".to_owned()]));
    for bad in [0b0000_0000, 0b0000_0001, 0b0000_0011, 0b0000_0101, 0b0000_0110] {
        assert_eq!(path(&[bad]), Err(DecodeError::Huffman));
    }
    assert_eq!(path(&[0xff]), Err(DecodeError::Huffman));
    assert_eq!(path(&[0xfe]), Err(DecodeError::Huffman));
}

#[test]
fn eos_is_an_error() {
    for before in 0..10 {
        for after in 0..10 {
            let mut bits = Bits::text(&vec![b'a'; before]);
            bits.push(EOS);
            for _ in 0..after {
                bits.push(CODE[usize::from(b'a')]);
            }
            assert_eq!(path(&bits.padded()), Err(DecodeError::Huffman), "{before} {after}");
        }
    }
}

#[test]
fn codes_are_decoded_as_bit_by_bit() {
    let check = |bytes: &[u8]| {
        let block = [vec![0], plain(b"a"), encoded(bytes), vec![0x82]].concat();
        match (reference(bytes), decode(&mut Decoder::new(4_096), &block)) {
            (Some(value), Ok(fields)) => {
                assert_eq!((fields.len(), fields[0].1), (2, 33 + value.len()), "{bytes:x?}");
                if let Field::Regular(_, decoded) = &fields[0].0 {
                    assert_eq!(decoded.as_bytes(), value);
                }
            }
            (None, Err(error)) => assert_eq!(error, DecodeError::Huffman),
            (reference, decoded) => panic!("{bytes:x?} is {reference:?}, not {decoded:?}"),
        }
    };
    for first in 0..=0xff {
        check(&[first]);
        for second in 0..=0xff {
            check(&[first, second]);
        }
    }
    // Every long code, truncated, at every bit of a byte; `1` has five bits.
    for (code, len) in CODE.into_iter().filter(|(_, len)| *len > 8) {
        for before in (0..24).step_by(3) {
            for cut in 1..=len {
                let mut bits = Bits::text(&vec![b'1'; before]);
                bits.push((code >> (len - cut), cut));
                check(&bits.padded());
            }
        }
    }
}

#[test]
fn numbers_are_bounded() {
    use DecodeError::{IntegerOverflow, NoSuchIndex, TooLargeTable, Truncated};
    // RFC 7541 appendix C.1.2: 1337 with a prefix of 5 bits.
    let table = |bytes: &[u8]| Decoder::new(1_337).decode(bytes, |_, _| ControlFlow::Continue(()));
    assert_eq!(table(&[0x3f, 0x9a, 0x0a]), Ok(()));
    assert_eq!(table(&[0x3f, 0x9b, 0x0a]), Err(TooLargeTable(1_338)));
    assert_eq!(table(&[0x2a]), Ok(()));
    // The most bytes, all without a value.
    assert_eq!(table(&[0x3f, 0x80, 0x80, 0x80, 0x80, 0x00]), Ok(()));
    assert_eq!(table(&[0x3f, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00]), Err(IntegerOverflow));
    assert_eq!(table(&[0x3f, 0xe0, 0xff, 0xff, 0xff, 0x0f]), Err(TooLargeTable(u32::MAX)));
    assert_eq!(table(&[0x3f, 0xe1, 0xff, 0xff, 0xff, 0x0f]), Err(IntegerOverflow));
    assert_eq!(table(&[0x3f, 0xff, 0xff, 0xff, 0xff, 0x7f]), Err(IntegerOverflow));
    assert_eq!(table(&[0x3f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]), Err(IntegerOverflow));
    for len in 1..5 {
        assert_eq!(table(&[0x3f, 0x80, 0x80, 0x80, 0x80][..len]), Err(Truncated));
    }
    assert_eq!(once(&[0x80]), Err(NoSuchIndex(0)));
    assert_eq!(once(&[0xff, 0x80, 0xff, 0xff, 0xff, 0x0f]), Err(NoSuchIndex(u32::MAX - 0x7f + 0x7f)));
    assert_eq!(once(&[0xff, 0x81, 0xff, 0xff, 0xff, 0x0f]), Err(IntegerOverflow));
    assert_eq!(once(&[0xbe]), Err(NoSuchIndex(62)));
    for pattern in [0x00, 0x10, 0x40] {
        let block = [integer(pattern, if pattern == 0x40 { 6 } else { 4 }, 62), plain(b"1")].concat();
        assert_eq!(once(&block), Err(NoSuchIndex(62)));
    }
    // A string longer than all memory.
    assert_eq!(once(&[0x04, 0x7f, 0x80, 0xff, 0xff, 0xff, 0x0f, b'/']), Err(Truncated));
    assert_eq!(once(&[0x04, 0xff, 0x80, 0xff, 0xff, 0xff, 0x0f, b'/']), Err(Truncated));
}

#[test]
fn a_block_that_is_cut_is_an_error_or_has_fewer_fields() {
    let block = [
        vec![0x82],
        [integer(0x40, 6, 0), plain(b"name"), huffman(b"value")].concat(),
        [integer(0, 4, 60), plain(b"via")].concat(),
        [integer(0x10, 4, 23), huffman(b"secret")].concat(),
    ];
    let ends: Vec<usize> = block
        .iter()
        .scan(0, |end, field| {
            *end += field.len();
            Some(*end)
        })
        .collect();
    let whole = block.concat();
    for len in 0..=whole.len() {
        let expected = ends.iter().filter(|end| **end <= len).count();
        let result = once(&whole[..len]);
        if len == 0 || ends.contains(&len) {
            assert_eq!(result.unwrap().len(), expected);
        } else {
            assert_eq!(result, Err(DecodeError::Truncated), "{len} bytes");
        }
    }
}

#[test]
fn the_table_changes_its_size_at_the_beginning_of_a_block_alone() {
    let add = |name: &str| [vec![0x40], plain(name.as_bytes()), plain(b"1")].concat();
    let mut decoder = Decoder::new(4_096);
    let block = [add("a"), add("b"), add("c")].concat();
    assert_eq!(texts(&mut decoder, &block).unwrap(), ["a: 1", "b: 1", "c: 1"]);
    // Two updates, the smaller first: evicted entries do not come back.
    let block = [integer(0x20, 5, 70), integer(0x20, 5, 4_096), vec![0xbe]].concat();
    assert_eq!(texts(&mut decoder, &block).unwrap(), ["c: 1"]);
    assert_eq!(table(&mut decoder), (vec!["c: 1".to_owned(), "b: 1".to_owned()], 68));
    // Only an update.
    assert_eq!(texts(&mut decoder, &integer(0x20, 5, 67)).unwrap(), [""; 0]);
    assert_eq!(table(&mut decoder), (vec!["c: 1".to_owned()], 34));
    texts(&mut decoder, &[0x20]).unwrap();
    assert_eq!(table(&mut decoder), (vec![], 0));
    assert_eq!(texts(&mut decoder, &add("d")).unwrap(), ["d: 1"]);
    assert_eq!(table(&mut decoder), (vec![], 0));
    assert_eq!(texts(&mut decoder, &integer(0x20, 5, 4_097)), Err(DecodeError::TooLargeTable(4_097)));
    for field in [vec![0x82], add("a"), plain_field("a", "1")] {
        let block = [field, integer(0x20, 5, 100)].concat();
        assert_eq!(once(&block), Err(DecodeError::LateSizeUpdate));
    }
}

#[test]
fn a_larger_table_is_used_once_the_peer_says_so() {
    let add = [vec![0x40], plain(b"a"), plain(&[b'1'; 3_000])].concat();
    let mut decoder = Decoder::new(8_192);
    texts(&mut decoder, &add).unwrap();
    texts(&mut decoder, &add).unwrap();
    assert_eq!(table(&mut decoder).1, 3_033);
    texts(&mut decoder, &[integer(0x20, 5, 8_192), add].concat()).unwrap();
    assert_eq!(table(&mut decoder).1, 6_066);
}

#[test]
fn old_entries_go_when_new_ones_come() {
    let add = |name: &str, len: usize| [vec![0x40], plain(name.as_bytes()), plain(&vec![b'1'; len])].concat();
    let names = |decoder: &mut Decoder| -> Vec<String> {
        table(decoder).0.iter().map(|entry| entry.split(':').next().unwrap().to_owned()).collect()
    };
    let mut decoder = Decoder::new(150);
    // Of 40 bytes each.
    for name in ["a", "b", "c"] {
        texts(&mut decoder, &add(name, 7)).unwrap();
    }
    assert_eq!(names(&mut decoder), ["c", "b", "a"]);
    // 30 bytes are free, and 33 needed.
    texts(&mut decoder, &add("d", 0)).unwrap();
    assert_eq!(names(&mut decoder), ["d", "c", "b"]);
    texts(&mut decoder, &add("e", 4)).unwrap();
    assert_eq!(
        (names(&mut decoder), table(&mut decoder).1),
        (vec!["e".into(), "d".into(), "c".into(), "b".into()], 150)
    );
    // As large as the table: it is alone.
    texts(&mut decoder, &add("f", 117)).unwrap();
    assert_eq!((names(&mut decoder), table(&mut decoder).1), (vec!["f".to_owned()], 150));
    // Larger: the table is empty afterwards (RFC 7541 section 4.4).
    assert_eq!(decode(&mut decoder, &add("g", 118)).unwrap()[0].1, 151);
    assert_eq!(table(&mut decoder), (vec![], 0));
    // The name of an entry that is evicted by the new one.
    texts(&mut decoder, &add("h", 100)).unwrap();
    assert_eq!(texts(&mut decoder, &[integer(0x40, 6, 62), plain(&[b'2'; 60])].concat()).unwrap().len(), 1);
    assert_eq!(names(&mut decoder), ["h"]);
}

#[test]
fn a_block_that_is_no_longer_wanted_is_read_for_the_table() {
    let block = [
        vec![0x82],
        plain_field("first", "1"),
        [vec![0x40], plain(b"second"), huffman(b"2")].concat(),
        plain_field("third", "3"),
        vec![0xbe],
        [vec![0x40], plain(b"Fourth"), plain(b"4")].concat(),
    ]
    .concat();
    for wanted in 1..=6 {
        let mut decoder = Decoder::new(4_096);
        let mut given = 0;
        decoder
            .decode(&block, |_, _| {
                given += 1;
                if given == wanted { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
            .unwrap();
        assert_eq!(given, wanted);
        assert_eq!(table(&mut decoder), (vec!["!".to_owned(), "second: 2".to_owned()], 39 + 39));
        // Errors are still detected.
        for wrong in [vec![0x80], vec![0x20], vec![0x04, 0x82, 0xff, 0xff], vec![0x04, 0x02, b'/']] {
            let block = [block.clone(), wrong].concat();
            Decoder::new(4_096).decode(&block, |_, _| ControlFlow::Break(())).unwrap_err();
        }
    }
}
