//! `sallyport`: a public door for a private service, in one program.

// The doc comments of options are their help texts: shown as they are, where angle brackets and escapes have no place.
#![allow(rustdoc::bare_urls, rustdoc::broken_intra_doc_links)]

mod argv;
mod audit_args;
mod audit_stream;
mod bus_args;
mod bus_metrics;
mod cli;
mod command;
mod context;
mod control_role;
mod credentials;
mod database;
mod duration;
mod duties;
mod edge_role;
mod failure;
mod installation;
mod live;
mod local;
mod network;
mod output;
mod password;
mod port;
mod service;
mod signals;
mod telemetry;
mod threads;
mod up;
mod yaml;

fn main() -> std::process::ExitCode {
    cli::main()
}
