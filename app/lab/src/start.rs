//! Starts processes on nodes.

use std::{
    fs::{self, File, OpenOptions},
    io::{Read as _, Seek as _, SeekFrom},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::{
    error::LabError,
    plan::{Launch, Process, Role},
    process::{Life, Started},
    state::Lab,
};

/// How long a program may take to be ready, on a busy machine too.
const READY_TIME: Duration = Duration::from_secs(60);
/// How often this is checked.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How much of a log is searched, in bytes.
const MAX_LOG_BYTES: u64 = 4 << 20;
const MAX_TOLD_CHARS: usize = 600;

/// A process that was started, and is not known to be ready.
#[derive(Debug)]
pub(crate) struct Starting {
    name: String,
    started: Started,
    log: PathBuf,
    /// Where its output begins in the log.
    from: u64,
    ready: &'static str,
}

/// The command that runs a program on a node, independent of this process.
pub(crate) fn command(namespace: &str, launch: &Launch) -> Command {
    let mut command = Command::new("setsid");
    command.args(["ip", "netns", "exec", namespace]);
    if launch.as_postgres {
        command.args(["unshare", "--ipc", "setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]);
    }
    command.arg(&launch.program).args(&launch.args);
    clean(&mut command);
    command.envs(launch.env.iter().map(|(name, value)| (name, value)));
    command
}

/// Removes the environment of the laboratory's builder that is meant for commands.
pub(crate) fn clean(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let is_proxy = ["http_proxy", "https_proxy", "all_proxy", "no_proxy"].contains(&&*text.to_ascii_lowercase());
        if text.starts_with("SALLYPORT_") || text.starts_with("PG") || is_proxy {
            command.env_remove(&name);
        }
    }
}

/// Starts a program whose output goes to a log.
pub(crate) fn spawn(
    name: &str,
    mut command: Command,
    log: PathBuf,
    place: &Path,
    ready: &'static str,
) -> Result<Starting, LabError> {
    let opened = OpenOptions::new().create(true).append(true).mode(0o600).open(&log);
    let mut file = opened.map_err(LabError::io(format!("open {}", log.display())))?;
    let from = file.seek(SeekFrom::End(0)).unwrap_or(0);
    let other = file.try_clone().map_err(LabError::io(format!("open {}", log.display())))?;
    command.stdin(Stdio::null()).stdout(file).stderr(other).current_dir(place);
    let mut child = command.spawn().map_err(LabError::io(format!("start {name}")))?;
    let pid = i32::try_from(child.id()).unwrap_or(0);
    let started = Started::of(pid).unwrap_or(Started { pid, at_ticks: 0 });
    // If it ends before this process, its status must be collected.
    thread::spawn(move || drop(child.wait()));
    Ok(Starting { name: name.to_owned(), started, log, from, ready })
}

impl Starting {
    /// The process.
    pub(crate) fn started(&self) -> Started {
        self.started
    }

    /// Waits until it logs that it is ready.
    pub(crate) fn wait(&self) -> Result<(), LabError> {
        self.wait_for(self.ready)
    }

    /// Waits until it logs this.
    pub(crate) fn wait_for(&self, words: &str) -> Result<(), LabError> {
        let began = Instant::now();
        loop {
            // Looked up before the log is read, so that the log has its last lines.
            let life = self.started.life();
            if self.has_logged(words) {
                return Ok(());
            }
            if life == Life::Gone {
                let output = self.last_words();
                return Err(LabError::Start { name: self.name.clone(), output, log: self.log.clone() });
            }
            if began.elapsed() > READY_TIME {
                let what = format!("{} with {words:?} in {}", self.name, self.log.display());
                return Err(LabError::Late { what, seconds: READY_TIME.as_secs(), seen: self.last_words() });
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Whether it has logged this.
    pub(crate) fn has_logged(&self, words: &str) -> bool {
        self.words().contains(words)
    }

    fn words(&self) -> String {
        let mut bytes = Vec::new();
        let read = File::open(&self.log).and_then(|mut file| {
            file.seek(SeekFrom::Start(self.from))?;
            file.take(MAX_LOG_BYTES).read_to_end(&mut bytes)
        });
        drop(read);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn last_words(&self) -> String {
        let words = self.words();
        let lines: Vec<&str> = words.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let last = lines[lines.len().saturating_sub(3)..].join("; ");
        let skip = last.chars().count().saturating_sub(MAX_TOLD_CHARS);
        last.chars().skip(skip).collect()
    }
}

impl Lab {
    /// Starts a process of the plan, with additional environment, without waiting.
    pub(crate) fn start(&mut self, process: &Process, more: &[(String, String)]) -> Result<Starting, LabError> {
        let mut launch = self.plan.launch(process, &self.state.programs, &self.places, &self.secrets);
        launch.env.extend(more.iter().cloned());
        let namespace = self.plan.namespace(&self.plan.nodes[process.node]);
        let owner = self.places.owner();
        fs::create_dir_all(&owner).map_err(LabError::io(format!("make {}", owner.display())))?;
        let mut command = command(&namespace, &launch);
        // Commands outside the laboratory must not find its servers.
        command.env("HOME", &owner).env("SALLYPORT_RUN_DIR", owner.join("run"));
        if process.role == Role::Database {
            // A stale file of a killed server: its process id may belong to another process by now.
            drop(fs::remove_file(self.places.data(&process.name).join("postmaster.pid")));
        }
        let log = self.places.log(&process.name);
        let starting = spawn(&process.name, command, log, &self.places.root, launch.ready)?;
        self.state.started.insert(process.name.clone(), starting.started());
        self.write()?;
        Ok(starting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(dir: &Path, script: &str) -> Starting {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        spawn("it", command, dir.join("log"), dir, "ready").unwrap()
    }

    #[test]
    fn a_program_is_ready_by_its_own_log_and_not_by_a_former_one() {
        let dir = tempfile::tempdir().unwrap();
        shell(dir.path(), "echo ready").wait().unwrap();
        let second = shell(dir.path(), "echo one >&2; echo two; sleep 0.1; exit 4");
        let message = second.wait().unwrap_err().to_string();
        assert!(message.starts_with("it did not start: one; two (its log is"), "{message}");
    }

    #[test]
    fn postgres_runs_as_its_user_with_memory_that_goes_with_it() {
        let launch = Launch {
            program: "/pg/postgres".into(),
            args: vec!["-D".into()],
            env: vec![("A".into(), "b".into())],
            as_postgres: true,
            ready: "",
        };
        let command = command("ns", &launch);
        let args: Vec<_> = command.get_args().map(|arg| arg.to_str().unwrap()).collect();
        let expected =
            "ip netns exec ns unshare --ipc setpriv --reuid=postgres --regid=postgres --clear-groups /pg/postgres -D";
        assert_eq!(args.join(" "), expected);
    }
}
