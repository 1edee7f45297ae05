//! The live screen of a command that holds tunnels: addresses, requests as they come, and keys.
//! Uses `inspector` and `units`.
//!
//! [`Screen`] is what commands see. `state` has what is shown and what keys do, `figures` the last minute, `draw` and
//! `details` the picture, `palette` its colours. All of these are pure. `terminal` alone touches the terminal.

mod details;
mod draw;
mod figures;
mod palette;
mod state;
mod terminal;
#[cfg(test)]
mod tests;

use std::{
    io::{IsTerminal as _, stdin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use clap::Args;
use ratatui::crossterm::event::{Event, KeyEventKind};
use rustix::process::{Signal, getpid, kill_process};
use sallyport_connector::ConnectorEvent;
use sallyport_model::TunnelId;
use time::UtcOffset;
use tokio::runtime::Handle;

pub(crate) use self::state::{Served, Tone};
use self::{
    draw::Look,
    palette::Palette,
    state::{Action, State},
    terminal::Terminal,
};
use crate::{
    inspector::{Inspection, Viewer},
    output::{self, Format, Output, safe},
    units::duration,
};

/// How many messages may wait for the screen; further requests are not counted.
const MAX_WAITING: usize = 4_096;
/// The shortest time between two pictures.
const FRAME_TIME: Duration = Duration::from_millis(66);
/// How often figures move on while there are some.
const SECOND: Duration = Duration::from_secs(1);

/// How a command that holds tunnels shows itself on a terminal.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ScreenArgs {
    /// Print lines, instead of a live screen with the requests
    #[arg(long)]
    pub(crate) plain: bool,
}

impl ScreenArgs {
    /// Whether the command has a screen: people look, and can type.
    pub(crate) fn is_wanted(&self, output: &Output) -> bool {
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        !self.plain && output.terminal && output.format == Format::Table && stdin().is_terminal() && !is_dumb
    }
}

/// A message to the screen.
enum Message {
    Served(Served),
    Removed(TunnelId),
    Inspector(String),
    Observed(Box<ConnectorEvent>),
    Said(Tone, String),
    /// The exchanges have changed.
    Changed,
    Terminal(Event),
    End,
}

/// The live screen; the terminal is as before when this is dropped.
pub(crate) struct Screen {
    sender: SyncSender<Message>,
    has_requests: bool,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Screen {
    fn drop(&mut self) {
        drop(self.sender.send(Message::End));
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// The terminal refuses.
    pub(crate) fn start(output: &Output, offset: UtcOffset, inspection: Option<&Inspection>) -> anyhow::Result<Self> {
        let (sender, receiver) = sync_channel(MAX_WAITING);
        let terminal = Terminal::take(sender.clone())?;
        let viewer = inspection.map(Inspection::viewer);
        let has_requests = viewer.is_some();
        let has_changed = Arc::new(AtomicBool::new(false));
        if let Some(viewer) = &viewer {
            let (sender, has_changed) = (sender.clone(), has_changed.clone());
            viewer.on_change(move || {
                if !has_changed.swap(true, Ordering::AcqRel) && sender.try_send(Message::Changed).is_err() {
                    has_changed.store(false, Ordering::Release);
                }
            });
        }
        let palette = Palette { is_colored: output.color };
        let shown = Shown {
            state: State::new(Instant::now()),
            viewer,
            look: Look { palette, offset },
            terminal,
            has_changed,
            runtime: Handle::current(),
        };
        let thread = std::thread::Builder::new().name("screen".to_owned()).spawn(move || shown.run(&receiver))?;
        Ok(Self { sender, has_requests, thread: Some(thread) })
    }

    /// Whether the screen shows requests as the inspector keeps them.
    pub(crate) fn has_requests(&self) -> bool {
        self.has_requests
    }

    /// Names a service.
    pub(crate) fn set_served(&self, served: Served) {
        self.send(Message::Served(served));
    }

    /// Forgets the service of a tunnel.
    pub(crate) fn remove_served(&self, tunnel: TunnelId) {
        self.send(Message::Removed(tunnel));
    }

    /// Shows the address of the inspector's page.
    pub(crate) fn set_inspector(&self, url: &str) {
        self.send(Message::Inspector(url.to_owned()));
    }

    /// Takes note of what the connector reports.
    pub(crate) fn observe(&self, event: &ConnectorEvent) {
        self.send(Message::Observed(Box::new(event.clone())));
    }

    /// Shows a message.
    pub(crate) fn say(&self, tone: Tone, text: impl Into<String>) {
        self.send(Message::Said(tone, text.into()));
    }

    /// Never waits: traffic goes on whatever the terminal does.
    fn send(&self, message: Message) {
        match self.sender.try_send(message) {
            Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
        }
    }
}

/// The screen's thread.
struct Shown {
    state: State,
    viewer: Option<Viewer>,
    look: Look,
    terminal: Terminal,
    has_changed: Arc<AtomicBool>,
    /// Requests are sent again there.
    runtime: Handle,
}

impl Shown {
    fn run(mut self, messages: &Receiver<Message>) {
        let mut drawn_at: Option<Instant> = None;
        let mut is_stale = true;
        loop {
            let rest = drawn_at.map_or(Duration::ZERO, |at| FRAME_TIME.saturating_sub(at.elapsed()));
            if is_stale && rest.is_zero() {
                self.state.figures.advance(Instant::now());
                if self.draw().is_err() {
                    break;
                }
                (is_stale, drawn_at) = (false, Some(Instant::now()));
            }
            let message = match is_stale {
                true => messages.recv_timeout(rest),
                false if self.state.figures.is_moving() => messages.recv_timeout(SECOND),
                false => messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match message {
                Ok(Message::End) | Err(RecvTimeoutError::Disconnected) => break,
                Ok(message) => is_stale |= self.handle(message),
                Err(RecvTimeoutError::Timeout) => is_stale = true,
            }
        }
        self.terminal.give_back();
        self.say_goodbye();
    }

    /// Whether the message changes what is shown.
    fn handle(&mut self, message: Message) -> bool {
        match message {
            Message::Served(served) => self.state.set_served(served),
            Message::Removed(tunnel) => self.state.remove_served(tunnel),
            Message::Inspector(url) => self.state.inspector = Some(url),
            Message::Observed(event) => self.state.observe(&event, Instant::now()),
            Message::Said(tone, text) => self.state.say(tone, text),
            Message::Changed => self.has_changed.store(false, Ordering::Release),
            Message::Terminal(Event::Key(key)) if key.kind != KeyEventKind::Release => {
                let state = &mut self.state;
                let action = match &self.viewer {
                    Some(viewer) => viewer.read(|store| state.handle_key(key, Some(store))),
                    None => state.handle_key(key, None),
                };
                if let Some(action) = action {
                    self.act(action);
                }
            }
            Message::Terminal(Event::Resize(..)) => {}
            Message::Terminal(_) | Message::End => return false,
        }
        true
    }

    fn act(&mut self, action: Action) {
        match action {
            // The command ends as after Ctrl-C on any terminal.
            Action::Interrupt => drop(kill_process(getpid(), Signal::INT)),
            Action::Suspend => self.terminal.suspend(),
            Action::Replay { id, is_confirmed } => {
                let Some(viewer) = &self.viewer else { return };
                let _entered = self.runtime.enter();
                let outcome = viewer.replay(id, is_confirmed);
                self.state.replayed(id, outcome);
            }
        }
    }

    fn draw(&mut self) -> std::io::Result<()> {
        let (state, look, terminal) = (&mut self.state, self.look, &mut self.terminal);
        match &self.viewer {
            Some(viewer) => viewer.read(|store| terminal.draw(|frame| draw::draw(frame, state, Some(store), look))),
            None => terminal.draw(|frame| draw::draw(frame, state, None, look)),
        }
    }

    /// What stays on the terminal: the addresses, and how many requests there were.
    fn say_goodbye(&self) {
        let (requests, failures) = self.state.figures.totals();
        let median =
            self.state.figures.percentile_us(50).map(|us| format!(", half of the last within {}", duration(us)));
        let addresses = self.state.served.iter().filter(|served| !served.url.is_empty());
        let lines = addresses.map(|served| format!("{}  {}", safe(&served.name), safe(&served.url)));
        let noun = if requests == 1 { "request" } else { "requests" };
        let sum = format!("{requests} {noun}, {failures} failed{}", median.unwrap_or_default());
        for line in lines.chain([sum]) {
            // The terminal may be gone.
            drop(output::line(&line));
        }
    }
}
