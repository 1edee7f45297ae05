//! The pinned maps of a router, the folder that they are in, and the lock of those who change it.

use std::{
    fs::{self, DirBuilder, File},
    io::ErrorKind,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use libbpf_rs::MapHandle;

use crate::{
    XdpError,
    error::{asked, pinned},
};

/// The folder among the pins that a command locks while it changes the router.
const LOCK: &str = "change";
/// The folder among the pins that names the network namespace of the state: this and the inode of the namespace.
const NAMESPACE: &str = "net-";
/// Where `ip netns` keeps namespaces that no process is in.
const NAMED_NAMESPACES: &str = "/run/netns";
/// The most processes that are looked at.
const MAX_PROCESSES: usize = 1 << 20;
/// How often a lock is tried whose folder another command has removed.
const LOCK_TRIES: usize = 10;
/// Rights of the folder: others could lock it, and stop every command by that.
const OWN: u32 = 0o700;

/// A map in this folder.
pub(crate) fn map(pins: &Path, name: &str) -> Result<MapHandle, XdpError> {
    let path = pins.join(name);
    if !path.try_exists().map_err(pinned(format!("look for {}", path.display())))? {
        return Err(XdpError::NotUp);
    }
    MapHandle::from_pinned_path(&path).map_err(asked(format!("open {}", path.display())))
}

fn is_in_bpffs(folder: &Path) -> Result<bool, XdpError> {
    let status = rustix::fs::statfs(folder).map_err(std::io::Error::from);
    let status = status.map_err(pinned(format!("look at {}", folder.display())))?;
    // BPF_FS_MAGIC
    Ok(status.f_type as u64 == 0xcafe_4a11)
}

/// Makes the folder for this user alone, in a bpffs where no other user can exchange it.
pub(crate) fn make_folder(pins: &Path) -> Result<(), XdpError> {
    let made = DirBuilder::new().recursive(true).mode(OWN).create(pins);
    made.map_err(|error| match error.kind() {
        // The kernel refuses new folders in /sys, where bpffs is not mounted.
        ErrorKind::NotFound | ErrorKind::PermissionDenied if rustix::process::geteuid().is_root() => {
            XdpError::NoBpffs(pins.to_owned())
        }
        _ => pinned(format!("make {}", pins.display()))(error),
    })?;
    if !is_in_bpffs(pins)? {
        drop(fs::remove_dir(pins));
        return Err(XdpError::NoBpffs(pins.to_owned()));
    }
    let own = rustix::process::geteuid().as_raw();
    for folder in pins.ancestors() {
        if folder != pins && !is_in_bpffs(folder)? {
            break;
        }
        let looked = || pinned(format!("look at {}", folder.display()));
        let found = fs::symlink_metadata(folder).map_err(looked())?;
        // In a folder with the sticky bit, others cannot rename what is not theirs.
        let is_open = found.mode() & 0o022 != 0 && (folder == pins || found.mode() & 0o1000 == 0);
        if !found.is_dir() || ![0, own].contains(&found.uid()) || is_open {
            return Err(XdpError::UnsafeFolder(folder.to_owned()));
        }
        if folder == pins && found.mode() & 0o777 != OWN {
            fs::set_permissions(folder, fs::Permissions::from_mode(OWN)).map_err(looked())?;
        }
    }
    Ok(())
}

/// The lock of a command that changes the router.
#[derive(Debug)]
pub struct Changing {
    folder: PathBuf,
    _lock: File,
}

impl Changing {
    pub(crate) fn begin(pins: &Path) -> Result<Self, XdpError> {
        let folder = pins.join(LOCK);
        let tried = || pinned(format!("lock {}", folder.display()));
        for _ in 0..LOCK_TRIES {
            make_folder(pins)?;
            DirBuilder::new().recursive(true).mode(OWN).create(&folder).map_err(tried())?;
            let Ok(lock) = File::open(&folder) else { continue };
            rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive)
                .map_err(|_| XdpError::Changing)?;
            // The command before may have removed the folder that is locked here.
            let is_same =
                fs::metadata(&folder).is_ok_and(|now| lock.metadata().is_ok_and(|own| own.ino() == now.ino()));
            if is_same {
                let changing = Self { folder, _lock: lock };
                claim(pins)?;
                return Ok(changing);
            }
        }
        Err(XdpError::Changing)
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        drop(fs::remove_dir(&self.folder));
        // Only where nothing stands is the folder above empty.
        if let Some(pins) = self.folder.parent() {
            if !has_state(pins) {
                for mark in namespaces(pins) {
                    drop(fs::remove_dir(pins.join(format!("{NAMESPACE}{mark}"))));
                }
            }
            drop(fs::remove_dir(pins));
        }
    }
}

/// Refuses to read the state of another network namespace that lives: its devices are not those of this one.
pub(crate) fn require_own(pins: &Path) -> Result<(), XdpError> {
    let own = own_namespace()?;
    let others = namespaces(pins);
    if others.contains(&own) || !others.into_iter().any(is_alive) {
        return Ok(());
    }
    Err(XdpError::OtherNamespace(pins.to_owned()))
}

/// The inode of the network namespace of this process.
fn own_namespace() -> Result<u64, XdpError> {
    let found = fs::metadata("/proc/thread-self/ns/net").map_err(pinned("look at the own network namespace"))?;
    Ok(found.ino())
}

/// Takes the state for the network namespace of this process.
///
/// The state of another namespace that lives is left alone: its programs would have no pins any more.
fn claim(pins: &Path) -> Result<(), XdpError> {
    let own = own_namespace()?;
    for other in namespaces(pins).into_iter().filter(|other| *other != own) {
        if has_state(pins) && is_alive(other) {
            return Err(XdpError::OtherNamespace(pins.to_owned()));
        }
        drop(fs::remove_dir(pins.join(format!("{NAMESPACE}{other}"))));
    }
    let mark = pins.join(format!("{NAMESPACE}{own}"));
    let made = DirBuilder::new().recursive(true).mode(OWN).create(&mark);
    made.map_err(pinned(format!("make {}", mark.display())))
}

/// The names in the folder.
fn names(pins: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(pins).into_iter().flatten().filter_map(Result::ok);
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned())
}

/// The namespaces that the folder names, by their inodes.
fn namespaces(pins: &Path) -> Vec<u64> {
    names(pins).filter_map(|name| name.strip_prefix(NAMESPACE)?.parse().ok()).collect()
}

/// Whether the folder has more than the lock and the names of namespaces.
fn has_state(pins: &Path) -> bool {
    names(pins).any(|name| name != LOCK && !name.starts_with(NAMESPACE))
}

/// Whether a process is in this network namespace, or `ip netns` keeps it.
fn is_alive(inode: u64) -> bool {
    let is_named = |entry: fs::DirEntry| fs::metadata(entry.path()).is_ok_and(|found| found.ino() == inode);
    if fs::read_dir(NAMED_NAMESPACES).into_iter().flatten().filter_map(Result::ok).any(is_named) {
        return true;
    }
    let link = PathBuf::from(format!("net:[{inode}]"));
    let mut processes = fs::read_dir("/proc").into_iter().flatten().take(MAX_PROCESSES).filter_map(Result::ok);
    processes.any(|process| fs::read_link(process.path().join("ns/net")).is_ok_and(|found| found == link))
}
