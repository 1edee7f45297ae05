//! Health checks.

use sallyport_model::Probe;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;

/// Why an origin gets no requests, and since when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HealthFailure {
    /// Why, in a word: `refused`, `timed-out`, `unresolved`, `tls`, `status`, `bad-answer`, `ejected` (it failed
    /// clients and is left out for a while) or `other`; later versions may add some.
    #[schema(example = "status")]
    pub code: String,
    /// Why, in a sentence for people.
    #[schema(example = "status 503 for GET /healthz", max_length = 240)]
    pub message: String,
    /// Since when.
    #[serde(with = "time::serde::rfc3339")]
    pub since: OffsetDateTime,
}

/// The kind of the health check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProbeType {
    /// A TCP connection: the origin passes by accepting it.
    Tcp,
    /// A GET request of a path: the origin passes with a response of an expected status.
    Http,
}

/// The health check of origins. `path`, `status_from` and `status_to` are for `http`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HealthCheck {
    /// The kind of the health check.
    #[serde(rename = "type")]
    pub probe: ProbeType,
    /// The path of the health check's requests, beginning with a slash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "/healthz", max_length = 1024)]
    pub path: Option<String>,
    /// The lowest status that is good; 200 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 200, maximum = 599)]
    pub status_from: Option<u16>,
    /// The highest status that is good; 399 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 200, maximum = 599)]
    pub status_to: Option<u16>,
    /// The time between two health checks, in seconds.
    #[serde(default = "interval")]
    #[schema(minimum = 1, maximum = 3600, default = 5)]
    pub interval_seconds: u32,
    /// How long a response may take, in seconds; at most the interval.
    #[serde(default = "timeout")]
    #[schema(minimum = 1, maximum = 3600, default = 2)]
    pub timeout_seconds: u32,
    /// The number of passed health checks in a row that bring an origin back.
    #[serde(default = "healthy")]
    #[schema(minimum = 1, maximum = 10, default = 2)]
    pub healthy_threshold: u32,
    /// The number of failed health checks in a row that take an origin out.
    #[serde(default = "unhealthy")]
    #[schema(minimum = 1, maximum = 10, default = 3)]
    pub unhealthy_threshold: u32,
}

fn interval() -> u32 {
    5
}
fn timeout() -> u32 {
    2
}
fn healthy() -> u32 {
    2
}
fn unhealthy() -> u32 {
    3
}

impl HealthCheck {
    /// A check with the usual times and thresholds.
    #[must_use]
    pub fn new(probe: ProbeType) -> Self {
        Self {
            probe,
            path: None,
            status_from: None,
            status_to: None,
            interval_seconds: interval(),
            timeout_seconds: timeout(),
            healthy_threshold: healthy(),
            unhealthy_threshold: unhealthy(),
        }
    }
}

impl From<sallyport_model::HealthCheck> for HealthCheck {
    fn from(check: sallyport_model::HealthCheck) -> Self {
        let (probe, path, status_from, status_to) = match check.probe {
            Probe::Tcp => (ProbeType::Tcp, None, None, None),
            Probe::Http { path, status_from, status_to } => {
                (ProbeType::Http, Some(path), Some(status_from), Some(status_to))
            }
        };
        Self {
            probe,
            path,
            status_from,
            status_to,
            interval_seconds: check.interval_seconds,
            timeout_seconds: check.timeout_seconds,
            healthy_threshold: check.healthy_threshold,
            unhealthy_threshold: check.unhealthy_threshold,
        }
    }
}

impl TryFrom<HealthCheck> for sallyport_model::HealthCheck {
    /// Why not, in a sentence.
    type Error = &'static str;

    fn try_from(check: HealthCheck) -> Result<Self, &'static str> {
        let probe = match (check.probe, check.path) {
            (ProbeType::Http, Some(path)) => Probe::Http {
                path,
                status_from: check.status_from.unwrap_or(200),
                status_to: check.status_to.unwrap_or_else(|| check.status_from.unwrap_or(399).max(399)),
            },
            (ProbeType::Http, None) => return Err("a health check over HTTP needs the path to ask for"),
            (ProbeType::Tcp, None) if check.status_from.is_none() && check.status_to.is_none() => Probe::Tcp,
            (ProbeType::Tcp, _) => return Err("a path and a status are for health checks of type http"),
        };
        Ok(Self {
            probe,
            interval_seconds: check.interval_seconds,
            timeout_seconds: check.timeout_seconds,
            healthy_threshold: check.healthy_threshold,
            unhealthy_threshold: check.unhealthy_threshold,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_is_returned_as_given() {
        for json in [r#"{"type":"tcp"}"#, r#"{"type":"http","path":"/up","status_to":204,"interval_seconds":9}"#] {
            let given: HealthCheck = serde_json::from_str(json).unwrap();
            let stored = sallyport_model::HealthCheck::try_from(given).unwrap();
            let shown = HealthCheck::from(stored.clone());
            assert_eq!(sallyport_model::HealthCheck::try_from(shown), Ok(stored), "{json}");
        }
        for (json, says) in [
            (r#"{"type":"http"}"#, "needs the path"),
            (r#"{"type":"tcp","path":"/"}"#, "type http"),
            (r#"{"type":"tcp","status_to":204}"#, "type http"),
        ] {
            let given: HealthCheck = serde_json::from_str(json).unwrap();
            assert!(sallyport_model::HealthCheck::try_from(given).unwrap_err().contains(says), "{json}");
        }
    }
}
