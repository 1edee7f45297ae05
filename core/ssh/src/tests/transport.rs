//! Tests of versions, packets, key exchanges and their order.

use std::{sync::Arc, time::Duration};

use proptest::prelude::*;

use super::{events, is_protocol_fault, logged_in, logged_in_with, numbers_of, received, server as start, server_with};
use crate::{
    Error, Event, HostKey, Server, message,
    testing::{self, Client, Options, config, give, not_random, string},
    wire::Reader,
};

/// A message that needs no answer.
const IGNORE: [u8; 5] = [message::IGNORE, 0, 0, 0, 0];

fn with_exchange(name: &str) -> Options {
    Options { exchanges: format!("{name},ext-info-c,kex-strict-c-v00@openssh.com"), ..Options::default() }
}

#[test]
fn every_key_exchange_cipher_and_mac_is_spoken_with_strictness_and_without() {
    for (exchange, _) in crate::algorithms::KEY_EXCHANGES {
        let (mut server, now) = start();
        let mut client = Client::connected(&mut server, with_exchange(exchange), now).unwrap();
        assert_eq!(numbers_of(&mut client, &mut server), [message::EXT_INFO], "{exchange}");
        client.send(&mut server, &testing::service_request(), now).unwrap();
        assert_eq!(numbers_of(&mut client, &mut server), [6, 53], "{exchange}");
    }
    for (cipher, _) in crate::algorithms::CIPHERS {
        for (mac, _) in crate::algorithms::MACS {
            for exchanges in ["curve25519-sha256", "curve25519-sha256,kex-strict-c-v00@openssh.com"] {
                let options = Options {
                    exchanges: exchanges.to_owned(),
                    cipher: cipher.to_owned(),
                    mac: mac.to_owned(),
                    ..Options::default()
                };
                let (mut server, now) = start();
                let mut client = Client::connected(&mut server, options, now).unwrap();
                for _ in 0..3 {
                    client.send(&mut server, &IGNORE, now).unwrap();
                    client.exchange(&mut server, now).unwrap();
                }
                client.send(&mut server, &testing::service_request(), now).unwrap();
                assert_eq!(numbers_of(&mut client, &mut server), [6, 53], "{cipher} {mac}");
            }
        }
    }
}

#[test]
fn host_keys_of_every_curve_sign() {
    let key = HostKey::new(&crate::proof::new_p256().unwrap()).unwrap();
    let (mut server, now) = server_with(|config| config.host_keys.push(key));
    let options = Options { host_keys: "ecdsa-sha2-nistp256".to_owned(), ..Options::default() };
    assert!(Client::connected(&mut server, options, now).is_ok());
}

#[test]
fn no_common_algorithm_is_reported() {
    let cases = [
        (Options { exchanges: "diffie-hellman-group14-sha256".to_owned(), ..Options::default() }, "key exchange"),
        (Options { host_keys: "ssh-rsa".to_owned(), ..Options::default() }, "host key"),
        (Options { cipher: "aes128-cbc".to_owned(), ..Options::default() }, "cipher"),
        (Options { cipher: "aes256-ctr".to_owned(), mac: "hmac-sha2-256".to_owned(), ..Options::default() }, "MAC"),
    ];
    for (options, kind) in cases {
        let (mut server, now) = start();
        let mut client = Client::new(options);
        let line = client.version_line();
        give(&mut server, &line, now).unwrap();
        let kexinit = client.kexinit();
        assert_eq!(client.send(&mut server, &kexinit, now), Err(Error::NothingInCommon(kind)));
        assert_eq!(numbers_of(&mut client, &mut server), [message::KEXINIT, message::DISCONNECT]);
    }
}

#[test]
fn a_guess_is_right_where_the_first_names_are_the_same_and_ignored_otherwise() {
    // curve25519-sha256 is chosen, and is not the server's first: by the RFC the guess is wrong.
    let (mut server, now) = start();
    let options = Options { guesses_wrong: true, ..Options::default() };
    assert!(Client::connected(&mut server, options, now).is_ok());
    // The first names are the same: the public value that follows counts, and is invalid.
    let (mut server, now) = start();
    let options = Options { guesses_wrong: true, ..with_exchange("mlkem768x25519-sha256") };
    assert!(matches!(Client::connected(&mut server, options, now), Err(Error::KeyExchange(_))));
}

#[test]
fn a_strict_key_exchange_takes_nothing_else() {
    // Before KEXINIT.
    let (mut server, now) = start();
    let mut client = Client::new(Options::default());
    let mut input = client.version_line();
    input.extend(client.seal(&IGNORE));
    let kexinit = client.kexinit();
    input.extend(client.seal(&kexinit));
    assert!(is_protocol_fault(&give(&mut server, &input, now)));
    // After it, every otherwise accepted message.
    for number in [message::IGNORE, message::UNIMPLEMENTED, message::DEBUG, message::EXT_INFO] {
        let (mut server, now) = start();
        let mut client = Client::new(Options::default());
        let mut input = client.version_line();
        let kexinit = client.kexinit();
        input.extend(client.seal(&kexinit));
        give(&mut server, &input, now).unwrap();
        assert!(is_protocol_fault(&client.send(&mut server, &[number, 0, 0, 0, 0], now)), "{number}");
    }
    // A client without strict key exchange may send them.
    let (mut server, now) = start();
    let mut client = Client::new(Options { exchanges: "curve25519-sha256".to_owned(), ..Options::default() });
    let line = client.version_line();
    give(&mut server, &line, now).unwrap();
    client.send(&mut server, &IGNORE, now).unwrap();
    let kexinit = client.kexinit();
    client.send(&mut server, &kexinit, now).unwrap();
    client.send(&mut server, &IGNORE, now).unwrap();
}

#[test]
fn between_the_halves_and_newkeys_a_first_exchange_takes_nothing_in_clear_text() {
    for (exchanges, is_strict) in
        [("curve25519-sha256,kex-strict-c-v00@openssh.com", true), ("curve25519-sha256", false)]
    {
        for number in [message::IGNORE, message::DEBUG, message::EXT_INFO, 22, 31, 51, 62] {
            let (mut server, now) = start();
            let options = Options { exchanges: exchanges.to_owned(), ..Options::default() };
            let mut client = Client::new(options);
            let line = client.version_line();
            give(&mut server, &line, now).unwrap();
            client.send_half(&mut server, now).unwrap();
            let sent = client.send(&mut server, &[number, 0, 0, 0, 0], now);
            // A client without strict key exchange may send messages without effect.
            let may = !is_strict && matches!(number, message::IGNORE | message::DEBUG);
            assert_eq!(sent.is_ok(), may, "{number}, {exchanges}");
        }
    }
}

#[test]
fn messages_out_of_their_order_end_the_connection() {
    let before_keys: [&[u8]; 6] = [
        &testing::service_request(),
        &testing::login("ann", "none", &[]),
        &[message::NEWKEYS],
        &[message::KEX_ECDH_INIT, 0, 0, 0, 0],
        &testing::global_request("x", true, &[]),
        &[message::EXT_INFO, 0, 0, 0, 0],
    ];
    for payload in before_keys {
        let (mut server, now) = start();
        let mut client = Client::new(Options { exchanges: "curve25519-sha256".to_owned(), ..Options::default() });
        let line = client.version_line();
        give(&mut server, &line, now).unwrap();
        assert!(is_protocol_fault(&client.send(&mut server, payload, now)), "{payload:?}");
    }
    let twice = [Client::new(Options::default()).kexinit(), vec![message::NEWKEYS]];
    for second in twice {
        let (mut server, now) = start();
        let mut client = Client::new(Options::default());
        let line = client.version_line();
        give(&mut server, &line, now).unwrap();
        let kexinit = client.kexinit();
        client.send(&mut server, &kexinit, now).unwrap();
        assert!(is_protocol_fault(&client.send(&mut server, &second, now)));
    }
    // Under keys, a running key exchange allows no other messages of its layer.
    let (mut server, mut client, now) = logged_in();
    let kexinit = client.kexinit();
    client.send(&mut server, &kexinit, now).unwrap();
    assert!(is_protocol_fault(&client.send(&mut server, &testing::service_request(), now)));
}

#[test]
fn what_a_client_says_behind_its_kexinit_is_answered_behind_the_exchange() {
    let (mut server, mut client, now) = logged_in();
    received(&mut client, &mut server);
    let kexinit = client.kexinit();
    client.send(&mut server, &kexinit, now).unwrap();
    client.send(&mut server, &testing::global_request("x", true, &[]), now).unwrap();
    assert_eq!(numbers_of(&mut client, &mut server), [message::KEXINIT]);
}

#[test]
fn a_forged_packet_ends_the_connection_and_what_follows_is_not_looked_at() {
    let (mut server, mut client, now) = logged_in();
    received(&mut client, &mut server);
    let mut packet = client.seal(&testing::global_request("x", true, &[]));
    let last = packet.len() - 1;
    packet[last] ^= 1;
    assert_eq!(give(&mut server, &packet, now), Err(Error::Forged));
    assert_eq!(numbers_of(&mut client, &mut server), [message::DISCONNECT]);
    assert_eq!(give(&mut server, &[0; 100_000], now), Ok(()));
    assert_eq!(server.output_len(), 0);
}

#[test]
fn bytes_of_another_protocol_are_refused_early() {
    for line in [&b"GET / HTTP/1.1\r\n"[..], b"SSH-1.5-x\r\n", &[0x16, 3, 1], &[b'S'; 300], b"SSH-2.0-\0\n"] {
        let (mut server, now) = start();
        assert_eq!(give(&mut server, line, now), Err(Error::NoClient), "{line:?}");
    }
    let long = [&b"SSH-2.0-"[..], &[b'x'; 300]].concat();
    let (mut server, now) = start();
    assert_eq!(give(&mut server, &long, now), Err(Error::NoClient));
    let (mut server, now) = start();
    assert_eq!(server.handle_input(&mut b"SSH-2.0-x\n\0\0".to_vec(), now), Ok(10));
}

#[test]
fn keys_are_exchanged_anew_by_bytes_by_time_and_by_the_client() {
    let (mut server, mut client, now) = logged_in_with(|config| config.rekey_bytes = 10_000);
    received(&mut client, &mut server);
    client.send(&mut server, &[&[message::IGNORE][..], &string(&[0; 11_000])].concat(), now).unwrap();
    client.exchange(&mut server, now).unwrap();
    assert_eq!(numbers_of(&mut client, &mut server), []);
    client.exchange(&mut server, now).unwrap();
    let later = now + Duration::from_secs(3_601);
    client.send(&mut server, &IGNORE, later).unwrap();
    // Messages in the meantime wait, in order.
    client.send(&mut server, &testing::global_request("x", true, &[]), later).unwrap();
    let kexinit = received(&mut client, &mut server);
    assert!(kexinit.len() == 1 && kexinit[0][0] == message::KEXINIT);
}

#[test]
fn a_key_exchange_that_never_ends_is_given_up() {
    let (mut server, mut client, now) = logged_in();
    let mut later = now + Duration::from_secs(3_601);
    client.send(&mut server, &IGNORE, later).unwrap();
    for _ in 0..100 {
        later += Duration::from_secs(14);
        if let Err(error) = client.send(&mut server, &IGNORE, later) {
            assert!(matches!(error, Error::KeyExchange(_)));
            return;
        }
    }
    panic!("the key exchanges do not end");
}

#[test]
fn a_client_may_leave_at_any_time() {
    let (mut server, mut client, now) = logged_in();
    let payload = [&[message::DISCONNECT, 0, 0, 0, 11][..], &string(b"bye"), &string(b"")].concat();
    assert_eq!(client.send(&mut server, &payload, now), Err(Error::Left { reason: 11 }));
}

#[test]
fn a_silent_client_is_asked_and_then_given_up() {
    let (mut server, mut client, now) = logged_in();
    received(&mut client, &mut server);
    let mut at = now;
    for _ in 0..3 {
        at = server.deadline();
        server.handle_deadline(at).unwrap();
        assert_eq!(numbers_of(&mut client, &mut server), [message::GLOBAL_REQUEST]);
    }
    // Any sign of life counts.
    client.send(&mut server, &[message::REQUEST_FAILURE], at).unwrap();
    for round in 0..4 {
        at = server.deadline();
        assert_eq!(server.handle_deadline(at).is_ok(), round < 3);
    }
    assert_eq!(server.handle_deadline(at), Ok(()), "over");
}

#[test]
fn answers_of_a_client_are_matched_to_their_requests() {
    let (mut server, mut client, now) = logged_in();
    let at = server.deadline();
    server.handle_deadline(at).unwrap();
    let (first, second) = (server.ping().unwrap(), server.ping().unwrap());
    for _ in 0..3 {
        client.send(&mut server, &[message::REQUEST_FAILURE], now).unwrap();
    }
    let happened = events(&mut server);
    assert!(matches!(happened[..], [Event::Pong(a), Event::Pong(b)] if (a, b) == (first, second)), "{happened:?}");
    // An answer without a request.
    client.send(&mut server, &[message::REQUEST_SUCCESS], now).unwrap();
    assert!(std::iter::from_fn(|| server.ping()).count() < 100, "probes are bounded");
}

#[test]
fn unknown_messages_are_answered_with_unimplemented() {
    let (mut server, mut client, now) = logged_in();
    received(&mut client, &mut server);
    client.send(&mut server, &[70], now).unwrap();
    client.send(&mut server, &[192], now).unwrap();
    let payloads = received(&mut client, &mut server);
    assert_eq!(payloads.iter().map(|payload| payload[0]).collect::<Vec<_>>(), [3, 3]);
    let sequences: Vec<u32> = payloads.iter().map(|payload| Reader::new(&payload[1..]).u32().unwrap()).collect();
    assert_eq!(sequences[1], sequences[0] + 1);
}

/// All messages of a login and a forward request; an unencrypted connection would show them.
fn conversation() -> Vec<u8> {
    let mut client = Client::new(Options { exchanges: "curve25519-sha256".to_owned(), ..Options::default() });
    let mut input = client.version_line();
    let kexinit = client.kexinit();
    for payload in [&IGNORE[..], &kexinit, &IGNORE, &[message::DEBUG, 0, 0, 0, 0, 0, 0, 0, 0, 0]] {
        input.extend(client.seal(payload));
    }
    input
}

proptest! {
    #[test]
    fn input_in_any_pieces_means_the_same(cuts in proptest::collection::vec(1_usize..200, 1..40)) {
        let whole = conversation();
        let (mut at_once, now) = start();
        give(&mut at_once, &whole, now).unwrap();
        let (mut in_pieces, mut kept) = (Server::new(Arc::new(config()), not_random, now), Vec::new());
        let mut rest = &whole[..];
        for cut in cuts.into_iter().cycle() {
            let (piece, behind) = rest.split_at(cut.min(rest.len()));
            kept.extend_from_slice(piece);
            let done = in_pieces.handle_input(&mut kept, now).unwrap();
            kept.drain(..done);
            rest = behind;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert!(kept.is_empty());
        prop_assert_eq!(in_pieces.output_len(), at_once.output_len());
    }

    #[test]
    fn packets_under_keys_may_come_in_any_pieces(cuts in proptest::collection::vec(1_usize..300, 1..20)) {
        let (mut server, mut client, now) = logged_in();
        received(&mut client, &mut server);
        let mut wire = Vec::new();
        for size in [0, 10, 1_000] {
            wire.extend(client.seal(&testing::global_request("x", true, &vec![0; size])));
        }
        let (mut kept, mut rest) = (Vec::new(), &wire[..]);
        for cut in cuts.into_iter().cycle() {
            let (piece, behind) = rest.split_at(cut.min(rest.len()));
            kept.extend_from_slice(piece);
            let done = server.handle_input(&mut kept, now).unwrap();
            kept.drain(..done);
            rest = behind;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(numbers_of(&mut client, &mut server), [message::REQUEST_FAILURE; 3]);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let (mut server, now) = start();
        let _ = give(&mut server, &[&b"SSH-2.0-x\r\n"[..], &bytes].concat(), now);
    }
}
