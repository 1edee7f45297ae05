//! Network namespaces, by `ip netns` and `ip -batch`.

use std::{
    ffi::OsStr,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::error::LabError;

/// The folder of `ip netns`.
const NAMESPACES: &str = "/run/netns";
/// The folder from which `ip netns exec` replaces files in `/etc`.
const FILES: &str = "/etc/netns";

/// The file of a namespace.
pub(crate) fn path(namespace: &str) -> PathBuf {
    Path::new(NAMESPACES).join(namespace)
}

/// Whether this process is root.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Runs a program to its end, with this input.
pub(crate) fn run(command: &mut Command, input: &str) -> Result<String, LabError> {
    let words = || {
        let args = command.get_args().map(OsStr::to_string_lossy);
        std::iter::once(command.get_program().to_string_lossy()).chain(args).collect::<Vec<_>>().join(" ")
    };
    let line = words();
    let failed = |output: String| LabError::Command { command: line.clone(), output };
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(error.to_string()))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that reads no input reports its own error.
        drop(stdin.write_all(input.as_bytes()));
    }
    let output = child.wait_with_output().map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let errors = errors.trim();
    Err(failed(if errors.is_empty() { output.status.to_string() } else { errors.replace('\n', "; ") }))
}

/// Makes a namespace.
pub(crate) fn add(namespace: &str) -> Result<(), LabError> {
    run(Command::new("ip").args(["netns", "add", namespace]), "").map(drop)
}

/// Runs these lines by `ip` in a namespace.
pub(crate) fn batch(namespace: &str, lines: &str) -> Result<(), LabError> {
    run(Command::new("ip").args(["-n", namespace, "-batch", "-"]), lines).map(drop)
}

/// Runs these lines by `ip`, which name their namespaces themselves.
pub(crate) fn batch_among(lines: &str) -> Result<(), LabError> {
    run(Command::new("ip").args(["-batch", "-"]), lines).map(drop)
}

/// Runs these lines by a shell in a namespace, up to the first that fails.
pub(crate) fn shell(namespace: &str, lines: &str) -> Result<(), LabError> {
    run(inside(namespace, Path::new("sh")).args(["-e", "-s"]), lines).map(drop)
}

/// The namespaces with this prefix.
pub(crate) fn namespaces(prefix: &str) -> Vec<String> {
    let names = fs::read_dir(NAMESPACES).into_iter().flatten();
    let names = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<_> = names.filter(|name| name.starts_with(prefix)).collect();
    names.sort();
    names
}

/// Removes a namespace; processes in it keep it until they end.
pub(crate) fn remove(namespace: &str) -> Result<(), LabError> {
    run(Command::new("ip").args(["netns", "del", namespace]), "").map(drop)
}

/// The hosts file of a namespace.
pub(crate) fn write_hosts(namespace: &str, text: &str) -> Result<(), LabError> {
    let folder = Path::new(FILES).join(namespace);
    let file = folder.join("hosts");
    // Written in place: running programs see this very file.
    fs::create_dir_all(&folder)
        .and_then(|()| fs::write(&file, text))
        .map_err(LabError::io(format!("write {}", file.display())))
}

/// Removes the files of namespaces with this prefix, and the folder if it is empty.
pub(crate) fn remove_files(prefix: &str) -> Result<(), LabError> {
    let Ok(entries) = fs::read_dir(FILES) else { return Ok(()) };
    for entry in entries.filter_map(Result::ok) {
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            fs::remove_dir_all(entry.path()).map_err(LabError::io(format!("remove {}", entry.path().display())))?;
        }
    }
    // Fails while files of others are there.
    drop(fs::remove_dir(FILES));
    Ok(())
}

/// A program in a namespace, with that namespace's hosts file.
pub(crate) fn inside(namespace: &str, program: &Path) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace]).arg(program);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_a_failed_program_is_one_line() {
        let outcome = run(Command::new("sh").args(["-c", "read x; echo one $x >&2; echo two >&2; exit 3"]), "in\n");
        assert_eq!(
            outcome.unwrap_err().to_string(),
            "`sh -c read x; echo one $x >&2; echo two >&2; exit 3` failed: one in; two"
        );
        assert_eq!(run(Command::new("cat").arg("-"), "through").unwrap(), "through");
        let missing = run(&mut Command::new("/nonexistent"), "").unwrap_err().to_string();
        assert!(missing.starts_with("`/nonexistent` failed: No such file"), "{missing}");
    }
}
