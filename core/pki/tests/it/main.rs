//! Chains of certificates that strangers give, from the fuzzer's corpus.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "tests fail by panicking")]

mod chain_fuzz;

use std::{fs, path::PathBuf};

use chain_fuzz::given_chain;

#[test]
fn every_chain_of_the_corpus_passes() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/given_chain");
    let files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 10, "{} files", files.len());
    for file in files {
        println!("{}", file.display());
        given_chain(&fs::read(&file).unwrap());
    }
}
