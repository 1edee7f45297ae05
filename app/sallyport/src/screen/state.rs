//! What the screen shows, and what keys do to it. Pure: keys, events and the time are arguments.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use sallyport_connector::ConnectorEvent;
use sallyport_inspect::{Exchange, Filter, Store, answer::Problem};
use sallyport_model::TunnelId;

use super::figures::Figures;

/// How many messages are kept.
const MAX_MESSAGES: usize = 500;
/// How many edges and services are kept.
const MAX_NAMED: usize = 64;
/// The longest filter, in characters.
const MAX_FILTER_CHARS: usize = 256;
/// How far a page key moves.
const PAGE: usize = 10;

/// How serious a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    /// Of little interest.
    Quiet,
    /// Good news.
    Good,
    /// Worth a look.
    Warning,
    /// Something does not work.
    Bad,
}

/// A service and its public address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Served {
    /// Its tunnel, if one name has one tunnel.
    pub(crate) tunnel: Option<TunnelId>,
    /// What people call it.
    pub(crate) name: String,
    /// Its public address; empty while it is not known.
    pub(crate) url: String,
    /// Where requests go.
    pub(crate) origins: Vec<String>,
}

/// An edge, as the connector sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EdgeLine {
    pub(super) name: String,
    pub(super) is_up: bool,
    /// The transport and the round trip, once it answered.
    pub(super) way: Option<(&'static str, Duration)>,
}

/// What lies over the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Panel {
    /// Nothing.
    List,
    /// One exchange, scrolled down by so many lines.
    Details { id: u64, scroll: usize },
    /// The messages, scrolled up by so many.
    Messages { scroll: usize },
    /// The keys.
    Help,
    /// The address as a QR code.
    Code,
    /// A question before an exchange is sent again.
    Question { id: u64, text: String },
}

/// What the program has to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// End, as Ctrl-C does.
    Interrupt,
    /// Give the terminal back for a while, as Ctrl-Z does.
    Suspend,
    /// Send an exchange again. `is_confirmed`: the person has said yes.
    Replay { id: u64, is_confirmed: bool },
}

/// The state of the screen.
#[derive(Debug)]
pub(super) struct State {
    pub(super) served: Vec<Served>,
    /// The address of the inspector's page.
    pub(super) inspector: Option<String>,
    pub(super) edges: Vec<EdgeLine>,
    pub(super) figures: Figures,
    pub(super) messages: VecDeque<(Tone, String)>,
    pub(super) panel: Panel,
    /// The text of the filter, and whether it is being typed.
    pub(super) filter_text: String,
    pub(super) is_typing: bool,
    pub(super) filter: Filter,
    pub(super) filter_error: Option<String>,
    /// The chosen exchange; `None`: the newest one, whichever that is.
    pub(super) chosen: Option<u64>,
    /// The exchange in the first row; `None`: the newest one.
    pub(super) top: Option<u64>,
}

impl State {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            served: Vec::new(),
            inspector: None,
            edges: Vec::new(),
            figures: Figures::new(now),
            messages: VecDeque::new(),
            panel: Panel::List,
            filter_text: String::new(),
            is_typing: false,
            filter: Filter::default(),
            filter_error: None,
            chosen: None,
            top: None,
        }
    }

    /// Adds a service, or changes the one with this tunnel.
    pub(super) fn set_served(&mut self, served: Served) {
        let is_it = |known: &Served| known.tunnel.is_some() && known.tunnel == served.tunnel;
        match self.served.iter().position(is_it) {
            Some(at) => self.served[at] = served,
            None if self.served.len() < MAX_NAMED => self.served.push(served),
            None => {}
        }
    }

    /// Forgets a service.
    pub(super) fn remove_served(&mut self, tunnel: TunnelId) {
        self.served.retain(|served| served.tunnel != Some(tunnel));
    }

    /// Adds a message.
    pub(super) fn say(&mut self, tone: Tone, text: String) {
        if self.messages.len() == MAX_MESSAGES {
            self.messages.pop_front();
        }
        self.messages.push_back((tone, text));
    }

    /// Takes note of what the connector reports.
    pub(super) fn observe(&mut self, event: &ConnectorEvent, now: Instant) {
        match event {
            ConnectorEvent::Request(record) => {
                let is_failure = record.status >= 500 || record.refused.is_some();
                self.figures.record(Duration::from_micros(record.duration_us), is_failure, now);
            }
            ConnectorEvent::Connecting { edge } => self.set_edge(edge.as_ref().map(|edge| edge.as_str()), None, None),
            ConnectorEvent::Connected { edge, rtt, transport, .. } => {
                self.set_edge(edge.as_ref().map(|edge| edge.as_str()), None, Some((*transport, *rtt)));
            }
            ConnectorEvent::Attached { tunnel, url, edge } => {
                self.set_edge(edge.as_ref().map(|edge| edge.as_str()), Some(true), None);
                let served = self.served.iter_mut().find(|served| served.tunnel == Some(*tunnel));
                if let Some(served) = served.filter(|served| served.url.is_empty()) {
                    served.url.clone_from(url);
                }
            }
            ConnectorEvent::Disconnected { edge, .. } | ConnectorEvent::GoingAway { edge, .. } => {
                self.set_edge(edge.as_ref().map(|edge| edge.as_str()), Some(false), None);
            }
            ConnectorEvent::Left { edge } => {
                let name = edge.as_ref().map_or("edge", |edge| edge.as_str());
                self.edges.retain(|edge| edge.name != name);
            }
            _ => {}
        }
    }

    fn set_edge(&mut self, name: Option<&str>, is_up: Option<bool>, way: Option<(&'static str, Duration)>) {
        let name = name.unwrap_or("edge");
        let known = self.edges.iter().position(|edge| edge.name == name);
        let at = known.unwrap_or(self.edges.len());
        if known.is_none() {
            if self.edges.len() == MAX_NAMED {
                return;
            }
            self.edges.push(EdgeLine { name: name.to_owned(), is_up: false, way: None });
        }
        let edge = &mut self.edges[at];
        edge.is_up = is_up.unwrap_or(edge.is_up);
        edge.way = way.or(edge.way);
    }

    /// The new exchange is chosen and shown, or why there is none.
    pub(super) fn replayed(&mut self, id: u64, outcome: Result<u64, Problem>) {
        match outcome {
            Ok(new) => {
                (self.panel, self.chosen, self.top) = (Panel::List, Some(new), None);
                self.say(Tone::Good, format!("sent again as number {new}"));
            }
            Err(problem) if problem.needs_confirmation => {
                self.panel = Panel::Question { id, text: problem.detail };
            }
            Err(problem) => {
                self.panel = Panel::List;
                self.say(Tone::Bad, format!("{}: {}", problem.title, problem.detail));
            }
        }
    }

    /// What a key does. `store` has the exchanges, if they are kept.
    pub(super) fn handle_key(&mut self, key: KeyEvent, store: Option<&Store>) -> Option<Action> {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Some(Action::Interrupt),
                KeyCode::Char('z') => Some(Action::Suspend),
                KeyCode::Char('u') if self.is_typing => {
                    self.set_filter(String::new());
                    None
                }
                _ => None,
            };
        }
        if self.is_typing {
            self.type_filter(key.code);
            return None;
        }
        match self.panel.clone() {
            Panel::List => return self.handle_list_key(key.code, store),
            Panel::Details { id, scroll } => return self.handle_details_key(key.code, id, scroll, store),
            Panel::Question { id, .. } => {
                self.panel = Panel::List;
                let is_yes = matches!(key.code, KeyCode::Char('y' | 'Y'));
                return is_yes.then_some(Action::Replay { id, is_confirmed: true });
            }
            Panel::Messages { scroll } => match moved(key.code) {
                Some(by) => {
                    let most = self.messages.len().saturating_sub(1);
                    self.panel = Panel::Messages { scroll: scroll.saturating_add_signed(-by).min(most) };
                }
                None => self.panel = Panel::List,
            },
            Panel::Help | Panel::Code => self.panel = Panel::List,
        }
        None
    }

    fn handle_list_key(&mut self, code: KeyCode, store: Option<&Store>) -> Option<Action> {
        let chosen = || store.and_then(|store| self.chosen_of(store)).map(|exchange| exchange.id);
        match code {
            KeyCode::Char('q') => return Some(Action::Interrupt),
            KeyCode::Char('?') => self.panel = Panel::Help,
            KeyCode::Char('u') => self.panel = Panel::Code,
            KeyCode::Char('m') => self.panel = Panel::Messages { scroll: 0 },
            KeyCode::Char('/') if store.is_some() => self.is_typing = true,
            KeyCode::Enter => {
                if let Some(id) = chosen() {
                    self.panel = Panel::Details { id, scroll: 0 };
                }
            }
            KeyCode::Char('r') => {
                return chosen().map(|id| Action::Replay { id, is_confirmed: false });
            }
            KeyCode::Esc => {
                (self.chosen, self.top) = (None, None);
                self.set_filter(String::new());
            }
            KeyCode::Home | KeyCode::Char('g') => (self.chosen, self.top) = (None, None),
            KeyCode::End | KeyCode::Char('G') => {
                self.chosen = store.and_then(|store| self.matching(store).last()).map(|exchange| exchange.id);
            }
            code => {
                if let (Some(by), Some(store)) = (moved(code), store) {
                    self.choose(by, store);
                }
            }
        }
        None
    }

    fn handle_details_key(&mut self, code: KeyCode, id: u64, scroll: usize, store: Option<&Store>) -> Option<Action> {
        match code {
            KeyCode::Esc | KeyCode::Char('q') | KeyCode::Enter | KeyCode::Backspace => self.panel = Panel::List,
            KeyCode::Char('r') => return Some(Action::Replay { id, is_confirmed: false }),
            KeyCode::Char('?') => self.panel = Panel::Help,
            KeyCode::Left | KeyCode::Right | KeyCode::Char('h' | 'l') => {
                self.chosen = Some(id);
                let by = if matches!(code, KeyCode::Right | KeyCode::Char('l')) { 1 } else { -1 };
                if let Some(store) = store {
                    self.choose(by, store);
                    let id = self.chosen_of(store).map_or(id, |exchange| exchange.id);
                    self.panel = Panel::Details { id, scroll: 0 };
                }
            }
            KeyCode::Home | KeyCode::Char('g') => self.panel = Panel::Details { id, scroll: 0 },
            code => {
                if let Some(by) = moved(code) {
                    self.panel = Panel::Details { id, scroll: scroll.saturating_add_signed(by) };
                }
            }
        }
        None
    }

    fn type_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter | KeyCode::Down | KeyCode::Tab => self.is_typing = false,
            KeyCode::Esc => {
                self.is_typing = false;
                self.set_filter(String::new());
            }
            KeyCode::Backspace => {
                let mut text = self.filter_text.clone();
                text.pop();
                self.set_filter(text);
            }
            KeyCode::Char(letter) if self.filter_text.chars().count() < MAX_FILTER_CHARS => {
                self.set_filter(format!("{}{letter}", self.filter_text));
            }
            _ => {}
        }
    }

    /// Sets the filter. One that cannot be used leaves the former one, and says why.
    fn set_filter(&mut self, text: String) {
        match Filter::parse(&text) {
            Ok(filter) => (self.filter, self.filter_error) = (filter, None),
            Err(error) => self.filter_error = Some(error.to_string()),
        }
        self.filter_text = text;
        self.top = None;
    }

    /// The exchanges that the filter selects, the newest one first.
    pub(super) fn matching<'a>(&'a self, store: &'a Store) -> impl Iterator<Item = &'a Exchange> {
        store.newest().filter(|exchange| self.filter.matches(exchange))
    }

    /// The chosen exchange; the newest one if none is chosen, or if it is not kept any more.
    pub(super) fn chosen_of<'a>(&'a self, store: &'a Store) -> Option<&'a Exchange> {
        let chosen = self.chosen.and_then(|id| store.get(id)).filter(|exchange| self.filter.matches(exchange));
        chosen.or_else(|| self.matching(store).next())
    }

    /// Chooses an exchange further down (older), or up.
    fn choose(&mut self, by: isize, store: &Store) {
        let Some(from) = self.chosen_of(store).map(|exchange| exchange.id) else { return };
        let count = by.unsigned_abs();
        if by > 0 {
            let older = store.before(Some(from)).filter(|exchange| self.filter.matches(exchange));
            self.chosen = older.take(count).last().map(|exchange| exchange.id).or(Some(from));
            return;
        }
        let newer: Vec<u64> = self.matching(store).map(|exchange| exchange.id).take_while(|id| *id > from).collect();
        let to = newer.len().saturating_sub(count);
        // The newest one is followed.
        self.chosen = if to == 0 { None } else { newer.get(to).copied() };
    }

    /// The ids in the rows of the list, the newest one first, so that the chosen one is among them.
    pub(super) fn rows(&mut self, store: &Store, height: usize) -> Vec<u64> {
        let Some(chosen) = self.chosen else {
            self.top = None;
            return self.rows_from(None, store, height);
        };
        let chosen = self.chosen_of(store).map_or(chosen, |exchange| exchange.id);
        let mut rows = self.rows_from(self.top.map(|top| top.max(chosen)), store, height);
        if !rows.contains(&chosen) {
            // The chosen one becomes the last row.
            let newer = self.matching(store).map(|exchange| exchange.id).take_while(|id| *id >= chosen);
            let newer: Vec<u64> = newer.collect();
            let first = newer.len().checked_sub(height.max(1)).and_then(|at| newer.get(at).copied());
            rows = self.rows_from(first, store, height);
        }
        self.top = rows.first().copied();
        rows
    }

    /// At most `height` ids from this one on; from the newest one on if there is none.
    fn rows_from(&self, first: Option<u64>, store: &Store, height: usize) -> Vec<u64> {
        let all = self.matching(store).map(|exchange| exchange.id);
        all.skip_while(|id| first.is_some_and(|first| *id > first)).take(height).collect()
    }
}

/// How far a key moves: down is more.
fn moved(code: KeyCode) -> Option<isize> {
    let page = isize::try_from(PAGE).unwrap_or(isize::MAX);
    match code {
        KeyCode::Down | KeyCode::Char('j') => Some(1),
        KeyCode::Up | KeyCode::Char('k') => Some(-1),
        KeyCode::PageDown | KeyCode::Char(' ') => Some(page),
        KeyCode::PageUp => Some(-page),
        _ => None,
    }
}
