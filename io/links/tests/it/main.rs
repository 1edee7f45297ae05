//! Tests of links in a network namespace of their own. They need root, and say so if they cannot run.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

mod machine;
mod namespace;
