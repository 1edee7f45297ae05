//! Names that strangers write, from the fuzzer's corpus and at random.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "tests fail by panicking")]

mod domain_fuzz;

use std::{fs, path::PathBuf};

use domain_fuzz::domain_name;
use proptest::prelude::*;

#[test]
fn every_name_of_the_corpus_passes() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/domain_name");
    let files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 10, "{} files", files.len());
    for file in files {
        println!("{}", file.display());
        domain_name(&fs::read(&file).unwrap());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn arbitrary_names_break_nothing(text in "[a-zA-Z0-9.*_äпо\u{3002}-]{0,40}") {
        domain_name(text.as_bytes());
    }
}
