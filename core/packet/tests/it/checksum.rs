//! Checksums: examples of the standards, and the change of a checksum equal to a new one.

use std::net::IpAddr;

use proptest::prelude::*;
use sallyport_packet_model::checksum::{Change, State, full, pseudo_header, state, sum, transport};

#[test]
fn the_example_of_rfc_1071() {
    assert_eq!(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
    assert_eq!(full(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0x220d);
    assert_eq!(sum(&[0x12]), 0x1200, "an odd byte is the upper half of a word");
    assert_eq!(full(&[]), 0xffff);
}

#[test]
fn the_example_of_rfc_1624() {
    assert_eq!(Change::new().word(0x5555, 0x3285).apply(0xdd2f), 0, "equation 2 would say 0xffff");
}

#[test]
fn udp_without_a_checksum_stays_so_and_a_sum_of_zero_is_sent_inverted() {
    assert_eq!(Change::new().word(1, 2).apply_udp(0), 0);
    assert_eq!(Change::new().word(0x5555, 0x3285).apply_udp(0xdd2f), 0xffff);
    assert_eq!(Change::new().word(1, 2).apply(0), 0xffff - 1);
}

#[test]
fn every_state_of_a_checksum_is_told_apart() {
    let (source, destination): (IpAddr, IpAddr) = ([192, 0, 2, 1].into(), [198, 51, 100, 2].into());
    let mut segment = [0x12, 0x34, 0, 53, 0, 12, 0, 0, b'a', b'b', b'c', b'd'];
    let judge = |segment: &[u8]| state(source, destination, 17, segment, 6);
    assert_eq!(judge(&segment), State::Absent);
    let right = transport(source, destination, 17, &segment);
    segment[6..8].copy_from_slice(&right.to_be_bytes());
    assert_eq!(judge(&segment), State::Right);
    segment[6..8].copy_from_slice(&pseudo_header(source, destination, 17, 12).to_be_bytes());
    assert_eq!(judge(&segment), State::Partial);
    segment[6..8].copy_from_slice(&(right ^ 1).to_be_bytes());
    assert_eq!(judge(&segment), State::Wrong);
    assert_eq!(judge(&segment[..7]), State::Wrong, "the field is cut");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(5_000) })]

    #[test]
    fn a_change_is_equal_to_a_new_sum(
        mut words in prop::collection::vec(any::<u16>(), 2..40),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u16>()), 1..6),
    ) {
        // No header is all zeros: its version is not.
        words[0] |= 0x4000;
        let bytes = |words: &[u16]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
        let before = full(&bytes(&words));
        let mut change = Change::new();
        for (index, new) in changes {
            let index = 1 + index.index(words.len() - 1);
            change = change.word(words[index], new);
            words[index] = new;
        }
        prop_assert_eq!(change.apply(before), full(&bytes(&words)));
    }

    #[test]
    fn bytes_change_as_their_words_do(old in any::<[u8; 16]>(), new in any::<[u8; 16]>(), before in any::<u16>()) {
        let words = |bytes: [u8; 16]| bytes.as_chunks::<2>().0.to_vec();
        let by_words = words(old).into_iter().zip(words(new)).fold(Change::new(), |change, (old, new)| {
            change.word(u16::from_be_bytes(old), u16::from_be_bytes(new))
        });
        prop_assert_eq!(Change::new().bytes(&old, &new).apply(before), by_words.apply(before));
    }

    #[test]
    fn a_segment_with_its_checksum_is_right(
        v6 in any::<bool>(), source in any::<u128>(), destination in any::<u128>(),
        mut segment in prop::collection::vec(any::<u8>(), 20..80),
    ) {
        let address = |bits: u128| -> IpAddr {
            if v6 { IpAddr::V6(bits.into()) } else { IpAddr::V4((bits as u32).into()) }
        };
        segment[16..18].fill(0);
        let right = transport(address(source), address(destination), 6, &segment);
        segment[16..18].copy_from_slice(&right.to_be_bytes());
        prop_assert_eq!(state(address(source), address(destination), 6, &segment, 16), State::Right);
    }
}
