#![no_main]

#[path = "../../core/kube/tests/it/kube_fuzz.rs"]
#[allow(dead_code, reason = "each fuzzer uses one of the functions")]
mod kube_fuzz;

libfuzzer_sys::fuzz_target!(|data: &[u8]| kube_fuzz::annotation_map(data));
