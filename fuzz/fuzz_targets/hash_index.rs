#![no_main]

#[path = "../../core/hashmatch/tests/it/index_fuzz.rs"]
mod index_fuzz;

libfuzzer_sys::fuzz_target!(|data: &[u8]| index_fuzz::hash_index(data));
