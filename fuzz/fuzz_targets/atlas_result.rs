#![no_main]

#[path = "../../core/catchment/tests/it/atlas_fuzz.rs"]
mod atlas_fuzz;

libfuzzer_sys::fuzz_target!(|data: &[u8]| atlas_fuzz::atlas_result(data));
