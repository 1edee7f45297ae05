#![no_main]

#[path = "../../core/zone/tests/it/zone_text_fuzz.rs"]
mod zone_text_fuzz;

libfuzzer_sys::fuzz_target!(|data: &[u8]| zone_text_fuzz::zone_text(data));
