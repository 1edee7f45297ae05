//! The file with logins: readable by its owner only, and replaced atomically.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use sallyport_api::Session;
use sallyport_client::{ApiAddress, SessionLock, SessionStore, SessionStoreError};
use sallyport_model::{AccountId, Email};
use sallyport_net::Trust;
use serde::{Deserialize, Serialize};

/// The largest file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 1_048_576;
const FILE: &str = "credentials.json";
const LOCK: &str = "credentials.lock";
/// How long to wait for the lock of another run of the program.
const LOCK_TIMEOUT: Duration = Duration::from_secs(35);

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CredentialsError {
    /// No directory for it.
    #[error("there is no home directory to keep the login in: set XDG_CONFIG_HOME")]
    NoHome,
    /// Others could read or change it.
    #[error("{path} can be read or written by others (mode {mode:03o}): run `chmod {fix} {path}`")]
    Loose { path: String, mode: u32, fix: &'static str },
    /// It belongs to another user.
    #[error("{path} belongs to another user: remove it, or run as that user")]
    Foreign { path: String },
    /// It cannot be parsed.
    #[error("{path} is damaged ({reason}): remove it and log in again")]
    Damaged { path: String, reason: String },
    /// The file system refuses.
    #[error("cannot use {path}: {source}")]
    Io { path: String, source: io::Error },
    /// Another run of the program holds the lock.
    #[error("another sallyport holds {path} for too long: try again")]
    Locked { path: String },
}

/// Everything in the file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Contents {
    /// The API of the last login.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) current: Option<String>,
    /// One profile for each API, by its address.
    #[serde(default)]
    pub(crate) profiles: BTreeMap<String, Profile>,
}

/// The data of one API.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Profile {
    /// The account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) email: Option<Email>,
    /// The session; absent after logout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) session: Option<Session>,
    /// The file of the trusted root certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ca: Option<PathBuf>,
    /// Whether the authorities of the system are trusted besides that file: the names of the server have certificates
    /// of public authorities. Older files do not have it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) system_roots: bool,
    /// The fingerprint of the trusted root certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ca_fingerprint: Option<String>,
    /// The organisation that commands act for; the own one when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) organisation: Option<SavedOrganisation>,
    /// The logins of programs, by the socket that they were made for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) clients: BTreeMap<String, SavedToken>,
}

/// The chosen organisation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedOrganisation {
    /// Its id, which is what requests send.
    pub(crate) id: AccountId,
    /// Its name when it was chosen.
    pub(crate) name: String,
}

/// A person's login at a socket, for programs of this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedToken {
    /// The person.
    pub(crate) email: String,
    /// The token.
    pub(crate) token: sallyport_api::Secret,
    /// When the login ends.
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) expires_at: time::OffsetDateTime,
}

impl Contents {
    /// The profile of an API.
    pub(crate) fn profile(&self, api: &ApiAddress) -> Option<&Profile> {
        self.profiles.get(&api.to_string())
    }
}

impl Profile {
    /// Which certificates are trusted.
    pub(crate) fn trust(&self) -> Trust {
        match (&self.ca, &self.ca_fingerprint) {
            (Some(ca), _) if self.system_roots => Trust::CaAndSystem(ca.clone()),
            (Some(ca), _) => Trust::Ca(ca.clone()),
            (None, Some(pin)) => Trust::Pinned(pin.clone()),
            (None, None) => Trust::System,
        }
    }

    /// Keeps which certificates are trusted. A file is kept by its absolute path.
    ///
    /// # Errors
    /// The path of the file cannot be made absolute.
    pub(crate) fn set_trust(&mut self, trust: &Trust) -> io::Result<()> {
        self.system_roots = matches!(trust, Trust::CaAndSystem(_));
        (self.ca, self.ca_fingerprint) = match trust {
            Trust::System => (None, None),
            Trust::Ca(path) | Trust::CaAndSystem(path) => (Some(std::path::absolute(path)?), None),
            Trust::Pinned(pin) => (None, Some(pin.clone())),
        };
        Ok(())
    }
}

/// The file, whether it exists or not.
#[derive(Debug, Clone)]
pub(crate) struct CredentialsFile {
    dir: PathBuf,
}

impl CredentialsFile {
    /// The file of this user.
    pub(crate) fn of_user() -> Result<Self, CredentialsError> {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        set("XDG_CONFIG_HOME")
            .filter(|path| path.is_absolute())
            .or_else(|| set("HOME").map(|home| home.join(".config")))
            .map(|config| Self { dir: config.join("sallyport") })
            .ok_or(CredentialsError::NoHome)
    }

    /// The directory of the file.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The content of the file; empty if there is no file.
    pub(crate) fn read(&self) -> Result<Contents, CredentialsError> {
        let path = self.dir.join(FILE);
        let file = match fs::File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Contents::default()),
            Err(error) => return Err(io_error(&path, error)),
        };
        check(&self.dir, &fs::metadata(&self.dir).map_err(|error| io_error(&self.dir, error))?, "700")?;
        check(&path, &file.metadata().map_err(|error| io_error(&path, error))?, "600")?;
        let mut text = String::new();
        file.take(MAX_FILE_BYTES).read_to_string(&mut text).map_err(|error| io_error(&path, error))?;
        serde_json::from_str(&text)
            .map_err(|error| CredentialsError::Damaged { path: path.display().to_string(), reason: error.to_string() })
    }

    /// Changes the file; other runs of the program wait meanwhile.
    pub(crate) fn update(&self, change: impl FnOnce(&mut Contents)) -> Result<(), CredentialsError> {
        let started = std::time::Instant::now();
        let _lock = loop {
            if let Some(lock) = self.try_lock_file()? {
                break lock;
            }
            if started.elapsed() > LOCK_TIMEOUT {
                return Err(CredentialsError::Locked { path: self.dir.join(LOCK).display().to_string() });
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        self.change(change)
    }

    /// Reads, changes and writes; the caller holds the lock.
    fn change(&self, change: impl FnOnce(&mut Contents)) -> Result<(), CredentialsError> {
        let mut contents = self.read()?;
        change(&mut contents);
        self.write(&contents)
    }

    fn write(&self, contents: &Contents) -> Result<(), CredentialsError> {
        let path = self.dir.join(FILE);
        let draft = self.dir.join(format!("{FILE}.{}", std::process::id()));
        let text = serde_json::to_string_pretty(contents).map_err(|error| io_error(&path, error.into()))?;
        // A draft of a killed process may have any mode.
        drop(fs::remove_file(&draft));
        let written = (|| {
            let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&draft, &path)
        })();
        written.map_err(|error| {
            drop(fs::remove_file(&draft));
            io_error(&path, error)
        })
    }

    /// Takes the lock among all runs of this user; it ends with the drop of the returned file.
    fn try_lock_file(&self) -> Result<Option<fs::File>, CredentialsError> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.dir)
            .map_err(|error| io_error(&self.dir, error))?;
        check(&self.dir, &fs::metadata(&self.dir).map_err(|error| io_error(&self.dir, error))?, "700")?;
        let path = self.dir.join(LOCK);
        let file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(|error| io_error(&path, error))?;
        match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(io_error(&path, error.into())),
        }
    }
}

/// The session of one API within the file.
pub(crate) struct SavedSession {
    /// The file.
    pub(crate) file: CredentialsFile,
    /// The API.
    pub(crate) api: ApiAddress,
}

impl SessionStore for SavedSession {
    fn load(&self) -> Result<Option<Session>, SessionStoreError> {
        let contents = self.file.read().map_err(|error| SessionStoreError(error.to_string()))?;
        Ok(contents.profile(&self.api).and_then(|profile| profile.session.clone()))
    }

    fn save(&self, session: &Session) -> Result<(), SessionStoreError> {
        self.file
            .change(|contents| {
                contents.profiles.entry(self.api.to_string()).or_default().session = Some(session.clone());
            })
            .map_err(|error| SessionStoreError(error.to_string()))
    }

    fn try_lock(&self) -> Result<Option<SessionLock>, SessionStoreError> {
        let lock = self.file.try_lock_file().map_err(|error| SessionStoreError(error.to_string()))?;
        Ok(lock.map(|file| Box::new(file) as SessionLock))
    }
}

fn io_error(path: &Path, source: io::Error) -> CredentialsError {
    CredentialsError::Io { path: path.display().to_string(), source }
}

/// Refuses a file that other users can read or change.
fn check(path: &Path, meta: &fs::Metadata, fix: &'static str) -> Result<(), CredentialsError> {
    let path = path.display().to_string();
    if meta.uid() != rustix::process::geteuid().as_raw() {
        return Err(CredentialsError::Foreign { path });
    }
    let mode = meta.mode() & 0o777;
    if mode & 0o077 != 0 { Err(CredentialsError::Loose { path, mode, fix }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use time::OffsetDateTime;

    use super::*;

    fn file() -> (tempfile::TempDir, CredentialsFile) {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("config/sallyport");
        (temp, CredentialsFile { dir })
    }

    fn session(token: &str) -> Session {
        Session {
            access_token: token.into(),
            expires_at: OffsetDateTime::UNIX_EPOCH,
            refresh_token: "refresh".into(),
            refresh_expires_at: OffsetDateTime::UNIX_EPOCH,
        }
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn what_is_saved_is_read_again_and_closed_to_others() {
        let (_temp, file) = file();
        assert_eq!(file.read().unwrap(), Contents::default());
        let api: ApiAddress = "https://api.localhost:8443".parse().unwrap();
        file.update(|contents| {
            contents.current = Some(api.to_string());
            contents.profiles.insert(
                api.to_string(),
                Profile { ca: Some("/data/ca.pem".into()), session: Some(session("one")), ..Profile::default() },
            );
        })
        .unwrap();
        let saved = SavedSession { file: file.clone(), api: api.clone() };
        assert_eq!(saved.load().unwrap(), Some(session("one")));
        saved.save(&session("two")).unwrap();
        assert_eq!(saved.load().unwrap(), Some(session("two")));
        assert_eq!(file.read().unwrap().profile(&api).unwrap().ca, Some("/data/ca.pem".into()));
        assert_eq!((mode(&file.dir), mode(&file.dir.join(FILE))), (0o700, 0o600));
        let mut names: Vec<_> = fs::read_dir(&file.dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, [FILE, LOCK], "no drafts are left");
    }

    #[test]
    fn trust_is_kept_and_an_older_file_trusts_its_root_alone() {
        let kept = |trust: Trust| {
            let mut profile = Profile::default();
            profile.set_trust(&trust).unwrap();
            let text = serde_json::to_string(&profile).unwrap();
            let read: Profile = serde_json::from_str(&text).unwrap();
            assert_eq!(read.trust(), trust, "{text}");
            text
        };
        assert!(kept(Trust::CaAndSystem("/data/ca.pem".into())).contains("\"system_roots\":true"));
        for other in [Trust::System, Trust::Ca("/data/ca.pem".into()), Trust::Pinned("sha256:aa".into())] {
            assert!(!kept(other).contains("system_roots"));
        }
        let older = r#"{"current":"https://a.example","profiles":{"https://a.example":{"ca":"/data/ca.pem"}}}"#;
        let contents: Contents = serde_json::from_str(older).unwrap();
        let api: ApiAddress = "https://a.example".parse().unwrap();
        assert_eq!(contents.profile(&api).unwrap().trust(), Trust::Ca("/data/ca.pem".into()));
    }

    #[test]
    fn looser_modes_are_refused_with_the_command_that_repairs_them() {
        let (_temp, file) = file();
        file.update(|_| ()).unwrap();
        let path = file.dir.join(FILE);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let error = file.read().unwrap_err().to_string();
        assert!(error.contains("(mode 640): run `chmod 600 "), "{error}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::set_permissions(&file.dir, fs::Permissions::from_mode(0o755)).unwrap();
        let error = file.update(|_| ()).unwrap_err().to_string();
        assert!(error.contains("(mode 755): run `chmod 700 "), "{error}");
        fs::set_permissions(&file.dir, fs::Permissions::from_mode(0o700)).unwrap();
        file.read().unwrap();
    }

    #[test]
    fn a_damaged_file_is_named() {
        let (_temp, file) = file();
        file.update(|_| ()).unwrap();
        fs::write(file.dir.join(FILE), "{\"profiles\": 3}").unwrap();
        let error = file.read().unwrap_err().to_string();
        assert!(error.contains("credentials.json is damaged") && error.contains("log in again"), "{error}");
    }

    #[test]
    fn only_one_holds_the_lock() {
        let (_temp, file) = file();
        let lock = file.try_lock_file().unwrap();
        assert!(lock.is_some());
        assert!(file.try_lock_file().unwrap().is_none());
        drop(lock);
        assert!(file.try_lock_file().unwrap().is_some());
    }
}
