//! The program as its users run it: the real binary, real clients, real origins.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod audit;
mod bad_input;
mod browser;
mod client;
mod clock;
mod commands;
mod database;
mod edges;
mod harness;
mod machines;
mod main_job;
mod miniflux;
mod observed;
mod organisations;
mod original_client;
mod policies;
mod protocols;
mod restarts;
mod run;
mod ssh;
mod ssh_certificates;
mod ssh_life;
mod tcp;
mod terminal;
mod tls;
mod transports;
mod udp;
