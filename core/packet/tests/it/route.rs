//! The fast tables against the plain one, changes against rebuilds, next hops and groups.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use proptest::prelude::*;
use sallyport_packet_model::{
    layout::GROUP_SLOTS,
    parse::{Flow, flow_hash},
    route::{Cells, Entry, Fib, Member, NextHop, PrefixTable, RouteError, Storage},
};

fn fib() -> Fib<Vec<u32>> {
    let mut fib = Fib::new(Storage::in_memory(600, 4_000, 64, 4));
    for interface in 1..=8 {
        assert_eq!(fib.next_hops_mut().create(NextHop::Forward { interface, gateway: None }), Ok(interface - 1));
    }
    fib
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn to(fib: &Fib<Vec<u32>>, address: &str) -> Option<(u8, u32)> {
    fib.lookup(address.parse().unwrap(), 0).map(|found| (found.length, found.number))
}

#[test]
fn the_longest_prefix_decides_and_its_end_uncovers_the_shorter_one() {
    let mut fib = fib();
    assert_eq!(to(&fib, "192.0.2.1"), None);
    for (prefix, next_hop) in
        [("0.0.0.0/0", 0), ("192.0.0.0/8", 1), ("192.0.2.0/24", 2), ("192.0.2.128/25", 3), ("192.0.2.129/32", 4)]
    {
        assert_eq!(fib.add(net(prefix), next_hop), Ok(None));
    }
    assert_eq!(to(&fib, "192.0.2.129"), Some((32, 4)));
    assert_eq!(to(&fib, "192.0.2.130"), Some((25, 3)));
    assert_eq!(to(&fib, "192.0.2.1"), Some((24, 2)));
    assert_eq!(to(&fib, "192.0.3.1"), Some((8, 1)));
    assert_eq!(to(&fib, "8.8.8.8"), Some((0, 0)));
    assert_eq!(fib.withdraw(net("192.0.2.128/25")), Ok(3));
    assert_eq!(to(&fib, "192.0.2.130"), Some((24, 2)));
    assert_eq!(to(&fib, "192.0.2.129"), Some((32, 4)));
    assert_eq!(fib.withdraw(net("192.0.2.0/24")), Ok(2));
    assert_eq!(to(&fib, "192.0.2.130"), Some((8, 1)));
    assert_eq!(fib.withdraw(net("192.0.2.129/32")), Ok(4));
    assert_eq!(fib.withdraw(net("192.0.0.0/8")), Ok(1));
    assert_eq!(to(&fib, "192.0.2.129"), Some((0, 0)));
    assert_eq!(fib.withdraw(net("0.0.0.0/0")), Ok(0));
    assert_eq!(to(&fib, "192.0.2.129"), None);
    assert_eq!(fib.withdraw(net("0.0.0.0/0")), Err(RouteError::NoRoute(net("0.0.0.0/0"))));
    assert_eq!(fib.blocks_and_nodes(), (0, 0), "nothing is left");
}

#[test]
fn a_trie_of_ipv6_leaves_out_nodes_with_one_way() {
    let mut fib = fib();
    fib.add(net("2001:db8:1:2:3:4:5:6/128"), 1).unwrap();
    assert_eq!(fib.blocks_and_nodes().1, 1, "one prefix needs one node");
    fib.add(net("2001:db8:1:2:3:4:5:7/128"), 2).unwrap();
    assert_eq!(fib.blocks_and_nodes().1, 1);
    fib.add(net("2001:db8:1:ffff::/64"), 3).unwrap();
    assert_eq!(fib.blocks_and_nodes().1, 3, "one node where the ways part, and one for the prefix");
    fib.add(net("2001:db8::/32"), 4).unwrap();
    fib.add(net("::/0"), 5).unwrap();
    assert_eq!(to(&fib, "2001:db8:1:2:3:4:5:6"), Some((128, 1)));
    assert_eq!(to(&fib, "2001:db8:1:2:3:4:5:8"), Some((32, 4)));
    assert_eq!(to(&fib, "2001:db8:1:ffff::9"), Some((64, 3)));
    assert_eq!(to(&fib, "2001:db9::9"), Some((0, 5)));
    for prefix in ["2001:db8::/32", "2001:db8:1:2:3:4:5:6/128", "2001:db8:1:ffff::/64", "2001:db8:1:2:3:4:5:7/128"] {
        fib.withdraw(net(prefix)).unwrap();
    }
    assert_eq!(fib.blocks_and_nodes().1, 0);
    assert_eq!(to(&fib, "2001:db8:1:2:3:4:5:6"), Some((0, 5)));
}

#[test]
fn one_write_reroutes_every_prefix_of_a_next_hop() {
    /// Counts writes.
    #[derive(Debug)]
    struct Counted(Vec<u32>, std::rc::Rc<std::cell::Cell<usize>>);
    impl Cells for Counted {
        fn count(&self) -> usize {
            self.0.len()
        }
        fn get(&self, index: usize) -> u32 {
            self.0[index]
        }
        fn set(&mut self, index: usize, value: u32) {
            self.1.set(self.1.get() + 1);
            self.0[index] = value;
        }
    }
    let writes = std::rc::Rc::new(std::cell::Cell::new(0));
    let memory = Storage::in_memory(4, 4, 8, 1);
    let count = |cells| Counted(cells, writes.clone());
    let mut fib = Fib::new(Storage {
        fib4_first: count(memory.fib4_first),
        fib4_second: count(memory.fib4_second),
        fib6_first: count(memory.fib6_first),
        fib6_nodes: count(memory.fib6_nodes),
        next_hops: count(memory.next_hops),
        group_slots: count(memory.group_slots),
    });
    let way = |interface| NextHop::Forward { interface, gateway: Some([192, 0, 2, 1].into()) };
    let number = fib.next_hops_mut().number_of(way(1)).unwrap();
    assert_eq!(fib.next_hops_mut().number_of(way(1)), Ok(number), "an equal next hop has the same number");
    for index in 0..1_000_000u32 {
        let prefix = Ipv4Net::new((index << 8).into(), 24).unwrap();
        fib.add(prefix.into(), number).unwrap();
    }
    assert_eq!(fib.routes4().count(), 1_000_000);
    let before = writes.get();
    fib.next_hops_mut().replace(number, way(2)).unwrap();
    assert_eq!(writes.get() - before, 9, "the cells of one next hop, and its version twice");
    for index in [0, 1, 999_999u32] {
        let found = fib.lookup(IpAddr::V4((index << 8 | 9).into()), 0).unwrap();
        assert_eq!(found.next_hop, way(2));
    }
}

#[test]
fn a_full_table_refuses_and_keeps_what_it_has() {
    let mut fib = Fib::new(Storage::in_memory(1, 3, 1, 1));
    let number = fib.next_hops_mut().create(NextHop::Local).unwrap();
    assert_eq!(fib.next_hops_mut().create(NextHop::BlackHole), Err(RouteError::NextHopsFull));
    assert_eq!(fib.add(net("192.0.2.0/24"), 7), Err(RouteError::UnknownNextHop(7)));
    fib.add(net("192.0.2.128/25"), number).unwrap();
    assert_eq!(fib.add(net("198.51.100.0/25"), number), Err(RouteError::TableFull));
    assert_eq!(to(&fib, "198.51.100.1"), None);
    assert_eq!(to(&fib, "192.0.2.129"), Some((25, 0)));
    fib.add(net("2001:db8::/32"), number).unwrap();
    fib.add(net("2001:db8:1::/48"), number).unwrap();
    assert_eq!(fib.add(net("2001:db8:2::/64"), number), Err(RouteError::TableFull));
    assert_eq!(to(&fib, "2001:db8:2::1"), Some((32, 0)));
    fib.withdraw(net("192.0.2.128/25")).unwrap();
    assert_eq!(fib.add(net("198.51.100.0/25"), number), Err(RouteError::TableFull), "a reader may be in the block");
    fib.reuse();
    assert_eq!(fib.add(net("198.51.100.0/25"), number), Ok(None));
    assert_eq!(fib.remove_next_hop(number), Err(RouteError::InUse(0, 3)));
}

#[test]
fn groups_share_flows_by_weight_and_keep_most_when_a_member_goes() {
    let mut fib = fib();
    let member = |next_hop, weight| Member { next_hop, weight };
    let hops = fib.next_hops_mut();
    assert_eq!(hops.create(NextHop::Group(0)), Err(RouteError::UnknownGroup(0)));
    assert_eq!(hops.set_group(0, &[]), Err(RouteError::BadMembers));
    assert_eq!(hops.set_group(0, &[member(1, 0)]), Err(RouteError::BadMembers));
    assert_eq!(hops.set_group(0, &[member(60, 1)]), Err(RouteError::UnknownNextHop(60)));
    assert_eq!(hops.set_group(9, &[member(1, 1)]), Err(RouteError::UnknownGroup(9)));
    hops.set_group(0, &[member(1, 3), member(2, 1), member(3, 4)]).unwrap();
    let group = hops.create(NextHop::Group(0)).unwrap();
    assert_eq!(hops.set_group(1, &[member(group, 1)]), Err(RouteError::BadMembers), "no group in a group");
    assert_eq!(hops.remove(1), Err(RouteError::InUse(1, 1)));
    fib.add(net("10.0.0.0/8"), group).unwrap();
    let owners = |fib: &Fib<Vec<u32>>| -> Vec<u32> {
        let hashes = (0..GROUP_SLOTS as u32).map(|slot| slot << 24);
        hashes.map(|hash| fib.lookup([10, 0, 0, 1].into(), hash).unwrap().number).collect()
    };
    let before = owners(&fib);
    let share = |owners: &[u32], number| owners.iter().filter(|owner| **owner == number).count();
    for (number, wanted) in [(1, 96), (2, 32), (3, 128)] {
        assert!(share(&before, number).abs_diff(wanted) <= 1, "{number}: {}", share(&before, number));
    }
    fib.next_hops_mut().set_group(0, &[member(3, 4), member(1, 3)]).unwrap();
    let after = owners(&fib);
    let moved = before.iter().zip(&after).filter(|(before, after)| **before != 2 && before != after).count();
    assert_eq!(share(&after, 2), 0);
    assert!(moved <= 40, "{moved} of 224 slots of the others have moved");
    fib.next_hops_mut().set_group(0, &[member(1, 3), member(2, 1), member(3, 4)]).unwrap();
    assert_eq!(owners(&fib), before, "the slots follow from the members alone");
}

#[test]
fn hashes_of_flows_spread_evenly_and_depend_on_each_field() {
    let flow = Flow {
        source: [192, 0, 2, 1].into(),
        destination: [198, 51, 100, 1].into(),
        protocol: 17,
        source_port: 1,
        destination_port: 53,
    };
    let mut counts = [0u32; 256];
    for port in 0..25_600u16 {
        counts[(flow_hash(&Flow { source_port: port, ..flow }, 7) >> 24) as usize] += 1;
    }
    assert!(counts.iter().all(|count| (50..=160).contains(count)), "{counts:?}");
    let hash = flow_hash(&flow, 7);
    assert_ne!(hash, flow_hash(&flow, 8));
    assert_ne!(hash, flow_hash(&Flow { protocol: 6, ..flow }, 7));
    assert_ne!(hash, flow_hash(&flow.reversed(), 7));
}

#[test]
fn cells_are_read_as_they_were_written() {
    for entry in [
        Entry::None,
        Entry::Node(0),
        Entry::Node(u32::MAX >> 1),
        Entry::Route { length: 0, next_hop: 0 },
        Entry::Route { length: 128, next_hop: (1 << 23) - 1 },
    ] {
        assert_eq!(Entry::decode(entry.encode()), entry);
    }
}

/// Prefixes that lie in and around each other.
pub(crate) fn prefix() -> impl Strategy<Value = IpNet> {
    let v4 = (any::<u32>(), 8u8..=32).prop_map(|(bits, length)| {
        let bits = 0x0a00_0000 | bits & 0x0003_0303 | bits & 0x80 << 8;
        IpNet::V4(Ipv4Net::new(bits.into(), length).unwrap().trunc())
    });
    let v6 = (any::<u128>(), 12u8..=128).prop_map(|(bits, length)| {
        let bits = 0x2001_0db8 << 96 | bits & 0x0001_0001_0003_0011_0000_0008_0003;
        IpNet::V6(Ipv6Net::new(bits.into(), length).unwrap().trunc())
    });
    prop_oneof![8 => v4, 8 => v6, 1 => Just(net("0.0.0.0/0")), 1 => Just(net("::/0"))]
}

/// The addresses at which a table can change: the ends of each prefix, and their neighbours.
pub(crate) fn probes(prefixes: &[IpNet]) -> Vec<IpAddr> {
    let ends = prefixes.iter().flat_map(|prefix| match prefix {
        IpNet::V4(net) => [net.network().to_bits(), net.broadcast().to_bits()]
            .into_iter()
            .flat_map(|bits| [bits.wrapping_sub(1), bits, bits.wrapping_add(1)])
            .map(|bits| IpAddr::V4(bits.into()))
            .collect::<Vec<_>>(),
        IpNet::V6(net) => [net.network().to_bits(), net.broadcast().to_bits()]
            .into_iter()
            .flat_map(|bits| [bits.wrapping_sub(1), bits, bits.wrapping_add(1)])
            .map(|bits| IpAddr::V6(bits.into()))
            .collect(),
    });
    ends.collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn changes_agree_with_the_plain_table_and_with_a_rebuild(
        changes in prop::collection::vec((prefix(), 0u32..8, prop::bool::weighted(0.65)), 1..60)
    ) {
        let (mut fib, mut plain4, mut plain6) = (fib(), PrefixTable::default(), PrefixTable::default());
        let prefixes: Vec<IpNet> = changes.iter().map(|(prefix, ..)| *prefix).collect();
        let probes = probes(&prefixes);
        for (prefix, next_hop, is_add) in changes {
            let plain = if matches!(prefix, IpNet::V4(_)) { &mut plain4 } else { &mut plain6 };
            if is_add {
                prop_assert_eq!(fib.add(prefix, next_hop), Ok(plain.add(prefix, next_hop)));
            } else {
                prop_assert_eq!(fib.withdraw(prefix).ok(), plain.withdraw(prefix));
            }
            for probe in &probes {
                let expected = if probe.is_ipv4() { plain4.lookup(*probe) } else { plain6.lookup(*probe) };
                let found = fib.lookup(*probe, 0).map(|found| (found.length, found.number));
                prop_assert_eq!(found, expected, "{} after {}", probe, prefix);
            }
        }
        let mut rebuilt = self::fib();
        for (prefix, next_hop) in plain4.prefixes(true).chain(plain6.prefixes(false)) {
            rebuilt.add(prefix, next_hop).unwrap();
        }
        prop_assert_eq!(rebuilt.blocks_and_nodes(), fib.blocks_and_nodes(), "as many as a rebuild needs");
        for probe in &probes {
            prop_assert_eq!(rebuilt.lookup(*probe, 0), fib.lookup(*probe, 0));
        }
    }
}
