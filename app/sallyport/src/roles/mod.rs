//! The three servers: `up`, `control` and `edge`, and what two of them share. No role uses another. Uses `daemon`,
//! `installation`, `args`, `machine`, `runtime` and `failure`.

mod answered_edges;
mod anycast;
mod api;
pub(crate) mod control;
pub(crate) mod edge;
mod egress;
mod name_server;
mod own_address;
mod public_names;
mod quic;
mod ssh;
mod steered_edges;
pub(crate) mod up;
