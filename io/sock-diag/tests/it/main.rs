//! Real connections, read and judged.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

mod limits;
mod network;
mod targets;
