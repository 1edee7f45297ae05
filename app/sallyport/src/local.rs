//! How a command finds the `sallyport up` of the same user: `up` leaves a note in the state directory.
//!
//! `local.json` is the note of the one that started last. Each has one of its own beside it, so that another one that
//! still runs is found when that one is gone.

use std::{
    fs,
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

/// The largest note that is read, in bytes.
const MAX_NOTE_BYTES: u64 = 16_384;
/// How many notes are looked at.
const MAX_NOTES: usize = 256;
const NOTE: &str = "local.json";

/// A running `sallyport up` of this user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Local {
    /// The address of its API, such as `https://api.localhost:8443`.
    pub(crate) api: String,
    /// Its root certificate, as an absolute path.
    pub(crate) ca: PathBuf,
    /// Its process.
    pub(crate) pid: u32,
}

/// The directory of such notes: `SALLYPORT_STATE_DIR`, else `sallyport` in the state directory of the user.
pub(crate) fn state_dir() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("SALLYPORT_STATE_DIR")
        .or_else(|| set("XDG_STATE_HOME").filter(|path| path.is_absolute()).map(|path| path.join("sallyport")))
        .or_else(|| set("HOME").map(|home| home.join(".local/state/sallyport")))
}

/// The name of the note that belongs to one process only.
fn own_note(pid: u32) -> String {
    format!("local-{pid}.json")
}

/// Leaves the note; in `local.json` it takes the place of an earlier one.
///
/// # Errors
/// There is no state directory, or it cannot be written.
pub(crate) fn write(local: &Local) -> io::Result<()> {
    let dir = state_dir().ok_or_else(|| io::Error::other("there is no home directory: set SALLYPORT_STATE_DIR"))?;
    write_in(&dir, local)
}

/// Takes the note away; `local.json` is left to another `sallyport up` that still runs.
pub(crate) fn remove(pid: u32) {
    if let Some(dir) = state_dir() {
        remove_in(&dir, pid, is_alive);
    }
}

/// The running `sallyport up`, if there is one.
pub(crate) fn read() -> Option<Local> {
    let dir = state_dir()?;
    read_in(&dir, NOTE).filter(|local| is_alive(local.pid)).or_else(|| newest_in(&dir, is_alive))
}

fn write_in(dir: &Path, local: &Local) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let draft = dir.join(format!("{NOTE}.{}", local.pid));
    for name in [own_note(local.pid).as_str(), NOTE] {
        let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        file.write_all(serde_json::to_string_pretty(local)?.as_bytes())?;
        fs::rename(&draft, dir.join(name)).inspect_err(|_| drop(fs::remove_file(&draft)))?;
    }
    Ok(())
}

/// Nothing depends on what cannot be removed: a note of a process that is gone is ignored.
fn remove_in(dir: &Path, pid: u32, is_alive: impl Fn(u32) -> bool) {
    drop(fs::remove_file(dir.join(own_note(pid))));
    if read_in(dir, NOTE).is_none_or(|local| local.pid != pid) {
        return;
    }
    match newest_in(dir, is_alive) {
        Some(other) => drop(write_in(dir, &other)),
        None => drop(fs::remove_file(dir.join(NOTE))),
    }
}

/// The newest of the notes that belong to a process that runs; those of processes that are gone are removed.
fn newest_in(dir: &Path, is_alive: impl Fn(u32) -> bool) -> Option<Local> {
    let names = fs::read_dir(dir).ok()?.take(MAX_NOTES).filter_map(|entry| entry.ok()?.file_name().into_string().ok());
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
    notes.max_by_key(|(written, _)| *written).map(|(_, local)| local)
}

/// The note as it stands. One that somebody else could have written is ignored: it names a root to trust.
fn read_in(dir: &Path, name: &str) -> Option<Local> {
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

/// Whether a process of this id runs.
fn is_alive(pid: u32) -> bool {
    let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) else { return false };
    match rustix::process::test_kill_process(pid) {
        Ok(()) => true,
        Err(error) => error == rustix::io::Errno::PERM,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn note(pid: u32) -> Local {
        Local { api: "https://api.localhost:8443".into(), ca: "/data/ca.pem".into(), pid }
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
        assert_eq!(newest_in(dir, |pid| pid == 41), Some(note(41)), "42 was killed");
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
