//! A network namespace without a name. The kernel removes it with everything in it once no thread, socket or handle of
//! it is left, whatever ends this process.

use std::{
    fs::File,
    os::fd::{AsFd as _, AsRawFd as _},
    path::Path,
    process::Command,
    thread,
};

use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, setns, unshare},
};

use crate::{kernel, measurements::frame::RunError};

/// The namespace of the thread that opens this file.
const OWN: &str = "/proc/thread-self/ns/net";
/// The mounts of the thread that opens this file.
const OWN_MOUNTS: &str = "/proc/thread-self/ns/mnt";
/// Where maps and programs of the kernel have names.
const BPF: &str = "/sys/fs/bpf";

/// A network namespace.
#[derive(Debug)]
pub(crate) struct Space {
    network: File,
    /// A mount namespace with a bpffs of its own.
    mounts: Option<File>,
}

impl Space {
    /// A new one, with its loopback device up.
    pub(crate) fn new() -> Result<Self, RunError> {
        Self::made(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            Ok(Self { network: File::open(OWN)?, mounts: None })
        })
    }

    /// A new one in which `/sys/fs/bpf` is empty, and is gone with it.
    pub(crate) fn with_bpf() -> Result<Self, RunError> {
        if !Path::new(BPF).exists() {
            return Err(RunError::Missing { what: BPF.to_owned(), how: "use a kernel with CONFIG_BPF_SYSCALL" });
        }
        Self::made(|| {
            unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS)?;
            let none = None::<&str>;
            mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
            mount(Some("bpf"), BPF, Some("bpf"), MsFlags::empty(), none)?;
            Ok(Self { network: File::open(OWN)?, mounts: Some(File::open(OWN_MOUNTS)?) })
        })
    }

    /// What this makes in a thread of its own.
    fn made(make: impl FnOnce() -> std::io::Result<Self> + Send) -> Result<Self, RunError> {
        let made = thread::scope(|scope| scope.spawn(make).join()).unwrap_or_else(|_| Err(ended()));
        let space = made.map_err(RunError::io("make a network namespace"))?;
        space.ip("link set lo up\n")?;
        Ok(space)
    }

    /// Does this within the namespace, in a thread that ends with it.
    pub(crate) fn within<T: Send>(&self, work: impl FnOnce() -> Result<T, RunError> + Send) -> Result<T, RunError> {
        let inside = || {
            self.enter()?;
            work()
        };
        thread::scope(|scope| scope.spawn(inside).join())
            .unwrap_or_else(|_| Err(RunError::io("work in a network namespace")(ended())))
    }

    /// Moves this thread into the namespace, for the rest of its life.
    pub(crate) fn enter(&self) -> Result<(), RunError> {
        let enter = || {
            if let Some(mounts) = &self.mounts {
                // A thread changes its mounts once it shares no working directory.
                unshare(CloneFlags::CLONE_FS)?;
                setns(mounts.as_fd(), CloneFlags::CLONE_NEWNS)?;
            }
            setns(self.network.as_fd(), CloneFlags::CLONE_NEWNET)
        };
        enter().map_err(|error| RunError::io("enter a network namespace")(error.into()))
    }

    /// Runs these lines by `ip`.
    pub(crate) fn ip(&self, lines: &str) -> Result<(), RunError> {
        self.within(|| {
            kernel::run(Command::new("ip").args(["-batch", "-"]), lines)?;
            Ok(())
        })
    }

    /// A path of the namespace for other programs, while this process has it.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.network.as_raw_fd())
    }

    /// Writes settings below `/proc/sys/net`.
    pub(crate) fn set(&self, settings: &[(&str, &str)]) -> Result<(), RunError> {
        self.within(|| {
            settings.iter().try_for_each(|(name, value)| {
                std::fs::write(format!("/proc/sys/net/{name}"), value).map_err(RunError::io("change a setting"))
            })
        })
    }
}

fn ended() -> std::io::Error {
    std::io::Error::other("the thread ended")
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_namespace_has_its_own_loopback_and_is_gone_with_its_handle() {
        if !kernel::is_root() {
            println!("skipped: network namespaces need root");
            return;
        }
        let space = Space::new().unwrap();
        let listener = space.within(|| TcpListener::bind("127.0.0.1:0").map_err(RunError::io("listen"))).unwrap();
        let address = listener.local_addr().unwrap();
        space.within(|| TcpStream::connect(address).map(drop).map_err(RunError::io("connect"))).unwrap();
        assert!(TcpStream::connect(address).is_err(), "the port is not that of the machine");
        space.set(&[("ipv4/ip_local_port_range", "40000 40001")]).unwrap();
        let wrong = space.ip("link set nothing up\n").unwrap_err().to_string();
        assert!(wrong.contains("nothing"), "{wrong}");
        assert!(kernel::namespaces("").iter().all(|name| !name.contains("measure")));
    }
}
