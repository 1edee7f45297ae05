//! The two files of the built-in authority in the data directory.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Read, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use sallyport_pki::{
    Authority, CreateError, Fingerprint, KeyPair, LoadError, PKCS_ECDSA_P256_SHA256, RootError, RootInfo,
};
use time::OffsetDateTime;

/// The file of the root certificate in the data directory, readable by all users.
pub const CA_CERTIFICATE_FILE: &str = "ca.pem";
/// The file of the root's private key in the data directory, readable by its owner only.
pub const CA_KEY_FILE: &str = "ca.key";
/// The longest file, in bytes.
const MAX_CA_FILE_BYTES: u64 = 64 * 1_024;
/// Days before the root's end from which a warning is logged.
const ENDS_SOON_DAYS: i64 = 90;

/// The built-in authority with its files.
#[derive(Debug)]
pub struct LocalCa {
    authority: Authority,
    pem_path: PathBuf,
}

/// Reason why the authority was not opened. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum CaError {
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
    /// The certificate is there, and the key is missing.
    #[error(
        "{} is missing while {} is there: restore the key from a backup, or remove the certificate to make a new \
         authority (clients must then trust it anew)",
        key.display(), certificate.display()
    )]
    KeyMissing {
        /// The key's file.
        key: PathBuf,
        /// The certificate's file.
        certificate: PathBuf,
    },
    /// Other users may read or change the key.
    #[error(
        "{} is open to other users (mode {mode:04o}): run chmod 600 on it, or replace it if someone read it",
        path.display()
    )]
    KeyOpen {
        /// The key's file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The certificate cannot be used.
    #[error(
        "{} is not usable: {reason}; restore it from a backup, or remove it and {CA_KEY_FILE} to make a new authority",
        path.display()
    )]
    Certificate {
        /// The certificate's file.
        path: PathBuf,
        /// The fault.
        reason: RootError,
    },
    /// The key cannot be used.
    #[error(
        "{} is not usable: {reason}; restore it from a backup, or remove it and {CA_CERTIFICATE_FILE} to make a new \
         authority",
        path.display()
    )]
    Key {
        /// The key's file.
        path: PathBuf,
        /// The fault.
        reason: &'static str,
    },
    /// The root has ended.
    #[error(
        "the root certificate {} ended on {date}: remove it and {CA_KEY_FILE} to make a new authority, if the clock is \
         right",
        path.display()
    )]
    Ended {
        /// The certificate's file.
        path: PathBuf,
        /// The date of its end.
        date: time::Date,
    },
    /// There is no authority to replace.
    #[error("there is no authority in {}: it is made at the first start", dir.display())]
    Missing {
        /// The folder.
        dir: PathBuf,
    },
    /// The root is for another domain.
    #[error(
        "the root certificate {} is for {root_domain} and cannot speak for {domain}: to serve {domain} from this data \
         directory, move this file and {CA_KEY_FILE} away, and a new authority is made; or name another directory with \
         --data",
        path.display()
    )]
    OtherDomain {
        /// The certificate's file.
        path: PathBuf,
        /// The root's domain.
        root_domain: String,
        /// The requested domain.
        domain: String,
    },
    /// A new root could not be created.
    #[error(transparent)]
    Create(CreateError),
    /// The system has no randomness, or no key could be generated.
    #[error("cannot generate a private key: {0}")]
    Random(String),
}

impl LocalCa {
    /// Opens the authority in `dir`. The first time it makes one there, with a root for `domain` only. It never
    /// overwrites a file.
    ///
    /// # Errors
    /// A sentence with the file, its fault and the remedy.
    pub fn open_or_create(dir: &Path, domain: &str) -> Result<Self, CaError> {
        let certificate = dir.join(CA_CERTIFICATE_FILE);
        let key = dir.join(CA_KEY_FILE);
        let now = OffsetDateTime::now_utc();
        let ca = match (read(&certificate)?, read_key(&key)?) {
            (Some(certificate_pem), Some(key_pem)) => {
                let authority = Authority::from_pem(&certificate_pem, &key_pem, now)
                    .map_err(|error| unusable(error, &certificate, &key))?;
                Self { authority, pem_path: certificate }
            }
            (Some(_), None) => return Err(CaError::KeyMissing { key, certificate }),
            (None, key_pem) => Self::create(dir, domain, key_pem.as_deref(), now)?,
        };
        ca.check(domain, now)?;
        Ok(ca)
    }

    /// Replaces the authority in `dir` by a new one for the same domain. Certificates of the former root stay valid
    /// under that root. After an interruption the next start creates missing files.
    ///
    /// # Errors
    /// A sentence with the file and its fault. Unless the file cannot be written, nothing was changed.
    pub fn replace(dir: &Path) -> Result<Self, CaError> {
        let (certificate, key) = (dir.join(CA_CERTIFICATE_FILE), dir.join(CA_KEY_FILE));
        let now = OffsetDateTime::now_utc();
        let (Some(certificate_pem), Some(key_pem)) = (read(&certificate)?, read_key(&key)?) else {
            return Err(CaError::Missing { dir: dir.to_owned() });
        };
        let former = Authority::from_pem(&certificate_pem, &key_pem, now)
            .map_err(|error| unusable(error, &certificate, &key))?;
        let domain = former.root().domain.clone().unwrap_or_default();
        for path in [&certificate, &key] {
            fs::remove_file(path).map_err(|source| CaError::Write { path: path.clone(), source })?;
        }
        Self::create(dir, &domain, None, now)
    }

    /// An interrupted creation leaves a key without a certificate: the certificate is created with that key.
    fn create(dir: &Path, domain: &str, key_pem: Option<&str>, now: OffsetDateTime) -> Result<Self, CaError> {
        let (certificate_path, key_path) = (dir.join(CA_CERTIFICATE_FILE), dir.join(CA_KEY_FILE));
        let key = match key_pem {
            Some(pem) => KeyPair::from_pem(pem)
                .map_err(|_| CaError::Key { path: key_path.clone(), reason: "it is not a private key in PEM" })?,
            None => new_key()?,
        };
        let authority = Authority::create(&format!("Sallyport root for {domain}"), domain, key, now, random_serial()?)
            .map_err(CaError::Create)?;
        if key_pem.is_none() {
            fs::create_dir_all(dir).map_err(|source| CaError::Write { path: dir.to_owned(), source })?;
            write_new(dir, CA_KEY_FILE, authority.key_pem().as_bytes(), 0o600)?;
        }
        write_new(dir, CA_CERTIFICATE_FILE, authority.root_pem().as_bytes(), 0o644)?;
        tracing::info!(fingerprint = %authority.fingerprint(), domain, "certificate authority created");
        Ok(Self { authority, pem_path: certificate_path })
    }

    fn check(&self, domain: &str, now: OffsetDateTime) -> Result<(), CaError> {
        let root = self.authority.root();
        if !root.covers(domain) {
            return Err(CaError::OtherDomain {
                path: self.pem_path.clone(),
                root_domain: root.domain.clone().unwrap_or_default(),
                domain: domain.to_owned(),
            });
        }
        if !root.has_begun(now) {
            tracing::warn!(
                begins = %root.not_before,
                "the clock is before the start of the root certificate: is the clock set?"
            );
        }
        let days_left = (root.not_after - now).whole_days();
        if days_left < ENDS_SOON_DAYS {
            tracing::warn!(days_left, ends = %root.not_after, "the root certificate ends soon");
        }
        Ok(())
    }

    /// The authority.
    #[must_use]
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The root certificate's content.
    #[must_use]
    pub fn root(&self) -> &RootInfo {
        self.authority.root()
    }

    /// The root certificate in PEM.
    #[must_use]
    pub fn root_pem(&self) -> &str {
        self.authority.root_pem()
    }

    /// The root certificate's fingerprint.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.authority.fingerprint()
    }

    /// The path of the root certificate.
    #[must_use]
    pub fn pem_path(&self) -> &Path {
        &self.pem_path
    }
}

/// A new ECDSA key pair on P-256.
pub(crate) fn new_key() -> Result<KeyPair, CaError> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(|error| CaError::Random(error.to_string()))
}

pub(crate) fn random_serial() -> Result<[u8; 16], CaError> {
    let mut serial = [0; 16];
    getrandom::fill(&mut serial).map_err(|error| CaError::Random(error.to_string()))?;
    Ok(serial)
}

fn unusable(error: LoadError, certificate: &Path, key: &Path) -> CaError {
    match error {
        LoadError::Certificate(reason) => CaError::Certificate { path: certificate.to_owned(), reason },
        LoadError::Key => {
            CaError::Key { path: key.to_owned(), reason: "it is not a private key in PEM, or it is damaged" }
        }
        LoadError::Mismatch => {
            CaError::Key { path: key.to_owned(), reason: "it does not belong to the certificate beside it" }
        }
        LoadError::Ended(date) => CaError::Ended { path: certificate.to_owned(), date },
    }
}

fn read(path: &Path) -> Result<Option<String>, CaError> {
    let failed = |source| CaError::Read { path: path.to_owned(), source };
    match File::open(path) {
        Ok(file) => read_text(&file).map(Some).map_err(failed),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(error)),
    }
}

fn read_key(path: &Path) -> Result<Option<String>, CaError> {
    let failed = |source| CaError::Read { path: path.to_owned(), source };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let mode = file.metadata().map_err(failed)?.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(CaError::KeyOpen { path: path.to_owned(), mode });
    }
    read_text(&file).map(Some).map_err(failed)
}

fn read_text(file: &File) -> io::Result<String> {
    let mut text = String::new();
    file.take(MAX_CA_FILE_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_CA_FILE_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it is longer than {MAX_CA_FILE_BYTES} bytes"),
        ));
    }
    Ok(text)
}

/// Writes a new file, so that the file is complete or absent after any interruption.
fn write_new(dir: &Path, name: &str, content: &[u8], mode: u32) -> Result<(), CaError> {
    let path = dir.join(name);
    let temporary = dir.join(format!(".{name}.new"));
    let write = || -> io::Result<()> {
        // A leftover of an interrupted attempt was never used.
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
        // The umask may have removed permissions that the certificate needs.
        file.set_permissions(Permissions::from_mode(mode))?;
        file.write_all(content)?;
        file.sync_all()?;
        if path.symlink_metadata().is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        fs::rename(&temporary, &path)?;
        File::open(dir)?.sync_all()
    };
    write().map_err(|source| {
        let _ = fs::remove_file(&temporary);
        CaError::Write { path: path.clone(), source }
    })
}
