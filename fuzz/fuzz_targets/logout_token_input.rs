#![no_main]

#[path = "../../core/identity/tests/it/token_fuzz.rs"]
mod token_fuzz;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    token_fuzz::logout_token_input(data);
});
