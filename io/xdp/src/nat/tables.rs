//! The tables of the NAT: their sizes, their pins, and what the file of the router puts into them.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddrV4},
    path::Path,
};

use libbpf_rs::{MapCore as _, MapFlags, MapHandle, Object, OpenObject, ProgramInput};
use sallyport_packet_model::nat::{Endpoint, MAX_POOL, NatConfig};

use super::settings::{KEY, NatEngine, NatSetup, Settings, externals, require_conntrack};
use crate::{XdpError, error::asked, pins::map};

/// Tables whose size follows the file, and tables of one size.
const SIZED: [&str; 4] = ["nat_sessions", "nat_mappings", "nat_externals", "nat_users"];
/// All of them. They are pinned as long as the router has a NAT with tables.
pub(crate) const NAMES: [&str; 10] = [
    "nat_sessions",
    "nat_mappings",
    "nat_externals",
    "nat_users",
    "nat_pool",
    "nat_addresses",
    "nat_state",
    "nat_lease",
    "nat_timers",
    "nat_log",
];
/// The folder that a reader of the log locks.
pub(crate) const LOCK: &str = "nat-log-reader";
/// The least room of a table of sessions.
const MIN_ROOM: u32 = 1024;
/// The bytes of the log's ring: `NAT_LOG_BYTES`.
const LOG_BYTES: u32 = 1 << 20;
/// The most addresses outside: `NAT_MAX_EXTERNALS`.
const MAX_EXTERNALS: u32 = 4_096 + 65_536;

/// Sets the settings and the sizes, before the programs are loaded.
pub(crate) fn prepare(open: &mut OpenObject, pins: &Path, settings: &Settings, may_make: bool) -> Result<(), XdpError> {
    let engine = settings.engine();
    if engine == Some(NatEngine::Conntrack) {
        require_conntrack()?;
    }
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if name == ".rodata.nat" {
            map.set_initial_value(settings.bytes()).map_err(asked("set the settings of the NAT"))?;
        }
        let Some(name) = NAMES.iter().find(|known| **known == name) else { continue };
        let size = match *name {
            _ if engine.is_none() && *name == "nat_addresses" => 1,
            "nat_log" if engine == Some(NatEngine::Xdp) => LOG_BYTES,
            "nat_log" => 4096,
            "nat_pool" => MAX_POOL as u32,
            "nat_addresses" => MAX_EXTERNALS,
            sized if SIZED.contains(&sized) && engine == Some(NatEngine::Xdp) => room(settings),
            _ => 1,
        };
        let pin = pins.join(name);
        let standing = MapHandle::from_pinned_path(&pin).ok().map(|map| map.max_entries());
        if let Some(standing) = standing.filter(|standing| *standing < size && is_needed(name, engine)) {
            return Err(XdpError::NatRoom { room: standing, wanted: settings.max_sessions() });
        }
        // Without a NAT, and where nothing may be made, the tables are of this program alone.
        let is_pinned = is_needed(name, engine) && (may_make || standing.is_some());
        let size = if is_pinned { standing.unwrap_or(size) } else { size };
        map.set_max_entries(size).map_err(asked(format!("set the size of {name}")))?;
        if is_pinned {
            map.set_pin_path(&pin).map_err(asked(format!("pin {}", pin.display())))?;
        }
    }
    Ok(())
}

/// The room of a table of sessions.
fn room(settings: &Settings) -> u32 {
    settings.max_sessions().max(MIN_ROOM).next_power_of_two()
}

/// An end, as the program has it: `struct nat_end`.
fn end_bytes(end: Endpoint) -> [u8; 8] {
    let ([a, b, c, d], [high, low]) = (end.address.octets(), end.port.to_be_bytes());
    [a, b, c, d, high, low, end.protocol, 0]
}

/// The end of these bytes.
pub(crate) fn end_of(bytes: &[u8]) -> Option<Endpoint> {
    let bytes: [u8; 8] = bytes.get(..8)?.try_into().ok()?;
    let [a, b, c, d, high, low, protocol, _] = bytes;
    Some(Endpoint { protocol, address: Ipv4Addr::new(a, b, c, d), port: u16::from_be_bytes([high, low]) })
}

/// Writes the pool, the addresses and the forwarded ports, and removes others.
pub(crate) fn fill(pins: &Path, nat: Option<&NatSetup>) -> Result<(), XdpError> {
    let Some(NatSetup { engine, config, .. }) = nat else { return Ok(()) };
    let write = |map: &MapHandle, key: &[u8], value: &[u8]| {
        map.update(key, value, MapFlags::ANY).map_err(asked("fill the tables of the NAT"))
    };
    let pool = map(pins, "nat_pool")?;
    for (index, address) in config.pool.iter().enumerate() {
        write(&pool, &(index as u32).to_ne_bytes(), &address.octets())?;
    }
    let addresses = map(pins, "nat_addresses")?;
    for address in externals(config) {
        write(&addresses, &address.octets(), &1_u32.to_ne_bytes())?;
    }
    let stale = addresses.keys().take(MAX_EXTERNALS as usize);
    let stale: Vec<_> = stale.filter(|key| !externals(config).any(|one| one.octets() == key[..])).collect();
    for key in stale {
        drop(addresses.delete(&key));
    }
    if *engine == NatEngine::Xdp { forwards(pins, config) } else { Ok(()) }
}

/// Writes the forwarded ports. Sessions of those that stay go on.
fn forwards(pins: &Path, config: &NatConfig) -> Result<(), XdpError> {
    let (mappings, externals) = (map(pins, "nat_mappings")?, map(pins, "nat_externals")?);
    let wanted = config.forwards.iter().map(|forward| {
        let end = |end: SocketAddrV4| Endpoint { protocol: forward.protocol, address: *end.ip(), port: end.port() };
        (end_bytes(end(forward.inside)), end_bytes(end(forward.external)))
    });
    let wanted: Vec<_> = wanted.collect();
    let keys: Vec<_> = mappings.keys().take(mappings.max_entries() as usize).collect();
    for key in keys {
        let Ok(Some(value)) = mappings.lookup(&key, MapFlags::ANY) else { continue };
        let (Some(external), Some(is_forward)) = (value.get(..8), value.get(20..24)) else { continue };
        let is_kept = wanted.iter().any(|(inside, outside)| inside[..] == key[..] && outside[..] == *external);
        if is_forward != [0; 4] && !is_kept {
            drop(mappings.delete(&key));
            drop(externals.delete(external));
        }
    }
    for (inside, external) in wanted {
        let standing = mappings.lookup(&inside, MapFlags::ANY).ok().flatten();
        let stands = |value: &Vec<u8>| value.get(..8) == Some(&external) && value.get(20..24) != Some(&[0; 4]);
        if standing.as_ref().is_some_and(stands) {
            continue;
        }
        let sessions = standing.as_ref().and_then(|value| value.get(16..20)).unwrap_or(&[0; 4]);
        let mut value = external.to_vec();
        value.extend(u64::MAX.to_ne_bytes());
        value.extend(sessions);
        value.extend(1_u32.to_ne_bytes());
        let failed = || asked("fill the tables of the NAT");
        mappings.update(&inside, &value, MapFlags::ANY).map_err(failed())?;
        externals.update(&external, &inside, MapFlags::ANY).map_err(failed())?;
    }
    Ok(())
}

/// After the program is attached: keeps the settings, starts the clock of sessions, and removes what no NAT needs.
pub(crate) fn finish(pins: &Path, object: &Object, settings: &Settings) -> Result<(), XdpError> {
    let kept = map(pins, "nat_settings")?;
    kept.update(&KEY, settings.bytes(), MapFlags::ANY).map_err(asked("keep the settings of the NAT"))?;
    for name in NAMES.iter().filter(|name| !is_needed(name, settings.engine())) {
        drop(fs::remove_file(pins.join(name)));
    }
    match settings.engine() {
        Some(NatEngine::Xdp) => {
            let mut programs = object.progs_mut();
            let clock = programs.find(|program| program.name() == "sallyport_nat_clock");
            let clock = clock.ok_or(XdpError::NoProgram)?;
            let input = ProgramInput { data_in: Some(&[0; 64]), repeat: 1, ..ProgramInput::default() };
            let output = clock.test_run(input).map_err(asked("start the clock of the NAT"))?;
            // XDP_PASS: the clock runs.
            if output.return_value == 2 {
                return Ok(());
            }
            Err(asked("start the clock of the NAT")(libbpf_rs::Error::from_raw_os_error(22)))
        }
        Some(NatEngine::Conntrack) | None => Ok(()),
    }
}

/// Whether a NAT of this engine has the table.
fn is_needed(name: &str, engine: Option<NatEngine>) -> bool {
    match engine {
        Some(NatEngine::Xdp) => true,
        Some(NatEngine::Conntrack) => matches!(name, "nat_pool" | "nat_addresses"),
        None => false,
    }
}
