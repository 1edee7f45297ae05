//! The screen as people see it, drawn into memory.

use std::time::Instant;

use bytes::Bytes;
use ratatui::{
    backend::TestBackend,
    crossterm::event::{KeyCode, KeyEvent, KeyModifiers},
    style::Color,
};
use sallyport_inspect::{
    Bounds, From, Inspector, Now, Source, StreamEvent, StreamOpen, StreamProtocol, answer::Problem,
};

use super::{
    draw::{Look, draw},
    state::{Panel, State},
    *,
};

const LOOK: Look = Look { palette: Palette { is_colored: true }, offset: UtcOffset::UTC };

struct World {
    inspector: Inspector,
    state: State,
    streams: u64,
}

impl World {
    fn new() -> Self {
        let bounds = Bounds { exchanges: 20_000, ..Bounds::default() };
        let mut state = State::new(Instant::now());
        state.set_served(Served {
            tunnel: None,
            name: "shop".to_owned(),
            url: "https://calm-bay-1.example.com".to_owned(),
            origins: vec!["http://localhost:8000".to_owned()],
        });
        state.inspector = Some("http://127.0.0.1:4040/#key=k".to_owned());
        Self { inspector: Inspector::new(bounds), state, streams: 0 }
    }

    fn exchange(&mut self, request: &[u8], response: &[u8]) {
        self.streams += 1;
        let (stream, now) = (self.streams, Now { wall_ms: 3_600_000, instant: Instant::now() });
        let source = Source::default();
        let open = StreamOpen { protocol: StreamProtocol::Http1, source, replay_of: None };
        self.inspector.handle(StreamEvent::Opened(stream, open), now);
        for (from, data) in [(From::Client, request), (From::Service, response)] {
            let data = Bytes::copy_from_slice(data);
            self.inspector.handle(StreamEvent::Bytes { stream, from, offset: 0, data }, now);
        }
        self.inspector.handle(StreamEvent::Closed(stream, None), now);
    }

    fn get(&mut self, path: &str, status: u16) {
        let request = format!("GET {path} HTTP/1.1\r\nHost: calm-bay-1.example.com\r\nX-One: 1\r\n\r\n");
        let response =
            format!("HTTP/1.1 {status} OK\r\nContent-Type: application/json\r\nContent-Length: 7\r\n\r\n{{\"a\":1}}");
        self.exchange(request.as_bytes(), response.as_bytes());
    }

    fn key(&mut self, code: KeyCode) -> Option<Action> {
        self.state.handle_key(KeyEvent::new(code, KeyModifiers::NONE), Some(self.inspector.store()))
    }

    fn type_in(&mut self, text: &str) {
        text.chars().for_each(|letter| assert_eq!(self.key(KeyCode::Char(letter)), None));
    }

    fn screen(&mut self, columns: u16, rows: u16, look: Look) -> ratatui::buffer::Buffer {
        let mut terminal = ratatui::Terminal::new(TestBackend::new(columns, rows)).unwrap();
        let (state, store) = (&mut self.state, self.inspector.store());
        terminal.draw(|frame| draw(frame, state, Some(store), look)).unwrap();
        terminal.backend().buffer().clone()
    }

    /// The lines of a picture.
    fn lines(&mut self, columns: u16, rows: u16) -> Vec<String> {
        let buffer = self.screen(columns, rows, LOOK);
        let line = |y| (0..columns).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..rows).map(line).collect()
    }

    fn text(&mut self) -> String {
        self.lines(80, 24).join("\n")
    }
}

#[test]
fn requests_stand_below_the_address_the_newest_one_first() {
    let mut world = World::new();
    assert!(world.text().contains("no request yet"));
    world.get("/first", 200);
    world.get("/second?a=b", 503);
    world.state.say(Tone::Good, "held by edge eu-1 too".to_owned());
    let lines = world.lines(80, 24);
    assert_eq!(lines[0], "shop  https://calm-bay-1.example.com");
    assert_eq!(lines[1], "      → http://localhost:8000");
    assert_eq!(lines[2], "page  http://127.0.0.1:4040/#key=k");
    let at = lines.iter().position(|line| line.starts_with("TIME")).unwrap();
    assert!(lines[at + 1].starts_with("01:00:00  503 GET     /second?a=b "), "{lines:#?}");
    assert!(lines[at + 1].ends_with("7 B"), "{lines:#?}");
    assert!(lines[at + 2].starts_with("01:00:00  200 GET     /first "), "{lines:#?}");
    assert_eq!(lines[22], "held by edge eu-1 too");
    assert!(lines[23].contains("q quit"));
}

#[test]
fn every_size_of_a_terminal_is_drawn() {
    let mut world = World::new();
    world.get(&format!("/{}", "long".repeat(200)), 200);
    world.get("/wide/%E6%97%A5", 404);
    let panels = [
        Panel::List,
        Panel::Details { id: 1, scroll: 0 },
        Panel::Details { id: 99, scroll: 5 },
        Panel::Messages { scroll: 3 },
        Panel::Help,
        Panel::Code,
        Panel::Question { id: 1, text: "Really?".to_owned() },
    ];
    for panel in panels {
        for (columns, rows) in [(80, 24), (40, 10), (200, 60), (20, 5), (1, 1), (5, 2), (300, 3)] {
            world.state.panel = panel.clone();
            world.lines(columns, rows);
        }
    }
    world.state.panel = Panel::Code;
    assert!(world.lines(20, 10).join("").contains("Too small"));
    assert!(world.lines(100, 60).iter().filter(|line| line.contains('█')).count() > 10);
}

#[test]
fn what_was_captured_cannot_steer_the_terminal() {
    let mut world = World::new();
    let request = b"GET /\x1b]0;x\x07?\xe2\x80\xae HTTP/1.1\r\nHost: a\r\nX-Evil: \x1b[2J\x9b31m\r\nContent-Length: 9\r\n\r\n\x1b[1;1Hhi\r";
    world.exchange(request, b"HTTP/1.1 200 OK\r\nX-\x1b: \x07\r\nContent-Length: 4\r\n\r\n\x1bc\x00\x7f");
    let body =
        b"POST /ok HTTP/1.1\r\nHost: a\r\nContent-Type: text/plain\r\nContent-Length: 9\r\n\r\na\x1b[2Jb\x07\r\n";
    world.exchange(body, b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\n\x9b31m\r");
    assert!(!world.inspector.store().is_empty());
    world.state.say(Tone::Bad, "a\u{1b}[31m b\u{202e}c\r\n".to_owned());
    world.state.set_served(Served {
        tunnel: Some("00000000-0000-4000-8000-000000000001".parse().unwrap()),
        name: "\u{1b}[5m".to_owned(),
        url: "https://\u{9b}x".to_owned(),
        origins: vec!["\u{7}".to_owned()],
    });
    let ids: Vec<u64> = world.inspector.store().newest().map(|exchange| exchange.id).collect();
    let details = ids.iter().map(|id| Panel::Details { id: *id, scroll: 0 });
    for panel in details.chain([Panel::List, Panel::Messages { scroll: 0 }, Panel::Code]) {
        world.state.panel = panel;
        let buffer = world.screen(120, 40, LOOK);
        let steers = |text: &str| text.chars().any(|c| c.is_control() || c == '\u{202e}');
        assert!(buffer.content.iter().all(|cell| !steers(cell.symbol())));
    }
    world.state.panel = Panel::Messages { scroll: 0 };
    assert!(world.text().contains(r"a\u{1b}[31m b\u{202e}c"), "{}", world.text());
}

#[test]
fn without_colours_there_are_none() {
    let mut world = World::new();
    world.get("/", 500);
    let look = Look { palette: Palette { is_colored: false }, ..LOOK };
    let plain = world.screen(80, 24, look);
    assert!(plain.content.iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset));
    let colored = world.screen(80, 24, LOOK);
    assert!(colored.content.iter().any(|cell| cell.fg == Color::Red));
}

#[test]
fn keys_choose_and_the_newest_is_followed() {
    let mut world = World::new();
    for number in 1..=10_000 {
        world.get(&format!("/{number}"), 200);
    }
    let store = |world: &World| world.inspector.store().len();
    assert_eq!(store(&world), 10_000);
    let chosen = |world: &World| world.state.chosen_of(world.inspector.store()).unwrap().target.clone();
    assert_eq!(chosen(&world), "/10000");
    world.key(KeyCode::Char('j'));
    world.key(KeyCode::Down);
    assert_eq!(chosen(&world), "/9998");
    world.get("/new", 200);
    assert_eq!(chosen(&world), "/9998", "a chosen one stays");
    world.key(KeyCode::Char('k'));
    assert_eq!(chosen(&world), "/9999");
    for code in [KeyCode::PageDown, KeyCode::PageDown, KeyCode::PageDown, KeyCode::PageUp, KeyCode::End, KeyCode::Up] {
        world.key(code);
        let wanted = chosen(&world);
        let text = world.text();
        assert!(text.contains(&format!(" {wanted} ")), "{wanted} is in the picture:\n{text}");
    }
    assert_eq!(chosen(&world), "/2");
    world.key(KeyCode::Home);
    assert_eq!((chosen(&world), world.state.chosen), ("/new".to_owned(), None));
    // The oldest ones go while they are chosen.
    world.key(KeyCode::End);
    for _ in 0..10_001 {
        world.get("/later", 200);
    }
    assert_eq!(chosen(&world), "/later");
    assert!(world.text().contains("/later"));
}

#[test]
fn a_filter_selects_and_a_wrong_one_says_why() {
    let mut world = World::new();
    world.get("/good", 200);
    world.get("/bad", 404);
    world.key(KeyCode::Char('/'));
    world.type_in("status:4xx");
    let text = world.text();
    assert!(text.contains("/bad") && !text.contains("/good") && text.contains("filter: status:4xx▏"), "{text}");
    world.type_in("x");
    assert!(world.text().contains("is no status"), "{}", world.text());
    assert!(!world.text().contains("/good"), "the former filter stays");
    world.key(KeyCode::Backspace);
    world.key(KeyCode::Enter);
    assert!(!world.state.is_typing && !world.text().contains("is no status"));
    world.key(KeyCode::Enter);
    assert!(matches!(world.state.panel, Panel::Details { id: 2, .. }));
    assert_eq!(world.key(KeyCode::Right), None);
    assert!(matches!(world.state.panel, Panel::Details { id: 2, .. }), "no other one matches");
    world.key(KeyCode::Esc);
    world.key(KeyCode::Esc);
    assert!(world.text().contains("/good"));
    world.key(KeyCode::Char('/'));
    world.type_in(&"q".repeat(10_000));
    assert_eq!(world.state.filter_text.len(), 256);
    assert_eq!(world.state.handle_key(KeyEvent::new(KeyCode::Char('u'), KeyModifiers::CONTROL), None), None);
    assert_eq!(world.state.filter_text, "");
}

#[test]
fn details_have_fields_and_bodies_and_scroll_no_further_than_their_end() {
    let mut world = World::new();
    world.get("/json", 200);
    world.key(KeyCode::Enter);
    let text = world.text();
    for part in ["GET /json", "status    200", "X-One: 1", "Content-Type: application/json", "\"a\": 1"] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    for _ in 0..50 {
        world.key(KeyCode::Char('j'));
        world.lines(80, 12);
    }
    assert!(world.lines(80, 12).join("\n").contains("}"), "the end stays in the picture");
    world.key(KeyCode::Char('g'));
    assert!(world.text().contains("GET /json"));
}

#[test]
fn sending_again_asks_first_where_it_may_do_harm() {
    let mut world = World::new();
    assert_eq!(world.key(KeyCode::Char('r')), None, "there is nothing to send");
    world.get("/", 200);
    let ask = Some(Action::Replay { id: 1, is_confirmed: false });
    assert_eq!(world.key(KeyCode::Char('r')), ask);
    let problem = |needs_confirmation| Problem {
        status: 409,
        title: "It was not sent".to_owned(),
        detail: "POST is not idempotent.".to_owned(),
        needs_confirmation,
    };
    world.state.replayed(1, Err(problem(true)));
    assert!(world.text().contains("POST is not idempotent."));
    assert_eq!(world.key(KeyCode::Char('n')), None);
    assert_eq!(world.state.panel, Panel::List);
    world.state.replayed(1, Err(problem(true)));
    assert_eq!(world.key(KeyCode::Char('y')), Some(Action::Replay { id: 1, is_confirmed: true }));
    world.state.replayed(1, Err(problem(false)));
    assert!(world.text().contains("It was not sent: POST is not idempotent."));
    world.get("/again", 200);
    world.state.replayed(1, Ok(2));
    assert_eq!(world.state.chosen, Some(2));
}

#[test]
fn edges_come_and_go() {
    let mut world = World::new();
    assert!(world.text().contains("connecting"));
    let now = Instant::now();
    let edge = |name: &str| Some(name.parse().unwrap());
    let tunnel = "00000000-0000-4000-8000-000000000001".parse().unwrap();
    let served = Served { tunnel: Some(tunnel), name: "api".to_owned(), url: String::new(), origins: Vec::new() };
    world.state.set_served(served);
    assert!(world.text().contains("not open yet"));
    let (rtt, transport) = (Duration::from_millis(12), "tcp");
    world.state.observe(&ConnectorEvent::Connected { edge: edge("eu-1"), region: None, rtt, transport }, now);
    assert!(world.text().contains("○ eu-1 tcp 12.0 ms"), "{}", world.text());
    let url = "https://api.example.com".to_owned();
    world.state.observe(&ConnectorEvent::Attached { tunnel, url, edge: edge("eu-1") }, now);
    assert!(world.text().contains("● eu-1") && world.text().contains("https://api.example.com"), "{}", world.text());
    let reason = "gone".to_owned();
    world.state.observe(&ConnectorEvent::Disconnected { edge: edge("eu-1"), reason, held_by: 0 }, now);
    assert!(world.text().contains("○ eu-1"));
    world.state.observe(&ConnectorEvent::Left { edge: edge("eu-1") }, now);
    assert!(!world.text().contains("eu-1"));
    world.state.remove_served(tunnel);
    assert!(!world.text().contains("api.example.com"));
}

#[test]
fn without_an_inspector_requests_are_lines() {
    let mut world = World::new();
    world.state.inspector = None;
    world.state.say(Tone::Quiet, "12:00:00  GET     /a".to_owned());
    let mut terminal = ratatui::Terminal::new(TestBackend::new(80, 24)).unwrap();
    let state = &mut world.state;
    terminal.draw(|frame| draw(frame, state, None, LOOK)).unwrap();
    let text: String = terminal.backend().buffer().content.iter().map(ratatui::buffer::Cell::symbol).collect();
    assert!(text.contains("no inspector") && text.contains("GET     /a"), "{text}");
    for code in [KeyCode::Enter, KeyCode::Char('/'), KeyCode::Char('r'), KeyCode::Down, KeyCode::End] {
        assert_eq!(state.handle_key(KeyEvent::new(code, KeyModifiers::NONE), None), None);
    }
    assert_eq!((state.panel.clone(), state.is_typing), (Panel::List, false));
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(state.handle_key(interrupt, None), Some(Action::Interrupt));
}
