//! Error responses: HTML for browsers, JSON for programs, a line of text for terminals, a status for gRPC.
//!
//! May use `forward` and `refusal`.

mod html;
mod site;

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

pub use self::{
    html::{Escaped, FORM_STYLE, Frame, Prose, STYLE, content_policy},
    site::{MAX_SITE_ICON_BYTES, MAX_SITE_NAME_CHARS, Site, SiteError},
};
use crate::{RequestRefusal, forward::X_REQUEST_ID};

/// An error, in words for the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem<'a> {
    /// The status of the response.
    pub status: StatusCode,
    /// The error code for programs and logs, such as `unknown-name`; empty for none.
    pub code: &'a str,
    /// The title: "No such name".
    pub title: Cow<'a, str>,
    /// What happened, in one sentence. Text between two backticks is set as code.
    pub detail: Cow<'a, str>,
    /// What the reader can do, in one sentence; empty for nothing.
    pub next_step: Cow<'a, str>,
    /// The request's id, which is in the log.
    pub request_id: &'a str,
}

/// The format of an error response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A page for browsers.
    Html,
    /// `application/problem+json` (RFC 9457).
    Json,
    /// One line, for terminals and all other clients.
    Text,
    /// Header fields alone, for gRPC clients.
    Grpc,
}

impl Format {
    /// The format that fits the client: gRPC for gRPC calls, HTML if `Accept` lists `text/html`, JSON if it lists a
    /// JSON type, text otherwise.
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

/// Whether a parameter of an `Accept` item excludes the item (RFC 9110 section 12.4.2).
fn is_zero_weight(parameter: &str) -> bool {
    parameter.strip_prefix(['q', 'Q']).and_then(|rest| rest.trim_start().strip_prefix('=')).is_some_and(|weight| {
        let weight = weight.trim();
        weight.starts_with('0') && weight.bytes().all(|byte| matches!(byte, b'0' | b'.'))
    })
}

impl<'a> Problem<'a> {
    /// The error for a malformed request.
    #[must_use]
    pub fn refused(refusal: RequestRefusal, request_id: &'a str) -> Self {
        let status = refusal.status();
        let reason = refusal.to_string();
        let mut letters = reason.chars();
        let detail = letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect());
        Self {
            status,
            code: "malformed",
            title: status.canonical_reason().unwrap_or("Bad Request").into(),
            detail: (detail + ".").into(),
            next_step: "Correct the request before it is sent again.".into(),
            request_id,
        }
    }

    /// The response: status, header fields and body. It is not cached, and loads nothing.
    #[must_use]
    pub fn respond(&self, format: Format, site: &Site) -> Response<Bytes> {
        self.with_body(format, if format == Format::Html { self.html(site).into() } else { self.body(format) })
    }

    fn with_body(&self, format: Format, body: Bytes) -> Response<Bytes> {
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
            put(headers, CONTENT_SECURITY_POLICY, &content_policy(Some("'none'")));
        }
        response
    }

    /// A complete HTTP/1.1 response as bytes, for a connection that then closes because the request could not be
    /// parsed. `date` is the current time as an HTTP date (RFC 9110 section 5.6.7).
    #[must_use]
    pub fn closing_bytes(&self, date: &str) -> Vec<u8> {
        let mut response = self.with_body(Format::Text, self.body(Format::Text));
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

    /// The body as JSON or text; empty for the other formats.
    fn body(&self, format: Format) -> Bytes {
        match format {
            Format::Json => self.json().into(),
            Format::Text => self.text().into(),
            Format::Html | Format::Grpc => Bytes::new(),
        }
    }

    fn text(&self) -> String {
        let Self { code, title, detail, next_step, request_id, .. } = self;
        let space = if next_step.is_empty() { "" } else { " " };
        let comma = if code.is_empty() { "" } else { ", " };
        format!("{title}: {detail}{space}{next_step} ({code}{comma}request {request_id})\n")
    }

    fn json(&self) -> Vec<u8> {
        #[derive(Serialize)]
        struct Json<'a> {
            r#type: &'a str,
            title: &'a str,
            status: u16,
            #[serde(skip_serializing_if = "str::is_empty")]
            code: &'a str,
            detail: &'a str,
            #[serde(skip_serializing_if = "str::is_empty")]
            next_step: &'a str,
            request_id: &'a str,
        }
        let json = Json {
            r#type: "about:blank",
            title: &self.title,
            status: self.status.as_u16(),
            code: self.code,
            detail: &self.detail,
            next_step: &self.next_step,
            request_id: self.request_id,
        };
        serde_json::to_vec(&json).unwrap_or_default()
    }

    fn html(&self, site: &Site) -> String {
        let mut html = format!("<p>{}</p>", Prose(&self.detail));
        if !self.next_step.is_empty() {
            html.push_str(&format!("\n<p>{}</p>", Prose(&self.next_step)));
        }
        let Self { status, code, title, request_id, .. } = self;
        let frame =
            Frame { site, home: None, title, html: &html, has_form: false, status: Some(*status), code, request_id };
        frame.to_string()
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

/// A page with text and actions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<'a> {
    /// The status of the response.
    pub status: StatusCode,
    /// The title.
    pub title: Cow<'a, str>,
    /// The paragraphs. Text between two backticks is set as code.
    pub paragraphs: Vec<Cow<'a, str>>,
    /// The actions. The first one is emphasised.
    pub actions: Vec<Action<'a>>,
    /// The request's id, which is in the log.
    pub request_id: &'a str,
}

/// An action on a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action<'a> {
    /// A link.
    Link {
        /// The address.
        href: Cow<'a, str>,
        /// The text of the link.
        label: Cow<'a, str>,
    },
    /// A button, which sends a POST to this path of the same host.
    Button {
        /// The path.
        path: Cow<'a, str>,
        /// The text of the button.
        label: Cow<'a, str>,
        /// The other origin to which the response to the POST may redirect, such as `https://login.example.com`. Empty
        /// for none.
        leads_to: Cow<'a, str>,
    },
}

impl Page<'_> {
    /// The response: status, header fields and body. It is not cached, and loads nothing.
    #[must_use]
    pub fn respond(&self, site: &Site) -> Response<Bytes> {
        let mut html: String = self.paragraphs.iter().map(|text| format!("<p>{}</p>\n", Prose(text))).collect();
        let mut form_action = "'none'".to_owned();
        if !self.actions.is_empty() {
            html.push_str("<div class=\"acts\">");
        }
        for (at, action) in self.actions.iter().enumerate() {
            let other = if at > 0 { " other" } else { "" };
            match action {
                Action::Link { href, label } => {
                    html.push_str(&format!("<a class=\"act{other}\" href=\"{}\">{}</a>", Escaped(href), Escaped(label)))
                }
                Action::Button { path, label, leads_to } => {
                    form_action = format!("'self' {leads_to}");
                    html.push_str(&format!(
                        "<form method=\"post\" action=\"{}\"><button class=\"{}\">{}</button></form>",
                        Escaped(path),
                        other.trim_start(),
                        Escaped(label)
                    ));
                }
            }
        }
        if !self.actions.is_empty() {
            html.push_str("</div>");
        }
        let is_trouble = self.status.is_client_error() || self.status.is_server_error();
        let frame = Frame {
            site,
            home: None,
            title: &self.title,
            html: &html,
            has_form: true,
            status: is_trouble.then_some(self.status),
            code: "",
            request_id: self.request_id,
        };
        let mut response = Response::new(Bytes::from(frame.to_string()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type(Format::Html)));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        // With `no-referrer` a browser would hide the origin of a form even from the host of the page.
        headers.insert(http::header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
        put(headers, CONTENT_SECURITY_POLICY, &content_policy(Some(&form_action)));
        put(headers, X_REQUEST_ID, self.request_id);
        response
    }
}

/// Sets a field, if `value` is a valid field value.
fn put(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// The gRPC status code for an HTTP status, as gRPC clients map it (doc/http-grpc-status-mapping.md).
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
