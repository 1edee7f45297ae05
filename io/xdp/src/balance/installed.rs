//! A program of ours at devices, whose state is pinned in a folder.

use std::{
    fs,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use libbpf_rs::{MapCore as _, MapFlags, MapHandle, Object};

use crate::{
    Change, Count, Router, StandingPort, Urpf, XdpError, dump,
    error::{asked, pinned, require_root},
    kernel::Device,
    object::{self, Shape},
    pins,
    programs::{self, PinnedPrograms},
    table::{self, Entry, MAX_ROUTER_PORTS, ROW_REASONS, SLOTS},
};

/// The most keys of a map that are read.
const MAX_KEYS: usize = 1 << 16;

/// The maps that every program here has.
pub(super) const PORTS: Shape = Shape { name: "ports", sizes: (4, 20), entries: SLOTS };
pub(super) const COUNTERS: Shape =
    Shape { name: "counters", sizes: (4, 16), entries: (MAX_ROUTER_PORTS as u32 + 1) * ROW_REASONS };
pub(super) const DUMP_CONTROL: Shape = Shape { name: "dump_control", sizes: (4, 32), entries: 1 };
pub(super) const DUMP_LOST: Shape = Shape { name: "dump_lost", sizes: (4, 8), entries: 1 };
pub(super) const DUMP_RINGS: Shape = Shape { name: "dump_rings", sizes: (4, 4), entries: 1 };

/// A kind of program, and the folder of its state.
#[derive(Debug, Clone)]
pub(super) struct Installed {
    pub(super) pins: PathBuf,
    pub(super) function: &'static str,
    pub(super) compiled: &'static [u8],
    /// The maps that are pinned.
    pub(super) shapes: &'static [Shape],
    /// The error where nothing stands.
    pub(super) missing: fn() -> XdpError,
}

impl Installed {
    /// Whether a program stands here.
    pub(super) fn is_there(&self) -> bool {
        self.pins.join(PORTS.name).exists()
    }

    /// The devices of the program that stands.
    pub(super) fn ports(&self) -> Result<Vec<StandingPort>, XdpError> {
        self.standing()?.ports()
    }

    /// What its devices have counted, without zeros.
    pub(super) fn counts(&self) -> Result<Vec<Count>, XdpError> {
        self.standing()?.counts()
    }

    /// The reader of the tables that every program here shares with the router.
    fn standing(&self) -> Result<Router, XdpError> {
        if self.is_there() { Ok(Router::new(&self.pins)) } else { Err((self.missing)()) }
    }

    /// A pinned map.
    pub(super) fn map(&self, name: &str) -> Result<MapHandle, XdpError> {
        object::map(&self.pins, name).map_err(|error| match error {
            XdpError::NotUp => (self.missing)(),
            error => error,
        })
    }

    /// Loads the program with the pinned maps; makes those that are not there, where `may_make`. The maps of the
    /// given names have so many entries: one is made anew if it has others.
    pub(super) fn load(&self, may_make: bool, sized: &[(&str, u32)]) -> Result<Object, XdpError> {
        require_root()?;
        if may_make {
            pins::make_folder(&self.pins)?;
        } else if !self.is_there() {
            return Err((self.missing)());
        }
        let mut open = object::open_program(self.compiled)?;
        for shape in self.shapes {
            let path = self.pins.join(shape.name);
            let mut is_there = path.try_exists().map_err(pinned(format!("look for {}", path.display())))?;
            let Some(mut map) = open.maps_mut().find(|map| map.name() == shape.name) else { continue };
            if let Some((_, entries)) = sized.iter().find(|(name, _)| *name == shape.name) {
                let is_right = MapHandle::from_pinned_path(&path).is_ok_and(|map| map.max_entries() == *entries);
                if is_there && !is_right {
                    fs::remove_file(&path).map_err(pinned(format!("remove {}", path.display())))?;
                    is_there = false;
                }
                map.set_max_entries(*entries).map_err(asked(format!("size the map {}", shape.name)))?;
            } else if shape.entries == 0 {
                // The standing map decides about its size.
                let standing = MapHandle::from_pinned_path(&path).map(|map| map.max_entries());
                let entries = standing.map_err(asked(format!("open {}", path.display())))?;
                map.set_max_entries(entries).map_err(asked(format!("size the map {}", shape.name)))?;
            } else if is_there && !MapHandle::from_pinned_path(&path).is_ok_and(|map| shape.is_of(&map)) {
                return Err(XdpError::OtherLayout(self.pins.clone()));
            }
            if !is_there && !may_make {
                return Err((self.missing)());
            }
            map.set_pin_path(&path).map_err(asked(format!("pin {}", path.display())))?;
        }
        object::load_program(open)
    }

    /// Fills the tables, and attaches a loaded program at these devices, in place of one of ours.
    pub(super) fn attach(
        &self,
        object: &Object,
        wanted: &[Device],
        devices: &[Device],
        fill: impl FnOnce() -> Result<(), XdpError>,
    ) -> Result<Change, XdpError> {
        let standing = self.entries().unwrap_or_default();
        let ours = PinnedPrograms::of(&self.pins);
        let take_back_new = |_: &XdpError| {
            if ours.is_empty() {
                drop(self.remove());
            }
        };
        let entries = self.entries_of(wanted, &standing).inspect_err(take_back_new)?;
        let next = ours.pin_next(object, self.function).inspect_err(take_back_new)?;
        // The tables are complete before the first packet.
        self.fill_ports(&entries, &standing).and_then(|()| fill()).inspect_err(take_back_new)?;
        let attached = ours.attach(&next, wanted.iter(), false);
        let mut change = attached.inspect_err(|_| self.take_back(&ours, &next, &standing))?;
        let is_wanted = |device: &Device| wanted.iter().any(|port| port.index == device.index);
        let was_port = |device: &Device| standing.iter().any(|entry| entry.ifindex == device.index);
        change.detached = ours.detach(devices.iter().filter(|device| !is_wanted(device) && was_port(device)))?;
        self.prune_ports(&entries)?;
        ours.unpin_all_but(&next)?;
        Ok(change)
    }

    /// Takes over changed addresses of the devices. The programs stay.
    pub(super) fn refresh(&self, wanted: &[Device]) -> Result<(), XdpError> {
        let standing = self.entries()?;
        let entries = self.entries_of(wanted, &standing)?;
        if entries.iter().all(|entry| standing.contains(entry)) {
            return Ok(());
        }
        self.fill_ports(&entries, &standing)
    }

    /// Detaches the program, and removes its state. Says which devices it was at.
    pub(super) fn down(&self, devices: &[Device]) -> Result<Vec<String>, XdpError> {
        let ours = PinnedPrograms::of(&self.pins);
        if ours.is_empty() && !self.is_there() {
            return Err((self.missing)());
        }
        let names = ours.detach(devices.iter())?;
        self.remove()?;
        Ok(names)
    }

    pub(super) fn entries(&self) -> Result<Vec<Entry>, XdpError> {
        self.standing()?.entries()
    }

    /// Frames with tags are the kernel's, so VLANs of the ports are not looked for.
    fn entries_of(&self, wanted: &[Device], standing: &[Entry]) -> Result<Vec<Entry>, XdpError> {
        let ports: Vec<_> = wanted.iter().map(|device| (device.clone(), Urpf::Off)).collect();
        table::entries(&ports, &[], standing)
    }

    fn fill_ports(&self, entries: &[Entry], standing: &[Entry]) -> Result<(), XdpError> {
        let (ports, counters) = (self.map(PORTS.name)?, self.map(COUNTERS.name)?);
        let devices =
            self.shapes.iter().any(|shape| shape.name == "devices").then(|| self.map("devices")).transpose()?;
        for entry in entries {
            let slot = Entry::slot(entry.ifindex).to_ne_bytes();
            if !standing.iter().any(|old| old.ifindex == entry.ifindex) {
                table::clear(&counters, u32::from(entry.row) * ROW_REASONS, ROW_REASONS)?;
            }
            if let Some(devices) = &devices {
                write(devices, &slot, &entry.ifindex.to_ne_bytes())?;
            }
            write(&ports, &slot, &entry.to_bytes())?;
        }
        Ok(())
    }

    fn prune_ports(&self, entries: &[Entry]) -> Result<(), XdpError> {
        let ports = self.map(PORTS.name)?;
        for old in self.entries()?.iter().filter(|old| !entries.iter().any(|entry| entry.ifindex == old.ifindex)) {
            let slot = Entry::slot(old.ifindex).to_ne_bytes();
            write(&ports, &slot, &[0; 20])?;
            if let Ok(devices) = self.map("devices") {
                drop(devices.delete(&slot));
            }
        }
        Ok(())
    }

    /// After a failure: the state is what it was.
    fn take_back(&self, ours: &PinnedPrograms<'_>, next: &OwnedFd, standing: &[Entry]) {
        if ours.is_empty() {
            drop(self.remove());
        } else {
            drop(self.fill_ports(standing, standing).and_then(|()| self.prune_ports(standing)));
            ours.unpin(next);
        }
    }

    fn remove(&self) -> Result<(), XdpError> {
        programs::remove(&self.pins, self.shapes.iter().map(|shape| shape.name), &[dump::LOCK])
    }

    pub(super) fn folder(&self) -> &Path {
        &self.pins
    }
}

/// Writes an entry of a map.
pub(super) fn write(map: &MapHandle, key: &[u8], value: &[u8]) -> Result<(), XdpError> {
    let name = map.name().to_string_lossy().into_owned();
    map.update(key, value, MapFlags::ANY).map_err(asked(format!("fill the table {name}")))
}

/// Makes a map have these entries: first those that are new, then the others go.
pub(super) fn replace(map: &MapHandle, entries: &[(Vec<u8>, Vec<u8>)]) -> Result<(), XdpError> {
    for (key, value) in entries {
        write(map, key, value)?;
    }
    let keys: Vec<_> = map.keys().take(MAX_KEYS).collect();
    for key in keys.iter().filter(|key| !entries.iter().any(|entry| entry.0 == **key)) {
        map.delete(key).map_err(asked("clear an entry of a table"))?;
    }
    Ok(())
}
