//! Spool files: events that a process records after another one has taken over the log, which reads them once the
//! process has ended.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use rustix::fs::{FlockOperation, flock};
use sallyport_api::AuditEvent;

use crate::recover::lines;

const PREFIX: &str = "spool-";
const NEW_PREFIX: &str = "new-spool-";
/// Size limit of a spool, in bytes.
const MAX_SPOOL_BYTES: u64 = 64 * 1024 * 1024;

/// Whether the name is that of a spool or of a temporary spool.
pub(crate) fn is_spool(name: &str) -> bool {
    name.starts_with(PREFIX) || name.starts_with(NEW_PREFIX)
}

/// The spool of this process, locked while the process lives.
pub(crate) struct Spool {
    file: File,
    length: u64,
}

/// Appends events to the spool of this process.
pub(crate) fn append(spool: &mut Option<Spool>, dir: &Path, events: &[AuditEvent]) -> io::Result<()> {
    let spool = match spool {
        Some(spool) => spool,
        none => none.insert(begin(dir)?),
    };
    let mut text = String::new();
    for event in events {
        text.push_str(&serde_json::to_string(event).map_err(io::Error::other)?);
        text.push('\n');
    }
    if spool.length + text.len() as u64 > MAX_SPOOL_BYTES {
        return Err(io::Error::other("the spool has reached its size limit"));
    }
    if let Err(error) = spool.file.write_all(text.as_bytes()) {
        spool.file.set_len(spool.length)?;
        return Err(error);
    }
    spool.length += text.len() as u64;
    Ok(())
}

fn begin(dir: &Path) -> io::Result<Spool> {
    let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let name = format!("{at}-{}", std::process::id());
    // The file gets its final name once it is locked: otherwise the other process would take it for a finished one.
    let new = dir.join(format!("{NEW_PREFIX}{name}"));
    let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&new)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    fs::rename(&new, dir.join(format!("{PREFIX}{name}")))?;
    Ok(Spool { file, length: 0 })
}

/// The spool of a process that has ended.
pub(crate) struct OrphanedSpool {
    file: File,
    path: PathBuf,
}

/// The spools of processes that have ended, oldest first.
pub(crate) fn ended(dir: &Path) -> Vec<OrphanedSpool> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let is_spool = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX));
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).filter(is_spool).collect();
    paths.sort_unstable();
    let open = |path: PathBuf| {
        let file = File::open(&path).ok()?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
        Some(OrphanedSpool { file, path })
    };
    paths.into_iter().filter_map(open).collect()
}

impl OrphanedSpool {
    /// The events, and whether the whole file was readable.
    pub(crate) fn read(&self) -> (Vec<AuditEvent>, bool) {
        let mut bytes = Vec::new();
        let mut is_whole = (&self.file).take(MAX_SPOOL_BYTES).read_to_end(&mut bytes).is_ok();
        let (whole, rest) = lines(&bytes);
        is_whole &= rest.is_empty();
        let mut events = Vec::new();
        for line in whole {
            match serde_json::from_slice(line) {
                Ok(event) => events.push(event),
                Err(_) => is_whole = false,
            }
        }
        (events, is_whole)
    }

    /// Removes the spool, whose events are in the log now.
    pub(crate) fn remove(self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(
                %error, path = %self.path.display(),
                "cannot remove a spool of events that are in the audit log already"
            );
        }
    }
}
