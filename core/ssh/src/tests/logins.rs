//! Tests of logins, and of the limits before them.

use super::{events, is_protocol_fault, numbers_of, received, server as start, server_with};
use crate::{
    Answer, Credential, Error, Event, Server, message,
    testing::{self, Client, Options, string},
};

const SEED: [u8; 32] = [9; 32];

/// A client that may attempt to log in.
fn asking(server: &mut Server, now: std::time::Instant) -> Client {
    let mut client = Client::connected(server, Options::default(), now).unwrap();
    client.send(server, &testing::service_request(), now).unwrap();
    received(&mut client, server);
    client
}

fn asked(server: &mut Server) -> (String, Credential) {
    match events(server).pop() {
        Some(Event::Login(login)) => (login.user, login.credential),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_key_is_offered_and_then_proven() {
    let (mut server, now) = start();
    let mut client = asking(&mut server, now);
    client.send(&mut server, &testing::login_by_key("ann", &SEED, None), now).unwrap();
    let (user, credential) = asked(&mut server);
    assert!(user == "ann" && matches!(credential, Credential::Key { is_proven: false, .. }), "{credential:?}");
    server.answer_login(Answer::Accept);
    assert_eq!(numbers_of(&mut client, &mut server), [message::USERAUTH_PK_OK]);
    assert!(!server.is_logged_in());
    let session = client.session().to_vec();
    client.send(&mut server, &testing::login_by_key("ann", &SEED, Some(&session)), now).unwrap();
    assert!(matches!(asked(&mut server).1, Credential::Key { is_proven: true, .. }));
    server.answer_login(Answer::Accept);
    assert_eq!(numbers_of(&mut client, &mut server), [message::USERAUTH_SUCCESS]);
    assert!(server.is_logged_in());
    // Further attempts are not handled.
    client.send(&mut server, &testing::login_by_key("bob", &SEED, None), now).unwrap();
    assert!(events(&mut server).is_empty());
}

#[test]
fn a_wrong_signature_is_no_proof_whatever_the_driver_says() {
    let (mut server, now) = start();
    let mut client = asking(&mut server, now);
    let session = client.session().to_vec();
    let good = testing::login_by_key("ann", &SEED, Some(&session));
    let mut other_user = good.clone();
    other_user[7] ^= 1;
    let mut other_signature = good.clone();
    *other_signature.last_mut().unwrap() ^= 1;
    let replayed = testing::login_by_key("ann", &SEED, Some(&[1; 32]));
    for payload in [other_user, other_signature, replayed] {
        client.send(&mut server, &payload, now).unwrap();
        assert!(matches!(asked(&mut server).1, Credential::Unusable));
        server.answer_login(Answer::Accept);
        assert_eq!(numbers_of(&mut client, &mut server), [message::USERAUTH_FAILURE]);
    }
    assert!(!server.is_logged_in());
}

#[test]
fn nothing_of_a_client_is_read_while_its_login_is_decided() {
    let (mut server, now) = start();
    let mut client = asking(&mut server, now);
    let mut input = client.seal(&testing::login("ann", "none", &[]));
    let first = input.len();
    input.extend(client.seal(&testing::login("bob", "none", &[])));
    assert_eq!(server.handle_input(&mut input, now), Ok(first));
    assert!(!server.wants_input());
    assert_eq!(asked(&mut server).0, "ann");
    server.answer_login(Answer::Refuse);
    assert!(server.wants_input());
    assert!(server.handle_input(&mut input[first..], now).is_ok());
    assert_eq!(asked(&mut server).0, "bob");
}

#[test]
fn unknown_methods_and_algorithms_are_worth_nothing() {
    let (mut server, now) = server_with(|config| config.max_refusals = 100);
    let mut client = asking(&mut server, now);
    let key = crate::proof::ed25519_from_seed(&SEED).unwrap().public_key().to_bytes().unwrap();
    let offer = |name: &[u8], blob: &[u8]| [&[0][..], &string(name), &string(blob)].concat();
    let attempts = [
        testing::login("ann", "password", &[0, 0, 0, 0, 1, b'x']),
        testing::login("ann", "hostbased", &[]),
        testing::login("ann", "publickey", &offer(b"ssh-dss", &key)),
        testing::login("ann", "publickey", &offer(b"ecdsa-sha2-nistp256", &key)),
        testing::login("ann", "publickey", &offer(b"ssh-ed25519", b"")),
        testing::login("ann", "publickey", &offer(b"ssh-ed25519", &key[..20])),
        testing::login("ann", "publickey", &offer(b"ssh-ed25519-cert-v01@openssh.com", &key)),
        testing::login("ann", "publickey", &offer(b"ssh-ed25519", &[&key[..], &[0]].concat())),
    ];
    for payload in attempts {
        client.send(&mut server, &payload, now).unwrap();
        assert!(matches!(asked(&mut server).1, Credential::Unusable), "{payload:?}");
        server.answer_login(Answer::Refuse);
    }
    let long = "x".repeat(crate::MAX_USER_BYTES + 1);
    client.send(&mut server, &testing::login(&long, "none", &[]), now).unwrap();
    assert_eq!(asked(&mut server).0, "");
}

#[test]
fn messages_of_logins_that_are_no_messages_end_the_connection() {
    let wrong = [
        testing::login("ann", "publickey", &[0]),
        vec![message::USERAUTH_REQUEST],
        testing::payload(message::USERAUTH_REQUEST, &[b"ann", b"ssh-other", b"none"]),
        testing::payload(message::SERVICE_REQUEST, &[b"ssh-userauth"]),
        vec![message::USERAUTH_INFO_RESPONSE, 0, 0, 0, 0],
        testing::global_request("tcpip-forward", true, &[]),
        testing::on_channel(message::CHANNEL_DATA, 0, &string(b"x")),
    ];
    for payload in wrong {
        let (mut server, now) = start();
        let mut client = asking(&mut server, now);
        assert!(is_protocol_fault(&client.send(&mut server, &payload, now)), "{payload:?}");
    }
    let (mut server, now) = start();
    let mut client = Client::connected(&mut server, Options::default(), now).unwrap();
    assert!(is_protocol_fault(&client.send(&mut server, &testing::login("ann", "none", &[]), now)));
}

#[test]
fn refusals_are_counted_and_too_many_end_the_connection() {
    let (mut server, now) = server_with(|config| config.max_refusals = 3);
    let mut client = asking(&mut server, now);
    for _ in 0..3 {
        client.send(&mut server, &testing::login_by_key("ann", &SEED, None), now).unwrap();
        asked(&mut server);
        server.answer_login(Answer::Refuse);
    }
    let last = client.send(&mut server, &testing::login_by_key("ann", &SEED, None), now);
    assert_eq!(last, Err(Error::TooManyAttempts));
    let payloads = received(&mut client, &mut server);
    let text = String::from_utf8_lossy(payloads.last().unwrap()).into_owned();
    assert!(text.contains("Too many authentication attempts"), "{text}");
}

#[test]
fn a_hint_is_shown_once_and_then_keys_are_all_there_is() {
    let (mut server, now) = start();
    let mut client = asking(&mut server, now);
    let attempt = testing::login("ann", "keyboard-interactive", &[0; 8]);
    client.send(&mut server, &attempt, now).unwrap();
    assert!(matches!(asked(&mut server).1, Credential::Interactive));
    server.answer_login(Answer::Hint("add a key".to_owned()));
    let payloads = received(&mut client, &mut server);
    assert!(payloads[0][0] == message::USERAUTH_INFO_REQUEST && payloads[0].ends_with(&[0, 0, 0, 0]));
    client.send(&mut server, &[message::USERAUTH_INFO_RESPONSE, 0, 0, 0, 0], now).unwrap();
    let (user, credential) = asked(&mut server);
    assert!(user == "ann" && matches!(credential, Credential::Unusable));
    server.answer_login(Answer::RefuseInteractive);
    let payloads = received(&mut client, &mut server);
    assert_eq!(payloads[0], [&[message::USERAUTH_FAILURE][..], &string(b"publickey"), &[0]].concat());
    client.send(&mut server, &attempt, now).unwrap();
    assert!(matches!(asked(&mut server).1, Credential::Unusable));
}

#[test]
fn a_client_that_does_much_before_its_login_is_ended() {
    let ignore = [&[message::IGNORE][..], &string(&[0; 30_000])].concat();
    for payload in [&ignore[..], &[message::IGNORE, 0, 0, 0, 0]] {
        let (mut server, now) = start();
        let mut client = asking(&mut server, now);
        let sent = (0..2_000).find_map(|_| client.send(&mut server, payload, now).err());
        assert_eq!(sent, Some(Error::TooMuchBeforeLogin));
    }
    let (mut server, now) = start();
    let mut client = asking(&mut server, now);
    let exchanged = (0..10).find_map(|_| client.exchange(&mut server, now).err());
    assert_eq!(exchanged, Some(Error::TooMuchBeforeLogin));
}

#[test]
fn a_key_for_sha1_is_reported_separately() {
    let (mut server, now) = start();
    let mut client = asking(&mut server, now);
    let modulus = [&[0][..], &[0xc1; 256]].concat();
    let blob = [string(b"ssh-rsa"), string(&[1, 0, 1]), string(&modulus)].concat();
    for (name, uses_sha1) in [("ssh-rsa", true), ("rsa-sha2-256", false)] {
        let rest = [&[0][..], &string(name.as_bytes()), &string(&blob)].concat();
        client.send(&mut server, &testing::login("ann", "publickey", &rest), now).unwrap();
        assert_eq!(matches!(asked(&mut server).1, Credential::Sha1(_)), uses_sha1, "{name}");
        server.answer_login(Answer::Accept);
        let expected = if uses_sha1 { message::USERAUTH_FAILURE } else { message::USERAUTH_PK_OK };
        assert_eq!(numbers_of(&mut client, &mut server), [expected], "{name}");
    }
}
