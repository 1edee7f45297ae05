//! Tests of one connection, frame by frame.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use sallyport_http2::{Config, ErrorCode, HeadRefusal, NewRequest, Piece, Room, Server};

use crate::client::*;

pub(crate) fn respond(tested: &mut Tested, stream: u32, body: &'static [u8]) {
    tested.server.send_head(stream, StatusCode::OK, &HeaderMap::new(), body.is_empty());
    if !body.is_empty() {
        assert_eq!(tested.server.room(stream), Room::Bytes(16_384));
        tested.server.send_data(stream, Bytes::from_static(body), true);
    }
    tested.server.release_response(stream);
}

#[test]
fn a_request_comes_and_is_answered() {
    let mut tested = Tested::new();
    tested.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &get_with(&[("x-a", "1"), ("x-a", "2")])));
    let request = tested.request();
    assert_eq!((request.stream, request.has_body, tested.server.body_bytes_left(1)), (1, false, None));
    assert_eq!((&request.head.method, request.head.uri.to_string()), (&Method::GET, "https://a.example/".to_owned()));
    assert_eq!(request.head.headers.get_all("x-a").iter().count(), 2);
    let mut fields = HeaderMap::new();
    fields.insert("content-length", HeaderValue::from_static("2"));
    tested.server.send_head(1, StatusCode::OK, &fields, false);
    assert_eq!(tested.server.room(1), Room::Bytes(16_384));
    tested.server.send_data(1, Bytes::from_static(b"ok"), true);
    assert!(!tested.server.is_idle());
    tested.server.release_response(1);
    assert!(tested.server.is_idle() && !tested.server.is_over());
    let frames = tested.frames();
    let shapes: Vec<_> = frames.iter().map(|frame| (frame.kind, frame.flags, frame.stream)).collect();
    assert_eq!(shapes, [(HEADERS, END_HEADERS, 1), (DATA, END_STREAM, 1)]);
    assert_eq!(frames[0].payload, [0x88, 0x0f, 0x0d, 1, b'2']);
    assert_eq!(frames[1].payload, b"ok");
}

#[test]
fn a_connection_that_rests_goes_on_as_it_was() {
    let mut tested = Tested::new();
    for stream in [1, 3] {
        tested.get(stream);
        assert_eq!(tested.request().stream, stream);
        respond(&mut tested, stream, b"ok");
        tested.frames();
        tested.server.rest();
    }
    tested.post(5, &[]);
    tested.request();
    // Its body is not read, and it is not answered: later frames were sent before the client could know.
    tested.server.release_body(5);
    tested.server.release_response(5);
    tested.resets(5, ErrorCode::CANCEL);
    tested.server.rest();
    tested.send(&frame(DATA, END_STREAM, 5, b"on its way"));
    assert_eq!((tested.server.failure(), tested.frames().len()), (None, 0));
    tested.server.forget_ended();
    tested.send(&frame(DATA, END_STREAM, 5, b"much later"));
    tested.resets(5, ErrorCode::STREAM_CLOSED);
    tested.get(7);
    assert_eq!(tested.request().stream, 7);
}

#[test]
fn a_body_is_read_and_its_window_is_granted_again() {
    let mut tested = Tested::new();
    tested.post(1, &[("content-length", "30000")]);
    let request = tested.request();
    assert_eq!((request.has_body, tested.server.body_bytes_left(1)), (true, Some(30_000)));
    assert!(matches!(tested.server.poll_body(1), Piece::Missing));
    let calls = tested.server.reader(1).unwrap().clone();
    tested.send(&frame(DATA, 0, 1, &[7; 15_000]));
    assert_eq!(calls.take(), 1);
    tested.send(&frame(DATA, END_STREAM, 1, &[8; 15_000]));
    assert_eq!(tested.server.received(), 30_000);
    assert_eq!(tested.server.body_bytes_left(1), Some(30_000));
    let mut taken = Vec::new();
    while let Piece::Data(piece) = tested.server.poll_body(1) {
        taken.extend_from_slice(&piece);
    }
    assert_eq!(taken, [[7; 15_000], [8; 15_000]].concat());
    assert!(tested.server.is_body_over(1) && matches!(tested.server.poll_body(1), Piece::End));
    // The stream is over, so its window does not matter; that of the connection is not half used.
    assert_eq!(tested.frames(), []);
    tested.post(3, &[]);
    tested.request();
    tested.send(&frame(DATA, 0, 3, &[7; 15_000]));
    tested.send(&frame(DATA, 0, 3, &[7; 15_000]));
    assert!(
        matches!(tested.server.poll_body(3), Piece::Data(_)) && matches!(tested.server.poll_body(3), Piece::Data(_))
    );
    let update =
        |stream, more: u32| Frame { kind: WINDOW_UPDATE, flags: 0, stream, payload: more.to_be_bytes().to_vec() };
    assert_eq!(tested.frames(), [update(3, 15_000), update(0, 45_000), update(3, 15_000)]);
}

#[test]
fn what_one_stream_holds_does_not_keep_others_from_sending() {
    let mut tested = Tested::new();
    for stream in [1, 3, 5] {
        tested.post(stream, &[]);
        tested.request();
    }
    for stream in [1, 1, 3, 3] {
        tested.send(&frame(DATA, 0, stream, &[0; 16_000]));
    }
    // Those are not read. The third stream uses the rest of the connection's window for ever.
    let (mut may, mut sent) = (36_000, 0);
    while sent < 1_000_000 {
        assert!(may >= 1_000, "after {sent} bytes");
        tested.send(&frame(DATA, 0, 5, &[0; 1_000]));
        (may, sent) = (may - 1_000, sent + 1_000);
        assert!(matches!(tested.server.poll_body(5), Piece::Data(_)));
        for frame in tested.frames() {
            assert_eq!(frame.kind, WINDOW_UPDATE);
            if frame.stream == 0 {
                may += u32::from_be_bytes(frame.payload.try_into().unwrap());
            }
        }
    }
}

#[test]
fn small_pieces_of_a_body_are_gathered() {
    let mut tested = Tested::new();
    tested.post(1, &[]);
    tested.request();
    for number in 0..5_000_u32 {
        tested.send(&frame(DATA, 0, 1, &[u8::try_from(number % 251).unwrap()]));
    }
    let (mut pieces, mut taken) = (0, Vec::new());
    while let Piece::Data(piece) = tested.server.poll_body(1) {
        pieces += 1;
        taken.extend_from_slice(&piece);
    }
    let expected: Vec<_> = (0..5_000_u32).map(|number| u8::try_from(number % 251).unwrap()).collect();
    assert!(taken == expected && pieces <= 5, "{pieces} pieces of {} bytes", taken.len());
}

#[test]
fn a_client_that_sends_more_than_its_window_is_stopped() {
    let mut tested = Tested::new();
    for stream in [1, 3, 5] {
        tested.post(stream, &[]);
        tested.request();
    }
    for _ in 0..2 {
        tested.send(&frame(DATA, 0, 1, &[0; 16_000]));
    }
    tested.send(&frame(DATA, 0, 1, &[0; 8_001]));
    tested.resets(1, ErrorCode::FLOW_CONTROL_ERROR);
    assert!(matches!(tested.server.poll_body(1), Piece::Failed(ErrorCode::FLOW_CONTROL_ERROR)));
    for (stream, size) in [(3, 16_000), (5, 16_000), (3, 16_000), (5, 11_999)] {
        tested.send(&frame(DATA, 0, stream, &vec![0; size]));
    }
    assert_eq!(tested.server.failure(), None);
    // The first stream's data was dropped, but the window was not granted again yet.
    tested.send(&frame(DATA, 0, 3, &[0]));
    tested.fails(ErrorCode::FLOW_CONTROL_ERROR);
}

#[test]
fn answers_go_as_far_as_the_windows_and_take_turns() {
    let mut tested = Tested::new();
    for stream in [1, 3] {
        tested.get(stream);
        tested.request();
        tested.server.send_head(stream, StatusCode::OK, &HeaderMap::new(), false);
    }
    let mut sent = [0, 0];
    let mut asked = 0;
    // 65,535 bytes are the connection's window, and 50,000 bytes may be unwritten.
    while let Room::Bytes(bytes) = tested.server.room([1, 3][asked % 2]) {
        tested.server.send_data([1, 3][asked % 2], Bytes::from(vec![1; bytes]), false);
        sent[asked % 2] += bytes;
        asked += 1;
    }
    assert!((49_900..=50_000).contains(&(sent[0] + sent[1])), "{sent:?}");
    let waits = [1, 3][asked % 2];
    let (first, second) =
        (tested.server.writer(waits).unwrap().clone(), tested.server.writer(4 - waits).unwrap().clone());
    assert_eq!(tested.server.room(4 - waits), Room::Later);
    assert_eq!((first.take(), second.take()), (0, 0));
    tested.frames();
    assert!(first.take() > 0, "its turn");
    assert_eq!(second.take(), 0, "not yet");
    assert_eq!(tested.server.room(4 - waits), Room::Later, "the other was first");
    let Room::Bytes(rest) = tested.server.room(waits) else { panic!("its turn") };
    tested.server.send_data(waits, Bytes::from(vec![1; rest]), false);
    assert_eq!(sent[0] + sent[1] + rest, 65_535);
    assert_eq!(tested.server.room(waits), Room::Later);
    tested.frames();
    tested.send(&frame(WINDOW_UPDATE, 0, 0, &10_u32.to_be_bytes()));
    assert!(second.take() > 0);
    assert_eq!(tested.server.room(waits), Room::Later, "behind the other");
    assert_eq!(first.take(), 0);
    // A stream that ends passes its turn on.
    tested.server.release_response(4 - waits);
    assert!(first.take() > 0);
    assert_eq!(tested.server.room(waits), Room::Bytes(10));
}

#[test]
fn a_stream_without_window_holds_up_no_other() {
    let mut tested = Tested::new();
    tested.send(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 100]));
    for stream in [1, 3] {
        tested.get(stream);
        tested.request();
        tested.server.send_head(stream, StatusCode::OK, &HeaderMap::new(), false);
        assert_eq!(tested.server.room(stream), Room::Bytes(100));
    }
    tested.server.send_data(1, Bytes::from_static(&[1; 100]), false);
    assert_eq!(tested.server.room(1), Room::Later);
    assert_eq!(tested.server.room(3), Room::Bytes(100));
    let calls = tested.server.writer(1).unwrap().clone();
    // A negative window is still closed.
    tested.send(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 50]));
    tested.send(&frame(WINDOW_UPDATE, 0, 1, &50_u32.to_be_bytes()));
    assert_eq!(tested.server.room(1), Room::Later);
    assert_eq!(tested.server.room(3), Room::Bytes(50));
    calls.take();
    tested.send(&frame(WINDOW_UPDATE, 0, 1, &5_u32.to_be_bytes()));
    assert_eq!((calls.take(), tested.server.room(1)), (1, Room::Bytes(5)));
    tested.frames();
    tested.send(&frame(WINDOW_UPDATE, 0, 1, &0x7fff_ffff_u32.to_be_bytes()));
    tested.resets(1, ErrorCode::FLOW_CONTROL_ERROR);
    tested.send(&frame(WINDOW_UPDATE, 0, 0, &0x7fff_ffff_u32.to_be_bytes()));
    tested.fails(ErrorCode::FLOW_CONTROL_ERROR);
}

#[test]
fn a_long_head_goes_on_in_more_frames() {
    let mut tested = Tested::new();
    tested.get(1);
    tested.request();
    let mut fields = HeaderMap::new();
    for number in 0..4 {
        let value = HeaderValue::from_bytes(&[b'a' + number; 10_000]).unwrap();
        fields.append("set-cookie", value);
    }
    tested.server.send_head(1, StatusCode::OK, &fields, true);
    let frames = tested.frames();
    let shapes: Vec<_> = frames.iter().map(|frame| (frame.kind, frame.flags, frame.payload.len())).collect();
    let rest = frames.iter().map(|frame| frame.payload.len()).sum::<usize>() - 2 * 16_384;
    assert_eq!(shapes, [(HEADERS, END_STREAM, 16_384), (CONTINUATION, 0, 16_384), (CONTINUATION, END_HEADERS, rest)]);
    // Heads in several frames, in pieces of one byte.
    let head = get_with(&[("x-long", &"a".repeat(300))]);
    let mut bytes = frame(HEADERS, END_STREAM, 3, &head[..1]);
    for (at, byte) in head.iter().enumerate().skip(1) {
        let flags = if at + 1 == head.len() { END_HEADERS } else { 0 };
        bytes.extend(frame(CONTINUATION, flags, 3, &[*byte]));
    }
    tested.send(&bytes);
    assert_eq!(tested.request().head.headers["x-long"].len(), 300);
}

#[test]
fn a_head_without_end_ends_the_connection() {
    let mut tested = Tested::new();
    tested.send(&frame(HEADERS, 0, 1, &get_with(&[])));
    for _ in 0..2_000 {
        tested.send(&frame(CONTINUATION, 0, 1, &[]));
    }
    tested.fails(ErrorCode::ENHANCE_YOUR_CALM);
    let mut tested = Tested::new();
    tested.send(&frame(HEADERS, 0, 1, &get_with(&[])));
    for _ in 0..20 {
        tested.send(&frame(CONTINUATION, 0, 1, &[0; 16_384]));
    }
    tested.fails(ErrorCode::ENHANCE_YOUR_CALM);
}

#[test]
fn a_list_that_is_too_long_is_to_be_refused() {
    let mut tested = Tested::new();
    let long = [("x-long", &*"a".repeat(2_500)), ("connection", "close")];
    tested.send(&frame(HEADERS, END_HEADERS, 1, &post_with(&long)));
    let NewRequest { stream, head, has_body, refusal, .. } = tested.request();
    assert_eq!((stream, has_body, refusal), (1, true, Some(HeadRefusal::TooLong)));
    assert_eq!((head.method, head.uri.path(), head.headers.len()), (Method::POST, "/", 0));
    tested.server.send_head(1, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, &HeaderMap::new(), true);
    tested.server.release_response(1);
    tested.server.release_body(1);
    let shapes: Vec<_> = tested.frames().iter().map(|frame| (frame.kind, frame.flags, frame.stream)).collect();
    assert_eq!(shapes, [(HEADERS, END_HEADERS | END_STREAM, 1), (RST_STREAM, 0, 1)]);
    tested.send(&frame(DATA, END_STREAM, 1, b"what was on its way"));
    tested.get(3);
    let request = tested.request();
    assert_eq!((request.stream, request.refusal), (3, None));
    assert_eq!((tested.frames(), tested.server.faults()), (vec![], vec![]));
    // The method is unknown if it is too long itself.
    tested.send(&frame(HEADERS, END_HEADERS | END_STREAM, 5, &block(&[(":path", long[0].1), (":method", "PUT")])));
    let NewRequest { head, has_body, refusal, .. } = tested.request();
    assert_eq!((head.method, has_body, refusal), (Method::GET, false, Some(HeadRefusal::TooLong)));
}

#[test]
fn a_path_that_is_no_target_is_to_be_refused() {
    let mut tested = Tested::new();
    let paths = ["/a#b", "/?a#b", "/\u{e9}", "/?\u{20ac}", "/<b>", "/?a=<b>", "/?a=\"b\"", "/`b`"];
    for (number, path) in (0..).zip(paths) {
        let stream = 1 + 2 * number;
        let head = block(&[(":method", "GET"), (":scheme", "https"), (":authority", "a.example"), (":path", path)]);
        tested.send(&frame(HEADERS, END_HEADERS | END_STREAM, stream, &head));
        let NewRequest { head, refusal, .. } = tested.request();
        assert_eq!((head.uri.path(), head.uri.query(), refusal), ("/", None, Some(HeadRefusal::Target)), "{path:?}");
        assert_eq!(head.uri.host(), Some("a.example"));
        tested.server.release_response(stream);
    }
    tested.get(101);
    assert_eq!(tested.request().refusal, None);
}

#[test]
fn malformed_requests_end_their_stream_alone() {
    let method = (":method", "GET");
    let scheme = (":scheme", "https");
    let authority = (":authority", "a.example");
    let path = (":path", "/");
    let bad: [&[(&str, &str)]; 21] = [
        &[scheme, authority, path],
        &[method, authority, path],
        &[method, scheme, authority],
        &[method, method, scheme, authority, path],
        &[method, scheme, authority, path, path],
        &[method, scheme, authority, (":path", "")],
        &[method, scheme, authority, (":path", "here")],
        &[method, scheme, authority, (":path", "*")],
        &[method, scheme, authority, (":path", "/a b")],
        &[method, scheme, (":authority", "a b"), path],
        &[method, scheme, authority, ("x-a", "1"), path],
        &[method, scheme, authority, path, (":status", "200")],
        &[method, scheme, authority, path, (":unknown", "1")],
        &[method, scheme, authority, path, ("X-Upper", "1")],
        &[method, scheme, authority, path, ("connection", "close")],
        &[method, scheme, authority, path, ("transfer-encoding", "chunked")],
        &[method, scheme, authority, path, ("te", "gzip")],
        &[method, scheme, authority, path, ("content-length", "5")],
        &[method, scheme, authority, path, ("content-length", "+0")],
        &[method, scheme, authority, path, ("content-length", "0"), ("content-length", "1")],
        &[(":method", "CONNECT"), scheme, authority, path],
    ];
    let mut tested = Tested::new();
    for (number, fields) in bad.iter().enumerate() {
        let stream = u32::try_from(2 * number + 1).unwrap();
        tested.send(&frame(HEADERS, END_HEADERS | END_STREAM, stream, &block(fields)));
        assert!(tested.server.poll_request().is_none(), "{fields:?}");
        tested.resets(stream, ErrorCode::PROTOCOL_ERROR);
    }
    let good: [(&[(&str, &str)], &str); 4] = [
        (&[method, scheme, authority, path], "https://a.example/"),
        (&[method, scheme, path, ("host", "a.example"), ("te", "trailers")], "/"),
        (&[(":method", "OPTIONS"), scheme, authority, (":path", "*")], "https://a.example*"),
        (&[(":method", "CONNECT"), authority], "a.example"),
    ];
    for (number, (fields, uri)) in good.iter().enumerate() {
        let stream = u32::try_from(2 * number + 101).unwrap();
        tested.send(&frame(HEADERS, END_HEADERS | END_STREAM, stream, &block(fields)));
        let head = tested.request().head;
        assert!(
            head.uri.path_and_query().map(|path| path.as_str().to_owned())
                == fields.iter().find(|field| field.0 == ":path").map(|field| field.1.to_owned()),
            "{uri}"
        );
    }
}

#[test]
fn a_body_has_the_length_that_its_head_says() {
    let mut tested = Tested::new();
    tested.post(1, &[("content-length", "5")]);
    tested.send(&frame(DATA, 0, 1, b"123456"));
    tested.resets(1, ErrorCode::PROTOCOL_ERROR);
    tested.post(3, &[("content-length", "5")]);
    tested.send(&frame(DATA, END_STREAM, 3, b"1234"));
    tested.resets(3, ErrorCode::PROTOCOL_ERROR);
    tested.post(5, &[("content-length", "5")]);
    tested.send(&frame(DATA, 0, 5, b"1234"));
    tested.send(&frame(HEADERS, END_HEADERS | END_STREAM, 5, &block(&[("x-sum", "1")])));
    tested.resets(5, ErrorCode::PROTOCOL_ERROR);
    assert!(tested.server.poll_request().is_none(), "those that have broken off are not served");
}

#[test]
fn trailers_follow_a_body() {
    let mut tested = Tested::new();
    tested.post(1, &[]);
    tested.request();
    tested.send(&frame(DATA, 0, 1, b"body"));
    tested.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(&[("x-sum", "1")])));
    assert!(matches!(tested.server.poll_body(1), Piece::Data(data) if data == "body"));
    assert!(!tested.server.is_body_over(1));
    assert!(matches!(tested.server.poll_body(1), Piece::Trailers(fields) if fields["x-sum"] == "1"));
    assert!(matches!(tested.server.poll_body(1), Piece::End));
    for (stream, flags, fields) in [
        (3, END_HEADERS, ("x-sum", "1")),
        (5, END_HEADERS | END_STREAM, (":path", "/")),
        (7, END_HEADERS | END_STREAM, ("X-Sum", "1")),
    ] {
        tested.post(stream, &[]);
        tested.send(&frame(HEADERS, flags, stream, &block(&[fields])));
        tested.resets(stream, ErrorCode::PROTOCOL_ERROR);
    }
    let mut fields = HeaderMap::new();
    fields.insert("grpc-status", HeaderValue::from_static("0"));
    tested.server.send_head(1, StatusCode::OK, &HeaderMap::new(), false);
    tested.server.send_trailers(1, &fields);
    let frames = tested.frames();
    assert_eq!((frames[1].kind, frames[1].flags), (HEADERS, END_HEADERS | END_STREAM));
}

#[test]
fn a_client_that_expects_continue_gets_it() {
    let mut tested = Tested::new();
    tested.post(1, &[("expect", "100-continue")]);
    tested.request();
    assert_eq!(tested.frames(), []);
    for _ in 0..2 {
        assert!(matches!(tested.server.poll_body(1), Piece::Missing));
    }
    let frames = tested.frames();
    assert_eq!(frames.len(), 1, "once");
    assert_eq!((frames[0].kind, frames[0].flags, &frames[0].payload[2..]), (HEADERS, END_HEADERS, &b"100"[..]));
}

#[test]
fn a_client_with_its_answer_gets_no_continue() {
    let mut tested = Tested::new();
    tested.post(1, &[("expect", "100-continue")]);
    tested.request();
    tested.server.send_head(1, StatusCode::FORBIDDEN, &HeaderMap::new(), false);
    assert!(matches!(tested.server.poll_body(1), Piece::Missing));
    assert_eq!(tested.frames().len(), 1);
    tested.post(3, &[("expect", "100-continue")]);
    tested.request();
    tested.send(&frame(DATA, 0, 3, b"it does not wait"));
    assert!(
        matches!(tested.server.poll_body(3), Piece::Data(_)) && matches!(tested.server.poll_body(3), Piece::Missing)
    );
    assert_eq!(tested.frames(), []);
}

#[test]
fn trailers_are_short() {
    let mut tested = Tested::silent();
    tested.server = Server::new(Config { max_header_list_bytes: 65_536, ..CONFIG });
    tested.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    tested.send(&frame(SETTINGS, 0, 0, &[]));
    tested.frames();
    // A field in the table, and a byte for each repetition.
    let many = |times: usize| [&[0x40, 1, b'a', 0][..], &vec![0xbe; times]].concat();
    for (stream, times, is_taken) in [(1, 200, true), (3, 300, false)] {
        tested.post(stream, &[]);
        tested.request();
        tested.send(&frame(HEADERS, END_HEADERS | END_STREAM, stream, &many(times)));
        assert_eq!(matches!(tested.server.poll_body(stream), Piece::Trailers(_)), is_taken);
    }
    tested.resets(3, ErrorCode::PROTOCOL_ERROR);
}

#[test]
fn padding_counts_and_is_dropped() {
    let mut tested = Tested::new();
    tested.post(1, &[]);
    tested.request();
    tested.send(&frame(DATA, PADDED, 1, b"\x03data\0\0\0"));
    tested.send(&frame(DATA, PADDED | END_STREAM, 1, b"\x02\0\0"));
    assert!(matches!(tested.server.poll_body(1), Piece::Data(data) if data == "data"));
    assert!(matches!(tested.server.poll_body(1), Piece::End));
    let mut head = vec![5];
    head.extend(get_with(&[]));
    head.extend([0; 5]);
    tested.send(&frame(HEADERS, PADDED | END_HEADERS | END_STREAM, 3, &head));
    assert_eq!(tested.request().stream, 3);
    for bytes in [frame(DATA, PADDED, 1, b"\x05data"), frame(HEADERS, PADDED | END_HEADERS, 3, &[200, 0])] {
        let mut tested = Tested::new();
        tested.post(1, &[]);
        tested.send(&bytes);
        tested.fails(ErrorCode::PROTOCOL_ERROR);
    }
}

#[test]
fn frames_out_of_place_end_the_connection() {
    let cases: [(Vec<u8>, ErrorCode); 24] = [
        (frame(DATA, 0, 0, b"x"), ErrorCode::PROTOCOL_ERROR),
        (frame(DATA, 0, 3, b"x"), ErrorCode::PROTOCOL_ERROR),
        (frame(DATA, PADDED, 1, b""), ErrorCode::FRAME_SIZE_ERROR),
        (frame(HEADERS, END_HEADERS, 0, &get_with(&[])), ErrorCode::PROTOCOL_ERROR),
        (frame(HEADERS, END_HEADERS, 2, &get_with(&[])), ErrorCode::PROTOCOL_ERROR),
        (frame(HEADERS, END_HEADERS, 3, &[0xff]), ErrorCode::COMPRESSION_ERROR),
        (frame(CONTINUATION, END_HEADERS, 1, &[]), ErrorCode::PROTOCOL_ERROR),
        ([frame(HEADERS, 0, 3, &[]), frame(PING, 0, 0, &[0; 8])].concat(), ErrorCode::PROTOCOL_ERROR),
        ([frame(HEADERS, 0, 3, &[]), frame(CONTINUATION, 0, 5, &[])].concat(), ErrorCode::PROTOCOL_ERROR),
        (frame(PRIORITY, 0, 0, &[0; 5]), ErrorCode::PROTOCOL_ERROR),
        (frame(RST_STREAM, 0, 3, &[0; 4]), ErrorCode::PROTOCOL_ERROR),
        (frame(RST_STREAM, 0, 1, &[0; 3]), ErrorCode::FRAME_SIZE_ERROR),
        (frame(SETTINGS, 0, 1, &[]), ErrorCode::PROTOCOL_ERROR),
        (frame(SETTINGS, 0, 0, &[0; 5]), ErrorCode::FRAME_SIZE_ERROR),
        (frame(SETTINGS, ACK, 0, &[0; 6]), ErrorCode::FRAME_SIZE_ERROR),
        (frame(SETTINGS, 0, 0, &[0, 2, 0, 0, 0, 2]), ErrorCode::PROTOCOL_ERROR),
        (frame(SETTINGS, 0, 0, &[0, 4, 0x80, 0, 0, 0]), ErrorCode::FLOW_CONTROL_ERROR),
        (frame(SETTINGS, 0, 0, &[0, 5, 0, 0, 0, 1]), ErrorCode::PROTOCOL_ERROR),
        (frame(PUSH_PROMISE, END_HEADERS, 1, &[0; 4]), ErrorCode::PROTOCOL_ERROR),
        (frame(PING, 0, 0, &[0; 7]), ErrorCode::FRAME_SIZE_ERROR),
        (frame(PING, 0, 1, &[0; 8]), ErrorCode::PROTOCOL_ERROR),
        (frame(WINDOW_UPDATE, 0, 0, &[0; 4]), ErrorCode::PROTOCOL_ERROR),
        (frame(WINDOW_UPDATE, 0, 3, &[0, 0, 0, 1]), ErrorCode::PROTOCOL_ERROR),
        (frame(GOAWAY, 0, 1, &[0; 8]), ErrorCode::PROTOCOL_ERROR),
    ];
    for (bytes, code) in cases {
        let mut tested = Tested::new();
        tested.post(1, &[]);
        tested.send(&bytes);
        assert_eq!(tested.server.failure(), Some(code), "{bytes:?}");
        tested.fails(code);
        tested.get(7);
        assert!(tested.server.poll_request().is_none(), "nothing after it");
    }
    let mut tested = Tested::silent();
    tested.send(b"GET / HTTP/1.1\r\n");
    assert_eq!(tested.server.failure(), Some(ErrorCode::PROTOCOL_ERROR));
    let mut tested = Tested::silent();
    tested.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    tested.get(1);
    tested.fails(ErrorCode::PROTOCOL_ERROR);
    // A frame above the maximum length ends the connection at once.
    let mut tested = Tested::new();
    tested.send(&[0, 0x40, 1, DATA, 0, 0, 0, 0, 1]);
    tested.fails(ErrorCode::FRAME_SIZE_ERROR);
}

#[test]
fn what_breaks_the_rules_on_a_stream_ends_that() {
    let cases: [(Vec<u8>, ErrorCode); 4] = [
        (frame(WINDOW_UPDATE, 0, 1, &[0; 4]), ErrorCode::PROTOCOL_ERROR),
        (frame(PRIORITY, 0, 1, &[0; 4]), ErrorCode::FRAME_SIZE_ERROR),
        (frame(PRIORITY, 0, 1, &[0, 0, 0, 1, 0]), ErrorCode::PROTOCOL_ERROR),
        ([frame(DATA, END_STREAM, 1, b"x"), frame(DATA, 0, 1, b"x")].concat(), ErrorCode::STREAM_CLOSED),
    ];
    for (bytes, code) in cases {
        let mut tested = Tested::new();
        tested.post(1, &[]);
        tested.request();
        tested.send(&bytes);
        tested.resets(1, code);
        // Frames in flight are dropped silently.
        tested.send(&frame(DATA, END_STREAM, 1, b"late"));
        tested.send(&frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]));
        tested.server.release_body(1);
        tested.server.release_response(1);
        tested.send(&frame(DATA, END_STREAM, 1, b"late"));
        assert_eq!(tested.frames(), []);
        tested.get(3);
        assert_eq!(tested.request().stream, 3);
    }
}

#[test]
fn a_client_sends_nothing_on_what_it_ended() {
    let late = [frame(DATA, 0, 1, b"late"), frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(&[("x-sum", "1")]))];
    for bytes in &late {
        let mut tested = Tested::new();
        tested.post(1, &[]);
        tested.request();
        tested.send(&frame(RST_STREAM, 0, 1, &8_u32.to_be_bytes()));
        tested.send(bytes);
        tested.resets(1, ErrorCode::STREAM_CLOSED);
    }
    let mut tested = Tested::new();
    tested.get(1);
    tested.request();
    respond(&mut tested, 1, b"");
    tested.frames();
    tested.send(&late[0]);
    tested.resets(1, ErrorCode::STREAM_CLOSED);
    let mut tested = Tested::new();
    tested.get(1);
    tested.request();
    respond(&mut tested, 1, b"");
    tested.send(&late[1]);
    tested.fails(ErrorCode::STREAM_CLOSED);
    let mut tested = Tested::new();
    tested.get(5);
    tested.get(3);
    tested.fails(ErrorCode::PROTOCOL_ERROR);
}

#[test]
fn an_answer_may_end_before_its_request() {
    let mut tested = Tested::new();
    tested.post(1, &[]);
    tested.request();
    tested.send(&frame(DATA, 0, 1, &[0; 10_000]));
    respond(&mut tested, 1, b"no");
    let kinds: Vec<_> = tested.frames().iter().map(|frame| frame.kind).collect();
    assert_eq!(kinds, [HEADERS, DATA], "while the body is still read");
    tested.server.release_body(1);
    tested.resets(1, ErrorCode::NO_ERROR);
    assert!(tested.server.is_idle());
}

#[test]
fn an_unfinished_answer_resets_the_stream() {
    let mut tested = Tested::new();
    tested.get(1);
    tested.request();
    tested.server.release_response(1);
    tested.resets(1, ErrorCode::CANCEL);
    tested.get(3);
    tested.request();
    tested.server.break_off(3, ErrorCode::INTERNAL_ERROR);
    tested.server.release_response(3);
    tested.resets(3, ErrorCode::INTERNAL_ERROR);
}

#[test]
fn a_connection_ends_after_what_the_client_had_sent() {
    let mut tested = Tested::new();
    tested.get(1);
    tested.request();
    tested.server.graceful_shutdown();
    let frames = tested.frames();
    assert_eq!(
        (frames[0].kind, &frames[0].payload[..4], frames[1].kind),
        (GOAWAY, &[0x7f, 0xff, 0xff, 0xff][..], PING)
    );
    tested.get(3);
    tested.request();
    tested.send(&frame(PING, ACK, 0, &frames[1].payload));
    assert_eq!(&tested.frames()[0].payload[..], [0, 0, 0, 3, 0, 0, 0, 0]);
    tested.post(5, &[]);
    tested.send(&frame(DATA, END_STREAM, 5, b"x"));
    assert!(tested.server.poll_request().is_none() && tested.frames().is_empty());
    respond(&mut tested, 1, b"");
    assert!(!tested.server.is_over());
    respond(&mut tested, 3, b"last");
    assert!(tested.server.is_over() && tested.server.failure().is_none());
}

#[test]
fn a_client_that_does_not_acknowledge_the_shutdown_is_not_waited_for() {
    let mut tested = Tested::new();
    tested.server.graceful_shutdown();
    assert!(!tested.server.is_over());
    tested.get(1);
    tested.request();
    tested.server.graceful_shutdown();
    let frames = tested.frames();
    assert_eq!((frames.len(), frames[2].kind, &frames[2].payload[..4]), (3, GOAWAY, &[0, 0, 0, 1][..]));
    tested.get(3);
    assert!(tested.server.poll_request().is_none());
    respond(&mut tested, 1, b"");
    assert!(tested.server.is_over());
}

#[test]
fn a_client_that_goes_has_its_last_answers() {
    let mut tested = Tested::new();
    tested.get(1);
    tested.request();
    tested.send(&frame(GOAWAY, 0, 0, &[0; 8]));
    assert!(!tested.server.is_over());
    respond(&mut tested, 1, b"");
    assert!(tested.server.is_over());
}

#[test]
fn pings_and_settings_are_answered() {
    let mut tested = Tested::new();
    tested.send(&frame(PING, 0, 0, b"12345678"));
    tested.send(&frame(SETTINGS, 0, 0, &[0, 1, 0, 0, 0, 0, 0, 99, 0, 0, 0, 0]));
    tested.send(&frame(0xbe, 0xff, 7, b"of an unknown kind"));
    let ack = |kind, payload: &[u8]| Frame { kind, flags: ACK, stream: 0, payload: payload.to_vec() };
    assert_eq!(tested.frames(), [ack(PING, b"12345678"), ack(SETTINGS, &[])]);
}

#[test]
fn a_client_that_leaves_takes_its_streams_with_it() {
    let mut tested = Tested::new();
    tested.post(1, &[]);
    tested.request();
    let (reader, writer) = (tested.server.reader(1).unwrap().clone(), tested.server.writer(1).unwrap().clone());
    tested.server.abandon();
    assert_eq!((reader.take(), writer.take()), (1, 1));
    assert!(tested.server.is_reset(1) && matches!(tested.server.poll_body(1), Piece::Failed(_)));
    tested.server.release_body(1);
    tested.server.release_response(1);
    assert!(tested.server.is_idle() && tested.frames().is_empty());
}
