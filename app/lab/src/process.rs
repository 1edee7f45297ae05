//! Processes of a laboratory, known by their id and start time, so that no other process is mistaken for one.

use std::{fs, io, path::Path};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// The longest `/proc/PID/stat`, in bytes.
const MAX_STAT_BYTES: usize = 4_096;

/// A started process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// Its id.
    pub pid: i32,
    /// Its start, in ticks since the boot.
    pub at_ticks: u64,
}

/// The state of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Life {
    /// Running, or waiting.
    Runs,
    /// Stopped by a signal.
    Paused,
    /// Ended.
    Gone,
}

/// What a process has used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    /// Proportional set size, in bytes.
    pub memory_bytes: u64,
    /// Processor time, of user and system, in microseconds.
    pub cpu_us: u64,
}

/// The needed fields of `/proc/PID/stat` (proc_pid_stat(5)).
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    state: char,
    cpu_ticks: u64,
    threads: u64,
    at_ticks: u64,
}

impl Stat {
    /// The state. A process whose first thread alone has ended still has its sockets, and counts as running.
    fn life(&self) -> Life {
        match self.state {
            'Z' | 'X' if self.threads <= 1 => Life::Gone,
            'T' | 't' => Life::Paused,
            _ => Life::Runs,
        }
    }
}

fn parse(text: &str) -> Option<Stat> {
    // The name of the program is in parentheses, and may contain some.
    let (_, rest) = text.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split(' ').collect();
    let number = |field: usize| fields.get(field - 3)?.trim().parse::<u64>().ok();
    Some(Stat {
        state: fields.first()?.chars().next()?,
        cpu_ticks: number(14)? + number(15)?,
        threads: number(20)?,
        at_ticks: number(22)?,
    })
}

fn stat(pid: i32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    parse(text.get(..text.len().min(MAX_STAT_BYTES))?)
}

impl Started {
    /// The present process with this id.
    #[must_use]
    pub fn of(pid: i32) -> Option<Self> {
        stat(pid).map(|stat| Self { pid, at_ticks: stat.at_ticks })
    }

    /// The state.
    #[must_use]
    pub fn life(&self) -> Life {
        match stat(self.pid) {
            Some(stat) if stat.at_ticks == self.at_ticks => stat.life(),
            _ => Life::Gone,
        }
    }

    /// Sends a signal. Returns `false` if the process has ended.
    ///
    /// # Errors
    /// The system refuses.
    pub fn signal(&self, signal: Signal) -> io::Result<bool> {
        let Some(pid) = Pid::from_raw(self.pid) else { return Ok(false) };
        let handle = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(handle) => handle,
            Err(rustix::io::Errno::SRCH) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        // The handle is of one process; whether that is the right one is checked after it was opened.
        if self.life() == Life::Gone {
            return Ok(false);
        }
        match pidfd_send_signal(handle, signal) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::SRCH) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// What it has used; `None` if it has ended.
    #[must_use]
    pub fn used(&self) -> Option<Used> {
        let stat = stat(self.pid).filter(|stat| stat.at_ticks == self.at_ticks)?;
        let rollup = fs::read_to_string(format!("/proc/{}/smaps_rollup", self.pid)).ok()?;
        let kib = rollup.lines().find_map(|line| line.strip_prefix("Pss:")?.split_whitespace().next()?.parse().ok());
        let tick_us = 1_000_000 / rustix::param::clock_ticks_per_second().max(1);
        Some(Used { memory_bytes: kib.unwrap_or(0_u64) * 1_024, cpu_us: stat.cpu_ticks * tick_us })
    }
}

/// The processes in this network namespace.
pub(crate) fn in_namespace(path: &Path) -> Vec<Started> {
    use std::os::unix::fs::MetadataExt as _;
    let Ok(wanted) = fs::metadata(path) else { return Vec::new() };
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let inside = pids.filter(|pid| {
        fs::metadata(format!("/proc/{pid}/ns/net")).is_ok_and(|of| (of.dev(), of.ino()) == (wanted.dev(), wanted.ino()))
    });
    inside.filter_map(Started::of).collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_name_of_a_program_cannot_fool_the_reader() {
        let tail = (4..=52).map(|field| field.to_string()).collect::<Vec<_>>().join(" ");
        let stat = parse(&format!("42 (a) S (b) R {tail}")).unwrap();
        assert_eq!(stat, Stat { state: 'R', cpu_ticks: 14 + 15, threads: 20, at_ticks: 22 });
        assert_eq!(parse("42 (x) S 1 2"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn a_process_is_gone_with_the_last_of_its_threads() {
        let life = |state, threads| Stat { state, cpu_ticks: 0, threads, at_ticks: 0 }.life();
        assert_eq!((life('Z', 3), life('Z', 1), life('Z', 0)), (Life::Runs, Life::Gone, Life::Gone));
        assert_eq!((life('S', 3), life('T', 3)), (Life::Runs, Life::Paused));
    }

    #[test]
    fn a_process_is_paused_resumed_and_ended_and_its_id_is_not_confused() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let started = Started::of(i32::try_from(child.id()).unwrap()).unwrap();
        assert_eq!(started.life(), Life::Runs);
        assert!(started.used().unwrap().memory_bytes > 0);
        let until = |life: Life| {
            for _ in 0..3_000 {
                if started.life() == life {
                    return;
                }
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            panic!("not {life:?}");
        };
        assert!(started.signal(Signal::STOP).unwrap());
        until(Life::Paused);
        assert!(started.signal(Signal::CONT).unwrap());
        until(Life::Runs);
        let other = Started { at_ticks: started.at_ticks + 1, ..started };
        assert_eq!(other.life(), Life::Gone);
        assert!(!other.signal(Signal::KILL).unwrap());
        assert!(started.signal(Signal::KILL).unwrap());
        until(Life::Gone);
        child.wait().unwrap();
        assert!(!started.signal(Signal::KILL).unwrap());
        assert_eq!(started.used(), None);
    }

    #[test]
    fn processes_in_the_same_namespace_are_found() {
        let ours = in_namespace(Path::new("/proc/self/ns/net"));
        assert!(ours.iter().any(|process| process.pid == i32::try_from(std::process::id()).unwrap()));
        assert!(in_namespace(Path::new("/nonexistent")).is_empty());
    }
}
