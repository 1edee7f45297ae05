//! The ssh connection by which the person who gives a command is on this machine.

use std::{fs, net::SocketAddr, path::Path};

/// How many processes above this one are looked at.
const MAX_ANCESTORS: usize = 64;
/// What sshd sets: the addresses and ports of both ends (ssh(1)).
const VARIABLE: &str = "SSH_CONNECTION";

/// The client's end and this machine's, if a process above this one came by ssh. `sudo` takes the variable away from
/// this process only.
pub(crate) fn connection() -> Option<(SocketAddr, SocketAddr)> {
    if let Ok(value) = std::env::var(VARIABLE) {
        return parse(&value);
    }
    of_ancestors(Path::new("/proc"), std::process::id())
}

fn of_ancestors(proc: &Path, process: u32) -> Option<(SocketAddr, SocketAddr)> {
    let mut process = process;
    for _ in 0..MAX_ANCESTORS {
        process = parent(proc, process)?;
        let environment = fs::read(proc.join(process.to_string()).join("environ")).unwrap_or_default();
        let mut entries = environment.split(|byte| *byte == 0).filter_map(|entry| std::str::from_utf8(entry).ok());
        let value = entries.find_map(|entry| entry.strip_prefix(VARIABLE)?.strip_prefix('='));
        if let Some(value) = value {
            return parse(value);
        }
    }
    None
}

fn parent(proc: &Path, process: u32) -> Option<u32> {
    let status = fs::read_to_string(proc.join(process.to_string()).join("status")).ok()?;
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()?;
    (parent != 0).then_some(parent)
}

/// `CLIENT PORT SERVER PORT`.
fn parse(value: &str) -> Option<(SocketAddr, SocketAddr)> {
    let mut words = value.split(' ');
    let mut end = || Some(SocketAddr::new(words.next()?.parse().ok()?, words.next()?.parse().ok()?));
    Some((end()?, end()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_connection_of_the_nearest_ancestor_counts() {
        let proc = tempfile::tempdir().unwrap();
        let process = |number: u32, parent: u32, environment: &str| {
            let folder = proc.path().join(number.to_string());
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("status"), format!("Name:\tsh\nPPid:\t{parent}\n")).unwrap();
            fs::write(folder.join("environ"), environment.replace(' ', "\0")).unwrap();
        };
        // A space stands for the end of an entry here.
        process(40, 30, "HOME=/root");
        process(30, 20, "HOME=/root SSHCONNECTION=x");
        process(20, 10, "");
        process(10, 0, "A=b");
        assert_eq!(of_ancestors(proc.path(), 40), None);
        let text = "A=b\0SSH_CONNECTION=10.20.0.11 40000 10.20.0.21 22\0";
        fs::write(proc.path().join("20/environ"), text).unwrap();
        let (client, server) = of_ancestors(proc.path(), 40).unwrap();
        assert_eq!((client.to_string(), server.to_string()), ("10.20.0.11:40000".into(), "10.20.0.21:22".into()));
        assert_eq!(parse("fd00::1 40000 fd00::2 22").unwrap().1.to_string(), "[fd00::2]:22");
        for wrong in ["", "10.20.0.11", "10.20.0.11 40000 10.20.0.21", "a b c d", "10.20.0.11 70000 10.20.0.21 22"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
