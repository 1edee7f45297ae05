//! The server's host keys: created once, stored in the data directory, published as `known_hosts` lines.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use sallyport_ssh_proto::{
    proof,
    ssh_key::{self, Algorithm, EcdsaCurve, HashAlg, LineEnding, PrivateKey},
};
use zeroize::Zeroizing;

/// The Ed25519 key's file in the data directory.
pub const ED25519_KEY_FILE: &str = "ssh_host_ed25519_key";
/// The P-256 key's file in the data directory.
pub const ECDSA_KEY_FILE: &str = "ssh_host_ecdsa_key";
/// The longest accepted key file, in bytes.
const MAX_KEY_FILE_BYTES: u64 = 16 * 1_024;

/// The server's host keys.
#[derive(Clone)]
pub struct HostKeys {
    keys: Vec<PrivateKey>,
}

/// Reason why the host keys were not opened.
#[derive(Debug, thiserror::Error)]
pub enum HostKeyError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The key file has open permissions.
    #[error(
        "{} is open to other users (mode {mode:04o}): run chmod 600 on it, or replace it if someone read it",
        path.display()
    )]
    Open {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The file is no unencrypted key of the right kind in OpenSSH's format.
    #[error(
        "{} is no usable {wanted} key: {reason}; restore it from a backup, or remove it to make a new one (clients \
         must then trust a host key anew)",
        path.display()
    )]
    Key {
        /// The file.
        path: PathBuf,
        /// The expected kind of key.
        wanted: Algorithm,
        /// The detail.
        reason: String,
    },
    /// A key could not be created.
    #[error("cannot generate a {wanted} key: {source}")]
    Make {
        /// The kind of key.
        wanted: Algorithm,
        /// The cause.
        source: ssh_key::Error,
    },
}

impl HostKeys {
    /// Reads the Ed25519 and the P-256 key from this directory, and creates missing ones, readable by their owner only.
    /// The directory must exist. Two processes must not call this at once for one directory.
    pub fn open_or_create(dir: &Path) -> Result<Self, HostKeyError> {
        let kinds = [
            (ED25519_KEY_FILE, Algorithm::Ed25519),
            (ECDSA_KEY_FILE, Algorithm::Ecdsa { curve: EcdsaCurve::NistP256 }),
        ];
        let keys = kinds.into_iter().map(|(file, kind)| open_or_create(&dir.join(file), kind));
        Ok(Self { keys: keys.collect::<Result<_, _>>()? })
    }

    /// Reads keys from these texts, unencrypted in OpenSSH's format, the preferred one first.
    ///
    /// # Errors
    /// A text is no such key.
    pub fn from_openssh<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self, ssh_key::Error> {
        Ok(Self { keys: texts.into_iter().map(PrivateKey::from_openssh).collect::<Result<_, _>>()? })
    }

    /// The keys as texts for [`HostKeys::from_openssh`].
    ///
    /// # Errors
    /// A key cannot be encoded.
    pub fn to_openssh(&self) -> Result<Vec<String>, ssh_key::Error> {
        self.keys.iter().map(|key| key.to_openssh(LineEnding::LF).map(|text| text.to_string())).collect()
    }

    /// The keys, the preferred one first.
    pub fn private_keys(&self) -> &[PrivateKey] {
        &self.keys
    }

    /// The `known_hosts` lines of this server: `[host]:port ssh-ed25519 AAAA...`, without the port if it is 22
    /// (sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT"). One line for each key, the preferred one first, without line ends.
    pub fn known_hosts_lines(&self, host: &str, port: u16) -> Vec<String> {
        let name = if port == 22 { host.to_owned() } else { format!("[{host}]:{port}") };
        self.keys
            .iter()
            .filter_map(|key| {
                let mut public = key.public_key().clone();
                public.set_comment("");
                public.to_openssh().ok()
            })
            .map(|key| format!("{name} {}", key.trim_end()))
            .collect()
    }

    /// The fingerprint of the preferred key, as `ssh` shows it: `SHA256:...`.
    pub fn fingerprint(&self) -> String {
        self.keys.first().map(|key| key.fingerprint(HashAlg::Sha256).to_string()).unwrap_or_default()
    }
}

impl std::fmt::Debug for HostKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostKeys").field("fingerprint", &self.fingerprint()).finish_non_exhaustive()
    }
}

/// Reads the key in this file, or creates it, readable by its owner only.
pub(crate) fn open_or_create(path: &Path, wanted: Algorithm) -> Result<PrivateKey, HostKeyError> {
    match File::open(path) {
        Ok(file) => read(path, file, wanted),
        Err(error) if error.kind() == io::ErrorKind::NotFound => create(path, wanted),
        Err(source) => Err(HostKeyError::Read { path: path.to_owned(), source }),
    }
}

fn read(path: &Path, file: File, wanted: Algorithm) -> Result<PrivateKey, HostKeyError> {
    let failed = |source| HostKeyError::Read { path: path.to_owned(), source };
    let mode = file.metadata().map_err(failed)?.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(HostKeyError::Open { path: path.to_owned(), mode });
    }
    let mut text = String::new();
    file.take(MAX_KEY_FILE_BYTES).read_to_string(&mut text).map_err(failed)?;
    let unusable = |reason: String| HostKeyError::Key { path: path.to_owned(), wanted: wanted.clone(), reason };
    let key = PrivateKey::from_openssh(&text).map_err(|error| unusable(error.to_string()))?;
    if key.is_encrypted() {
        return Err(unusable("the key has a passphrase".to_owned()));
    }
    if key.algorithm() != wanted {
        return Err(unusable(format!("the key is a {} key", key.algorithm())));
    }
    Ok(key)
}

fn create(path: &Path, wanted: Algorithm) -> Result<PrivateKey, HostKeyError> {
    let make = |source| HostKeyError::Make { wanted: wanted.clone(), source };
    // Not `PrivateKey::random`, which would link the generators of all kinds of keys.
    let key = match wanted {
        Algorithm::Ed25519 => new_ed25519(),
        Algorithm::Ecdsa { curve: EcdsaCurve::NistP256 } => proof::new_p256(),
        _ => Err(ssh_key::Error::AlgorithmUnsupported { algorithm: wanted.clone() }),
    }
    .map_err(make)?;
    let text = key.to_openssh(LineEnding::LF).map_err(make)?;
    let failed = |source| HostKeyError::Write { path: path.to_owned(), source };
    // Written under another name first: a half-written key must never exist.
    let half = path.with_extension("new");
    let _ = fs::remove_file(&half);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&half).map_err(failed)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
    fs::rename(&half, path).map_err(failed)?;
    Ok(key)
}

fn new_ed25519() -> Result<PrivateKey, ssh_key::Error> {
    let mut seed = Zeroizing::new([0; 32]);
    getrandom::fill(&mut *seed).map_err(|_| ssh_key::Error::Crypto)?;
    proof::ed25519_from_seed(&seed)
}
