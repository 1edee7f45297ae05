#![no_main]

#[path = "../../core/zone/tests/it/query_fuzz.rs"]
mod query_fuzz;

libfuzzer_sys::fuzz_target!(|data: &[u8]| query_fuzz::dns_query(data));
