//! The program as its users run it: the real binary, real clients, real origins.
#![allow(missing_docs)]

mod bad_input;
mod harness;
mod main_job;
mod protocols;
mod restarts;
