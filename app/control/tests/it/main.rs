//! The API over a real store, request by request.

#![allow(clippy::unwrap_used)]

mod accounts;
mod audit;
mod client;
mod controls;
mod creations;
mod edges;
mod fake_hook;
mod fake_provider;
mod harness;

mod local;
mod login;
mod mysocket;
mod openapi;
mod organisations;
mod origins;
mod persons;
mod policies;
#[path = "../../../../io/store/tests/it/postgres/server.rs"]
mod postgres;
mod real_providers;
mod refusals;
mod roles;
mod service_tokens;
mod sessions;
mod settings;
mod sockets;
mod ssh;
mod sshd;
mod tokens;
mod tunnels;
mod web;
