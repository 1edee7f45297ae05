//! The fate of a packet between two nodes: where and when it arrives, or how it is lost. Pure: time is an argument, and
//! chance comes from a seed.
//!
//! A packet passes its sender's access link, the link between the two regions, and its receiver's access link. Each has
//! a delay, a loss rate and a bandwidth. The bandwidth is shared by all packets in one direction, with a queue of
//! [`MAX_QUEUE`].

use std::{
    collections::{BTreeMap, HashMap},
    net::Ipv4Addr,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::topology::{Link, Topology};

/// A packet that would queue longer than this is lost.
pub const MAX_QUEUE: Duration = Duration::from_millis(200);
/// How many cuts there may be.
pub const MAX_CUTS: usize = 256;

/// A node as a source and destination of packets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// The number of its node.
    pub number: usize,
    /// The node.
    pub node: String,
    /// Its region, as an index of the topology.
    pub region: usize,
    /// Its address.
    pub address: Ipv4Addr,
}

/// One side of a cut, or what is slowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// A node, by its number.
    Node(usize),
    /// All nodes of a region.
    Region(usize),
}

/// A cut, through which no packet passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cut {
    /// One side.
    pub one: Part,
    /// The other side; `None` for everything else.
    pub other: Option<Part>,
}

/// How a packet was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// It is no IPv4 packet.
    NotIpv4,
    /// No node has its address.
    NoSuchAddress,
    /// A cut is between.
    Cut,
    /// By the loss rate.
    Chance,
    /// A queue is full.
    Queue,
}

/// The fate of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It arrives.
    Arrives {
        /// The number of the port.
        at: usize,
        /// When; not in the past.
        due: Duration,
    },
    /// It is lost.
    Lost(Loss),
}

/// The counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Packets that have arrived, or will.
    pub carried: u64,
    /// Their bytes.
    pub carried_bytes: u64,
    /// Lost to cuts.
    pub cut: u64,
    /// Lost by chance.
    pub chance: u64,
    /// Lost to full queues.
    pub queue: u64,
    /// To unknown addresses, or not of IPv4.
    pub astray: u64,
}

/// A bottleneck in one direction.
type Bottleneck = (Part, Part);

/// The wires of a laboratory.
#[derive(Debug)]
pub struct Wires {
    ports: Vec<Port>,
    by_address: HashMap<Ipv4Addr, usize>,
    /// The other end of each port and the link to it, where ports are the ends of links.
    ends: Vec<(usize, Link)>,
    topology: Topology,
    cuts: Vec<Cut>,
    slowed: BTreeMap<Part, Link>,
    /// Until when each bottleneck is busy.
    busy_until: HashMap<Bottleneck, Duration>,
    chance: u64,
    counts: Counts,
}

impl Wires {
    /// Wires between these ports. The same seed loses the same packets of the same sequence.
    #[must_use]
    pub fn new(topology: Topology, ports: Vec<Port>, seed: u64) -> Self {
        let by_address = ports.iter().enumerate().map(|(number, port)| (port.address, number)).collect();
        Self {
            ports,
            by_address,
            ends: Vec::new(),
            topology,
            cuts: Vec::new(),
            slowed: BTreeMap::new(),
            busy_until: HashMap::new(),
            // xorshift never leaves zero.
            chance: seed | 1,
            counts: Counts::default(),
        }
    }

    /// Wires whose ports are the ends of links. What enters a port comes out at its other end, whatever its address.
    #[must_use]
    pub fn of_links(topology: Topology, ports: Vec<Port>, ends: Vec<(usize, Link)>, seed: u64) -> Self {
        Self { ends, ..Self::new(topology, ports, seed) }
    }

    /// The counters so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The present cuts, and what is slowed.
    #[must_use]
    pub fn faults(&self) -> (&[Cut], &BTreeMap<Part, Link>) {
        (&self.cuts, &self.slowed)
    }

    /// Adds a cut. Returns `false` if there are [`MAX_CUTS`] already.
    pub fn cut(&mut self, cut: Cut) -> bool {
        if self.cuts.contains(&cut) {
            return true;
        }
        let has_place = self.cuts.len() < MAX_CUTS;
        if has_place {
            self.cuts.push(cut);
        }
        has_place
    }

    /// Slows the packets of a node, or those across the border of a region.
    pub fn slow(&mut self, part: Part, link: Link) {
        self.slowed.insert(part, link);
    }

    /// Removes cuts and slow links that name this part; all of them for `None`.
    pub fn heal(&mut self, part: Option<Part>) {
        match part {
            None => {
                self.cuts.clear();
                self.slowed.clear();
            }
            Some(part) => {
                self.cuts.retain(|cut| cut.one != part && cut.other != Some(part));
                self.slowed.remove(&part);
            }
        }
    }

    /// The fate of a packet that this port sends now.
    pub fn carry(&mut self, now: Duration, from: usize, packet: &[u8]) -> Fate {
        let fate = self.fate(now, from, packet);
        let counts = &mut self.counts;
        match fate {
            Fate::Arrives { .. } => {
                counts.carried += 1;
                counts.carried_bytes += packet.len() as u64;
            }
            Fate::Lost(Loss::Cut) => counts.cut += 1,
            Fate::Lost(Loss::Chance) => counts.chance += 1,
            Fate::Lost(Loss::Queue) => counts.queue += 1,
            Fate::Lost(Loss::NotIpv4 | Loss::NoSuchAddress) => counts.astray += 1,
        }
        fate
    }

    fn fate(&mut self, now: Duration, from: usize, packet: &[u8]) -> Fate {
        let end = self.ends.get(from).copied();
        let at = match end {
            Some((at, _)) => at,
            None => {
                let Some(destination) = destination(packet) else { return Fate::Lost(Loss::NotIpv4) };
                let Some(&at) = self.by_address.get(&destination) else { return Fate::Lost(Loss::NoSuchAddress) };
                at
            }
        };
        let (here, there) = (self.ports[from].region, self.ports[at].region);
        if self.cuts.iter().any(|cut| self.parts(*cut, from, at)) {
            return Fate::Lost(Loss::Cut);
        }
        let mut ways = Vec::with_capacity(6);
        let (one, other) = (Part::Node(self.ports[from].number), Part::Node(self.ports[at].number));
        ways.extend(self.slowed.get(&one).map(|link| ((one, Part::Region(here)), *link)));
        ways.extend(end.map(|(_, link)| ((one, other), link)));
        if here != there {
            let border = (Part::Region(here), Part::Region(there));
            ways.extend(self.slowed.get(&border.0).map(|link| ((border.0, border.0), *link)));
            if end.is_none() {
                ways.push((border, self.topology.link(here, there)));
            }
            // Both directions across a region's border are one wire.
            ways.extend(self.slowed.get(&border.1).map(|link| ((border.1, Part::Node(usize::MAX)), *link)));
        }
        ways.extend(self.slowed.get(&other).map(|link| ((Part::Region(there), other), *link)));
        let mut due = now;
        for (bottleneck, link) in ways {
            if self.is_lost(link.loss_percent) {
                return Fate::Lost(Loss::Chance);
            }
            if let Some(rate) = link.rate_bits {
                let free_at = self.busy_until.get(&bottleneck).copied().unwrap_or_default().max(due);
                if free_at - due > MAX_QUEUE {
                    return Fate::Lost(Loss::Queue);
                }
                due = free_at + Duration::from_secs_f64(packet.len() as f64 * 8.0 / rate as f64);
                self.busy_until.insert(bottleneck, due);
            }
            due += link.delay;
        }
        Fate::Arrives { at, due }
    }

    /// Whether the cut is between the two nodes.
    fn parts(&self, cut: Cut, a: usize, b: usize) -> bool {
        let within = |part: Part, port: usize| match part {
            Part::Node(node) => self.ports[port].number == node,
            Part::Region(region) => self.ports[port].region == region,
        };
        let (one, other) = (cut.one, cut.other);
        match other {
            None => within(one, a) != within(one, b),
            Some(other) => (within(one, a) && within(other, b)) || (within(one, b) && within(other, a)),
        }
    }

    fn is_lost(&mut self, percent: f64) -> bool {
        if percent <= 0.0 {
            return false;
        }
        // xorshift64
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        (self.chance >> 11) as f64 / (1_u64 << 53) as f64 * 100.0 < percent
    }
}

/// The destination of an IPv4 packet (RFC 791 section 3.1).
fn destination(packet: &[u8]) -> Option<Ipv4Addr> {
    let bytes: [u8; 4] = packet.get(16..20)?.try_into().ok()?;
    (packet[0] >> 4 == 4 && packet.len() >= 20).then(|| Ipv4Addr::from(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::TopologyOptions;

    const EU_1: usize = 0;
    const EU_2: usize = 1;
    const US_1: usize = 2;
    const AP_1: usize = 3;
    const ALL: [usize; 4] = [EU_1, EU_2, US_1, AP_1];

    fn wires(options: &TopologyOptions) -> Wires {
        let nodes = [("eu-1", 0, 11), ("eu-2", 0, 12), ("us-1", 1, 11), ("ap-1", 2, 11)];
        let ports = nodes.iter().enumerate().map(|(number, (node, region, last))| Port {
            number,
            node: (*node).to_owned(),
            region: *region,
            address: Ipv4Addr::new(10, 77, u8::try_from(*region).unwrap() + 1, *last),
        });
        let ports = ports.collect();
        Wires::new(Topology::new(options).unwrap(), ports, 7)
    }

    fn packet(wires: &Wires, to: usize) -> Vec<u8> {
        let mut packet = vec![0; 1_250];
        packet[0] = 0x45;
        packet[16..20].copy_from_slice(&wires.ports[to].address.octets());
        packet
    }

    fn send(wires: &mut Wires, now: Duration, from: usize, to: usize) -> Fate {
        let packet = packet(wires, to);
        wires.carry(now, from, &packet)
    }

    const fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn packets_arrive_after_the_delay_of_their_link() {
        let mut wires = wires(&TopologyOptions::default());
        let now = ms(1_000);
        assert_eq!(send(&mut wires, now, EU_1, EU_2), Fate::Arrives { at: EU_2, due: now });
        assert_eq!(send(&mut wires, now, EU_1, US_1), Fate::Arrives { at: US_1, due: now + ms(40) });
        assert_eq!(send(&mut wires, now, AP_1, EU_2), Fate::Arrives { at: EU_2, due: now + ms(80) });
        assert_eq!(wires.counts(), Counts { carried: 3, carried_bytes: 3_750, ..Counts::default() });
    }

    #[test]
    fn packets_without_a_receiver_are_dropped() {
        let mut wires = wires(&TopologyOptions::default());
        let mut unknown = packet(&wires, EU_1);
        unknown[19] = 99;
        assert_eq!(wires.carry(ms(0), EU_1, &unknown), Fate::Lost(Loss::NoSuchAddress));
        let mut six = packet(&wires, US_1);
        six[0] = 0x60;
        for junk in [&six[..], &[], &[0x45; 19]] {
            assert_eq!(wires.carry(ms(0), EU_1, junk), Fate::Lost(Loss::NotIpv4));
        }
        assert_eq!(wires.counts().astray, 4);
    }

    type Parted<'a> = &'a dyn Fn(usize, usize) -> bool;

    /// The pairs of nodes that reach each other.
    fn reach(wires: &mut Wires) -> Vec<(usize, usize)> {
        let pairs = ALL.iter().flat_map(|a| ALL.iter().map(|b| (*a, *b))).filter(|(a, b)| a != b);
        pairs.filter(|(a, b)| matches!(send(wires, ms(0), *a, *b), Fate::Arrives { .. })).collect()
    }

    #[test]
    fn a_cut_parts_what_it_names_in_both_directions_and_nothing_else() {
        let mut wires = wires(&TopologyOptions::default());
        let all = reach(&mut wires);
        let without = |parted: Parted<'_>| all.iter().copied().filter(|(a, b)| !parted(*a, *b)).collect::<Vec<_>>();
        let cases: [(Cut, Parted<'_>); 4] = [
            (Cut { one: Part::Node(EU_1), other: None }, &|a, b| a == EU_1 || b == EU_1),
            (Cut { one: Part::Region(0), other: None }, &|a, b| (a <= EU_2) != (b <= EU_2)),
            (Cut { one: Part::Region(0), other: Some(Part::Region(1)) }, &|a, b| {
                (a <= EU_2 && b == US_1) || (b <= EU_2 && a == US_1)
            }),
            (Cut { one: Part::Node(EU_1), other: Some(Part::Node(EU_2)) }, &|a, b| a <= EU_2 && b <= EU_2),
        ];
        for (cut, parted) in cases {
            assert!(wires.cut(cut) && wires.cut(cut));
            assert_eq!(reach(&mut wires), without(parted), "{cut:?}");
            wires.heal(Some(cut.one));
            assert_eq!(reach(&mut wires), all, "{cut:?} is healed");
        }
        wires.cut(Cut { one: Part::Node(EU_1), other: Some(Part::Node(US_1)) });
        wires.cut(Cut { one: Part::Region(2), other: None });
        wires.heal(Some(Part::Node(US_1)));
        assert_eq!(reach(&mut wires), without(&|a, b| (a == AP_1) != (b == AP_1)), "either name heals, others stay");
        wires.heal(None);
        assert_eq!(reach(&mut wires), all);
        for node in 0..MAX_CUTS {
            assert!(wires.cut(Cut { one: Part::Node(node), other: None }));
        }
        assert!(!wires.cut(Cut { one: Part::Region(0), other: None }), "there is a bound");
    }

    #[test]
    fn a_rate_makes_packets_wait_for_each_other_until_the_queue_is_full() {
        let options = TopologyOptions { delay: Some(ms(10)), rate_bits: Some(1_000_000), ..TopologyOptions::default() };
        let mut wires = wires(&options);
        // 1,250 bytes are 10 ms at a million bits a second.
        let due = |fate: Fate| if let Fate::Arrives { due, .. } = fate { Some(due) } else { None };
        let dues: Vec<_> = (0..22).map(|_| due(send(&mut wires, ms(0), EU_1, US_1))).collect();
        assert_eq!(dues[0], Some(ms(20)));
        assert_eq!(dues[1], Some(ms(30)));
        assert_eq!(dues[20], Some(ms(220)));
        assert_eq!(dues[21], None, "200 ms of queue are full");
        assert_eq!(due(send(&mut wires, ms(0), US_1, EU_1)), Some(ms(20)), "the other way is another bottleneck");
        assert_eq!(due(send(&mut wires, ms(0), EU_1, EU_2)), Some(ms(0)), "and none is within a region");
        assert_eq!(wires.counts().queue, 1);
    }

    #[test]
    fn what_enters_a_link_comes_out_at_its_other_end_whatever_its_family() {
        let port = |number: usize, region: usize| Port {
            number,
            node: number.to_string(),
            region,
            address: Ipv4Addr::UNSPECIFIED,
        };
        // Node 5 has two links: to node 6, and to node 7 in another region.
        let ports = vec![port(5, 0), port(6, 0), port(5, 0), port(7, 1)];
        let link = |milliseconds| Link { delay: ms(milliseconds), ..Link::default() };
        let ends = vec![(1, link(3)), (0, link(3)), (3, link(40)), (2, link(40))];
        let topology = Topology::new(&TopologyOptions::default()).unwrap();
        let mut wires = Wires::of_links(topology, ports, ends, 7);
        let six = [0x60; 40];
        assert_eq!(wires.carry(ms(1), 0, &six), Fate::Arrives { at: 1, due: ms(4) });
        assert_eq!(wires.carry(ms(1), 3, &six), Fate::Arrives { at: 2, due: ms(41) }, "only the link has a delay");
        wires.slow(Part::Node(7), link(5));
        assert_eq!(wires.carry(ms(1), 2, &[0x45; 20]), Fate::Arrives { at: 3, due: ms(46) });
        wires.cut(Cut { one: Part::Node(5), other: Some(Part::Node(6)) });
        assert_eq!(wires.carry(ms(1), 1, &six), Fate::Lost(Loss::Cut));
        assert_eq!(wires.carry(ms(1), 2, &six), Fate::Arrives { at: 3, due: ms(46) });
    }

    #[test]
    fn chance_loses_about_what_it_should_and_the_same_again() {
        let options = TopologyOptions { loss_percent: 10.0, ..TopologyOptions::default() };
        let lost = |wires: &mut Wires| -> Vec<bool> {
            (0..10_000).map(|_| send(wires, ms(0), EU_1, US_1) == Fate::Lost(Loss::Chance)).collect()
        };
        let (mut one, mut two) = (wires(&options), wires(&options));
        let first = lost(&mut one);
        let count = first.iter().filter(|lost| **lost).count();
        assert!((900..=1_100).contains(&count), "{count}");
        assert_eq!(first, lost(&mut two));
        let mut all = wires(&TopologyOptions { loss_percent: 100.0, ..TopologyOptions::default() });
        assert!(lost(&mut all).iter().all(|lost| *lost));
    }

    #[test]
    fn slowness_of_a_node_meets_all_its_packets_and_that_of_a_region_those_that_cross_its_border() {
        let mut wires = wires(&TopologyOptions { delay: Some(ms(1)), ..TopologyOptions::default() });
        let due = |wires: &mut Wires, from, to| match send(wires, ms(0), from, to) {
            Fate::Arrives { due, .. } => due,
            lost @ Fate::Lost(_) => panic!("{lost:?}"),
        };
        wires.slow(Part::Node(EU_1), Link { delay: ms(100), ..Link::default() });
        assert_eq!(due(&mut wires, EU_1, EU_2), ms(100));
        assert_eq!(due(&mut wires, US_1, EU_1), ms(101));
        assert_eq!(due(&mut wires, EU_2, US_1), ms(1));
        wires.heal(Some(Part::Node(EU_1)));
        wires.slow(Part::Region(0), Link { delay: ms(50), ..Link::default() });
        assert_eq!(due(&mut wires, EU_1, EU_2), ms(0));
        assert_eq!(due(&mut wires, EU_1, US_1), ms(51));
        assert_eq!(due(&mut wires, AP_1, EU_2), ms(51));
        assert_eq!(due(&mut wires, AP_1, US_1), ms(1));
        assert_eq!(wires.faults().1.len(), 1);
        wires.heal(None);
        assert_eq!(due(&mut wires, EU_1, US_1), ms(1));
    }
}
