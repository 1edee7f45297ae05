//! The tunnels of this replica: one for each exposed port, held by connectors, with the pods behind it. Uses `control`
//! and `serve`.

mod carrier;
mod keeper;
mod pods;

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use sallyport_connector::TransportChoice;
use sallyport_model::{Capacity, DisplayName, PathPrefix, RegionName, SocketId};

pub(crate) use self::keeper::TunnelKeeper;

/// Which tunnel: a part of a socket, such as a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TunnelKey {
    /// The socket.
    pub(crate) socket: SocketId,
    /// The part of the socket; empty if the tunnel serves all of it.
    pub(crate) part: String,
}

/// A tunnel that this replica is to hold.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TunnelWanted {
    /// The name of the tunnel at the API.
    pub(crate) name: DisplayName,
    /// Its labels.
    pub(crate) labels: BTreeMap<String, String>,
    /// Its settings.
    pub(crate) settings: TunnelSettings,
    /// What is behind it.
    pub(crate) pool: PodPool,
}

/// Settings of a tunnel at the API.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct TunnelSettings {
    /// Its share beside other tunnels of the socket.
    pub(crate) weight: Option<u16>,
    /// The paths that it serves.
    pub(crate) path: Option<PathPrefix>,
    /// The replacement of the path.
    pub(crate) rewrite_path: Option<PathPrefix>,
    /// What it can carry.
    pub(crate) capacity: Option<Capacity>,
}

/// The pods behind a tunnel.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PodPool {
    /// Their addresses, each with whether it is on its way out; empty if there is no pod.
    pub(crate) endpoints: Vec<(SocketAddr, bool)>,
    /// Whether a client comes back to the same pod.
    pub(crate) is_sticky: bool,
    /// TLS to the pods, if they speak TLS.
    pub(crate) tls: Option<PodTls>,
    /// How long a pod may take to accept a connection; `None`: as for all.
    pub(crate) connect_timeout: Option<Duration>,
}

/// TLS to pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodTls {
    /// The name that the certificate must have.
    pub(crate) server_name: String,
    /// The fingerprint of the only accepted certificate; `None`: an authority of the system signed it.
    pub(crate) pin: Option<String>,
}

/// All tunnels that this replica is to hold.
pub(crate) type WantedTunnels = BTreeMap<TunnelKey, TunnelWanted>;

/// The settings of the connectors.
#[derive(Debug, Clone)]
pub(crate) struct TunnelOptions {
    /// At how many edges each tunnel is held.
    pub(crate) redundancy: usize,
    /// The region of the cluster.
    pub(crate) region: Option<RegionName>,
    /// The transport of the tunnels.
    pub(crate) transport: TransportChoice,
    /// After how long a silent edge gets a ping.
    pub(crate) keepalive: Duration,
    /// How long a pod may take to accept a connection.
    pub(crate) connect_timeout: Duration,
    /// The first wait after a failed call.
    pub(crate) retry: Duration,
    /// How long requests may continue at the end.
    pub(crate) drain: Duration,
}
