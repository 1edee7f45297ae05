//! The table of ports, as the program reads it: packet/bpf/layout.h.

use libbpf_rs::{MapCore as _, MapFlags, MapHandle};

use crate::{XdpError, error::asked, kernel::Device};

/// The most ports of a router: `MAX_ROWS`, and the row of what is no port.
pub const MAX_ROUTER_PORTS: usize = 63;
/// The most VLANs of all ports.
pub(crate) const MAX_VLANS: usize = 4096;
/// Slots of devices: `MAX_PORTS`.
pub(crate) const SLOTS: u32 = 1024;
/// Counters of a row: `MAX_REASONS`.
pub(crate) const ROW_REASONS: u32 = 64;

/// The check of source addresses (RFC 3704).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Urpf {
    /// None.
    #[default]
    Off,
    /// A route to the source is there.
    Loose,
    /// The route to the source leads back by the device that the packet came from.
    Strict,
}

impl Urpf {
    /// Its word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Loose => "loose",
            Self::Strict => "strict",
        }
    }
}

/// An entry: `struct port`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) ifindex: u32,
    pub(crate) parent: u32,
    pub(crate) vid: u16,
    pub(crate) row: u16,
    pub(crate) urpf: Urpf,
    pub(crate) mac: [u8; 6],
}

impl Entry {
    /// The slot of a device.
    pub(crate) fn slot(ifindex: u32) -> u32 {
        ifindex % SLOTS
    }

    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(20);
        bytes.extend(self.ifindex.to_ne_bytes());
        bytes.extend(self.parent.to_ne_bytes());
        bytes.extend(self.vid.to_ne_bytes());
        bytes.extend(self.row.to_ne_bytes());
        bytes.extend([self.urpf as u8, 0]);
        bytes.extend(self.mac);
        bytes
    }

    /// The entry of these bytes; `None` for an empty slot.
    pub(crate) fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let half = |at: usize| Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
        let urpf = match bytes.get(12)? {
            1 => Urpf::Loose,
            2 => Urpf::Strict,
            _ => Urpf::Off,
        };
        let mac = bytes.get(14..20)?.try_into().ok()?;
        let entry = Self { ifindex: word(0)?, parent: word(4)?, vid: half(8)?, row: half(10)?, urpf, mac };
        (entry.ifindex != 0).then_some(entry)
    }
}

/// The entries for these ports and their VLANs. Ports that stand keep their rows.
pub(crate) fn entries(
    wanted: &[(Device, Urpf)],
    devices: &[Device],
    standing: &[Entry],
) -> Result<Vec<Entry>, XdpError> {
    if wanted.len() > MAX_ROUTER_PORTS {
        return Err(XdpError::TooManyPorts(wanted.len()));
    }
    let kept = |device: &Device| standing.iter().find(|entry| entry.ifindex == device.index).map(|entry| entry.row);
    let mut used: Vec<u16> = wanted.iter().filter_map(|(device, _)| kept(device)).collect();
    let mut entries: Vec<(Entry, &str)> = Vec::new();
    for (device, urpf) in wanted {
        if let Some((parent, vid)) = device.vlan {
            let below = devices.iter().find(|other| other.index == parent);
            let parent = below.map_or_else(|| format!("device {parent}"), |below| below.name.clone());
            return Err(XdpError::IsVlan { device: device.name.clone(), vid, parent });
        }
        let free = (1..=MAX_ROUTER_PORTS as u16).find(|row| !used.contains(row)).unwrap_or_default();
        let row = kept(device).unwrap_or(free);
        used.push(row);
        let urpf = *urpf;
        let port = Entry { ifindex: device.index, parent: device.index, vid: 0, row, urpf, mac: device.mac };
        entries.push((port, &device.name));
        for (vlan, vid) in devices.iter().filter_map(|other| match other.vlan {
            Some((parent, vid)) if parent == device.index => Some((other, vid)),
            _ => None,
        }) {
            entries.push((Entry { ifindex: vlan.index, vid, mac: vlan.mac, ..port }, &vlan.name));
        }
    }
    let vlans = entries.iter().filter(|(entry, _)| entry.vid != 0).count();
    if vlans > MAX_VLANS {
        return Err(XdpError::TooManyVlans(vlans));
    }
    let mut slots = vec![None; SLOTS as usize];
    for (entry, name) in &entries {
        if let Some(other) = slots[Entry::slot(entry.ifindex) as usize].replace(*name) {
            return Err(XdpError::SameSlot(other.to_owned(), (*name).to_owned()));
        }
    }
    Ok(entries.into_iter().map(|(entry, _)| entry).collect())
}

/// Sets counters to zero.
pub(crate) fn clear(counters: &MapHandle, first: u32, count: u32) -> Result<(), XdpError> {
    let cpus = libbpf_rs::num_possible_cpus().map_err(asked("count the processors"))?;
    let zeros = vec![vec![0; 16]; cpus];
    for key in first..first + count {
        let cleared = counters.update_percpu(&key.to_ne_bytes(), &zeros, MapFlags::ANY);
        cleared.map_err(asked("clear the counters"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(index: u32, vlan: Option<(u32, u16)>) -> Device {
        Device { index, name: format!("d{index}"), mac: [2, 0, 0, 0, 0, index as u8], mtu: 1500, is_up: true, vlan }
    }

    #[test]
    fn an_entry_is_twenty_bytes_there_and_back() {
        let entry =
            Entry { ifindex: 70_000, parent: 3, vid: 4094, row: 63, urpf: Urpf::Strict, mac: [1, 2, 3, 4, 5, 6] };
        let bytes = entry.to_bytes();
        assert_eq!((bytes.len(), Entry::of_bytes(&bytes)), (20, Some(entry)));
        assert_eq!(Entry::of_bytes(&[0; 20]), None);
        assert_eq!(Entry::of_bytes(&bytes[..19]), None);
    }

    #[test]
    fn ports_bring_their_vlans_and_keep_their_rows() {
        let devices = [device(2, None), device(3, None), device(4, Some((2, 100))), device(5, Some((9, 7)))];
        let first = entries(&[(devices[0].clone(), Urpf::Off)], &devices, &[]).unwrap();
        let shown: Vec<_> = first.iter().map(|entry| (entry.ifindex, entry.parent, entry.vid, entry.row)).collect();
        assert_eq!(shown, [(2, 2, 0, 1), (4, 2, 100, 1)]);
        let both = [(devices[1].clone(), Urpf::Loose), (devices[0].clone(), Urpf::Off)];
        let both = entries(&both, &devices, &first).unwrap();
        let rows: Vec<_> = both.iter().map(|entry| (entry.ifindex, entry.row)).collect();
        assert_eq!(rows, [(3, 2), (2, 1), (4, 1)], "the port that stood keeps row 1");
    }

    #[test]
    fn what_the_table_cannot_hold_has_a_sentence() {
        let devices = [device(2, None), device(2 + SLOTS, None), device(4, Some((2, 100)))];
        let said = |ports: &[Device]| {
            let ports: Vec<_> = ports.iter().map(|port| (port.clone(), Urpf::Off)).collect();
            entries(&ports, &devices, &[]).unwrap_err().to_string()
        };
        assert!(said(&devices[..2]).starts_with("d2 and d1026 have indexes that fall into one slot"));
        assert!(said(&devices[2..]).starts_with("d4 is VLAN 100 of d2: name d2"));
        let many: Vec<_> = (1..=64).map(|index| device(index, None)).collect();
        assert!(said(&many).starts_with("64 ports are more than 63"));
    }
}
