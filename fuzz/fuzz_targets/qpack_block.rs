#![no_main]

#[path = "../../core/http3/tests/it/qpack_fuzz.rs"]
mod qpack_fuzz;

libfuzzer_sys::fuzz_target!(|data: &[u8]| qpack_fuzz::qpack_block(data));
