//! The client of ACME against Pebble, a real CA for tests, and against a proxy before it that does what CAs do wrong.

#![allow(clippy::unwrap_used)]

mod accounts;
mod faults;
mod issue;
mod pebble;
mod proxy;
mod responder;
mod resume;
mod site;
