//! The relay of a network: what becomes of packets.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

mod corpus;
mod packet_fuzz;
mod relay;
