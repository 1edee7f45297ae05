//! The corpus of the fuzzer of frames, replayed; and the tool that writes its first files.

use std::{fs, path::PathBuf};

use proptest::prelude::*;

use sallyport_packet_model::testing::Frame;

use crate::parse_fuzz::packet_frame;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/packet_frame")
}

#[test]
fn every_file_of_the_corpus_passes() {
    let files: Vec<PathBuf> = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= files_by_hand().len(), "{} files", files.len());
    for file in files {
        println!("{}", file.display());
        packet_frame(&fs::read(&file).unwrap());
    }
}

#[test]
fn frames_that_are_nearly_right_break_nothing() {
    for (name, data) in files_by_hand() {
        for at in 0..data.len() {
            println!("{name}: byte {at}");
            packet_frame(&data[..at]);
            for byte in [0, 1, 4, 6, 17, 43, 44, 58, 60, 0x45, 0x60, 0x81, 0xff] {
                let mut changed = data.clone();
                changed[at] = byte;
                packet_frame(&changed);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(5_000) })]

    #[test]
    fn arbitrary_frames_break_nothing(
        ether_type in prop::sample::select(vec![[8u8, 0], [0x86, 0xdd], [0x81, 0], [0x88, 0xa8]]),
        mut data in prop::collection::vec(any::<u8>(), 14..160),
    ) {
        data[12..14].copy_from_slice(&ether_type);
        packet_frame(&data);
    }
}

/// The first files of the corpus.
fn files_by_hand() -> Vec<(&'static str, Vec<u8>)> {
    let (v4, v6) = (("192.0.2.1", 1234), ("2001:db8::1", 1234));
    let udp4 = Frame::udp(v4, ("198.51.100.2", 53), b"question");
    let udp6 = Frame::udp(v6, ("2001:db8:1::2", 53), b"question");
    let tcp4 = Frame::tcp(v4, ("198.51.100.2", 80), 2, b"");
    let error4 = Frame::error("203.0.113.1", v4.0, 3, &udp4.packet());
    let error6 = Frame::error("2001:db8:2::1", v6.0, 2, &udp6.packet());
    let options = Frame { extra: vec![0x94, 4, 0, 0], ..udp4.clone() };
    let extensions = Frame {
        extra: vec![60, 0, 5, 2, 0, 0, 1, 0, 43, 0, 1, 4, 0, 0, 0, 0, 17, 0, 4, 0, 0, 0, 0, 0],
        next_header: Some(0),
        ..udp6.clone()
    };
    let fragment4 = Frame { fragment: 0x2000, ..udp4.clone() };
    let later4 = Frame { fragment: 0x00b9, ..udp4.clone() };
    let fragment6 = Frame { extra: vec![17, 0, 0, 9, 1, 2, 3, 4], next_header: Some(44), ..udp6.clone() };
    let arp = [[0xff; 6].as_slice(), &[2, 0, 0, 0, 0, 9, 8, 6], &[0; 28]].concat();
    vec![
        ("udp-4", udp4.bytes()),
        ("udp-6", udp6.bytes()),
        ("tcp-4", tcp4.bytes()),
        ("tcp-6", Frame::tcp(v6, ("2001:db8:1::2", 443), 0x18, b"data").bytes()),
        ("echo-4", Frame::echo(v4.0, "198.51.100.2", false, 77).bytes()),
        ("echo-6", Frame::echo(v6.0, "2001:db8:1::2", true, 77).bytes()),
        ("error-4", error4.bytes()),
        ("error-6", error6.bytes()),
        ("one-tag", Frame { tags: vec![100], ..udp4.clone() }.bytes()),
        ("two-tags", Frame { tags: vec![100, 200], ..udp6.clone() }.bytes()),
        ("three-tags", Frame { tags: vec![100, 200, 300], ..udp4.clone() }.bytes()),
        ("padding", Frame { padding: 18, ..udp4.clone() }.bytes()),
        ("options", options.bytes()),
        ("extensions", extensions.bytes()),
        ("fragment-4", fragment4.bytes()),
        ("later-fragment-4", later4.bytes()),
        ("later-fragment-6", fragment6.bytes()),
        ("other-protocol", Frame::new(v4.0, "198.51.100.2", 47, vec![0; 12]).bytes()),
        ("arp", arp),
        ("short-error", Frame::error("203.0.113.1", v4.0, 11, &udp4.packet()[..28]).bytes()),
        ("cut-error", Frame::error("203.0.113.1", v4.0, 11, &udp4.packet()[..22]).bytes()),
    ]
}

/// `cargo test -p sallyport-packet-model -- --ignored write_the_corpus` writes the first files anew.
#[test]
#[ignore = "writes files into fuzz/corpus"]
fn write_the_corpus() {
    fs::create_dir_all(folder()).unwrap();
    for (name, data) in files_by_hand() {
        fs::write(folder().join(name), data).unwrap();
    }
}
