#![no_main]

#[path = "../../io/net/tests/it/proxy_fuzz.rs"]
mod proxy_fuzz;

libfuzzer_sys::fuzz_target!(|data: &[u8]| proxy_fuzz::proxy_header(data));
