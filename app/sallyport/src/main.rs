//! `sallyport`: a public door for a private service, in one program.

mod argv;
mod cli;
mod command;
mod context;
mod credentials;
mod duration;
mod failure;
mod live;
mod local;
mod output;
mod password;
mod signals;
mod telemetry;
mod up;

fn main() -> std::process::ExitCode {
    cli::main()
}
