//! The corpus of the fuzzer of results, replayed; and the tool that writes its first files.

use std::{fs, path::PathBuf};

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::atlas_fuzz::atlas_result;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/atlas_result")
}

#[test]
fn every_file_of_the_corpus_passes() {
    let files: Vec<PathBuf> = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 10, "{} files", files.len());
    for file in files {
        println!("{}", file.display());
        atlas_result(&fs::read(&file).unwrap());
    }
}

#[test]
fn results_that_are_nearly_right_break_nothing() {
    for (name, data) in files() {
        for at in 0..data.len() {
            println!("{name}: byte {at}");
            atlas_result(&data[..at]);
            for byte in *b"9\"[{-\0" {
                let mut changed = data.clone();
                changed[at] = byte;
                atlas_result(&changed);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

    #[test]
    fn numbers_and_texts_out_of_bounds_break_nothing(
        time in any::<f64>(), seen in any::<i64>(), text in any::<String>(), from in any::<u128>()
    ) {
        let mut result = dns("2001:db8::1", &text);
        result["from"] = json!(std::net::Ipv6Addr::from(from).to_string());
        result["timestamp"] = json!(seen);
        result["result"]["rt"] = json!(time);
        atlas_result(json!([result, dns("192.0.2.1", "eu-1")]).to_string().as_bytes());
    }
}

/// `cargo test -p sallyport-catchment -- --ignored write_the_corpus` writes the first files anew.
#[test]
#[ignore = "writes files into fuzz/corpus"]
fn write_the_corpus() {
    fs::create_dir_all(folder()).unwrap();
    for (name, data) in files() {
        fs::write(folder().join(name), data).unwrap();
    }
}

fn dns(from: &str, text: &str) -> Value {
    json!({"type": "dns", "from": from, "timestamp": 1, "result": {"rt": 1.5, "answers": [{"RDATA": [text]}]}})
}

fn files() -> Vec<(&'static str, Vec<u8>)> {
    let hop = |from: &str| json!({"result": [{"x": "*"}, {"from": from, "rtt": 5.5}]});
    let file = |value: Value| value.to_string().into_bytes();
    vec![
        ("dns", file(json!([dns("192.0.2.1", "eu-1"), dns("2001:db8::1", "us-1.example")]))),
        ("dns-rule", file(json!([dns("192.0.2.1", "fra2")]))),
        ("dns-nobody", file(json!([dns("192.0.2.1", "nobody")]))),
        (
            "dns-string",
            file(json!([{"type": "dns", "from": "192.0.2.1", "timestamp": 1,
            "result": {"answers": [{"RDATA": "eu-1"}]}}])),
        ),
        (
            "dns-set",
            file(json!([{"type": "dns", "from": "192.0.2.1", "timestamp": 1,
            "resultset": [{"error": {}}, {"result": {"answers": [{"RDATA": ["eu-1"]}]}}]}])),
        ),
        (
            "ping",
            file(json!([{"type": "ping", "from": "192.0.2.1", "timestamp": 1, "dst_addr": "198.51.100.1",
            "min": 3.5}])),
        ),
        (
            "ping-late",
            file(json!([{"type": "ping", "from": "192.0.2.1", "timestamp": 1, "dst_addr": "198.51.100.1",
            "min": 1e300}])),
        ),
        (
            "traceroute",
            file(json!([{"type": "traceroute", "from": "192.0.2.1", "timestamp": 1,
            "dst_addr": "192.0.2.53", "result": [hop("8.8.8.8"), hop("198.51.100.1"), hop("192.0.2.53")]}])),
        ),
        ("lines", [file(dns("192.0.2.1", "eu-1")), b"\n".to_vec(), file(dns("192.0.3.1", "us-1"))].concat()),
        ("empty-array", b"[]".to_vec()),
        ("deep", vec![b'['; 300]),
        ("negative-time", file(json!([{"type": "dns", "from": "192.0.2.1", "timestamp": -1}]))),
    ]
}
