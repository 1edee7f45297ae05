//! The router: the bytes that leave, and every reason for which none do.

use proptest::prelude::*;
use sallyport_packet_model::{
    checksum,
    forward::{DropReason, Interface, Outcome, PassReason, ReversePath, Router, RouterError, Step, Verdict, forward},
    layout::REASON_COUNTERS,
    parse::{Malformed, Tags, Transport, parse},
    route::{Fib, Member, NextHop, Storage},
};

use sallyport_packet_model::testing::{Frame, ROUTER};

const NEIGHBOR: [u8; 6] = [2, 0, 0, 0, 1, 1];
const OUT: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// Port 1 leads to hosts, port 2 to the world, with the VLANs 100 (interface 20) and 100 in 200 (interface 21).
pub(crate) fn router(reverse_path: ReversePath) -> Router<Vec<u32>> {
    let mut router = Router::new(Fib::new(Storage::in_memory(8, 64, 32, 2)), 7);
    let interface = |port, tags, mac, mtu| Interface { port, tags, mac, mtu, reverse_path };
    let double = Tags { outer: Some(200), inner: Some(100) };
    router.set_interface(1, interface(1, Tags::default(), ROUTER, 1_500)).unwrap();
    router.set_interface(2, interface(2, Tags::default(), OUT, 1_400)).unwrap();
    router.set_interface(20, interface(2, Tags::one(100), OUT, 1_500)).unwrap();
    router.set_interface(21, interface(2, double, OUT, 1_500)).unwrap();
    let way = |interface, gateway: Option<&str>| NextHop::Forward {
        interface,
        gateway: gateway.map(|gateway| gateway.parse().unwrap()),
    };
    for (prefix, next_hop) in [
        ("192.0.2.0/24", way(1, None)),
        ("2001:db8::/64", way(1, None)),
        ("198.51.100.0/24", way(2, Some("203.0.113.1"))),
        ("2001:db8:1::/48", way(2, Some("2001:db8:ffff::1"))),
        ("198.51.101.0/24", way(20, Some("203.0.113.1"))),
        ("198.51.102.0/24", way(21, Some("203.0.113.1"))),
        ("198.51.103.0/24", way(2, Some("203.0.113.99"))),
        ("198.51.104.0/24", way(9, Some("203.0.113.1"))),
        ("192.0.2.254/32", NextHop::Local),
        ("100.64.0.0/16", NextHop::BlackHole),
        ("100.65.0.0/16", NextHop::Prohibit),
        ("100.66.0.0/16", NextHop::Unreachable),
    ] {
        let number = router.fib.next_hops_mut().number_of(next_hop).unwrap();
        router.fib.add(prefix.parse().unwrap(), number).unwrap();
    }
    for interface in [2, 20, 21] {
        router.set_neighbor(interface, "203.0.113.1".parse().unwrap(), NEIGHBOR).unwrap();
        router.set_neighbor(interface, "2001:db8:ffff::1".parse().unwrap(), NEIGHBOR).unwrap();
    }
    router
}

fn to(destination: &str) -> Frame {
    let source = if destination.contains(':') { "2001:db8::1" } else { "192.0.2.1" };
    Frame::udp((source, 1234), (destination, 53), b"question")
}

fn run(frame: &[u8]) -> Outcome {
    forward(&router(ReversePath::Off), 1, frame, &mut ())
}

/// The frame as it has to leave.
fn left(frame: &Frame, tags: &[u8]) -> Vec<u8> {
    let less = Frame { hop_limit: frame.hop_limit - 1, tags: vec![], ..frame.clone() }.bytes();
    [&NEIGHBOR, &OUT, tags, &less[12..]].concat()
}

#[test]
fn a_packet_leaves_with_new_addresses_and_one_hop_less() {
    for destination in ["198.51.100.9", "2001:db8:1::9"] {
        let frame = Frame { padding: 5, ..to(destination) };
        let outcome = run(&frame.bytes());
        assert_eq!(outcome.verdict, Verdict::Forward { port: 2 });
        assert_eq!(outcome.frame, left(&frame, &[]), "{destination}");
    }
}

#[test]
fn tags_go_and_come() {
    let one = [0x81, 0, 0, 100];
    let two = [0x88, 0xa8, 0, 200, 0x81, 0, 0, 100];
    assert_eq!(run(&to("198.51.101.9").bytes()).frame, left(&to("198.51.101.9"), &one));
    assert_eq!(run(&to("198.51.102.9").bytes()).frame, left(&to("198.51.102.9"), &two));
    // A priority stays, also that of a tag without a VLAN.
    let urgent = Frame { tags: vec![0xa000], ..to("198.51.101.9") };
    assert_eq!(run(&urgent.bytes()).frame, left(&to("198.51.101.9"), &[0x81, 0, 0xa0, 100]));
    // From a VLAN to a port without one.
    let mut tagged = Frame { tags: vec![200, 100], ..to("198.51.100.9") }.bytes();
    tagged[..6].copy_from_slice(&OUT);
    let outcome = forward(&router(ReversePath::Off), 2, &tagged, &mut ());
    assert_eq!(outcome.frame, left(&to("198.51.100.9"), &[]));
}

#[test]
fn every_reason_leaves_the_bytes_as_they_are() {
    let base = to("198.51.100.9");
    let pass = Verdict::Pass;
    let mut not_ip = base.bytes();
    not_ip[12..14].copy_from_slice(&[8, 6]);
    let mut other_mac = base.bytes();
    other_mac[5] = 77;
    let mut bad_sum = base.bytes();
    bad_sum[24] ^= 1;
    let mut elsewhere = bad_sum.clone();
    elsewhere[5] = 77;
    let from = |source: &str| Frame { source: source.parse().unwrap(), ..base.clone() }.bytes();
    let big = Frame::udp(("192.0.2.1", 1), ("198.51.100.9", 2), &[0; 1_373]);
    let edge = Frame::udp(("192.0.2.1", 1), ("198.51.100.9", 2), &[0; 1_372]);
    for (name, frame, verdict) in [
        ("no IP", not_ip, pass(PassReason::NotIp)),
        ("another station", other_mac, pass(PassReason::NotForRouter)),
        ("another station, bad", elsewhere, pass(PassReason::NotForRouter)),
        ("a VLAN", Frame { tags: vec![9], ..base.clone() }.bytes(), pass(PassReason::NotRouted)),
        ("bad checksum", bad_sum, Verdict::Drop(DropReason::Malformed(Malformed::WrongIpv4Checksum))),
        ("cut", base.bytes()[..9].to_vec(), Verdict::Drop(DropReason::Malformed(Malformed::TruncatedEthernet))),
        ("options", Frame { extra: vec![0x94, 4, 0, 0], ..base.clone() }.bytes(), pass(PassReason::RouterOptions)),
        ("multicast", to("224.0.0.5").bytes(), pass(PassReason::Multicast)),
        ("broadcast", to("255.255.255.255").bytes(), pass(PassReason::Multicast)),
        ("multicast 6", to("ff02::1").bytes(), pass(PassReason::Multicast)),
        ("link-local", to("fe80::1").bytes(), pass(PassReason::LinkLocal)),
        ("link-local 4", from("169.254.1.1"), pass(PassReason::LinkLocal)),
        ("loopback source", from("127.0.0.1"), Verdict::Drop(DropReason::MartianSource)),
        ("no source", from("0.0.0.0"), Verdict::Drop(DropReason::MartianSource)),
        ("multicast source", from("224.0.0.1"), Verdict::Drop(DropReason::MartianSource)),
        ("loopback", to("127.0.0.1").bytes(), pass(PassReason::MartianDestination)),
        ("reserved", to("240.0.0.1").bytes(), pass(PassReason::MartianDestination)),
        ("loopback 6", to("::1").bytes(), pass(PassReason::MartianDestination)),
        ("local", to("192.0.2.254").bytes(), pass(PassReason::Local)),
        ("no route", to("8.8.8.8").bytes(), pass(PassReason::NoRoute)),
        ("black hole", to("100.64.0.1").bytes(), Verdict::Drop(DropReason::BlackHole)),
        ("prohibit", to("100.65.0.1").bytes(), pass(PassReason::Prohibit)),
        ("unreachable", to("100.66.0.1").bytes(), pass(PassReason::Unreachable)),
        ("last hop", Frame { hop_limit: 1, ..base.clone() }.bytes(), pass(PassReason::HopLimit)),
        ("no hop", Frame { hop_limit: 0, ..base.clone() }.bytes(), pass(PassReason::HopLimit)),
        ("last hop 6", Frame { hop_limit: 1, ..to("2001:db8:1::9") }.bytes(), pass(PassReason::HopLimit)),
        ("too big", big.bytes(), pass(PassReason::TooBig)),
        ("just not", edge.bytes(), Verdict::Forward { port: 2 }),
        (
            "a small packet with much padding",
            Frame { padding: 1_600, ..base.clone() }.bytes(),
            Verdict::Forward { port: 2 },
        ),
        (
            "last hop into a black hole",
            Frame { hop_limit: 1, ..to("100.64.0.1") }.bytes(),
            Verdict::Drop(DropReason::BlackHole),
        ),
        ("no neighbor", to("198.51.103.9").bytes(), pass(PassReason::NoNeighbor)),
        ("other interface", to("198.51.104.9").bytes(), pass(PassReason::OtherInterface)),
        ("malformed TCP is a host's matter", Frame::new("192.0.2.1", "198.51.100.9", 6, vec![1]).bytes(), {
            Verdict::Forward { port: 2 }
        }),
    ] {
        let outcome = run(&frame);
        assert_eq!(outcome.verdict, verdict, "{name}");
        if !matches!(verdict, Verdict::Forward { .. }) {
            assert_eq!(outcome.frame, frame, "{name}");
        }
    }
    let unknown_port = forward(&router(ReversePath::Off), 5, &base.bytes(), &mut ());
    assert_eq!(unknown_port.verdict, pass(PassReason::NotRouted));
}

#[test]
fn sources_have_to_lead_back_if_that_is_asked_for() {
    let sent = |mode, source: &str| {
        let frame = Frame { source: source.parse().unwrap(), ..to("198.51.100.9") };
        forward(&router(mode), 1, &frame.bytes(), &mut ()).verdict
    };
    let (forwarded, spoofed) = (Verdict::Forward { port: 2 }, Verdict::Drop(DropReason::SpoofedSource));
    for (mode, source, verdict) in [
        (ReversePath::Strict, "192.0.2.1", forwarded),
        (ReversePath::Strict, "198.51.100.1", spoofed),
        (ReversePath::Strict, "8.8.8.8", spoofed),
        (ReversePath::Loose, "198.51.100.1", forwarded),
        (ReversePath::Loose, "8.8.8.8", spoofed),
        (ReversePath::Loose, "100.64.0.1", spoofed),
        (ReversePath::Off, "8.8.8.8", forwarded),
    ] {
        assert_eq!(sent(mode, source), verdict, "{mode:?} {source}");
    }
    // Options are no way around the check.
    let frame = Frame { extra: vec![0x94, 4, 0, 0], source: "8.8.8.8".parse().unwrap(), ..to("198.51.100.9") };
    assert_eq!(forward(&router(ReversePath::Strict), 1, &frame.bytes(), &mut ()).verdict, spoofed);
    // Nor is a frame for all hosts: the kernel delivers what is inside.
    for (mode, source, verdict) in [
        (ReversePath::Strict, "8.8.8.8", spoofed),
        (ReversePath::Strict, "192.0.2.1", Verdict::Pass(PassReason::NotForRouter)),
        (ReversePath::Off, "8.8.8.8", Verdict::Pass(PassReason::NotForRouter)),
    ] {
        let frame = Frame { source: source.parse().unwrap(), ..to("192.0.2.254") };
        let bytes = [&[0xff; 6], &frame.bytes()[6..]].concat();
        assert_eq!(forward(&router(mode), 1, &bytes, &mut ()).verdict, verdict, "{mode:?} {source}");
    }
}

#[test]
fn a_group_spreads_flows_and_keeps_each_on_its_way() {
    let mut router = router(ReversePath::Strict);
    let hops = router.fib.next_hops_mut();
    let members: Vec<Member> = [2, 20]
        .map(|interface| {
            let way = NextHop::Forward { interface, gateway: Some("203.0.113.1".parse().unwrap()) };
            Member { next_hop: hops.number_of(way).unwrap(), weight: 1 }
        })
        .to_vec();
    hops.set_group(0, &members).unwrap();
    let group = hops.create(NextHop::Group(0)).unwrap();
    router.fib.add("198.51.100.0/24".parse().unwrap(), group).unwrap();
    let ways: Vec<usize> = (1..=200)
        .map(|port| {
            let frame = Frame::udp(("192.0.2.1", port), ("198.51.100.9", 53), b"").bytes();
            let mut steps: Vec<Step> = vec![];
            let outcome = forward(&router, 1, &frame, &mut steps);
            assert_eq!(outcome, forward(&router, 1, &frame, &mut ()), "a flow has one way");
            assert!(matches!(steps.last(), Some(Step::Neighbor { .. })));
            outcome.frame.len() - frame.len()
        })
        .collect();
    let tagged = ways.iter().filter(|extra| **extra == 4).count();
    assert!((60..=140).contains(&tagged), "{tagged} of 200 by the VLAN");
    // A packet from the group's prefix may come by each member, also strictly.
    let mut back = Frame::udp(("198.51.100.9", 53), ("198.51.100.10", 1), b"").bytes();
    back[..6].copy_from_slice(&OUT);
    assert!(matches!(forward(&router, 2, &back, &mut ()).verdict, Verdict::Forward { .. }));
}

#[test]
fn a_device_and_vlan_have_one_interface() {
    let mut router = router(ReversePath::Off);
    let interface = *router.interface(1).unwrap();
    assert_eq!(router.set_interface(50, interface), Err(RouterError::SameTags(1)));
    router.remove_interface(1);
    assert_eq!(router.set_interface(50, interface), Ok(()));
    assert_eq!(router.interface_of(1, Tags::default()), Some(50));
}

#[test]
fn each_reason_has_a_counter_of_its_own() {
    use DropReason as D;
    use PassReason as P;
    let drops = [
        D::Malformed(Malformed::TruncatedEthernet),
        D::Malformed(Malformed::BadQuote),
        D::MartianSource,
        D::SpoofedSource,
        D::BlackHole,
        D::Policy,
        D::NatFiltered,
        D::NatPortsExhausted,
        D::NatSessionsExhausted,
        D::NatNoSession,
    ];
    let passes = [
        P::NotRouted,
        P::NotIp,
        P::NotForRouter,
        P::RouterOptions,
        P::NoNeighbor,
        P::NatNoMapping,
        P::MartianDestination,
    ];
    let numbers = drops.map(D::number).into_iter().chain(passes.map(P::number));
    let numbers: std::collections::BTreeSet<u32> = numbers.collect();
    assert_eq!(numbers.len(), drops.len() + passes.len());
    assert!(numbers.iter().all(|number| (1..REASON_COUNTERS as u32).contains(number)), "{numbers:?}");
    assert!(D::Malformed(Malformed::BadQuote).number() < 32);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn what_leaves_is_a_good_packet_with_the_same_payload(
        octet in any::<u8>(), v6 in any::<bool>(), port in any::<u16>(), hop_limit in 2u8..,
        payload in prop::collection::vec(any::<u8>(), 0..200), tag in prop::bool::ANY,
    ) {
        let third = if tag { "198.51.101" } else { "198.51.100" };
        let destination = if v6 { format!("2001:db8:1::{octet:x}") } else { format!("{third}.{octet}") };
        let source = if v6 { "2001:db8::1" } else { "192.0.2.1" };
        let frame = Frame { hop_limit, ..Frame::udp((source, port), (&destination, 53), &payload) };
        let outcome = run(&frame.bytes());
        prop_assert_eq!(outcome.verdict, Verdict::Forward { port: 2 });
        let packet = parse(&outcome.frame).unwrap();
        let ip = packet.ip.unwrap();
        prop_assert_eq!(ip.hop_limit, hop_limit - 1);
        let Transport::Udp(udp) = packet.transport else { panic!("{packet:?}") };
        let segment = &outcome.frame[udp.offset..ip.end()];
        prop_assert_eq!(segment, &frame.segment[..]);
        prop_assert_eq!(checksum::state(ip.source, ip.destination, 17, segment, 6), checksum::State::Right);
    }

    #[test]
    fn arbitrary_frames_leave_as_they_came_or_by_a_known_port(
        mut data in prop::collection::vec(any::<u8>(), 0..120), v6 in any::<bool>(),
    ) {
        if data.len() >= 14 {
            data[..6].copy_from_slice(&ROUTER);
            data[12..14].copy_from_slice(if v6 { &[0x86, 0xdd] } else { &[8, 0] });
        }
        let outcome = run(&data);
        match outcome.verdict {
            Verdict::Forward { port } => prop_assert_eq!(port, 2),
            _ => prop_assert_eq!(outcome.frame, data),
        }
    }
}
