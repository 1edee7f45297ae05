//! Copies the log while it is being written, for backups.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use crate::{
    AuditError,
    head::{HEAD_FILE, NEW_HEAD_FILE},
    recover::lines,
    segment, spool,
};

/// Attempts if files are removed during the copy because of their age.
const MAX_TRIES: usize = 3;
/// Time to wait for the head of a new log, and the interval of checks. The head is written within a second.
const MAX_HEAD_WAIT: Duration = Duration::from_secs(5);
const HEAD_WAIT: Duration = Duration::from_millis(50);
/// The largest small file beside the log that is copied, in bytes.
const MAX_SMALL_BYTES: u64 = 1024 * 1024;

/// Summary of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copied {
    /// Number of files.
    pub files: usize,
    /// Number of bytes.
    pub bytes: u64,
}

/// Copies the log from one folder to a new one; `None` if there is no log. Events written during the copy may be
/// missing. The copy is complete up to its last line.
///
/// A file cannot be read or written, or the target exists.
/// A file cannot be read or written, or the target is there.
pub fn copy(from: &Path, to: &Path) -> Result<Option<Copied>, AuditError> {
    if !from.is_dir() {
        return Ok(None);
    }
    await_head(from)?;
    let mut tries = 1;
    loop {
        match copy_once(from, to) {
            Err(AuditError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound && tries < MAX_TRIES => {
                fs::remove_dir_all(to).map_err(AuditError::at(to))?;
            }
            result => return result.map(Some),
        }
        tries += 1;
    }
}

/// Waits for the head of a new log, which is written a moment after the first lines.
fn await_head(dir: &Path) -> Result<(), AuditError> {
    let began = Instant::now();
    while !segment::list(dir)?.is_empty() && !dir.join(HEAD_FILE).exists() && began.elapsed() < MAX_HEAD_WAIT {
        thread::sleep(HEAD_WAIT);
    }
    Ok(())
}

fn copy_once(from: &Path, to: &Path) -> Result<Copied, AuditError> {
    DirBuilder::new().mode(0o700).create(to).map_err(AuditError::at(to))?;
    let mut copied = Copied { files: 0, bytes: 0 };
    let mut put = |name: &str, bytes: &[u8]| -> Result<(), AuditError> {
        let path = to.join(name);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        file.and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
            .map_err(AuditError::at(&path))?;
        copied.files += 1;
        copied.bytes += bytes.len() as u64;
        Ok(())
    };
    // The head and the other positions are copied first: the events that they refer to are on disk already.
    for name in small_files(from)? {
        let path = from.join(&name);
        let mut bytes = Vec::new();
        let read = File::open(&path).and_then(|file| file.take(MAX_SMALL_BYTES).read_to_end(&mut bytes));
        read.map_err(AuditError::at(&path))?;
        put(&name, &bytes)?;
    }
    for segment in segment::list(from)? {
        let bytes = segment.read()?;
        // The line that is being written is incomplete.
        let rest = lines(&bytes).1.len();
        put(&segment.name(), &bytes[..bytes.len() - rest])?;
    }
    File::open(to).and_then(|dir| dir.sync_all()).map_err(AuditError::at(to))?;
    Ok(copied)
}

/// The files beside the log with its end and the positions of consumers, the head first.
fn small_files(dir: &Path) -> Result<Vec<String>, AuditError> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).map_err(AuditError::at(dir))? {
        let entry = entry.map_err(AuditError::at(dir))?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let is_file = entry.file_type().map_err(AuditError::at(&entry.path()))?.is_file();
        // Half-written files, and files that a former process is about to leave, belong to the running process.
        let is_passing = name == NEW_HEAD_FILE || name.ends_with(".new") || spool::is_spool(&name);
        if is_file && !is_passing && !segment::is_segment(&name) {
            names.push(name);
        }
    }
    names.sort_by_key(|name| (name != HEAD_FILE, name.clone()));
    Ok(names)
}
