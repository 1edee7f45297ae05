//! Errors of requests, with one text for the client and one for the log.

use std::{fmt::Display, time::Duration};

use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};
use sallyport_api::{FieldError, PROBLEM_JSON, Problem};
use sallyport_network::members::JoinError;
use sallyport_store::StoreError;

/// An error of a request, with one text for the client and one for the log.
#[derive(Debug, Clone)]
pub(crate) struct ApiError {
    status: StatusCode,
    code: &'static str,
    detail: String,
    errors: Vec<FieldError>,
    headers: Vec<(HeaderName, HeaderValue)>,
    /// The text for the log.
    inside: Option<String>,
}

impl ApiError {
    /// An error with its text for the client.
    pub(crate) fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self { status, code, detail: detail.into(), errors: Vec::new(), headers: Vec::new(), inside: None }
    }

    /// A fault of the server: the client gets a general text, and the log gets the reason.
    pub(crate) fn internal(inside: impl Display) -> Self {
        let detail = "the server failed: try again, and report the request id if the failure persists";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail).inside(inside)
    }

    /// Invalid fields.
    pub(crate) fn fields(errors: Vec<FieldError>) -> Self {
        let sentence = |e: &FieldError| {
            if e.field.is_empty() { e.detail.clone() } else { format!("{}: {}", e.field, e.detail) }
        };
        let detail = errors.iter().map(sentence).collect::<Vec<_>>().join("; ");
        Self { errors, ..Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request", detail) }
    }

    /// One invalid field.
    pub(crate) fn field(field: &str, detail: impl Display) -> Self {
        Self::fields(vec![FieldError { field: field.to_owned(), detail: detail.to_string() }])
    }

    /// The thing does not exist, or this account may not see it.
    pub(crate) fn not_found(what: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not-found", format!("there is no such {what}"))
    }

    /// The request has no valid token.
    pub(crate) fn unauthorized(code: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, code, detail)
            .header(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"sallyport\""))
    }

    /// The server is overloaded.
    pub(crate) fn busy() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", "the server is overloaded: try again in a moment")
            .header(header::RETRY_AFTER, HeaderValue::from_static("1"))
    }

    /// The client exceeded a rate limit, and has to wait.
    pub(crate) fn limited(wait: Duration) -> Self {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        let detail = format!("too many attempts: wait {seconds} seconds");
        Self::new(StatusCode::TOO_MANY_REQUESTS, "too-many-attempts", detail)
            .header(header::RETRY_AFTER, HeaderValue::from(seconds))
    }

    /// Adds a header to the answer.
    pub(crate) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// Adds the text for the log.
    pub(crate) fn inside(mut self, inside: impl Display) -> Self {
        self.inside = Some(inside.to_string());
        self
    }

    /// The status of the response.
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// The headers of the answer.
    pub(crate) fn headers(&self) -> impl Iterator<Item = &(HeaderName, HeaderValue)> {
        self.headers.iter()
    }

    /// The text for the client, a sentence.
    pub(crate) fn sentence(&self) -> &str {
        &self.detail
    }

    /// The text for the log.
    pub(crate) fn inner(&self) -> Option<&str> {
        self.inside.as_deref()
    }

    /// The response, with the path and id of the request.
    pub(crate) fn render(self, path: &str, request_id: &str) -> Response {
        let problem = Problem {
            kind: "about:blank".to_owned(),
            title: self.status.canonical_reason().unwrap_or("Error").to_owned(),
            status: self.status.as_u16(),
            detail: self.detail,
            instance: Some(path.to_owned()),
            code: self.code.to_owned(),
            errors: self.errors,
            request_id: Some(request_id.to_owned()),
        };
        let body = serde_json::to_string(&problem).unwrap_or_default();
        let mut response = (self.status, [(header::CONTENT_TYPE, PROBLEM_JSON)], body).into_response();
        response.headers_mut().extend(self.headers.into_iter().map(|(name, value)| (Some(name), value)));
        response
    }
}

/// The error travels to [`crate::request::middleware`] beside an empty response, and gets its body there.
impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        let says = error.to_string();
        match error {
            StoreError::EmailTaken => Self::new(StatusCode::CONFLICT, "email-taken", says),
            StoreError::NotFirst => {
                let detail = "this API takes no new accounts without an invitation: ask one of its organisations for \
                     one (`sallyport member add`), or its operator, who opens it with `sallyport up --sign-up open`";
                Self::new(StatusCode::FORBIDDEN, "sign-up-closed", detail)
            }
            StoreError::SetupToken => {
                let detail = "the first account of this server takes its setup token, which the operator finds in the \
                              server's log and in the file setup-token of its data directory: send it as `setup_token`";
                Self::new(StatusCode::FORBIDDEN, "setup-token-needed", detail)
            }
            StoreError::NoInvitation => {
                let detail = "no open invitation of this address has this code: check both, or ask for another one";
                Self::new(StatusCode::FORBIDDEN, "no-invitation", detail)
            }
            StoreError::Limit { .. } => Self::new(StatusCode::CONFLICT, "limit-reached", says),
            StoreError::PortsExhausted { .. } => Self::new(StatusCode::CONFLICT, "ports-exhausted", says),
            StoreError::PortTaken { .. } => Self::new(StatusCode::CONFLICT, "port-taken", says),
            StoreError::ProviderTaken => Self::new(StatusCode::CONFLICT, "provider-taken", says),
            StoreError::LocalProviderTaken => Self::new(StatusCode::CONFLICT, "local-provider-taken", says),
            StoreError::PersonTaken => Self::new(StatusCode::CONFLICT, "person-taken", says),
            StoreError::ServiceTokenTaken { .. } => Self::new(StatusCode::CONFLICT, "name-taken", says),
            StoreError::NameTaken { .. } => Self::new(StatusCode::CONFLICT, "name-taken", says),
            StoreError::AmbiguousId { .. } => Self::new(StatusCode::CONFLICT, "ambiguous-id", says),
            StoreError::SshKeyTaken { .. } => Self::new(StatusCode::CONFLICT, "ssh-key-taken", says),
            StoreError::DomainTaken { .. } => Self::new(StatusCode::CONFLICT, "domain-taken", says),
            StoreError::DomainUnverified { .. } => Self::new(StatusCode::CONFLICT, "domain-not-verified", says),
            StoreError::DomainInUse { .. } => Self::new(StatusCode::CONFLICT, "domain-in-use", says),
            StoreError::RangeTaken { .. } => Self::new(StatusCode::CONFLICT, "range-taken", says),
            StoreError::NoFreeRange => Self::new(StatusCode::CONFLICT, "no-free-range", says),
            StoreError::NetworkInUse { .. } => Self::new(StatusCode::CONFLICT, "network-in-use", says),
            StoreError::Join(error) => refused_join(&error),
            StoreError::ZoneTaken { .. } => Self::new(StatusCode::CONFLICT, "zone-taken", says),
            StoreError::LabelTaken { .. } => Self::new(StatusCode::CONFLICT, "label-taken", says),
            StoreError::PolicyNameTaken { .. } => Self::new(StatusCode::CONFLICT, "policy-name-taken", says),
            StoreError::PolicyAttached { .. } => Self::new(StatusCode::CONFLICT, "policy-attached", says),
            StoreError::OriginTaken { .. } => Self::new(StatusCode::CONFLICT, "origin-taken", says),
            StoreError::AnycastTaken { .. } => Self::new(StatusCode::UNPROCESSABLE_ENTITY, "anycast-taken", says),
            StoreError::EgressTaken { .. } => Self::new(StatusCode::CONFLICT, "egress-taken", says),
            StoreError::VirtualAddressTaken { .. } => {
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, "virtual-address-taken", says)
            }
            StoreError::KeyReused => Self::new(StatusCode::UNPROCESSABLE_ENTITY, "idempotency-key-reused", says),
            StoreError::Gone => Self::unauthorized("logged-out", "this account is gone"),
            StoreError::Busy | StoreError::NoFreeName | StoreError::NoFreeForwardPort => Self::busy().inside(says),
            StoreError::DiskFull => {
                let detail = "the server's disk is full: nothing was changed; try again when its operator made room";
                Self::new(StatusCode::INSUFFICIENT_STORAGE, "disk-full", detail).inside(says)
            }
            StoreError::ReadOnly => {
                let detail = "the server can only read at the moment: nothing was changed";
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "read-only", detail).inside(says)
            }
            StoreError::Unreachable { .. } => {
                let detail = "the server cannot reach its database: nothing was changed; try again in a moment";
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "database-unreachable", detail)
                    .header(header::RETRY_AFTER, HeaderValue::from_static("2"))
                    .inside(says)
            }
            StoreError::OutcomeUnknown => {
                let detail = "the server lost its database at the end of this change, which was made or not: look what \
                              is there before you try again";
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "outcome-unknown", detail).inside(says)
            }
            StoreError::Corrupt { .. }
            | StoreError::Refused { .. }
            | StoreError::Foreign { .. }
            | StoreError::Newer { .. }
            | StoreError::Io { .. }
            | StoreError::Database(_) => Self::internal(says),
        }
    }
}

/// The refusal of a machine that cannot join.
fn refused_join(error: &JoinError) -> ApiError {
    match error {
        JoinError::SameName(_) | JoinError::SharedName(_) => {
            ApiError::new(StatusCode::CONFLICT, "name-taken", error.to_string())
        }
        JoinError::Full(_) => ApiError::new(StatusCode::CONFLICT, "network-full", error.to_string()),
        JoinError::TooMany => ApiError::new(StatusCode::CONFLICT, "limit-reached", error.to_string()),
        JoinError::LongList
        | JoinError::OverlapsRange { .. }
        | JoinError::OverlapsRoute { .. }
        | JoinError::Swallows { .. } => ApiError::field("routes", error),
    }
}

impl From<getrandom::Error> for ApiError {
    fn from(error: getrandom::Error) -> Self {
        Self::internal(error)
    }
}
