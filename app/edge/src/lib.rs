//! The edge: accepts clients and tunnels on one TLS port, and passes requests to origins.
//!
//! A request takes the path of `http::request::serve`, a TCP or TLS connection that of `tcp::flow::serve`, and a
//! datagram that of `udp::Server::take`: functions of named steps. Rooms, from the bottom to the top; each uses those
//! above it in this list:
//!
//! - `util`, `lifecycle`: small tools; phases, readiness, counts of running work.
//! - `config`, `metrics`: the configuration, and the counters.
//! - `client`, `policy`, `body`: the client's side of a connection; decisions; bodies of requests.
//! - `origins`: the origins of a socket, their health, the selection of one, and the connection to it.
//! - `state`: the state that all rooms above share.
//! - `record`, `access`: the records of a flow; admission.
//! - `http`, `tcp`, `udp`: the three kinds of traffic.
//! - `ssh`, `tunnels`, `mesh`: stock ssh clients, connectors, and other edges.
//! - `steering`: reports of load, and the quotas of the leading control.
//! - `measure`: the round trips to other edges, to origins, and to hosts that control names.
//! - `anycast`: the prefixes that the edge announces by BGP.
//! - `networks`: the packets of machines of networks.
//! - `balanced`: what stands at this machine when the edge is behind a balancer.
//! - `edge`, `listener`, `serve`: the edge as a whole, its ports, and its life.

mod access;
mod anycast;
mod balanced;
mod body;
mod client;
mod config;
mod edge;
mod http;
mod lifecycle;
mod listener;
mod measure;
mod mesh;
mod metrics;
mod networks;
mod origins;
mod policy;
mod record;
mod serve;
mod ssh;
mod state;
mod steering;
mod tcp;
mod tunnels;
mod udp;
mod util;

pub use self::{
    anycast::{AnycastSettings, FlowSettings, LiveEdges, SharedChecks, SiteEdges},
    balanced::BalancedSettings,
    body::upload::{ApiBody, ApiRequestBody, BoxError},
    config::{AffinityKey, EdgeAudit, EdgeConfig, EdgeIdentity, EgressSettings, Renewed},
    edge::Edge,
    http::server::{ApiService, HealthNotes},
    lifecycle::{phase::ShutdownReport, readiness::Readiness},
    listener::quic::Http3Offer,
    mesh::{MeshSettings, MeshTls, MeshTlsPair},
    ssh::{SshCaller, SshForwardAuthorizer, SshSettings, SshTarget},
    steering::SteeringSettings,
    tunnels::lookup::{AskTunnel, TunnelStatus},
};
