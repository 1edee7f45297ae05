//! The edge: takes clients and tunnels on one TLS port, and brings requests to origins.
//!
//! The way of a request is `http::request::serve`, that of a TCP or TLS connection `tcp::flow::serve`, and that of a datagram
//! `udp::Server::take`: functions of named steps. Rooms, from the bottom to the top; each uses those above it in this list:
//!
//! - `util`, `lifecycle`: small tools; phases, readiness, counts of what runs.
//! - `config`, `metrics`: what is set, and what is counted.
//! - `client`, `policy`, `body`: the client's side of a connection; decisions; bodies of requests.
//! - `origins`: which origins a socket has, how they are, which one is chosen, and how it is reached.
//! - `state`: the state that all rooms above share.
//! - `record`, `access`: what remains of a flow; who may come in.
//! - `http`, `tcp`, `udp`: the three ways.
//! - `ssh`, `tunnels`, `mesh`: stock ssh clients, connectors, and other edges.
//! - `edge`, `listener`, `serve`: the edge as a whole, its ports, and its life.

mod access;
mod body;
mod client;
mod config;
mod edge;
mod http;
mod lifecycle;
mod listener;
mod mesh;
mod metrics;
mod origins;
mod policy;
mod record;
mod serve;
mod ssh;
mod state;
mod tcp;
mod tunnels;
mod udp;
mod util;

pub use self::{
    body::upload::{ApiBody, ApiRequestBody, BoxError},
    config::{AffinityKey, EdgeAudit, EdgeConfig, EdgeIdentity},
    edge::Edge,
    http::server::{ApiService, HealthNotes},
    lifecycle::{phase::DrainReport, readiness::Readiness},
    mesh::{MeshSettings, MeshTls, MeshTlsPair},
    ssh::{SshCaller, SshForwardAuthorizer, SshSettings, SshTarget},
    tunnels::lookup::{AskTunnel, TunnelStatus},
};
