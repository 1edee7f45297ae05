//! What the streams of HTTP/2 and HTTP/3 do alike.

use http::{
    HeaderName, HeaderValue,
    header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING, UPGRADE},
    request, response,
};
use http_body::Body as _;
use sallyport_http::RequestRefusal;
use sallyport_http2::HeadRefusal;

use crate::{http::response_body::ResponseBody, util::http_date::date};

/// How many bytes a client must take at once to count as reading its response.
pub(crate) const MIN_PROGRESS_BYTES: usize = 1_024;
/// How many requests run at once on one connection.
pub(crate) const MAX_CONCURRENT_STREAMS: u32 = 200;
/// The longest header list, in bytes as RFC 9113 section 6.5.2 and RFC 9114 section 4.2.2 count them.
pub(crate) const MAX_HEADER_LIST_BYTES: u32 = 65_536;
/// How many bytes one stream may send ahead of the origin.
pub(crate) const STREAM_WINDOW_BYTES: u32 = crate::body::h3::STREAM_WINDOW_BYTES as u32;
/// How many bytes all streams of a connection may send ahead.
pub(crate) const CONNECTION_WINDOW_BYTES: u32 = 4 * 1024 * 1024;
/// The fields that are specific to an HTTP/1 connection (RFC 9113 section 8.2.2, RFC 9114 section 4.2).
const HTTP1_ONLY_FIELDS: [HeaderName; 5] = [
    CONNECTION,
    TRANSFER_ENCODING,
    UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// Marks a request with the reason why its head is refused, if any.
pub(crate) fn set_refusal(head: &mut request::Parts, refusal: Option<HeadRefusal>) {
    if let Some(refusal) = refusal {
        head.extensions.insert(match refusal {
            HeadRefusal::TooLong => RequestRefusal::HeadLong,
            HeadRefusal::Target => RequestRefusal::Target,
        });
    }
}

/// Completes the head of a response. Returns whether the response ends with its head.
pub(crate) fn finish_head(head: &mut response::Parts, body: &ResponseBody) -> bool {
    date(&mut head.headers);
    if !body.is_from_origin() {
        // Responses of origins have lost these fields before.
        HTTP1_ONLY_FIELDS.iter().for_each(|name| drop(head.headers.remove(name)));
    }
    let ends = body.is_end_stream();
    if !ends
        && let Some(length @ 1..) = body.size_hint().exact()
        && !head.headers.contains_key(CONTENT_LENGTH)
    {
        head.headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    ends
}
