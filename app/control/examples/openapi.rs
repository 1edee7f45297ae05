//! Prints the description of the API, for `cargo xtask openapi`.

fn main() {
    print!("{}", sallyport_control::openapi_json());
}
