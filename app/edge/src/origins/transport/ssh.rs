//! The live log in the shell of a stock ssh client: one line for each request or flow, in columns, the outcome first.

use std::fmt::Display;

use sallyport_model::{FlowRecord, HealthRecord, RequestRecord, SocketName};

/// The width of an outcome: `client-left`, or a status with its method.
const OUTCOME_COLUMN: usize = 11;
/// The width of an address; a longer one (IPv6) shifts the rest of its line.
const CLIENT_COLUMN: usize = 15;

/// The line of a request: status, method, time, client, the socket if there are several, target.
pub(crate) fn request(record: &RequestRecord, name: Option<&SocketName>) -> String {
    let RequestRecord { status, method, target, duration_us, client, .. } = record;
    let outcome = format!("{status} {method}");
    let refused = record.refused.as_ref().map(|reason| format!("  refused: {reason}")).unwrap_or_default();
    line(&outcome, *duration_us, client.ip(), name, &format!("{target}{refused}"))
}

/// The line of a health change, with its reason.
pub(crate) fn health(record: &HealthRecord, name: Option<&SocketName>) -> String {
    let name = name.map(|name| format!("{name}: ")).unwrap_or_default();
    match &record.failure {
        Some(failure) => format!("{name}the service gets nothing: {}", failure.message),
        None => format!("{name}the service takes requests again"),
    }
}

/// The line of a flow: outcome, time, client, the socket if there are several, bytes.
pub(crate) fn flow(record: &FlowRecord, name: Option<&SocketName>) -> String {
    let FlowRecord { transport, verdict, bytes_in, bytes_out, duration_us, client, .. } = record;
    let carried = format!("{transport} {} in, {} out", bytes(*bytes_in), bytes(*bytes_out));
    line(verdict, *duration_us, client.ip(), name, &carried)
}

fn line(outcome: &str, duration_us: u64, client: impl Display, name: Option<&SocketName>, what: &str) -> String {
    let client = client.to_string();
    let name = name.map(|name| format!("{name}  ")).unwrap_or_default();
    format!("{outcome:<OUTCOME_COLUMN$} {:>9}  {client:<CLIENT_COLUMN$}  {name}{what}", duration(duration_us))
}

/// A span of time with three digits, or in minutes.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn duration(us: u64) -> String {
    let ms = us as f64 / 1_000.0;
    match us {
        0..10_000 => format!("{ms:.2} ms"),
        10_000..100_000 => format!("{ms:.1} ms"),
        100_000..1_000_000 => format!("{ms:.0} ms"),
        1_000_000..60_000_000 => format!("{:.1} s", ms / 1_000.0),
        _ => format!("{} min", us / 60_000_000),
    }
}

/// An amount of data with about three digits (units of 1,000).
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn bytes(count: u64) -> String {
    let amount = count as f64;
    match count {
        0..1_000 => format!("{count} B"),
        1_000..1_000_000 => format!("{:.1} kB", amount / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", amount / 1e6),
        _ => format!("{:.1} GB", amount / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use sallyport_model::SocketType;

    use super::*;

    #[test]
    fn lines_begin_with_the_outcome_and_stand_in_columns() {
        let record = RequestRecord {
            at_ms: 0,
            request_id: String::new(),
            method: "GET".to_owned(),
            target: "/a?b=c".to_owned(),
            version: "HTTP/2.0".to_owned(),
            status: 200,
            bytes_in: 0,
            bytes_out: 0,
            duration_us: 1_234,
            client: "203.0.113.7:1".parse().unwrap(),
            tunnel: None,
            omitted_before: 0,
            identity: None,
            rule: None,
            refused: None,
        };
        assert_eq!(request(&record, None), "200 GET       1.23 ms  203.0.113.7      /a?b=c");
        let name: SocketName = "calm-bay-0001".parse().unwrap();
        let slow = RequestRecord { duration_us: 12_345_678, method: "DELETE".to_owned(), ..record };
        assert_eq!(request(&slow, Some(&name)), "200 DELETE     12.3 s  203.0.113.7      calm-bay-0001  /a?b=c");
        let ended = FlowRecord {
            at_ms: 0,
            flow_id: String::new(),
            transport: SocketType::Tcp,
            verdict: "complete".to_owned(),
            bytes_in: 999,
            bytes_out: 1_500_000,
            duration_us: 90_000_000,
            client: "203.0.113.77:1".parse().unwrap(),
            tunnel: None,
            omitted_before: 0,
            identity: None,
            rule: None,
        };
        assert_eq!(flow(&ended, None), "complete        1 min  203.0.113.77     tcp 999 B in, 1.5 MB out");
    }
}
