//! Arbitrary input of a client: the bodies of the fuzz targets.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use sallyport_ssh_proto::{
    Answer, ChannelId, Credential, Event, Read, Server, Written,
    testing::{Client, Options, config, not_random, on_channel, payload, service_request, string},
};

/// More than the output ever holds: answers, data of streams, and a packet of each.
const MAX_OUTPUT_BYTES: usize = (1 << 20) + (256 << 10) + (1 << 17);

/// Takes parts from the fuzzer's bytes.
pub(crate) struct Parts<'a>(&'a [u8]);

impl<'a> Parts<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// Bytes after their length of two bytes; as many as available.
    fn bytes(&mut self) -> Option<&'a [u8]> {
        let count = usize::from(self.byte()?) << 8 | usize::from(self.byte()?);
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        Some(taken)
    }
}

/// A part as [`Parts`] takes it.
pub(crate) fn part(bytes: &[u8]) -> Vec<u8> {
    [&u16::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat()
}

fn new_server(now: Instant) -> Server {
    let mut config = config();
    config.rekey_bytes = 100_000;
    Server::new(Arc::new(config), not_random, now)
}

/// Handles received bytes as a driver does: returns the rest, or `None` if the connection is over.
fn give(server: &mut Server, kept: &mut Vec<u8>, now: Instant) -> bool {
    let before = kept.len();
    let result = server.handle_input(kept, now);
    assert!(server.output_len() <= MAX_OUTPUT_BYTES);
    match result {
        Ok(done) => {
            assert!(done <= before);
            kept.drain(..done);
            true
        }
        Err(error) => {
            assert!(server.is_over(), "{error}");
            let mut rest = vec![0; 100];
            assert_eq!(server.handle_input(&mut rest, now), Ok(100));
            false
        }
    }
}

/// Raw bytes in pieces, before or under keys.
pub(crate) fn ssh_packets(data: &[u8]) {
    let now = Instant::now();
    let mut parts = Parts(data);
    let mut server = new_server(now);
    if parts.byte().is_some_and(|byte| byte & 1 == 1) {
        Client::connected(&mut server, Options::default(), now).unwrap();
    }
    let mut kept = Vec::new();
    while let Some(piece) = parts.bytes() {
        kept.extend_from_slice(piece);
        if !give(&mut server, &mut kept, now) {
            return;
        }
        assert!(server.poll_event().is_none(), "nothing can have come of it");
    }
}

/// A KEXINIT and further payloads.
pub(crate) fn ssh_kexinit(data: &[u8]) {
    let now = Instant::now();
    let mut server = new_server(now);
    let mut client = Client::new(Options::default());
    let mut kept = client.version_line();
    let mut parts = Parts(data);
    let mut number = 20;
    while let Some(rest) = parts.bytes() {
        kept.extend(client.seal(&[&[number], rest].concat()));
        if !give(&mut server, &mut kept, now) {
            break;
        }
        number = 30;
    }
    assert!(!server.is_logged_in() && server.poll_event().is_none());
}

/// Payloads of a client after the key exchange and before its login, and the driver's answers.
pub(crate) fn ssh_auth(data: &[u8]) {
    let now = Instant::now();
    let mut server = new_server(now);
    let mut client = Client::connected(&mut server, Options::default(), now).unwrap();
    client.send(&mut server, &service_request(), now).unwrap();
    let (mut parts, mut may_be_in) = (Parts(data), false);
    while let (Some(choice), Some(message)) = (parts.byte(), parts.bytes()) {
        let mut kept = client.seal(message);
        if message.is_empty() || !give(&mut server, &mut kept, now) {
            break;
        }
        while let Some(event) = server.poll_event() {
            let Event::Login(login) = event else {
                assert!(server.is_logged_in(), "{event:?}");
                continue;
            };
            assert!(login.user.len() <= sallyport_ssh_proto::MAX_USER_BYTES && !server.wants_input());
            let answer = match choice % 4 {
                0 => Answer::Accept,
                1 => Answer::Refuse,
                2 => Answer::RefuseInteractive,
                _ => Answer::Hint("a hint".to_owned()),
            };
            may_be_in |= answer == Answer::Accept
                && match login.credential {
                    Credential::Nothing | Credential::Interactive => true,
                    Credential::Key { is_proven, .. } | Credential::Certificate { is_proven, .. } => is_proven,
                    Credential::Sha1(_) | Credential::Unusable => false,
                };
            server.answer_login(answer);
        }
        assert!(!server.is_logged_in() || may_be_in, "a login that was not allowed");
        client.receive(&mut server).unwrap();
    }
}

/// Input of a logged-in client in pieces, and actions of the driver and the streams' users.
pub(crate) fn ssh_channels(data: &[u8]) {
    let mut now = Instant::now();
    let mut server = new_server(now);
    let mut client = Client::logged_in(&mut server, now).unwrap();
    let (mut parts, mut kept, mut unsent) = (Parts(data), Vec::new(), Vec::new());
    let mut streams: Vec<ChannelId> = Vec::new();
    while let Some(choice) = parts.byte() {
        let stream = streams.get(usize::from(choice >> 4) % streams.len().max(1)).copied();
        match (choice & 15, stream) {
            (3, _) => {
                let (Some(channel), Some(size)) = (parts.byte(), parts.byte()) else { break };
                let data = string(&vec![7; usize::from(size) * 128]);
                unsent.extend(client.seal(&on_channel(94, u32::from(channel), &data)));
            }
            (0..=2, _) => {
                let Some(message) = parts.bytes() else { break };
                if !message.is_empty() {
                    unsent.extend(client.seal(message));
                }
            }
            (4 | 5, _) => {
                let cut = if choice & 15 == 4 { unsent.len() } else { unsent.len().min(usize::from(choice) + 1) };
                kept.extend(unsent.drain(..cut));
                if server.wants_input() && !give(&mut server, &mut kept, now) {
                    break;
                }
            }
            (6, _) => streams.extend(server.open_forwarded(("localhost", 80), ("192.0.2.1", 1))),
            (7, Some(stream)) => {
                let mut target = vec![0; usize::from(choice) * 97];
                let read = server.read(stream, &mut target);
                assert!(!matches!(read, Read::Bytes(count) if count > target.len()));
            }
            (8, Some(stream)) => {
                let written = server.write(stream, &vec![7; usize::from(choice) * 201 + 1]);
                assert!(!matches!(written, Written::Bytes(count) if count == 0 || count > 32_768));
            }
            (9, Some(stream)) => server.finish(stream),
            (10, Some(stream)) => server.release(stream),
            (11, _) => server.answer_request((choice & 16 == 0).then_some(u32::from(choice))),
            (12, _) => drop(server.ping()),
            (13, _) => {
                now += Duration::from_secs(u64::from(choice));
                if server.handle_deadline(now).is_err() {
                    break;
                }
            }
            (14, Some(stream)) => {
                server.answer_session(stream, true);
                server.write_error(stream, "an error");
                server.send_exit_status(stream, 1);
            }
            (15, _) if choice > 0xe0 => server.disconnect("the end"),
            _ => {
                // The client reads the output.
                client.receive(&mut server).unwrap();
            }
        }
        while let Some(event) = server.poll_event() {
            if let Event::SessionOpened(channel) = event {
                streams.push(channel);
            }
        }
        assert!(server.output_len() <= MAX_OUTPUT_BYTES);
    }
}

/// A message with these strings.
pub(crate) fn message(number: u8, strings: &[&[u8]]) -> Vec<u8> {
    payload(number, strings)
}
