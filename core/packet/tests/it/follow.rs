//! The kernel's routes become the table; next hops are shared; what finds no room goes to the kernel.

use std::net::IpAddr;

use sallyport_packet_model::{
    follow::{Follower, Leg, Object, Rank, Route, Way},
    route::{NextHop, Storage},
};

fn follower(blocks: usize, nodes: usize, hops: usize, groups: u32) -> Follower<Vec<u32>> {
    Follower::new(Storage::in_memory(blocks, nodes, hops, groups as usize), groups).unwrap()
}

fn leg(interface: u32) -> Leg {
    Leg { interface, gateway: Some(IpAddr::from([192, 0, 2, interface as u8])) }
}

fn by(interface: u32) -> Way {
    Way::Legs(vec![(leg(interface), 1)])
}

fn route(prefix: &str, metric: u32, way: Way) -> Route {
    Route { prefix: prefix.parse().unwrap(), rank: Rank { table: 1, is_for_all: true, metric }, way }
}

fn to(follower: &Follower<Vec<u32>>, address: &str, hash: u32) -> Option<NextHop> {
    follower.fib().lookup(address.parse().unwrap(), hash).map(|found| found.next_hop)
}

fn forward(interface: u32) -> Option<NextHop> {
    Some(NextHop::Forward { interface, gateway: leg(interface).gateway })
}

#[test]
fn the_lowest_metric_decides_and_the_next_one_takes_over() {
    let mut follower = follower(8, 8, 8, 2);
    follower.set(route("10.0.0.0/8", 100, by(1)));
    follower.set(route("10.0.0.0/8", 50, by(2)));
    assert_eq!(to(&follower, "10.1.1.1", 0), forward(2));
    assert!(!follower.remove(&route("10.0.0.0/8", 50, by(3))), "another way has the rank");
    assert!(follower.remove(&route("10.0.0.0/8", 50, by(2))));
    assert_eq!(to(&follower, "10.1.1.1", 0), forward(1));
    follower.set(Route { rank: Rank { table: 0, is_for_all: true, metric: 0 }, ..route("10.0.0.0/8", 0, Way::Kernel) });
    assert_eq!(to(&follower, "10.1.1.1", 0), Some(NextHop::Local), "the table of this machine comes first");
    follower.begin();
    follower.list(route("10.0.0.0/8", 100, by(4)));
    follower.end();
    assert_eq!((to(&follower, "10.1.1.1", 0), follower.prefixes()), (forward(4), 1), "what was not listed is gone");
    follower.begin();
    follower.end();
    assert_eq!((to(&follower, "10.1.1.1", 0), follower.prefixes()), (None, 0));
}

#[test]
fn an_object_and_a_group_of_objects_reroute_all_prefixes() {
    let mut follower = follower(8, 8, 16, 2);
    let object = |interface| Some(Object::Way(by(interface)));
    follower.set_object(1, object(1));
    follower.set_object(2, object(2));
    follower.set_object(9, Some(Object::Group(vec![(1, 1), (2, 3)])));
    follower.set(route("10.0.0.0/8", 0, Way::Object(1)));
    follower.set(route("fd00::/16", 0, Way::Object(9)));
    assert_eq!(to(&follower, "10.0.0.1", 0), forward(1));
    let shares = |follower: &Follower<Vec<u32>>| {
        let all = (0..256u32).map(|slot| to(follower, "fd00::1", slot << 24));
        let all: Vec<_> = all.collect();
        // In quarters of all slots.
        [1, 2, 3].map(|interface| (all.iter().filter(|hop| **hop == forward(interface)).count() + 32) / 64)
    };
    assert_eq!(shares(&follower), [1, 3, 0]);
    follower.set_object(1, object(3));
    assert_eq!((to(&follower, "10.0.0.1", 0), shares(&follower)), (forward(3), [0, 3, 1]));
    follower.set_failed(leg(2), true);
    assert_eq!(shares(&follower), [0, 0, 4], "a neighbour that does not answer is left out");
    follower.set_failed(leg(3), true);
    assert_eq!(shares(&follower), [0, 3, 1], "if none answers, the kernel asks for all");
    follower.set_failed(leg(2), false);
    follower.set_up(2, false);
    follower.set_up(3, false);
    assert_eq!(
        (to(&follower, "fd00::1", 0), to(&follower, "10.0.0.1", 0)),
        (Some(NextHop::Local), Some(NextHop::Local))
    );
    follower.set_up(3, true);
    assert_eq!((to(&follower, "10.0.0.1", 0), shares(&follower)), (forward(3), [0, 0, 4]));
    follower.set_object(1, None);
    assert_eq!(to(&follower, "10.0.0.1", 0), Some(NextHop::Local), "an object that is gone is the kernel's");
}

#[test]
fn a_route_without_room_and_the_one_around_it_go_to_the_kernel() {
    let mut follower = follower(1, 2, 8, 1);
    for (prefix, interface) in [("10.0.0.0/8", 1), ("10.1.1.128/25", 2), ("10.2.2.128/25", 3)] {
        follower.set(route(prefix, 0, by(interface)));
    }
    follower.settle();
    assert_eq!((follower.full().prefixes, follower.full().covering), (1, 1));
    assert_eq!(to(&follower, "10.1.1.129", 0), forward(2));
    assert_eq!(to(&follower, "10.2.2.129", 0), Some(NextHop::Local), "never by the shorter prefix");
    // A nearer prefix takes the place, and the former one is free again.
    follower.set(route("10.2.0.0/16", 0, by(4)));
    follower.settle();
    assert_eq!((to(&follower, "10.2.2.129", 0), to(&follower, "10.9.9.9", 0)), (Some(NextHop::Local), forward(1)));
    // Room is there again.
    let _ = follower.remove(&route("10.1.1.128/25", 0, by(2)));
    follower.reuse();
    follower.settle();
    assert!(follower.full().is_none());
    assert_eq!((to(&follower, "10.2.2.129", 0), to(&follower, "10.2.2.1", 0)), (forward(3), forward(4)));
    // IPv6: the second of two prefixes that part finds no node, and the first can still change.
    follower.set(route("2001:db8::/32", 0, by(1)));
    follower.set(route("2001:db8:1::/48", 0, by(2)));
    follower.settle();
    assert_eq!(to(&follower, "2001:db8:1::1", 0), Some(NextHop::Local));
    follower.set(route("2001:db8::/32", 0, by(3)));
    let _ = follower.remove(&route("2001:db8:1::/48", 0, by(2)));
    follower.settle();
    assert_eq!((to(&follower, "2001:db8::1", 0), follower.full().is_none()), (forward(3), true));
}

#[test]
fn ways_without_a_next_hop_or_a_group_go_to_the_kernel() {
    let mut follower = follower(1, 1, 3, 1);
    for (prefix, interface) in [("10.0.0.0/8", 1), ("11.0.0.0/8", 2), ("12.0.0.0/8", 3)] {
        follower.set(route(prefix, 0, by(interface)));
    }
    assert_eq!((to(&follower, "12.0.0.1", 0), follower.full().ways), (Some(NextHop::Local), 1));
    let _ = follower.remove(&route("11.0.0.0/8", 0, by(2)));
    assert_eq!(to(&follower, "12.0.0.1", 0), Some(NextHop::Local), "a reader may still have the number of another way");
    follower.reuse();
    assert_eq!((to(&follower, "12.0.0.1", 0), follower.full().ways), (forward(3), 0), "the number is used again");
    follower.set(route("13.0.0.0/8", 0, Way::Legs(vec![(leg(1), 1), (leg(2), 1)])));
    assert_eq!((to(&follower, "13.0.0.1", 0), follower.full().ways), (Some(NextHop::Local), 1));
}

#[test]
fn routes_beyond_the_bound_are_counted_and_listed_when_room_is_there() {
    let mut follower = follower(8, 8, 8, 2).with_room(2);
    follower.set(route("10.0.0.0/8", 100, by(1)));
    follower.set(route("10.0.0.0/8", 50, by(2)));
    // What is kept can change, and nothing new finds room.
    follower.set(route("10.0.0.0/8", 50, by(3)));
    follower.set(route("10.1.0.0/16", 0, by(1)));
    follower.set(route("10.0.0.0/8", 10, by(1)));
    assert_eq!((follower.full().routes, follower.prefixes(), follower.has_room_again()), (2, 1, false));
    assert_eq!(to(&follower, "10.1.1.1", 0), forward(3));
    assert!(follower.remove(&route("10.0.0.0/8", 100, by(1))));
    assert!(follower.has_room_again(), "one has room, and a listing says which are left out");
    follower.begin();
    follower.list(route("10.0.0.0/8", 50, by(3)));
    follower.list(route("10.1.0.0/16", 0, by(1)));
    follower.end();
    assert!(follower.full().is_none() && !follower.has_room_again());
    assert_eq!((to(&follower, "10.1.1.1", 0), follower.prefixes()), (forward(1), 2));
}

#[test]
fn the_last_route_that_is_left_out_is_listed_as_soon_as_one_has_room() {
    let mut follower = follower(64, 8, 8, 2).with_room(32);
    (0..33).for_each(|number| follower.set(route(&format!("10.{number}.0.0/16"), 0, by(1))));
    assert_eq!((follower.full().routes, follower.has_room_again()), (1, false));
    assert!(follower.remove(&route("10.0.0.0/16", 0, by(1))) && follower.has_room_again());
}

#[test]
fn an_interface_that_a_listing_does_not_have_is_forgotten() {
    let mut follower = follower(8, 8, 8, 2);
    follower.set_up(1, false);
    follower.set(route("10.0.0.0/8", 0, by(1)));
    assert_eq!(to(&follower, "10.0.0.1", 0), Some(NextHop::Local));
    follower.begin();
    follower.end();
    // The kernel gives the number to another interface.
    follower.set(route("10.0.0.0/8", 0, by(1)));
    assert_eq!(to(&follower, "10.0.0.1", 0), forward(1));
}

#[test]
fn of_several_routes_with_one_rank_a_listing_says_which_decides() {
    let mut follower = follower(8, 8, 8, 2);
    assert!(follower.add(route("10.0.0.0/8", 0, by(1)), false));
    assert!(follower.add(route("10.0.0.0/8", 0, by(2)), true), "one that replaces the other is alone");
    assert!(!follower.add(route("10.0.0.0/8", 0, by(3)), false), "one that was put before the other may decide");
    assert!(!follower.add(route("10.0.0.0/8", 0, by(1)), true), "which of both was replaced is not said");
    assert!(!follower.remove(&route("10.0.0.0/8", 0, by(2))), "the other one is still there");
    let list = |follower: &mut Follower<Vec<u32>>, ways: &[u32]| {
        follower.begin();
        ways.iter().for_each(|way| follower.list(route("10.0.0.0/8", 0, by(*way))));
        follower.end();
    };
    list(&mut follower, &[3, 2]);
    assert_eq!(to(&follower, "10.0.0.1", 0), forward(3));
    assert!(!follower.remove(&route("10.0.0.0/8", 0, by(3))));
    list(&mut follower, &[2]);
    assert!(follower.remove(&route("10.0.0.0/8", 0, by(2))), "one alone needs no listing");
    assert_eq!((to(&follower, "10.0.0.1", 0), follower.prefixes()), (None, 0));
    // Two routes that lead one way: the one that goes leaves the other.
    assert!(follower.add(route("10.0.0.0/8", 0, by(1)), false));
    assert!(follower.add(route("10.0.0.0/8", 0, by(1)), false));
    assert!(!follower.remove(&route("10.0.0.0/8", 0, by(1))));
    assert_eq!(to(&follower, "10.0.0.1", 0), forward(1));
}

#[test]
fn a_route_for_some_packets_leaves_all_packets_of_the_prefix_to_the_kernel() {
    let mut follower = follower(8, 8, 8, 2);
    let rank = Rank { table: 1, is_for_all: false, metric: 100 };
    let of_some = Route { rank, ..route("10.0.0.0/8", 100, Way::Kernel) };
    assert!(follower.add(of_some.clone(), false));
    assert!(follower.add(route("10.0.0.0/8", 0, by(1)), false));
    assert_eq!(to(&follower, "10.0.0.1", 0), Some(NextHop::Local), "whatever the metric");
    assert!(follower.remove(&of_some));
    assert_eq!(to(&follower, "10.0.0.1", 0), forward(1));
}
