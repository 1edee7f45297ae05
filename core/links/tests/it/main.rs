//! Tests of the choice of links and of their state machine, on virtual time.
#![allow(clippy::unwrap_used)]

mod choice;
mod select;
mod table;
