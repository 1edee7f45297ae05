//! The edge in one process with real TLS, real connectors and real origins.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

mod access;
mod affinity;
mod attempts;
mod audit;
mod balance;
mod bodies;
mod clients;
mod direct;
mod early_answers;
mod edges;
mod flows;
mod forwarding;
mod handshakes;
mod harness;
mod health;
mod http1;
mod http1_connections;
mod http2;
mod http2_frames;
mod http2_limits;
mod http2_messages;
mod http2_websockets;
mod identity;
mod identity_flows;
mod identity_machines;
mod identity_tls;
mod instructions;
mod intermediary;
mod limits;
mod malformed;
mod mesh;
mod mesh_origins;
mod networks;
mod origins;
mod raw_http2;
mod revocation;
mod shares;
mod spread;
mod udp;
