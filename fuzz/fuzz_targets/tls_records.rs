#![no_main]

#[path = "../../core/tls-records/tests/it/record_fuzz.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod record_fuzz;

libfuzzer_sys::fuzz_target!(|data: &[u8]| record_fuzz::tls_records(data));
