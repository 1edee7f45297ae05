//! The API over a real store, request by request.

#![allow(clippy::unwrap_used)]

mod accounts;
mod creations;
mod edges;
mod harness;
mod mysocket;
mod openapi;
mod policies;
mod refusals;
mod sessions;
mod settings;
mod sockets;
mod ssh;
mod tokens;
mod tunnels;
