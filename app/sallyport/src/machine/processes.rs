//! The Sallyport processes on this machine, as the kernel shows them to every user (proc(5)).

use std::{
    fs,
    io::Read as _,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use serde::Serialize;

use crate::machine::users;

/// How many processes are read.
const MAX_PROCESSES: usize = 65_536;
/// How much of a command line is read, in bytes.
const MAX_COMMAND_BYTES: u64 = 16_384;
/// The commands that run until they are stopped.
const SERVERS: [&str; 5] = ["up", "control", "edge", "connect", "run"];
/// The subcommands of `edge` that end by themselves.
const EDGE_COMMANDS: [&str; 7] = ["ls", "list", "drain", "resume", "rm", "delete", "token"];

/// A running Sallyport process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Running {
    /// Its process id.
    pub(crate) pid: u32,
    /// Its command: `up`, `control`, `edge`, `connect` or `run`.
    pub(crate) role: &'static str,
    /// The user that runs it.
    pub(crate) user: String,
    /// Whether that is another user.
    pub(crate) is_of_other: bool,
    /// Its version, if its note has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<String>,
    /// Its data directory, if its command line or its note has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) data: Option<PathBuf>,
    /// Its addresses, if its note has them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) listen: Vec<String>,
    /// Its resident memory, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) memory_bytes: Option<u64>,
}

/// All Sallyport processes that do not end by themselves, by process id.
pub(crate) fn running() -> Vec<Running> {
    running_in(Path::new("/proc"))
}

fn running_in(proc: &Path) -> Vec<Running> {
    let us = rustix::process::geteuid().as_raw();
    let entries = fs::read_dir(proc).into_iter().flatten().take(MAX_PROCESSES).flatten();
    let mut found: Vec<_> = entries
        .filter_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            if pid == std::process::id() {
                return None;
            }
            let dir = entry.path();
            if read(&dir.join("comm"))?.trim_end() != "sallyport" {
                return None;
            }
            let line = read(&dir.join("cmdline"))?;
            let args: Vec<_> = line.split('\0').skip(1).collect();
            let role = role(&args)?;
            let user = fs::metadata(&dir).ok()?.uid();
            Some(Running {
                pid,
                role,
                user: users::of(&user.to_string()).map_or_else(|| user.to_string(), |user| user.name),
                is_of_other: user != us,
                version: None,
                data: option(&args, "--data").map(PathBuf::from),
                listen: Vec::new(),
                memory_bytes: memory(&dir),
            })
        })
        .collect();
    found.sort_by_key(|one| one.pid);
    found
}

fn read(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    fs::File::open(path).ok()?.take(MAX_COMMAND_BYTES).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The running command of a command line. A value of an earlier option could look like a command; the first match
/// counts, and nothing important depends on it.
fn role(args: &[&str]) -> Option<&'static str> {
    let at = args.iter().position(|arg| SERVERS.contains(arg))?;
    let next = args.get(at + 1).copied().unwrap_or_default();
    let role = SERVERS.into_iter().find(|role| *role == args[at])?;
    if role == "edge" && EDGE_COMMANDS.contains(&next) { None } else { Some(role) }
}

/// The value of an option.
fn option<'a>(args: &[&'a str], name: &str) -> Option<&'a str> {
    args.iter().enumerate().find_map(|(at, arg)| {
        let rest = arg.strip_prefix(name)?;
        if rest.is_empty() { args.get(at + 1).copied() } else { rest.strip_prefix('=') }
    })
}

/// Resident pages (proc(5), `statm`: the second field).
fn memory(dir: &Path) -> Option<u64> {
    let pages: u64 = read(&dir.join("statm"))?.split_whitespace().nth(1)?.parse().ok()?;
    pages.checked_mul(u64::try_from(rustix::param::page_size()).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_identified_by_its_command_line_without_secrets() {
        let proc = tempfile::tempdir().unwrap();
        let process = |pid: &str, comm: &str, args: &[&str]| {
            let dir = proc.path().join(pid);
            fs::create_dir(&dir).unwrap();
            fs::write(dir.join("comm"), format!("{comm}\n")).unwrap();
            fs::write(dir.join("cmdline"), args.join("\0") + "\0").unwrap();
            fs::write(dir.join("statm"), "100 3 0 0 0 0 0").unwrap();
        };
        process("30", "sallyport", &["sallyport", "--token", "spt_x", "tunnel", "connect", "blog", "8000"]);
        process("7", "sallyport", &["/usr/local/bin/sallyport", "up", "--data=/srv/sally"]);
        process("8", "sallyport", &["sallyport", "edge", "ls"]);
        process("9", "sallyport", &["sallyport", "socket", "ls"]);
        process("10", "nginx", &["nginx", "up"]);
        process("11", "sallyport", &[]);
        fs::create_dir(proc.path().join("self")).unwrap();
        let found = running_in(proc.path());
        let shown: Vec<_> = found.iter().map(|one| (one.pid, one.role, one.data.as_deref())).collect();
        assert_eq!(shown, [(7, "up", Some(Path::new("/srv/sally"))), (30, "connect", None)]);
        let page = u64::try_from(rustix::param::page_size()).unwrap();
        assert_eq!((found[0].memory_bytes, found[0].is_of_other), (Some(3 * page), false));
        assert!(!serde_json::to_string(&found).unwrap().contains("spt_x"));
        assert_eq!(running_in(&proc.path().join("none")), []);
    }
}
