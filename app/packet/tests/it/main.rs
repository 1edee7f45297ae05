//! The packet path with real packets: namespaces, veth pairs, and programs in the kernel.
//!
//! `gen (g0)-(d0) dut (d1)-(s0) sink`. Each test has namespaces and a bpffs of its own.
#![allow(missing_docs, clippy::unwrap_used)]

mod agree;
mod attack;
mod balance;
mod balance_model;
mod bird;
mod clock;
mod commands;
mod decap;
mod dump;
mod faults;
mod fib;
mod flows;
mod forward;
mod frames;
mod generate;
mod generate_engines;
mod hostile;
mod inner;
mod kept;
mod known_flows;
mod nat;
mod nat_model;
mod neighbors;
mod policy;
mod rig;
mod shield;
mod site;

use sallyport_packet_model::testing as model_frames;
