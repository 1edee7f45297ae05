//! The output of a command that holds a tunnel: its address, its state, and every request or flow.

use std::collections::{HashMap, HashSet};

use clap::builder::styling::{AnsiColor, Style};
use sallyport_api::Socket;
use sallyport_connector::{ConnectorEvent, TransportChoice};
use sallyport_model::{
    EdgeName, FlowRecord, HealthFailure, HealthRecord, PathRoute, RequestRecord, SocketType, TunnelId,
};
use serde::Serialize;
use serde_json::{Value, json};
use time::UtcOffset;

use crate::{
    args::service::ShownPath,
    failure::Failure,
    output::{self, Format, Output, paint, safe, styled},
    screen::{Screen, Served, Tone},
    units::{bytes, clock, duration},
};

/// The width of the target's column, in characters; longer ones shift the rest.
const TARGET_COLUMN: usize = 40;
/// The width of a flow's client, in characters: an IPv4 address and its port.
const CLIENT_COLUMN: usize = 21;
/// The width of a service's name if there are several, in characters; longer ones shift the rest.
const SERVICE_COLUMN: usize = 16;
/// The width of a flow's verdict, in characters.
const VERDICT_COLUMN: usize = 16;

/// Who asks for a reload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ReloadCause {
    /// SIGHUP.
    Signal,
    /// The file has changed.
    File,
}

/// Shows events: on a terminal all of them, in a pipe the address and the requests, for programs as JSON or YAML.
pub(crate) struct Live {
    output: Output,
    /// The live screen, in place of lines.
    screen: Option<Screen>,
    offset: UtcOffset,
    /// The names of services, if there may be several.
    names: Option<HashMap<TunnelId, String>>,
    /// Whether these names are paths of one public name.
    are_paths: bool,
    /// The tunnels whose addresses were printed to a pipe.
    announced: HashSet<TunnelId>,
    /// The edges that hold each tunnel.
    holders: HashMap<TunnelId, HashSet<Option<EdgeName>>>,
    /// The last shown failure of each unhealthy service.
    unwell: HashMap<TunnelId, HealthFailure>,
    is_lost: bool,
}

impl Live {
    /// Nothing was shown yet.
    pub(crate) fn new(output: Output, offset: UtcOffset) -> Self {
        Self {
            output,
            screen: None,
            offset,
            names: None,
            are_paths: false,
            announced: HashSet::new(),
            holders: HashMap::new(),
            unwell: HashMap::new(),
            is_lost: false,
        }
    }

    /// For several services, each with its name before its lines.
    pub(crate) fn of_services(output: Output, offset: UtcOffset) -> Self {
        Self { names: Some(HashMap::new()), ..Self::new(output, offset) }
    }

    /// For services of one public name, each named by its path.
    pub(crate) fn of_paths(output: Output, offset: UtcOffset) -> Self {
        Self { are_paths: true, ..Self::of_services(output, offset) }
    }

    /// From now on, all is shown on this screen.
    pub(crate) fn set_screen(&mut self, screen: Screen) {
        self.output.color = false;
        self.screen = Some(screen);
    }

    /// Ends the screen, if there is one: what follows are lines.
    pub(crate) fn end_screen(&mut self) {
        self.screen = None;
    }

    /// Sets the name of the service behind this tunnel.
    pub(crate) fn name(&mut self, tunnel: TunnelId, name: &str) {
        if let Some(names) = &mut self.names {
            names.insert(tunnel, name.to_owned());
        }
    }

    /// Forgets a tunnel.
    pub(crate) fn forget(&mut self, tunnel: TunnelId) {
        if let Some(names) = &mut self.names {
            names.remove(&tunnel);
        }
        if let Some(screen) = &self.screen {
            screen.remove_served(tunnel);
        }
        self.announced.remove(&tunnel);
        self.holders.remove(&tunnel);
        self.unwell.remove(&tunnel);
    }

    /// The name of this tunnel's service, if there may be several.
    fn service(&self, tunnel: Option<TunnelId>) -> Option<&str> {
        self.names.as_ref()?.get(&tunnel?).map(String::as_str)
    }

    /// A service is about to be served. Programs get an event; people get notes on settings without effect, and later
    /// the address.
    ///
    /// # Errors
    /// The standard output is closed.
    pub(crate) fn serving(&self, tunnel: TunnelId, socket: Option<&Socket>, origin: &str) -> anyhow::Result<()> {
        if self.output.format == Format::Table {
            let name = self.service(Some(tunnel)).map(|name| format!("{}: ", safe(name))).unwrap_or_default();
            let notes = socket.into_iter().flat_map(|socket| &socket.notes);
            notes.for_each(|note| self.hint(&format!("{name}{}", safe(note))));
            if let Some(screen) = &self.screen {
                let known = self.service(Some(tunnel));
                let name = known.or(socket.map(|socket| socket.name.as_str())).unwrap_or("service").to_owned();
                let url = socket.map(|socket| socket.url.clone()).unwrap_or_default();
                screen.set_served(Served { tunnel: Some(tunnel), name, url, origins: vec![origin.to_owned()] });
            }
            return Ok(());
        }
        let mut event = json!({ "event": "service", "tunnel": tunnel, "origin": origin });
        if let (Value::Object(event), Some(socket)) = (&mut event, socket) {
            event.insert("socket".to_owned(), serde_json::to_value(socket)?);
        }
        self.emit(event, Some(tunnel))
    }

    /// Services were added, changed and removed.
    ///
    /// # Errors
    /// The standard output is closed.
    pub(crate) fn reloaded(&self, names: [&[String]; 3], cause: ReloadCause) -> anyhow::Result<()> {
        let [added, changed, removed] = names;
        if self.output.format != Format::Table {
            let event = json!({
                "event": "reloaded", "cause": cause, "added": added, "changed": changed, "removed": removed,
            });
            return self.emit(event, None);
        }
        let (added, changed, removed) = (added.len(), changed.len(), removed.len());
        let text = format!("reloaded: {added} added, {changed} changed, {removed} removed");
        if self.output.terminal {
            return self.state(AnsiColor::Green, &text);
        }
        output::note(&text);
        Ok(())
    }

    /// The services could not be changed; all stays as it was.
    ///
    /// # Errors
    /// The standard output is closed.
    pub(crate) fn not_reloaded(&self, failure: &Failure, cause: ReloadCause) -> anyhow::Result<()> {
        self.in_reload(failure, cause)?;
        self.hint("  nothing was changed");
        Ok(())
    }

    /// A part of a reload failed.
    ///
    /// # Errors
    /// The standard output is closed.
    pub(crate) fn in_reload(&self, failure: &Failure, cause: ReloadCause) -> anyhow::Result<()> {
        if self.output.format == Format::Table {
            match &self.screen {
                Some(screen) => screen.say(Tone::Bad, failure.message.as_str()),
                None => self.output.failure(failure),
            }
            return Ok(());
        }
        self.emit(json!({ "event": "not-reloaded", "cause": cause, "error": failure }), None)
    }

    /// Prints the public names and their services.
    ///
    /// # Errors
    /// The standard output is closed.
    pub(crate) fn header(&self, socket: &Socket, origins: &[(PathRoute, String)]) -> anyhow::Result<()> {
        if self.output.format != Format::Table {
            let origin = origins.first().map(|(_, origin)| origin);
            let mut event = json!({ "event": "socket", "socket": socket, "origin": origin });
            if origins.len() > 1 {
                let path = |(path, origin): &(PathRoute, String)| json!({ "path": path.prefix, "origin": origin });
                event["origins"] = origins.iter().map(path).collect();
            }
            return self.emit(event, None);
        }
        socket.notes.iter().for_each(|note| self.hint(&safe(note)));
        if let Some(screen) = &self.screen {
            let origins = origins.iter().map(|(path, origin)| match path.is_plain() && origins.len() == 1 {
                true => origin.clone(),
                false => format!("{} {origin}", ShownPath(&path.prefix, path.rewrite.as_ref())),
            });
            let (name, url, origins) = (socket.name.to_string(), socket.url.clone(), origins.collect());
            screen.set_served(Served { tunnel: None, name, url, origins });
            domain_urls(socket).for_each(|url| screen.say(Tone::Quiet, format!("also at {url}")));
            return Ok(());
        }
        if !self.output.terminal {
            domain_urls(socket).for_each(|url| self.output.hint(&format!("also at {}", safe(&url))));
            return Ok(());
        }
        let bold = |text: &str| if self.output.color { styled(text, Style::new().bold()) } else { text.to_owned() };
        output::line(&format!("{}  {}", bold(&safe(socket.name.as_str())), bold(&safe(&socket.url))))?;
        let served = |(path, origin): &(PathRoute, String)| {
            if path.is_plain() && origins.len() == 1 {
                return ("origin", origin.clone());
            }
            let shown = ShownPath(&path.prefix, path.rewrite.as_ref());
            ("path", format!("{shown}  {origin}"))
        };
        let domains = domain_urls(socket).map(|url| ("domain", safe(&url).into_owned()));
        let mut rows: Vec<_> = domains.collect();
        rows.extend(origins.iter().map(served));
        if let Some(protected) = &socket.protected {
            rows.push(("protected", format!("user {}", protected.username)));
        }
        output::line(&output::pairs(&rows))?;
        output::line("")
    }

    /// Prints the address of the inspector, with its key.
    ///
    /// # Errors
    /// The standard output is closed.
    pub(crate) fn inspector(&self, url: &str) -> anyhow::Result<()> {
        if self.output.format != Format::Table {
            return self.emit(json!({ "event": "inspector", "url": url }), None);
        }
        if let Some(screen) = &self.screen {
            screen.set_inspector(url);
            return Ok(());
        }
        if !self.output.terminal {
            self.output.hint(&format!("inspector at {url}"));
            return Ok(());
        }
        output::line(&output::pairs(&[("inspector", url.to_owned())]))?;
        output::line("")
    }

    /// Shows one event.
    ///
    /// # Errors
    /// The standard output is closed.
    pub(crate) fn event(&mut self, event: &ConnectorEvent) -> anyhow::Result<()> {
        let tunnel = tunnel_of(event);
        let is_further = self.count(event);
        if self.output.format != Format::Table {
            return self.emit(as_json(event), tunnel);
        }
        if let Some(screen) = &self.screen {
            screen.observe(event);
        }
        match event {
            // A screen shows requests as they were kept.
            ConnectorEvent::Request(_) if self.screen.as_ref().is_some_and(Screen::has_requests) => return Ok(()),
            ConnectorEvent::Request(record) => {
                self.omitted(record.omitted_before)?;
                return self.line(&self.request(record));
            }
            ConnectorEvent::Flow(record) => {
                self.omitted(record.omitted_before)?;
                return self.line(&self.flow(record));
            }
            ConnectorEvent::Attached { tunnel, url, .. } if !self.output.terminal => {
                let was_lost = std::mem::replace(&mut self.is_lost, false);
                if !self.announced.insert(*tunnel) {
                    if was_lost {
                        output::note("note: connected again");
                    }
                    return Ok(());
                }
                let name = self.service(Some(*tunnel)).map(safe).unwrap_or_default();
                return output::line(&match name.as_ref() {
                    "" | "/" => safe(url).into_owned(),
                    path if self.are_paths => format!("{}{path}", safe(url)),
                    name => format!("{name}  {}", safe(url)),
                });
            }
            ConnectorEvent::OriginMissing { tunnel, reason } => {
                return self.origin_missing(Some(*tunnel), reason, SocketType::Udp);
            }
            ConnectorEvent::Health(record) => return self.health(record),
            _ => {}
        }
        let (color, text) = state(event, is_further);
        let text = match self.service(tunnel) {
            Some(name) => format!("{name}: {text}"),
            None => text,
        };
        if self.output.terminal {
            return self.state(color, &text);
        }
        // Of several tunnels, one that is lost for good is reported. Otherwise one message is enough, because the
        // connector retries.
        let is_lost_for_good = self.names.is_some()
            && match event {
                ConnectorEvent::NotAttached { refusal, .. } => !refusal.retry,
                ConnectorEvent::Detached { .. } => true,
                _ => false,
            };
        let is_trouble =
            matches!(event, ConnectorEvent::Disconnected { held_by: 0, .. } | ConnectorEvent::NotAttached { .. });
        if is_lost_for_good || (is_trouble && !std::mem::replace(&mut self.is_lost, true)) {
            output::note(&format!("note: {}", safe(&text)));
        }
        Ok(())
    }

    /// Records which edges hold which tunnels. Returns whether a further edge now holds a tunnel.
    fn count(&mut self, event: &ConnectorEvent) -> bool {
        match event {
            ConnectorEvent::Attached { tunnel, edge, .. } => {
                let holders = self.holders.entry(*tunnel).or_default();
                let is_further = holders.iter().any(|holder| holder != edge);
                holders.insert(edge.clone());
                is_further
            }
            ConnectorEvent::Detached { tunnel, .. } => {
                self.holders.remove(tunnel);
                false
            }
            ConnectorEvent::Disconnected { edge, .. }
            | ConnectorEvent::GoingAway { edge, .. }
            | ConnectorEvent::Left { edge } => {
                for holders in self.holders.values_mut() {
                    holders.remove(edge);
                }
                false
            }
            _ => false,
        }
    }

    /// Shows a health report of an edge if it is news: unhealthy, another reason, or healthy again. Every edge that
    /// holds the tunnel reports.
    fn health(&mut self, record: &HealthRecord) -> anyhow::Result<()> {
        let (color, text) = match &record.failure {
            Some(failure) => {
                let known = self.unwell.insert(record.tunnel, failure.clone());
                if known.is_some_and(|known| known.says_the_same_as(failure)) {
                    return Ok(());
                }
                let since = clock(failure.since.saturating_mul(1_000), self.offset);
                (AnsiColor::Red, format!("the service gets nothing since {since}: {}", failure.message))
            }
            None if self.unwell.remove(&record.tunnel).is_none() => return Ok(()),
            None => (AnsiColor::Green, "the service is well again".to_owned()),
        };
        let text = match self.service(Some(record.tunnel)) {
            Some(name) => format!("{name}: {text}"),
            None => text,
        };
        if self.output.terminal {
            return self.state(color, &text);
        }
        output::note(&format!("note: {}", safe(&text)));
        Ok(())
    }

    /// Reports that nothing listens at the service's address.
    ///
    /// # Errors
    /// The standard output is closed.
    pub(crate) fn origin_missing(
        &self,
        tunnel: Option<TunnelId>,
        reason: &str,
        socket_type: SocketType,
    ) -> anyhow::Result<()> {
        if self.output.format != Format::Table {
            return self.emit(json!({ "event": "origin-missing", "reason": reason }), tunnel);
        }
        let what = match socket_type {
            SocketType::Http | SocketType::Https => "requests get status 502",
            SocketType::Tcp | SocketType::Tls => "connections are reset",
            SocketType::Udp => "datagrams are dropped",
        };
        let name = self.service(tunnel).map(|name| format!("{name}: ")).unwrap_or_default();
        self.note(Tone::Warning, &format!("{name}{reason}; {what} until the service is there"));
        Ok(())
    }

    /// Reports that there is no connection to the edge after a while.
    pub(crate) fn still_connecting(&self, transport: TransportChoice) {
        if self.output.format == Format::Table && !self.output.terminal && self.announced.is_empty() && !self.is_lost {
            let how = match transport {
                TransportChoice::Auto => String::new(),
                TransportChoice::Only(transport) => format!(" by {transport}"),
            };
            output::note(&format!("note: connecting{how}"));
        }
    }

    /// The command was stopped.
    ///
    /// # Errors
    /// The standard output is closed.
    pub(crate) fn stopping(&self) -> anyhow::Result<()> {
        match (self.output.format, self.output.terminal) {
            (Format::Table, true) => {
                self.state(AnsiColor::Yellow, "stopping when running requests are done; Ctrl-C again to stop now")
            }
            (Format::Table, false) => Ok(()),
            _ => self.emit(json!({ "event": "stopping" }), None),
        }
    }

    /// Reports that this many lines were omitted.
    fn omitted(&self, count: u32) -> anyhow::Result<()> {
        match count {
            0 => Ok(()),
            _ => self.line(&format!("          … {count} more, faster than they can be shown")),
        }
    }

    /// One line about a request, a flow or what was omitted.
    fn line(&self, text: &str) -> anyhow::Result<()> {
        match &self.screen {
            Some(screen) => {
                screen.say(Tone::Quiet, text);
                Ok(())
            }
            None => output::line(text),
        }
    }

    /// A note for people.
    fn note(&self, tone: Tone, text: &str) {
        match &self.screen {
            Some(screen) => screen.say(tone, text),
            None => output::note(&format!("note: {}", safe(text))),
        }
    }

    /// A hint for people.
    pub(crate) fn hint(&self, text: &str) {
        match &self.screen {
            Some(screen) => screen.say(Tone::Quiet, text),
            None => self.output.hint(text),
        }
    }

    fn state(&self, color: AnsiColor, text: &str) -> anyhow::Result<()> {
        if let Some(screen) = &self.screen {
            screen.say(tone_of(color), text);
            return Ok(());
        }
        let text = safe(text);
        output::line(&if self.output.color { paint(&text, color) } else { text.into_owned() })
    }

    /// Prints one event as one line of JSON, or as one document of YAML, with the service of its tunnel.
    fn emit(&self, mut event: Value, tunnel: Option<TunnelId>) -> anyhow::Result<()> {
        if let (Value::Object(event), Some(name)) = (&mut event, self.service(tunnel)) {
            event.insert("service".to_owned(), name.into());
        }
        match self.output.format {
            Format::Yaml => output::line(&format!("---\n{}", output::yaml(&event)?)),
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
        let service = self.column(record.tunnel);
        let end = match record.refused.as_deref() {
            None => bytes,
            Some(reason) => unserved(reason),
        };
        format!("{clock}  {service}{method:<7} {target:<TARGET_COLUMN$} {status} {duration:>9}  {end}")
    }

    /// Time, transport, client, verdict, duration and bytes of a flow.
    fn flow(&self, record: &FlowRecord) -> String {
        let verdict = format!("{:<VERDICT_COLUMN$}", safe(&record.verdict));
        let verdict = if self.output.color { paint(&verdict, verdict_color(&record.verdict)) } else { verdict };
        let (clock, duration) = (clock(record.at_ms, self.offset), duration(record.duration_us));
        let (transport, client) = (record.transport.as_str(), record.client.to_string());
        let (sent, received) = (bytes(record.bytes_in), bytes(record.bytes_out));
        let service = self.column(record.tunnel);
        let (client, end) = (format!("{client:<CLIENT_COLUMN$}"), format!("{sent} in, {received} out"));
        format!("{clock}  {service}{transport:<4} {client} {verdict} {duration:>9}  {end}")
    }

    /// The service's name in the line of a request or flow, if there may be several. Older edges do not report the
    /// tunnel.
    fn column(&self, tunnel: Option<TunnelId>) -> String {
        match &self.names {
            None => String::new(),
            Some(_) => format!("{:<SERVICE_COLUMN$} ", safe(self.service(tunnel).unwrap_or("-"))),
        }
    }
}

/// How serious a state of this colour is.
fn tone_of(color: AnsiColor) -> Tone {
    match color {
        AnsiColor::Green => Tone::Good,
        AnsiColor::Yellow => Tone::Warning,
        AnsiColor::Red => Tone::Bad,
        _ => Tone::Quiet,
    }
}

/// The tunnel of an event, if it has one.
fn tunnel_of(event: &ConnectorEvent) -> Option<TunnelId> {
    match event {
        ConnectorEvent::Attached { tunnel, .. }
        | ConnectorEvent::NotAttached { tunnel, .. }
        | ConnectorEvent::Detached { tunnel, .. }
        | ConnectorEvent::OriginMissing { tunnel, .. } => Some(*tunnel),
        ConnectorEvent::Request(record) => record.tunnel,
        ConnectorEvent::Flow(record) => record.tunnel,
        ConnectorEvent::Health(record) => Some(record.tunnel),
        _ => None,
    }
}

/// The edge's name for people.
fn by(edge: Option<&EdgeName>) -> String {
    edge.map_or_else(|| "the edge".to_owned(), |edge| format!("edge {edge}"))
}

/// The text of an event for people, and its colour. `is_further`: another edge holds the tunnel already.
fn state(event: &ConnectorEvent, is_further: bool) -> (AnsiColor, String) {
    match event {
        ConnectorEvent::Connecting { edge: None } => (AnsiColor::BrightBlack, "connecting".to_owned()),
        ConnectorEvent::Connecting { edge: Some(edge) } => {
            (AnsiColor::BrightBlack, format!("connecting to edge {edge}"))
        }
        ConnectorEvent::Connected { edge, region, rtt, transport } => {
            let to = match (edge, region) {
                (Some(edge), Some(region)) => format!("connected to edge {edge} in {region}"),
                _ => "connected".to_owned(),
            };
            (AnsiColor::BrightBlack, format!("{to} by {transport}, {} away", duration(micros(*rtt))))
        }
        ConnectorEvent::Attached { edge, .. } if is_further => {
            (AnsiColor::Green, format!("held by {} too", by(edge.as_ref())))
        }
        ConnectorEvent::Attached { url, edge: None, .. } => (AnsiColor::Green, format!("open at {url}")),
        ConnectorEvent::Attached { url, edge, .. } => {
            (AnsiColor::Green, format!("open at {url}, held by {}", by(edge.as_ref())))
        }
        ConnectorEvent::Left { edge } => (AnsiColor::BrightBlack, format!("left {}", by(edge.as_ref()))),
        ConnectorEvent::NotAttached { refusal, .. } => (AnsiColor::Red, format!("refused: {refusal}")),
        ConnectorEvent::Detached { message, .. } => (AnsiColor::Yellow, format!("removed by the edge: {message}")),
        ConnectorEvent::GoingAway { edge, message } => {
            (AnsiColor::Yellow, format!("{} is going away: {message}", by(edge.as_ref())))
        }
        ConnectorEvent::Disconnected { reason, held_by: 0, .. } => (AnsiColor::Red, format!("not connected: {reason}")),
        ConnectorEvent::Disconnected { edge, reason, held_by } => {
            let others = if *held_by == 1 { "one other holds" } else { "others hold" };
            (AnsiColor::Yellow, format!("{} is lost, {others} on: {reason}", by(edge.as_ref())))
        }
        ConnectorEvent::Retrying { after } => {
            (AnsiColor::Yellow, format!("trying again in {:.1} s", after.as_secs_f64()))
        }
        ConnectorEvent::Request(_)
        | ConnectorEvent::Flow(_)
        | ConnectorEvent::Health(_)
        | ConnectorEvent::OriginMissing { .. } => (AnsiColor::White, String::new()),
    }
}

/// An event for programs.
fn as_json(event: &ConnectorEvent) -> Value {
    match event {
        ConnectorEvent::Connecting { edge } => of_edge(json!({ "event": "connecting" }), edge.as_ref()),
        ConnectorEvent::Connected { edge, region, rtt, transport } => {
            let mut event = json!({ "event": "connected", "rtt_us": micros(*rtt), "transport": transport });
            if let Some(region) = region {
                event["region"] = region.as_str().into();
            }
            of_edge(event, edge.as_ref())
        }
        ConnectorEvent::Attached { tunnel, url, edge } => {
            of_edge(json!({ "event": "attached", "tunnel": tunnel, "url": url }), edge.as_ref())
        }
        ConnectorEvent::Left { edge } => of_edge(json!({ "event": "left" }), edge.as_ref()),
        ConnectorEvent::NotAttached { tunnel, refusal } => json!({
            "event": "refused", "tunnel": tunnel,
            "code": refusal.code, "message": refusal.message, "retry": refusal.retry,
        }),
        ConnectorEvent::Detached { tunnel, code, message } => {
            json!({ "event": "detached", "tunnel": tunnel, "code": code, "message": message })
        }
        ConnectorEvent::GoingAway { edge, message } => {
            of_edge(json!({ "event": "going-away", "message": message }), edge.as_ref())
        }
        ConnectorEvent::OriginMissing { reason, .. } => json!({ "event": "origin-missing", "reason": reason }),
        ConnectorEvent::Disconnected { edge, reason, held_by } => {
            of_edge(json!({ "event": "disconnected", "reason": reason, "held_by": held_by }), edge.as_ref())
        }
        ConnectorEvent::Retrying { after } => json!({ "event": "retrying", "after_ms": micros(*after) / 1_000 }),
        ConnectorEvent::Health(record) => {
            json!({ "event": "health", "tunnel": record.tunnel, "health": record.health, "failure": record.failure })
        }
        ConnectorEvent::Request(record) => json!({ "event": "request", "request": record }),
        ConnectorEvent::Flow(record) => json!({ "event": "flow", "flow": record }),
    }
}

/// Adds the edge of the event, if known.
fn of_edge(mut event: Value, edge: Option<&EdgeName>) -> Value {
    if let Some(edge) = edge {
        event["edge"] = edge.as_str().into();
    }
    event
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

/// Why a request was not served, from the edge's `code`.
fn unserved(reason: &str) -> String {
    let of_service = match reason {
        RequestRecord::ORIGIN_SPEAKS_TLS => "the service speaks TLS: use --type https",
        "origin-refused" => "nothing listens at the service's address",
        "origin-unresolved" => "the host of the service has no address",
        "origin-tls" => "the TLS handshake with the service failed",
        "origin-unreachable" => "the service cannot be reached",
        "connect-timeout" => "the service did not take the connection in time",
        "origin-slow" => "the service did not begin its response in time",
        "origin-broken" => "the service broke its response off",
        _ => return format!("refused: {}", safe(reason)),
    };
    of_service.to_owned()
}

/// The addresses of the socket's domains: like its own address, with the domain in place of the name.
fn domain_urls(socket: &Socket) -> impl Iterator<Item = String> {
    socket.domains.iter().map(|domain| socket.url.replacen(&socket.dns_name, domain, 1))
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
            tunnel: None,
            omitted_before: 0,
            identity: None,
            rule: None,
            refused: None,
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
    fn a_flow_is_one_line_with_its_outcome() {
        let record = FlowRecord {
            at_ms: 3_723_000,
            flow_id: "f".into(),
            transport: SocketType::Tcp,
            verdict: "client-left".into(),
            bytes_in: 10,
            bytes_out: 1_234,
            duration_us: 1_500_000,
            client: "192.0.2.1:5000".parse().unwrap(),
            tunnel: None,
            omitted_before: 0,
            identity: None,
            rule: None,
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
    fn with_several_services_each_line_names_its_service() {
        let mut live = Live::of_services(Output::new(Format::Table, Color::Never), UtcOffset::UTC);
        let tunnel = TunnelId::from_random([1; 16]);
        live.name(tunnel, "shop\u{1b}");
        let line = live.request(&RequestRecord { tunnel: Some(tunnel), ..record() });
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[..3], ["01:02:03", r"shop\u{1b}", "GET"]);
        let of_older_edge = live.request(&record());
        assert_eq!(of_older_edge.split_whitespace().nth(1), Some("-"));
        live.forget(tunnel);
        assert_eq!(live.service(Some(tunnel)), None);
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
        let event = as_json(&ConnectorEvent::OriginMissing { tunnel, reason: "nothing listens".into() });
        assert_eq!(event, json!({ "event": "origin-missing", "reason": "nothing listens" }));
    }
}
