//! Stateful rules: states of flows, and the rule that decides.

use std::{collections::BTreeMap, time::Duration};

use sallyport_packet_model::{
    filter::{
        Action, AddressMatch, AddressSet, Filter, FlowState, Mismatch, Policy, PolicyError, Rule, Timeouts, Tracker,
    },
    parse::{Packet, Tcp, parse},
};

use sallyport_packet_model::testing::Frame;

const CLIENT: (&str, u16) = ("10.0.0.1", 5_000);
const SERVER: (&str, u16) = ("198.51.100.7", 443);
const SECOND: Duration = Duration::from_secs(1);

fn tracker() -> Tracker {
    Tracker::new(100, Timeouts::default(), false)
}

fn packet(frame: &Frame) -> Packet {
    parse(&frame.bytes()).unwrap()
}

fn net(text: &str) -> AddressMatch {
    AddressMatch::Net(text.parse().unwrap())
}

/// Known flows pass; bad hosts do not; the inside may begin HTTPS; one host may be pinged.
fn rules() -> Vec<Rule> {
    vec![
        Rule { states: vec![FlowState::Established, FlowState::Related], ..Rule::new("known", Action::Accept) },
        Rule { from: vec![AddressMatch::Set("bad".to_owned())], ..Rule::new("bad hosts", Action::Drop) },
        Rule {
            protocol: Some(6),
            from: vec![net("10.0.0.0/8"), net("2001:db8::/32")],
            destination_ports: vec![80..=80, 443..=443],
            states: vec![FlowState::New],
            incoming: Some(1),
            ..Rule::new("web", Action::Accept)
        },
        Rule {
            protocol: Some(1),
            to: vec![net("198.51.100.8/32")],
            outgoing: Some(2),
            ..Rule::new("ping", Action::Accept)
        },
    ]
}

fn sets() -> BTreeMap<String, AddressSet> {
    let bad = ["10.6.6.0/24", "2001:db8:666::/48"].map(|prefix| prefix.parse().unwrap());
    BTreeMap::from([("bad".to_owned(), bad.into_iter().collect())])
}

fn filter() -> Filter {
    Filter { policy: Policy::new(rules(), sets(), Action::Reject).unwrap(), tracker: tracker() }
}

#[test]
fn a_flow_of_tcp_is_new_until_it_is_answered() {
    let mut tracker = tracker();
    let mut now = SECOND;
    let syn = packet(&Frame::tcp(CLIENT, SERVER, Tcp::SYN, b"").at(100, 0));
    let answer = packet(&Frame::tcp(SERVER, CLIENT, Tcp::SYN | Tcp::ACK, b"").at(700, 101));
    let data = packet(&Frame::tcp(CLIENT, SERVER, Tcp::ACK, b"data").at(101, 701));
    let end = packet(&Frame::tcp(SERVER, CLIENT, Tcp::FIN | Tcp::ACK, b"").at(701, 101));
    let reset = |sequence| packet(&Frame::tcp(SERVER, CLIENT, Tcp::RST, b"").at(sequence, 0));
    assert_eq!(tracker.state(&data, now), FlowState::Invalid);
    assert_eq!(tracker.state(&answer, now), FlowState::Invalid);
    assert_eq!(tracker.state(&syn, now), FlowState::New);
    tracker.track(&syn, now).unwrap();
    assert_eq!(tracker.state(&syn, now), FlowState::New, "no answer yet");
    assert_eq!(tracker.state(&answer, now), FlowState::Established);
    tracker.track(&answer, now).unwrap();
    assert_eq!(tracker.state(&data, now), FlowState::Established);
    now = SECOND * 7_000;
    assert_eq!(tracker.state(&data, now), FlowState::Established);
    tracker.track(&data, now).unwrap();
    // A stranger does not know the numbers, and one end is not both.
    for guessed in [0, 700, 702, 66_000] {
        tracker.track(&reset(guessed), now).unwrap();
    }
    tracker.track(&end, now).unwrap();
    assert_eq!(tracker.state(&data, now + SECOND * 7_000), FlowState::Established);
    tracker.track(&reset(701), now).unwrap();
    now += SECOND * 239;
    assert_eq!(tracker.state(&data, now), FlowState::Established);
    now += SECOND;
    assert_eq!(tracker.state(&data, now), FlowState::Invalid, "an ended flow is soon forgotten");
    assert_eq!((tracker.expire(now), tracker.count()), (1, 0));
    let loose = Tracker::new(10, Timeouts::default(), true);
    assert_eq!(loose.state(&data, now), FlowState::New);
    assert_eq!(loose.state(&end, now), FlowState::Invalid);
}

#[test]
fn errors_about_known_flows_are_related() {
    let mut tracker = tracker();
    let sent = Frame::udp(CLIENT, SERVER, b"data");
    let error = |quoted: &Frame| packet(&Frame::error("192.0.2.9", CLIENT.0, 3, &quoted.packet()));
    assert_eq!(tracker.state(&error(&sent), SECOND), FlowState::Invalid);
    tracker.track(&packet(&sent), SECOND).unwrap();
    assert_eq!(tracker.state(&error(&sent), SECOND), FlowState::Related);
    let stray = packet(&Frame::error("192.0.2.9", "10.0.0.77", 3, &sent.packet()));
    assert_eq!(tracker.state(&stray, SECOND), FlowState::Invalid, "it goes to another host than the sender");
    let unsent = Frame::udp((CLIENT.0, 5_001), SERVER, b"data");
    assert_eq!(tracker.state(&error(&unsent), SECOND), FlowState::Invalid);
    tracker.track(&error(&sent), SECOND * 30).unwrap();
    assert_eq!(tracker.state(&error(&sent), SECOND * 31), FlowState::Invalid, "errors do not renew a flow");
}

#[test]
fn pings_and_fragments() {
    let mut tracker = tracker();
    let ask = packet(&Frame::echo(CLIENT.0, SERVER.0, false, 7));
    let reply = packet(&Frame::echo(SERVER.0, CLIENT.0, true, 7));
    let back = packet(&Frame::echo(SERVER.0, CLIENT.0, false, 7));
    assert_eq!(tracker.state(&reply, SECOND), FlowState::Invalid);
    tracker.track(&ask, SECOND).unwrap();
    assert_eq!(tracker.state(&reply, SECOND), FlowState::Established);
    assert_eq!(tracker.state(&back, SECOND), FlowState::New, "a request is no reply");
    let later = packet(&Frame { fragment: 9, ..Frame::udp(CLIENT, SERVER, b"") });
    assert_eq!(tracker.state(&later, SECOND), FlowState::Untracked);
    tracker.track(&later, SECOND).unwrap();
    assert_eq!(tracker.count(), 1);
    // Only the first one has the ports of its packet.
    let first = packet(&Frame { fragment: 0x2000, ..Frame::udp(CLIENT, SERVER, b"") });
    assert_eq!(tracker.state(&first, SECOND), FlowState::New);
    tracker.track(&first, SECOND).unwrap();
    assert_eq!(tracker.state(&packet(&Frame::udp(SERVER, CLIENT, b"")), SECOND), FlowState::Established);
}

#[test]
fn a_full_tracker_refuses_new_flows_alone() {
    let mut tracker = Tracker::new(2, Timeouts::default(), false);
    let flow = |port| packet(&Frame::udp((CLIENT.0, port), SERVER, b""));
    for port in [1, 2, 1, 2] {
        tracker.track(&flow(port), SECOND).unwrap();
    }
    assert!(tracker.track(&flow(3), SECOND).is_err());
    tracker.expire(SECOND * 32);
    tracker.track(&flow(3), SECOND * 32).unwrap();
}

#[test]
fn the_first_rule_that_matches_decides() {
    let filter = filter();
    let ways = (Some(1), Some(2));
    for (name, frame, ways, action, rule) in [
        ("web", Frame::tcp(CLIENT, SERVER, Tcp::SYN, b""), ways, Action::Accept, Some(2)),
        ("web 6", Frame::tcp(("2001:db8::1", 1), ("2001:db8:9::1", 80), Tcp::SYN, b""), ways, Action::Accept, Some(2)),
        ("web by another way", Frame::tcp(CLIENT, SERVER, Tcp::SYN, b""), (Some(3), Some(2)), Action::Reject, None),
        ("another port", Frame::tcp(CLIENT, (SERVER.0, 444), Tcp::SYN, b""), ways, Action::Reject, None),
        ("UDP", Frame::udp(CLIENT, SERVER, b""), ways, Action::Reject, None),
        ("unknown answer", Frame::tcp(CLIENT, SERVER, Tcp::ACK, b""), ways, Action::Reject, None),
        ("bad", Frame::tcp(("10.6.6.6", 1), SERVER, Tcp::SYN, b""), ways, Action::Drop, Some(1)),
        ("bad 6", Frame::udp(("2001:db8:666::1", 1), ("2001:db8::2", 2), b""), ways, Action::Drop, Some(1)),
        ("ping", Frame::echo(CLIENT.0, "198.51.100.8", false, 1), ways, Action::Accept, Some(3)),
        ("ping another", Frame::echo(CLIENT.0, "198.51.100.9", false, 1), ways, Action::Reject, None),
        (
            "first fragment",
            Frame { fragment: 0x2000, ..Frame::tcp(CLIENT, SERVER, Tcp::SYN, b"") },
            ways,
            Action::Accept,
            Some(2),
        ),
        (
            "later fragment",
            Frame { fragment: 9, ..Frame::tcp(CLIENT, SERVER, Tcp::SYN, b"") },
            ways,
            Action::Reject,
            None,
        ),
    ] {
        let (_, decision) = filter.test(&packet(&frame), ways, SECOND).unwrap();
        assert_eq!((decision.action, decision.rule), (action, rule), "{name}");
    }
    let (facts, _) = filter.test(&packet(&Frame::udp(CLIENT, SERVER, b"")), ways, SECOND).unwrap();
    let mismatches: Vec<_> = filter.policy.mismatches(&facts).map(|(rule, why)| (rule.name.as_str(), why)).collect();
    assert_eq!(
        mismatches,
        [
            ("known", Mismatch::State),
            ("bad hosts", Mismatch::From),
            ("web", Mismatch::Protocol),
            ("ping", Mismatch::Protocol),
        ]
    );
}

#[test]
fn only_accepted_packets_make_a_flow_known() {
    let mut filter = filter();
    let ways = (Some(1), Some(2));
    let mut check = |frame: &Frame, ways| filter.check(&packet(frame), ways, SECOND).unwrap().unwrap().rule;
    let refused = Frame::udp(CLIENT, SERVER, b"");
    assert_eq!(check(&refused, ways), None);
    assert_eq!(check(&Frame::udp(SERVER, CLIENT, b""), (Some(2), Some(1))), None, "no answer to what was refused");
    assert_eq!(check(&Frame::tcp(CLIENT, SERVER, Tcp::SYN, b""), ways), Some(2));
    assert_eq!(check(&Frame::tcp(SERVER, CLIENT, Tcp::SYN | Tcp::ACK, b""), (Some(2), Some(1))), Some(0));
    filter.policy.set_mut("bad").unwrap().insert("10.0.0.1/32".parse().unwrap());
    let again = Frame::tcp((CLIENT.0, 6_000), SERVER, Tcp::SYN, b"");
    let decision = filter.check(&packet(&again), ways, SECOND).unwrap().unwrap();
    assert_eq!(decision.rule, Some(1), "a set can change");
    assert!(filter.policy.set_mut("bad").unwrap().remove("10.0.0.1/32".parse().unwrap()));
}

#[test]
fn later_fragments_follow_what_became_of_the_first_one() {
    let mut filter = filter();
    let ways = (Some(1), Some(2));
    let mut check = |frame: &Frame| filter.check(&packet(frame), ways, SECOND).unwrap().unwrap().action;
    for (port, action) in [(443, Action::Accept), (444, Action::Reject)] {
        let whole = Frame { id: port, ..Frame::tcp(CLIENT, (SERVER.0, port), Tcp::SYN, b"") };
        let later = |fragment| Frame { fragment, ..whole.clone() };
        assert_eq!(check(&later(9)), Action::Reject, "before the first one");
        assert_eq!(check(&later(0x2000)), action);
        assert_eq!(check(&later(9)), action);
        assert_eq!(check(&later(2)), Action::Reject, "it would replace the flags");
    }
}

#[test]
fn wrong_policies_are_refused() {
    let rule = |name: &str| Rule::new(name, Action::Accept);
    let ports = |protocol, range| Rule { protocol, destination_ports: vec![range], ..rule("a") };
    #[expect(clippy::reversed_empty_ranges, reason = "the mistake that is refused")]
    let backwards = 9..=8;
    for (rules, error) in [
        (vec![rule("")], PolicyError::NoName(1)),
        (vec![rule("a"), rule("b"), rule("a")], PolicyError::SameName("a".to_owned())),
        (
            vec![Rule { to: vec![AddressMatch::Set("none".to_owned())], ..rule("a") }],
            PolicyError::UnknownSet { rule: "a".to_owned(), set: "none".to_owned() },
        ),
        (vec![ports(None, 1..=2)], PolicyError::PortsWithoutProtocol("a".to_owned())),
        (vec![ports(Some(1), 1..=2)], PolicyError::PortsWithoutProtocol("a".to_owned())),
        (vec![ports(Some(6), backwards)], PolicyError::EmptyRange("a".to_owned())),
        (vec![Rule { from: vec![net("10.0.0.0/8"); 257], ..rule("a") }], PolicyError::LongList("a".to_owned())),
        (vec![rule("a"); 10_001], PolicyError::TooManyRules(10_001)),
    ] {
        assert_eq!(Policy::new(rules, sets(), Action::Drop), Err(error));
    }
}
