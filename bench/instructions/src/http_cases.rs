//! The rules of HTTP at the edge, and the choice of an origin.

use std::{hint::black_box, io::IoSlice, net::SocketAddr};

use bytes::BytesMut;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, Version};
use sallyport_balance::Rotation;
use sallyport_http::{
    RequestHost, RequestId,
    forward::{self, ClientFields, ForwardContext, NextHop, OurFields},
    refuse::check_request,
};
use sallyport_http1::{
    Piece,
    client::{RequestBody, encode_request},
    server::{Config, ResponseHead, Server},
};

use crate::Case;

pub(crate) const CASES: &[Case] = &[
    Case { name: "http1_request", rounds: 2_000, prepare: http1_request },
    Case { name: "http1_small_request", rounds: 5_000, prepare: http1_small_request },
    Case { name: "http1_chunked_64k", rounds: 500, prepare: http1_chunked },
    Case { name: "http_check_request", rounds: 5_000, prepare: check },
    Case { name: "http_forward_request", rounds: 2_000, prepare: forward_request },
    Case { name: "http_forward_answer", rounds: 5_000, prepare: forward_answer },
    Case { name: "http_request_id", rounds: 5_000, prepare: request_id },
    Case { name: "balance_choose_of_8", rounds: 5_000, prepare: choose },
];

/// How much is read at once, in bytes. Valgrind counts a longer copy byte by byte.
const READ_BYTES: usize = 1_024;
const NO_CONTENT: &str = "HTTP/1.1 204 No Content\r\n\r\n";
const HOST: &str = "wandering-shape-7752.example.com";
/// What a browser sends beside the request line and the host.
const FIELDS: &[(&str, &str)] = &[
    ("user-agent", "Mozilla/5.0 (X11; Linux x86_64; rv:143.0) Gecko/20100101 Firefox/143.0"),
    ("accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"),
    ("accept-language", "en-US,en;q=0.5"),
    ("accept-encoding", "gzip, deflate, br, zstd"),
    ("connection", "keep-alive"),
    ("cookie", "session=6f1d2c3b4a5968778695a4b3c2d1e0f0; theme=dark"),
    ("upgrade-insecure-requests", "1"),
    ("sec-fetch-dest", "document"),
    ("sec-fetch-mode", "navigate"),
    ("sec-fetch-site", "none"),
];

fn browser_head() -> Vec<u8> {
    let fields: String = FIELDS.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("GET /products/42?color=green HTTP/1.1\r\nHost: {HOST}\r\n{fields}\r\n").into_bytes()
}

fn browser_fields() -> HeaderMap {
    let host = (HeaderName::from_static("host"), HeaderValue::from_static(HOST));
    let rest = FIELDS.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
    std::iter::once(host).chain(rest).collect()
}

/// Reads a request with its body, and responds without one.
fn serve(server: &mut Server, bytes: &[u8], fields: &HeaderMap) {
    let (head, body) = bytes.split_at(bytes.len().min(READ_BYTES));
    server.handle_input(black_box(head));
    let request = server.poll_request().and_then(Result::ok).expect("a whole request");
    let mut reads = body.chunks(READ_BYTES);
    while !server.is_body_over() {
        match server.poll_body().expect("a faultless body") {
            Piece::Missing => server.handle_input(black_box(reads.next().expect("a whole body"))),
            piece => drop(black_box(piece)),
        }
    }
    let head = ResponseHead { status: StatusCode::NO_CONTENT, fields, length: Some(0), may_persist: true };
    assert!(server.send_head(&head));
    let bytes = server.output().slices(&mut [IoSlice::new(&[])]);
    assert_eq!(bytes, 1);
    server.output().mark_written(NO_CONTENT.len());
    server.recycle(request.head.headers);
}

/// A browser's request.
fn http1_request() -> Box<dyn FnMut()> {
    let (mut server, head, fields) = (Server::new(Config::default()), browser_head(), HeaderMap::new());
    Box::new(move || serve(&mut server, &head, &fields))
}

/// The request of a load generator.
fn http1_small_request() -> Box<dyn FnMut()> {
    let (mut server, fields) = (Server::new(Config::default()), HeaderMap::new());
    let head = format!("GET /100b HTTP/1.1\r\nHost: {HOST}\r\n\r\n").into_bytes();
    Box::new(move || serve(&mut server, &head, &fields))
}

/// An upload of 64 KiB in chunks of 8 KiB.
fn http1_chunked() -> Box<dyn FnMut()> {
    let (mut server, fields) = (Server::new(Config::default()), HeaderMap::new());
    let mut bytes = format!("POST /upload HTTP/1.1\r\nHost: {HOST}\r\nTransfer-Encoding: chunked\r\n\r\n").into_bytes();
    for _ in 0..8 {
        bytes.extend_from_slice(b"2000\r\n");
        bytes.extend_from_slice(&[b'u'; 8_192]);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    Box::new(move || serve(&mut server, &bytes, &fields))
}

/// A parsed request: refuse it, or say whose it is.
fn check() -> Box<dyn FnMut()> {
    let (uri, fields) = (Uri::from_static("/products/42?color=green"), browser_fields());
    Box::new(move || {
        black_box(check_request(&Method::GET, black_box(&uri), Version::HTTP_11, &fields, None).unwrap());
    })
}

/// The header fields for the origin, with the copy that is changed, and the head that is made of them.
fn forward_request() -> Box<dyn FnMut()> {
    let fields = browser_fields();
    let client = ClientFields::new(SocketAddr::from(([192, 0, 2, 1], 40_000)), "https", 443);
    let host = RequestHost::from_value(&HeaderValue::from_static(HOST)).unwrap();
    let (request_id, uri) = (RequestId::from_random([9; 16]), Uri::from_static("/products/42?color=green"));
    let mut head = BytesMut::new();
    Box::new(move || {
        let mut copy = fields.clone();
        let ours = OurFields { client: &client, host: &host, request_id: &request_id, version: Version::HTTP_11 };
        let context = ForwardContext { ours, websocket: false, origin: NextHop::Http1 };
        forward::request_headers(&mut copy, black_box(&context));
        head.clear();
        encode_request(&mut head, &Method::GET, &uri, &copy, Some(&ours), RequestBody::None);
        black_box((copy, &head));
    })
}

/// The header fields for the client, with the copy that is changed.
fn forward_answer() -> Box<dyn FnMut()> {
    let fields: HeaderMap = [
        ("server", "nginx/1.22.1"),
        ("date", "Fri, 20 Nov 2026 22:00:34 GMT"),
        ("content-type", "text/html; charset=utf-8"),
        ("content-length", "12345"),
        ("connection", "keep-alive"),
        ("etag", "\"6f1d2c3b-3039\""),
        ("cache-control", "max-age=600"),
    ]
    .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
    .into_iter()
    .collect();
    let request_id = RequestId::from_random([9; 16]).header_value();
    Box::new(move || {
        let mut copy = fields.clone();
        forward::response_headers(&mut copy, black_box(&request_id), false);
        black_box(copy);
    })
}

fn request_id() -> Box<dyn FnMut()> {
    Box::new(|| {
        black_box(RequestId::from_random(black_box([9; 16])).header_value());
    })
}

/// Eight origins with the same load.
fn choose() -> Box<dyn FnMut()> {
    let (mut rotation, origins) = (Rotation::new(), [0_u64, 1, 2, 3, 4, 5, 6, 7]);
    Box::new(move || {
        black_box(rotation.choose(black_box(&origins), |origin| *origin, |_| 3, |_| true).unwrap());
    })
}
