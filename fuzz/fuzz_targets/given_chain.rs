#![no_main]

#[path = "../../core/pki/tests/it/chain_fuzz.rs"]
mod chain_fuzz;

libfuzzer_sys::fuzz_target!(|data: &[u8]| chain_fuzz::given_chain(data));
