//! The binary `sallyport`.

fn main() -> std::process::ExitCode {
    sallyport::main()
}
