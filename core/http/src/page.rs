//! What a client sees when something goes wrong: a page for people, JSON for programs, a line of text for terminals,
//! a status for gRPC.

use std::borrow::Cow;

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Response, StatusCode,
    header::{
        ACCEPT, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE,
        X_CONTENT_TYPE_OPTIONS,
    },
};
use serde::Serialize;

use crate::{RequestRefusal, forward::X_REQUEST_ID};

/// What went wrong, in words for the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem<'a> {
    /// The status of the answer.
    pub status: StatusCode,
    /// What it is, in a few words: "No such name".
    pub title: Cow<'a, str>,
    /// What happened, in one sentence.
    pub detail: Cow<'a, str>,
    /// What the reader can do about it, in one sentence; empty when there is nothing.
    pub next_step: Cow<'a, str>,
    /// The request's id, to find it in the log.
    pub request_id: &'a str,
}

/// How a problem is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A small page of its own, for browsers.
    Html,
    /// `application/problem+json` (RFC 9457).
    Json,
    /// One or two sentences, for terminals and everything else.
    Text,
    /// Header fields alone, for gRPC clients.
    Grpc,
}

impl Format {
    /// The format that the client of a request understands best: gRPC calls get their status, whoever lists
    /// `text/html` gets HTML, whoever lists a JSON type gets JSON, all others get text.
    #[must_use]
    pub fn wanted(headers: &HeaderMap) -> Self {
        if crate::forward::is_grpc(headers) {
            return Self::Grpc;
        }
        let lists = |wanted: fn(&str) -> bool| {
            headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).any(|value| {
                value.split(',').any(|item| {
                    let mut parts = item.split(';').map(str::trim);
                    let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
                    wanted(&kind) && !parts.any(is_zero_weight)
                })
            })
        };
        if lists(|kind| kind == "text/html" || kind == "application/xhtml+xml") {
            Self::Html
        } else if lists(|kind| kind == "application/json" || kind.ends_with("+json")) {
            Self::Json
        } else {
            Self::Text
        }
    }
}

/// Whether a parameter of an Accept item says that the item is not wanted (RFC 9110 section 12.4.2).
fn is_zero_weight(parameter: &str) -> bool {
    parameter.strip_prefix(['q', 'Q']).and_then(|rest| rest.trim_start().strip_prefix('=')).is_some_and(|weight| {
        let weight = weight.trim();
        weight.starts_with('0') && weight.bytes().all(|byte| matches!(byte, b'0' | b'.'))
    })
}

impl<'a> Problem<'a> {
    /// The problem of a request that is refused for its form.
    #[must_use]
    pub fn refused(refusal: RequestRefusal, request_id: &'a str) -> Self {
        let status = refusal.status();
        let reason = refusal.to_string();
        let mut letters = reason.chars();
        let detail = letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect());
        Self {
            status,
            title: status.canonical_reason().unwrap_or("Bad Request").into(),
            detail: (detail + ".").into(),
            next_step: "Correct the request before it is sent again.".into(),
            request_id,
        }
    }

    /// The answer: status, header fields and body. It is never cached and loads nothing.
    #[must_use]
    pub fn respond(&self, format: Format) -> Response<Bytes> {
        let body = self.body(format);
        let mut response = Response::new(body);
        *response.status_mut() = if format == Format::Grpc { StatusCode::OK } else { self.status };
        let length = response.body().len();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type(format)));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Ok(id) = HeaderValue::from_str(self.request_id) {
            headers.insert(X_REQUEST_ID, id);
        }
        if format == Format::Grpc {
            let (code, message) = self.grpc_status();
            headers.insert(HeaderName::from_static("grpc-status"), HeaderValue::from(code));
            headers.insert(HeaderName::from_static("grpc-message"), message);
            return response;
        }
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if format == Format::Html {
            headers.insert(
                CONTENT_SECURITY_POLICY,
                HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"),
            );
        }
        response
    }

    /// A whole HTTP/1.1 answer as bytes, after which the connection is closed: for a client whose request no server
    /// could read. `date` is the current time as an HTTP date (RFC 9110 section 5.6.7).
    #[must_use]
    pub fn closing_bytes(&self, date: &str) -> Vec<u8> {
        let mut response = self.respond(Format::Text);
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        if let Ok(date) = HeaderValue::from_str(date) {
            response.headers_mut().insert(http::header::DATE, date);
        }
        let mut bytes = format!("HTTP/1.1 {}\r\n", self.status).into_bytes();
        for (name, value) in response.headers() {
            bytes.extend_from_slice(name.as_str().as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value.as_bytes());
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(response.body());
        bytes
    }

    /// The body in the given format.
    #[must_use]
    pub fn body(&self, format: Format) -> Bytes {
        match format {
            Format::Html => self.html().into(),
            Format::Json => self.json().into(),
            Format::Text => self.text().into(),
            Format::Grpc => Bytes::new(),
        }
    }

    fn text(&self) -> String {
        let Self { title, detail, next_step, request_id, .. } = self;
        let space = if next_step.is_empty() { "" } else { " " };
        format!("{title}: {detail}{space}{next_step} (request {request_id})\n")
    }

    fn json(&self) -> Vec<u8> {
        #[derive(Serialize)]
        struct Json<'a> {
            r#type: &'a str,
            title: &'a str,
            status: u16,
            detail: &'a str,
            #[serde(skip_serializing_if = "str::is_empty")]
            next_step: &'a str,
            request_id: &'a str,
        }
        let json = Json {
            r#type: "about:blank",
            title: &self.title,
            status: self.status.as_u16(),
            detail: &self.detail,
            next_step: &self.next_step,
            request_id: self.request_id,
        };
        serde_json::to_vec(&json).unwrap_or_default()
    }

    fn html(&self) -> String {
        let detail = Escaped(&self.detail);
        let next_step = Escaped(&self.next_step);
        frame(self.status, &self.title, &format!("<p>{detail}</p>\n<p>{next_step}</p>"), self.request_id)
    }

    /// The gRPC status code and message.
    fn grpc_status(&self) -> (u32, HeaderValue) {
        let code = grpc_status(self.status);
        let mut message = String::with_capacity(self.detail.len());
        //= gRPC over HTTP2, Responses
        //# Percent-Byte-Unencoded -> 1*( %x20-%x24 / %x26-%x7E )
        for byte in self.detail.bytes() {
            match byte {
                b'%' => message.push_str("%25"),
                b' '..=b'~' => message.push(char::from(byte)),
                _ => message.push_str(&format!("%{byte:02X}")),
            }
        }
        (code, HeaderValue::try_from(message).unwrap_or(HeaderValue::from_static("")))
    }
}

/// A page of ours that is more than a problem: something to read and something to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<'a> {
    /// The status of the answer.
    pub status: StatusCode,
    /// What it is, in a few words.
    pub title: Cow<'a, str>,
    /// What it says.
    pub paragraphs: Vec<Cow<'a, str>>,
    /// What the reader can do.
    pub action: Option<Action<'a>>,
    /// The request's id, to find it in the log.
    pub request_id: &'a str,
}

/// What a reader can do on a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action<'a> {
    /// Go to this address.
    Link {
        /// The address.
        href: Cow<'a, str>,
        /// What the link says.
        label: Cow<'a, str>,
    },
    /// Press a button, which sends a POST to this path of the same host.
    Button {
        /// The path.
        path: Cow<'a, str>,
        /// What the button says.
        label: Cow<'a, str>,
        /// To which other origin the answer to the POST may lead on, such as `https://login.example.com`; empty for none.
        leads_to: Cow<'a, str>,
    },
}

impl Page<'_> {
    /// The answer: status, header fields and body. It is never cached and loads nothing.
    #[must_use]
    pub fn respond(&self) -> Response<Bytes> {
        let mut text: String = self.paragraphs.iter().map(|text| format!("<p>{}</p>\n", Escaped(text))).collect();
        let mut form_action = "'none'".to_owned();
        match &self.action {
            Some(Action::Link { href, label }) => {
                text.push_str(&format!("<p><a href=\"{}\">{}</a></p>", Escaped(href), Escaped(label)));
            }
            Some(Action::Button { path, label, leads_to }) => {
                form_action = format!("'self' {leads_to}");
                text.push_str(&format!(
                    "<form method=\"post\" action=\"{}\"><button>{}</button></form>",
                    Escaped(path),
                    Escaped(label)
                ));
            }
            None => {}
        }
        let mut response = Response::new(Bytes::from(frame(self.status, &self.title, &text, self.request_id)));
        *response.status_mut() = self.status;
        let policy = format!(
            "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'; form-action \
             {form_action}"
        );
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type(Format::Html)));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        // With `no-referrer` a browser would hide the origin of a form from the very host that the page is of.
        headers.insert(http::header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
        let fields = [(CONTENT_SECURITY_POLICY, policy.as_str()), (X_REQUEST_ID, self.request_id)];
        for (name, value) in fields {
            if let Ok(value) = HeaderValue::from_str(value.trim_end()) {
                headers.insert(name, value);
            }
        }
        response
    }
}

/// A whole page, around HTML that is escaped already.
#[must_use]
pub fn frame(status: StatusCode, title: &str, text: &str, request_id: &str) -> String {
    let (title, request_id) = (Escaped(title), Escaped(request_id));
    // Whom all is well for needs no number.
    let is_trouble = status.is_client_error() || status.is_server_error();
    let status = if is_trouble { format!("<p class=\"status\">{}</p>\n", status.as_u16()) } else { String::new() };
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"robots\" content=\"noindex\">\n<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n\
         <body>\n<main>\n{status}<h1>{title}</h1>\n{text}\n\
         <footer>Request <code>{request_id}</code></footer>\n</main>\n</body>\n</html>\n"
    )
}

/// The gRPC status code that stands for an HTTP status, as gRPC clients map it (doc/http-grpc-status-mapping.md).
#[must_use]
pub fn grpc_status(status: StatusCode) -> u32 {
    match status.as_u16() {
        400 => 13,
        401 => 16,
        403 => 7,
        404 => 12,
        429 | 502..=504 => 14,
        _ => 2,
    }
}

fn content_type(format: Format) -> &'static str {
    match format {
        Format::Html => "text/html; charset=utf-8",
        Format::Json => "application/problem+json",
        Format::Text => "text/plain; charset=utf-8",
        Format::Grpc => "application/grpc",
    }
}

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1d2430;--soft:#5c6675;--paper:#f6f7f9;--card:#fff;--line:#e1e5ea;--mark:#b4552d}\
@media(prefers-color-scheme:dark){:root{--ink:#e8eaee;--soft:#9aa4b2;--paper:#14181e;--card:#1c2129;--line:#2d343f;\
--mark:#e08a5f}}\
body{margin:0;min-height:100vh;display:grid;place-items:center;background:var(--paper);color:var(--ink);\
font:16px/1.6 system-ui,sans-serif}\
main{box-sizing:border-box;width:min(34rem,92vw);padding:2.25rem;background:var(--card);border:1px solid var(--line);\
border-radius:12px}\
.status{margin:0;color:var(--mark);font-weight:600;letter-spacing:.08em}\
h1{margin:.2rem 0 1rem;font-size:1.5rem;line-height:1.25}p{margin:.5rem 0}\
a{color:var(--mark)}button{font:inherit;padding:.45rem 1.1rem;border:1px solid var(--line);border-radius:8px;\
background:var(--mark);color:#fff;cursor:pointer}form{margin:1rem 0 0}label{display:block;margin:.6rem 0}\
input{font:inherit;display:block;box-sizing:border-box;width:100%;padding:.4rem .6rem;border:1px solid var(--line);\
border-radius:8px;background:var(--paper);color:var(--ink)}input[type=hidden]{display:none}\
footer{margin-top:1.75rem;padding-top:1rem;border-top:1px solid var(--line);color:var(--soft);font-size:.85rem;\
overflow-wrap:anywhere}";

/// Text that stands in HTML, between tags or in a quoted attribute.
#[derive(Debug, Clone, Copy)]
pub struct Escaped<'a>(pub &'a str);

impl std::fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for piece in self.0.split_inclusive(['&', '<', '>', '"', '\'']) {
            let (plain, special) = match piece.chars().next_back() {
                Some('&') => (&piece[..piece.len() - 1], "&amp;"),
                Some('<') => (&piece[..piece.len() - 1], "&lt;"),
                Some('>') => (&piece[..piece.len() - 1], "&gt;"),
                Some('"') => (&piece[..piece.len() - 1], "&quot;"),
                Some('\'') => (&piece[..piece.len() - 1], "&#39;"),
                _ => (piece, ""),
            };
            f.write_str(plain)?;
            f.write_str(special)?;
        }
        Ok(())
    }
}
