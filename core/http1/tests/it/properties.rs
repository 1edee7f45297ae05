//! Properties of the server for random input.

use proptest::{collection::vec, prelude::*, sample::select};
use sallyport_http::RequestRefusal;
use sallyport_http1::server::{Config, Server};

use crate::{drive::Driven, reference};

/// Limits that random input reaches.
const LIMITS: Config = Config { max_head_bytes: 400, max_target_bytes: 16_384, max_header_count: 100 };

/// Feeds pieces to a server. Returns how many bytes are accepted, why the rest is refused, and the log. Checks the
/// bound on unread bytes.
fn feed<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (usize, Option<RequestRefusal>, Vec<String>) {
    let mut driven = Driven::new(LIMITS);
    for piece in pieces {
        driven.feed(piece);
        if driven.refusal.is_some() {
            break;
        }
        let held = driven.server.unread_bytes();
        assert!(held <= LIMITS.max_head_bytes, "{held} bytes are held");
    }
    (driven.accepted_bytes(), driven.refusal, driven.log)
}

/// Valid and invalid fragments of requests.
fn fragment() -> impl Strategy<Value = Vec<u8>> {
    let words = vec![
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST /x HTTP/1.1\r\nHost: a.b:80\r\nContent-Length: 5\r\n\r\n",
        "OPTIONS * HTTP/1.0\r\n",
        "GET http://a/ HTTP/1.1\r\n",
        "GET https://A:443/b?c HTTP/1.1\r\n",
        "GET / HTTP/1.1\r\n",
        "POST / HTTP/1.0\r\n",
        "Host: a\r\n",
        "Host: A.:80\r\n",
        "Host: b\r\n",
        "host:a:443 \r\n",
        "Content-Length: 3\r\n",
        "Content-Length: 0\r\n",
        "Content-Length: 0000000000000000003\r\n",
        "Content-Length: 99999999999999999999\r\n",
        "content-length:\t1\t\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "X: y\r\n",
        "X-Long: 0123456789012345678901234567890123456789012345678901234567890123456789\r\n",
        " folded\r\n",
        "X : y\r\n",
        "nothing\r\n",
        "\r\n",
        "\r",
        "\n",
        "\0",
        " ",
        "\t",
        ":",
        ";",
        "abc",
        "0\r\n\r\n",
        "0\r\n",
        "3\r\nabc\r\n",
        "5\r\n",
        "hello\r\n",
        "a\r\n0123456789\r\n",
        "1;a=b\r\nx\r\n",
        "1 ;a=\"b\"\r\nx\r\n",
        "0x1\r\n",
        "fffffffffffffffff",
        "X-Trailer: 1\r\n",
        "Host",
        "GET",
        "CONNECT a:1 HTTP/1.1\r\n",
    ];
    let good = vec![
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;x\r\na\r\n\
         B\r\n01234567890\r\n0\r\nX: y\r\n\r\n",
    ];
    prop_oneof![
        6 => select(words).prop_map(|text| text.as_bytes().to_vec()),
        3 => select(good).prop_map(|text| text.as_bytes().to_vec()),
        1 => vec(any::<u8>(), 1..4),
    ]
}

/// Bytes, shown as text when a test fails.
#[derive(Clone)]
struct Stream(Vec<u8>);

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

/// A stream of fragments, with some bytes changed.
fn stream() -> impl Strategy<Value = Stream> {
    (vec(fragment(), 1..16), vec((any::<prop::sample::Index>(), any::<u8>()), 0..2)).prop_map(|(fragments, changes)| {
        let mut bytes = fragments.concat();
        for (index, byte) in changes {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        Stream(bytes)
    })
}

/// Cuts the bytes at the given places.
fn cut<'a>(bytes: &'a [u8], places: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut places: Vec<usize> = places.iter().map(|place| place.index(bytes.len() + 1)).collect();
    places.sort_unstable();
    let mut pieces = Vec::new();
    let mut start = 0;
    for place in places {
        pieces.push(&bytes[start..place]);
        start = place;
    }
    pieces.push(&bytes[start..]);
    pieces
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_accepted_bytes_alone_give_the_same_log(Stream(bytes) in stream()) {
        let mut whole = Driven::new(LIMITS);
        whole.feed(&bytes);
        let mut alone = Driven::new(LIMITS);
        alone.feed(&bytes[..whole.accepted_bytes()]);
        prop_assert_eq!((alone.verdict(), alone.log), ((whole.accepted_bytes(), None), whole.log));
    }

    #[test]
    fn the_verdict_does_not_depend_on_the_pieces(
        Stream(bytes) in stream(),
        places in vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let whole = feed([&bytes[..]]);
        prop_assert_eq!(&feed(cut(&bytes, &places)), &whole);
        prop_assert_eq!(&feed(bytes.chunks(1)), &whole);
    }

    #[test]
    fn the_reference_parser_agrees(Stream(bytes) in stream()) {
        let (taken, refusal, _) = feed([&bytes[..]]);
        let expected = reference::parse_stream(&bytes, LIMITS.max_head_bytes);
        prop_assert_eq!((taken, refusal.is_some()), (expected.passed, expected.refused), "{:?}", refusal);
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in vec(any::<u8>(), 0..600)) {
        let mut driven = Driven::new(LIMITS);
        driven.feed(&bytes);
        driven.feed(&bytes[..bytes.len() / 2]);
        prop_assert!(driven.accepted_bytes() <= bytes.len() + bytes.len() / 2);
    }
}

#[test]
fn a_head_in_pieces_is_parsed_once() {
    let head = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(60_000));
    let mut server = Server::new(Config::default());
    let (host, last) = (head.find("a\r\n").unwrap(), head.len() - 1);
    server.handle_input(&head.as_bytes()[..last]);
    assert!(!server.advance());
    // A server that parses the head again would refuse this byte.
    server.input_mut()[host] = b'@';
    server.handle_input(&head.as_bytes()[last..]);
    assert_eq!(server.poll_request().unwrap().unwrap().head.headers["host"], "@");
}
