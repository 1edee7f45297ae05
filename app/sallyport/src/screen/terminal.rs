//! The terminal itself: its second page, its keys, and its return.

use std::{
    io::{self, Stdout, stdout},
    sync::{
        Arc, Once,
        atomic::{AtomicBool, Ordering},
        mpsc::SyncSender,
    },
    time::Duration,
};

use nix::sys::signal::{Signal, raise};
use ratatui::{
    Frame,
    backend::CrosstermBackend,
    crossterm::{
        cursor, event, execute,
        terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode},
    },
};

use super::Message;

/// How often the thread that reads keys looks whether it is to end.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Whether this process has the terminal now.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// The terminal, taken until [`Terminal::give_back`].
pub(super) struct Terminal {
    screen: ratatui::Terminal<CrosstermBackend<Stdout>>,
    /// Whether keys are read; nothing reads them while the program is suspended.
    reads: Arc<AtomicBool>,
}

impl Terminal {
    /// Takes the terminal, and sends its events.
    ///
    /// # Errors
    /// It refuses.
    pub(super) fn take(events: SyncSender<Message>) -> anyhow::Result<Self> {
        restore_at_panic();
        enter()?;
        let screen = ratatui::Terminal::new(CrosstermBackend::new(stdout())).inspect_err(|_| leave())?;
        let reads = Arc::new(AtomicBool::new(true));
        let is_reading = reads.clone();
        let thread = std::thread::Builder::new().name("keys".to_owned());
        thread.spawn(move || read(&events, &is_reading)).inspect_err(|_| leave())?;
        Ok(Self { screen, reads })
    }

    /// Draws a picture.
    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.screen.draw(draw).map(|_| ())
    }

    /// Stops the program as Ctrl-Z does, with the terminal as it was, and goes on when the shell says so.
    pub(super) fn suspend(&mut self) {
        leave();
        // The default action of this signal stops the process until SIGCONT. A signal to the process could be taken by
        // another thread, and this one would draw before the stop.
        let _ = raise(Signal::SIGTSTP);
        if enter().is_ok() {
            drop(self.screen.clear());
        }
    }

    /// Gives the terminal back as it was.
    pub(super) fn give_back(&mut self) {
        self.reads.store(false, Ordering::Release);
        leave();
    }
}

fn read(events: &SyncSender<Message>, is_reading: &AtomicBool) {
    while is_reading.load(Ordering::Acquire) {
        match event::poll(LOOK_EVERY) {
            Ok(false) => {}
            Ok(true) => {
                let sent = event::read().map(|event| events.send(Message::Terminal(event)));
                if !matches!(sent, Ok(Ok(()))) {
                    return;
                }
            }
            // The terminal is gone, and SIGHUP comes.
            Err(_) => return,
        }
    }
}

fn enter() -> io::Result<()> {
    enable_raw_mode()?;
    IS_TAKEN.store(true, Ordering::Release);
    execute!(stdout(), EnterAlternateScreen, cursor::Hide).inspect_err(|_| leave())
}

fn leave() {
    if IS_TAKEN.swap(false, Ordering::AcqRel) {
        // The terminal may be gone.
        drop(execute!(stdout(), LeaveAlternateScreen, cursor::Show));
        drop(disable_raw_mode());
    }
}

/// From now on, a panic is told on the terminal as it was.
fn restore_at_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            leave();
            before(panic);
        }));
    });
}
