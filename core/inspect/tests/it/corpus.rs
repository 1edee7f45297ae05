//! The corpus of the fuzz target runs here too.

use std::path::{Path, PathBuf};

use proptest::prelude::*;

use crate::inspect_fuzz::inspect_stream;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/inspect_stream")
}

#[test]
fn the_corpus_is_read() {
    let mut count = 0;
    for entry in std::fs::read_dir(folder()).unwrap() {
        inspect_stream(&std::fs::read(entry.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count >= 6, "{count}");
}

/// Commands for pieces of one direction.
fn pieces(from: u8, bytes: &[u8]) -> Vec<u8> {
    bytes.chunks(200).flat_map(|piece| [&[from, piece.len() as u8], piece].concat()).collect()
}

#[test]
#[ignore = "writes the corpus anew"]
fn write_the_corpus() {
    let get = pieces(0, b"GET /a?token=x HTTP/1.1\r\nhost: a\r\n\r\n");
    let ok =
        pieces(1, b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 13\r\n\r\n{\"token\":\"x\"}");
    let chunked =
        pieces(0, b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nx: y\r\n\r\n");
    let upgrade = pieces(1, b"HTTP/1.1 101 x\r\nsec-websocket-extensions: permessage-deflate\r\n\r\n\x81\x02hi\xc1\x07\xf2\x48\xcd\xc9\xc9\x07\x00");
    let events = pieces(1, b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: x\r\n\r\ndata: y\n\n");
    let http2 = pieces(0, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x03\x01\x05\0\0\0\x01\x82\x84\x86");
    let answer = pieces(1, b"\0\0\x01\x01\x04\0\0\0\x01\x88\0\0\x03\0\x01\0\0\0\x01abc");
    std::fs::create_dir_all(folder()).unwrap();
    for (name, start, commands) in [
        ("get", 0, vec![get.clone(), ok.clone()]),
        ("chunked", 0, vec![chunked, ok.clone(), get.clone(), ok]),
        ("websocket", 0, vec![get.clone(), upgrade]),
        ("events", 0, vec![get.clone(), events]),
        ("http2", 1, vec![http2, answer]),
        ("loss", 0, vec![get.clone(), vec![14, 9], get]),
    ] {
        std::fs::write(folder().join(name), [vec![start], commands.concat()].concat()).unwrap();
    }
}

proptest! {
    #[test]
    fn any_commands_are_borne(data in proptest::collection::vec(any::<u8>(), 0..600)) {
        inspect_stream(&data);
    }
}
