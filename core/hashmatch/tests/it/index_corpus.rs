//! The corpus of the fuzzer of indexes, replayed; and the tool that writes its first files.

use std::{fs, path::PathBuf};

use sallyport_hashmatch::{HASH_BYTES, Hash, write};

use crate::index_fuzz::hash_index;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/hash_index")
}

#[test]
fn every_file_of_the_corpus_passes() {
    let files: Vec<PathBuf> = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 6, "{} files", files.len());
    for file in files {
        println!("{}", file.display());
        hash_index(&fs::read(&file).unwrap());
    }
}

#[test]
fn indexes_that_are_nearly_right_break_nothing() {
    for (name, data) in files() {
        for at in 0..data.len() {
            println!("{name}: byte {at}");
            hash_index(&data[..at]);
            let mut changed = data.clone();
            changed[at] ^= 0xff;
            hash_index(&changed);
        }
    }
}

/// `cargo test -p sallyport-hashmatch -- --ignored write_the_corpus` writes the first files anew.
#[test]
#[ignore = "writes files into fuzz/corpus"]
fn write_the_corpus() {
    fs::create_dir_all(folder()).unwrap();
    for (name, data) in files() {
        fs::write(folder().join(name), data).unwrap();
    }
}

fn files() -> Vec<(&'static str, Vec<u8>)> {
    let file = |rows: &[Hash]| {
        let mut bytes = Vec::new();
        write(rows, &mut bytes).unwrap();
        bytes
    };
    let (empty, two) = (file(&[]), file(&[[7; HASH_BYTES], [250; HASH_BYTES]]));
    let changed = |at: usize, bytes: &[u8]| {
        let mut changed = empty.clone();
        changed[at..at + bytes.len()].copy_from_slice(bytes);
        changed
    };
    vec![
        ("two", two.clone()),
        ("cut", two[..200].to_vec()),
        ("longer", [two, b"x".to_vec()].concat()),
        ("version-2", changed(8, &[2])),
        ("short-hashes", changed(12, &[32])),
        ("endless", changed(16, &[0xff; 8])),
        ("promised", changed(16, &[0xff, 0xff, 0xff])),
        ("empty", empty),
    ]
}
