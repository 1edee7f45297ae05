//! The lines that a client sees in its shell, in a bounded queue.

use std::{collections::VecDeque, sync::Arc};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use crate::stats::{SshStats, count};

/// Bound on queued lines; beyond it the oldest are dropped and counted.
pub const MAX_CONSOLE_LINES: usize = 256;
/// The longest line, in bytes; the rest is cut.
pub const MAX_CONSOLE_LINE_BYTES: usize = 1_024;

/// The console of one connection. Lines are queued until the client has a shell. Clones are the same console.
#[derive(Debug, Clone)]
pub struct Console {
    shared: Arc<ConsoleState>,
}

#[derive(Debug)]
struct ConsoleState {
    queue: Mutex<Queue>,
    changed: Notify,
    stats: Arc<SshStats>,
}

#[derive(Debug, Default)]
struct Queue {
    lines: VecDeque<String>,
    dropped: u64,
    is_shown: bool,
    has_ended: bool,
}

impl Console {
    pub(crate) fn new(stats: Arc<SshStats>) -> Self {
        Self { shared: Arc::new(ConsoleState { queue: Mutex::default(), changed: Notify::new(), stats }) }
    }

    /// Appends a line, without its line end. Never waits: if the client reads too slowly, the oldest line is dropped.
    /// Control characters and bidirectional marks become spaces, so that text from a visitor cannot control the
    /// client's terminal.
    pub fn line(&self, text: &str) {
        let mut line = String::with_capacity(text.len().min(MAX_CONSOLE_LINE_BYTES));
        for character in text.chars().map(|c| if is_steering(c) { ' ' } else { c }) {
            if line.len() + character.len_utf8() > MAX_CONSOLE_LINE_BYTES {
                break;
            }
            line.push(character);
        }
        let mut queue = self.lock();
        if queue.lines.len() >= MAX_CONSOLE_LINES {
            queue.lines.pop_front();
            queue.dropped += 1;
            count(&self.shared.stats.console_lines_dropped);
        }
        queue.lines.push_back(line);
        drop(queue);
        self.shared.changed.notify_one();
    }

    /// Whether a shell shows the lines.
    pub fn is_shown(&self) -> bool {
        self.lock().is_shown
    }

    /// Takes the console for a shell; false if another shell has it.
    pub(crate) fn attach(&self) -> bool {
        !std::mem::replace(&mut self.lock().is_shown, true)
    }

    pub(crate) fn detach(&self) {
        self.lock().is_shown = false;
    }

    /// Ends the console: the shell ends once the queued lines are written.
    pub(crate) fn end(&self) {
        self.lock().has_ended = true;
        self.shared.changed.notify_one();
    }

    /// The next text to write, at least a line; `None` once the console has ended.
    pub(crate) async fn next(&self, line_end: &str) -> Option<String> {
        loop {
            {
                let mut queue = self.lock();
                if !queue.lines.is_empty() {
                    let mut text = String::new();
                    let dropped = std::mem::take(&mut queue.dropped);
                    if dropped > 0 {
                        text = format!("... {dropped} lines left out{line_end}");
                    }
                    for line in queue.lines.drain(..) {
                        text.push_str(&line);
                        text.push_str(line_end);
                    }
                    return Some(text);
                }
                if queue.has_ended {
                    return None;
                }
            }
            self.shared.changed.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.shared.queue.lock()
    }
}

/// Control characters, line separators, and marks of Unicode's bidirectional algorithm (UAX 9).
fn is_steering(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_oldest_lines_go_and_are_counted() {
        let console = Console::new(Arc::default());
        for number in 0..MAX_CONSOLE_LINES + 3 {
            console.line(&format!("line {number}"));
        }
        let text = console.next("\n").await.unwrap();
        assert!(text.starts_with("... 3 lines left out\nline 3\n"), "{text}");
        assert!(text.ends_with(&format!("line {}\n", MAX_CONSOLE_LINES + 2)), "{text}");
        console.end();
        assert_eq!(console.next("\n").await, None);
    }

    #[tokio::test]
    async fn a_line_cannot_steer_the_terminal_or_be_endless() {
        let console = Console::new(Arc::default());
        console.line("GET /\x1b[2J\r\nfalse line\u{9b}31m\u{202e}");
        console.line(&"é".repeat(MAX_CONSOLE_LINE_BYTES));
        let text = console.next("\n").await.unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "GET / [2J  false line 31m ");
        assert_eq!(lines[1].len(), MAX_CONSOLE_LINE_BYTES);
        assert_eq!(lines.len(), 2);
    }
}
