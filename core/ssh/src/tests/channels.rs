//! Forwards, streams and sessions.

use proptest::prelude::*;

use super::{events, is_protocol_fault, logged_in, logged_in_with, numbers_of, received};
use crate::{
    ChannelId, Event, FIRST_WINDOW_BYTES, MAX_WAITING_BYTES, Read, Server, SessionRequest, Written, message,
    testing::{self, Client, numbers, on_channel, string},
};

/// A stream that the client has opened, as its channel 5, with these windows.
fn stream(server: &mut Server, client: &mut Client, now: std::time::Instant, window: u32) -> ChannelId {
    let id = server.open_forwarded(("localhost", 80), ("192.0.2.1", 1)).unwrap();
    client.send(server, &on_channel(91, id.0, &numbers(&[5, window, 32_768])), now).unwrap();
    assert!(matches!(events(server)[..], [Event::Opened(opened)] if opened == id));
    received(client, server);
    id
}

/// A session that the client has opened, as its channel 6.
fn session(server: &mut Server, client: &mut Client, now: std::time::Instant) -> ChannelId {
    let open = [&string(b"session")[..], &numbers(&[6, 100_000, 32_768])].concat();
    client.send(server, &[&[message::CHANNEL_OPEN][..], &open].concat(), now).unwrap();
    match events(server)[..] {
        [Event::SessionOpened(id)] => id,
        ref other => panic!("{other:?}"),
    }
}

fn data(id: ChannelId, bytes: &[u8]) -> Vec<u8> {
    on_channel(message::CHANNEL_DATA, id.0, &string(bytes))
}

#[test]
fn forwards_are_answered_in_their_order_with_the_port_where_it_was_asked_for() {
    let (mut server, mut client, now) = logged_in();
    received(&mut client, &mut server);
    for (name, wants_reply, rest) in [
        ("tcpip-forward", true, [string(b"a"), numbers(&[0])].concat()),
        ("keepalive@openssh.com", true, Vec::new()),
        ("no-more-sessions@openssh.com", false, Vec::new()),
        ("tcpip-forward", true, [string(b"b"), numbers(&[80])].concat()),
        ("cancel-tcpip-forward", true, [string(b"b"), numbers(&[80])].concat()),
    ] {
        client.send(&mut server, &testing::global_request(name, wants_reply, &rest), now).unwrap();
    }
    let happened = events(&mut server);
    assert!(matches!(&happened[..], [Event::Forward { address, port: 0 }] if address == "a"), "{happened:?}");
    assert_eq!(numbers_of(&mut client, &mut server), []);
    server.answer_request(Some(4_711));
    assert!(matches!(&events(&mut server)[..], [Event::Forward { address, port: 80 }] if address == "b"));
    server.answer_request(Some(80));
    assert!(matches!(&events(&mut server)[..], [Event::CancelForward { .. }]));
    server.answer_request(None);
    let payloads = received(&mut client, &mut server);
    let port = [&[message::REQUEST_SUCCESS][..], &numbers(&[4_711])].concat();
    assert_eq!(payloads, [port, vec![message::REQUEST_FAILURE], vec![message::REQUEST_SUCCESS], vec![82]]);
}

#[test]
fn requests_that_wait_have_their_bound() {
    let (mut server, mut client, now) = logged_in();
    let request = testing::global_request("tcpip-forward", true, &[string(b"a"), numbers(&[0])].concat());
    let mut input: Vec<u8> = (0..100).flat_map(|_| client.seal(&request)).collect();
    let done = server.handle_input(&mut input, now).unwrap();
    assert!(done < input.len() && !server.wants_input());
    server.answer_request(None);
    assert!(server.wants_input());
}

#[test]
fn a_stream_carries_bytes_both_ways_and_half_closes() {
    let (mut server, mut client, now) = logged_in();
    let id = stream(&mut server, &mut client, now, 1_000);
    let mut target = [0; 100];
    assert_eq!(server.read(id, &mut target), Read::Wait);
    client.send(&mut server, &data(id, b"hello"), now).unwrap();
    assert!(matches!(events(&mut server)[..], [Event::Readable(_)]));
    assert_eq!(server.read(id, &mut target), Read::Bytes(5));
    assert_eq!(&target[..5], b"hello");
    client.send(&mut server, &on_channel(message::CHANNEL_EOF, id.0, &[]), now).unwrap();
    assert_eq!(server.read(id, &mut target), Read::Eof);
    assert_eq!(server.write(id, &[1; 2_000]), Written::Bytes(1_000));
    assert_eq!(server.write(id, &[1]), Written::NoWindow);
    client.send(&mut server, &on_channel(message::CHANNEL_WINDOW_ADJUST, id.0, &numbers(&[10])), now).unwrap();
    assert!(matches!(events(&mut server)[..], [Event::Writable(_)]));
    assert_eq!(server.write(id, &[2; 20]), Written::Bytes(10));
    server.finish(id);
    assert_eq!(server.write(id, &[2]), Written::Closed);
    server.release(id);
    assert_eq!(numbers_of(&mut client, &mut server), [94, 94, 96, 97]);
    client.send(&mut server, &on_channel(message::CHANNEL_CLOSE, id.0, &[]), now).unwrap();
    assert_eq!(server.read(id, &mut target), Read::Broken, "the channel is removed");
    // A late message on it does no harm.
    client.send(&mut server, &on_channel(message::CHANNEL_WINDOW_ADJUST, id.0, &numbers(&[10])), now).unwrap();
}

#[test]
fn what_came_before_a_close_can_be_read_and_then_the_stream_is_broken() {
    let (mut server, mut client, now) = logged_in();
    let id = stream(&mut server, &mut client, now, 1_000);
    client.send(&mut server, &data(id, b"rest"), now).unwrap();
    client.send(&mut server, &on_channel(message::CHANNEL_CLOSE, id.0, &[]), now).unwrap();
    assert_eq!(numbers_of(&mut client, &mut server), [message::CHANNEL_CLOSE]);
    assert_eq!(server.write(id, b"x"), Written::Closed);
    let mut target = [0; 100];
    assert_eq!(server.read(id, &mut target), Read::Bytes(4));
    assert_eq!(server.read(id, &mut target), Read::Broken);
    server.release(id);
    assert_eq!(numbers_of(&mut client, &mut server), []);
}

#[test]
fn an_abandoned_stream_is_closed_when_it_opens() {
    let (mut server, mut client, now) = logged_in();
    received(&mut client, &mut server);
    let id = server.open_forwarded(("localhost", 80), ("192.0.2.1", 1)).unwrap();
    server.release(id);
    assert_eq!(numbers_of(&mut client, &mut server), [message::CHANNEL_OPEN]);
    client.send(&mut server, &on_channel(91, id.0, &numbers(&[5, 1_000, 1_000])), now).unwrap();
    assert_eq!(numbers_of(&mut client, &mut server), [message::CHANNEL_CLOSE]);
    assert!(events(&mut server).is_empty());
    let refused = server.open_forwarded(("localhost", 80), ("192.0.2.1", 1)).unwrap();
    let failure = [&numbers(&[2])[..], &string(b"no"), &string(b"")].concat();
    client.send(&mut server, &on_channel(92, refused.0, &failure), now).unwrap();
    assert!(matches!(events(&mut server)[..], [Event::Refused { reason: 2, .. }]));
}

#[test]
fn data_beyond_the_window_ends_the_connection() {
    let (mut server, mut client, now) = logged_in();
    let id = stream(&mut server, &mut client, now, 1_000);
    for _ in 0..FIRST_WINDOW_BYTES / 32_768 {
        client.send(&mut server, &data(id, &[0; 32_768]), now).unwrap();
    }
    assert!(is_protocol_fault(&client.send(&mut server, &data(id, &[0]), now)));
}

#[test]
fn the_window_opens_when_data_has_been_used_and_not_before() {
    let (mut server, mut client, now) = logged_in();
    let id = stream(&mut server, &mut client, now, 1_000);
    for _ in 0..8 {
        client.send(&mut server, &data(id, &[0; 32_768]), now).unwrap();
    }
    assert_eq!(numbers_of(&mut client, &mut server), []);
    let mut target = vec![0; 65_536];
    assert_eq!(server.read(id, &mut target), Read::Bytes(65_536));
    let payloads = received(&mut client, &mut server);
    assert_eq!(payloads, [[&[message::CHANNEL_WINDOW_ADJUST][..], &numbers(&[5, 65_536])].concat()]);
}

#[test]
fn what_waits_to_be_written_has_its_bound() {
    let (mut server, mut client, now) = logged_in();
    let id = stream(&mut server, &mut client, now, u32::MAX);
    let written = (0..1_000).take_while(|_| matches!(server.write(id, &[0; 32_768]), Written::Bytes(_))).count();
    assert!(written * 32_768 <= MAX_WAITING_BYTES + 32_768 && server.output_len() < MAX_WAITING_BYTES + 40_000);
    assert_eq!(server.write(id, &[0]), Written::NoRoom);
    received(&mut client, &mut server);
    assert_eq!(server.write(id, &[0]), Written::Bytes(1));
}

#[test]
fn nothing_is_written_while_keys_are_exchanged() {
    let (mut server, mut client, now) = logged_in_with(|config| config.rekey_bytes = 40_000);
    let id = stream(&mut server, &mut client, now, u32::MAX);
    assert_eq!(server.write(id, &[0; 32_768]), Written::Bytes(32_768));
    assert_eq!(server.write(id, &[0; 32_768]), Written::Bytes(32_768));
    assert_eq!(server.write(id, &[0]), Written::NoRoom);
    server.finish(id);
    assert_eq!(numbers_of(&mut client, &mut server), [94, 94, message::KEXINIT]);
}

#[test]
fn sessions_ask_for_shells_and_nothing_else_is_opened() {
    let (mut server, mut client, now) = logged_in();
    let id = session(&mut server, &mut client, now);
    assert_eq!(numbers_of(&mut client, &mut server).last(), Some(&message::CHANNEL_OPEN_CONFIRMATION));
    let request = |name: &[u8], rest: &[u8]| [&string(name)[..], &[1], rest].concat();
    for name in [&b"pty-req"[..], b"env", b"winadj@putty.projects.tartarus.org", b"window-change", b"shell"] {
        client.send(&mut server, &on_channel(message::CHANNEL_REQUEST, id.0, &request(name, &[])), now).unwrap();
    }
    let signal = [&string(b"signal")[..], &[0], &string(b"INT")].concat();
    client.send(&mut server, &on_channel(message::CHANNEL_REQUEST, id.0, &signal), now).unwrap();
    let asked: Vec<_> = events(&mut server)
        .into_iter()
        .map(|event| match event {
            Event::Session { request, .. } => request,
            other => panic!("{other:?}"),
        })
        .collect();
    let expected = [
        SessionRequest::Terminal,
        SessionRequest::Other,
        SessionRequest::Other,
        SessionRequest::Shell,
        SessionRequest::Signal("INT".to_owned()),
    ];
    assert_eq!(asked, expected);
    // Only requests that the driver does not decide are answered directly: replies have the order of their requests.
    assert_eq!(numbers_of(&mut client, &mut server), [99]);
    server.answer_session(id, true);
    server.write_error(id, "no");
    server.send_exit_status(id, 1);
    server.finish(id);
    server.release(id);
    assert_eq!(numbers_of(&mut client, &mut server), [99, 95, 98, 96, 97]);
    for (kind, reason) in [(&b"direct-tcpip"[..], 1), (b"x11", 3), (b"auth-agent@openssh.com", 3)] {
        let open = [&[message::CHANNEL_OPEN][..], &string(kind), &numbers(&[8, 1, 1])].concat();
        client.send(&mut server, &open, now).unwrap();
        let payloads = received(&mut client, &mut server);
        assert_eq!(payloads[0][..9], [&[message::CHANNEL_OPEN_FAILURE][..], &numbers(&[8, reason])].concat());
    }
}

#[test]
fn sessions_have_their_number_and_what_is_typed_opens_their_window() {
    let (mut server, mut client, now) = logged_in();
    let id = session(&mut server, &mut client, now);
    for _ in 0..3 {
        session(&mut server, &mut client, now);
    }
    let open = [&[message::CHANNEL_OPEN][..], &string(b"session"), &numbers(&[8, 1, 1])].concat();
    client.send(&mut server, &open, now).unwrap();
    assert_eq!(numbers_of(&mut client, &mut server).last(), Some(&message::CHANNEL_OPEN_FAILURE));
    for _ in 0..100 {
        client.send(&mut server, &data(id, &[b'x'; 32_768]), now).unwrap();
        assert!(matches!(&events(&mut server)[..], [Event::Typed { data, .. }] if data.len() == 32_768));
    }
    client.send(&mut server, &on_channel(message::CHANNEL_CLOSE, id.0, &[]), now).unwrap();
    assert!(matches!(events(&mut server)[..], [Event::SessionClosed(_)]));
    server.release(id);
    session(&mut server, &mut client, now);
}

#[test]
fn messages_for_channels_that_never_were_end_the_connection() {
    for number in [91, 92, 93, 94, 96, 97, 98] {
        let (mut server, mut client, now) = logged_in();
        let payload = on_channel(number, 7, &numbers(&[0, 0, 0]));
        assert!(is_protocol_fault(&client.send(&mut server, &payload, now)), "{number}");
    }
    // Nor are they accepted before the channel is open, or as a second answer.
    let (mut server, mut client, now) = logged_in();
    let id = server.open_forwarded(("localhost", 80), ("192.0.2.1", 1)).unwrap();
    assert!(is_protocol_fault(&client.send(&mut server, &data(id, b"x"), now)));
    let (mut server, mut client, now) = logged_in_with(|_| {});
    let id = stream(&mut server, &mut client, now, 1);
    let again = on_channel(91, id.0, &numbers(&[5, 1, 1]));
    assert!(is_protocol_fault(&client.send(&mut server, &again, now)));
}

proptest! {
    #[test]
    fn bytes_arrive_in_their_order_whatever_the_sizes(
        sizes in proptest::collection::vec((1_usize..20_000, 1_usize..30_000), 1..40),
    ) {
        let (mut server, mut client, now) = logged_in();
        let id = stream(&mut server, &mut client, now, 1_000);
        let (mut sent, mut got, mut credit) = (Vec::new(), Vec::new(), FIRST_WINDOW_BYTES as usize);
        for (size, room) in sizes {
            let size = size.min(credit);
            let bytes: Vec<u8> = (0..size).map(|at| ((sent.len() + at) % 251) as u8).collect();
            client.send(&mut server, &data(id, &bytes), now).unwrap();
            (credit, sent) = (credit - size, [sent, bytes].concat());
            let mut target = vec![0; room];
            if let Read::Bytes(count) = server.read(id, &mut target) {
                got.extend_from_slice(&target[..count]);
            }
            for payload in received(&mut client, &mut server) {
                if payload[0] == message::CHANNEL_WINDOW_ADJUST {
                    credit += u32::from_be_bytes(payload[5..9].try_into().unwrap()) as usize;
                }
            }
        }
        let mut target = vec![0; sent.len()];
        if let Read::Bytes(count) = server.read(id, &mut target) {
            got.extend_from_slice(&target[..count]);
        }
        prop_assert!(got == sent);
    }
}
