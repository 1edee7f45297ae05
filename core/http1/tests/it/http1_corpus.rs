//! Replays the corpus of the HTTP/1.1 fuzzer, and writes its seed files.

use std::{fs, path::PathBuf};

use crate::http1_fuzz::http1_input;

/// The seed files: name, size of the pieces less one, and the bytes of the client.
const CONNECTIONS: [(&str, u8, &str); 14] = [
    ("get", 0, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("pipelined", 6, "GET /a HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("length", 3, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhelloGET / HTTP/1.1\r\nHost: a\r\n\r\n"),
    (
        "chunked",
        2,
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;x=1\r\nhello\r\n0\r\nX-A: 1\r\n\r\n",
    ),
    (
        "both-lengths",
        9,
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    ("two-lengths", 9, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!"),
    ("space-before-colon", 1, "GET / HTTP/1.1\r\nHost : a\r\n\r\n"),
    ("folded", 4, "GET / HTTP/1.1\r\nHost: a\r\nX-A: b\r\n c\r\n\r\n"),
    ("bare-line-feed", 4, "GET / HTTP/1.1\nHost: a\n\n"),
    ("bad-chunk", 0, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello!0\r\n\r\n"),
    (
        "trailer-of-framing",
        5,
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 5\r\n\r\n",
    ),
    (
        "upgrade",
        7,
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\
         GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    ),
    ("old", 255, "GET http://a/ HTTP/1.0\r\n\r\n"),
    ("empty-lines", 0, "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n\r\n"),
];

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/http1_input")
}

#[test]
fn every_file_of_the_corpus_passes() {
    let files: Vec<PathBuf> = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 10, "{} files", files.len());
    for file in files {
        http1_input(&fs::read(&file).unwrap());
    }
}

/// `cargo test -p sallyport-http1 -- --ignored write_the_corpus` writes the seed files.
#[test]
#[ignore = "writes files into fuzz/corpus"]
fn write_the_corpus() {
    fs::create_dir_all(folder()).unwrap();
    for (name, size, text) in CONNECTIONS {
        fs::write(folder().join(name), [&[size], text.as_bytes()].concat()).unwrap();
    }
}
