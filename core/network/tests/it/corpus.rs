//! The fuzzer's corpus, replayed; the tool that writes its first files; and arbitrary input.

use std::{fs, path::PathBuf};

use proptest::prelude::*;
use sallyport_packet_model::testing::Frame;
use sallyport_wire::{frame::HEADER_BYTES, packets};

use crate::{packet_fuzz::network_packet, relay::parcel};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/network_packet")
}

#[test]
fn every_file_of_the_corpus_passes() {
    let files: Vec<PathBuf> = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 10, "{} files", files.len());
    for file in files {
        network_packet(&fs::read(&file).unwrap());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_are_no_way_into_a_network(data in prop::collection::vec(any::<u8>(), 0..600)) {
        network_packet(&data);
    }

    #[test]
    fn a_spoiled_packet_is_no_way_into_a_network(
        first in any::<u8>(),
        file in 0_usize..64,
        spoiled in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let files = files();
        let mut data = files[file % files.len()].1.clone();
        data[0] = first;
        for (place, value) in spoiled {
            let at = place.index(data.len());
            data[at] = value;
        }
        network_packet(&data);
    }
}

/// `cargo test -p sallyport-network -- --ignored write_the_corpus` writes the first files anew.
#[test]
#[ignore = "writes files into fuzz/corpus"]
fn write_the_corpus() {
    fs::create_dir_all(folder()).unwrap();
    for (name, data) in files() {
        fs::write(folder().join(name), data).unwrap();
    }
}

fn files() -> Vec<(&'static str, Vec<u8>)> {
    let (a, b) = ("10.20.0.1", "10.20.0.2");
    let (a6, b6) = ("fd00:20::1", "fd00:20::2");
    let file = |first: u8, frames: &[Frame]| {
        let parcels: Vec<Vec<u8>> = frames.iter().map(parcel).collect();
        let mut frame = Vec::new();
        packets::encode(parcels.iter().map(Vec::as_slice), &mut frame);
        [&[first], &frame[HEADER_BYTES..]].concat()
    };
    let web = Frame::tcp((a, 5000), (b, 443), 2, b"");
    let dns = Frame::udp((a6, 5000), (b6, 53), b"question");
    let mut train = file(0, &[Frame::tcp((a, 5000), (b, 443), 16, &[7; 4_000])]);
    // The header of a train: after the machine and the length of the packet.
    train[3..13].copy_from_slice(&[1, 1, 40, 0, 0x78, 5, 20, 0, 16, 0]);
    let later = Frame { fragment: 100, ..web.clone() };
    vec![
        ("tcp", file(0, std::slice::from_ref(&web))),
        ("tcp-by-policy", file(0x80, std::slice::from_ref(&web))),
        ("telnet", file(0x80, &[Frame::tcp((a, 5000), (b, 23), 2, b"")])),
        ("dns-6", file(0x80, std::slice::from_ref(&dns))),
        ("echo", file(0x80, &[Frame::echo(a, b, false, 7), Frame::echo(a6, b6, false, 7)])),
        ("spoofed", file(0, &[Frame::udp((b, 1), ("10.20.0.3", 2), b"x"), Frame::udp(("8.8.8.8", 1), (b, 2), b"x")])),
        (
            "multicast",
            file(0, &[Frame::udp((a, 1), ("224.0.0.251", 5353), b"x"), Frame::new(a6, "ff02::2", 58, vec![0; 8])]),
        ),
        ("exit", file(2, &[Frame::udp(("192.0.2.1", 1), (a, 2), b"x")])),
        ("error", file(0x81, &[Frame::error(b, a, 3, &web.packet()[..28])])),
        ("fragment", file(0x80, &[later])),
        ("train", train),
        ("oversize", file(0, &[Frame::udp((a, 1), (b, 2), &[1; 2_000])])),
    ]
}
