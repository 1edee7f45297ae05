#![no_main]

#[path = "../../core/multipath/tests/it/packet_fuzz.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod packet_fuzz;

libfuzzer_sys::fuzz_target!(|data: &[u8]| packet_fuzz::multipath_packet(data));
