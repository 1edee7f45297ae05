//! The key that signs access tokens: one file, readable by its owner only.

use std::{
    fmt,
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest, Sha256};

use super::random;

/// The key's file name in the data directory.
pub const TOKEN_KEY_FILE: &str = "token.key";
/// How long the key is, in bytes (RFC 7518 section 3.2: at least as long as the hash).
const KEY_BYTES: usize = 32;
/// More of the file is not read, in bytes.
const MAX_KEY_FILE_BYTES: u64 = 256;

/// The key that signs access tokens, and keys derived from it.
#[derive(Clone)]
pub struct Secrets {
    token_key: [u8; KEY_BYTES],
}

/// Why the key could not be had.
#[derive(Debug, thiserror::Error)]
pub enum SecretsError {
    /// It cannot be read or made.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// Others can read it.
    #[error(
        "{} can be read by others (mode {mode:04o}): run chmod 600 on it, or delete it to get a new one",
        path.display()
    )]
    Loose {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It holds something else.
    #[error("{} does not hold a key: delete it to get a new one; everybody then logs in again", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
    },
    /// There are no random numbers.
    #[error("the system gave no random numbers: {0}")]
    Random(getrandom::Error),
}

impl Secrets {
    /// The key in the data directory, which is made when there is none.
    ///
    /// # Errors
    /// When the file cannot be read or made, is readable by others, or holds something else.
    pub fn open_or_create(dir: &Path) -> Result<Self, SecretsError> {
        let path = dir.join(TOKEN_KEY_FILE);
        match File::open(&path) {
            Ok(file) => Self::read(file, path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::create(dir, path),
            Err(source) => Err(SecretsError::Io { action: "open", path, source }),
        }
    }

    fn read(file: File, path: PathBuf) -> Result<Self, SecretsError> {
        let read = || -> io::Result<(u32, String)> {
            let mode = file.metadata()?.permissions().mode() & 0o777;
            let mut text = String::new();
            file.take(MAX_KEY_FILE_BYTES).read_to_string(&mut text)?;
            Ok((mode, text))
        };
        let (mode, text) = match read() {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(SecretsError::Malformed { path }),
            Err(source) => return Err(SecretsError::Io { action: "read", path, source }),
        };
        if mode & 0o077 != 0 {
            return Err(SecretsError::Loose { path, mode });
        }
        let key = URL_SAFE_NO_PAD.decode(text.trim()).ok().and_then(|key| <[u8; KEY_BYTES]>::try_from(key).ok());
        key.map(|token_key| Self { token_key }).ok_or(SecretsError::Malformed { path })
    }

    /// Writes a new key beside its place and moves it there, so that a crash never leaves half a key.
    fn create(dir: &Path, path: PathBuf) -> Result<Self, SecretsError> {
        let token_key = random::bytes::<KEY_BYTES>().map_err(SecretsError::Random)?;
        let draft = dir.join(format!("{TOKEN_KEY_FILE}.new"));
        let write = || -> io::Result<()> {
            match fs::remove_file(&draft) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
            writeln!(file, "{}", URL_SAFE_NO_PAD.encode(token_key))?;
            file.sync_all()?;
            fs::rename(&draft, &path)?;
            File::open(dir)?.sync_all()
        };
        write().map_err(|source| SecretsError::Io { action: "write", path: path.clone(), source })?;
        Ok(Self { token_key })
    }

    /// A key for another purpose, derived from this one.
    #[must_use]
    pub fn derived(&self, purpose: &str) -> [u8; KEY_BYTES] {
        let mut hash = Sha256::new();
        hash.update(b"sallyport key for ");
        hash.update(purpose.as_bytes());
        hash.update(b"\0");
        hash.update(self.token_key);
        hash.finalize().into()
    }

    /// The key of access tokens.
    pub(crate) fn token_key(&self) -> &[u8] {
        &self.token_key
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_made_once_and_kept_private() {
        let dir = tempfile::tempdir().unwrap();
        let first = Secrets::open_or_create(dir.path()).unwrap();
        let again = Secrets::open_or_create(dir.path()).unwrap();
        assert_eq!(first.token_key, again.token_key);
        let path = dir.path().join(TOKEN_KEY_FILE);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let error = Secrets::open_or_create(dir.path()).unwrap_err();
        assert!(error.to_string().contains("mode 0640") && error.to_string().contains("chmod 600"), "{error}");
    }

    #[test]
    fn a_file_that_is_no_key_is_refused_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(TOKEN_KEY_FILE);
        for content in [&b"short"[..], b"\xff\xfe", b""] {
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            let error = Secrets::open_or_create(dir.path()).unwrap_err();
            assert!(matches!(error, SecretsError::Malformed { .. }), "{error}");
            assert_eq!(fs::read(&path).unwrap(), content);
        }
    }
}
