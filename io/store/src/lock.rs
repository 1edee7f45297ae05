//! One process per data directory.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Seek, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};

use crate::open::make_private_dir;

/// The file that is locked.
const LOCK_FILE: &str = "lock";
/// The most that is read of the holder's process id, in bytes.
const MAX_PID_BYTES: u64 = 20;

/// Holds a data directory until it is dropped or the process ends, however it ends.
#[derive(Debug)]
pub struct DataDirLock {
    _file: File,
    dir: PathBuf,
}

/// Why a data directory could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process has it.
    #[error("the data directory {} is in use by process {pid}: stop it first, or use another directory", dir.display())]
    InUse {
        /// The directory.
        dir: PathBuf,
        /// The process that holds it, or a question mark.
        pid: String,
    },
    /// The directory or its lock file cannot be made or locked.
    #[error("cannot use {} as the data directory: {source}", dir.display())]
    Io {
        /// The directory.
        dir: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

impl DataDirLock {
    /// Takes the directory, which is made (mode 0700) when it is missing.
    ///
    /// # Errors
    /// When another process holds it, or it cannot be made or written.
    pub fn take(dir: &Path) -> Result<Self, LockError> {
        let fail = |source| LockError::Io { dir: dir.to_owned(), source };
        make_private_dir(dir).map_err(fail)?;
        let path = dir.join(LOCK_FILE);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(fail)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut pid = String::new();
                let read = (&mut file).take(MAX_PID_BYTES).read_to_string(&mut pid);
                let pid = if read.is_ok() && !pid.trim().is_empty() { pid.trim() } else { "?" };
                return Err(LockError::InUse { dir: dir.to_owned(), pid: pid.to_owned() });
            }
            Err(errno) => return Err(fail(errno.into())),
        }
        file.set_len(0).and_then(|()| file.rewind()).map_err(fail)?;
        writeln!(file, "{}", std::process::id()).map_err(fail)?;
        Ok(Self { _file: file, dir: dir.to_owned() })
    }

    /// The directory that is held.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}
