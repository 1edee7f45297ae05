//! The API over a real store, request by request.

#![allow(clippy::unwrap_used)]

mod account_access;
mod accounts;
mod admission;
mod anycast;
mod audit;
mod balancers;
mod client;
mod contract;
mod controls;
mod creations;
mod desk;
mod dns_steering;
mod domain_owners;
mod domains;
mod edges;
mod egress;
mod etags;
mod fake_hook;
mod fake_provider;
mod harness;
mod json_schema;
mod labels;
mod local;
mod login;
mod logout;
mod mysocket;
mod names;
mod networks;
mod openapi;
mod organisations;
mod origins;
mod pages;
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
