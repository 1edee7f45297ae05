//! The notes by which commands find the `sallyport up` of this machine, in the state directory of its user.
//!
//! `local.json` is the note of the latest server. Each server also has a note of its own, so that another running one
//! is found when the latest is gone.
//!
//! A server of root or systemd also leaves a note for all users in [`RUN_DIR`], with a copy of its root certificate.
//! Nothing in that note is secret. It is trusted, because only root can make that folder, and only its owner can write
//! there.

use std::{
    fs,
    io::{self, Read as _, Write as _},
    net::{IpAddr, SocketAddr},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use sallyport_client::ApiAddress;
use serde::{Deserialize, Serialize};
use tracing::warn;

/// The largest note that is read, in bytes.
const MAX_NOTE_BYTES: u64 = 16_384;
/// How many notes are read.
const MAX_NOTES: usize = 256;
const NOTE: &str = "local.json";
/// The folder of notes for all users. Only root can make it.
const RUN_DIR: &str = "/run/sallyport";
/// Names another folder than [`RUN_DIR`].
const RUN_DIR_VARIABLE: &str = "SALLYPORT_RUN_DIR";
/// The largest root certificate that is copied, in bytes.
const MAX_PEM_BYTES: u64 = 65_536;

/// A running `sallyport up` or `sallyport control`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct ServerNote {
    /// The address of its API, such as `https://api.localhost:8443`.
    pub(crate) api: String,
    /// Its root certificate, as an absolute path.
    pub(crate) ca: PathBuf,
    /// Its process id.
    pub(crate) pid: u32,
    /// Its version; older notes have neither this nor the fields below.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) version: String,
    /// Its data directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) data: Option<PathBuf>,
    /// Where it listens.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) listen: Vec<String>,
    /// Whether its names have certificates of public authorities, which the root does not sign.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) public_names: Option<PublicNames>,
}

/// What commands check about names with certificates of public authorities.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct PublicNames {
    /// The domain of the installation.
    pub(crate) domain: String,
    /// The directory of the ACME server.
    pub(crate) directory: String,
    /// The root certificates of the ACME server, as an absolute path; `None` for the system's.
    #[serde(default)]
    pub(crate) directory_root: Option<PathBuf>,
    /// The name servers for lookups; empty for the system's.
    pub(crate) resolver: Vec<SocketAddr>,
    /// The TCP ports that must be reachable for everybody.
    pub(crate) ports: Vec<u16>,
    /// The address of the name server on this machine, if it has one.
    #[serde(default)]
    pub(crate) name_server: Option<SocketAddr>,
    /// The public addresses of this server; empty if they are not known, or if edges have them.
    pub(crate) addresses: Vec<IpAddr>,
    /// Whether the installation serves the desk.
    #[serde(default)]
    pub(crate) has_desk: bool,
}

impl ServerNote {
    /// The note of this process.
    pub(crate) fn of_this_process(api: &str, data: &Path, ca: PathBuf, listen: Vec<String>) -> Self {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let (pid, data) = (std::process::id(), Some(data.to_owned()));
        Self { api: api.to_owned(), ca, pid, version, data, listen, public_names: None }
    }

    /// Whether this is the server with this API.
    pub(crate) fn is_of(&self, api: &ApiAddress) -> bool {
        self.api.parse().as_ref() == Ok(api)
    }
}

/// Writes the note of this process. A failure is logged.
pub(crate) fn announce(note: &ServerNote) {
    if let Err(error) = write(note) {
        warn!(%error, "commands of this machine will not find this process by themselves: give them --api and --ca");
    }
}

/// The directory of such notes: `SALLYPORT_STATE_DIR`, else `sallyport` in the state directory of the user.
pub(crate) fn state_dir() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("SALLYPORT_STATE_DIR")
        .or_else(|| set("XDG_STATE_HOME").filter(|path| path.is_absolute()).map(|path| path.join("sallyport")))
        .or_else(|| set("HOME").map(|home| home.join(".local/state/sallyport")))
}

/// The name of the note of one process.
fn own_note(pid: u32) -> String {
    format!("local-{pid}.json")
}

/// Writes the note, and replaces `local.json`.
///
/// # Errors
/// There is no state directory, or it cannot be written.
pub(crate) fn write(local: &ServerNote) -> io::Result<()> {
    let for_all = run_dir().map(|dir| write_for_all(&dir, local));
    if let Some(Err(error)) = &for_all {
        tracing::debug!(%error, "other users of this machine will not find this process by themselves");
    }
    let missing = || io::Error::other("there is no home directory: set SALLYPORT_STATE_DIR");
    let own = state_dir().ok_or_else(missing).and_then(|dir| write_in(&dir, local));
    // A note for all users serves its own user too.
    own.or_else(|error| if matches!(for_all, Some(Ok(()))) { Ok(()) } else { Err(error) })
}

/// Removes the note; `local.json` then names another running server, if there is one.
pub(crate) fn remove(pid: u32) {
    if let Some(dir) = state_dir() {
        remove_in(&dir, pid, is_alive);
    }
    if let Some(dir) = run_dir() {
        drop(fs::remove_file(dir.join(own_note(pid))));
        drop(fs::remove_file(dir.join(root_file(pid))));
    }
}

/// The running server: this user's, else one with a note for all users.
pub(crate) fn read() -> Option<ServerNote> {
    let own = |dir: PathBuf| {
        let last = read_in(&dir, NOTE).filter(|local| is_alive(local.pid));
        last.or_else(|| newest_in(&dir, is_alive).into_iter().next())
    };
    let of_others = || run_dir().and_then(|dir| read_for_all(&dir, is_alive).into_iter().next());
    state_dir().and_then(own).or_else(of_others)
}

/// All running servers that this user can find, first the one that [`read`] finds.
pub(crate) fn by_preference() -> Vec<ServerNote> {
    let first = read();
    let is_other = |note: &ServerNote| first.as_ref().is_none_or(|first| first.pid != note.pid);
    let others: Vec<_> = all().into_iter().filter(is_other).collect();
    first.into_iter().chain(others).collect()
}

/// All running servers that this user can find, the newest first.
pub(crate) fn all() -> Vec<ServerNote> {
    let mut found = state_dir().map(|dir| newest_in(&dir, is_alive)).unwrap_or_default();
    for other in run_dir().map(|dir| read_for_all(&dir, is_alive)).unwrap_or_default() {
        if !found.iter().any(|known| known.pid == other.pid) {
            found.push(other);
        }
    }
    found
}

/// The folder of notes for all users. `None` if a state directory was set, which isolates this program from others.
fn run_dir() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    match set(RUN_DIR_VARIABLE) {
        Some(dir) => Some(PathBuf::from(dir)),
        None => set("SALLYPORT_STATE_DIR").is_none().then(|| PathBuf::from(RUN_DIR)),
    }
}

/// Whether the file was the copied root certificate of a process that has ended.
pub(crate) fn is_root_of_ended(file: &Path) -> bool {
    run_dir().is_some_and(|dir| file.parent() == Some(dir.as_path())) && !file.exists()
}

/// The name of the copied root certificate of one process.
fn root_file(pid: u32) -> String {
    format!("ca-{pid}.pem")
}

/// The owner of a folder in which no other user can write.
fn owner_of(dir: &Path) -> io::Result<u32> {
    let meta = fs::symlink_metadata(dir)?;
    if !meta.is_dir() || meta.mode() & 0o022 != 0 {
        return Err(io::Error::other(format!("other users can write {}", dir.display())));
    }
    Ok(meta.uid())
}

fn write_for_all(dir: &Path, local: &ServerNote) -> io::Result<()> {
    match fs::create_dir(dir) {
        Ok(()) => fs::set_permissions(dir, fs::Permissions::from_mode(0o755))?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    if owner_of(dir)? != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other(format!("{} belongs to another user", dir.display())));
    }
    // Removes notes of killed processes.
    for entry in fs::read_dir(dir)?.take(MAX_NOTES).flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.split_once('-')?.1.split_once('.')?.0.parse::<u32>().ok());
        if pid.is_some_and(|pid| !is_alive(pid)) {
            drop(fs::remove_file(entry.path()));
        }
    }
    let mut root = String::new();
    fs::File::open(&local.ca)?.take(MAX_PEM_BYTES).read_to_string(&mut root)?;
    let copy = root_file(local.pid);
    put(dir, &copy, &root, 0o644)?;
    // The path of the data directory is private.
    let public = ServerNote { ca: dir.join(&copy), data: None, ..local.clone() };
    put(dir, &own_note(local.pid), &serde_json::to_string_pretty(&public)?, 0o644)
}

/// The notes for all users, the newest first. The root certificate always lies beside its note, whatever path the note
/// has.
fn read_for_all(dir: &Path, is_alive: impl Fn(u32) -> bool) -> Vec<ServerNote> {
    let Ok(owner) = owner_of(dir) else { return Vec::new() };
    let names = fs::read_dir(dir).into_iter().flatten().take(MAX_NOTES);
    let mut notes: Vec<_> = names
        .filter_map(|entry| {
            let name = entry.ok()?.file_name().into_string().ok()?;
            let pid: u32 = name.strip_prefix("local-")?.strip_suffix(".json")?.parse().ok()?;
            let is_its = |name: &str| {
                let meta = fs::symlink_metadata(dir.join(name)).ok()?;
                (meta.is_file() && meta.mode() & 0o022 == 0 && (meta.uid() == owner || meta.uid() == 0)).then_some(meta)
            };
            let written = is_its(&name)?.modified().ok()?;
            is_its(&root_file(pid))?;
            let mut text = String::new();
            fs::File::open(dir.join(&name)).ok()?.take(MAX_NOTE_BYTES).read_to_string(&mut text).ok()?;
            let local: ServerNote = serde_json::from_str(&text).ok()?;
            let is_current = local.pid == pid && is_alive(pid);
            is_current.then(|| (written, ServerNote { ca: dir.join(root_file(pid)), ..local }))
        })
        .collect();
    notes.sort_by_key(|(written, _)| std::cmp::Reverse(*written));
    notes.into_iter().map(|(_, local)| local).collect()
}

fn write_in(dir: &Path, local: &ServerNote) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let text = serde_json::to_string_pretty(local)?;
    [own_note(local.pid).as_str(), NOTE].iter().try_for_each(|name| put(dir, name, &text, 0o600))
}

/// Writes a file atomically.
fn put(dir: &Path, name: &str, text: &str, mode: u32) -> io::Result<()> {
    let draft = dir.join(format!("{name}.{}", std::process::id()));
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&draft)?;
    // The umask may have cleared bits of the mode.
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    file.write_all(text.as_bytes())?;
    fs::rename(&draft, dir.join(name)).inspect_err(|_| drop(fs::remove_file(&draft)))
}

/// Removes the note of a process. Errors do not matter: notes of dead processes are ignored.
fn remove_in(dir: &Path, pid: u32, is_alive: impl Fn(u32) -> bool) {
    drop(fs::remove_file(dir.join(own_note(pid))));
    if read_in(dir, NOTE).is_none_or(|local| local.pid != pid) {
        return;
    }
    match newest_in(dir, is_alive).into_iter().next() {
        Some(other) => drop(write_in(dir, &other)),
        None => drop(fs::remove_file(dir.join(NOTE))),
    }
}

/// The notes of running processes, the newest first; others are removed.
fn newest_in(dir: &Path, is_alive: impl Fn(u32) -> bool) -> Vec<ServerNote> {
    let entries = fs::read_dir(dir).into_iter().flatten().take(MAX_NOTES);
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let notes = names.filter_map(|name| {
        let pid: u32 = name.strip_prefix("local-")?.strip_suffix(".json")?.parse().ok()?;
        let path = dir.join(&name);
        if !is_alive(pid) {
            drop(fs::remove_file(path));
            return None;
        }
        let written = fs::metadata(path).and_then(|file| file.modified()).ok()?;
        let local = read_in(dir, &name).filter(|local| local.pid == pid)?;
        Some((written, local))
    });
    let mut notes: Vec<_> = notes.collect();
    notes.sort_by_key(|(written, _)| std::cmp::Reverse(*written));
    notes.into_iter().map(|(_, local)| local).collect()
}

/// Reads a note. A note that another user could have written is ignored, because it names a root to trust.
fn read_in(dir: &Path, name: &str) -> Option<ServerNote> {
    let file = fs::File::open(dir.join(name)).ok()?;
    let meta = file.metadata().ok()?;
    let us = rustix::process::geteuid().as_raw();
    if (meta.uid() != us && meta.uid() != 0) || meta.mode() & 0o022 != 0 {
        tracing::warn!(path = %dir.join(name).display(), "ignored: other users can write it");
        return None;
    }
    let mut text = String::new();
    file.take(MAX_NOTE_BYTES).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

/// Whether a process with this id runs.
fn is_alive(pid: u32) -> bool {
    let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) else { return false };
    match rustix::process::test_kill_process(pid) {
        Ok(()) => true,
        Err(error) => error == rustix::io::Errno::PERM,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(pid: u32) -> ServerNote {
        ServerNote { api: "https://api.localhost:8443".into(), ca: "/data/ca.pem".into(), pid, ..ServerNote::default() }
    }

    #[test]
    fn other_users_find_it_with_its_root_and_nothing_of_its_data() {
        let dir = tempfile::tempdir().unwrap();
        let (run, ca) = (dir.path().join("run"), dir.path().join("ca.pem"));
        fs::write(&ca, "a root").unwrap();
        let local = ServerNote { ca, data: Some("/secret".into()), ..note(41) };
        write_for_all(&run, &local).unwrap();
        let found = read_for_all(&run, |pid| pid == 41);
        assert_eq!((found.len(), found[0].api.as_str()), (1, "https://api.localhost:8443"));
        assert_eq!((fs::read_to_string(&found[0].ca).unwrap().as_str(), &found[0].data), ("a root", &None));
        for name in ["local-41.json", "ca-41.pem"] {
            assert_eq!(fs::metadata(run.join(name)).unwrap().permissions().mode() & 0o777, 0o644, "{name}");
        }
        assert_eq!(read_for_all(&run, |_| false), [], "a process that is gone");
        // The path to another root in a note is not followed.
        fs::write(run.join("local-41.json"), r#"{"api":"https://x","ca":"/tmp/evil.pem","pid":41}"#).unwrap();
        assert_eq!(read_for_all(&run, |_| true)[0].ca, run.join("ca-41.pem"));
        for (name, mode) in [("local-41.json", 0o666), ("ca-41.pem", 0o664)] {
            fs::set_permissions(run.join(name), fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(read_for_all(&run, |_| true), [], "others can write {name}");
            fs::set_permissions(run.join(name), fs::Permissions::from_mode(0o644)).unwrap();
        }
        fs::set_permissions(&run, fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(read_for_all(&run, |_| true), [], "others can write the folder");
        assert!(write_for_all(&run, &local).is_err());
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&run, &link).unwrap();
        assert_eq!(read_for_all(&link, |_| true), []);
    }

    #[test]
    fn what_was_written_is_read_and_only_its_owner_removes_it() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("a/b");
        assert_eq!(read_in(&dir, NOTE), None);
        write_in(&dir, &note(41)).unwrap();
        write_in(&dir, &note(42)).unwrap();
        assert_eq!(read_in(&dir, NOTE), Some(note(42)));
        assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
        remove_in(&dir, 41, |_| true);
        assert_eq!(read_in(&dir, NOTE), Some(note(42)));
        remove_in(&dir, 42, |_| true);
        assert_eq!(read_in(&dir, NOTE), None);
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
    }

    #[test]
    fn the_end_of_one_leaves_another_that_runs_to_be_found() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        for pid in [40, 41, 42] {
            write_in(dir, &note(pid)).unwrap();
        }
        assert_eq!(newest_in(dir, |pid| pid == 41), [note(41)], "42 was killed");
        assert!(!dir.join(own_note(40)).exists(), "notes of the dead are removed");
        remove_in(dir, 42, |pid| pid == 41);
        assert_eq!(read_in(dir, NOTE), Some(note(41)));
        remove_in(dir, 41, |_| false);
        assert_eq!(fs::read_dir(dir).unwrap().count(), 0);
    }

    #[test]
    fn a_note_that_others_can_write_or_that_is_garbage_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(NOTE);
        write_in(dir.path(), &note(1)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert_eq!(read_in(dir.path(), NOTE), None);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(read_in(dir.path(), NOTE).is_some());
        fs::write(&path, "{").unwrap();
        assert_eq!(read_in(dir.path(), NOTE), None);
    }

    #[test]
    fn a_process_that_is_gone_is_known_as_gone() {
        assert!(is_alive(std::process::id()));
        assert!(!is_alive(0));
        assert!(!is_alive(u32::MAX));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert!(!is_alive(child.id()));
    }
}
