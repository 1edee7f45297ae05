//! Verification of the log.

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

/// The most reported problems.
const MAX_PROBLEMS: usize = 100;
/// Attempts if files are removed during the verification because of their age.
const MAX_TRIES: usize = 3;

/// Treatment of events after the last one known to the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tail {
    /// Ignored: they are being written.
    IsHead,
    /// Accepted: written in the last second before a crash, or just now by a running process.
    MayBeBeyondHead,
}

/// Verifies the log from its beginning to its end.
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
        look.problem("head".to_owned(), "there is no valid head: a missing end cannot be detected".to_owned());
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
            look.problem("head".to_owned(), format!("event {} was replaced", head.seq));
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
                // The last line may be incomplete because it is being written.
                if tail == Tail::IsHead || line.len() as u64 == max {
                    self.problem(place, "the line is incomplete".to_owned());
                }
                return Ok(());
            };
            match line::read(text) {
                Ok(link) => self.link(place, &link),
                Err(damage) => {
                    let what = match damage {
                        Damage::Form => "the line is not an event".to_owned(),
                        Damage::Changed => format!("event {} was changed", self.expected),
                    };
                    self.problem(place, what);
                    // The next event shows where the chain continues.
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
                format!("event {} is in the place of event {}: it was inserted or moved", link.seq, self.expected),
            );
            // The next event is checked against the previous state.
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
