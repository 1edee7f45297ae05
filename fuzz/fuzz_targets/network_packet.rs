#![no_main]

#[path = "../../core/network/tests/it/packet_fuzz.rs"]
mod packet_fuzz;

libfuzzer_sys::fuzz_target!(|data: &[u8]| packet_fuzz::network_packet(data));
