//! No two machines open connections from one slice, whatever happens in whatever order.
//!
//! Machines see the published leases late, have slow clocks, lose the bus, stop and start again. Control restarts, and
//! loses the bus too.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    time::{Duration, Instant},
};

use proptest::prelude::*;
use sallyport_model::EdgeId;
use sallyport_ports::{Holder, HolderRecord, Lease, LeaseTimes, Leases, Slice, SliceUse};

const TIMES: LeaseTimes = LeaseTimes { lasts: Duration::from_secs(20), grace: Duration::from_secs(5) };
const MACHINES: u8 = 4;
const SLICES: u8 = 3;
/// The longest delay of what is published and of beats, shorter than the grace.
const MAX_DELAY_SECONDS: u64 = 4;

#[derive(Debug, Clone)]
enum Event {
    Wait(u64),
    Grant {
        slice: u8,
        machine: u8,
    },
    Move {
        slice: u8,
        to: u8,
    },
    Release {
        slice: u8,
    },
    /// A machine loses or finds the bus.
    Cut {
        machine: u8,
        is_cut: bool,
    },
    /// A machine stops and starts, with the record on its disk or without.
    Restart {
        machine: u8,
        keeps: bool,
    },
    /// A machine begins or ends its flows.
    Flows {
        machine: u8,
        has_flows: bool,
    },
    ControlCut(bool),
    ControlRestart,
}

fn event() -> impl Strategy<Value = Event> {
    let (slice, machine) = (1..=SLICES, 0..MACHINES);
    prop_oneof![
        8 => (1..12_u64).prop_map(Event::Wait),
        3 => (slice.clone(), machine.clone()).prop_map(|(slice, machine)| Event::Grant { slice, machine }),
        3 => (slice.clone(), machine.clone()).prop_map(|(slice, to)| Event::Move { slice, to }),
        1 => slice.prop_map(|slice| Event::Release { slice }),
        3 => (machine.clone(), any::<bool>()).prop_map(|(machine, is_cut)| Event::Cut { machine, is_cut }),
        2 => (machine.clone(), any::<bool>()).prop_map(|(machine, keeps)| Event::Restart { machine, keeps }),
        2 => (machine, any::<bool>()).prop_map(|(machine, has_flows)| Event::Flows { machine, has_flows }),
        1 => any::<bool>().prop_map(Event::ControlCut),
        1 => Just(Event::ControlRestart),
    ]
}

struct Machine {
    id: EdgeId,
    holder: Holder,
    is_cut: bool,
    has_flows: bool,
    /// The published leases as this machine knows them.
    view: Vec<Lease>,
    delay: u64,
    /// What its clock shows: it is slower than control's by a part of the grace.
    clock: Instant,
    record: Option<(HolderRecord, Instant)>,
}

/// What the bus delivers later.
type Published = Vec<(Instant, Vec<Lease>)>;

struct World {
    now: Instant,
    leases: Leases,
    is_deaf: bool,
    published: Published,
    machines: Vec<Machine>,
    beats: Vec<(Instant, usize, Vec<SliceUse>)>,
    owners: usize,
}

fn address() -> IpAddr {
    "2001:db8::7".parse().unwrap()
}

impl World {
    fn new(delays: &[u64]) -> Self {
        let now = Instant::now();
        let machine = |number: u8| {
            let id = EdgeId::from_random([number + 1; 16]);
            Machine {
                id,
                holder: Holder::new(id, None),
                is_cut: false,
                has_flows: false,
                view: Vec::new(),
                delay: delays[usize::from(number)],
                clock: now,
                record: None,
            }
        };
        Self {
            now,
            leases: Leases::restore(Vec::new(), TIMES, now),
            is_deaf: false,
            published: Vec::new(),
            machines: (0..MACHINES).map(machine).collect(),
            beats: Vec::new(),
            owners: 0,
        }
    }

    fn publish(&mut self) {
        self.published.push((self.now, self.leases.all().cloned().collect()));
    }

    fn apply(&mut self, event: &Event) {
        let key = |slice: u8| (address(), Slice::try_from(slice).unwrap());
        let within = Duration::from_secs(6);
        match *event {
            Event::Wait(seconds) => (0..seconds).for_each(|_| self.second()),
            Event::Grant { slice, machine } => {
                let id = self.machines[usize::from(machine)].id;
                let _ = self.leases.grant(address(), Some(key(slice).1), id, self.now);
            }
            Event::Move { slice, to } => {
                let id = self.machines[usize::from(to)].id;
                let _ = self.leases.move_to(key(slice), Some(id), within, self.now);
            }
            Event::Release { slice } => {
                let _ = self.leases.move_to(key(slice), None, within, self.now);
            }
            Event::Cut { machine, is_cut } => self.machines[usize::from(machine)].is_cut = is_cut,
            Event::Restart { machine, keeps } => {
                let one = &mut self.machines[usize::from(machine)];
                let is_good = |at: Instant| one.clock.saturating_duration_since(at) < TIMES.lasts;
                let record = one.record.clone().filter(|(_, at)| keeps && is_good(*at));
                one.holder = Holder::new(one.id, record);
                one.holder.handle_leases(&one.view);
            }
            Event::Flows { machine, has_flows } => self.machines[usize::from(machine)].has_flows = has_flows,
            Event::ControlCut(is_cut) => self.is_deaf = is_cut,
            Event::ControlRestart => {
                self.leases = Leases::restore(self.leases.all().cloned().collect(), TIMES, self.now);
            }
        }
        self.publish();
        self.check();
    }

    fn second(&mut self) {
        self.now += Duration::from_secs(1);
        let now = self.now;
        for (number, one) in self.machines.iter_mut().enumerate() {
            one.clock += Duration::from_millis(if number % 2 == 0 { 850 } else { 1_000 });
        }
        for (number, one) in self.machines.iter_mut().enumerate().filter(|(_, one)| !one.is_cut) {
            let delay = Duration::from_secs(one.delay);
            // The bus delivers in order, the last state first after a break.
            let seen = self.published.iter().rev().find(|(at, _)| *at + delay <= now);
            if let Some((_, leases)) = seen {
                one.view.clone_from(leases);
                one.holder.handle_leases(leases);
            }
            let uses = one.holder.uses(|_| one.has_flows);
            one.record = one.holder.record();
            one.holder.handle_renewed(one.clock);
            self.beats.push((now + delay, number, uses));
        }
        if self.is_deaf {
            // What came meanwhile is not known; the bus has only the last beat of each machine.
            self.leases.handle_deaf(now);
        } else {
            let due: Vec<_> = self.beats.extract_if(.., |(at, ..)| *at <= now).collect();
            for (_, number, uses) in due {
                self.leases.handle_beat(self.machines[number].id, &uses, now);
            }
            self.leases.handle_timeout(now);
        }
        self.publish();
        self.check();
    }

    fn check(&mut self) {
        let mut owners = BTreeMap::new();
        for one in &mut self.machines {
            for key in one.holder.open(one.clock) {
                self.owners += 1;
                if let Some(other) = owners.insert(key, one.id) {
                    panic!("{:?} and {other:?} open connections from {key:?}", one.id);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn no_slice_has_two_owners(
        delays in prop::collection::vec(0..=MAX_DELAY_SECONDS, usize::from(MACHINES)),
        events in prop::collection::vec(event(), 1..80),
    ) {
        let mut world = World::new(&delays);
        for event in &events {
            world.apply(event);
        }
    }
}

#[test]
fn the_world_hands_slices_out_and_on() {
    let mut world = World::new(&[1, 2, 3, 4]);
    let script = [
        Event::Wait(6),
        Event::Grant { slice: 1, machine: 0 },
        Event::Wait(11),
        Event::Move { slice: 1, to: 1 },
        Event::Wait(11),
        Event::Cut { machine: 1, is_cut: true },
        Event::Wait(11),
        Event::Wait(11),
        Event::Wait(11),
        Event::Grant { slice: 1, machine: 2 },
        Event::Wait(11),
    ];
    script.iter().for_each(|event| world.apply(event));
    let owner = world.leases.get((address(), Slice::try_from(1).unwrap())).unwrap();
    assert_eq!((owner.machine, owner.term), (world.machines[2].id, 3));
    let clock = world.machines[2].clock;
    assert_eq!(world.machines[2].holder.open(clock).len(), 1);
    assert!(world.owners > 20, "{}", world.owners);
}
