//! Export of every line to an OpenTelemetry collector: the logs signal, by OTLP over HTTP (protobuf bodies, `POST
//! /v1/logs`; opentelemetry-proto 1.7, logs/v1/logs.proto). The few message types are encoded by hand.

use std::{
    fmt,
    io::{self, Read as _, Write as _},
    net::{TcpStream, ToSocketAddrs as _},
    str::FromStr,
    time::{Duration, Instant},
};

use prometheus_client::metrics::counter::Counter;
use sallyport_api::AuditKind;
use time::OffsetDateTime;

use crate::{
    shipping::{Carrier, Head},
    tail::Line,
};

/// Timeout of connecting, of sending, and of the answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The longest accepted answer, in bytes.
const MAX_ANSWER_BYTES: u64 = 64 * 1024;
/// `SEVERITY_NUMBER_INFO`.
const INFO: u64 = 9;

/// The address of a collector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtlpTarget {
    /// Host and port.
    authority: String,
    path: String,
}

/// The text is no address of a collector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected the address of a collector that speaks OTLP over HTTP, http://HOST:PORT, such as http://127.0.0.1:4318"
)]
pub struct OtlpTargetError;

impl FromStr for OtlpTarget {
    type Err = OtlpTargetError;
    fn from_str(text: &str) -> Result<Self, OtlpTargetError> {
        let rest = text.strip_prefix("http://").ok_or(OtlpTargetError)?;
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (host, port) = authority.rsplit_once(':').ok_or(OtlpTargetError)?;
        let is_host = !host.is_empty()
            && (!host.contains(':') || (host.starts_with('[') && host.ends_with(']')))
            && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte));
        let is_path = path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte));
        let is_port = port.parse::<u16>().is_ok_and(|port| port != 0);
        if !is_host || !is_path || !is_port {
            return Err(OtlpTargetError);
        }
        // The path of the signal is appended to that of the collector (OTLP 1.7, OTLP/HTTP request).
        let path = format!("{}/v1/logs", path.trim_end_matches('/'));
        Ok(Self { authority: authority.to_owned(), path })
    }
}

impl fmt::Display for OtlpTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.path)
    }
}

/// Counters of the export.
#[derive(Debug, Default, Clone)]
pub(crate) struct OtlpCounters {
    pub(crate) sent: Counter,
    pub(crate) lost: Counter,
}

/// The result of a batch.
enum Outcome {
    /// Accepted, except this many records.
    Taken { rejected: u64 },
    /// Refused; sending again is useless.
    Refused(String),
    /// Failed; may be sent again.
    Later(String),
}

/// Sends lines to a collector.
pub(crate) struct OtlpCarrier {
    target: OtlpTarget,
    counters: OtlpCounters,
    is_failing: bool,
}

impl Carrier for OtlpCarrier {
    const NAME: &'static str = "audit-otlp";

    fn target(&self) -> String {
        self.target.to_string()
    }

    fn send(&mut self, lines: &[Line]) -> usize {
        let records: Vec<_> = lines.iter().filter_map(record_of).collect();
        if records.is_empty() {
            return lines.len();
        }
        let count = records.len() as u64;
        match self.post(&request(&records)) {
            Outcome::Taken { rejected } => {
                let rejected = rejected.min(count);
                self.counters.sent.inc_by(count - rejected);
                self.counters.lost.inc_by(rejected);
                if std::mem::take(&mut self.is_failing) {
                    tracing::info!(target = %self.target, "the audit log is being sent to the collector again");
                }
                lines.len()
            }
            Outcome::Refused(why) => {
                self.log_failure(&why);
                self.counters.lost.inc_by(count);
                lines.len()
            }
            Outcome::Later(why) => {
                self.log_failure(&why);
                0
            }
        }
    }
}

/// The line as a `LogRecord`; `None` if the line is no event.
fn record_of(line: &Line) -> Option<Vec<u8>> {
    let Head { at, kind } = serde_json::from_str(&line.text).ok()?;
    Some(log_record(kind, line.seq, at, &line.text))
}

impl OtlpCarrier {
    pub(crate) fn new(target: OtlpTarget, counters: OtlpCounters) -> Self {
        Self { target, counters, is_failing: false }
    }

    fn log_failure(&mut self, why: &str) {
        if !std::mem::replace(&mut self.is_failing, true) {
            tracing::warn!(
                target = %self.target, why,
                "the audit log cannot be sent to the collector: trying again later"
            );
        }
    }

    fn post(&self, body: &[u8]) -> Outcome {
        match self.exchange(body) {
            Ok((200..=299, answer)) => Outcome::Taken { rejected: rejected(&answer) },
            // Retryable statuses (OTLP 1.7, retryable response codes).
            Ok((status @ (429 | 502 | 503 | 504), _)) => Outcome::Later(format!("the collector answered {status}")),
            Ok((status, _)) => Outcome::Refused(format!("the collector answered {status}")),
            Err(error) => Outcome::Later(error.to_string()),
        }
    }

    /// One request on a connection of its own; returns the status and the body of the response.
    fn exchange(&self, body: &[u8]) -> io::Result<(u16, Vec<u8>)> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        let mut connected = None;
        for to in self.target.authority.to_socket_addrs()? {
            match TcpStream::connect_timeout(&to, TIMEOUT) {
                Ok(stream) => {
                    connected = Some(stream);
                    break;
                }
                Err(error) => last = error,
            }
        }
        let Some(mut stream) = connected else { return Err(last) };
        stream.set_write_timeout(Some(TIMEOUT))?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        let head = format!(
            "POST {} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/x-protobuf\r\ncontent-length: {}\r\nuser-agent: \
             sallyport/{}\r\nconnection: close\r\n\r\n",
            self.target.path,
            self.target.authority,
            body.len(),
            env!("CARGO_PKG_VERSION")
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(body)?;
        let end = Instant::now() + TIMEOUT;
        let mut answer = Vec::new();
        let mut piece = [0; 4_096];
        loop {
            if let Some(read) = read_answer(&answer) {
                return Ok(read);
            }
            if Instant::now() >= end || answer.len() as u64 > MAX_ANSWER_BYTES {
                return Err(io::ErrorKind::TimedOut.into());
            }
            match stream.read(&mut piece)? {
                0 => return at_end(&answer).ok_or_else(|| io::ErrorKind::UnexpectedEof.into()),
                read => answer.extend_from_slice(&piece[..read]),
            }
        }
    }
}

/// Status, and the length of the body if the response declares it.
fn answer_head(answer: &[u8]) -> Option<(u16, Option<usize>, &[u8])> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&answer[..end]);
    let mut lines = head.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let length = lines.filter_map(|line| line.split_once(':')).find_map(|(name, value)| {
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok()).flatten()
    });
    Some((status, length, &answer[end + 4..]))
}

fn read_answer(answer: &[u8]) -> Option<(u16, Vec<u8>)> {
    let (status, length, body) = answer_head(answer)?;
    let length = length.filter(|length| body.len() >= *length)?;
    Some((status, body[..length].to_vec()))
}

/// The response at the end of the connection. A chunked body is not decoded: only the status counts then.
fn at_end(answer: &[u8]) -> Option<(u16, Vec<u8>)> {
    let (status, ..) = answer_head(answer)?;
    Some((status, Vec::new()))
}

/// Number of records that the collector refused: `ExportLogsServiceResponse.partial_success.rejected_log_records`.
fn rejected(answer: &[u8]) -> u64 {
    let Some((1, 2, partial)) = first_field(answer) else { return 0 };
    match first_field(partial) {
        Some((1, 0, count)) => varint(count).map_or(0, |(count, _)| count),
        _ => 0,
    }
}

/// The first field of a message: number, wire type, and content.
fn first_field(message: &[u8]) -> Option<(u64, u64, &[u8])> {
    let (tag, rest) = varint(message)?;
    if tag & 7 != 2 {
        return Some((tag >> 3, tag & 7, rest));
    }
    let (length, rest) = varint(rest)?;
    Some((tag >> 3, 2, rest.get(..usize::try_from(length).ok()?)?))
}

fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0_u64;
    for (at, byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f).checked_shl(7 * u32::try_from(at).ok()?)?;
        if byte & 0x80 == 0 {
            return Some((value, &bytes[at + 1..]));
        }
    }
    None
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value as u8 & 0x7f) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn put_bytes(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    put_varint(out, field << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_fixed64(out: &mut Vec<u8>, field: u64, value: u64) {
    put_varint(out, field << 3 | 1);
    out.extend_from_slice(&value.to_le_bytes());
}

/// `AnyValue` with a text.
fn text_value(text: &str) -> Vec<u8> {
    let mut value = Vec::with_capacity(text.len() + 4);
    put_bytes(&mut value, 1, text.as_bytes());
    value
}

/// `KeyValue`.
fn key_value(key: &str, value: &[u8]) -> Vec<u8> {
    let mut pair = Vec::with_capacity(key.len() + value.len() + 8);
    put_bytes(&mut pair, 1, key.as_bytes());
    put_bytes(&mut pair, 2, value);
    pair
}

/// `LogRecord`: its body is the line of the log, so that the receiver can check the hash.
fn log_record(kind: AuditKind, seq: u64, at: OffsetDateTime, line: &str) -> Vec<u8> {
    let nanoseconds = |at: OffsetDateTime| u64::try_from(at.unix_timestamp_nanos()).unwrap_or_default();
    let mut record = Vec::with_capacity(line.len() + 128);
    put_fixed64(&mut record, 1, nanoseconds(at));
    put_varint(&mut record, 2 << 3);
    put_varint(&mut record, INFO);
    put_bytes(&mut record, 3, b"INFO");
    put_bytes(&mut record, 5, &text_value(line));
    let mut number = Vec::new();
    put_varint(&mut number, 3 << 3);
    put_varint(&mut number, seq);
    put_bytes(&mut record, 6, &key_value("audit.kind", &text_value(kind.as_str())));
    put_bytes(&mut record, 6, &key_value("audit.seq", &number));
    put_fixed64(&mut record, 11, nanoseconds(OffsetDateTime::now_utc()));
    put_bytes(&mut record, 12, format!("sallyport.audit.{}", kind.as_str()).as_bytes());
    record
}

/// `ExportLogsServiceRequest`.
fn request(records: &[Vec<u8>]) -> Vec<u8> {
    let node = rustix::system::uname();
    let mut resource = Vec::new();
    put_bytes(&mut resource, 1, &key_value("service.name", &text_value("sallyport")));
    put_bytes(&mut resource, 1, &key_value("service.version", &text_value(env!("CARGO_PKG_VERSION"))));
    put_bytes(&mut resource, 1, &key_value("host.name", &text_value(&node.nodename().to_string_lossy())));
    let mut scope = Vec::new();
    put_bytes(&mut scope, 1, b"sallyport.audit");
    let mut scope_logs = Vec::with_capacity(records.iter().map(|record| record.len() + 8).sum());
    put_bytes(&mut scope_logs, 1, &scope);
    for record in records {
        put_bytes(&mut scope_logs, 2, record);
    }
    let mut resource_logs = Vec::with_capacity(scope_logs.len() + 128);
    put_bytes(&mut resource_logs, 1, &resource);
    put_bytes(&mut resource_logs, 2, &scope_logs);
    let mut request = Vec::with_capacity(resource_logs.len() + 8);
    put_bytes(&mut request, 1, &resource_logs);
    request
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use opentelemetry_proto::tonic::{
        collector::logs::v1::{ExportLogsPartialSuccess, ExportLogsServiceRequest, ExportLogsServiceResponse},
        common::v1::any_value::Value,
    };
    use prost::Message as _;

    use super::*;

    /// Accepts one request and sends this answer; returns the request's head and body.
    fn take(listener: &TcpListener, answer: &[u8]) -> (String, ExportLogsServiceRequest) {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        let mut piece = [0; 4_096];
        loop {
            let read = stream.read(&mut piece).unwrap();
            assert!(read > 0, "the exporter closed the connection early");
            request.extend_from_slice(&piece[..read]);
            let Some(end) = request.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
            let head = String::from_utf8(request[..end].to_vec()).unwrap();
            let length = head.split("content-length: ").nth(1).unwrap().split("\r\n").next().unwrap();
            let body = &request[end + 4..];
            if body.len() == length.parse::<usize>().unwrap() {
                stream.write_all(answer).unwrap();
                return (head, ExportLogsServiceRequest::decode(body).unwrap());
            }
        }
    }

    fn answer(status: &str, body: &[u8]) -> Vec<u8> {
        let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", body.len());
        [head.as_bytes(), body].concat()
    }

    #[test]
    fn lines_reach_a_collector_as_the_logs_signal() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target: OtlpTarget = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let counters = OtlpCounters::default();
        let mut carrier = OtlpCarrier::new(target, counters.clone());
        let line = |seq: u64, kind: &str| {
            let text = format!(r#"{{"seq":{seq},"at":"2026-11-21T08:00:00.123Z","kind":"{kind}"}}"#);
            Line { seq, text }
        };
        let mut send = |lines: &[Line], answer: &[u8]| {
            std::thread::scope(|scope| {
                let taken = scope.spawn(|| take(&listener, answer));
                (carrier.send(lines), taken.join().unwrap())
            })
        };
        let (sent, (head, request)) = send(&[line(300, "flow")], &answer("200 OK", b""));
        assert_eq!(sent, 1);
        assert!(head.starts_with("POST /v1/logs HTTP/1.1\r\n"), "{head}");
        assert!(head.contains("content-type: application/x-protobuf"), "{head}");
        let resource = &request.resource_logs[0];
        let text =
            |value: &Option<opentelemetry_proto::tonic::common::v1::AnyValue>| match &value.as_ref().unwrap().value {
                Some(Value::StringValue(text)) => text.clone(),
                Some(Value::IntValue(number)) => number.to_string(),
                other => panic!("{other:?}"),
            };
        let names: Vec<_> = resource.resource.as_ref().unwrap().attributes.iter().map(|one| one.key.clone()).collect();
        assert_eq!(names, ["service.name", "service.version", "host.name"]);
        let logs = &resource.scope_logs[0];
        assert_eq!(logs.scope.as_ref().unwrap().name, "sallyport.audit");
        let record = &logs.log_records[0];
        assert_eq!(record.time_unix_nano, 1_795_248_000_123_000_000);
        assert_eq!((record.severity_number, record.severity_text.as_str()), (9, "INFO"));
        assert_eq!(text(&record.body), line(300, "flow").text);
        assert_eq!(record.event_name, "sallyport.audit.flow");
        let attributes: Vec<_> = record.attributes.iter().map(|one| (one.key.clone(), text(&one.value))).collect();
        let expected = [("audit.kind", "flow"), ("audit.seq", "300")];
        assert_eq!(attributes, expected.map(|(key, value)| (key.to_owned(), value.to_owned())));
        assert!(record.observed_time_unix_nano > 0);

        // Refused records are counted, in part and as a whole.
        let partial = ExportLogsPartialSuccess { rejected_log_records: 1, error_message: "no".to_owned() };
        let partial = ExportLogsServiceResponse { partial_success: Some(partial) }.encode_to_vec();
        assert_eq!(send(&[line(301, "admin")], &answer("200 OK", &partial)).0, 1);
        assert_eq!(send(&[line(302, "admin")], &answer("400 Bad Request", b"")).0, 1);
        assert_eq!((counters.sent.get(), counters.lost.get()), (1, 2));
        // After a retryable status the same batch is sent again.
        let (sent, _) = send(&[line(303, "login"), line(304, "gap")], &answer("503 Service Unavailable", b""));
        assert_eq!((sent, counters.lost.get()), (0, 2));
        drop(listener);
        let mut away = OtlpCarrier::new("http://127.0.0.1:1/otlp/".parse().unwrap(), counters.clone());
        assert_eq!((away.send(&[line(305, "flow")]), counters.lost.get()), (0, 2));
        assert_eq!(
            away.send(&[Line { seq: 306, text: "nonsense".to_owned() }]),
            1,
            "lines without an event are skipped"
        );
    }

    #[test]
    fn addresses_of_collectors_are_read() {
        for (text, shown) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/logs"),
            ("http://otel.example.com:4318/", "http://otel.example.com:4318/v1/logs"),
            ("http://[::1]:4318/otlp", "http://[::1]:4318/otlp/v1/logs"),
        ] {
            assert_eq!(text.parse::<OtlpTarget>().unwrap().to_string(), shown);
        }
        for bad in
            ["", "127.0.0.1:4318", "https://a:1", "http://", "http://a", "http://a:0", "http://a:x", "http://a b:1"]
        {
            assert!(bad.parse::<OtlpTarget>().is_err(), "{bad}");
        }
        for nonsense in [&b""[..], b"\xff\xff", b"\x0a\x05\x08", b"\x0a\x01\x08", b"\x0a\x02\x10\x01"] {
            assert_eq!(rejected(nonsense), 0);
        }
    }
}
