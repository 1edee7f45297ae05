#![no_main]

#[path = "../../core/ssh/tests/it/fuzz_bodies.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod fuzz_bodies;

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_bodies::ssh_channels(data));
