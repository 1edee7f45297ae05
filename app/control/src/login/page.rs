//! The pages of the login host: small, without scripts.

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use sallyport_http::page::{Escaped, Frame, Prose, Site, content_policy};

use crate::problem::ApiError;

/// A page whose text is escaped already. The request's id comes into it at the end.
pub(crate) fn page(status: StatusCode, title: &str, text: String) -> Response {
    written(status, title, text).into_response()
}

/// The same, for those who add headers.
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

/// What was wrong with what somebody typed, above the form in which they type it again.
pub(crate) fn wrong(what: Option<&str>) -> String {
    what.map(|what| format!("<div class=\"wrong\" role=\"alert\"><strong>{}</strong></div>", Escaped(what)))
        .unwrap_or_default()
}

/// Ways on, as buttons: addresses with what they say. What most want comes first, and looks like it.
pub(crate) fn ways_on(ways: &[(&str, &str)]) -> String {
    written_ways(ways, |at| at == 0)
}

/// Ways on of which none is wanted more than another.
pub(crate) fn equal_ways(ways: &[(&str, &str)]) -> String {
    written_ways(ways, |_| true)
}

/// A way on beside what the page is about.
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

/// Why a login does not go on, as a page. (A page that is no error is one too: they are written in one place.)
#[derive(Debug, Clone)]
pub(crate) struct LoginError {
    pub(crate) status: StatusCode,
    title: Box<str>,
    /// HTML, escaped already.
    text: String,
    /// Whether the status is shown: not beside a form that says what is wrong.
    is_trouble: bool,
    /// Where forms of the page lead, as its policy says it; `None`: anywhere.
    forms_lead: Option<Box<str>>,
    /// For the log only.
    pub(crate) inside: Option<String>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl LoginError {
    /// What happened, in a few words and in a sentence.
    pub(crate) fn new(status: StatusCode, title: &str, detail: &str) -> Self {
        Self { is_trouble: true, ..written(status, title, format!("<p>{}</p>", Prose(detail))) }
    }

    /// What the reader can do about it.
    pub(crate) fn next(mut self, step: &str) -> Self {
        self.text.push_str(&format!("\n<p>{}</p>", Prose(step)));
        self
    }

    /// An address to go to.
    pub(crate) fn link(mut self, href: &str, label: &str) -> Self {
        self.text.push_str(&ways_on(&[(href, label)]));
        self
    }

    /// Where forms of the page, and answers to them, lead beside this host: sources of a policy; `None`: anywhere.
    /// Chromium has `form-action` hold for where a form is sent on to, too.
    pub(crate) fn forms_lead(mut self, sources: Option<&str>) -> Self {
        self.forms_lead = sources.map(|sources| format!("'self' {sources}").into());
        self
    }

    /// With one more header.
    pub(crate) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// What the log is told.
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

/// The page travels to the end of the request beside an empty response, and gets the request's id there.
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

/// What every answer here has: it is kept nowhere, shown in no frame, loads nothing, sends forms nowhere else, and
/// tells no other host where the browser came from. This one is told, since browsers say it of forms, and forms are
/// judged by it.
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

/// Sends the browser on. The address is one of ours or of a provider, and has no bytes that a header cannot have.
pub(crate) fn see_other(to: &str) -> Result<Response, LoginError> {
    let to = HeaderValue::from_str(to).map_err(ApiError::internal)?;
    let mut response = StatusCode::SEE_OTHER.into_response();
    response.headers_mut().insert(header::LOCATION, to);
    Ok(response)
}
