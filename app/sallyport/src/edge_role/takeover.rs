//! Replacing the `sallyport edge` that runs on the same data directory.

use std::{net::SocketAddr, path::Path};

use sallyport_net::{Listening, OwnPorts, Takeover};
use sallyport_store::{DataDirLock, LockError};

use super::EdgeArgs;
use crate::{
    failure::{Failure, Kind},
    up::args::RedirectAddress,
};

/// Who has the data directory and the ports while this process makes sure that it can run.
pub(super) enum Held {
    ByUs(DataDirLock, Listening),
    ByOther(Takeover),
}

impl Held {
    /// All for this process alone, or what a process that is to be replaced offers; that one serves on.
    pub(super) fn begin(args: &EdgeArgs, data: &Path) -> anyhow::Result<Self> {
        match DataDirLock::take(data) {
            Err(LockError::InUse { .. }) if args.takeover => {
                Ok(Self::ByOther(tokio::task::block_in_place(|| Takeover::begin(data))?))
            }
            Err(error @ LockError::InUse { .. }) => {
                let failure = Failure::new(Kind::Failed, error.to_string());
                Err(failure.next("to replace that process, add --takeover").into())
            }
            held => Ok(Self::ByUs(held?, listen(args)?)),
        }
    }

    pub(super) fn is_by_other(&self) -> bool {
        matches!(self, Self::ByOther(_))
    }

    /// Where clients come.
    pub(super) fn address(&self) -> std::io::Result<SocketAddr> {
        match self {
            Self::ByUs(_, listening) => listening.tls_addr(),
            Self::ByOther(takeover) => takeover.tls_addr(),
        }
    }

    /// All that is held; a process that is replaced takes nothing new from here on.
    pub(super) fn take(self, data: &Path) -> anyhow::Result<(DataDirLock, Listening)> {
        match self {
            Self::ByUs(lock, listening) => Ok((lock, listening)),
            Self::ByOther(takeover) => {
                let listening = tokio::task::block_in_place(|| takeover.finish())?;
                Ok((DataDirLock::take(data)?, listening))
            }
        }
    }
}

/// The sockets that systemd opened for us, else our own.
fn listen(args: &EdgeArgs) -> anyhow::Result<Listening> {
    if let Some(listening) = Listening::from_systemd()? {
        return Ok(listening);
    }
    let tls = sallyport_net::listen(args.listen.with_default(std::net::Ipv6Addr::UNSPECIFIED.into()), "--listen")?;
    let redirect = match args.listen_http {
        RedirectAddress::Nowhere => None,
        RedirectAddress::At(at) => {
            let ip = tls.local_addr()?.ip();
            Some(sallyport_net::listen(at.with_default(ip), "--listen-http")?)
        }
    };
    Ok(Listening { tls, redirect, own: OwnPorts::default() })
}
