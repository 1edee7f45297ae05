//! Configuration of active health checks.

use std::{fmt, ops::RangeInclusive, str::FromStr, time::Duration};

/// Bounds of the time between two checks.
pub const INTERVAL_BOUNDS: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(300);
/// The shortest timeout of a check.
pub const MIN_TIMEOUT: Duration = Duration::from_millis(100);
/// The greatest threshold of consecutive checks.
pub const MAX_THRESHOLD: u32 = 10;
/// The longest path and host of an HTTP check, in bytes.
pub const MAX_CHECK_TEXT_BYTES: usize = 1_024;
/// The most ranges of expected statuses.
pub const MAX_STATUS_RANGES: usize = 16;

/// The kind of a check.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum HealthCheck {
    /// No check: the origin is usable as long as its tunnel is attached.
    #[default]
    None,
    /// Opens a connection to the origin through the tunnel and closes it.
    Tcp,
    /// Sends a GET request to the origin and compares the status of the response.
    Http {
        /// Request target: begins with a slash, may have a query.
        path: String,
        /// The statuses that pass.
        expected_status: ExpectedStatus,
        /// The host to name; the socket's own when None.
        host: Option<String>,
    },
}

/// A set of HTTP statuses as ranges: `200`, `200-399`, or `200-299,304`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpectedStatus(Box<[RangeInclusive<u16>]>);

/// How an origin is checked, and with which consequences. Names and defaults are those of HAProxy's `inter`, `rise` and
/// `fall`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthConfig {
    /// The kind of the check.
    pub check: HealthCheck,
    /// Time from the start of one check to the start of the next, within [`INTERVAL_BOUNDS`].
    pub interval: Duration,
    /// Timeout of a check: from [`MIN_TIMEOUT`] to the interval, so that checks of an origin never overlap.
    pub timeout: Duration,
    /// Consecutive passed checks that bring a down origin up: 1 to [`MAX_THRESHOLD`].
    pub healthy_threshold: u32,
    /// Consecutive failed checks that take an up origin down: 1 to [`MAX_THRESHOLD`].
    pub unhealthy_threshold: u32,
}

/// Reason why a [`HealthConfig`] is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HealthConfigError {
    /// The interval is out of bounds.
    #[error("the interval of health checks must be from 1 to 300 seconds, not {0:?}")]
    Interval(Duration),
    /// The timeout is too short, or longer than the interval.
    #[error("the timeout of health checks must be from 100 ms up to their interval, not {0:?}")]
    Timeout(Duration),
    /// A threshold is 0 or too large.
    #[error("a threshold of health checks must be from 1 to {MAX_THRESHOLD}, not {0}")]
    Threshold(u32),
    /// The path is no request target.
    #[error("the path of a health check must begin with / and have only visible ASCII characters, no #, at most 1024")]
    Path,
    /// The host is no valid `Host`.
    #[error(
        "the host of a health check must be a name or an address, with a port where needed, at most 1024 characters"
    )]
    Host,
    /// No ranges of statuses.
    #[error(
        "{text:?} is not a list of statuses: expected statuses from 100 to 599, such as 200, 200-399 or 200-299,304"
    )]
    Status {
        /// The given text, cut to 64 characters.
        text: String,
    },
}

impl Default for HealthConfig {
    /// No check. With a check: every 5 seconds, timeout 2 seconds, up after 2, down after 3.
    fn default() -> Self {
        Self {
            check: HealthCheck::None,
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(2),
            healthy_threshold: 2,
            unhealthy_threshold: 3,
        }
    }
}

impl HealthConfig {
    /// Checks the bounds documented at the fields.
    ///
    /// # Errors
    /// The first violated bound.
    pub fn validate(&self) -> Result<(), HealthConfigError> {
        if !INTERVAL_BOUNDS.contains(&self.interval) {
            return Err(HealthConfigError::Interval(self.interval));
        }
        if !(MIN_TIMEOUT..=self.interval).contains(&self.timeout) {
            return Err(HealthConfigError::Timeout(self.timeout));
        }
        for threshold in [self.healthy_threshold, self.unhealthy_threshold] {
            if !(1..=MAX_THRESHOLD).contains(&threshold) {
                return Err(HealthConfigError::Threshold(threshold));
            }
        }
        let HealthCheck::Http { path, host, .. } = &self.check else { return Ok(()) };
        let is_visible = |text: &str| text.len() <= MAX_CHECK_TEXT_BYTES && text.bytes().all(|b| b.is_ascii_graphic());
        if !path.starts_with('/') || !is_visible(path) || path.contains('#') {
            return Err(HealthConfigError::Path);
        }
        let is_host = |host: &String| {
            let has_only = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
            !host.is_empty() && is_visible(host) && host.bytes().all(has_only)
        };
        if host.as_ref().is_some_and(|host| !is_host(host)) {
            return Err(HealthConfigError::Host);
        }
        Ok(())
    }
}

impl ExpectedStatus {
    /// Whether the status is in the set.
    #[must_use]
    pub fn contains(&self, status: u16) -> bool {
        self.0.iter().any(|range| range.contains(&status))
    }
}

impl Default for ExpectedStatus {
    /// 200 to 399, as in HAProxy.
    fn default() -> Self {
        Self(Box::new([200..=399]))
    }
}

impl FromStr for ExpectedStatus {
    type Err = HealthConfigError;

    fn from_str(text: &str) -> Result<Self, HealthConfigError> {
        let refused = || HealthConfigError::Status { text: text.chars().take(64).collect() };
        let status = |text: &str| {
            let is_plain = text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<u16>().ok().filter(|status| is_plain && (100..=599).contains(status)).ok_or_else(refused)
        };
        let mut ranges = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.trim().split_once('-').unwrap_or((part.trim(), part.trim()));
            let range = status(first)?..=status(last)?;
            if range.is_empty() || ranges.len() == MAX_STATUS_RANGES {
                return Err(refused());
            }
            ranges.push(range);
        }
        Ok(Self(ranges.into_boxed_slice()))
    }
}

impl fmt::Display for ExpectedStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, range) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            match (range.start(), range.end()) {
                (first, last) if first == last => write!(f, "{comma}{first}")?,
                (first, last) => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn http(path: &str, host: Option<&str>) -> HealthConfig {
        let check = HealthCheck::Http {
            path: path.to_owned(),
            expected_status: ExpectedStatus::default(),
            host: host.map(str::to_owned),
        };
        HealthConfig { check, ..HealthConfig::default() }
    }

    #[test]
    fn statuses_are_read_and_written() {
        for text in ["200", "200-399", "200-299,304", "100-599"] {
            assert_eq!(text.parse::<ExpectedStatus>().unwrap().to_string(), text);
        }
        let some: ExpectedStatus = "200-299, 304".parse().unwrap();
        assert!(some.contains(200) && some.contains(299) && some.contains(304));
        assert!(!some.contains(300) && !some.contains(199) && !some.contains(305));
        assert!(ExpectedStatus::default().contains(302) && !ExpectedStatus::default().contains(404));
        for text in ["", ",", "200,", "2xx", "99", "600", "0200", "+20", "300-200", "200-", "-200", "200-300-400"] {
            let error = text.parse::<ExpectedStatus>().unwrap_err().to_string();
            assert!(error.contains("is not a list of statuses"), "{error}");
        }
        assert!(vec!["200"; MAX_STATUS_RANGES].join(",").parse::<ExpectedStatus>().is_ok());
        assert!(vec!["200"; MAX_STATUS_RANGES + 1].join(",").parse::<ExpectedStatus>().is_err());
    }

    #[test]
    fn bounds_are_kept() {
        let usual = HealthConfig::default();
        assert_eq!(usual.validate(), Ok(()));
        let seconds = Duration::from_secs;
        for interval in [seconds(0), Duration::from_millis(999), seconds(301)] {
            let config = HealthConfig { interval, ..usual.clone() };
            assert_eq!(config.validate(), Err(HealthConfigError::Interval(interval)));
        }
        for timeout in [seconds(0), Duration::from_millis(99), seconds(6)] {
            let config = HealthConfig { timeout, ..usual.clone() };
            assert_eq!(config.validate(), Err(HealthConfigError::Timeout(timeout)));
        }
        for threshold in [0, 11] {
            let config = HealthConfig { healthy_threshold: threshold, ..usual.clone() };
            assert_eq!(config.validate(), Err(HealthConfigError::Threshold(threshold)));
            let config = HealthConfig { unhealthy_threshold: threshold, ..usual.clone() };
            assert_eq!(config.validate(), Err(HealthConfigError::Threshold(threshold)));
        }
    }

    #[test]
    fn a_check_can_be_asked_for() {
        for path in ["/", "/healthz?full=1", "/%20"] {
            assert_eq!(http(path, Some("app.internal:8080")).validate(), Ok(()));
        }
        for path in ["", "healthz", "/a b", "/\r\nX: y", "/#top", "/é", &format!("/{}", "a".repeat(1_024))] {
            assert_eq!(http(path, None).validate(), Err(HealthConfigError::Path), "{path:?}");
        }
        for host in ["", "a b", "a\r\nX: y", "a/b", "user@host", &"a".repeat(1_025)] {
            assert_eq!(http("/", Some(host)).validate(), Err(HealthConfigError::Host), "{host:?}");
        }
    }
}
