//! Reads the log as it grows, from an event on.

use std::{
    fs::File,
    io::{BufRead as _, BufReader, Seek as _, SeekFrom},
    path::{Path, PathBuf},
};

use crate::{AuditError, MAX_LINE_BYTES, line, segment};

/// A reading position in the log.
#[derive(Debug)]
pub(crate) struct Tail {
    dir: PathBuf,
    /// The number of the last event that was read.
    after: u64,
    /// The current file, by the number of its first event, and the offset.
    place: Option<(u64, u64)>,
}

/// A line of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) seq: u64,
    /// The text without its line end.
    pub(crate) text: String,
}

impl Tail {
    /// Starts after this event.
    pub(crate) fn behind(dir: &Path, after: u64) -> Self {
        Self { dir: dir.to_owned(), after, place: None }
    }

    /// The number of the last event that was read.
    pub(crate) fn after(&self) -> u64 {
        self.after
    }

    /// The next lines up to event `until`, bounded by lines and bytes, at least one if there is one. A line that is no
    /// event is skipped; verification reports damage.
    ///
    /// The files cannot be read; the position is unchanged.
    /// The files cannot be read; what was read before is not lost.
    pub(crate) fn next(&mut self, until: u64, max_lines: usize, max_bytes: usize) -> Result<Vec<Line>, AuditError> {
        let (mut lines, mut bytes) = (Vec::new(), 0);
        while self.after < until && lines.len() < max_lines && bytes < max_bytes {
            let Some((first, offset)) = self.place.map_or_else(|| self.find(), |place| Ok(Some(place)))? else { break };
            let path = segment::Segment::of(&self.dir, first).path;
            let file = match File::open(&path) {
                Ok(file) => file,
                // The file was removed because of its age.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    self.place = None;
                    if self.find()?.is_some_and(|(found, _)| found != first) {
                        continue;
                    }
                    break;
                }
                Err(error) => return Err(AuditError::at(&path)(error)),
            };
            let mut reader = BufReader::new(file);
            let mut at = offset;
            reader.seek(SeekFrom::Start(at)).map_err(AuditError::at(&path))?;
            let mut text = Vec::new();
            let mut is_at_end = false;
            while lines.len() < max_lines && bytes < max_bytes {
                text.clear();
                let read = std::io::Read::take(&mut reader, MAX_LINE_BYTES as u64 + 1).read_until(b'\n', &mut text);
                let read = read.map_err(AuditError::at(&path))?;
                if text.pop() != Some(b'\n') {
                    is_at_end = true;
                    break;
                }
                let seq = line::read(&text).ok().map(|link| link.seq);
                if seq.is_some_and(|seq| seq > until) {
                    break;
                }
                at += read as u64;
                if let (Some(seq), Ok(text)) = (seq.filter(|seq| *seq > self.after), String::from_utf8(text.clone())) {
                    self.after = seq;
                    bytes += text.len();
                    lines.push(Line { seq, text });
                }
            }
            self.place = Some((first, at));
            if !is_at_end {
                break;
            }
            match segment::list(&self.dir)?.iter().find(|segment| segment.first > first) {
                Some(next) => self.place = Some((next.first, 0)),
                None => break,
            }
        }
        Ok(lines)
    }

    /// The file with the next event.
    fn find(&self) -> Result<Option<(u64, u64)>, AuditError> {
        let segments = segment::list(&self.dir)?;
        let last = segments.iter().rfind(|segment| segment.first <= self.after + 1);
        Ok(last.or(segments.first()).map(|segment| (segment.first, 0)))
    }
}
