//! The committed description of the inspector's API is current.

#[test]
fn the_committed_description_is_up_to_date() {
    let committed = include_str!("../../../../api/inspector.json");
    let generated = sallyport_inspect::describe::openapi_json();
    assert!(committed == generated, "api/inspector.json is out of date: run `cargo xtask openapi`");
}
