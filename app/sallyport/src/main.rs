//! `sallyport`: a public door for a private service, in one program.

// The doc comments of options are their help texts: shown as they are, where angle brackets and escapes have no place.
#![allow(rustdoc::bare_urls, rustdoc::broken_intra_doc_links)]

mod account;
mod argv;
mod audit_args;
mod audit_stream;
mod bus_args;
mod bus_metrics;
mod cli;
mod columns;
mod command;
mod complete;
mod context;
mod control_role;
mod credentials;
mod database;
mod duties;
mod edge_role;
mod failure;
mod help;
mod installation;
mod live;
mod local;
mod mail_args;
mod memory;
mod network;
mod password;
mod port;
mod process_metrics;
mod processes;
mod service;
mod site_args;
mod telemetry;
mod threads;
mod up;

use sallyport_cli::{duration, output, signals};

fn main() -> std::process::ExitCode {
    complete::answer();
    cli::main()
}
