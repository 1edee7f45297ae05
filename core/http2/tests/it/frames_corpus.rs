//! The corpus of the fuzzer of HTTP/2's frames, replayed; and the tool that writes its first files.

use std::{fs, path::PathBuf};

use crate::{client::*, frames_fuzz::frames_input};

/// The most of the client's bytes that one piece has.
const PIECE_BYTES: usize = 0xef;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/frames_input")
}

#[test]
fn every_file_of_the_corpus_passes() {
    let files: Vec<PathBuf> = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 8, "{} files", files.len());
    for file in files {
        frames_input(&fs::read(&file).unwrap());
    }
}

/// `cargo test -p sallyport-http2 -- --ignored write_the_corpus` writes the first files anew.
#[test]
#[ignore = "writes files into fuzz/corpus"]
fn write_the_corpus() {
    fs::create_dir_all(folder()).unwrap();
    for (name, data) in files() {
        fs::write(folder().join(name), data).unwrap();
    }
}

/// These frames in pieces, with these actions behind each.
fn file(frames: &[Vec<u8>], actions: &[u8]) -> Vec<u8> {
    let mut file = Vec::new();
    for frame in frames {
        for piece in frame.chunks(PIECE_BYTES) {
            file.push(u8::try_from(piece.len()).unwrap());
            file.extend_from_slice(piece);
        }
        file.extend_from_slice(actions);
    }
    file
}

fn files() -> Vec<(&'static str, Vec<u8>)> {
    let settings = frame(SETTINGS, 0, 0, &[]);
    let get = |stream| frame(HEADERS, END_HEADERS | END_STREAM, stream, &get_with(&[]));
    let post = |stream| frame(HEADERS, END_HEADERS, stream, &post_with(&[]));
    let more = |stream| frame(WINDOW_UPDATE, 0, stream, &60_000_u32.to_be_bytes());
    let tunnel = [
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "https"),
        (":authority", "a.example"),
        (":path", "/"),
    ];
    let connect = |stream| frame(HEADERS, END_HEADERS, stream, &block(&tunnel));
    let head = get_with(&[("x-a", "b")]);
    let (begin, rest) = head.split_at(7);
    vec![
        ("requests", file(&[settings.clone(), get(1), get(3)], &[0xff, 0xf0])),
        (
            "upload",
            file(
                &[settings.clone(), post(1), frame(DATA, 0, 1, &[5; 200]), frame(DATA, END_STREAM, 1, &[6; 90])],
                &[0xf6],
            ),
        ),
        ("left-upload", file(&[settings.clone(), post(1), frame(DATA, 0, 1, &[5; 200])], &[0xfa, 0xf5])),
        (
            "continuation",
            file(
                &[settings.clone(), frame(HEADERS, END_STREAM, 1, begin), frame(CONTINUATION, END_HEADERS, 1, rest)],
                &[0xff],
            ),
        ),
        (
            "padded",
            file(&[settings.clone(), post(1), frame(DATA, PADDED | END_STREAM, 1, &[3, 1, 2, 0, 0, 0])], &[0xf6]),
        ),
        (
            "extended-connect",
            file(
                &[
                    settings.clone(),
                    connect(1),
                    frame(DATA, 0, 1, &[5; 20]),
                    connect(3),
                    frame(HEADERS, END_HEADERS | END_STREAM, 3, &block(&[("x-a", "b")])),
                    frame(DATA, END_STREAM, 1, &[6; 20]),
                ],
                &[0xf6, 0xff],
            ),
        ),
        ("windows", file(&[settings.clone(), more(0), get(1), more(1), more(1)], &[0xf1, 0xff])),
        ("resets", file(&[settings.clone(), post(1), frame(RST_STREAM, 0, 1, &[0, 0, 0, 8])], &[0xf2])),
        ("goes", file(&[settings.clone(), get(1), frame(GOAWAY, 0, 0, &[0; 8])], &[0xf4, 0xf3])),
        ("push", file(&[settings.clone(), frame(PUSH_PROMISE, END_HEADERS, 1, &[0; 4])], &[])),
        ("priority-of-itself", file(&[settings.clone(), frame(PRIORITY, 0, 1, &[0, 0, 0, 1, 9])], &[])),
        ("ping", file(&[settings, frame(PING, 0, 0, &[7; 8]), frame(PING, ACK, 0, &[7; 8])], &[0xf0])),
    ]
}
