//! Replays the corpus of the fuzzer of queries, and writes its seed files.

use std::{fs, path::PathBuf};

use proptest::prelude::*;

use crate::{query_fuzz::dns_query, support::Ask};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/dns_query")
}

#[test]
fn every_file_of_the_corpus_passes() {
    let files: Vec<PathBuf> = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 20, "{} files", files.len());
    for file in files {
        println!("{}", file.display());
        dns_query(&fs::read(&file).unwrap());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn arbitrary_messages_break_nothing(data in prop::collection::vec(any::<u8>(), 0..200)) {
        dns_query(&data);
    }

    /// Files of the corpus with a few bytes changed, so that most of each is in order.
    #[test]
    fn messages_that_are_nearly_right_break_nothing(
        file in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(),
        is_cut in any::<bool>(),
    ) {
        let files = files();
        let mut data = file.get(&files).1.clone();
        for (at, byte) in changes {
            *at.get_mut(&mut data) = byte;
        }
        if is_cut {
            data.truncate(cut.index(data.len()));
        }
        dns_query(&data);
    }

    /// Names of the labels that the zones have, so that most questions are answered from records.
    #[test]
    fn questions_near_the_zones_break_nothing(
        labels in prop::collection::vec(prop::sample::select(&LABELS[..]), 0..6),
        apex in prop::sample::select(&["p.test", "s.test", "test"][..]),
        rtype in prop::sample::select(&[1_u16, 2, 5, 6, 15, 16, 28, 39, 43, 46, 47, 48, 59, 128, 251, 252, 255][..]),
        flags in prop::sample::select(&[None, Some(0_u32), Some(0x8000), Some(0xc000), Some(0x10000)][..]),
        first in any::<u8>(),
    ) {
        let name: String = labels.iter().map(|label| format!("{label}.")).collect();
        let ask = Ask { edns: flags, ..Ask::new("", rtype) };
        let mut bytes = ask.bytes();
        let mut wire = Vec::new();
        for label in format!("{name}{apex}").split('.') {
            wire.push(label.len() as u8);
            wire.extend(label.as_bytes());
        }
        bytes.splice(12..12, wire);
        bytes.insert(0, first);
        dns_query(&bytes);
    }
}

const LABELS: [&str; 16] = [
    "www",
    "web",
    "*",
    "wild",
    "to",
    "sub",
    "ns",
    "into",
    "a",
    "b",
    "c",
    "loop",
    "mx",
    "old",
    "_acme-challenge",
    "none",
];

/// `cargo test -p sallyport-zone -- --ignored write_the_corpus` writes the seed files anew.
#[test]
#[ignore = "writes files into fuzz/corpus"]
fn write_the_corpus() {
    fs::create_dir_all(folder()).unwrap();
    for (name, data) in files() {
        fs::write(folder().join(name), data).unwrap();
    }
}

fn files() -> Vec<(&'static str, Vec<u8>)> {
    let dnssec = |name, rtype| Ask::new(name, rtype).edns(0x8000);
    let asks = [
        ("address", Ask { edns: None, ..Ask::new("www.p.test", 1) }),
        ("case", Ask::new("wEb.P.tEst", 1)),
        ("edges", Ask::new("x.y.p.test", 28)),
        ("alias", Ask::new("p.test", 1)),
        ("challenge", Ask::new("_acme-challenge.a.p.test", 16)),
        ("redirect", Ask::new("x.old.p.test", 1)),
        ("delegation", dnssec("x.sub.s.test", 1)),
        ("delegation-of-alias", dnssec("into.s.test", 1)),
        ("ds", dnssec("sub.s.test", 43)),
        ("loop", dnssec("loop.s.test", 1)),
        ("wildcard-chain", dnssec("y.to.s.test", 1)),
        ("no-name", dnssec("none.s.test", 1)),
        ("no-name-compact", Ask::new("none.s.test", 1).edns(0xc000)),
        ("keys", dnssec("s.test", 48)),
        ("nsec", dnssec("web.s.test", 47)),
        ("any", Ask::new("s.test", 255)),
        ("server", Ask { class: 3, ..Ask::new("id.server", 16) }),
        ("version", Ask::new("s.test", 6).edns(0x1_0000)),
        ("cookie", Ask::new("s.test", 6).option(10, b"clientck")),
        ("cookies", Ask::new("s.test", 6).option(10, b"clientckservercookie1234")),
        ("subnet", Ask::new("s.test", 6).option(8, &[0, 1, 24, 0, 192, 0, 2]).option(3, &[])),
        ("subnet-of-edges", Ask::new("x.p.test", 1).option(8, &[0, 1, 24, 0, 20, 0, 7])),
        ("subnet-beside", Ask::new("x.p.test", 1).option(8, &[0, 1, 22, 0, 20, 1, 4])),
        ("subnet-too-long", Ask::new("x.p.test", 65).option(8, &[0, 1, 32, 0, 20, 1, 2, 3])),
        ("subnet-of-ipv6", Ask::new("x.p.test", 28).option(8, &[0, 2, 56, 0, 0x20, 1, 0xd, 0xb8, 0, 1, 0])),
        ("subnet-private", Ask::new("x.p.test", 1).option(8, &[0, 1, 8, 0, 10])),
        ("subnet-with-scope", Ask::new("x.p.test", 1).option(8, &[0, 1, 24, 24, 20, 0, 7])),
        ("subnet-twice", Ask::new("x.p.test", 1).option(8, &[0, 1, 8, 0, 20]).option(8, &[0, 1, 8, 0, 30])),
        ("axfr", Ask { edns: None, ..Ask::new("s.test", 252) }),
    ];
    let mut files: Vec<(&str, Vec<u8>)> =
        asks.into_iter().map(|(name, ask)| (name, [vec![0], ask.bytes()].concat())).collect();
    let mut ixfr = Ask { edns: None, ..Ask::new("s.test", 251) }.bytes();
    ixfr[9] = 1;
    ixfr.extend(b"\xc0\x0c\x00\x06\x00\x01\x00\x00\x00\x00\x00\x16\x00\x00\x00\x00\x00\x07");
    ixfr.extend([0; 16]);
    files.push(("ixfr", [vec![1], ixfr].concat()));
    files.push(("axfr-signed", [vec![1], crate::transfers::signed_query(252)].concat()));
    let mut bad = crate::transfers::signed_query(252);
    if let Some(last) = bad.len().checked_sub(10) {
        bad[last] ^= 1;
    }
    files.push(("axfr-badly-signed", [vec![1], bad].concat()));
    files
}
