//! A network namespace without a name. The kernel removes it with everything in it once no thread, socket or handle of
//! it is left, whatever ends this process.

use std::{fs::File, os::fd::AsFd as _, process::Command, thread};

use nix::sched::{CloneFlags, setns, unshare};

use crate::{kernel, measurements::frame::RunError};

/// The namespace of the thread that opens this file.
const OWN: &str = "/proc/thread-self/ns/net";

/// A network namespace.
#[derive(Debug)]
pub(crate) struct Space(File);

impl Space {
    /// A new one, with its loopback device up.
    pub(crate) fn new() -> Result<Self, RunError> {
        let make = || {
            unshare(CloneFlags::CLONE_NEWNET)?;
            File::open(OWN)
        };
        let made = thread::scope(|scope| scope.spawn(make).join()).unwrap_or_else(|_| Err(ended()));
        let space = Self(made.map_err(RunError::io("make a network namespace"))?);
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
        let entered = setns(self.0.as_fd(), CloneFlags::CLONE_NEWNET).map_err(Into::into);
        entered.map_err(RunError::io("enter a network namespace"))
    }

    /// Runs these lines by `ip`.
    pub(crate) fn ip(&self, lines: &str) -> Result<(), RunError> {
        self.within(|| {
            kernel::run(Command::new("ip").args(["-batch", "-"]), lines)?;
            Ok(())
        })
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
