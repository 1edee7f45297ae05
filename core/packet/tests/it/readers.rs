//! A program reads the tables while they change: after every single store it finds the old or the new route.

use std::{cell::RefCell, net::IpAddr, rc::Rc};

use ipnet::IpNet;
use proptest::prelude::*;
use sallyport_packet_model::route::{Cells, Fib, Found, Member, NextHop, Storage};

use crate::route::{prefix, probes};

type Array = Rc<RefCell<Vec<u32>>>;
type Log = Rc<RefCell<Vec<(usize, usize, u32)>>>;

/// Writes are recorded.
#[derive(Debug)]
struct Recorded {
    array: usize,
    cells: Vec<u32>,
    log: Log,
}

impl Cells for Recorded {
    fn count(&self) -> usize {
        self.cells.len()
    }
    fn get(&self, index: usize) -> u32 {
        self.cells[index]
    }
    fn set(&mut self, index: usize, value: u32) {
        self.log.borrow_mut().push((self.array, index, value));
        self.cells[index] = value;
    }
}

/// Another hand writes.
#[derive(Debug)]
struct Shared(Array);

impl Cells for Shared {
    fn count(&self) -> usize {
        self.0.borrow().len()
    }
    fn get(&self, index: usize) -> u32 {
        self.0.borrow().as_slice().get(index).copied().unwrap_or(0)
    }
    fn set(&mut self, _index: usize, _value: u32) {
        panic!("a reader does not write");
    }
}

/// A table, and a reader that gets its stores one by one.
struct Pair {
    writer: Fib<Recorded>,
    log: Log,
    reader: Fib<Shared>,
    arrays: Vec<Array>,
}

fn split<C>(storage: Storage<Vec<u32>>, mut make: impl FnMut(usize, Vec<u32>) -> C) -> Storage<C> {
    Storage {
        fib4_first: make(0, storage.fib4_first),
        fib4_second: make(1, storage.fib4_second),
        fib6_first: make(2, storage.fib6_first),
        fib6_nodes: make(3, storage.fib6_nodes),
        next_hops: make(4, storage.next_hops),
        group_slots: make(5, storage.group_slots),
    }
}

fn memory() -> Storage<Vec<u32>> {
    Storage::in_memory(200, 800, 16, 2)
}

impl Pair {
    fn new() -> Self {
        let log = Log::default();
        let writer = split(memory(), |array, cells| Recorded { array, cells, log: log.clone() });
        let mut arrays = Vec::new();
        let reader = split(memory(), |_, cells| {
            let array = Rc::new(RefCell::new(cells));
            arrays.push(array.clone());
            Shared(array)
        });
        Self { writer: Fib::new(writer), log, reader: Fib::new(reader), arrays }
    }

    /// Makes a change, and calls the check after each store with the lookups before, now and after.
    fn change(
        &mut self,
        probes: &[(IpAddr, u32)],
        change: impl FnOnce(&mut Fib<Recorded>),
        mut check: impl FnMut(IpAddr, Option<Found>, Option<Found>, Option<Found>),
    ) {
        let before: Vec<_> = probes.iter().map(|(address, hash)| self.reader.lookup(*address, *hash)).collect();
        change(&mut self.writer);
        let after: Vec<_> = probes.iter().map(|(address, hash)| self.writer.lookup(*address, *hash)).collect();
        for (array, index, value) in self.log.borrow_mut().drain(..) {
            self.arrays[array].borrow_mut()[index] = value;
            for (((address, hash), before), after) in probes.iter().zip(&before).zip(&after) {
                check(*address, *before, self.reader.lookup(*address, *hash), *after);
            }
        }
        for ((address, hash), after) in probes.iter().zip(&after) {
            assert_eq!(self.reader.lookup(*address, *hash), *after, "{address}");
        }
    }
}

fn way(interface: u32) -> NextHop {
    NextHop::Forward { interface, gateway: Some([192, 0, 2, interface as u8].into()) }
}

#[test]
fn a_changing_next_hop_is_the_old_one_the_new_one_or_none() {
    let mut pair = Pair::new();
    let probes = [(IpAddr::from([10, 0, 0, 1]), 0)];
    pair.change(
        &probes,
        |fib| {
            let number = fib.next_hops_mut().create(way(1)).unwrap();
            fib.add("10.0.0.0/24".parse().unwrap(), number).unwrap();
        },
        |_, before, now, after| assert!(now == before || now == after),
    );
    for next_hop in [way(2), NextHop::BlackHole, NextHop::Forward { interface: 3, gateway: None }] {
        pair.change(
            &probes,
            |fib| fib.next_hops_mut().replace(0, next_hop).unwrap(),
            |_, before, now, after| assert!(now == before || now == after || now.is_none(), "{now:?}"),
        );
    }
}

#[test]
fn a_changing_group_has_the_old_or_the_new_member() {
    let mut pair = Pair::new();
    let probes: Vec<_> = (0..256u32).map(|slot| (IpAddr::from([10, 0, 0, 1]), slot << 24)).collect();
    let member = |next_hop, weight| Member { next_hop, weight };
    let members = [vec![member(0, 1), member(1, 1)], vec![member(0, 1), member(2, 3)], vec![member(2, 1)]];
    pair.change(
        &probes,
        |fib| {
            for interface in 0..3 {
                fib.next_hops_mut().create(way(interface)).unwrap();
            }
            fib.next_hops_mut().set_group(0, &members[0]).unwrap();
            let group = fib.next_hops_mut().create(NextHop::Group(0)).unwrap();
            fib.add("10.0.0.0/24".parse().unwrap(), group).unwrap();
        },
        |_, before, now, after| assert!(now == before || now == after),
    );
    for members in &members[1..] {
        pair.change(
            &probes,
            |fib| fib.next_hops_mut().set_group(0, members).unwrap(),
            |_, before, now, after| assert!(now == before || now == after),
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(60) })]

    #[test]
    fn a_changing_table_has_the_old_or_the_new_route(
        changes in prop::collection::vec((prefix(), 0u32..4, prop::bool::weighted(0.65)), 1..30)
    ) {
        let mut pair = Pair::new();
        // Short prefixes need many stores, which are alike.
        let is_long = |prefix: &IpNet| prefix.prefix_len() >= if prefix.addr().is_ipv4() { 20 } else { 13 };
        let changes: Vec<_> = changes.into_iter().filter(|(prefix, ..)| is_long(prefix)).collect();
        let prefixes: Vec<IpNet> = changes.iter().map(|(prefix, ..)| *prefix).collect();
        let probes: Vec<_> = probes(&prefixes).into_iter().map(|address| (address, 0)).collect();
        for interface in 0..4 {
            pair.change(&[], |fib| { fib.next_hops_mut().create(way(interface)).unwrap(); }, |_, _, _, _| {});
        }
        for (prefix, next_hop, is_add) in changes {
            pair.change(
                &probes,
                |fib| if is_add {
                    fib.add(prefix, next_hop).unwrap();
                } else {
                    let _unknown = fib.withdraw(prefix);
                },
                |address, before, now, after| {
                    assert!(now == before || now == after, "{address} while {prefix} changes: {now:?}");
                },
            );
        }
    }
}
