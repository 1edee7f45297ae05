//! HTTP/1.1 as a server speaks it with clients: how requests are read, and how responses are written.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Version};
use sallyport_http::RequestRefusal;
use sallyport_http1::{
    Framing, Piece,
    limits::{MAX_CHUNK_LINE_BYTES, MAX_TRAILER_BYTES},
    server::{Limits, NewRequest, Phase, ResponseHead, Server},
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

/// A server whose first request was taken.
fn read(bytes: &str) -> (NewRequest, Server) {
    let mut server = Server::new(Limits::default());
    // What was there before is no part of the request.
    server.recycle(fields(&[("old", "1")]));
    server.handle_input(bytes.as_bytes());
    (server.poll_request().unwrap().unwrap(), server)
}

#[test]
fn a_request_is_read_up_to_its_body() {
    let (asked, server) =
        read("POST /p?q=1 HTTP/1.1\r\nHost: a\r\nX:  1 \r\nx: 2\r\nY:\r\nContent-Length: 5\r\n\r\nhelloGET");
    assert_eq!((asked.head.method.as_str(), asked.head.version), ("POST", Version::HTTP_11));
    assert_eq!((asked.head.uri.path(), asked.head.uri.query()), ("/p", Some("q=1")));
    let all = [("host", "a"), ("x", "1"), ("x", "2"), ("y", ""), ("content-length", "5")];
    assert_eq!(asked.head.headers, fields(&all));
    assert_eq!((asked.framing, server.awaits_continue(), asked.keeps_connection), (Framing::Length(5), false, true));
    assert_eq!(server.into_unread(), "helloGET");
}

#[test]
fn an_empty_line_may_come_first() {
    let (asked, server) = read("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n\r\n");
    assert_eq!((asked.head.method.as_str(), asked.framing), ("GET", Framing::Length(0)));
    assert_eq!(server.into_unread(), "\r\n");
    for part in ["", "\r\n", "\r\nGET / HTTP/1.1\r\nHost: a\r\n", "GET / HTTP/1.1\r\nHost: a\r\n\r"] {
        let mut server = Server::new(Limits::default());
        server.handle_input(part.as_bytes());
        assert!(server.poll_request().is_none());
        assert_eq!(server.into_unread(), part, "nothing of it is taken");
    }
}

#[test]
fn a_request_says_what_its_connection_has_to_know() {
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
        let (asked, server) = read(&format!("{head}Host: a\r\n\r\n"));
        let found = (asked.framing, server.awaits_continue(), asked.keeps_connection);
        assert_eq!(found, (framing, expects, keeps), "{head:?}");
    }
}

#[test]
fn a_later_minor_version_is_taken_for_the_highest_that_is_spoken() {
    for version in ["HTTP/1.2", "HTTP/1.9"] {
        let text = format!("GET /HTTP/1.2 {version}\r\nHost: a\r\n\r\n");
        assert_eq!(Driven::of(&text).verdict(), (text.len(), None), "{version}");
        let (asked, _) = read(&text);
        assert_eq!((asked.head.version, asked.head.uri.path()), (Version::HTTP_11, "/HTTP/1.2"), "{version}");
        assert!(asked.keeps_connection);
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
        let (asked, _) = read(&format!("{line} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let uri = &asked.head.uri;
        assert_eq!(uri.path_and_query().unwrap().as_str(), target, "{line}");
        assert_eq!(uri.path(), target.split('?').next().unwrap(), "{line}");
        assert_eq!(uri.authority().is_some(), line.contains("//a"), "{line}");
    }
}

#[test]
fn trailers_go_to_clients_that_take_them() {
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
fn what_is_no_head_is_refused() {
    for bytes in ["nothing\r\n\r\n", "GET / HTTP/1.1\r\nHost a\r\n\r\n", "GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n"]
    {
        let driven = Driven::of(bytes);
        assert_eq!(driven.taken(), 0);
        assert!(driven.refusal.is_some(), "{bytes:?}");
    }
}

#[test]
fn a_client_that_waits_for_continue_is_told_when_its_body_is_wanted() {
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

    // A client that was told nothing may send its body behind the response or not: the connection closes.
    let (_, mut server) = read(head);
    assert!(!crate::drive::respond(&mut server, StatusCode::OK));
    assert!(written(&mut server).ends_with("connection: close\r\n\r\n"));
}

#[test]
fn a_long_rest_of_a_body_ends_the_connection_and_a_short_one_does_not() {
    for (length, persists) in [(1024 * 1024, true), (1024 * 1024 + 1, false)] {
        let (_, mut server) = read(&format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"));
        assert_eq!(crate::drive::respond(&mut server, StatusCode::OK), persists, "{length}");
    }
}

#[test]
fn a_response_is_as_long_as_it_was_announced() {
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
    assert!(server.is_last() && server.poll_request().is_none(), "no response lands inside another one");
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
    // The end of a response behind which another protocol began.
    crate::drive::respond(&mut server, StatusCode::SWITCHING_PROTOCOLS);
    server.handle_input(next);
    server.finish(None).unwrap();
    assert!(server.poll_request().is_none() && server.phase() == Phase::Switched);
    // A refusal while a response is under way: the response goes out, and the connection closes.
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

    // A head that is refused when its turn comes: not before.
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
fn a_malformed_body_is_refused_and_its_request_is_answered() {
    let (_, mut server) = read("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\nx");
    assert_eq!(server.poll_body(), Ok(Piece::Data(Bytes::from_static(b"a"))));
    assert_eq!(server.poll_body(), Err(RequestRefusal::ChunkSize));
    assert_eq!(server.refusal(), Some(RequestRefusal::ChunkSize));
    assert!(server.poll_request().is_none(), "no second response");
    assert!(!crate::drive::respond(&mut server, StatusCode::BAD_REQUEST), "the connection closes");
    assert!(written(&mut server).starts_with("HTTP/1.1 400 "));
    assert!(server.poll_request().is_none());
}

/// A response, and the request that it is for.
struct To {
    status: u16,
    fields: &'static [(&'static str, &'static str)],
    length: Option<u64>,
    is_to_head: bool,
    is_to_old: bool,
    may_persist: bool,
}

const OK: To = To { status: 200, fields: &[], length: Some(2), is_to_head: false, is_to_old: false, may_persist: true };

/// The head that is written, how the body ends, and whether the connection stays open.
fn sent(to: &To) -> (String, &'static str, bool) {
    let method = if to.is_to_head { "HEAD" } else { "GET" };
    let version = if to.is_to_old { "HTTP/1.0\r\nConnection: keep-alive" } else { "HTTP/1.1" };
    let (_, mut server) = read(&format!("{method} / {version}\r\nHost: a\r\n\r\n"));
    let head = ResponseHead {
        status: StatusCode::from_u16(to.status).unwrap(),
        fields: &fields(to.fields),
        length: to.length,
        may_persist: to.may_persist,
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
fn a_response_says_once_how_its_body_ends() {
    const LENGTH: &[(&str, &str)] = &[("content-length", "7")];
    const CHUNKS: &[(&str, &str)] = &[("transfer-encoding", "chunked"), ("trailer", "x-sum")];
    for (to, head, framing) in [
        (To { ..OK }, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n", "length 2"),
        (To { fields: LENGTH, ..OK }, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n", "length 2"),
        (To { length: Some(0), fields: LENGTH, ..OK }, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", "nothing"),
        (
            To { length: None, fields: CHUNKS, ..OK },
            "HTTP/1.1 200 OK\r\ntrailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n",
            "chunked",
        ),
        (To { length: None, is_to_old: true, fields: CHUNKS, ..OK }, "HTTP/1.0 200 OK\r\n\r\n", "until close"),
        // What the body would have been is said where it is not sent.
        (
            To { is_to_head: true, length: Some(0), fields: LENGTH, ..OK },
            "HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n",
            "nothing",
        ),
        (
            To { is_to_head: true, length: Some(0), fields: &[("content-length", "7"), ("content-length", "7")], ..OK },
            "HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n",
            "nothing",
        ),
        (
            To { is_to_head: true, length: Some(0), fields: &[("content-length", "7"), ("content-length", "8")], ..OK },
            "HTTP/1.1 200 OK\r\n\r\n",
            "nothing",
        ),
        (To { is_to_head: true, ..OK }, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n", "nothing"),
        (To { is_to_head: true, length: Some(0), fields: CHUNKS, ..OK }, "HTTP/1.1 200 OK\r\n\r\n", "nothing"),
        (
            To { status: 304, length: Some(0), fields: LENGTH, ..OK },
            "HTTP/1.1 304 Not Modified\r\ncontent-length: 7\r\n\r\n",
            "nothing",
        ),
        (To { status: 204, length: Some(0), fields: LENGTH, ..OK }, "HTTP/1.1 204 No Content\r\n\r\n", "nothing"),
        (To { status: 204, length: None, fields: CHUNKS, ..OK }, "HTTP/1.1 204 No Content\r\n\r\n", "nothing"),
        (
            To { status: 101, length: Some(0), fields: &[("connection", "Upgrade")], ..OK },
            "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\n\r\n",
            "nothing",
        ),
        (To { status: 299, ..OK }, "HTTP/1.1 299 <none>\r\ncontent-length: 2\r\n\r\n", "length 2"),
    ] {
        let (text, found, _) = sent(&to);
        assert_eq!((&*text, found), (head, framing), "{:?}", to.fields);
    }
}

#[test]
fn a_response_says_whether_its_connection_stays_open() {
    const CLOSE: &[(&str, &str)] = &[("connection", "close")];
    for (to, connection, persists) in [
        (To { ..OK }, None, true),
        (To { may_persist: false, ..OK }, Some("close"), false),
        (To { fields: CLOSE, ..OK }, Some("close"), false),
        (To { fields: CLOSE, may_persist: false, ..OK }, Some("close"), false),
        // In HTTP/1.0 it is the other way round.
        (To { is_to_old: true, ..OK }, Some("keep-alive"), true),
        (To { is_to_old: true, may_persist: false, ..OK }, None, false),
        (To { is_to_old: true, length: None, ..OK }, None, false),
        (To { is_to_old: true, fields: CLOSE, ..OK }, Some("close"), false),
    ] {
        let (text, _, found) = sent(&to);
        let options: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("connection: ")).collect();
        assert_eq!((options, found), (connection.into_iter().collect(), persists), "{text}");
    }
}

/// Whether a body in chunks is read to its end when it comes in two pieces.
fn is_taken(body: &str, at: usize) -> bool {
    let mut driven = Driven::of("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    driven.feed(&body.as_bytes()[..at]);
    if driven.refusal.is_none() {
        driven.feed(&body.as_bytes()[at..]);
    }
    assert_eq!(driven.refusal.is_some(), driven.is_in_body());
    driven.refusal.is_none()
}

#[test]
fn the_longest_lines_are_read_wherever_they_are_split() {
    for length in [MAX_CHUNK_LINE_BYTES - 1, MAX_CHUNK_LINE_BYTES, MAX_CHUNK_LINE_BYTES + 1] {
        let body = format!("1;{}\r\nx\r\n0\r\n\r\n", "x".repeat(length - 2));
        for at in 0..=body.len() {
            assert_eq!(is_taken(&body, at), length <= MAX_CHUNK_LINE_BYTES, "{length}, {at}");
        }
    }
    for length in MAX_TRAILER_BYTES - 2..MAX_TRAILER_BYTES + 4 {
        let trailers = format!("x: {}\r\n\r\n", "x".repeat(length - 7));
        assert_eq!(trailers.len(), length);
        let body = format!("0\r\n{trailers}");
        for at in [0, 3, 4, 100, body.len() - 3, body.len() - 2, body.len() - 1, body.len()] {
            // The last line feed is not counted.
            assert_eq!(is_taken(&body, at), length <= MAX_TRAILER_BYTES + 1, "{length}, {at}");
        }
    }
}
