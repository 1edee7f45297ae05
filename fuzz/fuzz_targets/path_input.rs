#![no_main]

#[path = "../../core/http/tests/it/path_fuzz.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod path_fuzz;

libfuzzer_sys::fuzz_target!(|data: &[u8]| path_fuzz::path_input(data));
