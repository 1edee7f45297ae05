//! Whether the log is as it was written.

use std::{
    fs::File,
    io::{self, BufRead as _, BufReader, Read as _},
    path::Path,
};

use sallyport_api::{AuditProblem, AuditVerification};

use crate::{
    AuditError, MAX_LINE_BYTES,
    head::Head,
    line::{self, Damage, Hash, Link, hex},
    segment::{self, Segment},
};

/// How many problems are told.
const MAX_PROBLEMS: usize = 100;
/// How often it is begun again when files are removed meanwhile because their time is over.
const MAX_TRIES: usize = 3;

/// What may be behind the last event that the head knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tail {
    /// Nothing that counts: what is written meanwhile is not looked at.
    IsHead,
    /// What was written in the last second before a crash, or just now by a process that runs.
    MayBeBeyondHead,
}

/// Looks through the log from its beginning to its end.
pub(crate) fn verify(dir: &Path, head: impl Fn() -> Option<Head>, tail: Tail) -> Result<AuditVerification, AuditError> {
    let mut tries = 1;
    loop {
        match look(dir, head(), tail) {
            Err(AuditError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound && tries < MAX_TRIES => {}
            result => return result,
        }
        tries += 1;
    }
}

struct Look {
    expected: u64,
    prev: Option<Hash>,
    events: u64,
    gaps: u64,
    until: u64,
    problems: Vec<AuditProblem>,
    known: Option<Hash>,
    head_seq: u64,
}

fn look(dir: &Path, head: Option<Head>, tail: Tail) -> Result<AuditVerification, AuditError> {
    let segments = segment::list(dir)?;
    let first = head.as_ref().map_or_else(|| segments.first().map_or(1, |segment| segment.first), |head| head.first);
    let mut look = Look {
        expected: first,
        prev: head.as_ref().map(|head| head.first_prev),
        events: 0,
        gaps: 0,
        until: head.as_ref().filter(|_| tail == Tail::IsHead).map_or(u64::MAX, |head| head.seq),
        problems: Vec::new(),
        known: None,
        head_seq: head.as_ref().map_or(0, |head| head.seq),
    };
    if head.is_none() && !segments.is_empty() {
        look.problem("head".to_owned(), "there is no good head: whether the end is missing is not known".to_owned());
    }
    for segment in segments.iter().filter(|segment| segment.first >= first) {
        if look.expected > look.until {
            break;
        }
        look.segment(segment, tail)?;
    }
    let last = look.expected - 1;
    if let Some(head) = head {
        if last < head.seq {
            let what = format!("the end is missing: events {} to {}", look.expected, head.seq);
            look.problem("head".to_owned(), what);
        } else if head.seq >= first && look.known != Some(head.hash) {
            look.problem("head".to_owned(), format!("event {} is not the one that was written", head.seq));
        }
    }
    let hash = look.prev.unwrap_or(line::START);
    Ok(AuditVerification {
        is_good: look.problems.is_empty(),
        events: look.events,
        first,
        last,
        hash: hex(&hash),
        gaps: look.gaps,
        problems: look.problems,
    })
}

impl Look {
    fn problem(&mut self, place: String, what: String) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(AuditProblem { place, what });
        }
    }

    fn segment(&mut self, segment: &Segment, tail: Tail) -> Result<(), AuditError> {
        let at = AuditError::at;
        let mut reader = BufReader::new(File::open(&segment.path).map_err(at(&segment.path))?);
        let mut number = 0_u64;
        let mut line = Vec::new();
        loop {
            line.clear();
            number += 1;
            let max = MAX_LINE_BYTES as u64 + 1;
            (&mut reader).take(max).read_until(b'\n', &mut line).map_err(at(&segment.path))?;
            if line.is_empty() || self.expected > self.until {
                return Ok(());
            }
            let place = format!("{}:{number}", segment.name());
            let Some(text) = line.strip_suffix(b"\n") else {
                // What is being written just now is not there whole yet.
                if tail == Tail::IsHead || line.len() as u64 == max {
                    self.problem(place, "the line was not written whole".to_owned());
                }
                return Ok(());
            };
            match line::read(text) {
                Ok(link) => self.link(place, &link),
                Err(damage) => {
                    let what = match damage {
                        Damage::Form => "this is no event".to_owned(),
                        Damage::Changed => format!("event {} was changed", self.expected),
                    };
                    self.problem(place, what);
                    // Where the chain goes on can only be seen from the next event.
                    (self.expected, self.prev) = (self.expected + 1, None);
                }
            }
        }
    }

    fn link(&mut self, place: String, link: &Link) {
        self.events += 1;
        self.gaps += u64::from(link.is_gap);
        if link.seq > self.expected {
            let what = match link.seq - self.expected {
                1 => format!("event {} is missing before this one", self.expected),
                _ => format!("events {} to {} are missing before this one", self.expected, link.seq - 1),
            };
            self.problem(place, what);
        } else if link.seq < self.expected {
            self.problem(
                place,
                format!("event {} stands where {} should: it was put in or moved", link.seq, self.expected),
            );
            // What comes next is judged by what was there before.
            return;
        } else if self.prev.is_some_and(|prev| prev != link.prev) {
            self.problem(place, format!("event {} does not follow the one before it", link.seq));
        }
        if link.seq == self.head_seq {
            self.known = Some(link.hash);
        }
        (self.expected, self.prev) = (link.seq + 1, Some(link.hash));
    }
}
