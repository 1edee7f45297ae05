//! The tunnel protocol: both ends against each other over simulated links, and each end against arbitrary input.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod corpus;
mod datagrams;
mod edge_selector;
mod fuzz_bodies;
mod legs;
mod lifetime;
mod link;
mod many;
mod messages;
mod misbehaviour;
mod random;
mod streams;
