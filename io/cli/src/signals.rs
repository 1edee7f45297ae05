//! Signals that end a long-running command.

use std::{
    fs::File,
    future::pending,
    io,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::Instant,
};

/// Signals within this time count as one: `timeout` of coreutils sends its signal to the process and to its group.
const SAME_SIGNAL: Duration = Duration::from_secs(1);

/// The exit status after Ctrl-C, as in shells: 128 plus the signal number.
pub const INTERRUPTED: i32 = 130;
/// The exit status after SIGTERM.
const TERMINATED: i32 = 143;
/// Whether signals are handled by [`Signals`].
static TAKEN: AtomicBool = AtomicBool::new(false);

/// From now on a signal that ends the process first restores the terminal's current state: a password prompt hides the
/// input.
///
/// # Errors
/// The system refuses.
pub fn restore_terminal_at_end() -> io::Result<()> {
    let terminal = File::options().read(true).write(true).open("/dev/tty")?;
    let as_it_is = tcgetattr(&terminal)?;
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    // Continues after the prompt: once handled, signals no longer end the process by themselves.
    tokio::spawn(async move {
        let status = tokio::select! {
            _ = interrupt.recv() => INTERRUPTED,
            _ = terminate.recv() => TERMINATED,
        };
        if !TAKEN.load(Ordering::SeqCst) {
            let _ = tcsetattr(&terminal, OptionalActions::Now, &as_it_is);
            std::process::exit(status);
        }
    });
    Ok(())
}

/// Ctrl-C, SIGTERM, and the end of the terminal; from its creation on they no longer end the process by themselves.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// `None` if the parent process wants SIGHUP to be ignored (`nohup`).
    hangup: Option<Signal>,
    /// When the last signal was reported.
    reported: Option<Instant>,
}

impl Signals {
    /// Starts to handle the signals.
    ///
    /// # Errors
    /// The system refuses.
    pub fn take() -> io::Result<Self> {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let hangup = if ignores_hangup(&status) { None } else { Some(signal(SignalKind::hangup())?) };
        let (interrupt, terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        TAKEN.store(true, Ordering::SeqCst);
        Ok(Self { interrupt, terminate, hangup, reported: None })
    }

    /// The same without SIGHUP, which [`Hangups`] reports.
    ///
    /// # Errors
    /// The system refuses.
    pub fn take_with_hangups() -> io::Result<(Self, Hangups)> {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let hangups = Hangups {
            hangup: signal(SignalKind::hangup())?,
            ends_with_terminal: !ignores_hangup(&status) && has_terminal(),
        };
        let (interrupt, terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        TAKEN.store(true, Ordering::SeqCst);
        Ok((Self { interrupt, terminate, hangup: None, reported: None }, hangups))
    }

    /// Waits for the next signal; repetitions within a second are skipped. Cancel safe.
    pub async fn next(&mut self) {
        loop {
            self.any().await;
            let now = Instant::now();
            if self.reported.is_none_or(|reported| now.duration_since(reported) >= SAME_SIGNAL) {
                self.reported = Some(now);
                return;
            }
        }
    }

    async fn any(&mut self) {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = hangup => {}
        }
    }
}

/// The meaning of SIGHUP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hangup {
    /// Reload the configuration, as daemons do.
    Reload,
    /// Stop: the terminal is closed.
    End,
}

/// SIGHUP, for a command with a configuration to reload.
pub struct Hangups {
    hangup: Signal,
    /// Whether the command was started from a terminal whose end should end it.
    ends_with_terminal: bool,
}

impl Hangups {
    /// Waits for the next SIGHUP. Cancel safe.
    pub async fn next(&mut self) -> Hangup {
        if self.hangup.recv().await.is_none() {
            return pending().await;
        }
        if self.ends_with_terminal && !has_terminal() { Hangup::End } else { Hangup::Reload }
    }
}

/// Whether the process has a controlling terminal.
fn has_terminal() -> bool {
    File::options().read(true).write(true).open("/dev/tty").is_ok()
}

/// Whether SIGHUP is ignored, from the process's status (proc_pid_status(5)): the lowest bit of `SigIgn` is signal 1.
fn ignores_hangup(status: &str) -> bool {
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ignored_hangup_is_seen() {
        assert!(ignores_hangup("Name:\tx\nSigIgn:\t0000000000001001\n"));
        assert!(!ignores_hangup("Name:\tx\nSigIgn:\t0000000000001000\n"));
        assert!(!ignores_hangup(""));
    }
}
