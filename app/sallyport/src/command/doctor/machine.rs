//! Checks of the machine on which `sallyport up` runs, or is to run.

use std::{
    fs::{self, File},
    io,
    net::{Ipv4Addr, TcpListener},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use sallyport_store::DataDirLock;

use super::Check;
use crate::{
    args::listen::DEFAULT_PORT,
    command::api_status::folder,
    installation::default_data_dir,
    machine::{processes::Running, server_note, users},
};

/// Files that other users must not read.
const SECRETS: [&str; 5] = ["ca.key", "token.key", "installation.key", "sallyport.db", "edge.json"];
/// How many open files a server should have, and how many it needs.
const FILES_WARN: u64 = 65_536;
const FILES_FAIL: u64 = 1_024;
/// How much free disk space there should be, in bytes.
const ROOM_WARN_BYTES: u64 = 1 << 30;
const ROOM_FAIL_BYTES: u64 = 64 << 20;

/// Checks the data directory, its holder, and the port.
pub(super) fn checks(programs: &[Running], data: Option<PathBuf>) -> Vec<Check> {
    let server = server(programs);
    let known = data.or_else(|| server.and_then(|one| one.data.clone())).or_else(default_data_dir);
    let mut checks = Vec::new();
    let Some(dir) = known else { return vec![Check::skip("data", "there is no home directory to keep any in")] };
    checks.push(directory(&dir));
    checks.push(lock(&dir, programs));
    checks.push(port(server.or_else(|| programs.iter().find(|one| one.role == "edge"))));
    checks
}

/// The server to check: the one that commands find, else any of this user.
fn server(programs: &[Running]) -> Option<&Running> {
    let found = server_note::read().map(|local| local.pid);
    let is_own = |one: &&Running| matches!(one.role, "up" | "control") && !one.is_of_other;
    programs.iter().find(|one| Some(one.pid) == found).or_else(|| programs.iter().find(is_own))
}

fn directory(dir: &Path) -> Check {
    const NAME: &str = "data";
    let shown = dir.display();
    let meta = match fs::metadata(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Check::skip(NAME, format!("{shown} is not there yet: the first `sallyport up` makes it"));
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Check::skip(NAME, format!("{shown} cannot be looked at by this user: run this with sudo for it"));
        }
        Err(error) => return Check::fail(NAME, format!("{shown}: {error}"), "name another with --data DIR"),
        Ok(meta) => meta,
    };
    if !meta.is_dir() {
        return Check::fail(NAME, format!("{shown} is no directory"), "name another with --data DIR");
    }
    let (us, owner) = (rustix::process::geteuid(), meta.uid());
    if !us.is_root() && owner != us.as_raw() {
        let whose = users::of(&owner.to_string()).map_or_else(|| owner.to_string(), |user| user.name);
        return Check::skip(NAME, format!("{shown} belongs to {whose}: run this as that user for it"));
    }
    let mode = meta.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Check::fail(NAME, format!("{shown} is open to others (mode {mode:04o})"), format!("chmod 700 {shown}"));
    }
    for secret in SECRETS {
        let path = dir.join(secret);
        let Ok(meta) = fs::metadata(&path) else { continue };
        let (mode, path) = (meta.mode() & 0o777, path.display());
        if mode & 0o077 != 0 {
            return Check::fail(
                NAME,
                format!("{path} can be read by others (mode {mode:04o})"),
                format!("chmod 600 {path}"),
            );
        }
        if !us.is_root() && File::open(dir.join(secret)).is_err() {
            let next = format!("give it back to the owner of {shown}: chown {owner} {path}");
            return Check::fail(NAME, format!("{path} cannot be read"), next);
        }
    }
    Check::ok(NAME, format!("{shown}, for its owner alone"))
}

fn lock(dir: &Path, programs: &[Running]) -> Check {
    const NAME: &str = "lock";
    let holder = match DataDirLock::last_holder(dir) {
        Ok(holder) => holder,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Check::skip(NAME, "it cannot be looked at by this user");
        }
        Err(error) => return Check::fail(NAME, error.to_string(), "see whether the disk works"),
    };
    match holder.and_then(|pid| programs.iter().find(|one| one.pid == pid)) {
        Some(one) => Check::ok(NAME, format!("held by process {}, `sallyport {}`", one.pid, one.role)),
        None => Check::skip(NAME, "no process holds the data directory: `sallyport up` does not run on it"),
    }
}

fn port(server: Option<&Running>) -> Check {
    const NAME: &str = "port";
    if let Some(one) = server {
        let at = if one.listen.is_empty() { String::new() } else { format!(" at {}", one.listen.join(" and ")) };
        return Check::ok(NAME, format!("`sallyport {}` (process {}) listens{at}", one.role, one.pid));
    }
    match TcpListener::bind((Ipv4Addr::LOCALHOST, DEFAULT_PORT)) {
        Ok(_) => Check::ok(NAME, format!("port {DEFAULT_PORT} is free")),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Check::warn(
            NAME,
            format!("port {DEFAULT_PORT} is taken by another program"),
            format!("`ss -ltnp sport = :{DEFAULT_PORT}` shows which; or take another: sallyport up --listen :PORT"),
        ),
        Err(error) => Check::warn(NAME, error.to_string(), "take another: sallyport up --listen ADDR:PORT"),
    }
}

/// Checks how many files a program may have open: one for each connection.
pub(super) fn files() -> Check {
    const NAME: &str = "files";
    // The soft limit is raised to the hard one at the start.
    let Some(bound) = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum else {
        return Check::ok(NAME, "as many may be open as there are");
    };
    let found = format!("{bound} may be open at a time, one for each connection");
    let next = "raise it: LimitNOFILE= under systemd, else the hard limit `nofile` in /etc/security/limits.conf";
    match bound {
        ..FILES_FAIL => Check::fail(NAME, found, next),
        FILES_FAIL..FILES_WARN => Check::warn(NAME, found, next),
        FILES_WARN.. => Check::ok(NAME, found),
    }
}

/// Checks the free space of the data directory's disk.
pub(super) fn room(programs: &[Running]) -> Option<Check> {
    const NAME: &str = "disk";
    let known = server(programs).filter(|one| !one.is_of_other).and_then(|one| one.data.clone());
    let dir = known.or_else(default_data_dir)?;
    // A missing folder will be on the disk of its parent.
    let mut there = dir.as_path();
    while !there.exists() {
        let parent = folder(there);
        if parent == there {
            return None;
        }
        there = parent;
    }
    let disk = rustix::fs::statvfs(there).ok()?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    let found = format!("{:.1} GB are free where the data is", gigabytes(free));
    let next = format!("make room on the disk of {}", there.display());
    Some(match free {
        ..ROOM_FAIL_BYTES => Check::fail(NAME, found, next),
        ROOM_FAIL_BYTES..ROOM_WARN_BYTES => Check::warn(NAME, found, next),
        ROOM_WARN_BYTES.. => Check::ok(NAME, found),
    })
}

#[expect(clippy::cast_precision_loss, reason = "one digit after the point is shown")]
fn gigabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::command::doctor::State;

    #[test]
    fn a_data_directory_that_others_can_read_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        assert_eq!(directory(&data).state, State::Skip, "not there yet");
        fs::create_dir(&data).unwrap();
        let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        mode(&data, 0o755);
        let found = directory(&data);
        assert_eq!(found.state, State::Fail);
        assert!(found.next.unwrap().starts_with("chmod 700 "));
        mode(&data, 0o700);
        assert_eq!(directory(&data).state, State::Ok);
        fs::write(data.join("ca.key"), "secret").unwrap();
        mode(&data.join("ca.key"), 0o644);
        let found = directory(&data);
        assert_eq!((found.state, found.found.contains("ca.key")), (State::Fail, true));
        fs::write(dir.path().join("file"), "").unwrap();
        assert_eq!(directory(&dir.path().join("file")).state, State::Fail);
    }

    #[test]
    fn the_process_that_holds_the_data_directory_is_named_while_it_runs() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(lock(dir.path(), &[]).state, State::Skip);
        let guard = DataDirLock::take(dir.path()).unwrap();
        let running = Running {
            pid: std::process::id(),
            role: "up",
            user: "ann".to_owned(),
            is_of_other: false,
            version: None,
            data: None,
            listen: Vec::new(),
            memory_bytes: None,
        };
        let found = lock(dir.path(), std::slice::from_ref(&running));
        assert_eq!((found.state, found.found.contains("`sallyport up`")), (State::Ok, true));
        assert_eq!(lock(dir.path(), &[]).state, State::Skip, "another program has the number");
        assert_eq!(port(Some(&running)).state, State::Ok);
        drop(guard);
    }
}
