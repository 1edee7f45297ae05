//! The program as users run it: the real binary, real clients, real origins.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod accounts;
mod audit;
mod authority;
mod bad_input;
mod browser;
mod bulk;
mod bus_delay;
mod bus_of_edges;
mod catchment;
mod client;
mod clock;
mod cloud_init;
mod commands;
#[path = "../../../control/tests/it/contract.rs"]
mod contract;
mod control_takeover;
mod controls;
mod database;
mod direct;
mod dns_steering;
mod edge_quic_and_geo;
mod edges;
mod fleet;
mod fleet_faults;
mod gather;
mod harness;
#[path = "../../../../io/probe/tests/it/hostile.rs"]
mod hostile;
mod http3;
mod http3_client;
mod http3_early;
mod http3_moves;
mod http3_paths;
mod http3_takeover;
#[path = "../../../control/tests/it/json_schema.rs"]
mod json_schema;
mod lab;
mod lab_faults;
mod lab_start;
mod lab_steering;
mod landings;
mod losing;
mod machines;
mod main_job;
mod measuring;
mod memory;
mod mesh;
mod mesh_ends;
mod miniflux;
mod name_server;
mod names;
#[path = "../../../../io/probe/tests/it/networks.rs"]
mod networks;
mod observed;
mod organisations;
mod original_client;
mod pebble;
mod ping;
mod policies;
#[path = "../../../../io/store/tests/it/postgres/server.rs"]
mod postgres;
mod protocols;
mod public_names;
mod public_names_faults;
mod public_names_fleet;
mod public_server;
mod regions;
mod restarts;
mod run;
mod ssh;
mod ssh_certificates;
mod ssh_life;
mod status;
mod steering;
mod steering_faults;
mod steering_leads;
mod tcp;
mod terminal;
mod tls;
mod transports;
mod udp;
mod web;
mod wrk;
