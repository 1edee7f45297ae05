//! The claim of a starting server to its data directory and its ports, which are free or held by the process that it
//! replaces.

use std::{io, net::SocketAddr, path::Path};

use sallyport_net::{Listening, Takeover, TakeoverError};
use sallyport_store::{DataDirLock, LockError};

use crate::failure::{Failure, Kind};

/// The data directory and the ports, until the server takes them.
pub(crate) enum Claim<P> {
    /// This process holds both.
    Held(DataDirLock, P),
    /// Another process holds both, and still serves.
    OfPredecessor(Takeover),
}

/// The ports of a server, which a process can hand over to its successor.
pub(crate) trait Ports: Sized {
    /// The addresses of the ports.
    type Addresses;

    /// The addresses of these ports.
    fn addresses(&self) -> io::Result<Self::Addresses>;

    /// The addresses of the predecessor's ports.
    fn addresses_of(predecessor: &Takeover) -> io::Result<Self::Addresses>;

    /// Takes the ports from the predecessor, which accepts nothing from here on. Blocks.
    fn take_from(predecessor: Takeover) -> Result<Self, TakeoverError>;
}

impl Claim<()> {
    /// Locks the data directory, or asks its holder for the ports with `ask` if `is_takeover` is true.
    ///
    /// # Errors
    /// Another process holds the data directory and must not be replaced, or the directory cannot be used.
    pub(crate) fn begin(
        data: &Path,
        is_takeover: bool,
        ask: impl FnOnce(&Path) -> Result<Takeover, TakeoverError>,
    ) -> anyhow::Result<Self> {
        match DataDirLock::take(data) {
            Err(LockError::InUse { .. }) if is_takeover => {
                Ok(Self::OfPredecessor(tokio::task::block_in_place(|| ask(data))?))
            }
            Err(error @ LockError::InUse { .. }) => {
                let failure = Failure::new(Kind::Failed, error.to_string());
                Err(failure.next("to replace that process, add --takeover").into())
            }
            lock => Ok(Self::Held(lock?, ())),
        }
    }

    /// Opens the ports, unless they come from another process.
    ///
    /// # Errors
    /// A port cannot be opened.
    pub(crate) fn with_ports<P>(self, open: impl FnOnce() -> anyhow::Result<P>) -> anyhow::Result<Claim<P>> {
        Ok(match self {
            Self::Held(lock, ()) => Claim::Held(lock, open()?),
            Self::OfPredecessor(takeover) => Claim::OfPredecessor(takeover),
        })
    }
}

impl<P: Ports> Claim<P> {
    /// Whether another process is replaced.
    pub(crate) fn is_takeover(&self) -> bool {
        matches!(self, Self::OfPredecessor(_))
    }

    /// The addresses of the ports.
    ///
    /// # Errors
    /// The kernel does not report an address.
    pub(crate) fn addresses(&self) -> io::Result<P::Addresses> {
        match self {
            Self::Held(_, ports) => ports.addresses(),
            Self::OfPredecessor(takeover) => P::addresses_of(takeover),
        }
    }

    /// Takes the data directory and the ports. A replaced process accepts nothing from here on.
    ///
    /// # Errors
    /// The other process does not answer, or answers wrongly.
    pub(crate) fn take(self, data: &Path) -> anyhow::Result<(DataDirLock, P)> {
        match self {
            Self::Held(lock, ports) => Ok((lock, ports)),
            Self::OfPredecessor(takeover) => {
                let ports = tokio::task::block_in_place(|| P::take_from(takeover))?;
                Ok((DataDirLock::take(data)?, ports))
            }
        }
    }
}

impl Ports for Listening {
    type Addresses = SocketAddr;

    fn addresses(&self) -> io::Result<SocketAddr> {
        self.tls_addr()
    }

    fn addresses_of(predecessor: &Takeover) -> io::Result<SocketAddr> {
        predecessor.tls_addr()
    }

    fn take_from(predecessor: Takeover) -> Result<Self, TakeoverError> {
        predecessor.finish()
    }
}
