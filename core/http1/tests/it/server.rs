//! The server's side of HTTP/1.1: requests are read, and responses are written.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Version};
use sallyport_http::RequestRefusal;
use sallyport_http1::{
    Framing, Piece,
    limits::{MAX_CHUNK_LINE_BYTES, MAX_TRAILER_BYTES},
    server::{Config, NewRequest, Phase, ResponseHead, Server},
};

use crate::drive::{Driven, written};

fn fields(all: &[(&str, &str)]) -> HeaderMap {
    let field = |(name, value): &(&str, &str)| {
        (HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap())
    };
    let mut map = HeaderMap::new();
    for (name, value) in all.iter().map(field) {
        map.append(name, value);
    }
    map
}

/// A server that has read its first request.
fn read(bytes: &str) -> (NewRequest, Server) {
    let mut server = Server::new(Config::default());
    // Recycled fields must not appear in the request.
    server.recycle(fields(&[("old", "1")]));
    server.handle_input(bytes.as_bytes());
    (server.poll_request().unwrap().unwrap(), server)
}

#[test]
fn a_request_is_read_up_to_its_body() {
    let (request, server) =
        read("POST /p?q=1 HTTP/1.1\r\nHost: a\r\nX:  1 \r\nx: 2\r\nY:\r\nContent-Length: 5\r\n\r\nhelloGET");
    assert_eq!((request.head.method.as_str(), request.head.version), ("POST", Version::HTTP_11));
    assert_eq!((request.head.uri.path(), request.head.uri.query()), ("/p", Some("q=1")));
    let all = [("host", "a"), ("x", "1"), ("x", "2"), ("y", ""), ("content-length", "5")];
    assert_eq!(request.head.headers, fields(&all));
    assert_eq!(
        (request.framing, server.awaits_continue(), request.keeps_connection),
        (Framing::Length(5), false, true)
    );
    assert_eq!(server.into_unread(), "helloGET");
}

#[test]
fn a_leading_empty_line_is_skipped() {
    let (request, server) = read("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n\r\n");
    assert_eq!((request.head.method.as_str(), request.framing), ("GET", Framing::Length(0)));
    assert_eq!(server.into_unread(), "\r\n");
    for part in ["", "\r\n", "\r\nGET / HTTP/1.1\r\nHost: a\r\n", "GET / HTTP/1.1\r\nHost: a\r\n\r"] {
        let mut server = Server::new(Config::default());
        server.handle_input(part.as_bytes());
        assert!(server.poll_request().is_none());
        assert_eq!(server.into_unread(), part, "nothing of it is consumed");
    }
}

#[test]
fn framing_expectation_and_persistence_are_read() {
    for (head, framing, expects, keeps) in [
        ("GET / HTTP/1.1\r\n", Framing::Length(0), false, true),
        ("GET / HTTP/1.0\r\n", Framing::Length(0), false, false),
        ("GET / HTTP/1.0\r\nConnection: x, Keep-Alive\r\n", Framing::Length(0), false, true),
        ("GET / HTTP/1.1\r\nConnection: x , CLOSE\r\n", Framing::Length(0), false, false),
        ("POST / HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n", Framing::Chunked, false, true),
        ("POST / HTTP/1.1\r\nContent-Length: 0\r\nExpect: 100-continue\r\n", Framing::Length(0), false, true),
        ("POST / HTTP/1.1\r\nContent-Length: 1\r\nExpect: 100-Continue\r\n", Framing::Length(1), true, true),
        ("POST / HTTP/1.0\r\nContent-Length: 1\r\nExpect: 100-continue\r\n", Framing::Length(1), false, false),
    ] {
        let (request, server) = read(&format!("{head}Host: a\r\n\r\n"));
        let found = (request.framing, server.awaits_continue(), request.keeps_connection);
        assert_eq!(found, (framing, expects, keeps), "{head:?}");
    }
}

#[test]
fn later_minor_versions_are_read_as_http_1_1() {
    for version in ["HTTP/1.2", "HTTP/1.9"] {
        let text = format!("GET /HTTP/1.2 {version}\r\nHost: a\r\n\r\n");
        assert_eq!(Driven::of(&text).verdict(), (text.len(), None), "{version}");
        let (request, _) = read(&text);
        assert_eq!((request.head.version, request.head.uri.path()), (Version::HTTP_11, "/HTTP/1.2"), "{version}");
        assert!(request.keeps_connection);
    }
}

#[test]
fn a_target_in_absolute_form_has_a_path() {
    for (line, target) in [
        ("GET https://a?q", "/?q"),
        ("GET https://a?", "/?"),
        ("GET https://a?/x", "/?/x"),
        ("GET https://a", "/"),
        ("GET https://a/", "/"),
        ("GET https://a/?q", "/?q"),
        ("GET http://a:80?q=://", "/?q=://"),
        ("OPTIONS https://a", "*"),
        ("OPTIONS https://a?q", "/?q"),
        ("OPTIONS https://a/", "/"),
        ("OPTIONS /", "/"),
        ("GET /://x?y", "/://x?y"),
    ] {
        let (request, _) = read(&format!("{line} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let uri = &request.head.uri;
        assert_eq!(uri.path_and_query().unwrap().as_str(), target, "{line}");
        assert_eq!(uri.path(), target.split('?').next().unwrap(), "{line}");
        assert_eq!(uri.authority().is_some(), line.contains("//a"), "{line}");
    }
}

#[test]
fn trailers_are_sent_to_clients_that_accept_them() {
    for (field, takes) in [("TE: trailers", true), ("te: deflate;q=0.5 , Trailers", true), ("TE: gzip", false)] {
        let (_, mut server) = read(&format!("GET / HTTP/1.1\r\nHost: a\r\n{field}\r\n\r\n"));
        let trailer = fields(&[("trailer", "x-sum")]);
        let head = ResponseHead { status: StatusCode::OK, fields: &trailer, length: None, may_persist: true };
        assert!(server.send_head(&head));
        server.send_data(Bytes::from_static(b"hello"));
        server.finish(Some(&fields(&[("x-sum", "42")]))).unwrap();
        let end =
            if takes { "\r\n\r\n5\r\nhello\r\n0\r\nx-sum: 42\r\n\r\n" } else { "\r\n\r\n5\r\nhello\r\n0\r\n\r\n" };
        assert!(written(&mut server).ends_with(end), "{field}");
    }
}

#[test]
fn malformed_heads_are_refused() {
    for bytes in ["nothing\r\n\r\n", "GET / HTTP/1.1\r\nHost a\r\n\r\n", "GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n"]
    {
        let driven = Driven::of(bytes);
        assert_eq!(driven.accepted_bytes(), 0);
        assert!(driven.refusal.is_some(), "{bytes:?}");
    }
}

#[test]
fn continue_is_sent_once_and_only_while_it_is_awaited() {
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";
    let (_, mut server) = read(head);
    assert!(server.awaits_continue());
    server.send_continue();
    server.send_continue();
    assert_eq!(written(&mut server), "HTTP/1.1 100 Continue\r\n\r\n");
    server.handle_input(b"hello");
    assert_eq!(server.poll_body(), Ok(Piece::Data(Bytes::from_static(b"hello"))));
    assert!(crate::drive::respond(&mut server, StatusCode::OK));

    // A client that sends its body does not wait.
    let (_, mut server) = read(head);
    server.handle_input(b"hel");
    assert_eq!(server.poll_body(), Ok(Piece::Data(Bytes::from_static(b"hel"))));
    assert!(!server.awaits_continue());

    // Without `100 Continue` the client may or may not send its body: the connection closes.
    let (_, mut server) = read(head);
    assert!(!crate::drive::respond(&mut server, StatusCode::OK));
    assert!(written(&mut server).ends_with("connection: close\r\n\r\n"));
}

#[test]
fn a_long_unread_body_closes_the_connection() {
    for (length, persists) in [(1024 * 1024, true), (1024 * 1024 + 1, false)] {
        let (_, mut server) = read(&format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"));
        assert_eq!(crate::drive::respond(&mut server, StatusCode::OK), persists, "{length}");
    }
}

#[test]
fn a_response_has_its_announced_length() {
    let (_, mut server) = read("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let none = HeaderMap::new();
    let head = ResponseHead { status: StatusCode::OK, fields: &none, length: Some(3), may_persist: true };
    server.send_head(&head);
    server.send_data(Bytes::from_static(b"ab"));
    assert!(!server.has_sent_announced_bytes());
    server.send_data(Bytes::from_static(b"cd"));
    assert!(server.has_sent_announced_bytes());
    server.finish(None).unwrap();
    assert!(written(&mut server).ends_with("\r\n\r\nabc"));

    let (_, mut server) = read("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    server.send_head(&head);
    server.send_data(Bytes::from_static(b"ab"));
    server.handle_input(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(server.finish(None).is_err());
    assert!(server.is_last() && server.poll_request().is_none(), "no response begins within another one");
}

#[test]
fn calls_out_of_order_change_nothing() {
    let next = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    // The end of a response that has not begun.
    let (_, mut server) = read("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    server.handle_input(next);
    server.finish(None).unwrap();
    assert!(server.poll_request().is_none());
    assert!(crate::drive::respond(&mut server, StatusCode::OK));
    assert!(server.poll_request().unwrap().is_ok());
    // The end of a response after which another protocol follows.
    crate::drive::respond(&mut server, StatusCode::SWITCHING_PROTOCOLS);
    server.handle_input(next);
    server.finish(None).unwrap();
    assert!(server.poll_request().is_none() && server.phase() == Phase::Switched);
    // A refusal during a response: the response is completed, and the connection closes.
    let (_, mut server) = read("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    server.refuse(RequestRefusal::HeadTimeout);
    server.handle_input(next);
    assert!(!crate::drive::respond(&mut server, StatusCode::OK));
    assert!(server.poll_request().is_none());
}

#[test]
fn more_input_is_of_use_until_the_next_head_is_whole() {
    let (_, mut server) = read("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    for part in ["", "\r", "\n", "GET / HTTP/1.1\r\n", "Host: b\r\n\r"] {
        server.handle_input(part.as_bytes());
        assert!(server.wants_input(), "{part:?}");
        assert_eq!(server.phase(), Phase::Response);
    }
    server.handle_input(b"\n");
    assert!(!server.wants_input());
    crate::drive::respond(&mut server, StatusCode::OK);
    assert_eq!(server.phase(), Phase::Head);
    assert_eq!(server.poll_request().unwrap().unwrap().head.headers["host"], "b");

    // An invalid head behind a request is refused only when the request is done.
    server.handle_input(b"GET / HTTP/1.1\r\nHost : c\r\nX: ");
    assert!(!server.wants_input() && server.refusal().is_none());
    assert!(crate::drive::respond(&mut server, StatusCode::OK));
    assert_eq!(server.poll_request().unwrap().unwrap_err(), RequestRefusal::SpaceBeforeColon);
}

#[test]
fn an_idle_connection_is_small() {
    let (_, mut server) = read("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    crate::drive::respond(&mut server, StatusCode::OK);
    written(&mut server);
    server.rest();
    assert!(size_of::<Server>() <= 192, "{} bytes", size_of::<Server>());
    assert_eq!(server.input_mut().capacity(), 0);
    server.handle_input(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(server.poll_request().unwrap().is_ok());
}

#[test]
fn a_malformed_body_is_refused_and_its_request_gets_a_response() {
    let (_, mut server) = read("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\nx");
    assert_eq!(server.poll_body(), Ok(Piece::Data(Bytes::from_static(b"a"))));
    assert_eq!(server.poll_body(), Err(RequestRefusal::ChunkSize));
    assert_eq!(server.refusal(), Some(RequestRefusal::ChunkSize));
    assert!(server.poll_request().is_none(), "no second response");
    assert!(!crate::drive::respond(&mut server, StatusCode::BAD_REQUEST), "the connection closes");
    assert!(written(&mut server).starts_with("HTTP/1.1 400 "));
    assert!(server.poll_request().is_none());
}

/// A response and its request.
struct Case {
    status: u16,
    fields: &'static [(&'static str, &'static str)],
    length: Option<u64>,
    is_head: bool,
    is_http10: bool,
    may_persist: bool,
}

const OK: Case =
    Case { status: 200, fields: &[], length: Some(2), is_head: false, is_http10: false, may_persist: true };

/// The encoded head, the framing of the body, and whether the connection persists.
fn sent(case: &Case) -> (String, &'static str, bool) {
    let method = if case.is_head { "HEAD" } else { "GET" };
    let version = if case.is_http10 { "HTTP/1.0\r\nConnection: keep-alive" } else { "HTTP/1.1" };
    let (_, mut server) = read(&format!("{method} / {version}\r\nHost: a\r\n\r\n"));
    let head = ResponseHead {
        status: StatusCode::from_u16(case.status).unwrap(),
        fields: &fields(case.fields),
        length: case.length,
        may_persist: case.may_persist,
    };
    let persists = server.send_head(&head);
    let text = written(&mut server);
    if !server.has_response_body() {
        return (text, "nothing", persists);
    }
    server.send_data(Bytes::from_static(b"abc"));
    server.finish(None).unwrap();
    let framing = match written(&mut server).as_str() {
        "ab" => "length 2",
        "3\r\nabc\r\n0\r\n\r\n" => "chunked",
        "abc" => "until close",
        other => panic!("{other:?}"),
    };
    (text, framing, persists)
}

#[test]
fn a_response_has_one_framing() {
    const LENGTH: &[(&str, &str)] = &[("content-length", "7")];
    const CHUNKS: &[(&str, &str)] = &[("transfer-encoding", "chunked"), ("trailer", "x-sum")];
    for (case, head, framing) in [
        (Case { ..OK }, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n", "length 2"),
        (Case { fields: LENGTH, ..OK }, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n", "length 2"),
        (Case { length: Some(0), fields: LENGTH, ..OK }, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", "nothing"),
        (
            Case { length: None, fields: CHUNKS, ..OK },
            "HTTP/1.1 200 OK\r\ntrailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n",
            "chunked",
        ),
        (Case { length: None, is_http10: true, fields: CHUNKS, ..OK }, "HTTP/1.0 200 OK\r\n\r\n", "until close"),
        // Without a body, the head announces the body that a GET would have.
        (
            Case { is_head: true, length: Some(0), fields: LENGTH, ..OK },
            "HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n",
            "nothing",
        ),
        (
            Case { is_head: true, length: Some(0), fields: &[("content-length", "7"), ("content-length", "7")], ..OK },
            "HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n",
            "nothing",
        ),
        (
            Case { is_head: true, length: Some(0), fields: &[("content-length", "7"), ("content-length", "8")], ..OK },
            "HTTP/1.1 200 OK\r\n\r\n",
            "nothing",
        ),
        (Case { is_head: true, ..OK }, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n", "nothing"),
        (Case { is_head: true, length: Some(0), fields: CHUNKS, ..OK }, "HTTP/1.1 200 OK\r\n\r\n", "nothing"),
        (
            Case { status: 304, length: Some(0), fields: LENGTH, ..OK },
            "HTTP/1.1 304 Not Modified\r\ncontent-length: 7\r\n\r\n",
            "nothing",
        ),
        (Case { status: 204, length: Some(0), fields: LENGTH, ..OK }, "HTTP/1.1 204 No Content\r\n\r\n", "nothing"),
        (Case { status: 204, length: None, fields: CHUNKS, ..OK }, "HTTP/1.1 204 No Content\r\n\r\n", "nothing"),
        (
            Case { status: 101, length: Some(0), fields: &[("connection", "Upgrade")], ..OK },
            "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\n\r\n",
            "nothing",
        ),
        (Case { status: 299, ..OK }, "HTTP/1.1 299 <none>\r\ncontent-length: 2\r\n\r\n", "length 2"),
    ] {
        let (text, found, _) = sent(&case);
        assert_eq!((&*text, found), (head, framing), "{:?}", case.fields);
    }
}

#[test]
fn a_response_has_the_connection_option() {
    const CLOSE: &[(&str, &str)] = &[("connection", "close")];
    for (case, connection, persists) in [
        (Case { ..OK }, None, true),
        (Case { may_persist: false, ..OK }, Some("close"), false),
        (Case { fields: CLOSE, ..OK }, Some("close"), false),
        (Case { fields: CLOSE, may_persist: false, ..OK }, Some("close"), false),
        // An HTTP/1.0 connection closes by default.
        (Case { is_http10: true, ..OK }, Some("keep-alive"), true),
        (Case { is_http10: true, may_persist: false, ..OK }, None, false),
        (Case { is_http10: true, length: None, ..OK }, None, false),
        (Case { is_http10: true, fields: CLOSE, ..OK }, Some("close"), false),
    ] {
        let (text, _, found) = sent(&case);
        let options: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("connection: ")).collect();
        assert_eq!((options, found), (connection.into_iter().collect(), persists), "{text}");
    }
}

/// Whether a chunked body is accepted when it comes in two pieces.
fn is_accepted(body: &str, at: usize) -> bool {
    let mut driven = Driven::of("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    driven.feed(&body.as_bytes()[..at]);
    if driven.refusal.is_none() {
        driven.feed(&body.as_bytes()[at..]);
    }
    assert_eq!(driven.refusal.is_some(), driven.is_in_body());
    driven.refusal.is_none()
}

#[test]
fn line_bounds_do_not_depend_on_the_pieces() {
    for length in [MAX_CHUNK_LINE_BYTES - 1, MAX_CHUNK_LINE_BYTES, MAX_CHUNK_LINE_BYTES + 1] {
        let body = format!("1;{}\r\nx\r\n0\r\n\r\n", "x".repeat(length - 2));
        for at in 0..=body.len() {
            assert_eq!(is_accepted(&body, at), length <= MAX_CHUNK_LINE_BYTES, "{length}, {at}");
        }
    }
    for length in MAX_TRAILER_BYTES - 2..MAX_TRAILER_BYTES + 4 {
        let trailers = format!("x: {}\r\n\r\n", "x".repeat(length - 7));
        assert_eq!(trailers.len(), length);
        let body = format!("0\r\n{trailers}");
        for at in [0, 3, 4, 100, body.len() - 3, body.len() - 2, body.len() - 1, body.len()] {
            // The final line feed is not counted.
            assert_eq!(is_accepted(&body, at), length <= MAX_TRAILER_BYTES + 1, "{length}, {at}");
        }
    }
}
