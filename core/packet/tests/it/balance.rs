//! The slot tables of edges, what a file may say, and slices of ports.

use std::{net::IpAddr, time::Duration};

use sallyport_packet_model::{
    balance::{
        BalanceConfig, EdgeConfig, EdgeState, EgressConfig, MachineConfig, Member, Numbers, POOL_SLOTS, PortSlices,
        Ports, Protocol, ServiceConfig, SiteConfig, SliceConfig, SliceError, Slot, Steering, Tables, fill_slots,
        steering_port,
    },
    layout::SLICES,
    parse::parse,
};

use sallyport_packet_model::testing::Frame;

/// Edges of these numbers, with one weight.
fn members(numbers: impl IntoIterator<Item = u16>) -> Vec<Member> {
    let member = |number: u16| Member {
        number,
        address: [192, 0, 2, number as u8].into(),
        weight: 100,
        state: EdgeState::Serving,
    };
    numbers.into_iter().map(member).collect()
}

fn with_state(mut members: Vec<Member>, number: u16, state: EdgeState) -> Vec<Member> {
    members.iter_mut().filter(|member| member.number == number).for_each(|member| member.state = state);
    members
}

fn firsts(slots: &[Slot], number: u16) -> usize {
    slots.iter().filter(|slot| slot.first == number).count()
}

#[test]
fn an_edge_that_comes_takes_its_share_and_the_old_owner_is_second() {
    let (before, after) = (fill_slots(&members(1..=8)), fill_slots(&members(1..=9)));
    let mut moved = 0;
    for (old, new) in before.iter().zip(&after) {
        assert!(old.first != old.second && new.first != new.second);
        if old.first != new.first {
            assert_eq!((new.first, new.second), (9, old.first), "only the new edge takes slots");
            moved += 1;
        }
    }
    assert_eq!(moved, firsts(&after, 9));
    println!("{moved} of {POOL_SLOTS} slots have moved, and the share of one of nine is {}", POOL_SLOTS / 9);
    assert!(moved.abs_diff(POOL_SLOTS / 9) < POOL_SLOTS / 100);
}

#[test]
fn a_draining_edge_is_second_and_a_dead_one_is_gone() {
    let all = fill_slots(&members(1..=8));
    let draining = fill_slots(&with_state(members(1..=8), 3, EdgeState::Draining));
    let down = fill_slots(&with_state(members(1..=8), 3, EdgeState::Down));
    assert_eq!((firsts(&draining, 3), firsts(&down, 3)), (0, 0));
    for ((was, drains), dies) in all.iter().zip(&draining).zip(&down) {
        assert_ne!(dies.second, 3);
        assert_eq!(drains.first, dies.first, "new connections go to the same edges");
        if was.first == 3 {
            // What was second is first, and comes back behind it.
            assert_eq!((drains.first, drains.second), (was.second, 3));
            assert_eq!(dies.first, was.second);
        } else {
            assert_eq!(drains.first, was.first, "flows of others stay");
        }
    }
    let alone = fill_slots(&with_state(members(1..=2), 1, EdgeState::Draining));
    assert!(alone.iter().all(|slot| *slot == Slot { first: 2, second: 1 }));
    let none_serves: Vec<_> =
        members(1..=2).into_iter().map(|member| Member { state: EdgeState::Draining, ..member }).collect();
    assert!(fill_slots(&none_serves).iter().all(|slot| slot.first != 0), "rather an edge that drains than none");
    assert!(fill_slots(&[]).iter().all(|slot| *slot == Slot::default()));
    assert!(fill_slots(&members([7])).iter().all(|slot| *slot == Slot { first: 7, second: 0 }));
}

#[test]
fn weights_are_shares_and_the_order_does_not_matter() {
    let mut edges = members(1..=3);
    edges[2].weight = 200;
    let slots = fill_slots(&edges);
    for (number, wanted) in [(1, POOL_SLOTS / 4), (2, POOL_SLOTS / 4), (3, POOL_SLOTS / 2)] {
        assert!(firsts(&slots, number).abs_diff(wanted) < POOL_SLOTS / 40, "{number}: {}", firsts(&slots, number));
    }
    edges.reverse();
    assert_eq!(fill_slots(&edges), slots);
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn edge(name: &str, at: &str) -> EdgeConfig {
    EdgeConfig { name: name.to_owned(), address: address(at), weight: 100, state: EdgeState::Serving, server: None }
}

fn service(at: &str, protocol: Protocol, first: u16, last: u16) -> ServiceConfig {
    ServiceConfig { address: address(at), protocol, ports: Ports { first, last }, edges: None, quic: false }
}

fn good() -> BalanceConfig {
    let slices =
        vec![SliceConfig { number: 1, machine: "a".to_owned() }, SliceConfig { number: 2, machine: "m".to_owned() }];
    BalanceConfig {
        source: vec![address("10.0.0.1")],
        edges: vec![edge("a", "10.0.0.2"), edge("b", "10.0.0.3")],
        services: vec![
            service("203.0.113.1", Protocol::Tcp, 443, 443),
            service("203.0.113.1", Protocol::Tcp, 8000, 8999),
        ],
        machines: vec![MachineConfig { name: "m".to_owned(), address: address("10.0.0.9") }],
        sites: vec![SiteConfig { name: "fra".to_owned(), balancer: address("10.9.0.1") }],
        egress: vec![
            EgressConfig { address: address("198.51.100.1"), site: None, slices },
            EgressConfig { address: address("198.51.100.2"), site: Some("fra".to_owned()), slices: vec![] },
        ],
        ..BalanceConfig::default()
    }
}

fn compiled(config: &BalanceConfig, numbers: &mut Numbers) -> Tables {
    config.compile(numbers).unwrap()
}

#[test]
fn numbers_stay_and_are_not_given_again_at_once() {
    let mut numbers = Numbers::default();
    let first = compiled(&good(), &mut numbers);
    assert_eq!(first.pools.len(), 1, "services with the same edges share a table");
    let number = |tables: &Tables, name: &str| {
        let found = tables.targets.iter().find(|target| target.1.name == name);
        found.map(|(number, target)| (*number, target.generation))
    };
    let mut config = good();
    config.edges.remove(0);
    config.edges.push(edge("c", "10.0.0.4"));
    config.egress[0].slices.remove(0);
    let second = compiled(&config, &mut numbers);
    assert_eq!(number(&second, "b"), number(&first, "b"));
    assert_eq!(number(&second, "a"), None);
    assert!(first.targets.keys().all(|taken| number(&second, "c").unwrap().0 != *taken));
}

#[test]
fn what_cannot_be_has_a_sentence() {
    type Change = fn(&mut BalanceConfig);
    let cases: &[(Change, &str)] = &[
        (
            |c| c.services[1].ports.first = 443,
            "the service 203.0.113.1 tcp 443-8999 overlaps another one at the ports 443",
        ),
        (|c| c.edges.clear(), "the service 203.0.113.1 tcp 443 has no edge: add [[edge]], or name some by `edges`"),
        (|c| c.services[0].edges = Some(vec!["z".to_owned()]), "names the edge z, which is not there"),
        (|c| c.services[0].address = address("10.0.0.2"), "has the address of a itself: edges share a virtual address"),
        (|c| c.services[0].quic = true, "has quic = true, which is for udp"),
        (|c| c.edges[1].address = address("10.0.0.2"), "a and b have one address, 10.0.0.2"),
        (|c| c.edges[1].name = "a".to_owned(), "two edges, machines or sites have the name a"),
        (|c| c.edges[1].name = "a b".to_owned(), "`a b` is no name"),
        (|c| c.edges[1].weight = 0, "the weight of b is 0, and must be from 1 to 1000"),
        (|c| c.edges[1].address = address("fd00::2"), "b has the address fd00::2, and source has none of its family"),
        (|c| c.edges.iter_mut().for_each(|edge| edge.server = Some(7)), "a and b have one number of a server, 7"),
        (|c| c.source.push(address("10.0.0.8")), "source has two addresses of one family"),
        (|c| c.egress[0].slices[1].number = 1, "slice 1 of 198.51.100.1 has two machines, a and m"),
        (|c| c.egress[0].slices[1].number = 32, "slice 32 of 198.51.100.1 is none: slices are from 1 to 31"),
        (|c| c.egress[0].slices[1].number = 0, "slice 0 of 198.51.100.1 is none"),
        (|c| c.egress[0].slices[1].machine = "z".to_owned(), "slice 2 of 198.51.100.1 is of z, which is not there"),
        (|c| c.egress[1].site = Some("lon".to_owned()), "198.51.100.2 is of the site lon, which is not there"),
        (|c| c.egress[0].site = Some("fra".to_owned()), "198.51.100.1 is of the site fra, and has slices here"),
        (|c| c.egress[1].address = c.egress[0].address, "the egress address 198.51.100.1 is named twice"),
        (|c| c.egress[1].address = address("203.0.113.1"), "is a virtual address and an egress address"),
        (|c| c.services[0].address = address("224.0.0.1"), "224.0.0.1 is no address of one machine"),
        (|c| c.connections = u32::MAX, "connections is 4294967295, and must be at most 16777216"),
        (|c| c.quic_config = 7, "quic_config is 7, and must be from 0 to 6"),
        (|c| c.gue_port = 0, "gue_port is 0"),
        (
            |c| c.edges = (0..=256).map(|n| edge(&format!("e{n}"), &format!("10.1.{}.{}", n / 256, n % 256))).collect(),
            "257 edges are more than 256",
        ),
    ];
    for (change, words) in cases {
        let mut config = good();
        change(&mut config);
        let said = config.compile(&mut Numbers::default()).unwrap_err().to_string();
        assert!(said.contains(words), "{said} | {words}");
    }
    good().compile(&mut Numbers::default()).unwrap();
}

#[test]
fn slices_have_one_owner_each() {
    let mut slices = PortSlices::default();
    assert_eq!(slices.take(0), Ok(1));
    assert_eq!(slices.take(0), Ok(2));
    assert_eq!(slices.take(1), Ok(3));
    assert_eq!(PortSlices::ports(1), Some(2_048..=4_095));
    assert_eq!(PortSlices::ports(31), Some(63_488..=65_535));
    assert_eq!(PortSlices::ports(32), None);
    for (port, owner) in
        [(80, None), (2_047, None), (2_048, Some(0)), (6_143, Some(0)), (6_144, Some(1)), (8_192, None)]
    {
        assert_eq!(slices.owner(port), owner, "{port}");
    }
    assert_eq!(slices.take_slice(1, 0), Err(SliceError::NotFree(0)), "services have the first slice");
    assert_eq!(slices.take_slice(1, 2), Err(SliceError::NotFree(2)));
    assert_eq!(slices.take_slice(1, 3), Ok(()), "its own");
    assert_eq!(slices.take_slice(1, 32), Err(SliceError::NotFree(32)));
    assert_eq!(slices.take(u32::MAX), Err(SliceError::BadServer));
    let more = std::iter::repeat_with(|| slices.take(9)).take_while(Result::is_ok).count();
    assert_eq!(more, SLICES - 4);
    assert_eq!(slices.take(9), Err(SliceError::NoneFree));
    assert_eq!(slices.release(0), 2);
    assert_eq!(slices.owner(2_048), None);
    assert_eq!(slices.take(5), Ok(1));
}

#[test]
fn packets_are_steered_by_the_port_that_a_server_chose() {
    let mut slices = PortSlices::default();
    slices.take_slice(4, 2).unwrap();
    let port = |frame: Frame| steering_port(&parse(&frame.bytes()).unwrap());
    let (server, shared) = (("198.51.100.7", 53), ("203.0.113.1", 5_000));
    let answer = Frame::udp(server, shared, b"answer");
    assert_eq!(slices.server(&parse(&answer.bytes()).unwrap()), Some(4));
    assert_eq!(port(Frame::tcp(server, shared, 2, b"")), Some(5_000));
    assert_eq!(port(Frame::echo(server.0, shared.0, true, 5_000)), Some(5_000));
    assert_eq!(port(Frame::echo(server.0, shared.0, false, 5_000)), None, "the address itself is asked");
    let sent = Frame::udp(shared, server, b"question");
    assert_eq!(port(Frame::error("192.0.2.9", shared.0, 11, &sent.packet())), Some(5_000));
    assert_eq!(port(Frame { fragment: 0x2000, ..answer }), None);
    assert_eq!(port(Frame::new(server.0, shared.0, 47, vec![0; 9])), None);
}

/// The edge that a frame goes to.
fn target(steering: &mut Steering, frame: &Frame, seconds: u64) -> u16 {
    steering.steer(&frame.bytes(), Duration::from_secs(seconds), 1_600).target.unwrap()
}

/// The file with services for UDP too, and edges `a`, `b` and others by their last bytes.
fn with_edges(hosts: &[u8]) -> BalanceConfig {
    let edge = |host: &u8| edge(&format!("e{host}"), &format!("10.0.0.{host}"));
    let services = [Protocol::Tcp, Protocol::Udp].map(|protocol| service("203.0.113.1", protocol, 443, 443));
    BalanceConfig {
        source: vec![address("10.0.0.1")],
        edges: hosts.iter().map(edge).collect(),
        services: services.to_vec(),
        ..BalanceConfig::default()
    }
}

#[test]
fn connections_are_remembered_within_bounds() {
    let mut numbers = Numbers::default();
    let mut steering = Steering::new(compiled(&with_edges(&[2, 3]), &mut numbers), 100);
    let client = |port| ("192.0.2.7", port);
    let tcp = |port, flags| Frame::tcp(client(port), ("203.0.113.1", 443), flags, b"");
    let udp = |port| Frame::udp(client(port), ("203.0.113.1", 443), b"data");
    for port in 1..=500 {
        steering.steer(&tcp(port, 2).bytes(), Duration::ZERO, 1_600);
    }
    assert_eq!(steering.connections(), 0, "a flood of SYN is not remembered");
    let before: Vec<u16> = (1..=100).map(|port| target(&mut steering, &tcp(port, 0x10), 0)).collect();
    let datagrams: Vec<u16> = (1..=50).map(|port| target(&mut steering, &udp(port), 0)).collect();
    assert_eq!(steering.connections(), 100, "the oldest have made room");
    let before_last = before[50..].to_vec();
    // Two more edges take their shares of what is new, and of what is forgotten.
    steering.set_tables(compiled(&with_edges(&[2, 3, 4, 5]), &mut numbers));
    let after: Vec<u16> = (51..=100).map(|port| target(&mut steering, &tcp(port, 0x10), 1)).collect();
    assert_eq!(after, before_last, "what is remembered stays");
    let again: Vec<u16> = (1..=50).map(|port| target(&mut steering, &udp(port), 60)).collect();
    assert_eq!(again, datagrams, "UDP stays within a minute");
    let later: Vec<u16> = (1..=50).map(|port| target(&mut steering, &udp(port), 121)).collect();
    assert_ne!(later, datagrams, "silent flows of UDP go where new ones go");
    // A new connection of a known flow goes where new ones go, and is remembered there.
    let port = (51..=100).find(|port| target(&mut steering, &tcp(*port, 2), 2) != before[*port as usize - 1]).unwrap();
    let new = target(&mut steering, &tcp(port, 2), 2);
    assert_eq!(target(&mut steering, &tcp(port, 0x10), 2), new);
    // An edge that has left the file leaves no flow behind, even if another one gets its number.
    let gone = before_last.iter().copied().min().unwrap();
    let tables = compiled(&with_edges(&[3, 4, 5]), &mut numbers);
    steering.set_tables(tables);
    assert!((51..=100).all(|port| target(&mut steering, &tcp(port, 0x10), 3) != gone), "number {gone} is nobody's");
}

#[test]
fn a_remembered_flow_names_the_slots_edge_as_second() {
    let mut numbers = Numbers::default();
    let mut steering = Steering::new(compiled(&with_edges(&[2, 3]), &mut numbers), 1_000);
    let tcp = |port| Frame::tcp(("192.0.2.7", port), ("203.0.113.1", 443), 0x10, b"");
    let before: Vec<u16> = (1..=200).map(|port| target(&mut steering, &tcp(port), 0)).collect();
    let tables = compiled(&with_edges(&[2, 3, 4]), &mut numbers);
    let new = *tables.targets.iter().find(|target| target.1.name == "e4").unwrap().0;
    steering.set_tables(tables);
    let mut moved = 0;
    for (port, before) in (1..=200).zip(before) {
        let steered = steering.steer(&tcp(port).bytes(), Duration::ZERO, 1_600);
        assert_eq!(steered.target, Some(before));
        moved += u32::from(steered.second == Some(new));
    }
    assert!(moved > 20, "{moved}");
}
