//! Real BIRD in networks of their own.

mod announce;
mod faults;
mod fuzzed;
mod network;
mod refused;
mod rpki;
