//! Responses of the edge itself at a socket with an identity or policies.

use bytes::Bytes;
use http::{
    HeaderName, HeaderValue, Response, StatusCode,
    header::{CACHE_CONTROL, CONTENT_TYPE, LOCATION, SET_COOKIE, WWW_AUTHENTICATE},
};
use sallyport_http::{
    RequestId,
    forward::X_REQUEST_ID,
    page::{Action, Format, Page, Problem, Site},
};
use serde::Serialize;

/// A response of the edge: a page, a redirect, or a problem document.
#[derive(Debug)]
pub(crate) struct AccessPage {
    reason: &'static str,
    response: Box<Response<Bytes>>,
}

/// A refusal, in the form that programs read.
pub(super) struct Refusal<'a> {
    /// The status of the response.
    pub(super) status: StatusCode,
    /// The `code` of the problem document, and the label of the metric.
    pub(super) code: &'static str,
    /// A short title.
    pub(super) title: &'static str,
    /// What happened, in one sentence.
    pub(super) detail: String,
    /// The URL where a person logs in, if a login would help.
    pub(super) login_url: Option<&'a str>,
}

impl AccessPage {
    fn new(reason: &'static str, response: Response<Bytes>) -> Self {
        Self { reason, response: Box::new(response) }
    }

    /// The label of the metric.
    pub(crate) fn reason(&self) -> &'static str {
        self.reason
    }

    /// The response.
    pub(crate) fn response(&self) -> Response<Bytes> {
        (*self.response).clone()
    }

    /// Adds this header field, if there is a value.
    pub(super) fn with(mut self, name: HeaderName, value: Option<HeaderValue>) -> Self {
        if let Some(value) = value {
            self.response.headers_mut().append(name, value);
        }
        self
    }

    /// Sets this header field, and drops other values of it.
    pub(super) fn replacing(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.response.headers_mut().insert(name, value);
        self
    }

    /// Adds these cookies.
    pub(super) fn with_cookies(self, cookies: impl IntoIterator<Item = Option<HeaderValue>>) -> Self {
        cookies.into_iter().fold(self, |page, cookie| page.with(SET_COOKIE, cookie))
    }

    /// A redirect that browsers must not cache.
    pub(super) fn redirect(reason: &'static str, status: StatusCode, to: &str, id: RequestId) -> Self {
        Self::plain(reason, status, "text/plain; charset=utf-8", format!("go to {to}\n"), id)
            .with(LOCATION, HeaderValue::try_from(to).ok())
    }

    /// A short plain text response that browsers must not cache.
    pub(super) fn plain(
        reason: &'static str,
        status: StatusCode,
        kind: &'static str,
        text: impl Into<Bytes>,
        id: RequestId,
    ) -> Self {
        let mut response = Response::new(text.into());
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(http::header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(http::header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        headers.insert(X_REQUEST_ID, id.header_value());
        Self::new(reason, response)
    }

    /// An HTML page for people, in the look of this installation.
    pub(super) fn page(
        reason: &'static str,
        status: StatusCode,
        title: &str,
        paragraphs: &[&str],
        actions: Vec<Action<'_>>,
        (id, site): (RequestId, &Site),
    ) -> Self {
        let paragraphs = paragraphs.iter().map(|text| (*text).into()).collect();
        let page = Page { status, title: title.into(), paragraphs, actions, request_id: id.as_str() };
        Self::new(reason, page.respond(site))
    }
}

impl Refusal<'_> {
    /// The refusal for programs: a gRPC status for gRPC, `application/problem+json` (RFC 9457) for everything else.
    pub(super) fn respond(&self, format: Format, id: RequestId, site: &Site) -> AccessPage {
        let page = if format == Format::Grpc {
            let problem = Problem {
                status: self.status,
                code: self.code,
                title: self.title.into(),
                detail: self.detail.as_str().into(),
                next_step: "".into(),
                request_id: id.as_str(),
            };
            AccessPage::new(self.code, problem.respond(format, site))
        } else {
            AccessPage::plain(self.code, self.status, "application/problem+json", self.json(id), id)
        };
        let challenge = self.login_url.filter(|_| self.status == StatusCode::UNAUTHORIZED);
        page.with(
            WWW_AUTHENTICATE,
            challenge.and_then(|url| HeaderValue::try_from(format!("Sallyport login=\"{url}\"")).ok()),
        )
    }

    fn json(&self, id: RequestId) -> Vec<u8> {
        #[derive(Serialize)]
        struct Json<'a> {
            r#type: &'a str,
            title: &'a str,
            status: u16,
            detail: &'a str,
            code: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            login_url: Option<&'a str>,
            request_id: &'a str,
        }
        let json = Json {
            r#type: "about:blank",
            title: self.title,
            status: self.status.as_u16(),
            detail: &self.detail,
            code: self.code,
            login_url: self.login_url,
            request_id: id.as_str(),
        };
        serde_json::to_vec(&json).unwrap_or_default()
    }
}
