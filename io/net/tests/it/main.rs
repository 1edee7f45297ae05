//! Real handshakes over loopback, real files, real ports.

#![allow(clippy::unwrap_used)]

mod activation;
mod ca;
mod certificates;
mod connecting;
mod handshake;
mod listening;
mod local_ports;
mod outside_clients;
mod pinning;
mod proxies;
mod proxy_corpus;
mod proxy_fuzz;
mod support;
mod udp;
