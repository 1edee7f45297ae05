//! The corpus of the fuzzer of logout tokens, replayed.

use std::{fs, path::PathBuf};

use crate::token_fuzz::logout_token_input;

#[test]
fn of_the_corpus_only_the_good_token_is_believed() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/logout_token_input");
    let files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 16, "{} files", files.len());
    for file in files {
        let is_good = file.file_name().is_some_and(|name| name == "good");
        assert_eq!(logout_token_input(&fs::read(&file).unwrap()), is_good, "{}", file.display());
    }
}
