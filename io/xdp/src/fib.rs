//! The tables of the lookup `fib`: cells in memory of the process, written into maps of the kernel in batches.

use std::{cell::RefCell, fs, net::IpAddr, path::Path, rc::Rc, time::Duration};

use libbpf_rs::{MapCore as _, MapFlags, MapHandle, MapType, Object, libbpf_sys};
use sallyport_packet_model::{
    layout::{
        FIB4_BLOCK_CELLS, FIB4_FIRST_CELLS, FIB6_FIRST_CELLS, FIB6_NODE_CELLS, GROUP_SLOTS, HOP_KIND, KIND_NONE,
        NEXT_HOP_CELLS, NODE_DEPTH,
    },
    route::{Cells, Storage},
};

use crate::{
    XdpError,
    error::{asked, pinned},
    table::SLOTS,
};

/// The maps of the tables.
pub(crate) const MAPS: [&str; 8] =
    ["fib4_first", "fib4_second", "fib6_first", "fib6_nodes", "next_hops", "group_slots", "links", "neighbors"];
/// The map with what the process says of itself.
pub(crate) const STATUS: &str = "fib_status";
/// The numbers of the status.
const STATUS_WORDS: usize = 16;
/// Cells of an element of the first arrays: `FIB4_PAIR_CELLS`.
const PAIR_CELLS: usize = 2;
/// The most elements of one call.
const MAX_BATCH: usize = 8192;
/// How long a program may read what the table has left. A program takes microseconds.
const GRACE: Duration = Duration::from_millis(100);

/// How large the tables are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FibSizes {
    /// Blocks of IPv4, of 1 KiB: one for each /24 with longer prefixes.
    pub blocks: u32,
    /// Nodes of IPv6, of 96 bytes: at most two for each prefix.
    pub nodes: u32,
    /// Next hops, of 32 bytes.
    pub next_hops: u32,
    /// Groups of next hops, of 1 KiB.
    pub groups: u32,
    /// Neighbours.
    pub neighbors: u32,
}

impl Default for FibSizes {
    fn default() -> Self {
        Self { blocks: 16_384, nodes: 524_288, next_hops: 65_536, groups: 1024, neighbors: 65_536 }
    }
}

impl FibSizes {
    pub(crate) fn entries(&self, map: &str) -> u32 {
        match map {
            "fib4_first" => FIB4_FIRST_CELLS.div_ceil(PAIR_CELLS) as u32,
            "fib4_second" => self.blocks,
            "fib6_first" => FIB6_FIRST_CELLS.div_ceil(PAIR_CELLS) as u32,
            "fib6_nodes" => self.nodes,
            "next_hops" => self.next_hops,
            "group_slots" => self.groups,
            "links" => SLOTS,
            _ => self.neighbors,
        }
    }
}

/// Elements that were written into the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Written {
    /// Of the tables of prefixes.
    pub tables: u64,
    /// Next hops.
    pub next_hops: u64,
    /// Groups.
    pub groups: u64,
}

/// An array in memory of the process, with a list of what the kernel does not have yet.
#[derive(Debug)]
struct Array {
    cells: Vec<u32>,
    /// Cells of an element of the map.
    element: usize,
    dirty: Vec<u32>,
    marks: Vec<u64>,
}

impl Array {
    fn new(element: usize, entries: u32) -> Self {
        let marks = vec![0; (entries as usize).div_ceil(64)];
        Self { cells: vec![0; element * entries as usize], element, dirty: Vec::new(), marks }
    }

    fn set(&mut self, index: usize, value: u32) {
        match self.cells.get_mut(index) {
            Some(cell) if *cell != value => *cell = value,
            _ => return,
        }
        let element = index / self.element;
        let (word, bit) = (element / 64, 1 << (element % 64));
        if self.marks[word] & bit == 0 {
            self.marks[word] |= bit;
            self.dirty.push(element as u32);
        }
    }

    /// What has changed since the last call.
    fn take(&mut self) -> Vec<u32> {
        for element in &self.dirty {
            self.marks[*element as usize / 64] = 0;
        }
        std::mem::take(&mut self.dirty)
    }

    fn bytes(&self, element: u32) -> impl Iterator<Item = u8> + '_ {
        let start = element as usize * self.element;
        self.cells[start..start + self.element].iter().flat_map(|cell| cell.to_ne_bytes())
    }
}

/// A handle of an array, which the forwarding table has too.
#[derive(Debug, Clone)]
pub struct Shared(Rc<RefCell<Array>>);

impl Cells for Shared {
    fn count(&self) -> usize {
        self.0.borrow().cells.len()
    }

    fn get(&self, index: usize) -> u32 {
        self.0.borrow().cells.as_slice().get(index).copied().unwrap_or(0)
    }

    fn set(&mut self, index: usize, value: u32) {
        self.0.borrow_mut().set(index, value);
    }
}

/// A device, as the lookup must know it: `struct link`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// Its index.
    pub ifindex: u32,
    /// Its MTU.
    pub mtu: u32,
    /// Whether it forwards IPv4, and IPv6.
    pub forwards: (bool, bool),
    /// Whether the kernel's routes decide about its packets.
    pub is_by_kernel: bool,
}

/// What the process says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FibStatus {
    /// Prefixes with a route.
    pub prefixes: u64,
    /// Prefixes that found no room.
    pub refused: u64,
    /// Prefixes around them, whose packets go to the kernel too.
    pub covering: u64,
    /// Ways without a next hop or a group.
    pub ways: u64,
    /// Neighbours.
    pub neighbors: u64,
    /// Neighbours that found no room.
    pub neighbors_refused: u64,
    /// Events of the kernel.
    pub events: u64,
    /// Times that the kernel had more events than the socket could hold.
    pub overruns: u64,
    /// Listings of all routes.
    pub listings: u64,
    /// What was written.
    pub written: Written,
    /// Rules of `ip rule` that the tables do not know. The kernel looks up as long as there are any.
    pub rules: u64,
}

impl FibStatus {
    /// Its numbers, with their names.
    #[must_use]
    pub fn numbers(&self) -> [(&'static str, u64); 13] {
        [
            ("prefixes", self.prefixes),
            ("refused_prefixes", self.refused),
            ("covering_prefixes", self.covering),
            ("refused_next_hops", self.ways),
            ("neighbors", self.neighbors),
            ("refused_neighbors", self.neighbors_refused),
            ("events", self.events),
            ("overruns", self.overruns),
            ("listings", self.listings),
            ("written_tables", self.written.tables),
            ("written_next_hops", self.written.next_hops),
            ("written_groups", self.written.groups),
            ("other_rules", self.rules),
        ]
    }

    fn of_words(word: &[u64; STATUS_WORDS]) -> Self {
        Self {
            prefixes: word[0],
            refused: word[1],
            covering: word[2],
            ways: word[3],
            neighbors: word[4],
            neighbors_refused: word[5],
            events: word[6],
            overruns: word[7],
            listings: word[8],
            written: Written { tables: word[9], next_hops: word[10], groups: word[11] },
            rules: word[12],
        }
    }

    /// The status of the router of this folder; `None` if it looks up in the kernel's routes.
    ///
    /// # Errors
    /// The map cannot be read.
    pub fn read(pins: &Path) -> Result<Option<Self>, XdpError> {
        let path = pins.join(STATUS);
        if !path.exists() {
            return Ok(None);
        }
        let map = MapHandle::from_pinned_path(&path).map_err(asked(format!("open {}", path.display())))?;
        let found = map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).map_err(asked("read the status"))?;
        let mut words = [0; STATUS_WORDS];
        for (word, bytes) in words.iter_mut().zip(found.unwrap_or_default().chunks_exact(8)) {
            *word = bytes.try_into().map_or(0, u64::from_ne_bytes);
        }
        Ok(Some(Self::of_words(&words)))
    }
}

/// A loaded program with its tables.
#[derive(Debug)]
pub struct FibMaps {
    object: Object,
    /// `fib4_first`, `fib4_second`, `fib6_first`, `fib6_nodes`, `next_hops`, `group_slots`.
    arrays: [(MapHandle, Shared); 6],
    /// The next hops as the kernel has them.
    standing_hops: StandingHops,
    links: MapHandle,
    neighbors: MapHandle,
    status: MapHandle,
    written: Written,
}

impl FibMaps {
    pub(crate) fn new(object: Object, sizes: &FibSizes) -> Result<Self, XdpError> {
        let map = |name: &str| {
            let map = object.maps().find(|map| map.name() == name).ok_or(XdpError::NoProgram)?;
            MapHandle::try_from(&map).map_err(asked(format!("open the map {name}")))
        };
        let array = |name: &str, element: usize| {
            let array = Array::new(element, sizes.entries(name));
            Ok::<_, XdpError>((map(name)?, Shared(Rc::new(RefCell::new(array)))))
        };
        let arrays = [
            array("fib4_first", PAIR_CELLS)?,
            array("fib4_second", FIB4_BLOCK_CELLS)?,
            array("fib6_first", PAIR_CELLS)?,
            array("fib6_nodes", FIB6_NODE_CELLS)?,
            array("next_hops", NEXT_HOP_CELLS)?,
            array("group_slots", GROUP_SLOTS)?,
        ];
        let (links, neighbors) = (map("links")?, map("neighbors")?);
        let options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
            ..Default::default()
        };
        let status = MapHandle::create(MapType::Array, Some(STATUS), 4, 8 * STATUS_WORDS as u32, 1, &options);
        let status = status.map_err(asked("make the map of the status"))?;
        let standing_hops = StandingHops::new(sizes.next_hops as usize);
        let written = Written::default();
        Ok(Self { object, arrays, standing_hops, links, neighbors, status, written })
    }

    pub(crate) fn object_mut(&mut self) -> &mut Object {
        &mut self.object
    }

    /// The arrays, for a forwarding table.
    #[must_use]
    pub fn storage(&self) -> Storage<Shared> {
        let [fib4_first, fib4_second, fib6_first, fib6_nodes, next_hops, group_slots] =
            [0, 1, 2, 3, 4, 5].map(|index| self.arrays[index].1.clone());
        Storage { fib4_first, fib4_second, fib6_first, fib6_nodes, next_hops, group_slots }
    }

    /// Writes what has changed. A reader finds the old or the new route at every moment: what is pointed at is written
    /// first, and a next hop goes when nothing points at it any more.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn flush(&mut self) -> Result<(), XdpError> {
        let [first4, second4, first6, nodes, hops, groups] = &self.arrays;
        let (map, cells) = hops;
        let dirty = cells.0.borrow_mut().take();
        let is_gone = |hop: &u32| cells.get(*hop as usize * NEXT_HOP_CELLS + HOP_KIND) == KIND_NONE;
        let (gone, kept): (Vec<u32>, Vec<u32>) = dirty.into_iter().partition(is_gone);
        self.written.next_hops += self.standing_hops.flush(map, &cells.0.borrow(), &kept)?;
        self.written.groups += flush(groups, |_, _| ())?;
        self.written.tables += flush(second4, |_, _| ())?;
        // A node is deeper than the one that points at it.
        let deepest_first = |array: &Array, dirty: &mut Vec<u32>| {
            dirty.sort_by_key(|node| std::cmp::Reverse(array.cells[*node as usize * FIB6_NODE_CELLS + NODE_DEPTH]));
        };
        self.written.tables += flush(nodes, deepest_first)?;
        self.written.tables += flush(first4, |_, _| ())? + flush(first6, |_, _| ())?;
        self.written.next_hops += self.standing_hops.flush(map, &cells.0.borrow(), &gone)?;
        Ok(())
    }

    /// What was written so far.
    #[must_use]
    pub fn written(&self) -> Written {
        self.written
    }

    /// Waits until no program can still read what the table had left before the last `flush`.
    pub fn wait_for_readers(&self) {
        std::thread::sleep(GRACE);
    }

    /// Writes what the lookup must know of a device.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn set_link(&self, link: &Link) -> Result<(), XdpError> {
        let forwards = u32::from(link.forwards.0) | u32::from(link.forwards.1) << 1 | u32::from(link.is_by_kernel) << 2;
        let value: Vec<u8> = [link.ifindex, link.mtu, forwards, 0].iter().flat_map(|word| word.to_ne_bytes()).collect();
        let slot = (link.ifindex % SLOTS).to_ne_bytes();
        self.links.update(&slot, &value, MapFlags::ANY).map_err(asked("fill the table of devices"))
    }

    /// Writes or removes the address of a neighbour. Returns false if there is no room.
    #[must_use]
    pub fn set_neighbor(&self, device: u32, address: IpAddr, mac: Option<[u8; 6]>) -> bool {
        let mut key = Vec::with_capacity(24);
        key.extend(device.to_ne_bytes());
        match address {
            IpAddr::V4(address) => {
                key.extend(4_u32.to_ne_bytes());
                key.extend(address.octets());
                key.extend([0; 12]);
            }
            IpAddr::V6(address) => {
                key.extend(6_u32.to_ne_bytes());
                key.extend(address.octets());
            }
        }
        let Some(mac) = mac else {
            // Not there is as good as removed.
            drop(self.neighbors.delete(&key));
            return true;
        };
        let value = [&mac[..], &[0; 2]].concat();
        // The kernel refuses a well-formed entry only where there is no room.
        self.neighbors.update(&key, &value, MapFlags::ANY).is_ok()
    }

    /// Writes the status.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn set_status(&self, status: &FibStatus) -> Result<(), XdpError> {
        let mut bytes: Vec<u8> = status.numbers().iter().flat_map(|(_, number)| number.to_ne_bytes()).collect();
        bytes.resize(8 * STATUS_WORDS, 0);
        self.status.update(&0_u32.to_ne_bytes(), &bytes, MapFlags::ANY).map_err(asked("write the status"))
    }

    /// Pins the tables in place of those of a former process.
    pub(crate) fn pin(&mut self, pins: &Path) -> Result<(), XdpError> {
        for name in MAPS.into_iter().chain([STATUS]) {
            let next = pins.join(format!("{name}-next"));
            drop(fs::remove_file(&next));
            let failed = || format!("pin {}", next.display());
            if name == STATUS {
                self.status.pin(&next).map_err(asked(failed()))?;
            } else {
                let mut map = self.object.maps_mut().find(|map| map.name() == name).ok_or(XdpError::NoProgram)?;
                map.pin(&next).map_err(asked(failed()))?;
            }
            fs::rename(&next, pins.join(name)).map_err(pinned(failed()))?;
        }
        Ok(())
    }
}

/// Removes the pins of the tables.
pub(crate) fn remove(pins: &Path) -> Result<(), XdpError> {
    // The status says that the others are there, so it goes first.
    for name in [STATUS].into_iter().chain(MAPS) {
        for pin in [pins.join(name), pins.join(format!("{name}-next"))] {
            match fs::remove_file(&pin) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(pinned(format!("remove {}", pin.display()))(error));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// Writes the changed elements of an array, in this order.
fn flush(array: &(MapHandle, Shared), order: impl Fn(&Array, &mut Vec<u32>)) -> Result<u64, XdpError> {
    let (map, cells) = array;
    let mut cells = cells.0.borrow_mut();
    let mut dirty = cells.take();
    order(&cells, &mut dirty);
    for part in dirty.chunks(MAX_BATCH) {
        let values: Vec<u8> = part.iter().flat_map(|element| cells.bytes(*element)).collect();
        write(map, part, &values)?;
    }
    Ok(dirty.len() as u64)
}

/// The next hops as the kernel has them: `struct next_hop_pair`.
#[derive(Debug)]
struct StandingHops {
    cells: Vec<u32>,
    /// Which copy of each counts.
    turns: Vec<u32>,
}

impl StandingHops {
    fn new(count: usize) -> Self {
        Self { cells: vec![0; count * NEXT_HOP_CELLS], turns: vec![0; count] }
    }

    /// Writes changed next hops: the copy that nobody reads, and then the turn.
    fn flush(&mut self, map: &MapHandle, array: &Array, dirty: &[u32]) -> Result<u64, XdpError> {
        for part in dirty.chunks(MAX_BATCH) {
            let (mut copied, mut turned) = (Vec::new(), Vec::new());
            for hop in part {
                let place = *hop as usize * NEXT_HOP_CELLS..(*hop as usize + 1) * NEXT_HOP_CELLS;
                let (before, after) = (&mut self.cells[place.clone()], &array.cells[place]);
                let turn = &mut self.turns[*hop as usize];
                let pair = if turn.is_multiple_of(2) { [&before[..], after] } else { [after, &before[..]] };
                for (bytes, turn) in [(&mut copied, *turn), (&mut turned, turn.wrapping_add(1))] {
                    let words = pair.iter().copied().flatten().chain([&turn, &0]);
                    bytes.extend(words.flat_map(|word| word.to_ne_bytes()));
                }
                *turn = turn.wrapping_add(1);
                before.copy_from_slice(after);
            }
            write(map, part, &copied)?;
            write(map, part, &turned)?;
        }
        Ok(dirty.len() as u64)
    }
}

fn write(map: &MapHandle, elements: &[u32], values: &[u8]) -> Result<(), XdpError> {
    let keys: Vec<u8> = elements.iter().flat_map(|element| element.to_ne_bytes()).collect();
    let written = map.update_batch(&keys, values, elements.len() as u32, MapFlags::ANY, MapFlags::ANY);
    written.map_err(asked("write the forwarding table"))
}

#[cfg(test)]
mod tests {
    use sallyport_packet_model::layout;

    #[test]
    fn the_header_has_the_numbers_of_the_model() {
        let header = include_str!("../../../packet/bpf/layout.h");
        let number = |name: &str| {
            let find = |line: &str| {
                let (_, value) = line.trim().split_once(&format!("{name} "))?;
                let value = value.trim_start_matches("= ").trim_end_matches([',', 'u']);
                match value.strip_prefix("0x") {
                    Some(hex) => i64::from_str_radix(hex, 16).ok(),
                    None => match value.trim_matches(['(', ')']).split_once(" << ") {
                        Some((one, shift)) => Some(one.parse::<i64>().ok()? << shift.parse::<u32>().ok()?),
                        None => value.parse().ok(),
                    },
                }
            };
            header.lines().find_map(find).unwrap_or_else(|| panic!("no {name}"))
        };
        for (name, value) in [
            ("FIB4_DEFAULT", layout::FIB4_DEFAULT as u32),
            ("FIB4_BLOCK_CELLS", layout::FIB4_BLOCK_CELLS as u32),
            ("FIB4_PAIR_CELLS", super::PAIR_CELLS as u32),
            ("FIB6_DEFAULT", layout::FIB6_DEFAULT as u32),
            ("FIB6_NODE_CELLS", layout::FIB6_NODE_CELLS as u32),
            ("FIB6_MAX_STEPS", layout::FIB6_MAX_STEPS as u32),
            ("NEXT_HOP_CELLS", layout::NEXT_HOP_CELLS as u32),
            ("ENTRY_NODE", layout::ENTRY_NODE),
            ("ENTRY_HOP_MASK", layout::ENTRY_HOP_MASK),
            ("GROUP_SLOT_BITS", layout::GROUP_SLOT_BITS),
            ("GROUP_SLOTS", layout::GROUP_SLOTS as u32),
            ("KIND_FORWARD", layout::KIND_FORWARD),
            ("KIND_LOCAL", layout::KIND_LOCAL),
            ("KIND_BLACK_HOLE", layout::KIND_BLACK_HOLE),
            ("KIND_PROHIBIT", layout::KIND_PROHIBIT),
            ("KIND_UNREACHABLE", layout::KIND_UNREACHABLE),
            ("KIND_GROUP", layout::KIND_GROUP),
        ] {
            assert_eq!(number(name), i64::from(value), "{name}");
        }
    }
}
