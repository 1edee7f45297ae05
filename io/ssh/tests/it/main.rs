//! The SSH server with the real OpenSSH client (`ssh`, `ssh-keygen`, `sftp`), and with clients that do not speak SSH.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bounds;
mod clients;
mod forwards;
mod lab;
mod logins;
mod shells;
mod streams;
