//! The pages of the login host: small, without scripts.

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use sallyport_http::page::{Escaped, Frame, Prose, Site, content_policy};

use crate::problem::ApiError;

/// A page with escaped text. The request's id is added at the end of the request.
pub(crate) fn page(status: StatusCode, title: &str, text: String) -> Response {
    written(status, title, text).into_response()
}

/// The same as a [`LoginError`], to which headers can be added.
pub(crate) fn written(status: StatusCode, title: &str, text: String) -> LoginError {
    LoginError {
        status,
        title: title.into(),
        text,
        is_trouble: false,
        forms_lead: Some("'self'".into()),
        inside: None,
        headers: Vec::new(),
    }
}

/// The error above a form that is shown again.
pub(crate) fn wrong(what: Option<&str>) -> String {
    what.map(|what| format!("<div class=\"wrong\" role=\"alert\"><strong>{}</strong></div>", Escaped(what)))
        .unwrap_or_default()
}

/// Links as buttons, the most common first and highlighted.
pub(crate) fn ways_on(ways: &[(&str, &str)]) -> String {
    written_ways(ways, |at| at == 0)
}

/// Links as buttons of equal rank.
pub(crate) fn equal_ways(ways: &[(&str, &str)]) -> String {
    written_ways(ways, |_| true)
}

/// A secondary link.
pub(crate) fn other_way(href: &str, label: &str) -> String {
    written_ways(&[(href, label)], |_| false)
}

fn written_ways(ways: &[(&str, &str)], is_wanted: fn(usize) -> bool) -> String {
    let mut text = "\n<div class=\"acts\">".to_owned();
    for (at, (href, label)) in ways.iter().enumerate() {
        let other = if is_wanted(at) { "" } else { " other" };
        text.push_str(&format!("<a class=\"act{other}\" href=\"{}\">{}</a>", Escaped(href), Escaped(label)));
    }
    text + "</div>"
}

/// A page. The type is an error because most pages are; other pages share it.
#[derive(Debug, Clone)]
pub(crate) struct LoginError {
    pub(crate) status: StatusCode,
    title: Box<str>,
    /// HTML, already escaped.
    text: String,
    /// Whether the status is shown: not above a form with an error.
    is_trouble: bool,
    /// The targets of the page's forms, as sources of its policy; `None` for any.
    forms_lead: Option<Box<str>>,
    /// The text for the log.
    pub(crate) inside: Option<String>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl LoginError {
    /// A page about an error: a title and a sentence.
    pub(crate) fn new(status: StatusCode, title: &str, detail: &str) -> Self {
        Self { is_trouble: true, ..written(status, title, format!("<p>{}</p>", Prose(detail))) }
    }

    /// Adds advice.
    pub(crate) fn next(mut self, step: &str) -> Self {
        self.text.push_str(&format!("\n<p>{}</p>", Prose(step)));
        self
    }

    /// Adds a link.
    pub(crate) fn link(mut self, href: &str, label: &str) -> Self {
        self.text.push_str(&ways_on(&[(href, label)]));
        self
    }

    /// Sets the targets of the page's forms besides this host, as sources of its policy; `None` for any. Chromium
    /// applies `form-action` to redirects of forms too.
    pub(crate) fn forms_lead(mut self, sources: Option<&str>) -> Self {
        self.forms_lead = sources.map(|sources| format!("'self' {sources}").into());
        self
    }

    /// Adds a header field.
    pub(crate) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// Sets the text for the log.
    pub(crate) fn inside(mut self, inside: impl ToString) -> Self {
        self.inside = Some(inside.to_string());
        self
    }

    pub(super) fn render(self, request_id: &str, site: &Site) -> Response {
        let is_error = self.status.is_client_error() || self.status.is_server_error();
        let frame = Frame {
            site,
            home: Some("/"),
            title: &self.title,
            html: &self.text,
            has_form: true,
            status: (self.is_trouble && is_error).then_some(self.status),
            code: "",
            request_id,
        };
        let mut response = Response::new(Body::from(frame.to_string()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.extend(self.headers.into_iter().map(|(name, value)| (Some(name), value)));
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
        if let Ok(policy) = HeaderValue::from_str(&content_policy(self.forms_lead.as_deref())) {
            headers.insert(header::CONTENT_SECURITY_POLICY, policy);
        }
        response
    }
}

/// The page travels beside an empty response to the end of the request, and gets the request's id there.
impl IntoResponse for LoginError {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

impl From<ApiError> for LoginError {
    fn from(error: ApiError) -> Self {
        let status = error.status();
        let title = status.canonical_reason().unwrap_or("Error");
        let mut sentence = error.sentence().to_owned();
        if let Some(first) = sentence.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        let mut page = Self::new(status, title, &format!("{sentence}."));
        page.inside = error.inner().map(str::to_owned);
        page.headers = error.headers().filter(|(name, _)| name != header::WWW_AUTHENTICATE).cloned().collect();
        page
    }
}

impl From<sallyport_store::StoreError> for LoginError {
    fn from(error: sallyport_store::StoreError) -> Self {
        ApiError::from(error).into()
    }
}

impl From<getrandom::Error> for LoginError {
    fn from(error: getrandom::Error) -> Self {
        ApiError::internal(error).into()
    }
}

/// The header fields of every response: not cached, not framed, no external content, no foreign form targets, and no
/// referrer for other hosts. This host gets the referrer, because browsers derive the origin of forms from it.
pub(super) fn secure(headers: &mut HeaderMap, request_id: &str) {
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    if let Ok(policy) = HeaderValue::from_str(&content_policy(Some("'self'"))) {
        headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(policy);
    }
    if let Ok(id) = HeaderValue::from_str(request_id) {
        headers.insert("x-request-id", id);
    }
}

/// Redirects the browser. The address is one of this host or of a provider.
pub(crate) fn see_other(to: &str) -> Result<Response, LoginError> {
    let to = HeaderValue::from_str(to).map_err(ApiError::internal)?;
    let mut response = StatusCode::SEE_OTHER.into_response();
    response.headers_mut().insert(header::LOCATION, to);
    Ok(response)
}
