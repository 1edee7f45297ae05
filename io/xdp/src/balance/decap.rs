//! An edge behind balancers: takes packets out of their tunnels.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    path::{Path, PathBuf},
};

use libbpf_rs::{MapCore as _, MapFlags, Object};
use sallyport_packet_model::balance::Rate;

use super::{
    bytes::{address_key, rate},
    installed::{COUNTERS, DUMP_CONTROL, DUMP_LOST, DUMP_RINGS, Installed, PORTS, replace, write},
};
use crate::{Change, Changing, Count, StandingPort, XdpError, explain, kernel::Device, object::Shape};

/// The program, compiled by build.rs; empty without clang.
static PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/decap.bpf.o"));
const FUNCTION: &str = "sallyport_decap";
const MAX_PEERS: usize = 2048;
const MAX_ADDRESSES: usize = 4096;
const MAX_LOCALS: usize = 256;
static SHAPES: [Shape; 11] = [
    PORTS,
    COUNTERS,
    DUMP_CONTROL,
    DUMP_LOST,
    DUMP_RINGS,
    Shape { name: "decap_set", sizes: (4, 4), entries: 1 },
    Shape { name: "cookie_set", sizes: (4, 24), entries: 1 },
    Shape { name: "cookie_bucket", sizes: (4, 8), entries: 1 },
    Shape { name: "decap_peers", sizes: (20, 4), entries: MAX_PEERS as u32 },
    Shape { name: "decap_addresses", sizes: (20, 4), entries: MAX_ADDRESSES as u32 },
    Shape { name: "decap_locals", sizes: (20, 4), entries: MAX_LOCALS as u32 },
];

/// What an edge takes out of tunnels.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DecapConfig {
    /// Balancers whose packets are taken.
    pub balancers: BTreeSet<IpAddr>,
    /// Other edges, which send on what they have no connection of.
    pub mates: BTreeSet<IpAddr>,
    /// Addresses that packets inside are for, and whether they were put on the loopback device for this.
    pub addresses: BTreeMap<IpAddr, bool>,
    /// This machine's own addresses.
    pub locals: BTreeSet<IpAddr>,
    /// The port of GUE.
    pub gue_port: u16,
    /// Whether packets go on to the second edge.
    pub has_second_chance: bool,
    /// The SYNs a second that the kernel gets; the others are answered by cookies.
    pub syn_cookies: Option<SynLimit>,
}

/// When SYNs are answered by cookies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SynLimit {
    /// The SYNs a second that the kernel gets.
    pub per_second: u32,
    /// What `net.ipv4.tcp_syncookies` was before.
    pub before: u32,
}

/// The edge whose state is pinned in a folder of bpffs.
#[derive(Debug, Clone)]
pub struct Decap {
    installed: Installed,
}

impl Decap {
    /// The edge of this folder, which stands or not.
    pub fn new(pins: impl Into<PathBuf>) -> Self {
        let (function, compiled, shapes) = (FUNCTION, PROGRAM, SHAPES.as_slice());
        Self { installed: Installed { pins: pins.into(), function, compiled, shapes, missing: || XdpError::NoDecap } }
    }

    /// The folder.
    #[must_use]
    pub fn pins(&self) -> &Path {
        self.installed.folder()
    }

    /// Whether it stands.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.installed.is_there()
    }

    /// Says that this process changes it, as long as the result lives.
    ///
    /// # Errors
    /// Another process does, or the folder is no bpffs, or one of another user.
    pub fn change(&self) -> Result<Changing, XdpError> {
        crate::require_root()?;
        Changing::begin(self.pins())
    }

    /// Brings it up at these devices, or changes what stands, without a lost packet.
    ///
    /// # Errors
    /// A device has another program, or no native XDP: the devices are then as before.
    pub fn up(&self, wanted: &[Device], devices: &[Device], config: &DecapConfig) -> Result<Change, XdpError> {
        for (what, count, most) in [
            ("balancers and edges", config.balancers.len() + config.mates.len(), MAX_PEERS),
            ("addresses", config.addresses.len(), MAX_ADDRESSES),
            ("addresses of this machine", config.locals.len(), MAX_LOCALS),
        ] {
            if count > most {
                return Err(XdpError::TooMany { what, count, most });
            }
        }
        let object = self.installed.load(true, &[])?;
        self.installed.attach(&object, wanted, devices, || self.fill(config))
    }

    /// Takes it down. Says which devices it was at.
    ///
    /// # Errors
    /// Nothing stands.
    pub fn down(&self, devices: &[Device]) -> Result<Vec<String>, XdpError> {
        self.installed.down(devices)
    }

    /// The devices.
    ///
    /// # Errors
    /// Nothing stands.
    pub fn ports(&self) -> Result<Vec<StandingPort>, XdpError> {
        self.installed.ports()
    }

    /// What the devices have counted, without zeros.
    ///
    /// # Errors
    /// Nothing stands.
    pub fn counts(&self) -> Result<Vec<Count>, XdpError> {
        self.installed.counts()
    }

    /// The standing configuration.
    ///
    /// # Errors
    /// Nothing stands.
    pub fn config(&self) -> Result<DecapConfig, XdpError> {
        let peers = self.installed.map("decap_peers")?;
        let mut config = DecapConfig::default();
        let address = |key: &[u8]| -> Option<IpAddr> {
            let is_v6 = key.get(16..20)? != [0; 4];
            let words: [u8; 16] = key.get(..16)?.try_into().ok()?;
            Some(if is_v6 { words.into() } else { [words[0], words[1], words[2], words[3]].into() })
        };
        for key in peers.keys().take(MAX_PEERS) {
            let kind = peers.lookup(&key, MapFlags::ANY).ok().flatten().unwrap_or_default();
            let list = if kind.first() == Some(&2) { &mut config.mates } else { &mut config.balancers };
            list.extend(address(&key));
        }
        let addresses = self.installed.map("decap_addresses")?;
        for key in addresses.keys().take(MAX_ADDRESSES) {
            let value = addresses.lookup(&key, MapFlags::ANY).ok().flatten().unwrap_or_default();
            config.addresses.extend(address(&key).map(|address| (address, value.first() == Some(&2))));
        }
        config.locals =
            self.installed.map("decap_locals")?.keys().take(MAX_LOCALS).filter_map(|key| address(&key)).collect();
        let settings = self.installed.map("decap_set")?.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY);
        let settings = settings.map_err(crate::error::asked("read the settings"))?.unwrap_or_default();
        if let [high, low, has_second, ..] = settings[..] {
            config.gue_port = u16::from_be_bytes([high, low]);
            config.has_second_chance = has_second != 0;
        }
        let cookies = self.installed.map("cookie_set")?.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY);
        let cookies = cookies.map_err(crate::error::asked("read the settings"))?.unwrap_or_default();
        let number = |at: usize| Some(u32::from_ne_bytes(cookies.get(at..at + 4)?.try_into().ok()?));
        if let (Some(per_second @ 1..), Some(before)) = (number(16), number(20)) {
            config.syn_cookies = Some(SynLimit { per_second, before });
        }
        Ok(config)
    }

    /// Runs the program over a frame that comes in by this device: what XDP says, and the frame after it.
    ///
    /// # Errors
    /// Nothing stands, or the frame has fewer than 14 bytes.
    pub fn run_frames(&self, frames: &[Vec<u8>], ifindex: u32) -> Result<Vec<(u32, Vec<u8>)>, XdpError> {
        let object: Object = self.installed.load(false, &[])?;
        frames.iter().map(|frame| explain::run(&object, FUNCTION, frame, ifindex)).collect()
    }

    fn fill(&self, config: &DecapConfig) -> Result<(), XdpError> {
        let entry = |address: &IpAddr, value: u32| (address_key(*address), value.to_ne_bytes().to_vec());
        let all = |addresses: &BTreeSet<IpAddr>| addresses.iter().map(|one| entry(one, 1)).collect::<Vec<_>>();
        let mut settings = config.gue_port.to_be_bytes().to_vec();
        settings.extend([u8::from(config.has_second_chance), 0]);
        write(&self.installed.map("decap_set")?, &0_u32.to_ne_bytes(), &settings)?;
        let limit = config.syn_cookies;
        let mut cookies = rate(limit.map(|limit| Rate::per_second(limit.per_second))).to_vec();
        cookies.extend(
            limit.map_or([0; 2], |limit| [limit.per_second, limit.before]).iter().flat_map(|n| n.to_ne_bytes()),
        );
        write(&self.installed.map("cookie_set")?, &0_u32.to_ne_bytes(), &cookies)?;
        replace(&self.installed.map("decap_locals")?, &all(&config.locals))?;
        let addresses = config.addresses.iter().map(|(address, is_ours)| entry(address, 1 + u32::from(*is_ours)));
        replace(&self.installed.map("decap_addresses")?, &addresses.collect::<Vec<_>>())?;
        let mut peers = all(&config.balancers);
        peers.extend(config.mates.iter().filter(|mate| !config.balancers.contains(mate)).map(|mate| entry(mate, 2)));
        replace(&self.installed.map("decap_peers")?, &peers)
    }
}
