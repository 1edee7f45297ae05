//! Prints the description of the inspector's API, for `cargo xtask openapi`.

fn main() {
    print!("{}", sallyport_inspect::describe::openapi_json());
}
