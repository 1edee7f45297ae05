//! The stored state of a laboratory, by which later commands find all of it, also after a crash or half a start.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::Write as _,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    error::LabError,
    plan::{Paths, Plan, Programs, Secrets},
    process::Started,
    topology::{LabName, Topology},
};

/// The directory of laboratories, which does not survive a reboot, as namespaces do not.
pub const DEFAULT_PARENT: &str = "/run/sallyport-lab";
const STATE: &str = "state.json";
const SECRETS: &str = "secrets.json";
const LOCK: &str = "lock";
const SCHEMA: u32 = 1;
/// The longest state file, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The stored state.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct State {
    schema: u32,
    /// The version of the program that built it.
    pub version: String,
    /// The topology.
    pub topology: Topology,
    /// Its programs.
    pub programs: Programs,
    /// Whether it was built completely.
    pub is_whole: bool,
    /// The program that carries packets.
    pub wires: Option<Started>,
    /// The processes by name, as last started.
    pub started: BTreeMap<String, Started>,
    /// The names of sockets in the nodes' hosts files.
    pub names: Vec<String>,
}

impl State {
    pub(crate) fn new(topology: Topology, programs: Programs) -> Self {
        Self {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            topology,
            programs,
            is_whole: false,
            wires: None,
            started: BTreeMap::new(),
            names: Vec::new(),
        }
    }
}

/// The locked directory of a laboratory: one command at a time changes it.
#[derive(Debug)]
pub(crate) struct LockedDir {
    pub(crate) places: Paths,
    _lock: File,
}

/// The files of the laboratory with this name.
pub(crate) fn places(parent: &Path, name: &LabName) -> Paths {
    Paths { root: parent.join(name.as_str()) }
}

/// Makes and locks the directory of a new laboratory.
pub(crate) fn create(parent: &Path, name: &LabName) -> Result<LockedDir, LabError> {
    let places = places(parent, name);
    // Other users may pass through to their own files, but not list them.
    let make = |path: &Path| {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o711)
            .create(path)
            .map_err(LabError::io(format!("make {}", path.display())))
    };
    make(parent)?;
    make(&places.root)?;
    let held = hold(places, name)?;
    make(&held.places.root.join("data"))?;
    make(&held.places.root.join("logs"))?;
    Ok(held)
}

/// Locks the directory of an existing laboratory.
pub(crate) fn open(parent: &Path, name: &LabName) -> Result<LockedDir, LabError> {
    let places = places(parent, name);
    if !places.root.is_dir() {
        return Err(LabError::None(name.clone()));
    }
    hold(places, name)
}

fn hold(places: Paths, name: &LabName) -> Result<LockedDir, LabError> {
    let path = places.root.join(LOCK);
    let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
    let lock = lock.map_err(LabError::io(format!("open {}", path.display())))?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(LockedDir { places, _lock: lock }),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(LabError::Busy(name.clone())),
        Err(error) => Err(LabError::io(format!("lock {}", path.display()))(error.into())),
    }
}

/// The stored state; `None` if there is none yet.
pub(crate) fn read(places: &Paths) -> Result<Option<State>, LabError> {
    let path = places.root.join(STATE);
    let Some(state) = read_json::<State>(&path)? else { return Ok(None) };
    if state.schema != SCHEMA {
        let reason = format!("it has schema {}, and this program knows {SCHEMA}", state.schema);
        return Err(LabError::Damaged { path, reason });
    }
    Ok(Some(state))
}

pub(crate) fn write(places: &Paths, state: &State) -> Result<(), LabError> {
    write_json(&places.root.join(STATE), state)
}

pub(crate) fn read_secrets(places: &Paths) -> Result<Secrets, LabError> {
    Ok(read_json(&places.root.join(SECRETS))?.unwrap_or_default())
}

pub(crate) fn write_secrets(places: &Paths, secrets: &Secrets) -> Result<(), LabError> {
    write_json(&places.root.join(SECRETS), secrets)
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, LabError> {
    use std::io::Read as _;
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(LabError::io(format!("read {}", path.display()))(error)),
    };
    let mut text = String::new();
    file.take(MAX_FILE_BYTES).read_to_string(&mut text).map_err(LabError::io(format!("read {}", path.display())))?;
    let damaged = |error: serde_json::Error| LabError::Damaged { path: path.to_owned(), reason: error.to_string() };
    serde_json::from_str(&text).map(Some).map_err(damaged)
}

/// Writes atomically: after a crash, the former file is still there.
fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<(), LabError> {
    let draft: PathBuf = path.with_extension("new");
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    let written = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&draft);
    written
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .and_then(|()| fs::rename(&draft, path))
        .map_err(LabError::io(format!("write {}", path.display())))
}

/// An existing laboratory.
#[derive(Debug)]
pub struct Lab {
    /// Its files.
    pub places: Paths,
    /// Its state.
    pub state: State,
    /// Its plan.
    pub plan: Plan,
    /// What is known only since it was built.
    pub secrets: Secrets,
    /// The lock, while it is changed.
    pub(crate) _lock: Option<LockedDir>,
}

impl Lab {
    /// Opens the complete laboratory of this name for changes. Other commands wait until this is dropped.
    ///
    /// # Errors
    /// There is none, it is incomplete, or another command works on it.
    pub fn open(parent: &Path, name: &LabName) -> Result<Self, LabError> {
        let held = open(parent, name)?;
        Ok(Self { _lock: Some(held), ..Self::look(parent, name)? })
    }

    /// Like [`Self::open`], for reading.
    ///
    /// # Errors
    /// There is none, or it is incomplete.
    pub fn look(parent: &Path, name: &LabName) -> Result<Self, LabError> {
        let places = places(parent, name);
        if !places.root.is_dir() {
            return Err(LabError::None(name.clone()));
        }
        let state = read(&places)?.filter(|state| state.is_whole).ok_or_else(|| LabError::Half(name.clone()))?;
        let (plan, secrets) = (Plan::new(state.topology.clone()), read_secrets(&places)?);
        Ok(Self { places, state, plan, secrets, _lock: None })
    }

    pub(crate) fn write(&self) -> Result<(), LabError> {
        write(&self.places, &self.state)
    }

    pub(crate) fn no_such(&self, name: &str) -> LabError {
        LabError::NoSuch { name: name.to_owned(), known: self.plan.names() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::TopologyOptions;

    fn state() -> State {
        let programs = Programs { lab: "/l".into(), sallyport: "/s".into(), nats_server: "/n".into(), postgres: None };
        State::new(Topology::new(&TopologyOptions::default()).unwrap(), programs)
    }

    #[test]
    fn a_written_state_is_read_and_a_partial_laboratory_is_detected() {
        let dir = tempfile::tempdir().unwrap();
        let name = LabName::default();
        assert!(matches!(Lab::open(dir.path(), &name), Err(LabError::None(_))));
        let held = create(dir.path(), &name).unwrap();
        assert!(read(&held.places).unwrap().is_none());
        let mut state = state();
        state.started.insert("eu-1".into(), Started { pid: 7, at_ticks: 8 });
        write(&held.places, &state).unwrap();
        assert!(matches!(open(dir.path(), &name), Err(LabError::Busy(_))));
        drop(held);
        assert!(matches!(Lab::open(dir.path(), &name), Err(LabError::Half(_))));
        state.is_whole = true;
        write(&places(dir.path(), &name), &state).unwrap();
        let lab = Lab::open(dir.path(), &name).unwrap();
        assert_eq!(lab.state.started, state.started);
        assert_eq!(lab.plan.nodes.len(), 15);
    }

    #[test]
    fn damaged_files_are_named_and_lose_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let held = create(dir.path(), &LabName::default()).unwrap();
        let file = held.places.root.join(STATE);
        fs::write(&file, "{").unwrap();
        let message = read(&held.places).unwrap_err().to_string();
        assert!(message.contains("state.json cannot be read"), "{message}");
        let newer = serde_json::to_string(&state()).unwrap().replace("\"schema\":1", "\"schema\":2");
        fs::write(&file, newer).unwrap();
        let message = read(&held.places).unwrap_err().to_string();
        assert!(message.contains("schema 2, and this program knows 1"), "{message}");
    }

    #[test]
    fn secrets_are_for_their_owner_alone() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let held = create(dir.path(), &LabName::default()).unwrap();
        let secrets = Secrets { password: "x".into(), ..Secrets::default() };
        write_secrets(&held.places, &secrets).unwrap();
        let mode = fs::metadata(held.places.root.join(SECRETS)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(read_secrets(&held.places).unwrap(), secrets);
    }
}
