//! The corpus of the fuzzer of replies, replayed; and the tool that writes its first files.

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use proptest::prelude::*;
use sallyport_ping::{Family, Moment, reply, request};

use crate::reply_fuzz::{DATA_BYTES, IDENTIFIER, LATE, OTHER, RAW, V6, echo_reply, waiting};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/echo_reply")
}

#[test]
fn every_file_of_the_corpus_passes() {
    let files: Vec<PathBuf> = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 12, "{} files", files.len());
    for file in files {
        println!("{}", file.display());
        echo_reply(&fs::read(&file).unwrap());
    }
}

#[test]
fn replies_that_are_nearly_right_break_nothing() {
    for (name, data) in files() {
        for at in 0..data.len() {
            println!("{name}: byte {at}");
            echo_reply(&data[..at]);
            for byte in [0, 1, 0x45, 0x80, 0xff] {
                let mut changed = data.clone();
                changed[at] = byte;
                echo_reply(&changed);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn arbitrary_messages_break_nothing(data in prop::collection::vec(any::<u8>(), 0..120)) {
        echo_reply(&data);
    }
}

/// `cargo test -p sallyport-ping -- --ignored write_the_corpus` writes the first files anew.
#[test]
#[ignore = "writes files into fuzz/corpus"]
fn write_the_corpus() {
    fs::create_dir_all(folder()).unwrap();
    for (name, data) in files() {
        fs::write(folder().join(name), data).unwrap();
    }
}

/// An IPv4 packet with this message.
fn packet(message: &[u8]) -> Vec<u8> {
    let total = ((20 + message.len()) as u16).to_be_bytes();
    let start = [0x45, 0, total[0], total[1], 0, 0, 0, 0, 64, 1, 0, 0];
    [&start[..], &[192, 0, 2, 1, 192, 0, 2, 2], message].concat()
}

fn files() -> Vec<(&'static str, Vec<u8>)> {
    let now = Moment { monotonic: Instant::now(), wall: Duration::from_secs(1_700_000_000) };
    let (_, data) = waiting(Family::V4, now);
    let four = reply(Family::V4, IDENTIFIER, 0, &data);
    let six = reply(Family::V6, IDENTIFIER, 0, &data);
    let raw = packet(&four);
    let file = |flags: u8, message: &[u8]| [&[flags][..], message].concat();
    let changed = |message: &[u8], at: usize| {
        let mut message = message.to_vec();
        message[at] ^= 0x40;
        message
    };
    let with_options = [&[0x46][..], &raw[1..20], &[1, 1, 1, 0], &four].concat();
    vec![
        ("good-4", file(0, &four)),
        ("good-6", file(V6, &six)),
        ("good-raw", file(RAW, &raw)),
        ("good-raw-padded", file(RAW, &[&raw[..], &[0; 6]].concat())),
        ("good-late", file(LATE, &four)),
        ("good-from-another", file(OTHER, &four)),
        ("wrong-family", file(V6, &four)),
        ("wrong-nonce", file(0, &changed(&four, 8))),
        ("wrong-token", file(0, &changed(&four, 16))),
        ("wrong-filler", file(0, &changed(&four, 8 + DATA_BYTES - 1))),
        ("wrong-sequence", file(0, &changed(&four, 7))),
        ("wrong-identifier", file(0, &changed(&four, 4))),
        ("wrong-checksum", file(RAW, &changed(&raw, 22))),
        ("truncated-data", file(0, &four[..20])),
        ("truncated-token", file(0, &four[..12])),
        ("truncated-header", file(0, &four[..6])),
        ("truncated-raw", file(RAW, &raw[..40])),
        ("longer", file(0, &[&four[..], &[24]].concat())),
        ("options", file(RAW, &with_options)),
        ("header-too-short", file(RAW, &[&[0x44][..], &raw[1..]].concat())),
        ("request", file(0, &request(Family::V4, IDENTIFIER, 0, &data))),
        ("code", file(0, &changed(&four, 1))),
        ("empty", file(0, &[])),
    ]
}
