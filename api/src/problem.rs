//! Errors of the API (RFC 9457).

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The media type of a [`Problem`] (RFC 9457 section 3).
pub const PROBLEM_JSON: &str = "application/problem+json";

/// An error (RFC 9457).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// The kind of problem as a URI; `about:blank` when the status is enough.
    #[serde(rename = "type", default = "blank")]
    pub kind: String,
    /// The kind in a few words.
    #[serde(default)]
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What went wrong and what to do about it, in one sentence.
    #[serde(default)]
    pub detail: String,
    /// The path of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// The kind for programs: a short word with hyphens that never changes, such as `email-taken`.
    #[serde(default)]
    pub code: String,
    /// The fields that are wrong.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
    /// The id under which the server logged the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

/// One field of a request that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FieldError {
    /// The field, with dots between levels, such as `protected.username`; the name of a header or query parameter.
    pub field: String,
    /// What is wrong with it.
    pub detail: String,
}

fn blank() -> String {
    "about:blank".to_owned()
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.detail.is_empty(), self.title.is_empty()) {
            (false, _) => f.write_str(&self.detail),
            (true, false) => f.write_str(&self.title),
            (true, true) => write!(f, "status {}", self.status),
        }
    }
}

impl std::error::Error for Problem {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_of_another_server_is_read_too() {
        let problem: Problem = serde_json::from_str(r#"{"status":418,"title":"teapot","more":1}"#).unwrap();
        assert_eq!(problem.to_string(), "teapot");
        assert_eq!(problem.kind, "about:blank");
        assert!(serde_json::from_str::<Problem>("{}").is_err());
    }
}
