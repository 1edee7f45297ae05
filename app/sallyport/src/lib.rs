//! `sallyport`: a public name for a private service, in one program.
//!
//! The binary calls [`main`] and has nothing of its own: the library compiles beside the crates that it uses.
//!
//! Rooms from top to bottom, each of which uses those below it: `cli`, `command`, `roles`, `daemon`, `installation`,
//! `context`, `view`, `screen`, `inspector`, `args`, `machine`, `runtime`, `units`; and `failure`, which all but
//! `machine` use.

// Doc comments of options are help texts, shown as they are, so rustdoc's markup cannot be used.
#![allow(rustdoc::bare_urls, rustdoc::broken_intra_doc_links)]

mod args;
mod cli;
mod command;
mod context;
mod daemon;
mod failure;
mod inspector;
mod installation;
mod machine;
mod roles;
mod runtime;
mod screen;
mod units;
mod view;

use sallyport_cli::{duration, output, signals};

/// Runs the command that the program was called with.
#[must_use]
pub fn main() -> std::process::ExitCode {
    cli::complete::answer();
    cli::main()
}
