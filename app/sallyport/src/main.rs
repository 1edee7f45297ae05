//! `sallyport`: a public door for a private service, in one program.

mod argv;
mod cli;
mod command;
mod failure;
mod local;
mod output;
mod up;

fn main() -> std::process::ExitCode {
    cli::main()
}
