//! Every line to an OpenTelemetry collector too: the logs signal, by OTLP over HTTP (protobuf bodies, `POST /v1/logs`;
//! opentelemetry-proto 1.7, logs/v1/logs.proto). The messages are few, and written here by hand.

use std::{
    fmt,
    io::{self, Read as _, Write as _},
    net::{TcpStream, ToSocketAddrs as _},
    str::FromStr,
    sync::mpsc::{self, Receiver, SyncSender},
    time::{Duration, Instant},
};

use prometheus_client::metrics::counter::Counter;
use sallyport_api::AuditKind;
use time::OffsetDateTime;

/// How many records may wait.
const MAX_QUEUED_RECORDS: usize = 8_192;
/// How many are sent at once, and how long they are together, in bytes.
const MAX_BATCH_RECORDS: usize = 512;
const MAX_BATCH_BYTES: usize = 1024 * 1024;
/// How long connecting, sending and answering may take, each.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How long after a failure the same records are tried again.
const RETRY: Duration = Duration::from_secs(5);
/// The longest answer that is read, in bytes.
const MAX_ANSWER_BYTES: u64 = 64 * 1024;
/// How long the last records are waited for at the end.
const MAX_END_WAIT: Duration = Duration::from_secs(2);
/// `SEVERITY_NUMBER_INFO`.
const INFO: u64 = 9;

/// A collector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtlpTarget {
    /// Host and port.
    authority: String,
    path: String,
}

/// The text says no collector.
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
        // The signal's own path stands behind that of the collector (OTLP 1.7, OTLP/HTTP request).
        let path = format!("{}/v1/logs", path.trim_end_matches('/'));
        Ok(Self { authority: authority.to_owned(), path })
    }
}

impl fmt::Display for OtlpTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.path)
    }
}

/// What is counted.
#[derive(Debug, Default, Clone)]
pub(crate) struct OtlpCounters {
    pub(crate) sent: Counter,
    pub(crate) lost: Counter,
}

enum Message {
    /// A `LogRecord`, written.
    Record(Vec<u8>),
    Flush(SyncSender<()>),
}

/// What sends, in a thread of its own.
pub(crate) struct OtlpExporter {
    sender: SyncSender<Message>,
    counters: OtlpCounters,
}

impl OtlpExporter {
    pub(crate) fn start(target: OtlpTarget, counters: OtlpCounters) -> Option<Self> {
        let (sender, receiver) = mpsc::sync_channel(MAX_QUEUED_RECORDS);
        let sending = Sending { target, counters: counters.clone(), is_failing: false };
        match std::thread::Builder::new().name("audit-otlp".to_owned()).spawn(move || sending.run(&receiver)) {
            Ok(_) => Some(Self { sender, counters }),
            Err(error) => {
                tracing::warn!(%error, "the audit log is not sent to the collector");
                None
            }
        }
    }

    /// Sends the line, later; never waits.
    pub(crate) fn send(&self, kind: AuditKind, seq: u64, at: OffsetDateTime, line: &str) {
        let record = Message::Record(log_record(kind, seq, at, line));
        if self.sender.try_send(record).is_err() {
            self.counters.lost.inc();
        }
    }

    /// Waits for a moment until what waits is sent.
    pub(crate) fn flush(&self) {
        let (done, when_done) = mpsc::sync_channel(1);
        if self.sender.try_send(Message::Flush(done)).is_ok() {
            let _ = when_done.recv_timeout(MAX_END_WAIT);
        }
    }
}

/// What became of a batch.
enum Outcome {
    /// It was taken, but for so many records.
    Taken { rejected: u64 },
    /// It is of no use to send it again.
    Refused(String),
    /// It may go another time.
    Later(String),
}

struct Sending {
    target: OtlpTarget,
    counters: OtlpCounters,
    is_failing: bool,
}

impl Sending {
    /// Sends until nobody has anything to send.
    fn run(mut self, messages: &Receiver<Message>) {
        let mut flushes = Vec::new();
        while let Ok(first) = messages.recv() {
            let (mut records, mut bytes) = (Vec::new(), 0);
            let mut next = Some(first);
            while let Some(message) = next.take() {
                match message {
                    Message::Record(record) => {
                        bytes += record.len();
                        records.push(record);
                    }
                    Message::Flush(done) => flushes.push(done),
                }
                if records.len() < MAX_BATCH_RECORDS && bytes < MAX_BATCH_BYTES && flushes.is_empty() {
                    next = messages.try_recv().ok();
                }
            }
            self.deliver(&records, !flushes.is_empty());
            for done in flushes.drain(..) {
                let _ = done.try_send(());
            }
        }
    }

    /// Sends the records until they are taken or refused; once only when somebody waits for the end.
    fn deliver(&mut self, records: &[Vec<u8>], is_last: bool) {
        if records.is_empty() {
            return;
        }
        let count = records.len() as u64;
        let body = request(records);
        loop {
            match self.post(&body) {
                Outcome::Taken { rejected } => {
                    let rejected = rejected.min(count);
                    self.counters.sent.inc_by(count - rejected);
                    self.counters.lost.inc_by(rejected);
                    if std::mem::take(&mut self.is_failing) {
                        tracing::info!(target = %self.target, "the audit log is sent to the collector again");
                    }
                    return;
                }
                Outcome::Refused(why) => {
                    self.tell(&why);
                    self.counters.lost.inc_by(count);
                    return;
                }
                Outcome::Later(why) => {
                    self.tell(&why);
                    if is_last {
                        self.counters.lost.inc_by(count);
                        return;
                    }
                    // What comes meanwhile waits in the queue, and is counted where that is full.
                    std::thread::sleep(RETRY);
                }
            }
        }
    }

    fn tell(&mut self, why: &str) {
        if !std::mem::replace(&mut self.is_failing, true) {
            tracing::warn!(target = %self.target, why, "the audit log cannot be sent to the collector, trying again");
        }
    }

    fn post(&self, body: &[u8]) -> Outcome {
        match self.exchange(body) {
            Ok((200..=299, answer)) => Outcome::Taken { rejected: rejected(&answer) },
            // What may be tried again (OTLP 1.7, retryable response codes).
            Ok((status @ (429 | 502 | 503 | 504), _)) => Outcome::Later(format!("it answered {status}")),
            Ok((status, _)) => Outcome::Refused(format!("it answered {status}")),
            Err(error) => Outcome::Later(error.to_string()),
        }
    }

    /// One request on a connection of its own; gives the status and the body of the answer.
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

/// Status, and the length of the body where the answer says it.
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

/// The answer when nothing follows. One in pieces is not put together: only its status counts then.
fn at_end(answer: &[u8]) -> Option<(u16, Vec<u8>)> {
    let (status, ..) = answer_head(answer)?;
    Some((status, Vec::new()))
}

/// How many records the collector did not take: `ExportLogsServiceResponse.partial_success.rejected_log_records`.
fn rejected(answer: &[u8]) -> u64 {
    let Some((1, 2, partial)) = first_field(answer) else { return 0 };
    match first_field(partial) {
        Some((1, 0, count)) => varint(count).map_or(0, |(count, _)| count),
        _ => 0,
    }
}

/// The first field of a message: its number, its wire type, and what it has.
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

/// `LogRecord`: the line of the log as its body, so that its hash can be checked where it was received.
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

    /// Takes one request and gives this answer; gives its head and its body.
    fn take(listener: &TcpListener, answer: &[u8]) -> (String, ExportLogsServiceRequest) {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        let mut piece = [0; 4_096];
        loop {
            let read = stream.read(&mut piece).unwrap();
            assert!(read > 0, "the exporter hung up early");
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
        let exporter = OtlpExporter::start(target, counters.clone()).unwrap();
        let at = OffsetDateTime::from_unix_timestamp_nanos(1_795_248_000_123_000_000).unwrap();
        exporter.send(AuditKind::Flow, 300, at, "{\"seq\":300}");
        let (head, request) = take(&listener, &answer("200 OK", b""));
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
        assert_eq!(text(&record.body), "{\"seq\":300}");
        assert_eq!(record.event_name, "sallyport.audit.flow");
        let attributes: Vec<_> = record.attributes.iter().map(|one| (one.key.clone(), text(&one.value))).collect();
        let expected = [("audit.kind", "flow"), ("audit.seq", "300")];
        assert_eq!(attributes, expected.map(|(key, value)| (key.to_owned(), value.to_owned())));
        assert!(record.observed_time_unix_nano > 0);

        // What it does not take is counted, in part and as a whole.
        let partial = ExportLogsPartialSuccess { rejected_log_records: 1, error_message: "no".to_owned() };
        let partial = ExportLogsServiceResponse { partial_success: Some(partial) }.encode_to_vec();
        exporter.send(AuditKind::Admin, 301, at, "x");
        take(&listener, &answer("200 OK", &partial));
        exporter.send(AuditKind::Admin, 302, at, "x");
        take(&listener, &answer("400 Bad Request", b""));
        let end = Instant::now() + Duration::from_secs(20);
        while counters.lost.get() < 2 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!((counters.sent.get(), counters.lost.get()), (1, 2));
    }

    #[test]
    fn what_comes_while_the_collector_is_away_is_sent_later_and_what_is_too_much_is_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target: OtlpTarget = format!("http://{}/otlp/", listener.local_addr().unwrap()).parse().unwrap();
        let counters = OtlpCounters::default();
        let exporter = OtlpExporter::start(target, counters.clone()).unwrap();
        exporter.send(AuditKind::Flow, 1, OffsetDateTime::now_utc(), "first");
        let (head, _) = take(&listener, &answer("503 Service Unavailable", b""));
        assert!(head.starts_with("POST /otlp/v1/logs "), "{head}");
        let all = MAX_QUEUED_RECORDS as u64 + 100;
        for seq in 2..2 + all {
            exporter.send(AuditKind::Flow, seq, OffsetDateTime::now_utc(), "more");
        }
        let lost = counters.lost.get();
        assert!((100..=101).contains(&lost), "{lost}");
        let mut seen = 0;
        while seen < 1 + all - lost {
            let (_, request) = take(&listener, &answer("200 OK", b""));
            seen += request.resource_logs[0].scope_logs[0].log_records.len() as u64;
        }
        assert_eq!(seen, 1 + all - lost, "the first one too");
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
