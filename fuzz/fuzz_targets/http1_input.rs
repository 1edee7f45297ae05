#![no_main]

#[path = "../../core/http1/tests/it/drive.rs"]
mod drive;
#[path = "../../core/http1/tests/it/http1_fuzz.rs"]
mod http1_fuzz;

libfuzzer_sys::fuzz_target!(|data: &[u8]| http1_fuzz::http1_input(data));
