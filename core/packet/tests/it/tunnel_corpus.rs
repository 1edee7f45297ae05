//! The corpus of the fuzzer of tunnels, replayed; and the tool that writes its first files.

use std::{fs, path::PathBuf};

use proptest::prelude::*;
use sallyport_packet_model::{
    balance::{Encapsulation, Outer, wrap},
    testing::Frame,
};

use crate::tunnel_fuzz::{balancer, tunnel_frame};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/tunnel_frame")
}

#[test]
fn every_tunnel_of_the_corpus_passes() {
    let files: Vec<PathBuf> = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= files_by_hand().len(), "{} files", files.len());
    let balancer = balancer().unwrap();
    for file in files {
        println!("{}", file.display());
        tunnel_frame(&balancer, &fs::read(&file).unwrap());
    }
}

#[test]
fn tunnels_that_are_nearly_right_break_nothing() {
    let balancer = balancer().unwrap();
    for (name, data) in files_by_hand() {
        for at in 0..data.len().min(120) {
            println!("{name}: byte {at}");
            tunnel_frame(&balancer, &data[..at]);
            for byte in [0, 1, 2, 4, 5, 17, 31, 41, 44, 0x45, 0x60, 0xff] {
                let mut changed = data.clone();
                changed[at] = byte;
                tunnel_frame(&balancer, &changed);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn arbitrary_payloads_of_tunnels_break_nothing(payload in prop::collection::vec(any::<u8>(), 0..120)) {
        let balancer = balancer().unwrap();
        for source in ["192.0.2.1", "192.0.2.9"] {
            tunnel_frame(&balancer, &Frame::udp((source, 5_000), ("10.9.0.1", 6_080), &payload).bytes());
        }
        tunnel_frame(&balancer, &Frame::udp(("192.0.2.1", 5_000), ("198.51.100.2", 443), &payload).bytes());
    }
}

/// The first files of the corpus.
fn files_by_hand() -> Vec<(&'static str, Vec<u8>)> {
    let (client, service) = (("192.0.2.7", 1234), ("198.51.100.2", 443));
    let tcp = Frame::tcp(client, service, 0x10, b"data");
    let inside = tcp.bytes();
    let length = (inside.len() - 14) as u16;
    let outer = Outer {
        encapsulation: Encapsulation::Gue,
        source: [192, 0, 2, 1].into(),
        destination: [10, 9, 0, 1].into(),
        second: Some([10, 2, 1, 3].into()),
        port: 6_080,
        hash: 7,
    };
    let wrapped = |outer: Outer| wrap(&inside, length, 0, &outer);
    let sent = Frame::tcp(service, client, 0x10, b"answer");
    let quic = [0x40, 8, 0, 7, 1, 2, 3, 4, 5, 6, 0xaa];
    vec![
        ("tcp", tcp.bytes()),
        ("syn", Frame::tcp(client, service, 2, b"").bytes()),
        ("quic", Frame::udp(client, service, &quic).bytes()),
        ("quic-long", Frame::udp(client, service, &[0xc0, 0, 0, 0, 1, 9, 8, 0, 7, 1, 2, 3, 4, 5, 6, 0]).bytes()),
        ("gue", wrapped(Outer { second: None, ..outer })),
        ("gue-second", wrapped(outer)),
        ("gue-second-6", wrapped(Outer { second: Some("fd00::3".parse().unwrap()), ..outer })),
        ("ipip", wrapped(Outer { encapsulation: Encapsulation::Ipip, ..outer })),
        ("echo", Frame::echo(client.0, service.0, false, 7).bytes()),
        ("error", Frame::error("203.0.113.1", service.0, 3, &sent.packet()).bytes()),
        ("fragment", Frame { fragment: 0x2000, ..tcp.clone() }.bytes()),
        ("too-big", Frame::udp(client, service, &[0; 1_460]).bytes()),
    ]
}

/// `cargo test -p sallyport-packet-model -- --ignored write_the_tunnel_corpus` writes the first files anew.
#[test]
#[ignore = "writes files into fuzz/corpus"]
fn write_the_tunnel_corpus() {
    fs::create_dir_all(folder()).unwrap();
    for (name, data) in files_by_hand() {
        fs::write(folder().join(name), data).unwrap();
    }
}
