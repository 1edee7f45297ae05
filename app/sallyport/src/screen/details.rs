//! One exchange as lines: what is known of it, its header fields and its bodies.

use ratatui::text::{Line, Span};
use sallyport_inspect::{
    Exchange, Field, Message,
    answer::{ExchangeState, Summary, View, ViewKind},
    view,
};

use super::palette::Palette;
use crate::{
    output::safe,
    units::{bytes, clock, duration},
};

/// How many lines of a body are shown.
const MAX_BODY_LINES: usize = 2_000;
/// How many characters of a line are shown.
const MAX_LINE_CHARS: usize = 2_000;
/// How many messages of a WebSocket and the like are shown: the last ones.
const MAX_FRAMES: usize = 200;
/// The width of the names of facts.
const NAME_COLUMN: usize = 9;

/// The lines of an exchange.
pub(super) fn lines(exchange: &Exchange, offset: time::UtcOffset, palette: Palette) -> Vec<Line<'static>> {
    let summary = Summary::from(exchange);
    let mut lines = vec![Line::from(vec![
        Span::styled(format!("{} ", safe(&summary.method)), palette.strong()),
        Span::styled(safe(&summary.path).into_owned(), palette.strong()),
    ])];
    let mut fact = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            lines.push(Line::from(vec![
                Span::styled(format!("{name:<NAME_COLUMN$} "), palette.quiet()),
                Span::raw(safe(&value).into_owned()),
            ]));
        }
    };
    fact("status", Some(state(&summary)));
    fact("came", Some(clock(exchange.at_ms, offset)));
    fact("took", exchange.duration_us.map(duration));
    fact("host", Some(summary.host.clone()));
    fact("person", summary.identity.clone());
    fact("rule", summary.rule.clone());
    fact("client", summary.client.clone());
    fact("edge", summary.edge.clone());
    fact("socket", summary.socket_name.clone());
    fact("replay of", summary.replay_of.map(|id| format!("number {id}")));
    fact("error", summary.error.clone());
    side(&mut lines, "Request", &exchange.request, palette);
    if let Some(response) = &exchange.response {
        side(&mut lines, "Response", response, palette);
    }
    frames(&mut lines, exchange, offset, palette);
    lines
}

fn state(summary: &Summary) -> String {
    let status = summary.status.map(|status| status.to_string()).unwrap_or_default();
    let word = match summary.state {
        ExchangeState::Open => "running",
        ExchangeState::Complete => "",
        ExchangeState::Failed => "failed",
        ExchangeState::Denied => "refused by the edge",
    };
    [status.as_str(), word].iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>().join(" ")
}

fn side(lines: &mut Vec<Line<'static>>, title: &str, message: &Message, palette: Palette) {
    let passed = message.body.passed;
    lines.push(Line::default());
    lines.push(Line::from(vec![
        Span::styled(title.to_owned(), palette.strong()),
        Span::styled(format!("  {} {}", message.version, bytes(passed)), palette.quiet()),
    ]));
    let field = |field: &Field| {
        Line::from(vec![
            Span::styled(format!("{}: ", safe(&field.name)), palette.quiet()),
            Span::raw(safe(&cut(&field.text())).into_owned()),
        ])
    };
    lines.extend(message.fields.iter().map(field));
    let shown = view(message);
    if shown.kind != ViewKind::Empty {
        lines.push(Line::default());
        body(lines, &shown, palette);
    }
    lines.extend(message.trailers.iter().map(field));
}

fn body(lines: &mut Vec<Line<'static>>, view: &View, palette: Palette) {
    let size = bytes(view.bytes);
    let what = match view.kind {
        ViewKind::Image => Some(format!("an image of {size}: the inspector's page shows it")),
        ViewKind::Binary => Some(format!("{size} that are no text")),
        ViewKind::Grpc => Some(format!("{size} of messages of gRPC")),
        _ => None,
    };
    lines.extend(what.map(|what| Line::styled(what, palette.quiet())));
    for part in &view.parts {
        let name = part.name.clone().or_else(|| part.file_name.clone()).unwrap_or_default();
        let text = part.text.clone().unwrap_or_else(|| bytes(part.bytes));
        lines.push(Line::from(vec![
            Span::styled(format!("{} = ", safe(&name)), palette.quiet()),
            Span::raw(safe(&cut(&text)).into_owned()),
        ]));
    }
    if let Some(text) = view.text.as_ref().filter(|_| view.parts.is_empty()) {
        let mut shown = text.lines();
        lines.extend(shown.by_ref().take(MAX_BODY_LINES).map(|line| Line::raw(safe(&cut(line)).into_owned())));
        if shown.next().is_some() {
            lines.push(Line::styled("… the inspector's page shows the rest", palette.quiet()));
        }
    }
    if view.is_truncated {
        lines.push(Line::styled("… only the first part was kept", palette.quiet()));
    }
    lines.extend(view.problem.as_ref().map(|problem| Line::styled(safe(problem).into_owned(), palette.warning())));
}

fn frames(lines: &mut Vec<Line<'static>>, exchange: &Exchange, offset: time::UtcOffset, palette: Palette) {
    if exchange.frames.is_empty() {
        return;
    }
    lines.push(Line::default());
    lines.push(Line::from(vec![
        Span::styled("Messages", palette.strong()),
        Span::styled(format!("  {}", exchange.frame_count), palette.quiet()),
    ]));
    let skipped = exchange.frames.len().saturating_sub(MAX_FRAMES);
    for frame in exchange.frames.iter().skip(skipped) {
        let arrow = if frame.from == sallyport_inspect::From::Client { "→" } else { "←" };
        let text = String::from_utf8_lossy(&frame.data);
        let text = if text.contains('\u{fffd}') { bytes(frame.bytes) } else { cut(&text) };
        let kind = frame.kind.as_str();
        lines.push(Line::from(vec![
            Span::styled(format!("{} {arrow} {kind:<7} ", clock(frame.at_ms, offset)), palette.quiet()),
            Span::raw(safe(&text).into_owned()),
        ]));
    }
}

/// The first characters of a line.
fn cut(line: &str) -> String {
    match line.char_indices().nth(MAX_LINE_CHARS) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line.to_owned(),
    }
}
