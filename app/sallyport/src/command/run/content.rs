//! What stands in the file of `sallyport run` and in the files that it names, at one time.

use std::{
    collections::BTreeMap,
    fs::{File, Metadata},
    io::{self, Read},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use rustix::fs::OFlags;
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;
use toml::de::{DeTable, DeValue};

use crate::failure::{Failure, Kind};

/// The table of one service.
pub(super) const SERVICE: &str = "service";
/// The key that names the file of an authority.
pub(super) const ORIGIN_CA: &str = "origin-ca";
/// The largest file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;
/// How much of a named file is read, in bytes.
const MAX_NAMED_BYTES: u64 = 1024 * 1024;
/// How many looks may wait for the command.
const MAX_QUEUED_LOOKS: usize = 1;

/// The content of the file, as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileContent {
    /// Its text.
    pub(super) text: Arc<str>,
    /// Whether every user of the machine can read it.
    pub(super) is_readable_by_all: bool,
}

/// The SHA-256 of a named file; `None` if it cannot be read.
pub(super) type NamedDigest = Option<[u8; 32]>;

/// What one look at the file and at the files that it names has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Look {
    /// The file, or why it cannot be read.
    pub(super) content: Result<FileContent, Failure>,
    /// The files that it names.
    named: BTreeMap<PathBuf, NamedDigest>,
}

impl FileContent {
    /// Reads the file, of whatever kind: a pipe gives its content once.
    fn read(path: &Path) -> Result<Self, Failure> {
        Self::of(path, File::open(path).map_err(|error| unreadable(path, &error.to_string()))?)
    }

    /// Reads a regular file.
    fn again(path: &Path) -> Result<Self, Failure> {
        match open_regular(path) {
            Ok(Some(file)) => Self::of(path, file),
            Ok(None) => Err(unreadable(path, "it is no regular file")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let gone = Failure::usage(format!("{} is not there any more", path.display()));
                Err(gone.next("write it again: its services stay until then"))
            }
            Err(error) => Err(unreadable(path, &error.to_string())),
        }
    }

    fn of(path: &Path, file: File) -> Result<Self, Failure> {
        let unreadable = |error: io::Error| unreadable(path, &error.to_string());
        let mode = file.metadata().map_err(unreadable)?.mode();
        let mut text = String::new();
        let length = file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text).map_err(unreadable)?;
        if length as u64 > MAX_FILE_BYTES {
            return Err(self::unreadable(path, &format!("it has more than {MAX_FILE_BYTES} bytes")));
        }
        Ok(Self { text: text.into(), is_readable_by_all: mode & 0o004 != 0 })
    }
}

/// Opens a regular file; `None` for anything else. What is there is judged once it is open, since it may become a pipe
/// between a look and the opening: the opening itself waits for nobody.
fn open_regular(path: &Path) -> io::Result<Option<File>> {
    let file = File::options().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
    Ok(file.metadata()?.is_file().then_some(file))
}

fn unreadable(path: &Path, why: &str) -> Failure {
    Failure::usage(format!("cannot read {}: {why}", path.display())).next("name a file of services")
}

/// What is said of a file that never stays the same for long enough.
pub(super) fn restless(path: &Path) -> Failure {
    let text = format!("{} or a file that it names changes again and again, so nothing of it is taken", path.display());
    Failure::new(Kind::Refused, text).next("write it less often: a change is taken when two looks find the same")
}

impl Look {
    /// Looks once.
    pub(super) fn at(path: &Path) -> Self {
        Self::with(FileContent::read(path))
    }

    /// The same for a file that others change: there may be none, or something that would keep a reader waiting.
    pub(super) fn again_at(path: &Path) -> Self {
        Self::with(FileContent::again(path))
    }

    fn with(content: Result<FileContent, Failure>) -> Self {
        let named = content.as_ref().map(|content| named_files(&content.text)).unwrap_or_default();
        let named = named.into_iter().map(|path| (path.clone(), digest(&path))).collect();
        Self { content, named }
    }
}

#[cfg(test)]
impl Look {
    /// A look that found this, and no named files.
    pub(super) fn of(content: Result<FileContent, Failure>) -> Self {
        Self { content, named: BTreeMap::new() }
    }
}

/// Whether the file can be watched: a pipe cannot be read twice.
pub(super) fn can_watch(path: &Path) -> bool {
    std::fs::metadata(path).as_ref().is_ok_and(Metadata::is_file)
}

/// Looks at the file at this interval, and sends what it finds with the time of each look. The interval begins again
/// when a look has been received.
///
/// A thread of its own reads the files, so a file system that does not answer delays nothing else.
///
/// # Errors
/// The system cannot start a thread.
pub(super) fn look_at_intervals(path: PathBuf, interval: Duration) -> io::Result<mpsc::Receiver<(Look, Instant)>> {
    let (looks_in, looks) = mpsc::channel(MAX_QUEUED_LOOKS);
    let look = move || {
        loop {
            thread::sleep(interval);
            let look = Look::again_at(&path);
            // The command has ended.
            if looks_in.blocking_send((look, Instant::now())).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("watch".to_owned()).spawn(look)?;
    Ok(looks)
}

/// Keys may have underscores, like flags.
pub(super) fn folded(key: &str) -> String {
    key.replace('_', "-")
}

/// The files that services name, whatever else stands there.
fn named_files(text: &str) -> Vec<PathBuf> {
    let Ok(table) = DeTable::parse(text) else { return Vec::new() };
    let services = table.get_ref().iter().filter(|(key, _)| &**key.get_ref() == SERVICE);
    let services = services.filter_map(|(_, value)| value.get_ref().as_array()).flat_map(|services| services.iter());
    let entries = services.filter_map(|service| service.get_ref().as_table()).flat_map(|entries| entries.iter());
    let of_authority = entries.filter(|(key, _)| folded(key.get_ref()) == ORIGIN_CA);
    of_authority
        .filter_map(
            |(_, value)| if let DeValue::String(path) = value.get_ref() { Some(path.as_ref().into()) } else { None },
        )
        .collect()
}

/// The digest of the file's first [`MAX_NAMED_BYTES`].
pub(super) fn digest(path: &Path) -> NamedDigest {
    let mut bytes = Vec::new();
    open_regular(path).ok()??.take(MAX_NAMED_BYTES).read_to_end(&mut bytes).ok()?;
    Some(Sha256::digest(&bytes).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_files_are_found_in_files_that_are_wrong_otherwise() {
        let text =
            "[[service]]\nprot = 1\norigin_ca = \"a.pem\"\n[[service]]\norigin-ca = \"/b.pem\"\norigin-ca-x = \"c\"";
        assert_eq!(named_files(text), [PathBuf::from("a.pem"), PathBuf::from("/b.pem")]);
        for none in ["", "[[service", "service = 1", "[service]\norigin-ca = \"a\"", "[[service]]\norigin-ca = 1"] {
            assert!(named_files(none).is_empty(), "{none}");
        }
    }

    #[test]
    fn a_look_differs_when_the_file_its_mode_or_a_named_file_differs() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let (path, authority) = (dir.path().join("services.toml"), dir.path().join("ca.pem"));
        let text = format!("[[service]]\nport = 1\norigin-ca = \"{}\"", authority.display());
        let mode = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        std::fs::write(&path, &text).unwrap();
        mode(0o600);
        let mut looks = vec![Look::again_at(&path)];
        std::fs::write(&authority, "first").unwrap();
        looks.push(Look::again_at(&path));
        std::fs::write(&authority, "other").unwrap();
        looks.push(Look::again_at(&path));
        mode(0o644);
        looks.push(Look::again_at(&path));
        std::fs::write(&path, text + " ").unwrap();
        looks.push(Look::again_at(&path));
        std::fs::remove_file(&path).unwrap();
        looks.push(Look::again_at(&path));
        std::fs::create_dir(&path).unwrap();
        looks.push(Look::again_at(&path));
        for (index, look) in looks.iter().enumerate() {
            assert!(looks.iter().skip(index + 1).all(|other| other != look), "{index}: {look:?}");
        }
        assert_eq!(looks.last(), Some(&Look::again_at(&path)), "the same is the same");
        let Some(Err(gone)) = looks.iter().rev().nth(1).map(|look| &look.content) else { panic!() };
        assert!(gone.message.contains("is not there any more"), "{gone}");
    }

    #[test]
    fn what_would_keep_a_reader_waiting_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        assert!(!can_watch(&path));
        let (found_in, found) = std::sync::mpsc::channel();
        thread::spawn(move || drop(found_in.send((Look::again_at(&path), digest(&path)))));
        let (look, digest) = found.recv_timeout(Duration::from_secs(60)).expect("a reader waits for a writer");
        assert!(look.content.unwrap_err().message.contains("no regular file"));
        assert_eq!(digest, None);
    }
}
