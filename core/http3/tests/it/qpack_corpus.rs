//! The corpus of the fuzzer of field sections, replayed; and the tool that writes its first files.

use std::{fs, path::PathBuf};

use crate::{client::*, qpack_fuzz::qpack_block};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/qpack_block")
}

#[test]
fn every_file_of_the_corpus_passes() {
    let files: Vec<PathBuf> = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 10, "{} files", files.len());
    for file in files {
        qpack_block(&fs::read(&file).unwrap());
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

fn files() -> Vec<(&'static str, Vec<u8>)> {
    let after = |fields: &[u8]| [&[0, 0], fields].concat();
    let browser = [
        vec![0xd1, 0xd7, 0xc1],
        vec![0x50],
        plain(0, 7, "www.example.com"),
        vec![0x5f, 95 - 15],
        plain(0, 7, "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"),
        vec![0xdf],
        plain(0x20, 3, "sec-fetch-mode"),
        plain(0, 7, "navigate"),
        vec![0x75],
        plain(0, 7, "session=0123456789abcdef"),
    ];
    let all: Vec<u8> = (0..99).flat_map(|n| if n < 63 { vec![0xc0 | n] } else { vec![0xff, n - 63] }).collect();
    vec![
        ("browser", after(&browser.concat())),
        ("static-table", after(&all)),
        ("huffman", after(b"\x2f\x01\x25\xa8\x49\xe9\x5b\xa9\x7d\x7f\x89\x25\xa8\x49\xe9\x5b\xb8\xe8\xb4\xbf")),
        ("bad-huffman", after(&[0x51, 0x84, 0xff, 0xff, 0xff, 0xff])),
        ("insert-count", vec![0x03, 0x81, 0x10, 0x11]),
        ("negative-base", vec![0, 0x80, 0xc1]),
        ("dynamic", after(&[0x80])),
        ("post-base", after(&[0x10])),
        ("post-base-name", after(&[0x00, 0x01, b'a'])),
        ("beyond-the-table", after(&[0xff, 36])),
        ("long-integer", after(&[0xff, 0x80, 0x80, 0x80, 0x80, 0x80, 0])),
        ("malformed", section(&[("Upper", "1"), ("a", " "), (":status", "200"), ("", "x")])),
        ("cut-off", browser.concat()[..20].to_vec()),
    ]
}
