//! HTTP/1.1 as a server speaks it with clients: how requests are read behind the guard, and how answers are written.

use bytes::BytesMut;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Version};
use sallyport_http::{
    codec::{AnswerFraming, AnswerHead, Asked, BodyReader, Framing, Piece, read_request, write_answer},
    guard::{GuardLimits, MAX_CHUNK_LINE_BYTES, MAX_TRAILER_BYTES, RequestGuard, Verdict},
};

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

fn read(bytes: &str) -> (Asked, BytesMut) {
    let mut buf = BytesMut::from(bytes);
    // What was there before is no part of it.
    let mut room = fields(&[("old", "1")]);
    let asked = read_request(&mut buf, &mut room).unwrap().unwrap();
    assert!(room.is_empty());
    (asked, buf)
}

#[test]
fn a_request_is_read_up_to_its_body() {
    let (asked, rest) = read("POST /p?q=1 HTTP/1.1\r\nHost: a\r\nX:  1 \r\nx: 2\r\nContent-Length: 5\r\n\r\nhelloGET");
    assert_eq!((asked.head.method.as_str(), asked.head.version), ("POST", Version::HTTP_11));
    assert_eq!((asked.head.uri.path(), asked.head.uri.query()), ("/p", Some("q=1")));
    assert_eq!(asked.head.headers, fields(&[("host", "a"), ("x", "1"), ("x", "2"), ("content-length", "5")]));
    assert_eq!((asked.framing, asked.expects_continue, asked.keeps_connection), (Framing::Length(5), false, true));
    assert_eq!(rest, "helloGET");
}

#[test]
fn an_empty_line_may_come_first() {
    let (asked, rest) = read("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n\r\n");
    assert_eq!((asked.head.method.as_str(), asked.framing), ("GET", Framing::Length(0)));
    assert_eq!(rest, "\r\n");
    for part in ["", "\r\n", "\r\nGET / HTTP/1.1\r\nHost: a\r\n", "GET / HTTP/1.1\r\nHost: a\r\n\r"] {
        let mut buf = BytesMut::from(part);
        assert!(read_request(&mut buf, &mut HeaderMap::new()).unwrap().is_none());
        assert_eq!(buf, part, "nothing of it is taken");
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
        let (asked, _) = read(&format!("{head}Host: a\r\n\r\n"));
        let said = (asked.framing, asked.expects_continue, asked.keeps_connection);
        assert_eq!(said, (framing, expects, keeps), "{head:?}");
    }
}

#[test]
fn a_later_minor_version_is_taken_for_the_highest_that_is_spoken() {
    for version in ["HTTP/1.2", "HTTP/1.9"] {
        let text = format!("GET /HTTP/1.2 {version}\r\nHost: a\r\n\r\n");
        let verdict = RequestGuard::new(GuardLimits::default()).inspect(text.as_bytes());
        assert_eq!(verdict, Verdict::Pass { n: text.len() }, "{version}");
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
fn a_request_says_whether_trailers_may_follow() {
    for (field, takes) in [("TE: trailers", true), ("te: deflate;q=0.5 , Trailers", true), ("TE: gzip", false)] {
        assert_eq!(read(&format!("GET / HTTP/1.1\r\nHost: a\r\n{field}\r\n\r\n")).0.takes_trailers, takes, "{field}");
    }
}

#[test]
fn what_is_no_head_is_an_error() {
    for bytes in ["nothing\r\n\r\n", "GET / HTTP/1.1\r\nHost a\r\n\r\n", "GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n"]
    {
        assert!(read_request(&mut BytesMut::from(bytes), &mut HeaderMap::new()).is_err(), "{bytes:?}");
    }
}

/// What is written for this answer in place of the fields that every one has.
struct To {
    status: u16,
    fields: &'static [(&'static str, &'static str)],
    length: Option<u64>,
    is_to_head: bool,
    is_to_old: bool,
    may_go_on: bool,
}

const OK: To = To { status: 200, fields: &[], length: Some(2), is_to_head: false, is_to_old: false, may_go_on: true };

fn written(to: &To) -> (String, AnswerFraming, bool) {
    let mut out = BytesMut::new();
    let head = AnswerHead {
        status: StatusCode::from_u16(to.status).unwrap(),
        fields: &fields(to.fields),
        length: to.length,
        is_to_head: to.is_to_head,
        is_to_old: to.is_to_old,
        may_go_on: to.may_go_on,
    };
    let (framing, goes_on) = write_answer(&mut out, &head);
    (String::from_utf8(out.to_vec()).unwrap(), framing, goes_on)
}

#[test]
fn an_answer_says_once_how_its_body_ends() {
    use AnswerFraming::{Chunked, Length, Nothing, UntilClose};
    const LENGTH: &[(&str, &str)] = &[("content-length", "7")];
    const CHUNKS: &[(&str, &str)] = &[("transfer-encoding", "chunked"), ("trailer", "x-sum")];
    for (to, head, framing) in [
        (To { ..OK }, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n", Length(2)),
        (To { fields: LENGTH, ..OK }, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n", Length(2)),
        (To { length: Some(0), fields: LENGTH, ..OK }, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", Nothing),
        (
            To { length: None, fields: CHUNKS, ..OK },
            "HTTP/1.1 200 OK\r\ntrailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n",
            Chunked,
        ),
        (To { length: None, is_to_old: true, fields: CHUNKS, ..OK }, "HTTP/1.0 200 OK\r\n\r\n", UntilClose),
        // What the body would have been is said where it is not sent.
        (
            To { is_to_head: true, length: Some(0), fields: LENGTH, ..OK },
            "HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n",
            Nothing,
        ),
        (
            To { is_to_head: true, length: Some(0), fields: &[("content-length", "7"), ("content-length", "7")], ..OK },
            "HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n",
            Nothing,
        ),
        (
            To { is_to_head: true, length: Some(0), fields: &[("content-length", "7"), ("content-length", "8")], ..OK },
            "HTTP/1.1 200 OK\r\n\r\n",
            Nothing,
        ),
        (To { is_to_head: true, ..OK }, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n", Nothing),
        (To { is_to_head: true, length: Some(0), fields: CHUNKS, ..OK }, "HTTP/1.1 200 OK\r\n\r\n", Nothing),
        (
            To { status: 304, length: Some(0), fields: LENGTH, ..OK },
            "HTTP/1.1 304 Not Modified\r\ncontent-length: 7\r\n\r\n",
            Nothing,
        ),
        (To { status: 204, length: Some(0), fields: LENGTH, ..OK }, "HTTP/1.1 204 No Content\r\n\r\n", Nothing),
        (To { status: 204, length: None, fields: CHUNKS, ..OK }, "HTTP/1.1 204 No Content\r\n\r\n", Nothing),
        (
            To { status: 101, length: Some(0), fields: &[("connection", "Upgrade")], ..OK },
            "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\n\r\n",
            Nothing,
        ),
        (To { status: 299, ..OK }, "HTTP/1.1 299 <none>\r\ncontent-length: 2\r\n\r\n", Length(2)),
    ] {
        let (text, found, _) = written(&to);
        assert_eq!((&*text, found), (head, framing), "{:?}", to.fields);
    }
}

#[test]
fn an_answer_says_whether_its_connection_goes_on() {
    const CLOSE: &[(&str, &str)] = &[("connection", "close")];
    for (to, connection, goes_on) in [
        (To { ..OK }, None, true),
        (To { may_go_on: false, ..OK }, Some("close"), false),
        (To { fields: CLOSE, ..OK }, Some("close"), false),
        (To { fields: CLOSE, may_go_on: false, ..OK }, Some("close"), false),
        // In HTTP/1.0 it is the other way round.
        (To { is_to_old: true, ..OK }, Some("keep-alive"), true),
        (To { is_to_old: true, may_go_on: false, ..OK }, None, false),
        (To { is_to_old: true, length: None, ..OK }, None, false),
        (To { is_to_old: true, fields: CLOSE, ..OK }, Some("close"), false),
    ] {
        let (text, _, found) = written(&to);
        let said: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("connection: ")).collect();
        assert_eq!((said, found), (connection.into_iter().collect(), goes_on), "{text}");
    }
}

/// Gives a body in chunks to a reader as it passes the guard, in two pieces: whether both take all of it.
fn is_taken(body: &str, at: usize) -> (bool, bool) {
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut guard = RequestGuard::new(GuardLimits::default());
    assert_eq!(guard.inspect(head.as_bytes()), Verdict::Pass { n: head.len() });
    let (mut reader, mut buf, mut is_over) = (BodyReader::new(Framing::Chunked), BytesMut::new(), false);
    for part in [&body[..at], &body[at..]] {
        if guard.inspect(part.as_bytes()) != (Verdict::Pass { n: part.len() }) {
            return (false, false);
        }
        buf.extend_from_slice(part.as_bytes());
        loop {
            match reader.next(&mut buf) {
                Ok(Piece::Missing) => break,
                Ok(Piece::Data(_)) => {}
                Ok(Piece::End | Piece::Trailers(_)) => {
                    is_over = true;
                    break;
                }
                Err(_) => return (true, false),
            }
        }
    }
    (true, is_over)
}

#[test]
fn the_longest_lines_that_pass_the_guard_are_read_wherever_they_are_split() {
    for length in [MAX_CHUNK_LINE_BYTES - 1, MAX_CHUNK_LINE_BYTES, MAX_CHUNK_LINE_BYTES + 1] {
        let body = format!("1;{}\r\nx\r\n0\r\n\r\n", "x".repeat(length - 2));
        for at in 0..=body.len() {
            assert_eq!(
                is_taken(&body, at),
                (length <= MAX_CHUNK_LINE_BYTES, length <= MAX_CHUNK_LINE_BYTES),
                "{length}, {at}"
            );
        }
    }
    for length in MAX_TRAILER_BYTES - 2..MAX_TRAILER_BYTES + 4 {
        let trailers = format!("x: {}\r\n\r\n", "x".repeat(length - 7));
        assert_eq!(trailers.len(), length);
        let body = format!("0\r\n{trailers}");
        for at in [0, 3, 4, 100, body.len() - 3, body.len() - 2, body.len() - 1, body.len()] {
            let (passes, is_read) = is_taken(&body, at);
            assert_eq!(passes, is_read, "{length}, {at}");
        }
    }
}
