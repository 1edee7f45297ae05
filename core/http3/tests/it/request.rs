//! Requests: their frames in order and out of order, and the rules of their messages.

use bytes::Bytes;
use http::{Method, Version};
use sallyport_http3::{Config, ErrorCode, Fault, HeadRefusal, Piece, RequestHead, RequestStream};

use crate::client::*;

pub(crate) const CONFIG: Config = Config { max_head_bytes: 65_536, max_head_frame_bytes: 131_072 };

/// What came of a request.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) head: Option<RequestHead>,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Option<http::HeaderMap>,
    pub(crate) has_ended: bool,
    pub(crate) fault: Option<Fault>,
}

/// Reads a request in pieces of this size; it ends with the last one.
pub(crate) fn read_pieces(bytes: &[u8], size: usize, ends: bool) -> Outcome {
    let mut stream = RequestStream::new(CONFIG);
    let mut outcome = Outcome::default();
    let mut pieces = bytes.chunks(size);
    loop {
        match stream.poll() {
            Ok(Piece::Head(head)) => outcome.head = Some(*head),
            Ok(Piece::Data(data)) => outcome.body.extend_from_slice(&data),
            Ok(Piece::Trailers(trailers)) => outcome.trailers = Some(trailers),
            Ok(Piece::End) => {
                outcome.has_ended = true;
                return outcome;
            }
            Ok(Piece::Missing) => match pieces.next() {
                Some(piece) => stream.handle_input(Bytes::copy_from_slice(piece)),
                None if ends => stream.handle_end(),
                None => return outcome,
            },
            Err(fault) => {
                assert_eq!(stream.poll().unwrap_err(), fault, "an error stays");
                outcome.fault = Some(fault);
                return outcome;
            }
        }
    }
}

/// Reads a whole request, in pieces of several sizes, with the same outcome.
fn read(bytes: &[u8]) -> Outcome {
    let outcome = read_pieces(bytes, usize::MAX, true);
    for size in [1, 3, 1_000] {
        let other = read_pieces(bytes, size, true);
        assert_eq!(format!("{other:?}"), format!("{outcome:?}"), "in pieces of {size}");
    }
    outcome
}

fn fault(frames: &[Vec<u8>]) -> Option<Fault> {
    read(&frames.concat()).fault
}

const UNEXPECTED: Option<Fault> = Some(Fault::Connection(ErrorCode::FRAME_UNEXPECTED));
const MALFORMED: Option<Fault> = Some(Fault::Stream(ErrorCode::MESSAGE_ERROR));

#[test]
fn a_request_without_a_body() {
    let outcome = read(&head("GET", &[("x-a", "1"), ("x-a", "2")]));
    let head = outcome.head.unwrap();
    assert_eq!((head.parts.method, head.parts.version), (Method::GET, Version::HTTP_3));
    assert_eq!(head.parts.uri, "https://a.example/x?y");
    assert_eq!(head.parts.headers.get_all("x-a").iter().count(), 2);
    assert_eq!((head.length, head.expects, head.protocol, head.refusal), (None, false, None, None));
    assert!(outcome.has_ended && outcome.body.is_empty() && outcome.trailers.is_none());
}

#[test]
fn a_request_with_a_body_and_trailers() {
    let outcome = read(
        &[
            frame(IGNORED, &[1; 40]),
            head("POST", &[("content-length", "300"), ("expect", "100-Continue")]),
            frame(DATA, &[5; 200]),
            frame(DATA, &[]),
            frame(IGNORED, &[]),
            frame(DATA, &[6; 100]),
            frame(HEADERS, &section(&[("x-sum", "1")])),
            frame(IGNORED, &[7; 3]),
        ]
        .concat(),
    );
    let head = outcome.head.unwrap();
    assert_eq!((head.length, head.expects), (Some(300), true));
    assert_eq!(outcome.body, [vec![5; 200], vec![6; 100]].concat());
    assert_eq!(outcome.trailers.unwrap()["x-sum"], "1");
    assert!(outcome.has_ended);
}

#[test]
fn data_is_passed_on_without_copying() {
    let bytes = Bytes::from([head("POST", &[]), frame(DATA, &[5; 2_000])].concat());
    let mut stream = RequestStream::new(CONFIG);
    stream.handle_input(bytes.clone());
    assert!(matches!(stream.poll(), Ok(Piece::Head(_))));
    let Ok(Piece::Data(data)) = stream.poll() else { panic!("the body") };
    assert_eq!(data.as_ptr(), bytes[bytes.len() - 2_000..].as_ptr());
    assert_eq!(stream.body_bytes_left(), None);
}

#[test]
fn frames_out_of_order_end_the_connection() {
    let request = || head("POST", &[]);
    let trailers = || frame(HEADERS, &section(&[]));
    assert_eq!(fault(&[frame(DATA, &[1])]), UNEXPECTED);
    assert_eq!(fault(&[request(), trailers(), frame(DATA, &[1])]), UNEXPECTED);
    assert_eq!(fault(&[request(), trailers(), trailers()]), UNEXPECTED);
    for kind in [CANCEL_PUSH, SETTINGS, PUSH_PROMISE, GOAWAY, MAX_PUSH_ID, PRIORITY_UPDATE, PRIORITY_UPDATE_PUSH] {
        assert_eq!(fault(&[frame(kind, &[0])]), UNEXPECTED, "{kind:x}");
        assert_eq!(fault(&[request(), frame(kind, &[0])]), UNEXPECTED, "{kind:x}");
    }
    for kind in [2, 6, 8, 9] {
        assert_eq!(fault(&[request(), frame(kind, &[])]), UNEXPECTED, "{kind}");
    }
}

#[test]
fn a_stream_that_ends_early_is_an_error() {
    assert_eq!(fault(&[]), Some(Fault::Stream(ErrorCode::REQUEST_INCOMPLETE)));
    assert_eq!(fault(&[frame(IGNORED, &[1])]), Some(Fault::Stream(ErrorCode::REQUEST_INCOMPLETE)));
    let whole = [head("POST", &[]), frame(DATA, &[1; 9]), frame(IGNORED, &[1; 70])];
    let bytes = whole.concat();
    let mut ends = vec![0];
    ends.extend(whole.iter().scan(0, |at, frame| {
        *at += frame.len();
        Some(*at)
    }));
    for len in 0..bytes.len() {
        if !ends.contains(&len) {
            assert_eq!(fault(&[bytes[..len].to_vec()]), Some(Fault::Connection(ErrorCode::FRAME_ERROR)), "{len}");
        }
    }
}

#[test]
fn a_body_has_its_declared_length() {
    let request = || head("POST", &[("content-length", "5")]);
    assert_eq!(fault(&[request(), frame(DATA, &[1; 5])]), None);
    for body in [&[1; 4][..], &[], &[1; 6]] {
        assert_eq!(fault(&[request(), frame(DATA, body)]), MALFORMED, "{body:?}");
    }
    assert_eq!(fault(&[request()]), MALFORMED);
    assert_eq!(fault(&[request(), frame(DATA, &[1; 5]), frame(DATA, &[1])]), MALFORMED);
    assert_eq!(fault(&[request(), frame(DATA, &[1; 3]), frame(HEADERS, &section(&[]))]), MALFORMED);
    let zero = || head("POST", &[("content-length", "0")]);
    assert_eq!(fault(&[zero()]), None);
    assert_eq!(fault(&[zero(), frame(DATA, &[1])]), MALFORMED);
}

#[test]
fn malformed_heads_end_the_stream_alone() {
    let fields = |fields: &[(&str, &str)]| fault(&[frame(HEADERS, &section(fields))]);
    let get = [(":method", "GET"), (":scheme", "https"), (":authority", "a"), (":path", "/")];
    assert_eq!(fields(&get), None);
    for n in [0, 1, 3] {
        let mut without = get.to_vec();
        without.remove(n);
        assert_eq!(fields(&without), MALFORMED, "without {}", get[n].0);
    }
    for more in [
        (":path", "/"),
        (":status", "200"),
        (":protocol", "websocket"),
        ("connection", "close"),
        ("transfer-encoding", "chunked"),
        ("Upper", "1"),
        ("te", "gzip"),
        ("content-length", "1, 1"),
        ("x-a", "a\nb"),
    ] {
        assert_eq!(fields(&[&get[..], &[more]].concat()), MALFORMED, "{more:?}");
    }
    assert_eq!(fields(&[&[("x-a", "1")], &get[..]].concat()), MALFORMED, "a field before a pseudo-header field");
    let trailers = frame(HEADERS, &section(&[(":path", "/")]));
    assert_eq!(fault(&[head("POST", &[]), trailers]), MALFORMED);
}

#[test]
fn compression_errors_end_the_connection() {
    let failed = Some(Fault::Connection(ErrorCode::QPACK_DECOMPRESSION_FAILED));
    for section in [&[][..], &[0], &[0, 0, 0x80], &[1, 0], &[0, 0, 0xd1, 0x51, 0x05]] {
        assert_eq!(fault(&[frame(HEADERS, section)]), failed, "{section:x?}");
    }
    assert_eq!(fault(&[head("POST", &[]), frame(HEADERS, &[0, 0, 0x80])]), failed);
}

#[test]
fn connect_has_an_authority_alone_and_extended_connect_has_all() {
    let request = |fields: &[(&str, &str)]| read(&frame(HEADERS, &section(fields)));
    let outcome = request(&[(":method", "CONNECT"), (":authority", "a:443")]);
    assert_eq!(outcome.head.unwrap().parts.uri, "a:443");
    let extended = [
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "https"),
        (":authority", "a"),
        (":path", "/chat"),
    ];
    let head = request(&extended).head.unwrap();
    assert_eq!(head.protocol.as_deref(), Some(&b"websocket"[..]));
    assert_eq!(head.parts.uri, "https://a/chat");
    for n in [2, 3, 4] {
        let mut without = extended.to_vec();
        without.remove(n);
        assert_eq!(request(&without).fault, MALFORMED, "without {}", extended[n].0);
    }
    let mut without = extended.to_vec();
    without.remove(1);
    assert_eq!(request(&without).fault, MALFORMED, "CONNECT without a protocol has no path");
    // The bytes behind the head have no trailers.
    let (head, bytes) = (frame(HEADERS, &section(&extended)), frame(DATA, b"bytes"));
    let outcome = read(&[&head[..], &bytes, &bytes].concat());
    assert_eq!((&outcome.body[..], outcome.has_ended), (&b"bytesbytes"[..], true));
    assert_eq!(fault(&[head, bytes, frame(HEADERS, &section(&[("x-a", "1")]))]), UNEXPECTED);
}

#[test]
fn a_head_that_is_too_long_is_answered() {
    // Too long as a list, and too long as a frame.
    for (count, length) in [(1_200, 20), (1, 70_000)] {
        let long = "v".repeat(length);
        let outcome = read(&[head("HEAD", &vec![("x-long", &*long); count]), frame(DATA, &[1])].concat());
        let head = outcome.head.unwrap();
        assert_eq!((head.parts.method, head.refusal), (Method::HEAD, Some(HeadRefusal::TooLong)));
        assert_eq!((outcome.fault, outcome.has_ended, outcome.body.len()), (None, true, 1));
    }
    // The answer does not wait for the rest.
    let long = head("GET", &[("x-long", &"v".repeat(70_000))]);
    let outcome = read_pieces(&long[..2_000], 500, false);
    assert_eq!(outcome.head.unwrap().refusal, Some(HeadRefusal::TooLong));
    // A frame beyond the bound is not.
    let endless = [integer(HEADERS), integer(131_073)].concat();
    assert_eq!(read_pieces(&endless, 9, false).fault, Some(Fault::Stream(ErrorCode::EXCESSIVE_LOAD)));
}

#[test]
fn trailers_are_bounded() {
    let trailers = |length: usize| frame(HEADERS, &section(&[("x-a", &"v".repeat(length))]));
    assert_eq!(fault(&[head("POST", &[]), trailers(8_100)]), None);
    assert_eq!(fault(&[head("POST", &[]), trailers(8_170)]), MALFORMED);
    assert_eq!(fault(&[head("POST", &[]), trailers(9_000)]), Some(Fault::Stream(ErrorCode::EXCESSIVE_LOAD)));
}

#[test]
fn frames_that_change_nothing_are_bounded_and_counted() {
    let load = Some(Fault::Connection(ErrorCode::EXCESSIVE_LOAD));
    let request = || head("POST", &[]);
    for empty in [frame(IGNORED, &[]), frame(DATA, &[])] {
        assert_eq!(fault(&[request(), empty.repeat(4_000)]), None);
        assert_eq!(fault(&[request(), empty.repeat(4_200)]), load);
    }
    let endless = [integer(IGNORED), integer(1 << 30)].concat();
    assert_eq!(read_pieces(&[request(), endless].concat(), 9, false).fault, load);

    let mut stream = RequestStream::new(CONFIG);
    stream.handle_input(Bytes::from([request(), frame(IGNORED, &[1; 100]), frame(IGNORED, &[])].concat()));
    while !matches!(stream.poll(), Ok(Piece::Missing)) {}
    assert_eq!((stream.skipped(), stream.skipped()), (16 + 100 + 16, 0));
}

#[test]
fn a_path_with_invalid_characters_is_answered() {
    let target = [(":method", "GET"), (":scheme", "https"), (":authority", "a"), (":path", "/a#b")];
    let head = read(&frame(HEADERS, &section(&target))).head.unwrap();
    assert_eq!((head.refusal, head.parts.uri.path()), (Some(HeadRefusal::Target), "/"));
}
