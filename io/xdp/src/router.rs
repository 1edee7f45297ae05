//! The router of a network namespace: its state is pinned, and outlives the process.

use std::{
    collections::HashSet,
    fs,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use libbpf_rs::{MapCore as _, MapFlags, MapHandle, Object};
use sallyport_packet_model::follow::Leg;

use crate::{
    Reason, Urpf, XdpError,
    attach::FUNCTION,
    dump,
    error::{asked, pinned, require_root},
    fib::{self, FibMaps, FibSizes},
    kernel::{self, Device},
    nat::{self, NatSetup, Settings},
    object::{self, PINNED, Tables},
    pins::{self, Changing},
    policy::{self, CompiledPolicy},
    programs::{self, PinnedPrograms},
    table::{self, Entry, ROW_REASONS, SLOTS},
};

/// The router whose state is pinned in a folder of bpffs.
#[derive(Debug, Clone)]
pub struct Router {
    pins: PathBuf,
    nat: Option<NatSetup>,
    policy: Option<CompiledPolicy>,
}

/// What `up` has changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Change {
    /// Devices that had no program.
    pub attached: Vec<String>,
    /// Devices whose program was replaced in place.
    pub replaced: Vec<String>,
    /// Devices that are ports no more.
    pub detached: Vec<String>,
}

/// A port, as it stands in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StandingPort {
    /// The device.
    pub ifindex: u32,
    /// The port below a VLAN; the device itself otherwise.
    pub parent: u32,
    /// The VLAN.
    pub vid: Option<u16>,
    /// The check of sources.
    pub urpf: Urpf,
    /// The address of the device.
    pub mac: [u8; 6],
}

/// What a port has counted for a reason; VLANs count at their port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    /// The port; `None` for packets from devices that are no ports.
    pub ifindex: Option<u32>,
    /// The reason.
    pub reason: Reason,
    /// Packets.
    pub packets: u64,
    /// Bytes of their frames.
    pub bytes: u64,
}

impl Router {
    /// The router of this folder, which stands or not.
    pub fn new(pins: impl Into<PathBuf>) -> Self {
        Self { pins: pins.into(), nat: None, policy: None }
    }

    /// The same router, with this NAT when it is brought up.
    #[must_use]
    pub fn with_nat(mut self, nat: Option<NatSetup>) -> Self {
        self.nat = nat;
        self
    }

    /// The NAT that the router gets when it is brought up.
    #[must_use]
    pub fn nat(&self) -> Option<&NatSetup> {
        self.nat.as_ref()
    }

    /// The same router, with this policy when it is brought up.
    #[must_use]
    pub fn with_policy(mut self, policy: Option<CompiledPolicy>) -> Self {
        self.policy = policy;
        self
    }

    /// The folder.
    #[must_use]
    pub fn pins(&self) -> &Path {
        &self.pins
    }

    /// Brings the router up with these ports and their VLANs, or changes the one that stands, without a lost packet.
    /// The program looks up in the kernel's routes.
    ///
    /// `devices` are all devices of the network namespace.
    ///
    /// # Errors
    /// A device has another program, or no native XDP: the devices are then as before.
    pub fn up(&self, ports: &[(Device, Urpf)], devices: &[Device]) -> Result<Change, XdpError> {
        let mut object = self.load(Tables::Kernel)?;
        let change = self.attach(&mut object, ports, devices)?;
        fib::remove(&self.pins)?;
        Ok(change)
    }

    /// Brings the router up with tables of its own, which the caller has filled.
    ///
    /// # Errors
    /// A device has another program, or no native XDP: the devices are then as before.
    pub fn up_with(&self, fib: &mut FibMaps, ports: &[(Device, Urpf)], devices: &[Device]) -> Result<Change, XdpError> {
        let change = self.attach(fib.object_mut(), ports, devices)?;
        fib.pin(&self.pins)?;
        Ok(change)
    }

    /// Loads a program with new and empty tables, which no device has yet.
    ///
    /// # Errors
    /// There is no memory for the tables.
    pub fn tables(&self, sizes: &FibSizes) -> Result<FibMaps, XdpError> {
        let object = self.load(Tables::New(sizes))?;
        FibMaps::new(object, sizes)
    }

    /// Takes over changed addresses of devices, and VLANs that have come or gone. The programs stay.
    ///
    /// # Errors
    /// No router stands, or the table cannot hold the VLANs.
    pub fn refresh(&self, ports: &[(Device, Urpf)], devices: &[Device]) -> Result<(), XdpError> {
        let standing = self.entries()?;
        let entries = table::entries(ports, devices, &standing)?;
        if entries.len() == standing.len() && entries.iter().all(|entry| standing.contains(entry)) {
            return Ok(());
        }
        self.fill(&entries, &standing)?;
        self.prune(&entries)
    }

    /// Has the kernel probe these gateways from now on, where the router sends to them. With `asks_stale` it also probes
    /// each neighbour of the ports that it has not heard of for long.
    ///
    /// # Errors
    /// No router stands, or the kernel refuses one of them; the others are probed.
    pub fn probe(&self, gateways: &HashSet<Leg>, asks_stale: bool) -> Result<(), XdpError> {
        let devices = self.entries()?.iter().map(|entry| entry.ifindex).collect();
        kernel::probe(gateways, &devices, asks_stale)
    }

    /// Says that this process follows, as long as the result lives; `None` if another one does.
    ///
    /// # Errors
    /// The process is not root's, or the folder is no bpffs.
    pub fn follow(&self) -> Result<Option<OwnedFd>, XdpError> {
        require_root()?;
        pins::make_folder(&self.pins)?;
        self.lock()
    }

    /// Says that this process changes the router, as long as the result lives.
    ///
    /// # Errors
    /// Another process does, or the folder is no bpffs, or one of another user.
    pub fn change(&self) -> Result<Changing, XdpError> {
        if !rustix::process::geteuid().is_root() {
            return Err(XdpError::NotRoot);
        }
        Changing::begin(&self.pins)
    }

    /// Whether a process follows.
    #[must_use]
    pub fn is_followed(&self) -> bool {
        matches!(self.lock(), Ok(None))
    }

    fn lock(&self) -> Result<Option<OwnedFd>, XdpError> {
        let tried = || pinned(format!("lock {}", self.pins.display()));
        let folder = fs::File::open(&self.pins).map_err(tried())?;
        match rustix::fs::flock(&folder, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(folder.into())),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(tried()(error.into())),
        }
    }

    fn load(&self, tables: Tables<'_>) -> Result<Object, XdpError> {
        require_root()?;
        pins::make_folder(&self.pins)?;
        let (settings, compiled) = (Settings::of(self.nat.as_ref()), self.policy.as_ref());
        let object = object::load_with(&self.pins, true, tables, Some(&settings), Some(compiled))
            .inspect_err(|_| self.remove_if_new(&PinnedPrograms::of(&self.pins)))?;
        policy::fill(&object, compiled)?;
        Ok(object)
    }

    /// Fills the table of ports, and attaches a loaded program.
    fn attach(&self, object: &mut Object, ports: &[(Device, Urpf)], devices: &[Device]) -> Result<Change, XdpError> {
        let standing = self.entries().unwrap_or_default();
        let ours = PinnedPrograms::of(&self.pins);
        let entries = table::entries(ports, devices, &standing).inspect_err(|_| self.remove_if_new(&ours))?;
        let next = ours.pin_next(object, FUNCTION)?;
        // The table is complete before the first packet. Ports that go stay in it until they are detached.
        self.fill(&entries, &standing)?;
        nat::fill(&self.pins, self.nat.as_ref())?;
        let attached = ours.attach(&next, ports.iter().map(|(device, _)| device), true);
        let mut change = attached.inspect_err(|_| self.take_back(&ours, &next, &standing))?;
        let is_wanted = |device: &Device| ports.iter().any(|(port, _)| port.index == device.index);
        let was_port = |device: &Device| standing.iter().any(|entry| entry.ifindex == device.index && entry.vid == 0);
        change.detached = ours.detach(devices.iter().filter(|device| !is_wanted(device) && was_port(device)))?;
        self.prune(&entries)?;
        nat::finish(&self.pins, object, &Settings::of(self.nat.as_ref()))?;
        policy::finish(&self.pins, object, self.policy.as_ref())?;
        ours.unpin_all_but(&next)?;
        Ok(change)
    }

    /// Takes the router down: the kernel forwards again. Says which devices it was at.
    ///
    /// # Errors
    /// No router stands.
    pub fn down(&self, devices: &[Device]) -> Result<Vec<String>, XdpError> {
        let ours = PinnedPrograms::of(&self.pins);
        if ours.is_empty() && !self.pins.join(PINNED[0].name).exists() {
            return Err(XdpError::NotUp);
        }
        let names = ours.detach(devices.iter())?;
        self.remove()?;
        Ok(names)
    }

    /// The ports and their VLANs.
    ///
    /// # Errors
    /// No router stands.
    pub fn ports(&self) -> Result<Vec<StandingPort>, XdpError> {
        let ports = self.entries()?.into_iter().map(|entry| StandingPort {
            ifindex: entry.ifindex,
            parent: entry.parent,
            vid: (entry.vid != 0).then_some(entry.vid),
            urpf: entry.urpf,
            mac: entry.mac,
        });
        Ok(ports.collect())
    }

    /// Those of these devices that run no program, as after `ip link set dev DEVICE xdp off`, while a router stands.
    ///
    /// # Errors
    /// The kernel does not say what a device runs.
    pub fn missing<'d>(&self, devices: impl Iterator<Item = &'d Device>) -> Result<Vec<&'d Device>, XdpError> {
        PinnedPrograms::of(&self.pins).missing(devices)
    }

    /// What the ports have counted, without zeros.
    ///
    /// # Errors
    /// No router stands.
    pub fn counts(&self) -> Result<Vec<Count>, XdpError> {
        let entries = self.entries()?;
        let counters = object::map(&self.pins, "counters")?;
        let rows = entries.iter().filter(|entry| entry.vid == 0).map(|entry| (Some(entry.ifindex), entry.row));
        let mut counts = Vec::new();
        for (ifindex, row) in std::iter::once((None, 0)).chain(rows) {
            for (number, reason) in Reason::ALL.iter().enumerate() {
                let key = u32::from(row) * ROW_REASONS + number as u32;
                let found = counters.lookup_percpu(&key.to_ne_bytes(), MapFlags::ANY);
                let found = found.map_err(asked("read the counters"))?.unwrap_or_default();
                let word = |cpu: &[u8], at: usize| {
                    cpu.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_ne_bytes)
                };
                let packets: u64 = found.iter().map(|cpu| word(cpu, 0)).sum();
                let bytes = found.iter().map(|cpu| word(cpu, 8)).sum();
                if packets > 0 {
                    counts.push(Count { ifindex, reason: *reason, packets, bytes });
                }
            }
        }
        Ok(counts)
    }

    pub(crate) fn entries(&self) -> Result<Vec<Entry>, XdpError> {
        pins::require_own(&self.pins)?;
        let ports = object::map(&self.pins, "ports")?;
        let mut entries = Vec::new();
        for slot in 0..SLOTS {
            let found = ports.lookup(&slot.to_ne_bytes(), MapFlags::ANY).map_err(asked("read the table of ports"))?;
            entries.extend(found.and_then(|bytes| Entry::of_bytes(&bytes)));
        }
        entries.sort_by_key(|entry| (entry.row, entry.vid));
        Ok(entries)
    }

    /// Writes the entries of ports, VLANs and devices.
    fn fill(&self, entries: &[Entry], standing: &[Entry]) -> Result<(), XdpError> {
        let (ports, vlans) = (object::map(&self.pins, "ports")?, object::map(&self.pins, "vlans")?);
        let (devices, counters) = (object::map(&self.pins, "devices")?, object::map(&self.pins, "counters")?);
        let write = |map: &MapHandle, key: &[u8], value: &[u8]| {
            map.update(key, value, MapFlags::ANY).map_err(asked("fill the table of ports"))
        };
        for entry in entries {
            let slot = Entry::slot(entry.ifindex).to_ne_bytes();
            if entry.vid == 0 {
                if !standing.iter().any(|old| old.ifindex == entry.ifindex) {
                    table::clear(&counters, u32::from(entry.row) * ROW_REASONS, ROW_REASONS)?;
                }
                write(&devices, &slot, &entry.ifindex.to_ne_bytes())?;
            } else {
                write(&vlans, &vlan_key(entry), &entry.ifindex.to_ne_bytes())?;
            }
            write(&ports, &slot, &entry.to_bytes())?;
        }
        Ok(())
    }

    /// Removes all other entries.
    fn prune(&self, entries: &[Entry]) -> Result<(), XdpError> {
        let (ports, vlans) = (object::map(&self.pins, "ports")?, object::map(&self.pins, "vlans")?);
        let devices = object::map(&self.pins, "devices")?;
        for old in self.entries()?.iter().filter(|old| !entries.contains(old)) {
            let slot = Entry::slot(old.ifindex).to_ne_bytes();
            ports.update(&slot, &[0; 20], MapFlags::ANY).map_err(asked("clear an entry of the table of ports"))?;
            // Not there for a VLAN.
            drop(devices.delete(&slot));
        }
        let keys: Vec<_> = vlans.keys().take(table::MAX_VLANS).collect();
        for key in keys.iter().filter(|key| !entries.iter().any(|entry| vlan_key(entry) == **key)) {
            vlans.delete(key).map_err(asked("clear a VLAN"))?;
        }
        Ok(())
    }

    /// After a failure: the state is what it was.
    fn take_back(&self, ours: &PinnedPrograms<'_>, next: &OwnedFd, standing: &[Entry]) {
        if ours.is_empty() {
            drop(self.remove());
        } else {
            drop(self.fill(standing, standing).and_then(|()| self.prune(standing)));
            ours.unpin(next);
        }
    }

    /// Removes what a run has made that found nothing and failed.
    fn remove_if_new(&self, ours: &PinnedPrograms<'_>) {
        if ours.is_empty() {
            drop(self.remove());
        }
    }

    fn remove(&self) -> Result<(), XdpError> {
        fib::remove(&self.pins)?;
        let maps = PINNED.iter().map(|shape| shape.name).chain(nat::NAMES.iter().chain(&policy::NAMES).copied());
        programs::remove(&self.pins, maps, &[dump::LOCK, nat::LOCK])
    }
}

/// The key of a VLAN: `struct vlan_key`.
fn vlan_key(entry: &Entry) -> Vec<u8> {
    [entry.parent.to_ne_bytes(), u32::from(entry.vid).to_ne_bytes()].concat()
}
