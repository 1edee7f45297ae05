//! Options for the audit log: retention, and other destinations.

use std::{path::Path, time::Duration};

use clap::{Args, ValueEnum};
use sallyport_audit::{AUDIT_DIR, AuditConfig, AuditLog, OtlpTarget, SyslogTarget};

use crate::duration;

/// The purpose of the key that seals the head of the audit log.
pub(crate) const AUDIT_KEY: &str = "audit";

/// Options for the audit log.
#[derive(Debug, Clone, Args)]
pub(crate) struct AuditLogArgs {
    /// How long the audit log is kept
    #[arg(
        long, value_name = "TIME", env = "SALLYPORT_AUDIT_KEEP", default_value = "90d",
        value_parser = duration::parse_long
    )]
    audit_keep: Duration,
    /// How large the audit log may become before its oldest part is removed: 64MiB, 1GiB ...
    #[arg(long, value_name = "SIZE", env = "SALLYPORT_AUDIT_MAX_SIZE", default_value = "1GiB", value_parser = size)]
    audit_max_size: u64,
    /// Send the audit log to a syslog server too (RFC 5424): udp://HOST:PORT, tcp://HOST:PORT or unix:/dev/log
    #[arg(long, value_name = "URL", env = "SALLYPORT_AUDIT_SYSLOG")]
    audit_syslog: Option<SyslogTarget>,
    /// Send the audit log to this OpenTelemetry collector too, as logs by OTLP over HTTP, such as http://127.0.0.1:4318
    #[arg(long, value_name = "URL", env = "SALLYPORT_AUDIT_OTLP")]
    audit_otlp: Option<OtlpTarget>,
}

impl AuditLogArgs {
    /// Opens the log of this data directory, which the caller has locked. `derived` gives the key that seals the log's
    /// head.
    ///
    /// # Errors
    /// The log's files cannot be used.
    pub(crate) fn open(&self, data: &Path, derived: impl FnOnce(&str) -> [u8; 32]) -> anyhow::Result<AuditLog> {
        let config = AuditConfig {
            key: derived(AUDIT_KEY),
            keep: self.audit_keep,
            max_bytes: self.audit_max_size,
            syslog: self.audit_syslog.clone(),
            otlp: self.audit_otlp.clone(),
        };
        Ok(tokio::task::block_in_place(|| AuditLog::open(&data.join(AUDIT_DIR), config))?)
    }
}

/// Options for the recorded use of sockets.
#[derive(Debug, Clone, Args)]
pub(crate) struct AuditUseArgs {
    /// Which use of sockets the audit log records: asked (sockets with a login or policies) or all. It always records
    /// logins, certificates and changes
    #[arg(
        long,
        value_enum,
        default_value_t,
        value_name = "WHAT",
        env = "SALLYPORT_AUDIT",
        hide_possible_values = true
    )]
    audit: AuditChoice,
}

impl AuditUseArgs {
    /// Whether all use is recorded.
    pub(crate) fn is_all(&self) -> bool {
        self.audit == AuditChoice::All
    }
}

/// Which use of sockets is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum AuditChoice {
    #[default]
    Asked,
    All,
}

/// Parses the size of a log: at least a mebibyte.
fn size(text: &str) -> Result<u64, String> {
    let wrong = || "expected a size such as 64MiB or 1GiB, from 1MiB to 1024GiB".to_owned();
    let (number, unit) = match (text.strip_suffix("MiB"), text.strip_suffix("GiB")) {
        (Some(number), _) => (number, 1_u64 << 20),
        (_, Some(number)) => (number, 1 << 30),
        _ => return Err(wrong()),
    };
    let size = number.trim_end().parse::<u64>().ok().and_then(|number| number.checked_mul(unit)).ok_or_else(wrong)?;
    if (1 << 20..=1 << 40).contains(&size) { Ok(size) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_the_audit_log_has_a_unit() {
        assert_eq!((size("64MiB"), size("1 GiB")), (Ok(64 << 20), Ok(1 << 30)));
        for bad in ["", "1", "1GB", "0MiB", "-1MiB", "1025GiB", "99999999999999999999MiB"] {
            assert!(size(bad).unwrap_err().contains("1GiB"), "{bad}");
        }
    }
}
