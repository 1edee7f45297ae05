//! The corpus of the fuzzer of records, replayed; and the tool that writes its first files.

use std::{fs, path::PathBuf};

use proptest::prelude::*;

use crate::record_fuzz::{code, tls_records};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/tls_records")
}

#[test]
fn every_file_of_the_corpus_passes() {
    let files: Vec<PathBuf> = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 12, "{} files", files.len());
    for file in files {
        println!("{}", file.display());
        tls_records(&fs::read(&file).unwrap());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn arbitrary_steps_break_nothing(data in prop::collection::vec(any::<u8>(), 0..300)) {
        tls_records(&data);
    }

    /// Files of the corpus with a few bytes changed, so that most of each is in order.
    #[test]
    fn steps_that_are_nearly_right_break_nothing(
        file in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let files = files();
        let mut data = file.get(&files).1.clone();
        for (at, byte) in changes {
            *at.get_mut(&mut data) = byte;
        }
        tls_records(&data);
    }
}

/// `cargo test -p sallyport-tls-records -- --ignored write_the_corpus` writes the first files anew.
#[test]
#[ignore = "writes files into fuzz/corpus"]
fn write_the_corpus() {
    fs::create_dir_all(folder()).unwrap();
    for (name, data) in files() {
        fs::write(folder().join(name), data).unwrap();
    }
}

fn inner(inner: &[u8]) -> Vec<u8> {
    [&[code::INNER, inner.len() as u8], inner].concat()
}

fn data(len: u16, padding: u16) -> Vec<u8> {
    [&[code::DATA][..], &len.to_be_bytes(), &padding.to_be_bytes()].concat()
}

fn send(len: u16) -> Vec<u8> {
    [&[code::SEND][..], &len.to_be_bytes()].concat()
}

fn raw(bytes: &[u8]) -> Vec<u8> {
    [&[code::RAW, bytes.len() as u8], bytes].concat()
}

fn files() -> Vec<(&'static str, Vec<u8>)> {
    let hello = || inner(b"hello\x17");
    let file = |flags: u8, steps: &[Vec<u8>]| [&[flags][..], &steps.concat()].concat();
    let updates = || vec![code::PEER_UPDATES];
    vec![
        ("exchange", file(0, &[hello(), send(5), data(16_384, 0), send(16_384), inner(&[1, 0, 21])])),
        ("exchange-client", file(code::CLIENT, &[hello(), send(5), data(1, 16_383), inner(&[1, 0, 21])])),
        ("few-records", file(code::FEW_RECORDS, &vec![send(100); 20])),
        ("updates", file(0, &[updates(), hello(), updates(), vec![code::UPDATE], hello(), send(9)])),
        ("updates-client", file(code::CLIENT | code::FEW_RECORDS, &[updates(), send(1), hello(), send(2), updates()])),
        ("pieces", file(0, &[vec![code::PIECES, 1], hello(), updates(), data(300, 7), send(7)])),
        ("too-long", file(0, &[data(16_385, 0)])),
        ("too-long-in-pieces", file(0, &[vec![code::PIECES, 3], data(16_900, 0)])),
        ("padded-too-long", file(0, &[data(16_384, 1)])),
        ("zeros", file(0, &[hello(), inner(&[0, 0, 0])])),
        ("empty-data", file(0, &vec![inner(&[23]); 40])),
        ("empty-handshake", file(0, &[inner(&[22, 0])])),
        ("empty-alert", file(0, &[inner(&[21])])),
        ("interleaved", file(0, &[inner(&[24, 0, 0, 22]), hello()])),
        ("two-updates", file(0, &[inner(&[24, 0, 0, 1, 0, 24, 0, 0, 1, 0, 22])])),
        ("update-in-parts", file(0, &[inner(&[24, 22]), inner(&[0, 0, 1, 22]), inner(&[1, 22]), send(3)])),
        ("ticket-to-server", file(0, &[inner(&[4, 0, 0, 9, 22])])),
        ("ticket-malformed", file(code::CLIENT, &[inner(&[4, 0, 0, 2, 1, 1, 22])])),
        ("long-message", file(code::CLIENT, &[inner(&[4, 0, 0xff, 0xff, 22]), data(100, 0)])),
        ("unknown-type", file(0, &[inner(b"x\x63")])),
        ("changed", file(0, &[hello(), vec![code::CHANGE, 3], hello()])),
        ("changed-version", file(0, &[vec![code::CHANGE, 0], hello()])),
        ("plain-alert", file(0, &[raw(&[21, 3, 3, 0, 2, 1, 0])])),
        ("change-cipher-spec", file(code::CLIENT, &[raw(&[20, 3, 3, 0, 1, 1])])),
        ("http", file(0, &[raw(b"GET / HTTP/1.1\r\n\r\n")])),
        ("closed", file(0, &[vec![code::CLOSE], updates(), hello(), send(4), inner(&[1, 0, 21])])),
        ("fatal-alert", file(0, &[inner(&[2, 40, 21])])),
        ("user-canceled", file(0, &[inner(&[1, 90, 21]), inner(&[1, 0, 21])])),
    ]
}
