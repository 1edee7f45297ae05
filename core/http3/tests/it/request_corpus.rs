//! The corpus of the fuzzer of HTTP/3's streams, replayed; and the tool that writes its first files.

use std::{fs, path::PathBuf};

use proptest::prelude::*;

use crate::{client::*, request_fuzz::http3_request};

/// The most bytes of one piece.
const PIECE_BYTES: usize = 0xff;
/// The first byte of a request that stays open, of one that ends, and of unidirectional streams.
const OPEN: u8 = 0;
const ENDED: u8 = 2;
const STREAMS: u8 = 1;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/http3_request")
}

#[test]
fn every_file_of_the_corpus_passes() {
    let files: Vec<PathBuf> = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 10, "{} files", files.len());
    for file in files {
        http3_request(&fs::read(&file).unwrap());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_the_same_in_any_pieces(data in prop::collection::vec(any::<u8>(), 0..600)) {
        http3_request(&data);
    }

    /// Files of the corpus with a few bytes changed, so that most of each is in order.
    #[test]
    fn streams_that_are_nearly_right_are_the_same_in_any_pieces(
        file in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let files = files();
        let mut data = file.get(&files).1.clone();
        for (at, byte) in changes {
            *at.get_mut(&mut data) = byte;
        }
        http3_request(&data);
    }
}

/// `cargo test -p sallyport-http3 -- --ignored write_the_corpus` writes the first files anew.
#[test]
#[ignore = "writes files into fuzz/corpus"]
fn write_the_corpus() {
    fs::create_dir_all(folder()).unwrap();
    for (name, data) in files() {
        fs::write(folder().join(name), data).unwrap();
    }
}

/// A request in pieces.
fn request(first: u8, size: usize, frames: &[Vec<u8>]) -> Vec<u8> {
    let mut file = vec![first];
    for piece in frames.concat().chunks(size.min(PIECE_BYTES)) {
        file.push(piece.len() as u8);
        file.extend_from_slice(piece);
    }
    file
}

/// Pieces of unidirectional streams, each with its stream.
fn streams(pieces: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let mut file = vec![STREAMS];
    for (stream, bytes) in pieces {
        for piece in bytes.chunks(PIECE_BYTES - 1) {
            file.extend_from_slice(&[piece.len() as u8 + 1, *stream]);
            file.extend_from_slice(piece);
        }
    }
    file
}

fn files() -> Vec<(&'static str, Vec<u8>)> {
    let post = || head("POST", &[("content-length", "20")]);
    let trailers = || frame(HEADERS, &section(&[("x-sum", "1")]));
    let long = "v".repeat(3_000);
    let control = [vec![0], frame(SETTINGS, &[1, 0, 6, 0x40, 0x64])].concat();
    vec![
        ("get", request(ENDED, 255, &[head("GET", &[("x-a", "1")])])),
        ("upload", request(ENDED, 7, &[post(), frame(DATA, &[5; 12]), frame(DATA, &[6; 8]), trailers()])),
        ("open", request(OPEN, 30, &[post(), frame(DATA, &[5; 12])])),
        ("short-body", request(ENDED, 9, &[post(), frame(DATA, &[5; 12])])),
        ("long-body", request(ENDED, 9, &[post(), frame(DATA, &[5; 21])])),
        ("ignored", request(ENDED, 3, &[frame(IGNORED, &[1; 9]), head("GET", &[]), frame(IGNORED, &[])])),
        ("long-head", request(ENDED, 255, &[head("GET", &[("x-a", &long)]), frame(DATA, &[1])])),
        ("long-list", request(ENDED, 255, &[head("GET", &vec![("a", "1"); 80])])),
        ("endless-head", request(OPEN, 4, &[integer(HEADERS), integer(1 << 40)])),
        ("data-first", request(ENDED, 4, &[frame(DATA, &[1])])),
        ("settings", request(ENDED, 4, &[head("GET", &[]), frame(SETTINGS, &[])])),
        ("dynamic", request(ENDED, 4, &[frame(HEADERS, &[0, 0, 0x80])])),
        ("cut-off", request(ENDED, 4, &[post(), frame(DATA, &[5; 12])[..5].to_vec()])),
        ("critical-streams", streams(&[(0, control.clone()), (1, vec![2, 0x20]), (2, vec![3, 0x44])])),
        ("two-controls", streams(&[(0, control.clone()), (1, control.clone())])),
        ("ended-control", streams(&[(0, control.clone()), (0x80, vec![0])])),
        ("unknown-stream", streams(&[(0, vec![0x21, 1, 2, 3]), (1, control.clone())])),
        (
            "control-frames",
            streams(&[
                (0, control),
                (0, frame(PRIORITY_UPDATE, b"\x00u=1")),
                (0, [frame(MAX_PUSH_ID, &[4]), frame(IGNORED, &[1; 20]), frame(GOAWAY, &[0])].concat()),
            ]),
        ),
    ]
}
