//! Opens a log: finds its end, and detects effects of a crash or of tampering.

use std::{fs::OpenOptions, path::Path};

use sallyport_api::AuditGap;

use crate::{
    AuditError,
    head::Head,
    line::{self, Link},
    segment::{self, Segment},
};

/// The state to continue from.
pub(crate) struct Recovered {
    pub(crate) head: Head,
    /// The file to continue in, with its length; `None` starts a new one, if there is no file or its end is damaged.
    pub(crate) last: Option<(Segment, u64)>,
    /// Gaps to record before anything else.
    pub(crate) gaps: Vec<AuditGap>,
}

fn gap(reason: &str, events: Option<u64>, bytes: Option<u64>) -> AuditGap {
    AuditGap { reason: reason.to_owned(), events, bytes }
}

/// Finds the end of the log. An incomplete line is cut off; nothing else is changed.
pub(crate) fn recover(dir: &Path, key: &[u8; 32]) -> Result<Recovered, AuditError> {
    let segments = segment::list(dir)?;
    let mut gaps = Vec::new();
    let head = match Head::read(dir, key) {
        Ok(head) => head,
        Err(error) => {
            tracing::warn!(dir = %dir.display(), "the head of the audit log {error}");
            None
        }
    };
    if head.is_none() && !segments.is_empty() {
        tracing::warn!(
            dir = %dir.display(),
            "the audit log has no valid head: a truncation of its end cannot be detected"
        );
        gaps.push(gap("no-head", None, None));
    }
    let is_known = head.is_some();
    let mut head = head.unwrap_or_default();
    if let Some(first) = segments.first().filter(|_| !is_known) {
        // Earlier events are unknown: the log begins with the existing ones.
        let bytes = first.read()?;
        head.first = first.first;
        head.first_prev = lines(&bytes).0.next().and_then(|line| line::read(line).ok()).map_or(line::START, |l| l.prev);
    }
    // Files that the log was about to remove before a crash.
    let kept: Vec<_> = segments.into_iter().filter(|segment| !is_known || segment.first >= head.first).collect();
    let Some(last) = kept.last().cloned() else {
        if head.seq >= head.first {
            missing(&mut gaps, &head, head.first.saturating_sub(1));
        }
        return Ok(Recovered { head, last: None, gaps });
    };
    let bytes = last.read()?;
    let (whole, rest) = lines(&bytes);
    let mut end: Option<Link> = None;
    let mut is_damaged = false;
    let mut known = None;
    for text in whole {
        let Ok(link) = line::read(text) else {
            is_damaged = true;
            continue;
        };
        if link.seq == head.seq {
            known = Some(link.hash);
        }
        end = Some(link);
    }
    if !rest.is_empty() {
        let file = OpenOptions::new().write(true).open(&last.path).map_err(AuditError::at(&last.path))?;
        file.set_len((bytes.len() - rest.len()) as u64).map_err(AuditError::at(&last.path))?;
        file.sync_all().map_err(AuditError::at(&last.path))?;
        tracing::warn!(bytes = rest.len(), "removed an incomplete last line of the audit log");
        gaps.push(gap("half-line", None, Some(rest.len() as u64)));
    }
    let length = (bytes.len() - rest.len()) as u64;
    if is_damaged {
        gaps.push(gap("damaged", None, None));
    }
    let reached = end.as_ref().map_or(last.first.saturating_sub(1), |link| link.seq);
    if reached < head.seq {
        missing(&mut gaps, &head, reached);
        return Ok(Recovered { head, last: None, gaps });
    }
    if is_known && head.seq >= last.first && known != Some(head.hash) {
        tracing::warn!(seq = head.seq, "the last event of the audit log was replaced");
        gaps.push(gap("damaged", None, None));
    }
    if let Some(end) = end {
        (head.seq, head.hash) = (end.seq, end.hash);
    }
    // Lines are only appended after a valid one.
    let last = (!is_damaged).then_some((last, length));
    Ok(Recovered { head, last, gaps })
}

fn missing(gaps: &mut Vec<AuditGap>, head: &Head, reached: u64) {
    let events = head.seq.saturating_sub(reached);
    tracing::warn!(events, after = reached, "the end of the audit log is missing");
    gaps.push(gap("missing", Some(events), None));
}

/// The complete lines, and the bytes after the last of them.
pub(crate) fn lines(bytes: &[u8]) -> (impl DoubleEndedIterator<Item = &[u8]>, &[u8]) {
    let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let (whole, rest) = bytes.split_at(end);
    let whole = whole.strip_suffix(b"\n").unwrap_or(whole);
    let is_empty = end == 0;
    (whole.split(|byte| *byte == b'\n').filter(move |_| !is_empty), rest)
}
