//! Replays the corpus of the path fuzzer, and writes its seed files.

use std::{fs, path::PathBuf};

use proptest::prelude::*;

use crate::path_fuzz::path_input;

/// The seed files: unambiguous and ambiguous paths.
const PATHS: [(&str, &str); 16] = [
    ("plain", "/api/v2/users/7"),
    ("end", "/api/"),
    ("asterisk", "*"),
    ("encoded", "/%61pi/%76%32/x"),
    ("slash-in-a-segment", "/api/a%2Fb"),
    ("slash-in-the-prefix", "/api%2Fv2"),
    ("up", "/api/../docs"),
    ("up-encoded", "/api/%2e%2e/docs"),
    ("up-twice-encoded", "/api/%252e%252e/docs"),
    ("up-behind-a-parameter", "/api/..;x=1/docs"),
    ("up-in-a-segment", "/api/x%2f..%2f..%2fdocs"),
    ("up-by-backslashes", "/api/..%5c..%5cdocs"),
    ("empty-segments", "//api//v2"),
    ("parameter", "/api;x=1/v2"),
    ("dot-at-the-end", "/api./v2"),
    ("broken", "/api/%2"),
];

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/path_input")
}

#[test]
fn every_file_of_the_corpus_passes() {
    let files: Vec<PathBuf> = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 10, "{} files", files.len());
    for file in files {
        path_input(&fs::read(&file).unwrap());
    }
}

/// Pieces of random paths.
fn piece() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "/", "/", "/", "api", "v2", "docs", "a", "b", "c", "x", ".", "..", "%2e", "%2E%2e", "%252e", "%2f", "%2F",
        "%252f", "%5c", "\\", ";", ";x=1", "%3b", "%20", " ", "%61", "%00", "%", "%c0%ae", "%c3%a9", "é", "%25",
        "%2561",
    ])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_096, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn all_readings_of_an_unambiguous_path_lead_to_one_service(
        pieces in prop::collection::vec(piece(), 0..12),
    ) {
        path_input(format!("/{}", pieces.concat()).as_bytes());
        path_input(format!("/api/{}", pieces.concat()).as_bytes());
    }

    #[test]
    fn all_readings_of_arbitrary_text_agree_or_it_is_refused(text in "\\PC{0,40}") {
        path_input(format!("/{text}").as_bytes());
    }
}

/// `cargo test -p sallyport-http -- --ignored write_the_corpus` writes the seed files.
#[test]
#[ignore = "writes files into fuzz/corpus"]
fn write_the_corpus() {
    fs::create_dir_all(folder()).unwrap();
    for (name, path) in PATHS {
        fs::write(folder().join(name), path).unwrap();
    }
}
