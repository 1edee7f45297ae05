//! The corpus of the fuzzer of answers, replayed; and the tool that writes its first files.

use std::{fs, path::PathBuf};

use proptest::prelude::*;
use sallyport_catchment::{chaos_answer, chaos_question};

use crate::chaos_fuzz::{ID, chaos_reply};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/chaos_reply")
}

#[test]
fn every_file_of_the_corpus_passes() {
    let files: Vec<PathBuf> = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 8, "{} files", files.len());
    let read = files.iter().filter(|file| chaos_answer(ID, &fs::read(file).unwrap()).is_ok()).count();
    assert!(read >= 3, "only {read} files have an answer");
    for file in files {
        println!("{}", file.display());
        chaos_reply(&fs::read(&file).unwrap());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn arbitrary_records_break_nothing(data in prop::collection::vec(any::<u8>(), 0..120)) {
        chaos_reply(&answer([0x84, 0], 2, &data));
        chaos_reply(&data);
    }
}

/// `cargo test -p sallyport-catchment -- --ignored write_the_corpus` writes the first files anew.
#[test]
#[ignore = "writes files into fuzz/corpus"]
fn write_the_corpus() {
    fs::create_dir_all(folder()).unwrap();
    for (name, data) in files() {
        fs::write(folder().join(name), data).unwrap();
    }
}

/// An answer with these flags, this number of records, and these bytes after the question.
fn answer(flags: [u8; 2], records: u8, bytes: &[u8]) -> Vec<u8> {
    let mut answer = chaos_question(ID);
    answer[2..4].copy_from_slice(&flags);
    answer[7] = records;
    answer.extend(bytes);
    answer
}

fn files() -> Vec<(&'static str, Vec<u8>)> {
    let text = b"\xc0\x0c\0\x10\0\x03\0\0\0\0\0\x05\x04eu-1";
    let address = b"\x01a\0\0\x01\0\x01\0\0\0\0\0\x04abcd";
    vec![
        ("edge", answer([0x84, 0], 1, text)),
        ("resolver", answer([0x80, 0x80], 1, text)),
        ("second-record", answer([0x84, 0], 2, &[&address[..], text].concat())),
        ("no-text", answer([0x84, 0], 1, address)),
        ("refused", answer([0x84, 5], 0, b"")),
        ("question", chaos_question(ID)),
        ("cut-text", answer([0x84, 0], 1, &text[..14])),
        ("text-beyond-its-record", answer([0x84, 0], 1, b"\xc0\x0c\0\x10\0\x03\0\0\0\0\0\x05\x09eu-1")),
        ("endless-name", answer([0x84, 0], 1, &b"\x01a".repeat(200))),
        ("many-records", answer([0x84, 0], 255, text)),
        ("no-answer", Vec::new()),
    ]
}
