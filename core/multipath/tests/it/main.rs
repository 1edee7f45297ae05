//! Tests of associations, on virtual time.

mod attacks;
mod faults;
mod interface;
mod packet_corpus;
mod packet_fuzz;
mod simulator;
mod targets;
mod tcp;
