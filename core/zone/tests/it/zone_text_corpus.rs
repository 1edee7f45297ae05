//! Replays the corpus of the fuzzer of zones' texts.

use std::{fs, path::PathBuf};

use proptest::prelude::*;

use crate::zone_text_fuzz::zone_text;

fn files() -> Vec<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/zone_text");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn every_text_of_the_corpus_passes() {
    assert!(files().len() >= 5);
    for file in files() {
        println!("{}", file.display());
        zone_text(&fs::read(&file).unwrap());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    /// Texts of the corpus with a few bytes changed.
    #[test]
    fn texts_that_are_nearly_right_break_nothing(
        file in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let files = files();
        let mut data = fs::read(file.get(&files)).unwrap();
        for (at, byte) in changes {
            *at.get_mut(&mut data) = byte & 0x7f;
        }
        zone_text(&data);
    }
}
