//! A request, made from the places of its parts in the bytes of its head.

use std::ops::Range;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version, request::Parts, uri::PathAndQuery};
use sallyport_http::RequestRefusal;

/// Where the parts of a request line are, in bytes from the head's first byte.
#[derive(Debug, Clone)]
pub(super) struct RequestLine {
    pub(super) method: Range<usize>,
    pub(super) target: Range<usize>,
    /// Host and port of a target in absolute form.
    pub(super) authority: Option<Range<usize>>,
    pub(super) is_http10: bool,
}

/// Where a field is, in bytes from the head's first byte. The colon follows the name.
#[derive(Debug, Clone, Copy)]
pub(super) struct FieldSpan {
    pub(super) start: usize,
    pub(super) name_bytes: usize,
    pub(super) value_start: usize,
    pub(super) value_bytes: usize,
}

/// Makes the request. Its values stay in the memory of `head`. `fields` is cleared, and its memory used.
///
/// # Errors
/// The target has a form that the type for it cannot hold.
pub(super) fn build(
    head: &Bytes,
    line: &RequestLine,
    spans: &[FieldSpan],
    mut fields: HeaderMap,
) -> Result<Parts, RequestRefusal> {
    let method = Method::from_bytes(&head[line.method.clone()]).map_err(|_| RequestRefusal::RequestLine)?;
    let target = Uri::from_maybe_shared(head.slice(line.target.clone())).map_err(|_| RequestRefusal::Target)?;
    fields.clear();
    fields.reserve(spans.len());
    for span in spans {
        let name = &head[span.start..span.start + span.name_bytes];
        let name = HeaderName::from_bytes(name).map_err(|_| RequestRefusal::FieldName)?;
        let value = head.slice(span.value_start..span.value_start + span.value_bytes);
        fields.append(name, HeaderValue::from_maybe_shared(value).map_err(|_| RequestRefusal::ControlCharacter)?);
    }
    let (mut parts, ()) = Request::new(()).into_parts();
    parts.uri = match &line.authority {
        Some(authority) => with_path(&method, &head[authority.end..line.target.end], target),
        None => target,
    };
    (parts.method, parts.headers) = (method, fields);
    parts.version = if line.is_http10 { Version::HTTP_10 } else { Version::HTTP_11 };
    Ok(parts)
}

/// A target in absolute form, with the path that it leaves out. `rest` follows the authority.
//= RFC 9112 section 3.2.1
//# If the target URI's path component is empty, the client MUST send "/" as the path within the origin-form of
//# request-target.
//= RFC 9112 section 3.2.4
//# If a proxy receives an OPTIONS request with an absolute-form of request-target in which the URI has an empty path
//# and no query component, then the last proxy on the request chain MUST send a request-target of "*"
fn with_path(method: &Method, rest: &[u8], target: Uri) -> Uri {
    let path = match rest.first() {
        None if *method == Method::OPTIONS => PathAndQuery::from_static("*"),
        Some(b'?') => match PathAndQuery::try_from([b"/", rest].concat()) {
            Ok(path) => path,
            Err(_) => return target,
        },
        _ => return target,
    };
    let mut parts = target.clone().into_parts();
    parts.path_and_query = Some(path);
    Uri::from_parts(parts).unwrap_or(target)
}
