//! Real sockets in network namespaces of their own, with racing processes and threads.

#![allow(clippy::unwrap_used)]
#![cfg(target_os = "linux")]

mod errors;
mod network;
mod one_port;
mod race;
