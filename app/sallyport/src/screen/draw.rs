//! The screen as it is drawn: the addresses, the figures, the requests, and the keys.

use qrcode::{EcLevel, QrCode, render::unicode::Dense1x2};
use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    text::{Line, Span},
    widgets::{Clear, Paragraph, Sparkline},
};
use sallyport_inspect::{Exchange, Store, answer::Summary};
use time::UtcOffset;

use super::{
    details,
    palette::Palette,
    state::{Panel, State},
};
use crate::{
    output::{safe, width},
    units::{bytes, clock, duration},
};

/// How many services are named above the list.
const MAX_SERVED_LINES: usize = 4;
/// How many messages stand below the list.
const MESSAGE_LINES: u16 = 1;
/// The width from which requests have a column for the person.
const PERSON_WIDTH: u16 = 100;
/// The keys, in one line.
const KEYS: &str = "↑↓ choose  enter details  r replay  / filter  u QR code  ? help  q quit";
const KEYS_OF_DETAILS: &str = "↑↓ scroll  ←→ newer, older  r replay  esc back";
/// The keys, one a line.
const HELP: &[(&str, &str)] = &[
    ("↑ ↓  j k", "choose a request; page up and page down move further"),
    ("home  g", "follow the newest request again"),
    ("enter", "show the request: header fields, bodies, messages"),
    ("r", "send the request again, directly to the service"),
    ("/", "filter: words, status:5xx, method:POST, path:/api, duration:>1s, body:text"),
    ("esc", "leave, and end the filter"),
    ("u", "show the address as a QR code"),
    ("m", "show messages about edges and services"),
    ("ctrl-z", "pause, as any program"),
    ("q  ctrl-c", "stop when running requests are done; again: stop now"),
];

/// How the screen is drawn.
#[derive(Debug, Clone, Copy)]
pub(super) struct Look {
    pub(super) palette: Palette,
    /// The time zone of clocks.
    pub(super) offset: UtcOffset,
}

/// Draws everything. `store` has the exchanges; `None`: they are not kept.
pub(super) fn draw(frame: &mut Frame<'_>, state: &mut State, store: Option<&Store>, look: Look) {
    let area = frame.area();
    let header = header(state, look.palette);
    // A low terminal shows requests first.
    let most = area.height.saturating_sub(6);
    let header_height = u16::try_from(header.len()).unwrap_or(most).min(most);
    let figures_height = u16::from(area.height >= 10);
    let [top, figures, body, message, keys] = Layout::vertical([
        Constraint::Length(header_height),
        Constraint::Length(figures_height),
        Constraint::Min(1),
        Constraint::Length(MESSAGE_LINES.min(area.height.saturating_sub(2))),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(Paragraph::new(header), top);
    draw_figures(frame, figures, state, store, look.palette);
    match store {
        Some(store) => draw_list(frame, body, state, store, look),
        None => draw_messages(frame, body, state, 0, look.palette),
    }
    draw_message(frame, message, state, look.palette);
    let words = if matches!(state.panel, Panel::Details { .. }) { KEYS_OF_DETAILS } else { KEYS };
    frame.render_widget(Line::styled(words, look.palette.quiet()), keys);
    draw_panel(frame, body, state, store, look);
}

/// The addresses, where they lead, and the edges.
fn header(state: &State, palette: Palette) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let name_width = state.served.iter().take(MAX_SERVED_LINES).map(|served| width(&served.name)).max().unwrap_or(0);
    for served in state.served.iter().take(MAX_SERVED_LINES) {
        let name = safe(&served.name).into_owned();
        let gap = " ".repeat(name_width.saturating_sub(width(&name)) + 2);
        let url = if served.url.is_empty() { "not open yet".to_owned() } else { safe(&served.url).into_owned() };
        lines.push(Line::from(vec![Span::raw(name), Span::raw(gap.clone()), Span::styled(url, palette.strong())]));
        let origins = served.origins.join(", ");
        lines.push(Line::styled(format!("{}→ {}", " ".repeat(name_width + 2), safe(&origins)), palette.quiet()));
    }
    if let Some(more) = state.served.len().checked_sub(MAX_SERVED_LINES).filter(|more| *more > 0) {
        lines.push(Line::styled(format!("and {more} more"), palette.quiet()));
    }
    let inspector = match &state.inspector {
        Some(url) => format!("page  {url}"),
        None => "no inspector: requests are not kept, and are lines without details".to_owned(),
    };
    lines.push(Line::styled(inspector, palette.quiet()));
    lines.push(edges(state, palette));
    lines
}

fn edges(state: &State, palette: Palette) -> Line<'static> {
    if state.edges.is_empty() {
        return Line::styled("connecting", palette.warning());
    }
    let mut spans = Vec::new();
    for edge in &state.edges {
        let (mark, style) = if edge.is_up { ("● ", palette.good()) } else { ("○ ", palette.warning()) };
        spans.push(Span::styled(mark, style));
        spans.push(Span::raw(safe(&edge.name).into_owned()));
        let way = edge.way.map(|(transport, rtt)| {
            format!(" {transport} {}", duration(u64::try_from(rtt.as_micros()).unwrap_or(u64::MAX)))
        });
        spans.push(Span::styled(format!("{}  ", way.unwrap_or_default()), palette.quiet()));
    }
    Line::from(spans)
}

/// Requests a second and durations, each with its last minute.
fn draw_figures(frame: &mut Frame<'_>, area: Rect, state: &State, store: Option<&Store>, palette: Palette) {
    if area.height == 0 {
        return;
    }
    let figures = &state.figures;
    let open = store.map_or(0, |store| store.newest().filter(|exchange| exchange.duration_us.is_none()).count());
    let rate = format!("{:.1} requests/s  {open} running ", figures.rate());
    let percentile = |percent| figures.percentile_us(percent).map_or_else(|| "-".to_owned(), duration);
    let times = format!("  p50 {}  p95 {} ", percentile(50), percentile(95));
    let of = |text: &str| Constraint::Length(u16::try_from(width(text)).unwrap_or(u16::MAX));
    let areas = Layout::horizontal([of(&rate), Constraint::Fill(1), of(&times), Constraint::Fill(1)]).areas::<4>(area);
    frame.render_widget(Line::raw(rate), areas[0]);
    frame.render_widget(sparkline(figures.requests_by_second(), areas[1], palette), areas[1]);
    frame.render_widget(Line::raw(times), areas[2]);
    frame.render_widget(sparkline(figures.slowest_by_second(), areas[3], palette), areas[3]);
}

/// The newest seconds that fit.
fn sparkline(by_second: Vec<u64>, area: Rect, palette: Palette) -> Sparkline<'static> {
    let fits = usize::from(area.width).min(by_second.len());
    Sparkline::default().data(by_second[by_second.len() - fits..].to_vec()).style(palette.good())
}

fn draw_list(frame: &mut Frame<'_>, area: Rect, state: &mut State, store: &Store, look: Look) {
    let [head, list] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    frame.render_widget(Line::styled(columns(None, area.width, look), look.palette.quiet()), head);
    let rows = state.rows(store, usize::from(list.height));
    let chosen = state.chosen_of(store).map(|exchange| exchange.id);
    if rows.is_empty() {
        let text = if store.is_empty() { "no request yet" } else { "no request matches the filter" };
        frame.render_widget(Line::styled(text, look.palette.quiet()), list);
    }
    for (at, id) in rows.iter().enumerate() {
        let (Some(exchange), Ok(at)) = (store.get(*id), u16::try_from(at)) else { continue };
        let line = Rect { y: list.y + at, height: 1, ..list };
        let text = columns(Some(exchange), area.width, look);
        let status = text.char_indices().nth(10).map_or(0, |(at, _)| at);
        let after = text[status..].char_indices().nth(3).map_or(text.len(), |(at, _)| status + at);
        let style = look.palette.status(exchange.status);
        let spans = [
            Span::raw(text[..status].to_owned()),
            Span::styled(text[status..after].to_owned(), style),
            Span::raw(text[after..].to_owned()),
        ];
        let row = Line::from_iter(spans);
        let row = if chosen == Some(*id) { row.style(look.palette.chosen()) } else { row };
        frame.render_widget(row, line);
    }
}

/// One row, or the names of the columns.
fn columns(exchange: Option<&Exchange>, width_of_all: u16, look: Look) -> String {
    let summary = exchange.map(Summary::from);
    let [clock, status, method, took, size, person] = match (exchange, &summary) {
        (Some(exchange), Some(summary)) => [
            clock(exchange.at_ms, look.offset),
            summary.status.map_or_else(|| "…".to_owned(), |status| status.to_string()),
            summary.method.clone(),
            exchange.duration_us.map(duration).unwrap_or_default(),
            bytes(summary.request_bytes + summary.response_bytes),
            summary.identity.clone().unwrap_or_default(),
        ],
        _ => ["TIME", "STA", "METHOD", "TOOK", "SIZE", "PERSON"].map(str::to_owned),
    };
    let path = summary.map_or_else(|| "PATH".to_owned(), |summary| summary.path);
    let person = if width_of_all >= PERSON_WIDTH { fitted(&person, 24) } else { String::new() };
    let fixed = 10 + 4 + 8 + 10 + 9 + if person.is_empty() { 0 } else { 25 };
    let path = fitted(&path, usize::from(width_of_all).saturating_sub(fixed + 1).max(8));
    let row = format!("{clock:<8}  {status:<3} {} {path} {took:>9} {size:>8} {person}", fitted(&method, 7));
    row.trim_end().to_owned()
}

/// The text in exactly so many columns.
fn fitted(text: &str, columns: usize) -> String {
    let text = safe(text);
    if width(&text) <= columns {
        return format!("{text}{}", " ".repeat(columns - width(&text)));
    }
    let mut out = String::new();
    for letter in text.chars() {
        out.push(letter);
        if width(&out) + 1 > columns {
            out.pop();
            break;
        }
    }
    out.push('…');
    let missing = columns.saturating_sub(width(&out));
    format!("{out}{}", " ".repeat(missing))
}

/// The last message, or the filter.
fn draw_message(frame: &mut Frame<'_>, area: Rect, state: &State, palette: Palette) {
    if area.height == 0 {
        return;
    }
    let line = if state.is_typing || !state.filter_text.is_empty() {
        let cursor = if state.is_typing { "▏" } else { "" };
        let mut spans = vec![Span::raw(format!("filter: {}{cursor}", safe(&state.filter_text)))];
        if let Some(error) = &state.filter_error {
            spans.push(Span::styled(format!("  {}", safe(error)), palette.warning()));
        }
        Line::from(spans)
    } else {
        let last = state.messages.back();
        last.map(|(tone, text)| Line::styled(safe(text).into_owned(), palette.tone(*tone))).unwrap_or_default()
    };
    frame.render_widget(line, area);
}

/// The newest messages, without the last `scroll` ones.
fn draw_messages(frame: &mut Frame<'_>, area: Rect, state: &State, scroll: usize, palette: Palette) {
    let end = state.messages.len().saturating_sub(scroll);
    let start = end.saturating_sub(usize::from(area.height));
    let shown = state.messages.range(start..end);
    let lines: Vec<_> = shown.map(|(tone, text)| Line::styled(safe(text).into_owned(), palette.tone(*tone))).collect();
    frame.render_widget(Paragraph::new(lines), area);
}

fn draw_panel(frame: &mut Frame<'_>, area: Rect, state: &mut State, store: Option<&Store>, look: Look) {
    let palette = look.palette;
    if state.panel == Panel::List {
        return;
    }
    frame.render_widget(Clear, area);
    match state.panel.clone() {
        Panel::Details { id, scroll } => {
            let lines = match store.and_then(|store| store.get(id)) {
                Some(exchange) => details::lines(exchange, look.offset, palette),
                None => vec![Line::styled("This request is not kept any more.", palette.warning())],
            };
            let most = lines.len().saturating_sub(usize::from(area.height));
            let scroll = scroll.min(most);
            state.panel = Panel::Details { id, scroll };
            frame.render_widget(Paragraph::new(lines.split_at(scroll).1.to_vec()), area);
        }
        Panel::Messages { scroll } => draw_messages(frame, area, state, scroll, palette),
        Panel::Help => {
            let row = |(keys, what): &(&str, &str)| {
                Line::from(vec![Span::styled(format!("{keys:<10} "), palette.strong()), Span::raw((*what).to_owned())])
            };
            frame.render_widget(Paragraph::new(HELP.iter().map(row).collect::<Vec<_>>()), area);
        }
        Panel::Code => draw_code(frame, area, state, palette),
        Panel::Question { text, .. } => {
            let lines = vec![
                Line::styled(safe(&text).into_owned(), palette.warning()),
                Line::raw("y sends it again, any other key does not"),
            ];
            frame.render_widget(Paragraph::new(lines), area);
        }
        Panel::List => {}
    }
}

/// The first address as a QR code, or why not.
fn draw_code(frame: &mut Frame<'_>, area: Rect, state: &State, palette: Palette) {
    let url = state.served.first().map(|served| served.url.as_str()).filter(|url| !url.is_empty());
    let Some(url) = url else {
        frame.render_widget(Line::styled("There is no address yet.", palette.warning()), area);
        return;
    };
    let code = QrCode::with_error_correction_level(url, EcLevel::L).ok().map(|code| {
        // Most terminals are dark: light modules are drawn.
        code.render::<Dense1x2>().dark_color(Dense1x2::Dark).light_color(Dense1x2::Light).quiet_zone(true).build()
    });
    let lines: Vec<Line<'_>> = code.iter().flat_map(|code| code.lines()).map(Line::raw).collect();
    let is_small =
        lines.len() > usize::from(area.height) || lines.iter().any(|line| line.width() > usize::from(area.width));
    if lines.is_empty() || is_small {
        let text = "Too small for the QR code: make the terminal larger.";
        frame.render_widget(Line::styled(text, palette.warning()), area);
        return;
    }
    frame.render_widget(Paragraph::new(lines), area);
}
