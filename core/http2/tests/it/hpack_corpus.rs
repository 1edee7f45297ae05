//! The corpus of the fuzzer of header blocks, replayed; and the tool that writes its first files.

use std::{fs, path::PathBuf};

use proptest::prelude::*;

use crate::{
    hpack_code::{huffman, integer, plain},
    hpack_fuzz::{MAX_BLOCK, TABLE_SIZE, hpack_input},
};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/hpack_input")
}

#[test]
fn every_file_of_the_corpus_passes() {
    let files: Vec<PathBuf> = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 10, "{} files", files.len());
    for file in files {
        hpack_input(&fs::read(&file).unwrap());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_blocks_keep_the_tables_in_their_bounds(data in prop::collection::vec(any::<u8>(), 0..600)) {
        hpack_input(&data);
    }

    /// Files of the corpus with a few bytes changed, so that most of each is in order.
    #[test]
    fn blocks_that_are_nearly_right_keep_the_tables_in_their_bounds(
        file in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let files = files();
        let mut data = file.get(&files).1.clone();
        for (at, byte) in changes {
            *at.get_mut(&mut data) = byte;
        }
        hpack_input(&data);
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

fn file(limit: u16, blocks: &[Vec<u8>]) -> Vec<u8> {
    let mut file = limit.to_be_bytes().to_vec();
    for block in blocks {
        match u8::try_from(block.len() - 1) {
            Ok(len) if len <= MAX_BLOCK => file.push(len),
            _ => {
                file.push(MAX_BLOCK + 1);
                file.extend_from_slice(&(block.len() as u16).to_be_bytes());
            }
        }
        file.extend_from_slice(block);
    }
    file
}

fn literal(pattern: u8, name: &str, value: Vec<u8>) -> Vec<u8> {
    [vec![pattern], huffman(name.as_bytes()), value].concat()
}

fn files() -> Vec<(&'static str, Vec<u8>)> {
    let get = [vec![0x82, 0x87, 0x84, 0x41], plain(b"www.example.com")].concat();
    let again = vec![0x82, 0x87, 0x84, 0xbe];
    let browser: Vec<u8> = [
        get.clone(),
        [integer(0x40, 6, 58), huffman(b"Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0")]
            .concat(),
        [integer(0x40, 6, 19), huffman(b"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8")].concat(),
        literal(0x40, "sec-fetch-mode", huffman(b"navigate")),
        [integer(0x10, 4, 32), huffman(b"session=0123456789abcdef")].concat(),
    ]
    .concat();
    let many: Vec<u8> = (0..150).flat_map(|n| literal(0x40, &format!("n{n}"), plain(b""))).collect();
    let all: Vec<u8> = (0..=255).collect();
    let sizes = |sizes: &[usize]| sizes.iter().flat_map(|size| integer(0x20, 5, *size)).collect::<Vec<u8>>();
    let mut resized = file(4_096, &[browser.clone(), vec![0xbe, 0xbf]]);
    resized.extend_from_slice(&[TABLE_SIZE, 0, 100, TABLE_SIZE, 8, 0]);
    resized.extend_from_slice(&file(0, &[vec![0xbe, 0xbf], vec![0xbe, 0xbf]])[2..]);
    vec![
        ("requests", file(4_096, &[get.clone(), again.clone(), again.clone()])),
        ("browser", file(4_096, &[browser.clone(), vec![0x82, 0x87, 0x84, 0xc1, 0xc0, 0xbf, 0xbe]])),
        ("answers-resized", resized),
        ("small-table", file(100, &[get.clone(), again, browser.clone()])),
        ("large-table", file(65_535, &[[sizes(&[65_535]), browser].concat(), many.clone(), many.clone()])),
        ("many-entries", file(4_096, &[many, vec![0xff, 0x20]])),
        ("sizes", file(4_096, &[[sizes(&[0, 4_096]), get.clone()].concat(), sizes(&[50]), get.clone()])),
        ("too-large", file(4_096, &[sizes(&[4_097])])),
        ("late-size", file(4_096, &[[get, sizes(&[10])].concat()])),
        ("every-byte", file(4_096, &[literal(0x40, "a", huffman(&all)), literal(0x00, "b", plain(&all[0x80..]))])),
        ("malformed", file(4_096, &[literal(0x40, "Upper", plain(b"1")), literal(0x40, "a", plain(b" ")), vec![0xbe]])),
        ("bad-huffman", file(4_096, &[vec![0x04, 0x84, 0xff, 0xff, 0xff, 0xff]])),
        ("long-integer", file(4_096, &[vec![0xff, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00]])),
    ]
}
