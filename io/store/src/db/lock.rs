//! The lock of a data directory: one process per directory.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Seek, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};

use super::open::make_private_dir;

/// The file that is locked.
const LOCK_FILE: &str = "lock";
/// The most bytes read of the holder's process id.
const MAX_PID_BYTES: u64 = 20;

/// Holds a data directory until dropped, or until the process ends in any way.
#[derive(Debug)]
pub struct DataDirLock {
    _file: File,
    dir: PathBuf,
}

/// Reason why a data directory could not be locked.
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
    /// The directory or its lock file cannot be created or locked.
    #[error("cannot use {} as the data directory: {source}", dir.display())]
    Io {
        /// The directory.
        dir: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

impl DataDirLock {
    /// Locks the directory, which is created (mode 0700) if it is missing.
    ///
    /// # Errors
    /// Another process holds it, or it cannot be created or written.
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
                return Err(LockError::InUse { dir: dir.to_owned(), pid: read_pid(&mut file) });
            }
            Err(errno) => return Err(fail(errno.into())),
        }
        file.set_len(0).and_then(|()| file.rewind()).map_err(fail)?;
        writeln!(file, "{}", std::process::id()).map_err(fail)?;
        Ok(Self { _file: file, dir: dir.to_owned() })
    }

    /// The process that last held the directory, and may still hold it. Nothing is created, changed or locked, so that
    /// a starting process is not disturbed.
    ///
    /// # Errors
    /// The lock file cannot be read.
    pub fn last_holder(dir: &Path) -> io::Result<Option<u32>> {
        let mut file = match File::open(dir.join(LOCK_FILE)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(read_pid(&mut file).parse().ok())
    }

    /// The locked directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

fn read_pid(file: &mut File) -> String {
    let mut pid = String::new();
    let read = file.take(MAX_PID_BYTES).read_to_string(&mut pid);
    if read.is_ok() && !pid.trim().is_empty() { pid.trim().to_owned() } else { "?".to_owned() }
}
