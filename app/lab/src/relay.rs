//! The program that carries packets between the TUN devices of all nodes. [`crate::wires`] decides about each packet.

use std::{
    collections::BinaryHeap,
    fs::File,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::{
        fd::AsFd as _,
        unix::net::{UnixListener, UnixStream},
    },
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde::{Deserialize, Serialize};
use tun_rs::{DeviceBuilder, SyncDevice};

use crate::{
    error::LabError,
    kernel,
    plan::{Paths, Plan},
    state,
    topology::{LabName, Link},
    wires::{Counts, Cut, Fate, Part, Wires},
};

/// How many packets may be under way.
const MAX_WAITING_PACKETS: usize = 262_144;
const MTU_BYTES: u16 = 1_500;
/// More than any packet of a device with this MTU.
const MAX_PACKET_BYTES: usize = 65_536;
/// The longest order, in bytes.
const MAX_ORDER_BYTES: u64 = 4_096;
/// How long reading an order and writing its answer may take.
const ORDER_TIME: Duration = Duration::from_secs(5);

/// An order to the wires.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Order {
    /// Cut between two parts.
    Cut(Cut),
    /// Slow a part.
    Slow(Part, Link),
    /// Remove the faults of this part, or all.
    Heal(Option<Part>),
    /// Report the state.
    Show,
}

/// The state of the wires after an order.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Wiring {
    /// Why the order was refused, if it was.
    pub refused: Option<String>,
    /// The counters.
    pub counts: Counts,
    /// The present cuts.
    pub cuts: Vec<Cut>,
    /// What is slowed.
    pub slowed: Vec<(Part, Link)>,
}

/// Sends an order to the wires of a laboratory; it is in effect when this returns.
pub(crate) fn order(places: &Paths, order: &Order) -> Result<Wiring, LabError> {
    let wrong = |error: &dyn std::fmt::Display| LabError::Wires(error.to_string());
    let mut stream = UnixStream::connect(places.orders()).map_err(|error| wrong(&error))?;
    stream.set_read_timeout(Some(ORDER_TIME)).map_err(|error| wrong(&error))?;
    let mut line = serde_json::to_string(order).map_err(|error| wrong(&error))?;
    line.push('\n');
    stream.write_all(line.as_bytes()).map_err(|error| wrong(&error))?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(|error| wrong(&error))?;
    let wiring: Wiring = serde_json::from_str(&answer).map_err(|error| wrong(&error))?;
    match wiring.refused {
        Some(why) => Err(LabError::Wires(why)),
        None => Ok(wiring),
    }
}

/// A packet under way.
#[derive(Debug, PartialEq, Eq)]
struct Waiting {
    due: Duration,
    /// Its number in the order of arrival.
    number: u64,
    at: usize,
    packet: Vec<u8>,
}

impl Ord for Waiting {
    /// The heap yields the greatest first, which is the earliest due.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.due, other.number).cmp(&(self.due, self.number))
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

#[derive(Default)]
struct Queue {
    waiting: BinaryHeap<Waiting>,
    number: u64,
}

struct Relay {
    began: Instant,
    wires: Mutex<Wires>,
    devices: Vec<SyncDevice>,
    queue: Mutex<Queue>,
    wake: Condvar,
}

/// No lock holder panics, and a lost packet would not matter.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

/// Carries packets until it is killed. Prints `ready` when the devices exist.
///
/// # Errors
/// Why it could not start.
pub fn run(parent: &Path, name: &LabName) -> Result<(), LabError> {
    let places = state::places(parent, name);
    let state = state::read(&places)?.ok_or_else(|| LabError::None(name.clone()))?;
    let plan = Plan::new(state.topology);
    let ports = plan.devices();
    let devices = ports.iter().map(|(space, name)| device(space, name)).collect::<Result<Vec<_>, _>>()?;
    let path = places.orders();
    drop(std::fs::remove_file(&path));
    let orders = UnixListener::bind(&path).map_err(LabError::io(format!("listen on {}", path.display())))?;
    let seed = u64::from_be_bytes(*b"sallypor");
    let relay = Arc::new(Relay {
        began: Instant::now(),
        wires: Mutex::new(plan.wires(seed)),
        devices,
        queue: Mutex::default(),
        wake: Condvar::new(),
    });
    for port in 0..relay.devices.len() {
        let relay = relay.clone();
        thread::spawn(move || relay.take(port));
    }
    let sender = relay.clone();
    thread::spawn(move || sender.send_waiting());
    println!("ready");
    for stream in orders.incoming().flatten() {
        // A slow or invalid order gets no answer.
        drop(relay.obey(&stream));
    }
    Ok(())
}

/// Makes the device of a namespace, in a thread that enters the namespace and then ends.
fn device(namespace: &str, name: &str) -> Result<SyncDevice, LabError> {
    let path = kernel::path(namespace);
    let file = File::open(&path).map_err(LabError::io(format!("open {}", path.display())))?;
    let name = name.to_owned();
    let made = thread::spawn(move || {
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
        DeviceBuilder::new().name(name).mtu(MTU_BYTES).build_sync()
    });
    let made = made.join().unwrap_or_else(|_| Err(std::io::Error::other("the thread ended")));
    made.map_err(LabError::io(format!("make a TUN device in the namespace {namespace}")))
}

impl Relay {
    /// Reads the packets of a port.
    fn take(&self, port: usize) {
        let mut buffer = vec![0; MAX_PACKET_BYTES];
        loop {
            let Ok(length) = self.devices[port].recv(&mut buffer) else {
                // The device is not up yet.
                thread::sleep(Duration::from_millis(10));
                continue;
            };
            let packet = &buffer[..length];
            let now = self.began.elapsed();
            match lock(&self.wires).carry(now, port, packet) {
                Fate::Lost(_) => {}
                Fate::Arrives { at, due } if due <= now => self.deliver(at, packet),
                Fate::Arrives { at, due } => self.put(at, due, packet),
            }
        }
    }

    fn put(&self, at: usize, due: Duration, packet: &[u8]) {
        let mut queue = lock(&self.queue);
        if queue.waiting.len() >= MAX_WAITING_PACKETS {
            return;
        }
        queue.number += 1;
        let waiting = Waiting { due, number: queue.number, at, packet: packet.to_vec() };
        let is_next = queue.waiting.peek().is_none_or(|first| waiting > *first);
        queue.waiting.push(waiting);
        drop(queue);
        if is_next {
            self.wake.notify_one();
        }
    }

    /// A device that is down loses packets, like a wire.
    fn deliver(&self, at: usize, packet: &[u8]) {
        drop(self.devices[at].send(packet));
    }

    fn send_waiting(&self) {
        let mut queue = lock(&self.queue);
        loop {
            let now = self.began.elapsed();
            let left = queue.waiting.peek().map(|first| first.due.saturating_sub(now));
            match left {
                None => self.wake.wait(&mut queue),
                Some(left) if !left.is_zero() => {
                    self.wake.wait_for(&mut queue, left);
                }
                Some(_) => {
                    let Some(first) = queue.waiting.pop() else { continue };
                    drop(queue);
                    self.deliver(first.at, &first.packet);
                    queue = lock(&self.queue);
                }
            }
        }
    }

    fn obey(&self, mut stream: &UnixStream) -> std::io::Result<()> {
        stream.set_read_timeout(Some(ORDER_TIME))?;
        stream.set_write_timeout(Some(ORDER_TIME))?;
        let mut line = String::new();
        BufReader::new(stream.take(MAX_ORDER_BYTES)).read_line(&mut line)?;
        let mut wires = lock(&self.wires);
        let refused = match serde_json::from_str::<Order>(&line) {
            Ok(order) => obey(&mut wires, &order).err(),
            Err(error) => Some(format!("this is no order: {error}")),
        };
        let (cuts, slowed) = wires.faults();
        let wiring = Wiring {
            refused,
            counts: wires.counts(),
            cuts: cuts.to_vec(),
            slowed: slowed.iter().map(|(part, link)| (*part, *link)).collect(),
        };
        drop(wires);
        stream.write_all(serde_json::to_string(&wiring)?.as_bytes())
    }
}

fn obey(wires: &mut Wires, order: &Order) -> Result<(), String> {
    match order {
        Order::Cut(cut) => {
            if wires.cut(*cut) {
                Ok(())
            } else {
                Err(format!("there are {} cuts already", crate::wires::MAX_CUTS))
            }
        }
        Order::Slow(part, link) => {
            link.check().map_err(|error| error.to_string())?;
            wires.slow(*part, *link);
            Ok(())
        }
        Order::Heal(part) => {
            wires.heal(*part);
            Ok(())
        }
        Order::Show => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{Topology, TopologyOptions};

    #[test]
    fn packets_are_sent_when_they_are_due_and_otherwise_in_their_order() {
        let mut heap = BinaryHeap::new();
        for (due, number) in [(30, 1), (10, 2), (20, 3), (10, 4)] {
            heap.push(Waiting { due: Duration::from_millis(due), number, at: 0, packet: Vec::new() });
        }
        let order: Vec<_> = std::iter::from_fn(|| heap.pop()).map(|waiting| waiting.number).collect();
        assert_eq!(order, [2, 4, 3, 1]);
    }

    #[test]
    fn orders_are_carried_out_or_refused_with_a_sentence() {
        let plan = Plan::new(Topology::new(&TopologyOptions::default()).unwrap());
        let mut wires = plan.wires(1);
        let cut = Cut { one: Part::Region(0), other: None };
        assert_eq!(obey(&mut wires, &Order::Cut(cut)), Ok(()));
        let too_slow = Link { delay: Duration::from_secs(60), ..Link::default() };
        assert!(obey(&mut wires, &Order::Slow(Part::Node(0), too_slow)).unwrap_err().contains("5s at most"));
        assert_eq!(obey(&mut wires, &Order::Slow(Part::Node(0), Link::default())), Ok(()));
        assert_eq!((wires.faults().0.len(), wires.faults().1.len()), (1, 1));
        assert_eq!(obey(&mut wires, &Order::Heal(None)), Ok(()));
        assert!(wires.faults().0.is_empty() && wires.faults().1.is_empty());
        for order in [Order::Show, Order::Heal(Some(Part::Node(3))), Order::Cut(cut)] {
            let text = serde_json::to_string(&order).unwrap();
            assert_eq!(serde_json::from_str::<Order>(&text).unwrap(), order, "{text}");
        }
        assert!(serde_json::from_str::<Order>("{\"burn\":1}").is_err());
    }
}
