#![no_main]

#[path = "../../core/http2/tests/it/frames_fuzz.rs"]
mod frames_fuzz;

libfuzzer_sys::fuzz_target!(|data: &[u8]| frames_fuzz::frames_input(data));
