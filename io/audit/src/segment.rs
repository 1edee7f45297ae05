//! The files of the log.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::SystemTime,
};

use crate::{AuditError, MAX_LINE_BYTES};

/// Size limit of a file, in bytes.
pub const MAX_SEGMENT_BYTES: u64 = 8 * 1024 * 1024;
/// Bound on the bytes read of one file: more than the log ever writes.
const MAX_READ_BYTES: u64 = MAX_SEGMENT_BYTES + 2 * MAX_LINE_BYTES as u64;
const SUFFIX: &str = ".jsonl";

/// A file of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Segment {
    /// The number of its first event.
    pub(crate) first: u64,
    pub(crate) path: PathBuf,
}

impl Segment {
    /// The file with this first event.
    pub(crate) fn of(dir: &Path, first: u64) -> Self {
        Self { first, path: dir.join(format!("{first:010}{SUFFIX}")) }
    }

    pub(crate) fn name(&self) -> String {
        self.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// Reads the whole file.
    pub(crate) fn read(&self) -> Result<Vec<u8>, AuditError> {
        let mut bytes = Vec::new();
        let file = File::open(&self.path).map_err(AuditError::at(&self.path))?;
        file.take(MAX_READ_BYTES).read_to_end(&mut bytes).map_err(AuditError::at(&self.path))?;
        Ok(bytes)
    }

    /// Its length in bytes, and the time of its last change.
    pub(crate) fn standing(&self) -> Option<(u64, SystemTime)> {
        let file = fs::metadata(&self.path).ok()?;
        Some((file.len(), file.modified().ok()?))
    }
}

/// The files of the log, oldest first.
pub(crate) fn list(dir: &Path) -> Result<Vec<Segment>, AuditError> {
    let mut segments = Vec::new();
    for entry in fs::read_dir(dir).map_err(AuditError::at(dir))? {
        let path = entry.map_err(AuditError::at(dir))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if let Some(first) = name.strip_suffix(SUFFIX).and_then(|number| number.parse().ok()) {
            segments.push(Segment { first, path });
        }
    }
    segments.sort_unstable_by_key(|segment| segment.first);
    Ok(segments)
}

/// Whether the name is one of a file of the log.
pub(crate) fn is_segment(name: &str) -> bool {
    name.strip_suffix(SUFFIX).is_some_and(|number| number.parse::<u64>().is_ok())
}

/// A file that lines are appended to.
pub(crate) trait Medium: Send {
    /// Appends all bytes.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Syncs the file to disk.
    fn sync(&mut self) -> io::Result<()>;
    /// Truncates the file to this length.
    fn cut(&mut self, length: u64) -> io::Result<()>;
}

impl Medium for File {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }
    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }
}

/// Opens a file of the log for appending.
pub(crate) type Opener = Box<dyn Fn(&Path) -> io::Result<Box<dyn Medium>> + Send>;

pub(crate) fn open(path: &Path) -> io::Result<Box<dyn Medium>> {
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    if let Some(dir) = path.parent() {
        File::open(dir)?.sync_all()?;
    }
    Ok(Box::new(file))
}
