//! Encodes the head of a request.

use bytes::{BufMut, BytesMut};
use http::{
    HeaderMap, Method, Uri,
    header::{CONTENT_LENGTH, TRANSFER_ENCODING},
};
use sallyport_http::forward::OurFields;

use crate::{chunk_encode::put_field, decimal::put_decimal};

/// The framing of a request body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestBody {
    /// The request has no body.
    None,
    /// The body has this many bytes.
    Length(u64),
    /// The body is chunked.
    Chunked,
}

/// Writes the head of an HTTP/1.1 request, for a persistent connection.
///
/// The target is the path with its query. `ours` has fields that `headers` does not have. `body` decides on the framing
/// fields; those of `headers` are ignored. A request without a body keeps a `Content-Length`, as 0.
pub fn encode_request(
    out: &mut BytesMut,
    method: &Method,
    target: &Uri,
    headers: &HeaderMap,
    ours: Option<&OurFields<'_>>,
    body: RequestBody,
) {
    let target = target.path_and_query().map_or("/", |path| path.as_str());
    let fields: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    out.reserve(method.as_str().len() + target.len() + fields + ours.map_or(0, OurFields::bytes) + 64);
    out.put_slice(method.as_str().as_bytes());
    out.put_u8(b' ');
    out.put_slice(target.as_bytes());
    out.put_slice(b" HTTP/1.1\r\n");
    let mut has_length = false;
    for (name, value) in headers {
        if *name == CONTENT_LENGTH {
            has_length = true;
        } else if *name != TRANSFER_ENCODING {
            put_field(out, name, value.as_bytes());
        }
    }
    if let Some(ours) = ours {
        ours.write(out);
    }
    match body {
        RequestBody::None if has_length => out.put_slice(b"content-length: 0\r\n"),
        RequestBody::None => {}
        RequestBody::Length(bytes) => {
            out.put_slice(b"content-length: ");
            put_decimal(out, bytes);
            out.put_slice(b"\r\n");
        }
        RequestBody::Chunked => out.put_slice(b"transfer-encoding: chunked\r\n"),
    }
    out.put_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, Version};
    use sallyport_http::{RequestHost, RequestId, forward::ClientFields};

    use super::*;
    use crate::chunk_encode::tests::fields;

    const OURS: &str = "x-forwarded-for: 192.0.2.1\r\nx-real-ip: 192.0.2.1\r\nx-forwarded-proto: https\r\n\
                        x-forwarded-port: 443\r\nforwarded: for=192.0.2.1;proto=https;host=\"a\"\r\n\
                        x-forwarded-host: a\r\nx-request-id: 07070707070707070707070707070707\r\n\
                        via: 1.1 sallyport\r\n";

    fn written(method: &Method, target: &str, headers: &HeaderMap, body: RequestBody) -> String {
        let client = ClientFields::new(([192, 0, 2, 1], 7).into(), "https", 443);
        let host = RequestHost::from_value(&HeaderValue::from_static("a")).unwrap();
        let ours = OurFields {
            client: &client,
            host: &host,
            request_id: &RequestId::from_random([7; 16]),
            version: Version::HTTP_11,
        };
        let mut out = BytesMut::new();
        encode_request(&mut out, method, &target.parse().unwrap(), headers, Some(&ours), body);
        let head = String::from_utf8(out.to_vec()).unwrap();
        let (start, end) = head.split_once(OURS).expect("what is ours is there");
        format!("{start}{end}")
    }

    #[test]
    fn a_head_has_one_framing() {
        let headers = fields(&[("host", "a"), ("content-length", "7"), ("x", "1"), ("x", "2")]);
        let start = "POST /p?q HTTP/1.1\r\nhost: a\r\nx: 1\r\nx: 2\r\n";
        for (body, framing) in [
            (RequestBody::None, "content-length: 0\r\n\r\n"),
            (RequestBody::Length(u64::MAX), "content-length: 18446744073709551615\r\n\r\n"),
            (RequestBody::Length(0), "content-length: 0\r\n\r\n"),
            (RequestBody::Chunked, "transfer-encoding: chunked\r\n\r\n"),
        ] {
            assert_eq!(written(&Method::POST, "/p?q", &headers, body), format!("{start}{framing}"));
        }
        let bare = fields(&[("host", "a"), ("transfer-encoding", "gzip")]);
        assert_eq!(written(&Method::GET, "/", &bare, RequestBody::None), "GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    }

    #[test]
    fn a_target_is_in_origin_or_asterisk_form() {
        let bare = HeaderMap::new();
        for (target, sent) in [("*", "*"), ("/", "/"), ("http://host/p?q=1", "/p?q=1"), ("http://host", "/")] {
            let head = written(&Method::OPTIONS, target, &bare, RequestBody::None);
            assert_eq!(head, format!("OPTIONS {sent} HTTP/1.1\r\n\r\n"));
        }
    }
}
