//! The head: the end and the beginning of the log, in a file of its own.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use aws_lc_rs::hmac;
use serde::{Deserialize, Serialize};

use crate::line::{Hash, START, hex, unhex};

pub(crate) const HEAD_FILE: &str = "head";
pub(crate) const NEW_HEAD_FILE: &str = "head.new";
/// The longest accepted head, in bytes.
const MAX_HEAD_BYTES: u64 = 4_096;

/// The end and the beginning of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    /// The number of the last event; 0 if there is none.
    pub(crate) seq: u64,
    /// Its hash.
    pub(crate) hash: Hash,
    /// The number of the first stored event.
    pub(crate) first: u64,
    /// The hash of the event before it.
    pub(crate) first_prev: Hash,
}

impl Default for Head {
    fn default() -> Self {
        Self { seq: 0, hash: START, first: 1, first_prev: START }
    }
}

#[derive(Serialize, Deserialize)]
struct Stored {
    seq: u64,
    hash: String,
    first: u64,
    first_prev: String,
    mac: String,
}

impl Stored {
    fn sealed_text(&self) -> String {
        format!("{}\n{}\n{}\n{}", self.seq, self.hash, self.first, self.first_prev)
    }
}

/// Reason why a head is not accepted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HeadError {
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    #[error("is damaged, or was not written by this installation")]
    Forged,
}

impl Head {
    /// Reads the head in this folder, if there is one.
    pub(crate) fn read(dir: &Path, key: &[u8; 32]) -> Result<Option<Self>, HeadError> {
        let path = dir.join(HEAD_FILE);
        match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Ok(file) if file.len() > MAX_HEAD_BYTES => return Err(HeadError::Forged),
            _ => {}
        }
        let stored: Stored = serde_json::from_slice(&fs::read(&path)?).map_err(|_| HeadError::Forged)?;
        let mac = unhex(&stored.mac).ok_or(HeadError::Forged)?;
        let key = hmac::Key::new(hmac::HMAC_SHA256, key);
        hmac::verify(&key, stored.sealed_text().as_bytes(), &mac).map_err(|_| HeadError::Forged)?;
        let hash = |text: &str| unhex(text).ok_or(HeadError::Forged);
        Ok(Some(Self {
            seq: stored.seq,
            hash: hash(&stored.hash)?,
            first: stored.first,
            first_prev: hash(&stored.first_prev)?,
        }))
    }

    /// Replaces the head atomically: after a crash the file has either the old or the new one.
    pub(crate) fn write(&self, dir: &Path, key: &[u8; 32]) -> io::Result<()> {
        let mut stored = Stored {
            seq: self.seq,
            hash: hex(&self.hash),
            first: self.first,
            first_prev: hex(&self.first_prev),
            mac: String::new(),
        };
        let key = hmac::Key::new(hmac::HMAC_SHA256, key);
        stored.mac = hex(hmac::sign(&key, stored.sealed_text().as_bytes()).as_ref());
        let new = dir.join(NEW_HEAD_FILE);
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(&serde_json::to_vec(&stored).map_err(io::Error::other)?)?;
        file.sync_data()?;
        fs::rename(&new, dir.join(HEAD_FILE))?;
        File::open(dir)?.sync_all()
    }
}
