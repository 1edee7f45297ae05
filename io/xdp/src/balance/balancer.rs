//! The balancer of a network namespace: its state is pinned, and outlives the process.

use std::path::{Path, PathBuf};

use libbpf_rs::{MapCore as _, MapFlags, MapHandle, Object};
use sallyport_packet_model::balance::{MAX_POOLS, MAX_TARGETS, POOL_SLOTS, Tables};

use super::{
    bytes::{self, MAX_STATE_BYTES},
    installed::{COUNTERS, DUMP_CONTROL, DUMP_LOST, DUMP_RINGS, Installed, PORTS, replace, write},
};
use crate::{
    Change, Changing, Count, Question, Reason, StandingPort, XdpError,
    error::asked,
    explain,
    kernel::Device,
    object::Shape,
    table::{self, SLOTS},
};

/// The program, compiled by build.rs; empty without clang.
static PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/balance.bpf.o"));
const FUNCTION: &str = "sallyport_balance";
const EXPLAIN: &str = "sallyport_balance_explain";
const TARGETS: u32 = MAX_TARGETS as u32 + 1;
/// Cells that are written at once.
const BATCH_CELLS: usize = 1 << 14;
static SHAPES: [Shape; 18] = [
    PORTS,
    COUNTERS,
    DUMP_CONTROL,
    DUMP_LOST,
    DUMP_RINGS,
    Shape { name: "devices", sizes: (4, 4), entries: SLOTS },
    Shape { name: "balance_set", sizes: (4, 32), entries: 1 },
    Shape { name: "targets", sizes: (4, 24), entries: TARGETS },
    Shape { name: "target_counts", sizes: (4, 16), entries: TARGETS },
    Shape { name: "virtuals", sizes: (20, 136), entries: sallyport_packet_model::balance::MAX_VIRTUALS as u32 },
    Shape { name: "pool_slots", sizes: (4, 4), entries: (MAX_POOLS * POOL_SLOTS) as u32 },
    // The file says how many.
    Shape { name: "connections", sizes: (40, 8), entries: 0 },
    Shape { name: "limit_set", sizes: (4, 32), entries: 1 },
    Shape { name: "limit_sources", sizes: (12, 16), entries: 0 },
    Shape { name: "egress", sizes: (20, 68), entries: sallyport_packet_model::balance::MAX_EGRESS as u32 },
    Shape { name: "quic_servers", sizes: (4, 4), entries: TARGETS },
    Shape { name: "peers", sizes: (20, 4), entries: TARGETS },
    Shape { name: STATE, sizes: (4, MAX_STATE_BYTES as u32 + 4), entries: 1 },
];
const STATE: &str = "balance_file";

/// The balancer whose state is pinned in a folder of bpffs.
#[derive(Debug, Clone)]
pub struct Balancer {
    installed: Installed,
}

/// What was sent to a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TargetCount {
    /// The number of the target.
    pub target: u16,
    /// Packets.
    pub packets: u64,
    /// Bytes of their frames, as they came.
    pub bytes: u64,
}

/// Where a packet would go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BalanceVerdict {
    /// Why.
    pub reason: Reason,
    /// The number of the edge, machine or site.
    pub target: Option<u16>,
    /// The number of the second edge.
    pub second: Option<u16>,
    /// The slot of the flow in its table.
    pub slot: u32,
    /// Whether the table of connections had the flow.
    pub is_remembered: bool,
    /// Whether a connection id decided.
    pub is_by_id: bool,
    /// The device that it leaves by.
    pub to: Option<u32>,
    /// The longest packet that fits, where it was too big.
    pub mtu: Option<u32>,
}

impl Balancer {
    /// The balancer of this folder, which stands or not.
    pub fn new(pins: impl Into<PathBuf>) -> Self {
        let (function, compiled, shapes) = (FUNCTION, PROGRAM, SHAPES.as_slice());
        Self {
            installed: Installed { pins: pins.into(), function, compiled, shapes, missing: || XdpError::NoBalancer },
        }
    }

    /// The folder.
    #[must_use]
    pub fn pins(&self) -> &Path {
        self.installed.folder()
    }

    /// Whether a balancer stands.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.installed.is_there()
    }

    /// Says that this process changes the balancer, as long as the result lives.
    ///
    /// # Errors
    /// Another process does, or the folder is no bpffs, or one of another user.
    pub fn change(&self) -> Result<Changing, XdpError> {
        crate::require_root()?;
        Changing::begin(self.pins())
    }

    /// Brings the balancer up at these devices, or changes the one that stands, without a lost packet.
    ///
    /// `connections` is the room of the table of connections, and `state` what the next command reads.
    ///
    /// # Errors
    /// A device has another program, or no native XDP: the devices are then as before.
    pub fn up(
        &self,
        wanted: &[Device],
        devices: &[Device],
        tables: &Tables,
        connections: u32,
        state: &[u8],
    ) -> Result<Change, XdpError> {
        let limits = &tables.settings.limits;
        let sources = if limits.is_on() { limits.sources } else { 1 };
        let object = self.installed.load(true, &[("connections", connections.max(1)), ("limit_sources", sources)])?;
        self.installed.attach(&object, wanted, devices, || self.fill(tables, state))
    }

    /// Changes the tables of the balancer that stands.
    ///
    /// # Errors
    /// No balancer stands.
    pub fn apply(&self, tables: &Tables, state: &[u8]) -> Result<(), XdpError> {
        if !self.is_up() {
            return Err(XdpError::NoBalancer);
        }
        self.fill(tables, state)
    }

    /// Takes over changed addresses of the devices.
    ///
    /// # Errors
    /// No balancer stands.
    pub fn refresh(&self, wanted: &[Device]) -> Result<(), XdpError> {
        self.installed.refresh(wanted)
    }

    /// Takes the balancer down. Says which devices it was at.
    ///
    /// # Errors
    /// No balancer stands.
    pub fn down(&self, devices: &[Device]) -> Result<Vec<String>, XdpError> {
        self.installed.down(devices)
    }

    /// The devices.
    ///
    /// # Errors
    /// No balancer stands.
    pub fn ports(&self) -> Result<Vec<StandingPort>, XdpError> {
        self.installed.ports()
    }

    /// What the devices have counted, without zeros.
    ///
    /// # Errors
    /// No balancer stands.
    pub fn counts(&self) -> Result<Vec<Count>, XdpError> {
        self.installed.counts()
    }

    /// What was sent to targets, without zeros.
    ///
    /// # Errors
    /// No balancer stands.
    pub fn target_counts(&self) -> Result<Vec<TargetCount>, XdpError> {
        let counts = self.installed.map("target_counts")?;
        let mut found = Vec::new();
        for target in 1..TARGETS {
            let cpus = counts.lookup_percpu(&target.to_ne_bytes(), MapFlags::ANY);
            let cpus = cpus.map_err(asked("read the counters of edges"))?.unwrap_or_default();
            let sum = |at: usize| -> u64 {
                let word = |cpu: &Vec<u8>| Some(u64::from_ne_bytes(cpu.get(at..at + 8)?.try_into().ok()?));
                cpus.iter().filter_map(word).sum()
            };
            let count = TargetCount { target: target as u16, packets: sum(0), bytes: sum(8) };
            found.extend((count.packets > 0).then_some(count));
        }
        Ok(found)
    }

    /// What the last command has left for the next one.
    ///
    /// # Errors
    /// No balancer stands.
    pub fn state(&self) -> Result<Vec<u8>, XdpError> {
        let map = self.installed.map(STATE)?;
        let found = map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).map_err(asked("read the state of the balancer"))?;
        let bytes = found.unwrap_or_default();
        let length = bytes.get(..4).and_then(|length| length.try_into().ok()).map_or(0, u32::from_ne_bytes) as usize;
        Ok(bytes.get(4..4 + length).unwrap_or_default().to_vec())
    }

    /// The program, for frames that nobody sends.
    ///
    /// # Errors
    /// No balancer stands.
    pub fn runner(&self) -> Result<BalanceRunner, XdpError> {
        Ok(BalanceRunner { object: self.installed.load(false, &[])? })
    }

    /// Writes the tables: what others point at comes first, and goes last.
    fn fill(&self, tables: &Tables, state: &[u8]) -> Result<(), XdpError> {
        if state.len() > MAX_STATE_BYTES {
            return Err(XdpError::StateTooLarge(state.len()));
        }
        let map = |name: &str| self.installed.map(name);
        let (targets, counts) = (map("targets")?, map("target_counts")?);
        for (number, target) in &tables.targets {
            let key = u32::from(*number).to_ne_bytes();
            let before = targets.lookup(&key, MapFlags::ANY).map_err(asked("read the table of edges"))?;
            let value = bytes::target(target);
            // Another edge had this number.
            if before.is_none_or(|before| before.get(18..20) != value.get(18..20)) {
                table::clear(&counts, u32::from(*number), 1)?;
            }
            write(&targets, &key, &value)?;
        }
        write_cells(&map("pool_slots")?, &bytes::cells(tables, MAX_POOLS))?;
        let server = |(server, target): (&u16, &u16)| {
            (u32::from(*server).to_ne_bytes().to_vec(), u32::from(*target).to_ne_bytes().to_vec())
        };
        replace(&map("quic_servers")?, &tables.servers.iter().map(server).collect::<Vec<_>>())?;
        let peer = |address: &std::net::IpAddr| (bytes::address_key(*address), 1_u32.to_ne_bytes().to_vec());
        replace(&map("peers")?, &tables.peers.iter().map(peer).collect::<Vec<_>>())?;
        write(&map("limit_set")?, &0_u32.to_ne_bytes(), &bytes::limits(&tables.settings.limits))?;
        write(&map("balance_set")?, &0_u32.to_ne_bytes(), &bytes::settings(&tables.settings))?;
        replace(&map("egress")?, &bytes::egress(tables))?;
        replace(&map("virtuals")?, &bytes::virtuals(tables))?;
        for number in (1..TARGETS).filter(|number| !tables.targets.contains_key(&(*number as u16))) {
            write(&targets, &number.to_ne_bytes(), &[0; 24])?;
        }
        let mut value = (state.len() as u32).to_ne_bytes().to_vec();
        value.extend(state);
        value.resize(MAX_STATE_BYTES + 4, 0);
        write(&map(STATE)?, &0_u32.to_ne_bytes(), &value)
    }
}

/// Writes the cells. Each one changes at once, and one of before fits to those of after.
fn write_cells(map: &MapHandle, cells: &[u32]) -> Result<(), XdpError> {
    for (place, part) in cells.chunks(BATCH_CELLS).enumerate() {
        let first = (place * BATCH_CELLS) as u32;
        let keys: Vec<u8> = (first..first + part.len() as u32).flat_map(u32::to_ne_bytes).collect();
        let values: Vec<u8> = part.iter().flat_map(|cell| cell.to_ne_bytes()).collect();
        let written = map.update_batch(&keys, &values, part.len() as u32, MapFlags::ANY, MapFlags::ANY);
        written.map_err(asked("write the slots of edges"))?;
    }
    Ok(())
}

/// The program of a balancer, which shares its maps with those at its devices.
#[derive(Debug)]
pub struct BalanceRunner {
    object: Object,
}

impl BalanceRunner {
    /// Runs the balancer over a frame that comes in by this device: what XDP says, and the frame after it.
    ///
    /// # Errors
    /// The frame has fewer than 14 bytes.
    pub fn run(&self, frame: &[u8], ifindex: u32) -> Result<(u32, Vec<u8>), XdpError> {
        explain::run(&self.object, FUNCTION, frame, ifindex)
    }

    /// Says where a packet would go that comes in by this device.
    ///
    /// # Errors
    /// The program cannot run.
    pub fn explain(&self, question: &Question, from: &StandingPort) -> Result<BalanceVerdict, XdpError> {
        self.explain_frame(&question.to_frame(from), from.ifindex)
    }

    /// Says where a frame would go that comes in by this device.
    ///
    /// # Errors
    /// The frame has fewer than 14 bytes.
    pub fn explain_frame(&self, frame: &[u8], ifindex: u32) -> Result<BalanceVerdict, XdpError> {
        explain::run(&self.object, EXPLAIN, frame, ifindex)?;
        let verdicts = self.object.maps().find(|map| map.name() == "balance_verdicts").ok_or(XdpError::NoProgram)?;
        let found = verdicts.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).map_err(asked("read the verdict"))?;
        found.and_then(|bytes| BalanceVerdict::of_bytes(&bytes)).ok_or(XdpError::NoProgram)
    }
}

impl BalanceVerdict {
    /// Reads `struct balance_verdict`.
    fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
        let half = |at: usize| bytes.get(at..at + 2)?.try_into().ok().map(u16::from_ne_bytes);
        Some(Self {
            reason: Reason::of(word(0)? as usize)?,
            target: half(4).filter(|number| *number != 0),
            second: half(6).filter(|number| *number != 0),
            slot: word(12)?,
            is_remembered: *bytes.get(16)? != 0,
            is_by_id: *bytes.get(17)? != 0,
            to: word(20).filter(|index| *index != 0),
            mtu: word(24).filter(|mtu| *mtu != 0),
        })
    }
}
