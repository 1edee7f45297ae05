//! What the fuzzer does with its bytes: they are a message that comes while a request waits. It also lives in `fuzz/`.

use std::{
    net::IpAddr,
    time::{Duration, Instant},
};

use sallyport_ping::{
    Echoes, Family, Form, HEADER_BYTES, Key, Moment, Received, Rejected, Rejection, Verdict, parse, reply,
};

/// In the first byte: the message is of IPv6.
pub(crate) const V6: u8 = 1;
/// In the first byte: the message comes from a raw socket, with an IP header.
pub(crate) const RAW: u8 = 2;
/// In the first byte: the message comes from another address.
pub(crate) const OTHER: u8 = 4;
/// In the first byte: the message comes late.
pub(crate) const LATE: u8 = 8;
/// The identifier of the request.
pub(crate) const IDENTIFIER: u16 = 0x1234;
/// The length of its data, in bytes.
pub(crate) const DATA_BYTES: usize = 24;

const TIMEOUT: Duration = Duration::from_secs(1);

/// The request that waits, and its requests' state machine.
pub(crate) fn waiting(family: Family, now: Moment) -> (Echoes, Vec<u8>) {
    let target: IpAddr = if family == Family::V4 { [192, 0, 2, 1].into() } else { [1; 16].into() };
    let mut echoes = Echoes::new(family, IDENTIFIER, Key::new([7; 16]));
    let request = echoes.begin(target, DATA_BYTES, TIMEOUT, 0x0102_0304_0506_0708, now).unwrap();
    echoes.handle_sent(request.sequence);
    (echoes, request.message[HEADER_BYTES..].to_vec())
}

/// Only the right reply is believed, once; whatever else comes is counted at most, and does not end the wait.
pub(crate) fn echo_reply(data: &[u8]) {
    let Some((flags, bytes)) = data.split_first() else { return };
    let family = if flags & V6 == 0 { Family::V4 } else { Family::V6 };
    let form = if flags & RAW == 0 { Form::Verified } else { Form::WithIpHeader };
    let now = Moment { monotonic: Instant::now(), wall: Duration::from_secs(1_700_000_000) };
    let (mut echoes, sent) = waiting(family, now);
    let target: IpAddr = if family == Family::V4 { [192, 0, 2, 1].into() } else { [1; 16].into() };
    let from = if flags & OTHER == 0 { target } else { [9; 16].into() };
    let at = if flags & LATE == 0 { now } else { Moment { monotonic: now.monotonic + TIMEOUT, ..now } };

    let parsed = parse(family, form, bytes);
    let is_right = parsed.is_ok_and(|message| {
        message.identifier == IDENTIFIER && message.sequence == 0 && message.data == sent && from == target
    });
    let received = Received { from, form, bytes, arrived: None, at };
    let verdict = echoes.handle_received(&received);
    match verdict {
        Verdict::Answered { sequence, .. } => assert!(is_right && sequence == 0 && flags & LATE == 0),
        // A fuzzer that watches comparisons finds tokens of other numbers, whose replies are late too.
        Verdict::Rejected(rejection) => assert!(!is_right || (rejection == Rejection::Late && flags & LATE != 0)),
        Verdict::Foreign => assert_eq!(echoes.rejected(), Rejected::default()),
    }
    let again = echoes.handle_received(&received);
    let is_answered = matches!(verdict, Verdict::Answered { .. });
    assert_eq!(again, if is_answered { Verdict::Rejected(Rejection::Duplicate) } else { verdict });

    let good = reply(family, IDENTIFIER, 0, &sent);
    let last =
        echoes.handle_received(&Received { from: target, form: Form::Verified, bytes: &good, at: now, ..received });
    assert_eq!(matches!(last, Verdict::Answered { .. }), !is_answered, "a bad reply does not end the wait");
}
