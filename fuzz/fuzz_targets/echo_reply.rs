#![no_main]

#[path = "../../core/ping/tests/it/reply_fuzz.rs"]
mod reply_fuzz;

libfuzzer_sys::fuzz_target!(|data: &[u8]| reply_fuzz::echo_reply(data));
