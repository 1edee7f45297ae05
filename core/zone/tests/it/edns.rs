//! EDNS, sizes, and questions about the server.

use hickory_proto::op::{Message, ResponseCode};
use sallyport_zone::{AnswerKind, DropReason, Transport, Verdict, limit::CookieSecrets};

use crate::support::{Ask, Lab, zone};

fn lab() -> Lab {
    let many: String = (0..60).map(|n| format!("many TXT \"number {n} {}\"\n", "x".repeat(30))).collect();
    let mut lab = Lab::new([zone("example.com", &format!("www A 192.0.2.1\n{many}"))]);
    lab.settings.set_identity(Some("edge-1".to_owned()), Some("Sallyport".to_owned())).unwrap();
    lab
}

/// The options of an answer: codes and values.
pub(crate) fn options(answer: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let at = answer.windows(3).rposition(|window| window == [0, 0, 41]).unwrap();
    let mut rest = &answer[at + 11..];
    let mut found = Vec::new();
    while let [a, b, c, d, more @ ..] = rest {
        let len = usize::from(u16::from_be_bytes([*c, *d]));
        found.push((u16::from_be_bytes([*a, *b]), more[..len].to_vec()));
        rest = &more[len..];
    }
    found
}

#[test]
fn an_unknown_version_is_refused() {
    let (outcome, out) = lab().send(&Ask::new("www.example.com", 1).edns(0x0001_0000).bytes());
    assert_eq!((outcome.rcode.0, outcome.kind), (16, AnswerKind::BadVersion));
    let message = Message::from_vec(&out).unwrap();
    assert_eq!(u16::from(message.metadata.response_code), 16);
    assert!(message.answers.is_empty());
}

#[test]
fn long_answers_are_cut_short_over_udp_alone() {
    let mut lab = lab();
    for (edns, udp_bytes, most) in
        [(None, 0, 512), (Some(0), 100, 512), (Some(0), 1_000, 1_000), (Some(0), 4_096, 1_232)]
    {
        let ask = Ask { edns, udp_bytes, ..Ask::new("many.example.com", 16) };
        let (outcome, out) = lab.send(&ask.bytes());
        assert!(outcome.is_truncated && out.len() <= most);
        let message = Message::from_vec(&out).unwrap();
        assert!(message.metadata.truncation && message.answers.is_empty());
        assert_eq!(message.edns.is_some(), edns.is_some(), "no EDNS to who has none");
    }
    lab.peer.transport = Transport::Tcp;
    let message = lab.ask(&Ask::new("many.example.com", 16));
    assert!(!message.metadata.truncation);
    assert_eq!(message.answers.len(), 60);
}

#[test]
fn the_server_says_its_name_when_asked() {
    let mut lab = lab();
    let (_, out) = lab.send(&Ask::new("www.example.com", 1).option(3, &[]).bytes());
    assert_eq!(options(&out), [(3, b"edge-1".to_vec())]);
    let (_, out) = lab.send(&Ask::new("www.example.com", 1).bytes());
    assert_eq!(options(&out), []);
    for (name, text) in [
        ("id.server", "edge-1"),
        ("hostname.bind", "edge-1"),
        ("version.server", "Sallyport"),
        ("VERSION.bind", "Sallyport"),
    ] {
        let message = lab.ask(&Ask { class: 3, ..Ask::new(name, 16) });
        assert_eq!(message.answers.len(), 1, "{name}");
        assert!(message.answers[0].to_string().contains(text), "{name}");
    }
    let other = lab.ask(&Ask { class: 3, ..Ask::new("other.bind", 16) });
    assert_eq!(other.metadata.response_code, ResponseCode::Refused);
    lab.settings.set_identity(None, None).unwrap();
    let silent = lab.ask(&Ask { class: 3, ..Ask::new("id.server", 16) });
    assert_eq!(silent.metadata.response_code, ResponseCode::Refused);
    assert!(lab.settings.set_identity(Some("x".repeat(65)), None).is_err());
}

#[test]
fn the_subnet_of_a_client_is_answered_with_scope_0() {
    let subnet = [0, 1, 24, 0, 198, 51, 100];
    let (_, out) = lab().send(&Ask::new("www.example.com", 1).option(8, &subnet).bytes());
    assert_eq!(options(&out), [(8, subnet.to_vec())]);
    // A client that wants to stay unknown.
    let (_, out) = lab().send(&Ask::new("www.example.com", 1).option(8, &[0, 0, 0, 0]).bytes());
    assert_eq!(options(&out), [(8, vec![0, 0, 0, 0])]);
    let (outcome, _) = lab().send(&Ask::new("www.example.com", 1).option(8, &[0, 1, 24, 9, 198, 51, 100]).bytes());
    assert_eq!(outcome.kind, AnswerKind::Malformed);
}

#[test]
fn a_client_gets_a_cookie_and_its_cookie_is_known_again() {
    let mut lab = lab();
    lab.settings.cookies = Some(CookieSecrets::new([7; 16], None));
    let (_, out) = lab.send(&Ask::new("www.example.com", 1).option(10, b"clientck").bytes());
    let [(10, cookie)] = &options(&out)[..] else { panic!("one cookie") };
    assert_eq!((&cookie[..8], cookie.len()), (&b"clientck"[..], 24));
    let (_, again) = lab.send(&Ask::new("www.example.com", 1).option(10, cookie).bytes());
    assert_eq!(options(&again), [(10, cookie.clone())], "it stays the same while it is young");
    let (outcome, _) = lab.send(&Ask::new("www.example.com", 1).option(10, b"short").bytes());
    assert_eq!(outcome.kind, AnswerKind::Malformed);
    // A query for a cookie alone has no question.
    let without_question = |mut bytes: Vec<u8>| {
        bytes[5] = 0;
        bytes.drain(12..12 + 5);
        bytes
    };
    let (outcome, out) = lab.send(&without_question(Ask::new("", 1).option(10, b"clientck").bytes()));
    assert_eq!((outcome.rcode.0, &out[4..6], options(&out).len()), (0, &[0, 0][..], 1));
    let (outcome, _) = lab.send(&without_question(Ask::new("", 1).bytes()));
    assert_eq!(outcome.kind, AnswerKind::Malformed);
}

#[test]
fn types_and_kinds_that_no_query_has() {
    let mut lab = lab();
    let (outcome, out) = lab.send(&Ask::new("www.example.com", 128).bytes());
    assert_eq!(outcome.rcode.0, 1);
    assert_eq!(options(&out), [(15, vec![0, 30])], "the extended error: Invalid Query Type");
    assert_eq!(lab.ask(&Ask::new("example.com", 252)).metadata.response_code, ResponseCode::FormErr, "AXFR by UDP");
    lab.peer.transport = Transport::Tcp;
    assert_eq!(lab.ask(&Ask::new("example.com", 252)).metadata.response_code, ResponseCode::Refused, "unsigned AXFR");
    assert_eq!(lab.ask(&Ask::new("example.net", 252)).metadata.response_code, ResponseCode::NotAuth);
    let mut update = Ask::new("example.com", 6).bytes();
    update[2] = 5 << 3;
    let (outcome, out) = lab.send(&update);
    assert_eq!((outcome.kind, &out[10..12]), (AnswerKind::NotImplemented, &[0, 1][..]), "with an OPT record");
    let mut plain_update = Ask { edns: None, ..Ask::new("example.com", 6) }.bytes();
    plain_update[2] = 5 << 3;
    assert_eq!(lab.send(&plain_update).1.len(), 12);
    let type_zero = lab.ask(&Ask::new("www.example.com", 0));
    assert_eq!(type_zero.metadata.response_code, ResponseCode::NotImp);
    let any_class = lab.ask(&Ask { class: 255, ..Ask::new("www.example.com", 1) });
    assert_eq!(any_class.answers.len(), 1);
    let mut response = Ask::new("example.com", 6).bytes();
    response[2] = 0x80;
    assert!(matches!(lab.send(&response).0.verdict, Verdict::Drop(DropReason::Response)));
    assert!(matches!(lab.send(&[]).0.verdict, Verdict::Drop(DropReason::TooShort)));
    let other_class = lab.ask(&Ask { class: 4, ..Ask::new("example.com", 6) });
    assert_eq!(other_class.metadata.response_code, ResponseCode::Refused);
}
