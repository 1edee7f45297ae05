#![no_main]

#[path = "../../core/http3/tests/it/request_fuzz.rs"]
mod request_fuzz;

libfuzzer_sys::fuzz_target!(|data: &[u8]| request_fuzz::http3_request(data));
