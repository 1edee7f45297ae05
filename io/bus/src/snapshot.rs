//! The configuration of an edge on its disk, for a start while control and bus are unavailable.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{self, BufReader, BufWriter, Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{ConfigEntryError, ConfigValue, config_entry::CONFIG_SCHEMA};

/// File name in the data directory of an edge.
pub const SNAPSHOT_FILE: &str = "config.snapshot";
/// The largest accepted file in bytes.
pub const MAX_SNAPSHOT_BYTES: u64 = 1 << 30;

/// Reason why the snapshot could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The file cannot be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The attempted action.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file is damaged, or of another version.
    #[error("{} is not used: {source}; it is written again when control is reached", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: ConfigEntryError,
    },
}

#[derive(Serialize)]
struct SnapshotToWrite<'a> {
    schema: u32,
    saved_at: i64,
    entries: &'a [ConfigValue],
}

#[derive(Deserialize)]
struct Head {
    schema: u32,
}

#[derive(Deserialize)]
struct SnapshotRead {
    #[serde(default)]
    saved_at: i64,
    entries: Vec<ConfigValue>,
}

/// A snapshot of the configuration.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// Time of writing in seconds since 1970 (UTC).
    pub saved_at: i64,
    /// The entries by key.
    pub entries: BTreeMap<String, ConfigValue>,
}

impl Snapshot {
    /// Reads the snapshot in this directory; `None` if there is none.
    ///
    /// # Errors
    /// The file cannot be read or used.
    pub fn read(dir: &Path) -> Result<Option<Self>, SnapshotError> {
        let path = dir.join(SNAPSHOT_FILE);
        let failed = |source| SnapshotError::Io { action: "read", path: path.clone(), source };
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(failed)?,
        };
        let mut bytes = Vec::new();
        BufReader::new(file.take(MAX_SNAPSHOT_BYTES)).read_to_end(&mut bytes).map_err(failed)?;
        let unusable = |source| SnapshotError::Unusable { path: path.clone(), source };
        let Head { schema } = serde_json::from_slice(&bytes).map_err(|error| unusable(error.into()))?;
        if schema != CONFIG_SCHEMA {
            return Err(unusable(ConfigEntryError::Schema { found: schema }));
        }
        let SnapshotRead { saved_at, entries } =
            serde_json::from_slice(&bytes).map_err(|error| unusable(error.into()))?;
        let entries = entries.into_iter().map(|value| (value.key().to_string(), value)).collect();
        Ok(Some(Self { saved_at, entries }))
    }

    /// Writes the entries to a temporary file and renames it, so that there is always a complete snapshot.
    ///
    /// # Errors
    /// The file cannot be written; the former one stays.
    pub fn write(dir: &Path, entries: &[ConfigValue], saved_at: i64) -> Result<(), SnapshotError> {
        let path = dir.join(SNAPSHOT_FILE);
        let draft = dir.join(format!("{SNAPSHOT_FILE}.new"));
        let write = || -> io::Result<()> {
            // The file has credential hashes and addresses of persons: only the owner may read it.
            let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
            let mut out = BufWriter::new(file);
            serde_json::to_writer(&mut out, &SnapshotToWrite { schema: CONFIG_SCHEMA, saved_at, entries })?;
            out.flush()?;
            out.get_ref().sync_all()?;
            fs::rename(&draft, &path)?;
            File::open(dir)?.sync_all()
        };
        write().map_err(|source| SnapshotError::Io { action: "write", path: path.clone(), source })
    }
}

#[cfg(test)]
mod tests {
    use sallyport_model::{AccountId, SshLogin};

    use super::*;

    #[test]
    fn a_written_snapshot_is_read_and_a_damaged_one_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Snapshot::read(dir.path()).unwrap().is_none());
        let login =
            ConfigValue::SshLogin(SshLogin { account: AccountId::from_random([1; 16]), keys: vec!["k".into()] });
        Snapshot::write(dir.path(), std::slice::from_ref(&login), 77).unwrap();
        let read = Snapshot::read(dir.path()).unwrap().unwrap();
        assert_eq!((read.saved_at, read.entries.into_values().collect::<Vec<_>>()), (77, vec![login]));
        let path = dir.path().join(SNAPSHOT_FILE);
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::write(&path, r#"{"schema":5,"entries":"?"}"#).unwrap();
        let error = Snapshot::read(dir.path()).unwrap_err().to_string();
        assert!(error.contains("schema 5") && error.contains("written again"), "{error}");
        fs::write(&path, r#"{"schema":1,"entr"#).unwrap();
        assert!(Snapshot::read(dir.path()).unwrap_err().to_string().contains("damaged"));
    }
}
