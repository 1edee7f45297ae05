#![no_main]

#[path = "../../core/wire/tests/it/fuzz_bodies.rs"]
#[allow(dead_code, reason = "each target runs one of the bodies")]
mod fuzz_bodies;

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_bodies::datagram_input(data));
