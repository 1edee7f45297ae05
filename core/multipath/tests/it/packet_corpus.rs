//! The fuzzer's corpus, replayed; the tool that writes its first files; and arbitrary input.

use std::{fs, path::PathBuf};

use proptest::prelude::*;

use crate::packet_fuzz::multipath_packet;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/multipath_packet")
}

#[test]
fn every_file_of_the_corpus_passes() {
    let files: Vec<PathBuf> = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 12, "{} files", files.len());
    for file in files {
        multipath_packet(&fs::read(&file).unwrap());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_and_decisions_keep_an_association_within_its_bounds(
        data in prop::collection::vec(any::<u8>(), 0..1_500)
    ) {
        multipath_packet(&data);
    }

    #[test]
    fn well_formed_frames_in_any_order_keep_an_association_within_its_bounds(
        side in 0..2_u8,
        steps in prop::collection::vec((0..14_u8, any::<u8>(), any::<u8>()), 1..150),
    ) {
        let mut data = vec![side];
        for (kind, a, b) in steps {
            data.extend(step(kind, a, b));
        }
        multipath_packet(&data);
    }
}

/// A packet of the peer with this path and these frames.
fn packet(path: u8, frames: &[u8]) -> Vec<u8> {
    [&[0, path, frames.len() as u8], frames].concat()
}

fn data(sequence: u64, offset: u16, is_last: bool, bytes: &[u8]) -> Vec<u8> {
    let length = (bytes.len() as u16).to_be_bytes();
    [&[2], &sequence.to_be_bytes()[..], &offset.to_be_bytes(), &[is_last.into()], &length, bytes].concat()
}

fn ack(path: u8, first: u8, last: u8) -> Vec<u8> {
    [&[3, 0, path, 0, 0, 1, 0, 1][..], &[0, 0, 0, 0, 0, last], &[0, 0, 0, 0, last.saturating_sub(first)]].concat()
}

fn status(path: u8, sequence: u8, flags: u8) -> Vec<u8> {
    vec![4, 0, path, 0, 0, 0, sequence, 50, flags & 15]
}

/// One operation of every kind, with frames that are well formed.
fn step(kind: u8, a: u8, b: u8) -> Vec<u8> {
    match kind {
        0 => packet(a % 4, &[1]),
        1 => packet(a % 4, &data(u64::from(b), 0, true, &[a; 40])),
        2 => packet(a % 4, &data(u64::from(b % 16), u16::from(a % 8) * 20, a > 128, &[b; 20])),
        3 => packet(a % 4, &ack(a % 4, a.min(b), a.max(b))),
        4 => packet(a % 4, &ack(b % 4, 0, b % 8)),
        5 => packet(a % 4, &status(b % 20, a, b)),
        6 => packet(a % 4, &[6, 1, 2, 3, 4, 5, 6, 7, b]),
        7 => packet(a % 4, &[7, b, b, b, b, b, b, b, b]),
        8 => vec![3],
        9 => vec![5, b],
        10 => vec![6, b],
        11 => vec![7, b, a],
        12 => [vec![2, a % 4, b], vec![1, 1]].concat(),
        _ => vec![4, 2, a, b],
    }
}

/// `cargo test -p sallyport-multipath -- --ignored write_the_corpus` writes the first files anew.
#[test]
#[ignore = "writes files into fuzz/corpus"]
fn write_the_corpus() {
    fs::create_dir_all(folder()).unwrap();
    for (name, steps) in files() {
        fs::write(folder().join(name), steps.concat()).unwrap();
    }
}

fn files() -> Vec<(&'static str, Vec<Vec<u8>>)> {
    let flood = |side, one: fn(u8) -> Vec<u8>| [vec![vec![side]], (0..200).map(one).collect()].concat();
    vec![
        ("edge-in-order", flood(0, |n| packet(n % 3, &data(n.into(), 0, true, &[n; 30])))),
        ("edge-backwards", flood(0, |n| packet(0, &data((200 - n).into(), 0, true, &[n; 100])))),
        ("edge-parts", flood(0, |n| packet(0, &data(u64::from(n / 4), u16::from(n % 4) * 10, n % 4 == 3, &[n; 10])))),
        ("edge-parts-that-never-end", flood(0, |n| packet(0, &data(n.into(), 1, false, &[n; 3])))),
        (
            "edge-contradiction",
            vec![
                vec![0],
                packet(0, &data(1, 10, true, &[1; 10])),
                packet(0, &[data(0, 0, true, b"kept?"), data(1, 30, false, &[2; 10])].concat()),
            ],
        ),
        ("edge-too-far", vec![vec![0], packet(0, &data(1 << 33, 0, true, b"far")), packet(0, &[1])]),
        (
            "edge-acks-never-sent",
            vec![vec![0], packet(0, &[1]), packet(0, &[data(0, 0, true, b"x"), ack(0, 0, 99)].concat())],
        ),
        ("edge-acks-many", vec![vec![0], packet(0, &[1]), packet(0, &ack(0, 0, 0).repeat(12))]),
        ("edge-paths", flood(0, |n| packet(n % 20, &status(n, n, 4)))),
        ("edge-removed", flood(0, |n| packet(0, &status(n, 1, 12)))),
        ("edge-challenges", flood(0, |n| [vec![7, 2, 0], packet(0, &[6, n, n, n, n, n, n, n, n])].concat())),
        (
            "edge-unvalidated",
            flood(0, |n| [vec![7, 8, 0], vec![5, n], vec![6, 18], packet(0, &[7, 8, 8, 8, 8, 8, 8, 8, 8])].concat()),
        ),
        ("edge-replays", flood(0, |n| [packet(n % 2, &[1]), vec![3], vec![2, 0, n, 1, 1]].concat())),
        (
            "edge-closes",
            vec![vec![0], packet(0, &[data(0, 0, true, b"last").as_slice(), &[5, 1]].concat()), packet(0, &[1])],
        ),
        ("connector-optimist", flood(1, |n| [vec![5, 255], vec![6, 10], packet(0, &ack(0, 0, n))].concat())),
        ("connector-silent", flood(1, |n| [vec![5, n], vec![6, 20]].concat())),
        ("connector-told", flood(1, |n| [packet(0, &status(0, n, n)), vec![5, 9], vec![6, 14]].concat())),
    ]
}
