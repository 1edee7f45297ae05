#![no_main]

#[path = "../../core/inspect/tests/it/inspect_fuzz.rs"]
mod inspect_fuzz;

libfuzzer_sys::fuzz_target!(|data: &[u8]| inspect_fuzz::inspect_stream(data));
