//! Requests that other servers have misread, and the verdicts of this server.

use RequestRefusal as No;
use http::StatusCode;
use sallyport_http::RequestRefusal;
use sallyport_http1::{
    limits::{
        MAX_CHUNK_EXTENSION_BYTES, MAX_CHUNK_LINE_BYTES, MAX_HEAD_BYTES, MAX_HEADER_COUNT, MAX_TARGET_BYTES,
        MAX_TRAILER_BYTES, MAX_TRAILER_COUNT,
    },
    server::{Config, Phase, Server},
};

use crate::drive::{Driven, respond, written};

#[track_caller]
fn passes(bytes: impl AsRef<[u8]>) {
    let bytes = bytes.as_ref();
    assert_eq!(Driven::of(bytes).verdict(), (bytes.len(), None), "{:?}", String::from_utf8_lossy(bytes));
}

/// The message is refused completely.
#[track_caller]
fn head_is_refused(name: &str, bytes: impl AsRef<[u8]>, refusal: RequestRefusal) {
    // Also behind a valid request, which is accepted.
    let good = b"GET /first HTTP/1.1\r\nHost: a\r\n\r\n";
    for before in [&b""[..], good] {
        let all = [before, bytes.as_ref()].concat();
        let mut driven = Driven::of(&all);
        assert_eq!(driven.verdict(), (before.len(), Some(refusal)), "{name}: {:?}", String::from_utf8_lossy(&all));
        assert!(!driven.is_in_body(), "{name}");
        assert_eq!(driven.server.phase(), Phase::Refused, "{name}");
        // Later bytes do not change the refusal.
        let requests = driven.log.len();
        driven.feed(good);
        assert_eq!((driven.verdict(), driven.log.len()), ((before.len(), Some(refusal)), requests), "{name}");
    }
}

#[test]
fn ordinary_requests_pass() {
    passes("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    passes("GET / HTTP/1.0\r\n\r\n");
    passes("GET /a?b=c&d|e^f{g}`\\ HTTP/1.1\r\nHost: calm-sea-1.localhost:8443\r\nAccept: */*\r\n\r\n");
    passes("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n");
    passes("GET https://a.localhost:8443/x HTTP/1.1\r\nHost: A.localhost:8443\r\n\r\n");
    passes("GET http://a?q HTTP/1.1\r\nHost: a:80\r\n\r\n");
    passes("PROPFIND / HTTP/1.1\r\nHost: a\r\n\r\n");
    passes("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
    passes("POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\t5 \t\r\n\r\nhello");
    passes("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: ChunKed\r\n\r\n0\r\n\r\n");
    passes("GET / HTTP/1.1\r\nHost: a\r\nX-Empty:\r\nX-Latin: caf\u{e9}\r\nX-Tab: a\tb\r\n\r\n");
    passes("GET / HTTP/1.1\r\nHost: [::1]:8443\r\n\r\n");
}

#[test]
fn several_requests_pass_one_after_another() {
    passes(
        "POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc\
         POST /2 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
         3;name=\"a value\"\r\nabc\r\n0a \t; n\r\n0123456789\r\n00\r\nX-Sum: 7\r\nX-More:\r\n\r\n\
         \r\nGET /3 HTTP/1.1\r\nHost: a\r\n\r\n",
    );
}

#[test]
fn a_head_is_held_until_it_is_complete() {
    let first = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
    let second = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut driven = Driven::new(Config::default());
    assert_eq!(driven.server.phase(), Phase::Idle);
    driven.feed(&first[..first.len() - 1]);
    assert_eq!((driven.accepted_bytes(), driven.server.phase()), (first.len() - 1, Phase::Body));
    driven.feed(b"cG");
    assert_eq!((driven.accepted_bytes(), driven.server.phase()), (first.len(), Phase::Head));
    for byte in &second[1..second.len() - 1] {
        driven.feed(&[*byte]);
        assert_eq!((driven.accepted_bytes(), driven.server.phase()), (first.len(), Phase::Head));
    }
    driven.feed(b"\n");
    assert_eq!((driven.accepted_bytes(), driven.server.phase()), (first.len() + second.len(), Phase::Idle));
    driven.feed(b"\r\n");
    assert_eq!(driven.accepted_bytes(), first.len() + second.len());
    assert_eq!(driven.server.phase(), Phase::Idle, "an empty line is no request yet");
}

#[test]
fn malformed_request_lines_are_refused() {
    for (name, line, refusal) in [
        ("HTTP/0.9", "GET /", No::RequestLine),
        ("a version alone", "HTTP/1.1", No::RequestLine),
        ("HTTP/3.1", "GET / HTTP/3.1", No::Version),
        ("HTTP/2.0", "GET / HTTP/2.0", No::Version),
        ("HTTP/0.9 in words", "GET / HTTP/0.9", No::Version),
        ("lower-case version", "GET / http/1.1", No::RequestLine),
        ("version with a sign", "GET / HTTP/+1.1", No::RequestLine),
        ("version of many digits", "GET / HTTP/1.10", No::RequestLine),
        ("another protocol", "GET / ICAP/1.0", No::RequestLine),
        ("two spaces before the target", "GET  / HTTP/1.1", No::RequestLine),
        ("two spaces before the version", "GET /  HTTP/1.1", No::RequestLine),
        ("a space after the version", "GET / HTTP/1.1 ", No::RequestLine),
        ("a space in the target", "GET /a b HTTP/1.1", No::RequestLine),
        ("a space in front", " GET / HTTP/1.1", No::RequestLine),
        ("a tab for a space", "GET\t/ HTTP/1.1", No::RequestLine),
        ("a tab before the version", "GET /\tHTTP/1.1", No::RequestLine),
        ("a tab in the target", "GET /a\tb HTTP/1.1", No::Target),
        ("no target", "GET HTTP/1.1", No::RequestLine),
        ("a method that is no token", "G(T / HTTP/1.1", No::RequestLine),
        ("a field for a request line", "Host: a", No::RequestLine),
        ("CONNECT", "CONNECT a:443 HTTP/1.1", No::Connect),
        ("authority form", "GET a:443 HTTP/1.1", No::Target),
        ("a relative path", "GET index.html HTTP/1.1", No::Target),
        ("asterisk for GET", "GET * HTTP/1.1", No::Target),
        ("asterisk and more", "OPTIONS *x HTTP/1.1", No::Target),
        ("a fragment", "GET /a#b HTTP/1.1", No::Target),
        ("markup in the path", "GET /<b> HTTP/1.1", No::Target),
        ("markup in the query", "GET /?a=<b> HTTP/1.1", No::Target),
        ("a quote in the query", "GET /?a=\"b\" HTTP/1.1", No::Target),
        ("a backquote in the path", "GET /`b` HTTP/1.1", No::Target),
        ("raw UTF-8", "GET /\u{e9} HTTP/1.1", No::Target),
        ("another scheme", "GET ftp://a/ HTTP/1.1", No::Target),
        ("a scheme without slashes", "GET http:a HTTP/1.1", No::Target),
        ("user name in the target", "GET http://u@a/ HTTP/1.1", No::HostUserInfo),
        ("absolute form without a host", "GET http:///x HTTP/1.1", No::MissingHost),
        ("absolute form with another host", "GET http://b/ HTTP/1.1", No::ConflictingHosts),
        ("absolute form with another port", "GET http://a:81/ HTTP/1.1", No::ConflictingHosts),
        ("a backslash for a slash", "GET http://a\\@b/ HTTP/1.1", No::HostUserInfo),
    ] {
        head_is_refused(name, format!("{line}\r\nHost: a\r\n\r\n"), refusal);
    }
    head_is_refused("the preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", No::Version);
    head_is_refused("a TLS hello", [0x16, 0x03, 0x01, 0x02, 0x00], No::ControlCharacter);
    head_is_refused("two empty lines in front", "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", No::RequestLine);
    head_is_refused("a bare line feed in front", "\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", No::BareLineFeed);
    let method = "M".repeat(33);
    head_is_refused("a long method", format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n"), No::RequestLine);
}

#[test]
fn smuggling_by_line_ends_and_characters_is_refused() {
    for (name, bytes, refusal) in [
        ("bare LF after the request line", &b"GET / HTTP/1.1\nHost: a\r\n\r\n"[..], No::BareLineFeed),
        ("bare LF after a field", b"GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n", No::BareLineFeed),
        ("bare LF for the empty line", b"GET / HTTP/1.1\r\nHost: a\r\n\n", No::BareLineFeed),
        ("LF LF ends the head", b"GET / HTTP/1.1\r\nHost: a\n\n", No::BareLineFeed),
        ("bare CR in a value", b"GET / HTTP/1.1\r\nHost: a\r\nX: y\rz\r\n\r\n", No::BareCarriageReturn),
        (
            "bare CR hides a field",
            b"GET / HTTP/1.1\r\nHost: a\r\nX: y\rContent-Length: 5\r\n\r\n",
            No::BareCarriageReturn,
        ),
        ("bare CR in the target", b"GET /a\rb HTTP/1.1\r\nHost: a\r\n\r\n", No::BareCarriageReturn),
        ("CR CR LF", b"GET / HTTP/1.1\r\r\nHost: a\r\n\r\n", No::BareCarriageReturn),
        ("CR for the empty line", b"GET / HTTP/1.1\r\nHost: a\r\n\rX", No::BareCarriageReturn),
        ("NUL in a value", b"GET / HTTP/1.1\r\nHost: a\r\nX: y\0z\r\n\r\n", No::ControlCharacter),
        ("NUL in a name", b"GET / HTTP/1.1\r\nHost: a\r\nX\0: y\r\n\r\n", No::ControlCharacter),
        ("NUL in the target", b"GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n", No::ControlCharacter),
        (
            "vertical tab before a value",
            b"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \x0bchunked\r\n\r\n",
            No::ControlCharacter,
        ),
        (
            "form feed before a value",
            b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: \x0c5\r\n\r\n",
            No::ControlCharacter,
        ),
        ("DEL in a value", b"GET / HTTP/1.1\r\nHost: a\r\nX: \x7f\r\n\r\n", No::ControlCharacter),
        ("escape in a value", b"GET / HTTP/1.1\r\nHost: a\r\nX: \x1b[31m\r\n\r\n", No::ControlCharacter),
    ] {
        head_is_refused(name, bytes, refusal);
    }
}

#[test]
fn smuggling_by_field_lines_is_refused() {
    for (name, field, refusal) in [
        ("obs-fold with a space", "X: y\r\n z", No::FoldedField),
        ("obs-fold with a tab", "X: y\r\n\tz", No::FoldedField),
        ("obs-fold of a coding", "Transfer-Encoding:\r\n chunked", No::TransferEncoding),
        ("obs-fold of nothing", "X: y\r\n \r\nZ: 1", No::FoldedField),
        ("space before the colon", "X : y", No::SpaceBeforeColon),
        ("tab before the colon", "X\t: y", No::SpaceBeforeColon),
        ("space before the colon of a length", "Content-Length : 5", No::SpaceBeforeColon),
        ("space before the colon of a coding", "Transfer-Encoding : chunked", No::SpaceBeforeColon),
        ("space in a name", "Transfer Encoding: chunked", No::FieldName),
        ("no colon", "Transfer-Encoding chunked", No::FieldName),
        ("no name", ": chunked", No::FieldName),
        ("a name in quotes", "\"X\": y", No::FieldName),
        ("a name that is no ASCII", "X-\u{e9}: y", No::FieldName),
        ("brackets in a name", "X[a]: y", No::FieldName),
    ] {
        head_is_refused(name, format!("POST / HTTP/1.1\r\nHost: a\r\n{field}\r\n\r\n"), refusal);
    }
    let folded_first = "GET / HTTP/1.1\r\n Host: a\r\nHost: b\r\n\r\n";
    head_is_refused("white space before the first field", folded_first, No::FoldedField);
}

#[test]
fn smuggling_by_lengths_is_refused() {
    for (name, fields, refusal) in [
        ("CL.TE", "Content-Length: 6\r\nTransfer-Encoding: chunked", No::BothLengths),
        ("TE.CL", "Transfer-Encoding: chunked\r\nContent-Length: 4", No::BothLengths),
        ("CL.0 and TE", "Content-Length: 0\r\nTransfer-Encoding: chunked", No::BothLengths),
        ("TE.TE", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", No::TransferEncoding),
        (
            "TE.TE, identity first",
            "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
            No::UnknownTransferEncoding,
        ),
        ("TE.TE, identity last", "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", No::TransferEncoding),
        ("TE.TE, spelled otherwise", "Transfer-Encoding: chunked\r\ntransfer-encoding: cow", No::TransferEncoding),
        ("xchunked", "Transfer-Encoding: xchunked", No::UnknownTransferEncoding),
        ("chunkedx", "Transfer-Encoding: chunkedx", No::UnknownTransferEncoding),
        ("identity", "Transfer-Encoding: identity", No::UnknownTransferEncoding),
        ("gzip", "Transfer-Encoding: gzip", No::UnknownTransferEncoding),
        ("gzip, chunked", "Transfer-Encoding: gzip, chunked", No::UnknownTransferEncoding),
        ("chunked, identity", "Transfer-Encoding: chunked, identity", No::TransferEncoding),
        ("chunked, chunked", "Transfer-Encoding: chunked, chunked", No::TransferEncoding),
        ("a comma behind chunked", "Transfer-Encoding: chunked,", No::TransferEncoding),
        ("a comma before chunked", "Transfer-Encoding: ,chunked", No::TransferEncoding),
        ("a parameter of chunked", "Transfer-Encoding: chunked;q=1", No::TransferEncoding),
        ("chunked in quotes", "Transfer-Encoding: \"chunked\"", No::TransferEncoding),
        ("a space in chunked", "Transfer-Encoding: chun ked", No::TransferEncoding),
        ("an empty coding", "Transfer-Encoding:", No::TransferEncoding),
        ("chunked and a soft hyphen", "Transfer-Encoding: chunked\u{ad}", No::TransferEncoding),
        ("two lengths", "Content-Length: 5\r\nContent-Length: 6", No::SeveralContentLengths),
        ("two equal lengths", "Content-Length: 5\r\nContent-Length: 5", No::SeveralContentLengths),
        ("a list of lengths", "Content-Length: 5, 5", No::SeveralContentLengths),
        ("a comma behind the length", "Content-Length: 5,", No::SeveralContentLengths),
        ("an empty length", "Content-Length:", No::ContentLength),
        ("+5", "Content-Length: +5", No::ContentLength),
        ("-5", "Content-Length: -5", No::ContentLength),
        ("5 5", "Content-Length: 5 5", No::ContentLength),
        ("0x5", "Content-Length: 0x5", No::ContentLength),
        ("5.0", "Content-Length: 5.0", No::ContentLength),
        ("5e1", "Content-Length: 5e1", No::ContentLength),
        ("1_0", "Content-Length: 1_0", No::ContentLength),
        ("\"5\"", "Content-Length: \"5\"", No::ContentLength),
        ("Arabic digits", "Content-Length: \u{665}", No::ContentLength),
        ("2^63", "Content-Length: 9223372036854775808", No::ContentLength),
        ("2^64", "Content-Length: 18446744073709551616", No::ContentLength),
        ("2^64 + 5", "Content-Length: 18446744073709551621", No::ContentLength),
        ("hundreds of digits", &format!("Content-Length: {}", "9".repeat(300)), No::ContentLength),
        ("twenty zeros", &format!("Content-Length: {}", "0".repeat(20)), No::ContentLength),
    ] {
        head_is_refused(name, format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n0\r\n\r\nX"), refusal);
    }
    let old = "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    head_is_refused("a coding in HTTP/1.0", old, No::TransferEncodingVersion);
    passes("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9223372036854775807\r\n\r\nxyz");
}

#[test]
fn invalid_hosts_are_refused() {
    for (name, fields, refusal) in [
        ("no host", "X: y", No::MissingHost),
        ("an empty host", "Host:", No::MissingHost),
        ("two hosts", "Host: a\r\nHost: b", No::SeveralHosts),
        ("the same host twice", "Host: a\r\nhost: a", No::SeveralHosts),
        ("a user name", "Host: u@a", No::HostUserInfo),
        ("a list", "Host: a, b", No::Host),
        ("a space", "Host: a b", No::Host),
        ("a path", "Host: a/b", No::Host),
        ("a query", "Host: a?b", No::Host),
        ("a scheme", "Host: http://a", No::Host),
        ("percent-encoding", "Host: a%2eb", No::Host),
        ("an empty port", "Host: a:", No::Host),
        ("a port out of range", "Host: a:99999", No::Host),
        ("a port in hexadecimal", "Host: a:0x50", No::Host),
        ("an open bracket", "Host: [::1", No::Host),
        ("not ASCII", "Host: \u{e9}", No::Host),
    ] {
        head_is_refused(name, format!("GET / HTTP/1.1\r\n{fields}\r\n\r\n"), refusal);
    }
}

#[test]
fn heads_are_bounded() {
    let head = |target: usize, fields: usize, filler: usize| {
        let mut head = format!("GET /{} HTTP/1.1\r\nHost: a\r\n", "t".repeat(target - 1));
        for index in 1..fields {
            head.push_str(&format!("X-{index}: y\r\n"));
        }
        if filler > 0 {
            let left = filler - head.len() - "F: \r\n\r\n".len();
            head.push_str(&format!("F: {}\r\n", "f".repeat(left)));
        }
        head + "\r\n"
    };
    passes(head(MAX_TARGET_BYTES, 1, 0));
    head_is_refused("a long target", head(MAX_TARGET_BYTES + 1, 1, 0), No::TargetLong);
    head_is_refused("an endless target", format!("GET /{}", "t".repeat(MAX_TARGET_BYTES * 2)), No::TargetLong);
    passes(head(1, MAX_HEADER_COUNT, 0));
    head_is_refused("many fields", head(1, MAX_HEADER_COUNT + 1, 0), No::TooManyFields);
    passes(head(1, 1, MAX_HEAD_BYTES));
    head_is_refused("a long head", head(1, 1, MAX_HEAD_BYTES + 1), No::HeadLong);
    let endless = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(MAX_HEAD_BYTES));
    head_is_refused("an endless field", &endless, No::HeadLong);
    assert_eq!(Driven::of(&endless[..MAX_HEAD_BYTES - 1]).verdict(), (0, None));
    assert_eq!(
        Driven::of(&endless[..MAX_HEAD_BYTES]).verdict(),
        (0, Some(No::HeadLong)),
        "never more than this is held"
    );

    let small = Config { max_head_bytes: 60, max_target_bytes: 10, max_header_count: 2 };
    let verdict = |text: &str| {
        let mut driven = Driven::new(small);
        driven.feed(text.as_bytes());
        driven.verdict()
    };
    let fits = "GET /123456789 HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n";
    assert_eq!(verdict(fits), (fits.len(), None));
    for (text, refusal) in [
        ("GET /1234567890 HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), No::TargetLong),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: y\r\nZ: 1\r\n\r\n".to_owned(), No::TooManyFields),
        (format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "y".repeat(60)), No::HeadLong),
    ] {
        assert_eq!(verdict(&text), (0, Some(refusal)));
    }
}

/// The body is refused at the byte that `|` marks.
#[track_caller]
fn chunks_are_refused(name: &str, body: &str, refusal: RequestRefusal) {
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let at = body.find('|').unwrap();
    let all = format!("{head}{}", body.replacen('|', "", 1));
    let driven = Driven::of(&all);
    assert_eq!(driven.verdict(), (head.len() + at, Some(refusal)), "{name}: {body:?}");
    assert!(driven.is_in_body(), "{name}");
}

#[test]
fn malformed_chunks_are_refused_at_the_offending_byte() {
    let long_line = format!("5;{}|x", "x".repeat(MAX_CHUNK_LINE_BYTES - 2));
    let line = format!("1;{}\r\na\r\n", "x".repeat(MAX_CHUNK_LINE_BYTES - 2));
    let in_full_lines = MAX_CHUNK_EXTENSION_BYTES / (MAX_CHUNK_LINE_BYTES - 1);
    let left = MAX_CHUNK_EXTENSION_BYTES - in_full_lines * (MAX_CHUNK_LINE_BYTES - 1) - 1;
    let many_lines = format!("{}1;{}|x", line.repeat(in_full_lines), "x".repeat(left));
    for (name, body, refusal) in [
        ("no size", "|\r\n", No::ChunkSize),
        ("0x prefix", "0|x5\r\nhello\r\n0\r\n\r\n", No::ChunkSize),
        ("a plus sign", "|+5\r\nhello\r\n", No::ChunkSize),
        ("negative", "|-1\r\n", No::ChunkSize),
        ("no hexadecimal digit", "|g\r\n", No::ChunkSize),
        ("an underscore", "1|_0\r\n", No::ChunkSize),
        ("space before the size", "| 5\r\nhello\r\n", No::ChunkSize),
        ("space behind the size", "5 |\r\nhello\r\n", No::ChunkSize),
        ("space in the size", "1 |0\r\nhello\r\n", No::ChunkSize),
        ("2^64", "1000000000000000|0\r\n", No::ChunkSize),
        ("2^64 - 1", "fffffffffffffff|f\r\n", No::ChunkSize),
        ("2^63", "800000000000000|0\r\n", No::ChunkSize),
        ("seventeen digits", "0000000000000000|5\r\n", No::ChunkSize),
        ("bare LF behind the size", "5|\nhello\r\n", No::ChunkSize),
        ("CR CR behind the size", "5\r|\r\nhello\r\n", No::BareCarriageReturn),
        ("bare CR behind the size", "5\r|hello\r\n", No::BareCarriageReturn),
        ("bare LF in an extension", "5;a|\nhello\r\n", No::BareLineFeed),
        ("bare CR in an extension", "5;a\r|b\r\nhello\r\n", No::BareCarriageReturn),
        ("NUL in an extension", "5;a|\0\r\nhello\r\n", No::ControlCharacter),
        ("an empty extension", "5;|\r\nhello\r\n", No::ChunkSize),
        ("a semicolon alone", "|;a\r\n", No::ChunkSize),
        ("data longer than its size", "5\r\nhello|!\r\n", No::ChunkEnd),
        ("bare LF behind the data", "5\r\nhello|\n0\r\n\r\n", No::ChunkEnd),
        ("bare CR behind the data", "5\r\nhello\r|0\r\n\r\n", No::ChunkEnd),
        ("two bytes for the line end", "5\r\nhello|xx0\r\n\r\n", No::ChunkEnd),
        ("garbage behind the last chunk", "0\r\n|\0\r\n", No::Trailer),
        ("bare LF behind the last size", "0|\n\r\n", No::ChunkSize),
        ("bare LF ends the body", "0\r\n|\n", No::Trailer),
        ("bare CR ends the body", "0\r\n\r|X", No::BareCarriageReturn),
        ("a trailer without a colon", "0\r\nX|\r\n\r\n", No::Trailer),
        ("a trailer with a space before its colon", "0\r\nX| : y\r\n\r\n", No::Trailer),
        ("a folded trailer", "0\r\nX: y\r\n| z\r\n\r\n", No::Trailer),
        ("a trailer without a name", "0\r\n|: y\r\n\r\n", No::Trailer),
        ("bare LF behind a trailer", "0\r\nX: y|\n\r\n", No::BareLineFeed),
        ("bare CR in a trailer", "0\r\nX: y\r|z\r\n\r\n", No::BareCarriageReturn),
        ("NUL in a trailer", "0\r\nX: |\0\r\n\r\n", No::ControlCharacter),
        ("a length for a trailer", "0\r\nContent-Length|: 5\r\n\r\n", No::Trailer),
        ("a coding for a trailer", "0\r\nTRANSFER-ENCODING|: chunked\r\n\r\n", No::Trailer),
        ("a host for a trailer", "0\r\nX: y\r\nhost|: b\r\n\r\n", No::Trailer),
        ("a long size line", long_line.as_str(), No::ChunkLineLong),
        ("long extensions together", many_lines.as_str(), No::ChunkLineLong),
    ] {
        chunks_are_refused(name, body, refusal);
    }
}

#[test]
fn trailers_are_bounded() {
    let many = |count: usize| "X: y\r\n".repeat(count);
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    passes(format!("{head}0\r\n{}\r\n", many(MAX_TRAILER_COUNT)));
    chunks_are_refused("many trailers", &format!("0\r\n{}|X: y\r\n", many(MAX_TRAILER_COUNT)), No::TrailersLong);
    let long = format!("0\r\nX:{}|z", "y".repeat(MAX_TRAILER_BYTES - 2));
    chunks_are_refused("a long trailer", &long, No::TrailersLong);
    passes(format!("{head}0\r\nTransfer-Encoding-Of-Old: x\r\nHost-Name: x\r\n\r\n"));
}

#[test]
fn chunk_sizes_do_not_carry_over() {
    // The size of a chunk must not affect the next one.
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let body = format!("{}{}0\r\n\r\n", "a\r\n0123456789\r\n".repeat(20), "0000000000000001\r\nx\r\n");
    passes(format!("{head}{body}GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
}

const UPGRADE: &str = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n\r\n";

#[test]
fn bytes_behind_a_request_are_not_read_before_its_response() {
    let mut server = Server::new(Config::default());
    server.handle_input(format!("{UPGRADE}\u{81}anything\0").as_bytes());
    assert!(server.poll_request().unwrap().is_ok());
    assert_eq!((server.phase(), server.unread_bytes()), (Phase::Response, 11));
    assert!(server.poll_request().is_none());
    respond(&mut server, StatusCode::SWITCHING_PROTOCOLS);
    assert_eq!(server.phase(), Phase::Switched);
    server.handle_input(b"\0");
    assert!(server.poll_request().is_none(), "the connection stays switched");
    assert_eq!(server.into_unread(), "\u{81}anything\0\0");
}

#[test]
fn a_declined_upgrade_leaves_an_ordinary_connection() {
    let mut server = Server::new(Config::default());
    let next = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    server.handle_input(format!("{UPGRADE}{next}\0").as_bytes());
    assert!(server.poll_request().unwrap().is_ok());
    assert!(respond(&mut server, StatusCode::NOT_FOUND), "the connection stays open");
    assert_eq!(written(&mut server), "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n");
    assert!(server.poll_request().unwrap().is_ok());
    respond(&mut server, StatusCode::NO_CONTENT);
    assert_eq!(server.poll_request().unwrap().unwrap_err(), No::ControlCharacter);
}

#[test]
fn requests_that_are_almost_an_upgrade_are_ordinary() {
    for (from, to) in [
        ("GET /chat HTTP/1.1", "POST /chat HTTP/1.1"),
        ("GET /chat HTTP/1.1", "GET /chat HTTP/1.0"),
        ("WebSocket", "h2c"),
        ("WebSocket", "websocket, h2c"),
        ("Upgrade: WebSocket", "Upgrade: websocket\r\nUpgrade: websocket"),
        ("keep-alive, Upgrade", "keep-alive"),
    ] {
        let bytes = UPGRADE.replace(from, to);
        assert_ne!(bytes, UPGRADE);
        passes(format!("{bytes}GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
    }
    for (field, body) in [("Content-Length: 4", "body"), ("Transfer-Encoding: chunked", "4\r\nbody\r\n0\r\n\r\n")] {
        let head = UPGRADE.replace("\r\n\r\n", &format!("\r\n{field}\r\n\r\n"));
        passes(format!("{head}{body}GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
    }
}

#[test]
fn a_refused_connection_has_one_response() {
    let mut server = Server::new(Config::default());
    server.handle_input(b"\0");
    assert!(server.poll_request().unwrap().is_err());
    assert!(server.poll_request().is_none(), "the refusal comes once");
    assert!(!respond(&mut server, StatusCode::BAD_REQUEST), "the connection closes");
    let response = "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    assert_eq!(written(&mut server), response);
    server.handle_input(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(server.poll_request().is_none());
    assert!(!respond(&mut server, StatusCode::SWITCHING_PROTOCOLS));
    assert_eq!((written(&mut server), server.phase()), (String::new(), Phase::Refused));
}

#[test]
fn refusals_have_the_status_of_their_kind() {
    for (refusal, status) in [
        (No::HeadTimeout, StatusCode::REQUEST_TIMEOUT),
        (No::TargetLong, StatusCode::URI_TOO_LONG),
        (No::HeadLong, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE),
        (No::TooManyFields, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE),
        (No::Version, StatusCode::HTTP_VERSION_NOT_SUPPORTED),
        (No::Connect, StatusCode::NOT_IMPLEMENTED),
        (No::UnknownTransferEncoding, StatusCode::NOT_IMPLEMENTED),
        (No::TransferEncoding, StatusCode::BAD_REQUEST),
        (No::BothLengths, StatusCode::BAD_REQUEST),
    ] {
        assert_eq!(refusal.status(), status, "{refusal}");
    }
}
