#![no_main]

#[path = "../../core/packet/tests/it/parse_fuzz.rs"]
mod parse_fuzz;

libfuzzer_sys::fuzz_target!(|data: &[u8]| parse_fuzz::packet_frame(data));
