//! What a command that holds a tunnel shows while it runs: where it is reached, whether it is, and every request or flow.

use clap::builder::styling::{AnsiColor, Style};
use sallyport_api::Socket;
use sallyport_connector::{ConnectorEvent, TransportChoice};
use sallyport_model::{FlowRecord, RequestRecord, SocketType};
use serde_json::{Value, json};
use time::{OffsetDateTime, UtcOffset};

use crate::output::{self, Format, Output, paint, safe, styled};

/// The width of the target's column, in characters; longer ones push the rest aside.
const TARGET_COLUMN: usize = 40;
/// The width of a flow's client, in characters: an IPv4 address and its port.
const CLIENT_COLUMN: usize = 21;
/// The width of how a flow ended, in characters.
const VERDICT_COLUMN: usize = 16;

/// Shows what happens: on a terminal all of it, in a pipe the address and the requests, for programs as events.
pub(crate) struct Live {
    output: Output,
    offset: UtcOffset,
    is_announced: bool,
    is_lost: bool,
}

impl Live {
    /// Nothing is shown yet.
    pub(crate) fn new(output: Output, offset: UtcOffset) -> Self {
        Self { output, offset, is_announced: false, is_lost: false }
    }

    /// What is connected with what.
    ///
    /// # Errors
    /// The standard output is closed.
    pub(crate) fn header(&self, socket: &Socket, origin: &str) -> anyhow::Result<()> {
        if self.output.format != Format::Table {
            return self.emit(json!({ "event": "socket", "socket": socket, "origin": origin }));
        }
        if !self.output.terminal {
            return Ok(());
        }
        let bold = |text: &str| if self.output.color { styled(text, Style::new().bold()) } else { text.to_owned() };
        output::line(&format!("{}  {}", bold(&safe(socket.name.as_str())), bold(&safe(&socket.url))))?;
        let mut rows = vec![("origin", origin.to_owned())];
        if let Some(protected) = &socket.protected {
            rows.push(("protected", format!("user {}", protected.username)));
        }
        output::line(&output::pairs(&rows))?;
        output::line("")
    }

    /// One thing that happened.
    ///
    /// # Errors
    /// The standard output is closed.
    pub(crate) fn event(&mut self, event: &ConnectorEvent) -> anyhow::Result<()> {
        if self.output.format != Format::Table {
            return self.emit(as_json(event));
        }
        match event {
            ConnectorEvent::Request(record) => {
                omitted(record.omitted_before)?;
                return output::line(&self.request(record));
            }
            ConnectorEvent::Flow(record) => {
                omitted(record.omitted_before)?;
                return output::line(&self.flow(record));
            }
            ConnectorEvent::Attached { url, .. } if !self.output.terminal => {
                self.is_lost = false;
                let was_announced = std::mem::replace(&mut self.is_announced, true);
                return if was_announced { Ok(()) } else { output::line(&safe(url)) };
            }
            ConnectorEvent::OriginMissing { reason } => return self.origin_missing(reason, SocketType::Udp),
            _ => {}
        }
        let (color, text) = state(event);
        if self.output.terminal {
            return self.state(color, &text);
        }
        // Once is enough: it is tried again until it works.
        if matches!(event, ConnectorEvent::Disconnected { .. } | ConnectorEvent::NotAttached { .. })
            && !std::mem::replace(&mut self.is_lost, true)
        {
            output::note(&format!("note: {}", safe(&text)));
        }
        Ok(())
    }

    /// Nothing listens at the service's address: requests or connections will fail until something does.
    ///
    /// # Errors
    /// The standard output is closed.
    pub(crate) fn origin_missing(&self, reason: &str, socket_type: SocketType) -> anyhow::Result<()> {
        if self.output.format != Format::Table {
            return self.emit(json!({ "event": "origin-missing", "reason": reason }));
        }
        let what = match socket_type {
            SocketType::Http | SocketType::Https => "requests get status 502",
            SocketType::Tcp | SocketType::Tls => "connections are reset",
            SocketType::Udp => "datagrams are dropped",
        };
        output::note(&format!("note: {}; {what} until the service is there", safe(reason)));
        Ok(())
    }

    /// There is no connection to the edge after a while, and nothing has said so.
    pub(crate) fn still_connecting(&self, transport: TransportChoice) {
        if self.output.format == Format::Table && !self.output.terminal && !self.is_announced && !self.is_lost {
            let how = match transport {
                TransportChoice::Auto => String::new(),
                TransportChoice::Only(transport) => format!(" by {transport}"),
            };
            output::note(&format!("note: connecting{how}"));
        }
    }

    /// The command was asked to stop.
    ///
    /// # Errors
    /// The standard output is closed.
    pub(crate) fn stopping(&self) -> anyhow::Result<()> {
        match (self.output.format, self.output.terminal) {
            (Format::Table, true) => {
                self.state(AnsiColor::Yellow, "stopping when running requests are done; Ctrl-C again to stop now")
            }
            (Format::Table, false) => Ok(()),
            _ => self.emit(json!({ "event": "stopping" })),
        }
    }

    fn state(&self, color: AnsiColor, text: &str) -> anyhow::Result<()> {
        let text = safe(text);
        output::line(&if self.output.color { paint(&text, color) } else { text.into_owned() })
    }

    /// One event as one line of JSON, or as one document of YAML.
    fn emit(&self, event: Value) -> anyhow::Result<()> {
        match self.output.format {
            Format::Yaml => output::line(&format!("---\n{}", serde_norway::to_string(&event)?.trim_end())),
            Format::Json | Format::Table => output::line(&event.to_string()),
        }
    }

    /// Time, method, target, status, duration and bytes of a request.
    fn request(&self, record: &RequestRecord) -> String {
        let status = record.status.to_string();
        let status = if self.output.color { paint(&status, status_color(record.status)) } else { status };
        let (method, target) = (safe(&record.method), safe(&record.target));
        let bytes = if record.bytes_in > 0 {
            format!("{} in, {} out", bytes(record.bytes_in), bytes(record.bytes_out))
        } else {
            bytes(record.bytes_out)
        };
        let (clock, duration) = (clock(record.at_ms, self.offset), duration(record.duration_us));
        format!("{clock}  {method:<7} {target:<TARGET_COLUMN$} {status} {duration:>9}  {bytes}")
    }

    /// Time, transport, client, verdict, duration and bytes of a flow.
    fn flow(&self, record: &FlowRecord) -> String {
        let verdict = format!("{:<VERDICT_COLUMN$}", safe(&record.verdict));
        let verdict = if self.output.color { paint(&verdict, verdict_color(&record.verdict)) } else { verdict };
        let (clock, duration) = (clock(record.at_ms, self.offset), duration(record.duration_us));
        let (transport, client) = (record.transport.as_str(), record.client.to_string());
        let (sent, received) = (bytes(record.bytes_in), bytes(record.bytes_out));
        format!("{clock}  {transport:<4} {client:<CLIENT_COLUMN$} {verdict} {duration:>9}  {sent} in, {received} out")
    }
}

/// So many lines were left out.
fn omitted(count: u32) -> anyhow::Result<()> {
    match count {
        0 => Ok(()),
        _ => output::line(&format!("          … {count} more, faster than they can be shown")),
    }
}

/// What an event means to people, and its colour.
fn state(event: &ConnectorEvent) -> (AnsiColor, String) {
    match event {
        ConnectorEvent::Connecting => (AnsiColor::BrightBlack, "connecting".to_owned()),
        ConnectorEvent::Connected { rtt, transport } => {
            (AnsiColor::BrightBlack, format!("connected by {transport}, {} away", duration(micros(*rtt))))
        }
        ConnectorEvent::Attached { url, .. } => (AnsiColor::Green, format!("open at {url}")),
        ConnectorEvent::NotAttached { refusal, .. } => (AnsiColor::Red, format!("refused: {refusal}")),
        ConnectorEvent::Detached { message, .. } => (AnsiColor::Yellow, format!("taken away by the edge: {message}")),
        ConnectorEvent::GoingAway { message } => (AnsiColor::Yellow, format!("the edge is going away: {message}")),
        ConnectorEvent::Disconnected { reason } => (AnsiColor::Red, format!("not connected: {reason}")),
        ConnectorEvent::Retrying { after } => {
            (AnsiColor::Yellow, format!("trying again in {:.1} s", after.as_secs_f64()))
        }
        ConnectorEvent::Request(_) | ConnectorEvent::Flow(_) | ConnectorEvent::OriginMissing { .. } => {
            (AnsiColor::White, String::new())
        }
    }
}

/// An event for programs.
fn as_json(event: &ConnectorEvent) -> Value {
    match event {
        ConnectorEvent::Connecting => json!({ "event": "connecting" }),
        ConnectorEvent::Connected { rtt, transport } => {
            json!({ "event": "connected", "rtt_us": micros(*rtt), "transport": transport })
        }
        ConnectorEvent::Attached { tunnel, url } => json!({ "event": "attached", "tunnel": tunnel, "url": url }),
        ConnectorEvent::NotAttached { tunnel, refusal } => json!({
            "event": "refused", "tunnel": tunnel,
            "code": refusal.code, "message": refusal.message, "retry": refusal.retry,
        }),
        ConnectorEvent::Detached { tunnel, code, message } => {
            json!({ "event": "detached", "tunnel": tunnel, "code": code, "message": message })
        }
        ConnectorEvent::GoingAway { message } => json!({ "event": "going-away", "message": message }),
        ConnectorEvent::OriginMissing { reason } => json!({ "event": "origin-missing", "reason": reason }),
        ConnectorEvent::Disconnected { reason } => json!({ "event": "disconnected", "reason": reason }),
        ConnectorEvent::Retrying { after } => json!({ "event": "retrying", "after_ms": micros(*after) / 1_000 }),
        ConnectorEvent::Request(record) => json!({ "event": "request", "request": record }),
        ConnectorEvent::Flow(record) => json!({ "event": "flow", "flow": record }),
    }
}

fn micros(span: std::time::Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

fn verdict_color(verdict: &str) -> AnsiColor {
    match verdict {
        "complete" => AnsiColor::Green,
        "client-left" => AnsiColor::White,
        "cut-off" | "evicted" | "too-many-flows" | "unanswered" => AnsiColor::Yellow,
        _ => AnsiColor::Red,
    }
}

fn status_color(status: u16) -> AnsiColor {
    match status {
        0..=199 => AnsiColor::White,
        200..=299 => AnsiColor::Green,
        300..=399 => AnsiColor::Cyan,
        400..=499 => AnsiColor::Yellow,
        500.. => AnsiColor::Red,
    }
}

/// The time of day.
fn clock(at_ms: i64, offset: UtcOffset) -> String {
    let at = OffsetDateTime::from_unix_timestamp_nanos(i128::from(at_ms) * 1_000_000)
        .unwrap_or(OffsetDateTime::UNIX_EPOCH)
        .to_offset(offset);
    format!("{:02}:{:02}:{:02}", at.hour(), at.minute(), at.second())
}

/// A span of time with three digits.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn duration(us: u64) -> String {
    let ms = us as f64 / 1_000.0;
    match us {
        0..=9_999 => format!("{ms:.2} ms"),
        10_000..=99_999 => format!("{ms:.1} ms"),
        100_000..=999_999 => format!("{ms:.0} ms"),
        _ => format!("{:.1} s", ms / 1_000.0),
    }
}

/// An amount of data with about three digits (units of 1,000).
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["kB", "MB", "GB", "TB", "PB", "EB"];
    if count < 1_000 {
        return format!("{count} B");
    }
    let mut amount = count as f64 / 1_000.0;
    let mut unit = 0;
    while amount >= 999.5 && unit + 1 < UNITS.len() {
        amount /= 1_000.0;
        unit += 1;
    }
    let digits = usize::from(amount < 99.95);
    format!("{amount:.digits$} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use crate::output::Color;

    use super::*;

    fn record() -> RequestRecord {
        RequestRecord {
            at_ms: 3_723_000,
            request_id: "r".into(),
            method: "GET".into(),
            target: "/a\u{1b}[31m".into(),
            version: "HTTP/2.0".into(),
            status: 404,
            bytes_in: 0,
            bytes_out: 1_234,
            duration_us: 1_500,
            client: "192.0.2.1:1".parse().unwrap(),
            omitted_before: 0,
        }
    }

    #[test]
    fn a_request_is_one_line_that_cannot_steer_the_terminal() {
        let plain = Live::new(Output::new(Format::Table, Color::Never), UtcOffset::from_hms(1, 0, 0).unwrap());
        let line = plain.request(&record());
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words, ["02:02:03", "GET", r"/a\u{1b}[31m", "404", "1.50", "ms", "1.2", "kB"]);
        let colored = Live::new(Output::new(Format::Table, Color::Always), UtcOffset::UTC);
        assert!(colored.request(&record()).contains("\u{1b}[33m404\u{1b}[0m"));
        let upload = RequestRecord { bytes_in: 10, ..record() };
        assert!(plain.request(&upload).ends_with("10 B in, 1.2 kB out"));
    }

    #[test]
    fn a_flow_is_one_line_that_says_how_it_ended() {
        let record = FlowRecord {
            at_ms: 3_723_000,
            flow_id: "f".into(),
            transport: SocketType::Tcp,
            verdict: "client-left".into(),
            bytes_in: 10,
            bytes_out: 1_234,
            duration_us: 1_500_000,
            client: "192.0.2.1:5000".parse().unwrap(),
            omitted_before: 0,
        };
        let live = Live::new(Output::new(Format::Table, Color::Never), UtcOffset::UTC);
        let line = live.flow(&record);
        let words: Vec<&str> = line.split_whitespace().collect();
        let wanted = "01:02:03 tcp 192.0.2.1:5000 client-left 1.5 s 10 B in, 1.2 kB out";
        assert_eq!(words.join(" "), wanted);
        let event = as_json(&ConnectorEvent::Flow(record));
        assert_eq!((&event["event"], &event["flow"]["verdict"]), (&json!("flow"), &json!("client-left")));
    }

    #[test]
    fn amounts_have_about_three_digits() {
        for (count, shown) in [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1.0 kB"),
            (99_949, "99.9 kB"),
            (99_950, "100 kB"),
            (999_499, "999 kB"),
            (999_500, "1.0 MB"),
            (5_368_709_120, "5.4 GB"),
            (u64::MAX, "18.4 EB"),
        ] {
            assert_eq!(bytes(count), shown, "{count}");
        }
        for (us, shown) in
            [(0, "0.00 ms"), (1_234, "1.23 ms"), (12_345, "12.3 ms"), (123_456, "123 ms"), (1_500_000, "1.5 s")]
        {
            assert_eq!(duration(us), shown, "{us}");
        }
    }

    #[test]
    fn events_for_programs_name_themselves() {
        let refusal = sallyport_wire::Refusal { code: "deleted".into(), message: "gone".into(), retry: false };
        let tunnel = sallyport_model::TunnelId::from_random([1; 16]);
        let event = as_json(&ConnectorEvent::NotAttached { tunnel, refusal });
        assert_eq!((event["event"].as_str(), event["code"].as_str()), (Some("refused"), Some("deleted")));
        let event = as_json(&ConnectorEvent::Request(record()));
        assert_eq!(event["request"]["status"], 404);
        let event = as_json(&ConnectorEvent::OriginMissing { reason: "nothing listens".into() });
        assert_eq!(event, json!({ "event": "origin-missing", "reason": "nothing listens" }));
    }
}
