#![no_main]

#[path = "../../core/anycast/tests/it/anycast_fuzz.rs"]
#[allow(dead_code, reason = "each fuzzer uses one of the functions")]
mod anycast_fuzz;

libfuzzer_sys::fuzz_target!(|data: &[u8]| anycast_fuzz::as_relations(data));
