//! The client's side of HTTP/1.1: valid and refused responses, in pieces of any size.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version};
use sallyport_http::{
    RequestHost, RequestId,
    forward::{ClientFields, OurFields},
};
use sallyport_http1::{
    BodyDecoder, Framing, Piece, announced_trailers, chunk_start,
    client::{ReceivedHead, RequestBody, Response, ResponseError, decode_response, encode_request},
    write_last_chunk,
};

/// Reproducible pseudo-random numbers.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }
}

/// Names and values.
type Fields = Vec<(String, Vec<u8>)>;

/// The result of decoding all bytes of an origin.
#[derive(Debug, Default, PartialEq)]
struct Read {
    informational: Vec<u16>,
    head: Option<(Response, Fields)>,
    body: Vec<u8>,
    trailers: Fields,
    is_over: bool,
    rest: Vec<u8>,
    error: Option<ResponseError>,
}

fn listed(fields: &HeaderMap) -> Fields {
    fields.iter().map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect()
}

/// Decodes these pieces, and then the end of the connection.
fn read(method: &Method, pieces: &[&[u8]]) -> Read {
    let (mut read, mut buf, mut searched) = (Read::default(), BytesMut::new(), 0);
    let (mut fields, mut body) = (HeaderMap::new(), None::<BodyDecoder>);
    for piece in pieces {
        buf.extend_from_slice(piece);
        if let Err(error) = advance(method, &mut read, &mut buf, &mut searched, &mut fields, &mut body) {
            read.error = Some(error);
            return read;
        }
    }
    match &mut body {
        Some(body) if !read.is_over => {
            read.is_over = body.set_connection_ended();
            read.error = (!read.is_over).then_some(ResponseError::Incomplete);
        }
        Some(_) => {}
        None => read.error = Some(ResponseError::Incomplete),
    }
    read.rest = buf.to_vec();
    read
}

fn advance(
    method: &Method,
    read: &mut Read,
    buf: &mut BytesMut,
    searched: &mut usize,
    fields: &mut HeaderMap,
    body: &mut Option<BodyDecoder>,
) -> Result<(), ResponseError> {
    while body.is_none() {
        match decode_response(buf, searched, method, fields)? {
            None => return Ok(()),
            Some(ReceivedHead::Informational(status)) => read.informational.push(status.as_u16()),
            Some(ReceivedHead::Final(response)) => {
                read.head = Some((response, listed(fields)));
                *body = Some(BodyDecoder::of_response(response.framing));
            }
        }
    }
    let Some(body) = body else { return Ok(()) };
    while !read.is_over {
        match body.next(buf)? {
            Piece::Data(data) => {
                assert!(!data.is_empty());
                read.body.extend_from_slice(&data);
            }
            Piece::Trailers(trailers) => read.trailers = listed(&trailers),
            Piece::End => read.is_over = true,
            Piece::Missing => break,
        }
        assert!(read.is_over || !body.is_over() || body.next(&mut buf.clone()) == Ok(Piece::End));
    }
    Ok(())
}

fn whole(bytes: &[u8]) -> Read {
    read(&Method::GET, &[bytes])
}

const CHUNKED: &[u8] = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";

fn chunked(body: &[u8]) -> Read {
    whole(&[CHUNKED, body].concat())
}

#[test]
fn responses_end_where_rfc_9112_says() {
    for (method, response, framing, body, keeps) in [
        ("GET", &b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"[..], Framing::Length(0), &b"hello"[..], true),
        (
            "GET",
            b"HTTP/1.1 200 OK\r\ncontent-length: 2, 2\r\nContent-Length: 2\r\n\r\nok",
            Framing::Length(0),
            b"ok",
            true,
        ),
        ("GET", b"HTTP/1.1 200\r\ncontent-length: 0\r\n\r\n", Framing::Length(0), b"", true),
        ("GET", b"HTTP/1.1 200 OK\r\n\r\nuntil the end", Framing::UntilClose, b"until the end", false),
        ("GET", b"HTTP/1.0 200 OK\r\n\r\nuntil the end", Framing::UntilClose, b"until the end", false),
        ("GET", b"HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\nx", Framing::Length(0), b"x", false),
        (
            "GET",
            b"HTTP/1.0 200 OK\r\nconnection: Keep-Alive\r\ncontent-length: 1\r\n\r\nx",
            Framing::Length(0),
            b"x",
            true,
        ),
        (
            "GET",
            b"HTTP/1.1 200 OK\r\nconnection: x, Close\r\ncontent-length: 1\r\n\r\nx",
            Framing::Length(0),
            b"x",
            false,
        ),
        (
            "GET",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            Framing::Chunked,
            b"hello",
            true,
        ),
        ("HEAD", b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", Framing::Length(0), b"", true),
        ("HEAD", b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", Framing::Length(0), b"", true),
        ("GET", b"HTTP/1.1 204 No Content\r\n\r\n", Framing::Length(0), b"", true),
        ("GET", b"HTTP/1.1 304 Not Modified\r\ncontent-length: 7\r\n\r\n", Framing::Length(0), b"", true),
        ("GET", b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\n\r\n", Framing::Length(0), b"", false),
        ("GET", b"\r\nHTTP/1.1 200 OK\ncontent-length: 1\n\nx", Framing::Length(0), b"x", true),
    ] {
        let read = read(&method.parse().unwrap(), &[response]);
        let shown = String::from_utf8_lossy(response);
        assert_eq!(read.error, None, "{shown}");
        let (Response { framing: found, keeps_connection, .. }, _) = read.head.clone().unwrap();
        let of_a_length = matches!((found, framing), (Framing::Length(_), Framing::Length(_)));
        assert!(of_a_length || found == framing, "{found:?} {shown}");
        assert_eq!(
            (keeps_connection, &*read.body, read.is_over, &*read.rest),
            (keeps, body, true, &b""[..]),
            "{shown}"
        );
    }
}

#[test]
fn responses_with_uncertain_end_are_refused() {
    use ResponseError as E;
    for (start, error) in [
        ("content-length: 5\r\ntransfer-encoding: chunked", E::BothLengths),
        ("transfer-encoding: chunked\r\ncontent-length: 5", E::BothLengths),
        ("content-length: 5\r\ncontent-length: 6", E::BadLength),
        ("content-length: 5, 6", E::BadLength),
        ("content-length: +5", E::BadLength),
        ("content-length: 0x5", E::BadLength),
        ("content-length: ", E::BadLength),
        ("content-length: 5,", E::BadLength),
        ("content-length: 9223372036854775808", E::BadLength),
        ("content-length: 99999999999999999999999", E::BadLength),
        ("transfer-encoding: gzip, chunked", E::UnknownTransferEncoding),
        ("transfer-encoding: gzip", E::UnknownTransferEncoding),
        ("transfer-encoding: chunked, chunked", E::UnknownTransferEncoding),
        ("transfer-encoding: chunked\r\ntransfer-encoding: chunked", E::UnknownTransferEncoding),
        ("transfer-encoding: xchunked", E::UnknownTransferEncoding),
        ("transfer-encoding: \"chunked\"", E::UnknownTransferEncoding),
        ("a: b\r\n folded", E::Head(httparse::Error::HeaderName)),
        ("a: b\r\n\tcontent-length: 3", E::Head(httparse::Error::HeaderName)),
        ("content-length : 5", E::Head(httparse::Error::HeaderName)),
        (" content-length: 5", E::Head(httparse::Error::HeaderName)),
        (": 5", E::Head(httparse::Error::HeaderName)),
        ("no colon", E::Head(httparse::Error::HeaderName)),
        ("a: b\rc", E::Head(httparse::Error::HeaderValue)),
        ("a: b\0c", E::Head(httparse::Error::HeaderValue)),
    ] {
        let read = whole(format!("HTTP/1.1 200 OK\r\n{start}\r\n\r\nhello").as_bytes());
        assert_eq!(read.error, Some(error), "{start:?}");
    }
    assert_eq!(whole(b"HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").error, Some(E::UnknownTransferEncoding));
    for garbage in [&b"HTTP/2 200 OK\r\n\r\n"[..], b"SSH-2.0-x\r\n", b"http/1.1 200 OK\r\n\r\n", b"\0"] {
        assert_eq!(whole(garbage).error, Some(E::NotHttp), "{garbage:?}");
    }
    for (start, what) in
        [("HTTP/1.1 20 OK", "two digits"), ("HTTP/1.1  200 OK", "two spaces"), ("HTTP/1.2 200 OK", "1.2")]
    {
        assert!(whole(format!("{start}\r\n\r\n").as_bytes()).error.is_some(), "{what}");
    }
}

#[test]
fn chunks_are_read_strictly() {
    use ResponseError as E;
    let read = chunked(b"5;a=b;c=\"d\"\r\nhello\r\n1 ;x\r\n!\r\n0\r\nX-Sum: 42\r\n\r\nnext");
    assert_eq!((&*read.body, &*read.rest, read.error), (&b"hello!"[..], &b"next"[..], None));
    assert_eq!(read.trailers, [("x-sum".to_owned(), b"42".to_vec())]);
    for (body, error) in [
        ("5\nhello\r\n0\r\n\r\n", E::ChunkSize),
        ("5\r\nhello\n0\r\n\r\n", E::ChunkEnd),
        ("5\r\nhello0\r\n\r\n", E::ChunkEnd),
        ("5\r\nhello\r0\r\n\r\n", E::ChunkEnd),
        ("4\r\nhello\r\n0\r\n\r\n", E::ChunkEnd),
        ("x\r\nhello\r\n", E::ChunkSize),
        ("-5\r\nhello\r\n", E::ChunkSize),
        (" 5\r\nhello\r\n", E::ChunkSize),
        ("0x5\r\nhello\r\n", E::ChunkSize),
        ("5 5\r\nhello\r\n", E::ChunkSize),
        ("5;a\0\r\nhello\r\n", E::ChunkSize),
        ("5;a\rb\r\nhello\r\n", E::ChunkSize),
        ("\r\n", E::ChunkSize),
        (";a\r\n", E::ChunkSize),
        ("00000000000000005\r\nhello\r\n", E::ChunkSize),
        ("8000000000000000\r\n", E::ChunkSize),
        ("ffffffffffffffff\r\n", E::ChunkSize),
        ("0\r\na: b\n\r\n", E::Trailers),
        ("0\r\na: b\r\n\n", E::Trailers),
        ("0\r\na : b\r\n\r\n", E::Trailers),
        ("0\r\nno colon\r\n\r\n", E::Trailers),
        ("5\r\nhel", E::Incomplete),
        ("5\r\nhello\r\n", E::Incomplete),
        ("5\r\nhello\r\n0\r\n", E::Incomplete),
        ("5\r\nhello\r\n0\r\na: b\r\n", E::Incomplete),
    ] {
        assert_eq!(chunked(body.as_bytes()).error, Some(error), "{body:?}");
    }
    let zeros = chunked(b"0005\r\nhello\r\n000\r\n\r\n");
    assert_eq!((&*zeros.body, zeros.is_over), (&b"hello"[..], true));
}

#[test]
fn heads_chunk_lines_and_trailers_are_bounded() {
    use ResponseError as E;
    let fields = |count: usize| (0..count).map(|n| format!("x{n}: y\r\n")).collect::<String>();
    let head = |count| format!("HTTP/1.1 204 No Content\r\n{}\r\n", fields(count));
    assert_eq!(whole(head(100).as_bytes()).error, None);
    assert_eq!(whole(head(101).as_bytes()).error, Some(E::Head(httparse::Error::TooManyHeaders)));
    let long = |bytes| format!("HTTP/1.1 204 No Content\r\na: {}\r\n\r\n", "x".repeat(bytes));
    assert_eq!(whole(long(200_000).as_bytes()).error, None);
    assert_eq!(whole(long(262_144).as_bytes()).error, Some(E::HeadLong));
    assert_eq!(whole(&long(300_000).as_bytes()[..270_000]).error, Some(E::HeadLong));
    let line = |bytes| format!("1;{}\r\nx\r\n", "e".repeat(bytes));
    assert_eq!(chunked(format!("{}0\r\n\r\n", line(1_000)).as_bytes()).error, None);
    assert_eq!(chunked(line(1_100).as_bytes()).error, Some(E::ChunkLineLong));
    assert_eq!(chunked(&line(2_000).as_bytes()[..1_500]).error, Some(E::ChunkLineLong));
    assert_eq!(chunked(line(1_000).repeat(9).as_bytes()).error, Some(E::ChunkLineLong));
    assert_eq!(chunked(format!("0\r\n{}\r\n", fields(64)).as_bytes()).error, None);
    assert_eq!(chunked(format!("0\r\n{}\r\n", fields(65)).as_bytes()).error, Some(E::TrailersLong));
    assert_eq!(chunked(format!("0\r\na: {}\r\n\r\n", "x".repeat(8_192)).as_bytes()).error, Some(E::TrailersLong));
    assert_eq!(chunked(format!("0\r\na: {}", "x".repeat(8_192)).as_bytes()).error, Some(E::TrailersLong));
}

#[test]
fn informational_heads_leave_the_fields_unchanged() {
    let mut buf = BytesMut::from(&b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"[..]);
    let mut fields = HeaderMap::from_iter([(HeaderName::from_static("host"), HeaderValue::from_static("a"))]);
    for status in [StatusCode::CONTINUE, StatusCode::EARLY_HINTS] {
        let head = decode_response(&mut buf, &mut 0, &Method::GET, &mut fields);
        assert_eq!(head, Ok(Some(ReceivedHead::Informational(status))));
    }
    assert_eq!(decode_response(&mut buf, &mut 0, &Method::GET, &mut fields), Ok(None));
    assert_eq!(fields["host"], "a");
    buf.extend_from_slice(b"HTTP/1.1 204 No Content\r\nx: y\r\n\r\n");
    assert!(matches!(decode_response(&mut buf, &mut 0, &Method::GET, &mut fields), Ok(Some(ReceivedHead::Final(_)))));
    assert_eq!(listed(&fields), [("x".to_owned(), b"y".to_vec())]);
}

#[test]
fn small_bodies_are_returned_in_one_piece_without_a_copy() {
    let mut buf = BytesMut::from(&b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"[..]);
    let address = buf[buf.len() - 5..].as_ptr();
    let Ok(Some(ReceivedHead::Final(response))) =
        decode_response(&mut buf, &mut 0, &Method::GET, &mut HeaderMap::new())
    else {
        panic!("no response");
    };
    let mut body = BodyDecoder::of_response(response.framing);
    let Ok(Piece::Data(data)) = body.next(&mut buf) else { panic!("no data") };
    assert_eq!((data.as_ptr(), &*data, body.is_over()), (address, &b"hello"[..], true));
    // The last data comes together with the end of the body.
    let mut body = BodyDecoder::of_response(Framing::Chunked);
    let mut buf = BytesMut::from(&b"5\r\nhello\r\n0\r\n\r\n"[..]);
    assert_eq!((body.next(&mut buf), body.is_over()), (Ok(Piece::Data(Bytes::from_static(b"hello"))), true));
}

#[test]
fn encoded_chunks_are_decoded_to_the_same_body() {
    let mut numbers = Numbers(1);
    for _ in 0..200 {
        let chunks: Vec<Vec<u8>> = (0..numbers.below(5))
            .map(|_| {
                let bytes = 1 + numbers.below(300);
                (0..bytes).map(|_| b"\r\n0a;"[numbers.below(5)]).collect()
            })
            .collect();
        let announced = HeaderMap::from_iter([(http::header::TRAILER, HeaderValue::from_static("x-sum"))]);
        let trailers = HeaderMap::from_iter([(HeaderName::from_static("x-sum"), HeaderValue::from_static("1"))]);
        let has_trailers = numbers.below(2) == 0;
        let mut out = BytesMut::from(CHUNKED);
        for chunk in &chunks {
            out.extend_from_slice(chunk_start(chunk.len()).as_bytes());
            out.extend_from_slice(chunk);
            out.extend_from_slice(b"\r\n");
        }
        write_last_chunk(&mut out, has_trailers.then_some(&trailers), &announced_trailers(&announced));
        let read = whole(&out);
        assert_eq!((read.body, read.error, read.is_over), (chunks.concat(), None, true));
        assert_eq!(read.trailers.len(), usize::from(has_trailers));
    }
}

#[test]
fn an_encoded_request_is_parsed_by_another_parser() {
    let mut out = BytesMut::new();
    let fields = HeaderMap::from_iter([(http::header::HOST, HeaderValue::from_static("a"))]);
    let client = ClientFields::new(([192, 0, 2, 1], 7).into(), "https", 443);
    let host = RequestHost::from_value(&fields[http::header::HOST]).unwrap();
    let ours = OurFields {
        client: &client,
        host: &host,
        request_id: &RequestId::from_random([7; 16]),
        version: Version::HTTP_11,
    };
    encode_request(&mut out, &Method::PUT, &"/x".parse().unwrap(), &fields, Some(&ours), RequestBody::Length(12));
    let mut room = [httparse::EMPTY_HEADER; 16];
    let mut head = httparse::Request::new(&mut room);
    assert_eq!(head.parse(&out).unwrap(), httparse::Status::Complete(out.len()));
    assert_eq!((head.method, head.path, head.version, head.headers.len()), (Some("PUT"), Some("/x"), Some(1), 10));
}

/// Random bytes that resemble a response.
fn generated(numbers: &mut Numbers) -> Vec<u8> {
    const PARTS: [&[u8]; 30] = [
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 204 No Content\r\n",
        b"HTTP/1.0 200 OK\r\n",
        b"transfer-encoding: chunked\r\n",
        b"transfer-encoding: chunked\r\n\r\n",
        b"content-length: 7\r\n",
        b"content-length: 7\r\n\r\n",
        b"connection: close\r\n",
        b"x: y\r\n",
        b" folded\r\n",
        b"\r\n",
        b"\n",
        b"\r",
        b"5\r\nhello\r\n",
        b"a;b=c\r\n0123456789\r\n",
        b"0\r\n\r\n",
        b"0\r\nx-sum: 1\r\n\r\n",
        b"0\r\n",
        b"x-sum: 1\r\n\r\n",
        b"hello w",
        b"1",
        b"f",
        b";",
        b"\0",
        b"\r\n\r\n",
        b"10\r\n0123456789abcdef\r\n",
        b":",
        b" ",
        b"0",
    ];
    let mut bytes = match numbers.below(4) {
        0 => CHUNKED.to_vec(),
        1 => b"HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\n".to_vec(),
        2 => b"HTTP/1.1 200 OK\r\n".to_vec(),
        _ => Vec::new(),
    };
    for _ in 0..numbers.below(8) {
        bytes.extend_from_slice(PARTS[numbers.below(PARTS.len())]);
    }
    bytes
}

#[test]
fn decoding_does_not_depend_on_the_pieces() {
    let mut numbers = Numbers(7);
    let (mut good, mut bad) = (0, 0);
    for round in 0..20_000 {
        let bytes = generated(&mut numbers);
        let method = [Method::GET, Method::HEAD][numbers.below(2)].clone();
        let at_once = read(&method, &[&bytes]);
        let mut pieces: Vec<&[u8]> = Vec::new();
        let mut rest = &bytes[..];
        let most = [1, 3, 40][round % 3];
        while !rest.is_empty() {
            let (piece, others) = rest.split_at((1 + numbers.below(most)).min(rest.len()));
            pieces.push(piece);
            rest = others;
        }
        let in_pieces = read(&method, &pieces);
        if at_once.error.is_some() {
            bad += 1;
            // The pieces before the error may have been returned, and the error may differ.
            assert!(in_pieces.error.is_some(), "{:?}", String::from_utf8_lossy(&bytes));
            continue;
        }
        good += usize::from(at_once.is_over);
        assert_eq!(in_pieces, at_once, "{:?}", String::from_utf8_lossy(&bytes));
    }
    assert!(good > 1_000 && bad > 1_000, "{good} {bad}");
}
