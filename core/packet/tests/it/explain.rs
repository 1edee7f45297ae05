//! Explanations: the sentences, and that they say what happens.

use std::{collections::BTreeMap, time::Duration};

use proptest::prelude::*;
use sallyport_packet_model::{
    explain::{Path, Question, explain, sample},
    filter::{Action, Filter, Policy, Rule, Timeouts, Tracker},
    forward::{DropReason, PassReason, ReversePath, Verdict, forward},
    nat::{Nat, NatConfig},
    parse::{Flow, Tags, Tcp, parse},
    route::{Member, NextHop},
};

use crate::{forward::router, frames::ROUTER};

const SECOND: Duration = Duration::from_secs(1);

fn question(source: &str, destination: &str, protocol: u8, ports: (u16, u16)) -> Question {
    let flow = Flow {
        source: source.parse().unwrap(),
        destination: destination.parse().unwrap(),
        protocol,
        source_port: ports.0,
        destination_port: ports.1,
    };
    Question { flow, tags: Tags::default(), tcp_flags: Tcp::SYN, hop_limit: 64, bytes: 0 }
}

fn name(index: u32) -> String {
    format!("eth{index}")
}

#[test]
fn a_routed_packet_is_explained_step_by_step() {
    let router = router(ReversePath::Strict);
    let path = Path { router: &router, nat: None, filter: None, name: &name };
    let frame = sample(&question("192.0.2.1", "198.51.100.9", 6, (1_234, 80)), ROUTER).unwrap();
    let explanation = explain(&path, 1, &frame, SECOND);
    assert_eq!(
        explanation.lines,
        [
            "TCP from 192.0.2.1:1234 to 198.51.100.9:80, 40 bytes, hop limit 64, comes by eth1",
            "192.0.2.0/24 leads back to 192.0.2.1 directly on eth1",
            "the longest prefix with 198.51.100.9 is 198.51.100.0/24, by 203.0.113.1 on eth2",
            "the neighbor 203.0.113.1 on eth2 has the hardware address 02:00:00:00:01:01",
            "the packet leaves by eth2",
        ]
    );
    let spoofed = sample(&question("198.51.100.1", "198.51.100.9", 1, (7, 0)), ROUTER).unwrap();
    let explanation = explain(&path, 1, &spoofed, SECOND);
    assert_eq!(explanation.verdict, Verdict::Drop(DropReason::SpoofedSource));
    assert_eq!(
        explanation.lines[0],
        "ICMP echo request from 198.51.100.1 (identifier 7) to 198.51.100.9, 28 bytes, hop limit 64, comes by eth1"
    );
    assert_eq!(
        explanation.lines.last().unwrap(),
        "the packet is dropped: no route leads back to the source by this interface"
    );
    let unknown = sample(&question("192.0.2.1", "8.8.8.8", 17, (1, 53)), ROUTER).unwrap();
    let lines = explain(&path, 1, &unknown, SECOND).lines;
    assert_eq!(
        lines[2..],
        ["no prefix has 8.8.8.8", "the kernel gets the packet: there is no route; the kernel answers"]
    );
    let other = explain(&path, 1, &frame[..20], SECOND);
    assert_eq!(other.lines, ["the packet is dropped: the IPv4 header is cut short"]);
}

#[test]
fn a_member_of_a_group_is_explained_by_its_weight() {
    let mut router = router(ReversePath::Off);
    let hops = router.fib.next_hops_mut();
    let way = |interface| NextHop::Forward { interface, gateway: Some("203.0.113.1".parse().unwrap()) };
    let members = [(2, 1), (20, 3)]
        .map(|(interface, weight)| Member { next_hop: hops.number_of(way(interface)).unwrap(), weight });
    hops.set_group(0, &members).unwrap();
    let group = hops.create(NextHop::Group(0)).unwrap();
    router.fib.add("198.51.100.0/24".parse().unwrap(), group).unwrap();
    let path = Path { router: &router, nat: None, filter: None, name: &name };
    let lines = (1..100).map(|port| {
        let frame = sample(&question("192.0.2.1", "198.51.100.9", 17, (port, 53)), ROUTER).unwrap();
        explain(&path, 1, &frame, SECOND).lines[1].clone()
    });
    let lines: Vec<String> = lines.collect();
    let by =
        |text: &str, weight: &str| lines.iter().filter(|line| line.contains(text) && line.ends_with(weight)).count();
    assert!(by("on eth2, chosen among 2 by the hash 0x", "(weight 1 of 4)") > 0, "{lines:?}");
    assert_eq!(by("on eth2,", "(weight 1 of 4)") + by("on eth20,", "(weight 3 of 4)"), lines.len());
}

#[test]
fn nat_and_rules_are_explained_with_the_addresses_of_the_inside() {
    let mut router = router(ReversePath::Strict);
    let number = router.fib.next_hops_mut().number_of(NextHop::Forward { interface: 1, gateway: None }).unwrap();
    router.fib.add("10.0.0.0/8".parse().unwrap(), number).unwrap();
    let config = NatConfig {
        inside: vec!["10.0.0.0/8".parse().unwrap()],
        pool: vec![[203, 0, 113, 10].into()],
        ..NatConfig::default()
    };
    let mut nat = Nat::new(config).unwrap();
    let rules = vec![
        Rule { protocol: Some(17), ..Rule::new("no UDP", Action::Drop) },
        Rule {
            protocol: Some(6),
            from: vec![sallyport_packet_model::filter::AddressMatch::Net("10.0.0.0/8".parse().unwrap())],
            ..Rule::new("inside", Action::Accept)
        },
    ];
    let filter = Filter {
        policy: Policy::new(rules, BTreeMap::new(), Action::Reject).unwrap(),
        tracker: Tracker::new(10, Timeouts::default(), false),
    };
    let explained = |nat: &Nat, source: &str, protocol| {
        let frame = sample(&question(source, "198.51.100.9", protocol, (1_234, 80)), ROUTER).unwrap();
        let path = Path { router: &router, nat: Some(nat), filter: Some(&filter), name: &name };
        explain(&path, 1, &frame, SECOND)
    };
    let out = explained(&nat, "10.0.0.1", 6);
    assert_eq!(out.verdict, Verdict::Forward { port: 2 });
    assert_eq!(
        out.lines[1..3],
        ["10.0.0.0/8 leads back to 10.0.0.1 directly on eth1", "the NAT replaces the source by 203.0.113.10:1234",]
    );
    assert_eq!(
        out.lines[5..],
        [
            "the flow is new",
            "rule \"no UDP\" does not match: the protocol differs",
            "rule \"inside\", number 2, accepts the packet",
            "the packet leaves by eth2",
        ]
    );
    assert_eq!(nat.session_count(), 0, "an explanation begins no session");
    assert_eq!(Flow::of(&parse(&out.frame).unwrap()).unwrap().source.to_string(), "203.0.113.10");
    assert_eq!(explained(&nat, "10.0.0.1", 17).verdict, Verdict::Drop(DropReason::Policy));
    assert_eq!(explained(&nat, "192.0.2.1", 6).verdict, Verdict::Pass(PassReason::PolicyReject));
    // The session that a real packet has begun is used.
    let frame = sample(&question("10.0.0.1", "198.51.100.9", 6, (1_234, 80)), ROUTER).unwrap();
    nat.translate(&frame, &parse(&frame).unwrap(), SECOND).unwrap();
    assert_eq!(explained(&nat, "10.0.0.1", 6).frame, out.frame);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn an_explanation_says_what_the_router_does(
        octets in any::<[u8; 3]>(), protocol in prop::sample::select(vec![1u8, 6, 17, 47]),
        ports in any::<(u16, u16)>(), hop_limit in 0u8..4, bytes in 0usize..1_600, strict in any::<bool>(),
    ) {
        let router = router(if strict { ReversePath::Strict } else { ReversePath::Off });
        let [source, net, host] = octets;
        let source = if source > 128 { format!("192.0.2.{source}") } else { format!("10.0.0.{source}") };
        let destination = format!("198.51.{}.{host}", 98 + net % 8);
        let question = Question { hop_limit, bytes, ..question(&source, &destination, protocol, ports) };
        let frame = sample(&question, ROUTER).unwrap();
        let path = Path { router: &router, nat: None, filter: None, name: &name };
        let explanation = explain(&path, 1, &frame, SECOND);
        let outcome = forward(&router, 1, &frame, &mut ());
        prop_assert_eq!(explanation.verdict, outcome.verdict);
        prop_assert_eq!(explanation.frame, outcome.frame);
        prop_assert!(!explanation.lines.is_empty());
    }
}
