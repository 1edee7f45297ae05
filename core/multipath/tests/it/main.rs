//! Tests of associations, on virtual time.

mod interface;
mod simulator;
mod targets;
mod tcp;
