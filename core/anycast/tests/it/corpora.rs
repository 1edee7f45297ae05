//! The corpora of the fuzzers, replayed, and bytes near to them.

use std::{fs, path::PathBuf};

use proptest::prelude::*;

use crate::anycast_fuzz::{as_relations, bird_reply};

fn files(name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

fn replay(name: &str, at_least: usize, run: impl Fn(&[u8])) {
    let files = files(name);
    assert!(files.len() >= at_least, "{} files", files.len());
    for (path, data) in files {
        println!("{}", path.display());
        run(&data);
        for at in (0..data.len()).step_by(11) {
            run(&data[..at]);
            for byte in [0, b' ', b'-', b'\n', 0xff] {
                let mut changed = data.clone();
                changed[at] = byte;
                run(&changed);
            }
        }
    }
}

#[test]
fn replies_of_the_corpus_and_near_to_it_break_nothing() {
    replay("bird_reply", 12, bird_reply);
}

#[test]
fn relations_of_the_corpus_and_near_to_them_break_nothing() {
    replay("as_relations", 4, as_relations);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1_000) })]

    #[test]
    fn arbitrary_bytes_break_nothing(data in prop::collection::vec(any::<u8>(), 0..200)) {
        bird_reply(&data);
        as_relations(&data);
    }

    #[test]
    fn arbitrary_rows_break_nothing(text in "(([0-9]{4}[- ])?[ \t]?[a-z0-9./\\[\\]*(),:{} ]{0,40}\n){0,12}") {
        bird_reply(&[&[3], text.as_bytes()].concat());
    }
}
