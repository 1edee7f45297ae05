//! Replacing the `sallyport control` that runs on the same data directory.

use std::{
    net::{Ipv6Addr, SocketAddr},
    path::Path,
};

use sallyport_net::{HandOver, Takeover};
use sallyport_store::{DataDirLock, LockError};
use tokio::net::TcpListener;

use super::ControlArgs;
use crate::failure::{Failure, Kind};

/// A control's two ports.
pub(super) struct Ports {
    /// Where the API is served.
    pub(super) api: TcpListener,
    /// Where edges come.
    pub(super) edges: TcpListener,
}

impl Ports {
    fn open(args: &ControlArgs) -> anyhow::Result<Self> {
        let everywhere = Ipv6Addr::UNSPECIFIED.into();
        let api = sallyport_net::listen(args.listen.with_default(everywhere), "--listen")?;
        let edges = sallyport_net::listen(args.listen_edges.with_default(everywhere), "--listen-edges")?;
        Ok(Self { api, edges })
    }

    /// Copies, for a process that takes over.
    pub(super) fn to_hand_over(&self) -> std::io::Result<HandOver> {
        HandOver::of_control(&self.api, &self.edges)
    }
}

/// Who has the data directory and the ports while this process makes sure that it can run.
pub(super) enum Held {
    ByUs(DataDirLock, Ports),
    ByOther(Takeover),
}

impl Held {
    /// All for this process alone, or what a process that is to be replaced offers; that one serves on.
    pub(super) fn begin(args: &ControlArgs) -> anyhow::Result<Self> {
        match DataDirLock::take(&args.data) {
            Err(LockError::InUse { .. }) if args.takeover => {
                Ok(Self::ByOther(tokio::task::block_in_place(|| Takeover::begin_control(&args.data))?))
            }
            Err(error @ LockError::InUse { .. }) => {
                let failure = Failure::new(Kind::Failed, error.to_string());
                Err(failure.next("to replace that process, add --takeover").into())
            }
            held => Ok(Self::ByUs(held?, Ports::open(args)?)),
        }
    }

    pub(super) fn is_by_other(&self) -> bool {
        matches!(self, Self::ByOther(_))
    }

    /// Where the API is served, and where edges come.
    pub(super) fn addresses(&self) -> std::io::Result<(SocketAddr, SocketAddr)> {
        match self {
            Self::ByUs(_, ports) => Ok((ports.api.local_addr()?, ports.edges.local_addr()?)),
            Self::ByOther(takeover) => Ok((takeover.tls_addr()?, takeover.edges_addr()?)),
        }
    }

    /// All that is held; a process that is replaced takes nothing new from here on.
    pub(super) fn take(self, data: &Path) -> anyhow::Result<(DataDirLock, Ports)> {
        match self {
            Self::ByUs(lock, ports) => Ok((lock, ports)),
            Self::ByOther(takeover) => {
                let (api, edges) = tokio::task::block_in_place(|| takeover.finish_control())?;
                Ok((DataDirLock::take(data)?, Ports { api, edges }))
            }
        }
    }
}
