//! The request that is sent again.
//!
//! The request goes to the service directly, not by an edge. The service trusts what the edge says about a person, so
//! such fields are stripped, also from an edited request. [`MARK`] says that it is a replay: an edge drops fields of
//! strangers that begin like it.

use base64::{Engine as _, prelude::BASE64_STANDARD};

use crate::{
    REDACTED,
    answer::{Problem, Replay},
    inspector::REPLAY_FIELD,
    message::{Exchange, Protocol},
};

/// The field that marks a replay, with the id of the exchange that is sent again.
pub const MARK: &str = REPLAY_FIELD;
/// The longest body of an edited request, in bytes.
const MAX_BODY_BYTES: usize = 8 * 1024 * 1024;
/// The greatest number of fields of an edited request.
const MAX_FIELDS: usize = 512;
/// The longest head, in bytes.
const MAX_HEAD_BYTES: usize = 256 * 1024;

/// Whether a field with this name in lower case is not sent again: hop-by-hop fields (RFC 9110 section 7.6.1), and
/// those by which the edge says who somebody is.
#[must_use]
pub fn is_stripped(name: &str) -> bool {
    let folded: String = name
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' })
        .collect();
    matches!(
        folded.as_str(),
        "connection"
            | "keep-alive"
            | "proxy-connection"
            | "proxy-authorization"
            | "proxy-authenticate"
            | "te"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
            | "expect"
            | "http2-settings"
            | "x-request-id"
    ) || ["x-auth-", "x-sallyport-", "sallyport-token-"].iter().any(|start| folded.starts_with(start))
}

/// The bytes of the request that is sent again.
///
/// # Errors
/// The exchange cannot be sent again, the changes are malformed, or a person must confirm it.
pub fn request(exchange: &Exchange, changes: &Replay) -> Result<Vec<u8>, Problem> {
    check(exchange, changes)?;
    let method = changes.method.as_deref().unwrap_or(&exchange.method);
    let path = changes.path.as_deref().unwrap_or(&exchange.target);
    let is_token = |text: &str| !text.is_empty() && text.bytes().all(is_token_byte);
    if !is_token(method) || method.len() > 32 {
        return Err(unusable("The method is no word of letters."));
    }
    if !path.starts_with('/') && path != "*" || !path.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(unusable(
            "The path must begin with / and have no spaces and no letters beyond ASCII: escape them.",
        ));
    }
    let body = match &changes.body_base64 {
        None => exchange.request.body.bytes.to_vec(),
        Some(text) => BASE64_STANDARD.decode(text).map_err(|_| unusable("The body is no base64."))?,
    };
    if body.len() > MAX_BODY_BYTES {
        return Err(unusable("The body is longer than 8 MiB."));
    }
    let given: Vec<(String, Vec<u8>)> = match &changes.headers {
        Some(headers) => headers.iter().map(|one| (one.name.clone(), one.value.clone().into_bytes())).collect(),
        None => exchange.request.fields.iter().map(|one| (one.name.clone(), one.value.to_vec())).collect(),
    };
    if given.len() > MAX_FIELDS {
        return Err(unusable("The request has more than 512 fields."));
    }
    let is_decoded = changes.body_base64.is_none() && exchange.request.body.is_kept_decoded;
    let mut head = format!("{method} {path} HTTP/1.1\r\n").into_bytes();
    let (mut has_host, mut has_length) = (false, false);
    for (name, value) in given {
        let lower = name.to_ascii_lowercase();
        if !is_token(&name) || !value.iter().all(|byte| *byte == b'\t' || *byte >= b' ' && *byte != 0x7f) {
            return Err(unusable("A header field has a name or a value that HTTP does not allow."));
        }
        if matches!(lower.as_str(), "content-length" | "transfer-encoding") {
            if !std::mem::replace(&mut has_length, true) {
                head.extend_from_slice(format!("{}: {}\r\n", "content-length", body.len()).as_bytes());
            }
            continue;
        }
        let is_host = lower == "host";
        let is_again = is_host && std::mem::replace(&mut has_host, true);
        if is_again
            || is_stripped(&lower)
            || value == REDACTED.as_bytes()
            || (is_decoded && lower == "content-encoding")
        {
            continue;
        }
        head.extend_from_slice(name.as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(&value);
        head.extend_from_slice(b"\r\n");
    }
    if !has_host {
        let host = if exchange.host.bytes().all(|byte| byte.is_ascii_graphic()) { exchange.host.as_str() } else { "" };
        head.extend_from_slice(format!("host: {host}\r\n").as_bytes());
    }
    if !has_length && !body.is_empty() {
        head.extend_from_slice(format!("content-length: {}\r\n", body.len()).as_bytes());
    }
    head.extend_from_slice(format!("{MARK}: {}\r\nconnection: close\r\n\r\n", exchange.id).as_bytes());
    if head.len() > MAX_HEAD_BYTES {
        return Err(unusable("The head of the request is longer than 256 KiB."));
    }
    head.extend_from_slice(&body);
    Ok(head)
}

fn check(exchange: &Exchange, changes: &Replay) -> Result<(), Problem> {
    let request = &exchange.request;
    if request.version.is_empty() {
        return Err(unusable("Only the edge's record of this request is known: it did not reach the service."));
    }
    if exchange.protocol == Protocol::WebSocket {
        return Err(unusable("A WebSocket cannot be sent again: open it anew from its client."));
    }
    if request.version == "HTTP/2" {
        return Err(unusable("The service speaks HTTP/2 here, and requests are sent again over HTTP/1.1 only."));
    }
    if changes.body_base64.is_none() {
        if !request.body.is_complete {
            return Err(unusable("The request's body is not complete: send it again when it has ended, or edit it."));
        }
        if request.body.is_truncated {
            return Err(unusable(
                "The request's body was longer than what is kept: send it again with a body of yours.",
            ));
        }
    }
    if changes.confirm {
        return Ok(());
    }
    let method = changes.method.as_deref().unwrap_or(&exchange.method);
    //= RFC 9110 section 9.2.2
    //# Of the request methods defined by this specification, PUT, DELETE, and safe request methods are idempotent.
    if !matches!(method, "GET" | "HEAD" | "OPTIONS" | "TRACE" | "PUT" | "DELETE") {
        return Err(to_confirm(&format!("The service may do something twice: {method} is not idempotent.")));
    }
    if exchange.is_target_redacted && changes.path.is_none() {
        return Err(to_confirm("Secrets in the query were taken out, so the service gets another request."));
    }
    if request.body.is_redacted && changes.body_base64.is_none() {
        return Err(to_confirm("Secrets in the body were taken out, so the service gets another request."));
    }
    Ok(())
}

fn unusable(detail: &str) -> Problem {
    let title = "It cannot be sent again".to_owned();
    Problem { status: 422, title, detail: detail.to_owned(), needs_confirmation: false }
}

fn to_confirm(detail: &str) -> Problem {
    Problem { status: 409, title: "Confirm it".to_owned(), detail: detail.to_owned(), needs_confirmation: true }
}

fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
