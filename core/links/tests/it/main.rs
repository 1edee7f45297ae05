//! Tests of the choice of links and of their state machine, on virtual time.

mod choice;
mod select;
mod table;
