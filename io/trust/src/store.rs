//! The certificate store of a system.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use sallyport_pki::{Fingerprint, FingerprintError, RootError, RootInfo};

use crate::layout::{self, Found};

/// The longest accepted certificate file, in bytes.
const MAX_PEM_BYTES: u64 = 64 * 1_024;
/// Bytes of a failed program's output that an error repeats.
pub(crate) const MAX_REPEATED_BYTES: usize = 400;

/// Runs a program with arguments; returns its error output if it failed.
pub type Run = Box<dyn Fn(&Path, &[&str]) -> io::Result<Result<(), String>> + Send + Sync>;

/// The certificate store of a system.
pub struct TrustStore {
    root: PathBuf,
    run: Run,
    /// Whether only root may change it.
    is_system: bool,
}

/// A root in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installed {
    /// Its file in the store.
    pub file: PathBuf,
    /// Its fingerprint.
    pub fingerprint: Fingerprint,
    /// Its subject.
    pub subject: String,
    /// The domain that it is limited to, if any.
    pub domain: Option<String>,
    /// Whether it was in the store before.
    pub was_there: bool,
}

/// A removed root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removed {
    /// Its fingerprint.
    pub fingerprint: Fingerprint,
    /// The removed file; `None` if the root was not in the store.
    pub file: Option<PathBuf>,
}

/// Reason why the store cannot be changed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The distribution is unknown: neither its program nor its folder was found.
    #[error(
        "no certificate store is known on this system: install its ca-certificates package, or add the root \
         certificate by hand"
    )]
    Unknown,
    /// Root privileges are required.
    #[error("only root may change the system's certificate store; run: sudo sallyport trust {0}")]
    NotRoot(&'static str),
    /// A file cannot be written or removed.
    #[error("cannot change {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The program that rebuilds the store failed.
    #[error("{} failed: {detail}", program.display())]
    Update {
        /// The program.
        program: PathBuf,
        /// The program's error output.
        detail: String,
    },
}

/// Reason why a root was not added.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The certificate's file cannot be read.
    #[error("cannot read the root certificate {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file holds no root certificate.
    #[error("{} is not a root certificate: {reason}", path.display())]
    NotRootCertificate {
        /// The file.
        path: PathBuf,
        /// The problem.
        reason: RootError,
    },
    /// The certificate has expired.
    #[error("the root certificate {} ended on {date}", path.display())]
    Ended {
        /// The file.
        path: PathBuf,
        /// The date of its end.
        date: time::Date,
    },
    /// The store cannot be changed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Reason why a root was not removed.
#[derive(Debug, thiserror::Error)]
pub enum RemoveError {
    /// The text is no fingerprint.
    #[error(transparent)]
    Fingerprint(#[from] FingerprintError),
    /// The store cannot be changed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl TrustStore {
    /// The store of this machine.
    #[must_use]
    pub fn system() -> Self {
        Self { root: PathBuf::from("/"), run: Box::new(run), is_system: true }
    }

    /// The store of a system in this folder, with programs run by the caller; for tests and for building images.
    #[must_use]
    pub fn in_folder(root: &Path, run: Run) -> Self {
        Self { root: root.to_owned(), run, is_system: false }
    }

    /// Adds the root certificate in this PEM file to the store.
    ///
    /// # Errors
    /// The file is not a root certificate, or the store cannot be changed; the store is unchanged.
    pub fn install(&self, ca_pem: &Path) -> Result<Installed, InstallError> {
        let info = read_root(ca_pem)?;
        let now = time::OffsetDateTime::now_utc();
        if info.has_ended(now) {
            return Err(InstallError::Ended { path: ca_pem.to_owned(), date: info.not_after.date() });
        }
        let found = self.find("install")?;
        let file = found.anchors.join(file_name(info.fingerprint));
        let was_there = holds(&file, info.fingerprint);
        if !was_there {
            write(&found.anchors, &file, &info.to_pem())
                .map_err(|source| self.explain("install", file.clone(), source))?;
        }
        if let Err(error) = self.update(&found.program, &[]) {
            if !was_there {
                let _ = fs::remove_file(&file);
            }
            return Err(error.into());
        }
        Ok(Installed { file, fingerprint: info.fingerprint, subject: info.subject, domain: info.domain, was_there })
    }

    /// Removes the root certificate with this fingerprint from the store. Roots that others added stay.
    ///
    /// # Errors
    /// The text is not a fingerprint, or the store cannot be changed.
    pub fn remove(&self, fingerprint: &str) -> Result<Removed, RemoveError> {
        let fingerprint: Fingerprint = fingerprint.parse()?;
        let found = self.find("remove")?;
        let file = found.anchors.join(file_name(fingerprint));
        match fs::remove_file(&file) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Removed { fingerprint, file: None }),
            Err(source) => return Err(self.explain("remove", file, source).into()),
        }
        self.update(&found.program, found.layout.update_after_removal)?;
        Ok(Removed { fingerprint, file: Some(file) })
    }

    /// Whether [`TrustStore::install`] has added the root certificate with this fingerprint.
    #[must_use]
    pub fn has(&self, fingerprint: Fingerprint) -> bool {
        layout::find(&self.root).is_some_and(|found| holds(&found.anchors.join(file_name(fingerprint)), fingerprint))
    }

    fn find(&self, action: &'static str) -> Result<Found, StoreError> {
        let found = layout::find(&self.root).ok_or(StoreError::Unknown)?;
        if self.is_system && !rustix::process::geteuid().is_root() {
            return Err(StoreError::NotRoot(action));
        }
        Ok(found)
    }

    fn explain(&self, action: &'static str, path: PathBuf, source: io::Error) -> StoreError {
        if self.is_system && source.kind() == io::ErrorKind::PermissionDenied {
            StoreError::NotRoot(action)
        } else {
            StoreError::Write { path, source }
        }
    }

    fn update(&self, program: &Path, arguments: &[&str]) -> Result<(), StoreError> {
        let failed = |detail: String| StoreError::Update { program: program.to_owned(), detail };
        match (self.run)(program, arguments) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(detail)) => Err(failed(detail)),
            Err(error) => Err(failed(error.to_string())),
        }
    }
}

impl std::fmt::Debug for TrustStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TrustStore").field("root", &self.root).finish_non_exhaustive()
    }
}

/// Named by fingerprint, so that roots of several machines can coexist.
pub(crate) fn stem(fingerprint: Fingerprint) -> String {
    let digits: String = fingerprint.as_bytes()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sallyport-{digits}")
}

fn file_name(fingerprint: Fingerprint) -> String {
    format!("{}.crt", stem(fingerprint))
}

fn read_root(path: &Path) -> Result<RootInfo, InstallError> {
    let pem = read_bounded(path).map_err(|source| InstallError::Read { path: path.to_owned(), source })?;
    RootInfo::from_pem(&pem).map_err(|reason| InstallError::NotRootCertificate { path: path.to_owned(), reason })
}

fn read_bounded(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_PEM_BYTES + 1).read_to_end(&mut bytes)?;
    // The parser of certificates reports binary or too long content.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn holds(file: &Path, fingerprint: Fingerprint) -> bool {
    read_bounded(file)
        .ok()
        .and_then(|pem| RootInfo::from_pem(&pem).ok())
        .is_some_and(|found| found.fingerprint == fingerprint)
}

/// Writes atomically: the store must never see half a certificate.
fn write(anchors: &Path, file: &Path, pem: &str) -> io::Result<()> {
    fs::create_dir_all(anchors)?;
    let temporary = file.with_extension("new");
    let put = || -> io::Result<()> {
        let mut new = OpenOptions::new().write(true).create(true).truncate(true).mode(0o644).open(&temporary)?;
        new.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))?;
        new.write_all(pem.as_bytes())?;
        new.sync_all()?;
        fs::rename(&temporary, file)
    };
    put().inspect_err(|_| {
        let _ = fs::remove_file(&temporary);
    })
}

fn run(program: &Path, arguments: &[&str]) -> io::Result<Result<(), String>> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(Ok(()));
    }
    let detail = String::from_utf8_lossy(&output.stderr);
    let detail = detail.trim();
    let end = detail.floor_char_boundary(MAX_REPEATED_BYTES);
    Ok(Err(if detail.is_empty() { output.status.to_string() } else { detail[..end].replace('\n', "; ") }))
}
