//! The two ports of `sallyport control`: one for the API, one for edges.

use std::{
    io,
    net::{Ipv6Addr, SocketAddr},
};

use sallyport_net::{HandOver, Takeover, TakeoverError};
use tokio::net::TcpListener;

use super::ControlArgs;
use crate::daemon::Ports;

/// A control's two ports.
pub(super) struct ControlPorts {
    /// The port of the API.
    pub(super) api: TcpListener,
    /// The port for edges.
    pub(super) edges: TcpListener,
}

impl ControlPorts {
    /// Opens both.
    ///
    /// # Errors
    /// A port is taken, or not allowed.
    pub(super) fn open(args: &ControlArgs) -> anyhow::Result<Self> {
        let everywhere = Ipv6Addr::UNSPECIFIED.into();
        let api = sallyport_net::listen(args.listen.with_default(everywhere), "--listen")?;
        let edges = sallyport_net::listen(args.listen_edges.with_default(everywhere), "--listen-edges")?;
        Ok(Self { api, edges })
    }

    /// Duplicates for a process that takes over.
    pub(super) fn to_hand_over(&self) -> io::Result<HandOver> {
        HandOver::of_control(&self.api, &self.edges)
    }
}

impl Ports for ControlPorts {
    /// The addresses of the API and of the port for edges.
    type Addresses = (SocketAddr, SocketAddr);

    fn addresses(&self) -> io::Result<Self::Addresses> {
        Ok((self.api.local_addr()?, self.edges.local_addr()?))
    }

    fn addresses_of(predecessor: &Takeover) -> io::Result<Self::Addresses> {
        Ok((predecessor.tls_addr()?, predecessor.edges_addr()?))
    }

    fn take_from(predecessor: Takeover) -> Result<Self, TakeoverError> {
        let (api, edges) = predecessor.finish_control()?;
        Ok(Self { api, edges })
    }
}
