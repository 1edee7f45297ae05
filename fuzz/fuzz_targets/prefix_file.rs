#![no_main]

#[path = "../../core/prefixes/tests/it/prefix_fuzz.rs"]
mod prefix_fuzz;

libfuzzer_sys::fuzz_target!(|data: &[u8]| prefix_fuzz::prefix_file(data));
