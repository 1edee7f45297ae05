//! Floods with forged senders.

use std::time::Duration;

use sallyport_zone::{AnswerKind, State, StateConfig, Transport, limit::CookieSecrets};

use crate::support::{Ask, DNSSEC_OK, Lab, signed_zone};

fn lab() -> Lab {
    let mut lab = Lab::new([signed_zone("example.com", "www A 192.0.2.1\n*.wild A 192.0.2.2")]);
    lab.state = State::new(StateConfig::default(), [1; 16]);
    lab.settings.cookies = Some(CookieSecrets::new([7; 16], None));
    lab
}

/// Bytes in and out of a flood, of the seconds after the first.
fn flood(lab: &mut Lab, queries: &[Vec<u8>], per_millisecond: usize) -> (usize, usize) {
    let (mut bytes_in, mut bytes_out, begun) = (0, 0, lab.now.monotonic);
    for millisecond in 0..5_000_u64 {
        lab.now.monotonic = begun + Duration::from_millis(millisecond);
        for index in 0..per_millisecond {
            // The victim's network.
            lab.peer.address = [203, 0, 113, (millisecond as usize + index) as u8].into();
            let query = &queries[(millisecond as usize * per_millisecond + index) % queries.len()];
            let (_, out) = lab.send(query);
            if millisecond >= 1_000 {
                bytes_in += query.len();
                bytes_out += out.len();
            }
        }
    }
    (bytes_in, bytes_out)
}

#[test]
fn after_a_second_a_flood_gets_no_more_bytes_than_it_sends() {
    for ask in [
        Ask::new("www.example.com", 1),
        Ask::new("example.com", 48).edns(DNSSEC_OK),
        Ask::new("x.wild.example.com", 1).edns(DNSSEC_OK),
        Ask::new("none.example.com", 1).edns(DNSSEC_OK),
        Ask::new("example.com", 255).edns(DNSSEC_OK),
        Ask::new("www.example.com", 1).option(10, b"clientck"),
        Ask::new("www.example.net", 1),
        Ask { edns: None, ..Ask::new("www.example.com", 1) },
    ] {
        for per_millisecond in [1, 4] {
            let (bytes_in, bytes_out) = flood(&mut lab(), &[ask.bytes()], per_millisecond);
            assert!(bytes_out <= bytes_in, "{} {}: {bytes_in} in, {bytes_out} out", ask.name, ask.rtype);
        }
    }
}

#[test]
fn kinds_taken_together_are_bounded_too() {
    let asks = [("www.example.com", 1), ("www.example.com", 16), ("none.example.com", 1), ("example.net", 1)];
    let queries: Vec<_> = asks.iter().map(|(name, rtype)| Ask::new(name, *rtype).edns(DNSSEC_OK).bytes()).collect();
    let (bytes_in, bytes_out) = flood(&mut lab(), &queries, 4);
    assert!(bytes_out <= bytes_in, "{bytes_in} in, {bytes_out} out");
}

/// A flood in the names of all networks stays below the rate of each.
#[test]
fn a_flood_in_the_names_of_many_networks_is_bounded_too() {
    let mut lab = lab();
    let query = Ask::new("x.wild.example.com", 1).edns(DNSSEC_OK).bytes();
    let (mut bytes_in, mut bytes_out, begun) = (0, 0, lab.now.monotonic);
    for n in 0..40_000_u32 {
        lab.now.monotonic = begun + Duration::from_micros(u64::from(n) * 100);
        lab.peer.address = n.wrapping_mul(2_654_435_761).to_be_bytes().into();
        let (_, out) = lab.send(&query);
        if n >= 10_000 {
            bytes_in += query.len();
            bytes_out += out.len();
        }
    }
    assert!(bytes_out <= bytes_in, "{bytes_in} in, {bytes_out} out");
}

#[test]
fn real_clients_get_through() {
    let mut lab = lab();
    let plain = Ask::new("www.example.com", 1);
    let (_, first) = lab.send(&plain.clone().option(10, b"clientck").bytes());
    let cookie = first[first.len() - 24..].to_vec();
    let mut limited = 0;
    for _ in 0..1_000 {
        limited += usize::from(lab.send(&plain.bytes()).0.kind == AnswerKind::Limited);
    }
    assert!(limited > 500);
    let with_cookie = plain.clone().option(10, &cookie).bytes();
    assert_eq!(lab.send(&with_cookie).0.kind, AnswerKind::Records, "a valid cookie");
    lab.peer.transport = Transport::Tcp;
    assert_eq!(lab.send(&plain.bytes()).0.kind, AnswerKind::Records, "TCP");
}
