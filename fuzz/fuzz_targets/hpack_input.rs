#![no_main]

#[path = "../../core/http2/tests/it/hpack_fuzz.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod hpack_fuzz;

libfuzzer_sys::fuzz_target!(|data: &[u8]| hpack_fuzz::hpack_input(data));
