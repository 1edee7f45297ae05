//! The corpus of the fuzzer, replayed, and bytes near to it.

use std::{fs, path::PathBuf};

use proptest::prelude::*;
use sallyport_kube_model::OPTIONS;

use crate::kube_fuzz::annotation_map;

#[test]
fn annotations_of_the_corpus_and_near_to_them_break_nothing() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/annotation_map");
    let paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(paths.len() >= 8, "{} files", paths.len());
    for path in paths {
        println!("{}", path.display());
        let data = fs::read(&path).unwrap();
        annotation_map(&data);
        for at in (0..data.len()).step_by(7) {
            annotation_map(&data[..at]);
            for byte in [0, b'.', b'/', b'=', b'\n', b'9', 0xff] {
                let mut changed = data.clone();
                changed[at] = byte;
                annotation_map(&changed);
            }
        }
    }
}

fn option() -> impl Strategy<Value = String> {
    let known = prop::sample::select(OPTIONS.iter().map(|rule| rule.name).collect::<Vec<_>>());
    let value = prop_oneof![
        "[a-z0-9=:,./% -]{0,12}",
        prop::sample::select(vec![
            "true",
            "false",
            "off",
            "tcp",
            "udp",
            "tls",
            "https",
            "http:/healthz",
            "5s",
            "100",
            "eu=20",
            "eu=auto",
            "eu=db",
            "app.example.com",
            "staff",
            "X-A: 1",
            "cookie",
            "v2",
            "http",
            "all",
            "http,dns,sip",
            "db",
            "a@b.org",
        ])
        .prop_map(str::to_owned),
    ];
    let port = prop::sample::select(vec!["", "http.", "80.", "dns.", "sip.", "nope."]);
    (port, known, value).prop_map(|(port, name, value)| format!("sallyport.dev/{port}{name}={value}\n"))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn arbitrary_bytes_break_nothing(data in prop::collection::vec(any::<u8>(), 0..200)) {
        annotation_map(&data);
        let keyed = [&[3][..], b"sallyport.dev/", &data].concat();
        annotation_map(&keyed);
    }

    #[test]
    fn arbitrary_options_break_nothing(kind in 0_u8..4, lines in prop::collection::vec(option(), 0..8)) {
        let text = format!("{}sallyport.dev/expose=true\n{}", char::from(kind), lines.concat());
        annotation_map(text.as_bytes());
    }
}
