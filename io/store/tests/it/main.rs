//! The store on a real disk: what it keeps, what it refuses, what it survives.

#![allow(clippy::unwrap_used)]

mod authorities;
mod disk;
mod fixtures;
mod identity;
mod lock;
mod nouns;
mod open;
mod policies;
mod ports;
mod ssh_keys;
