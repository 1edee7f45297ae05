#![no_main]

#[path = "../../core/catchment/tests/it/chaos_fuzz.rs"]
mod chaos_fuzz;

libfuzzer_sys::fuzz_target!(|data: &[u8]| chaos_fuzz::chaos_reply(data));
