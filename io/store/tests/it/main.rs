//! The store on a real disk: persistence, refusals, and recovery from faults.
//!
//! Every module but `open`, `disk` and `lock`, which are about files, runs a second time on PostgreSQL
//! (`postgres::the_suite_holds_on_postgresql`): tests take their stores from `fixtures`.

#![allow(clippy::unwrap_used)]

mod account_access;
mod anycast;
mod authorities;
mod balancers;
mod certificates;
mod controls;
mod device_logins;
mod disk;
mod domains;
mod edges;
mod egress;
mod fixtures;
mod identity;
mod landings;
mod leaders;
mod lock;
mod names;
mod networks;
mod nouns;
mod open;
mod organisations;
mod origins;
mod persons;
mod policies;
mod ports;
mod postgres;
mod ssh_keys;
mod zones;
