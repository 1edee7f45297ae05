//! Another network namespace, which a thread visits.

use std::{
    fs::File,
    io,
    os::fd::{AsFd as _, OwnedFd},
};

use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
    thread::{LinkNameSpaceType, move_into_link_name_space},
};

use crate::{XdpError, error::pinned};

/// Where `ip netns` keeps namespaces by their names.
const NAMED: &str = "/run/netns";

/// A network namespace.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    file: OwnedFd,
}

impl Namespace {
    /// Opens a namespace by its name, or by the path of its file.
    ///
    /// # Errors
    /// There is none.
    pub fn open(name: &str) -> Result<Self, XdpError> {
        let path = if name.contains('/') { name.to_owned() } else { format!("{NAMED}/{name}") };
        // A pipe without a writer would keep the command waiting.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = match rustix::fs::open(&path, flags, Mode::empty()).map_err(io::Error::from) {
            Ok(file) if !matches!(name, "" | "." | "..") => file,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(pinned(format!("open {path}"))(error));
            }
            _ => return Err(XdpError::NoNamespace(name.to_owned())),
        };
        Ok(Self { name: name.to_owned(), file })
    }

    /// Moves this thread into the namespace. The end of what is returned moves it back.
    ///
    /// # Errors
    /// The file is no network namespace, or the process may not.
    pub fn enter(&self) -> Result<Visit, XdpError> {
        let home = File::open("/proc/thread-self/ns/net").map_err(pinned("open the own network namespace"))?;
        move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network)).map_err(
            |error| match error {
                Errno::INVAL | Errno::NOTTY => XdpError::NotANamespace(self.name.clone()),
                error => pinned(format!("enter the network namespace {}", self.name))(error.into()),
            },
        )?;
        Ok(Visit { home: home.into() })
    }
}

/// A thread that is in another namespace.
#[derive(Debug)]
pub struct Visit {
    home: OwnedFd,
}

impl Visit {
    /// Moves back.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn leave(self) -> Result<(), XdpError> {
        self.go_home().map_err(|error| pinned("go back to the own network namespace")(error.into()))
    }

    fn go_home(&self) -> Result<(), Errno> {
        move_into_link_name_space(self.home.as_fd(), Some(LinkNameSpaceType::Network))
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        // `leave` reports; a way out by an error has its own sentence.
        let _ = self.go_home();
    }
}
