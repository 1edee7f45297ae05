//! What a browser sees here: small pages without scripts.

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use sallyport_http::page::{Escaped, frame};

use crate::problem::ApiError;

/// A page whose text is escaped already. The request's id comes into it at the end.
pub(crate) fn page(status: StatusCode, title: &str, text: String) -> Response {
    written(status, title, text).into_response()
}

/// The same, for those who add headers.
pub(crate) fn written(status: StatusCode, title: &str, text: String) -> LoginError {
    LoginError { status, title: title.to_owned(), text, inside: None, headers: Vec::new() }
}

/// Why a login does not go on, as a page. (A page that is no error is one too: they are written in one place.)
#[derive(Debug, Clone)]
pub(crate) struct LoginError {
    pub(crate) status: StatusCode,
    title: String,
    /// HTML, escaped already.
    text: String,
    /// For the log only.
    pub(crate) inside: Option<String>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl LoginError {
    /// What happened, in a few words and in a sentence.
    pub(crate) fn new(status: StatusCode, title: &str, detail: &str) -> Self {
        let text = format!("<p>{}</p>", Escaped(detail));
        Self { status, title: title.to_owned(), text, inside: None, headers: Vec::new() }
    }

    /// What the reader can do about it.
    pub(crate) fn next(mut self, step: &str) -> Self {
        self.text.push_str(&format!("\n<p>{}</p>", Escaped(step)));
        self
    }

    /// An address to go to.
    pub(crate) fn link(mut self, href: &str, label: &str) -> Self {
        self.text.push_str(&format!("\n<p><a href=\"{}\">{}</a></p>", Escaped(href), Escaped(label)));
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

    pub(super) fn render(self, request_id: &str) -> Response {
        let body = frame(self.status, &self.title, &self.text, request_id);
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = self.status;
        response.headers_mut().extend(self.headers.into_iter().map(|(name, value)| (Some(name), value)));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
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

/// What every answer here has: it is kept nowhere, shown in no frame, loads nothing, sends forms nowhere else, and tells no
/// other host where the browser came from. This one is told, since browsers say it of forms, and forms are judged by it.
pub(super) fn secure(headers: &mut HeaderMap, request_id: &str) {
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    // The page on which a program is let in sends the browser on to the program.
    headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static(
        "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ));
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
