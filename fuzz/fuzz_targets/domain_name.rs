#![no_main]

#[path = "../../core/domains/tests/it/domain_fuzz.rs"]
mod domain_fuzz;

libfuzzer_sys::fuzz_target!(|data: &[u8]| domain_fuzz::domain_name(data));
