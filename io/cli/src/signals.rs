//! The signals that end a command which runs until it is told to stop.

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

/// Signals so soon after one are the same one: `timeout` of coreutils sends its signal to the process and to its group.
const SAME_SIGNAL: Duration = Duration::from_secs(1);

/// The exit status after Ctrl-C, as shells have it: 128 and the number of the signal.
pub const INTERRUPTED: i32 = 130;
/// The same after SIGTERM.
const TERMINATED: i32 = 143;
/// Whether somebody took the signals.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// From here on a signal that ends the process puts the terminal right before, as it is now: a prompt for a password
/// hides what is typed.
///
/// # Errors
/// The system refuses.
pub fn restore_terminal_at_end() -> io::Result<()> {
    let terminal = File::options().read(true).write(true).open("/dev/tty")?;
    let as_it_is = tcgetattr(&terminal)?;
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    // It goes on after the prompt: signals that were taken once do not end the process by themselves any more.
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

/// Ctrl-C, SIGTERM, and the end of the terminal; from here on they no longer end the process by themselves.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// Absent where whoever started us wants the end of the terminal ignored (`nohup`).
    hangup: Option<Signal>,
    /// When the last one came that was told.
    told: Option<Instant>,
}

impl Signals {
    /// Takes the signals over.
    ///
    /// # Errors
    /// The system refuses.
    pub fn take() -> io::Result<Self> {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let hangup = if ignores_hangup(&status) { None } else { Some(signal(SignalKind::hangup())?) };
        let (interrupt, terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        TAKEN.store(true, Ordering::SeqCst);
        Ok(Self { interrupt, terminate, hangup, told: None })
    }

    /// The same without the end of the terminal, which [`Hangups`] tells.
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
        Ok((Self { interrupt, terminate, hangup: None, told: None }, hangups))
    }

    /// Waits for the next one; repetitions within a second are left out. Safe to drop and call again.
    pub async fn next(&mut self) {
        loop {
            self.any().await;
            let now = Instant::now();
            if self.told.is_none_or(|told| now.duration_since(told) >= SAME_SIGNAL) {
                self.told = Some(now);
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

/// What a hangup asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hangup {
    /// To read again what was configured, as daemons do.
    Reload,
    /// To end: the terminal is gone.
    End,
}

/// SIGHUP, to a command that has something to read again.
pub struct Hangups {
    hangup: Signal,
    /// It was started from a terminal, and whoever started it did not want the end of that ignored.
    ends_with_terminal: bool,
}

impl Hangups {
    /// Waits for the next one. Safe to drop and call again.
    pub async fn next(&mut self) -> Hangup {
        if self.hangup.recv().await.is_none() {
            return pending().await;
        }
        if self.ends_with_terminal && !has_terminal() { Hangup::End } else { Hangup::Reload }
    }
}

/// Whether the process has a terminal that controls it.
fn has_terminal() -> bool {
    File::options().read(true).write(true).open("/dev/tty").is_ok()
}

/// Whether SIGHUP is ignored, by the process's status (proc_pid_status(5)): the lowest bit of `SigIgn` is signal 1.
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
