//! The compiled programs, and how they are loaded.

use std::{path::Path, sync::Mutex};

use libbpf_rs::{MapCore as _, MapHandle, Object, ObjectBuilder, OpenObject, PrintLevel};

use crate::{
    XdpError,
    error::{asked, pinned},
    fib::{self, FibSizes},
    nat::{self, Settings},
    policy::{self, CompiledPolicy},
    table::{MAX_ROUTER_PORTS, MAX_VLANS, ROW_REASONS, SLOTS},
};

pub(crate) use crate::pins::map;

/// The programs, compiled by build.rs; empty without clang.
static PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/router.bpf.o"));
/// The maps that outlive the process.
pub(crate) const PINNED: [Shape; 10] = [
    Shape { name: "ports", sizes: (4, 20), entries: SLOTS },
    Shape { name: "vlans", sizes: (8, 4), entries: MAX_VLANS as u32 },
    Shape { name: "devices", sizes: (4, 4), entries: SLOTS },
    Shape { name: "counters", sizes: (4, 16), entries: (MAX_ROUTER_PORTS as u32 + 1) * ROW_REASONS },
    Shape { name: "dump_control", sizes: (4, 32), entries: 1 },
    Shape { name: "dump_lost", sizes: (4, 8), entries: 1 },
    Shape { name: "dump_rings", sizes: (4, 4), entries: 1 },
    Shape { name: "policy_settings", sizes: (4, policy::SETTINGS_BYTES as u32), entries: 1 },
    Shape { name: "nat_settings", sizes: (4, nat::SETTINGS_BYTES as u32), entries: 1 },
    // Later fragments follow their first one over an exchange of the program.
    Shape { name: "fragments", sizes: (40, 24), entries: 16_384 },
];

/// What a map of this version looks like.
#[derive(Debug)]
pub(crate) struct Shape {
    /// Its name, here and in the program.
    pub(crate) name: &'static str,
    /// The bytes of a key and of a value.
    pub(crate) sizes: (u32, u32),
    /// The most entries.
    pub(crate) entries: u32,
}

impl Shape {
    pub(crate) fn is_of(&self, map: &MapHandle) -> bool {
        (map.key_size(), map.value_size()) == self.sizes && map.max_entries() == self.entries
    }
}

/// Whether this build has the programs.
#[must_use]
pub fn has_program() -> bool {
    !PROGRAM.is_empty()
}

/// What the library has said since the last load began: the kernel's reasons are among it.
static SAID: Mutex<String> = Mutex::new(String::new());
/// The most bytes of it.
const MAX_SAID_BYTES: usize = 1 << 20;
/// How many of its lines tell the reason.
const LAST_LINES: usize = 8;

fn keep(_: PrintLevel, text: String) {
    if let Ok(mut said) = SAID.lock()
        && said.len() + text.len() <= MAX_SAID_BYTES
    {
        said.push_str(&text);
    }
}

/// Forgets what the library has said.
pub(crate) fn forget_words() {
    SAID.lock().map(|mut said| said.clear()).unwrap_or_default();
}

/// The last lines of the kernel's reason, in one.
pub(crate) fn last_words() -> String {
    let said = SAID.lock().map(|said| said.clone()).unwrap_or_default();
    let lines: Vec<_> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("; ")
}

/// Opens compiled programs; nothing is in the kernel yet. They are empty without clang.
pub(crate) fn open_program(compiled: &[u8]) -> Result<OpenObject, XdpError> {
    if compiled.is_empty() {
        return Err(XdpError::NoProgram);
    }
    // The library would print to standard error itself.
    libbpf_rs::set_print(Some((PrintLevel::Warn, keep)));
    ObjectBuilder::default().open_memory(compiled).map_err(asked("read the compiled programs"))
}

/// Where a program looks up.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Tables<'a> {
    /// In the kernel's routes.
    Kernel,
    /// In new tables of these sizes.
    New(&'a FibSizes),
    /// In what the standing router has.
    Standing,
}

/// Loads the programs with the maps in this folder; makes those that are not there, where `may_make`.
pub(crate) fn load(pins: &Path, may_make: bool, tables: Tables<'_>) -> Result<Object, XdpError> {
    load_with(pins, may_make, tables, None, None)
}

/// Loads the programs with this NAT and this policy; without, with those that stand.
pub(crate) fn load_with(
    pins: &Path,
    may_make: bool,
    tables: Tables<'_>,
    settings: Option<&Settings>,
    compiled: Option<Option<&CompiledPolicy>>,
) -> Result<Object, XdpError> {
    let mut open = open_program(PROGRAM)?;
    prepare_tables(&mut open, pins, tables)?;
    for shape in PINNED {
        let path = pins.join(shape.name);
        let is_there = path.try_exists().map_err(pinned(format!("look for {}", path.display())))?;
        if !is_there && !may_make {
            return Err(XdpError::NotUp);
        }
        if is_there && !MapHandle::from_pinned_path(&path).is_ok_and(|map| shape.is_of(&map)) {
            return Err(XdpError::OtherLayout(pins.to_owned()));
        }
        // A map that is pinned there is used, and another one is made and pinned.
        if let Some(mut map) = open.maps_mut().find(|map| map.name() == shape.name) {
            map.set_pin_path(&path).map_err(asked(format!("pin {}", path.display())))?;
        }
    }
    let settings = settings.copied().unwrap_or_else(|| Settings::standing(pins));
    nat::prepare(&mut open, pins, &settings, may_make)?;
    policy::prepare(&mut open, pins, compiled, may_make)?;
    load_program(open).map_err(|error| match error {
        // A pinned table of sessions or flows with other keys, values or entries.
        XdpError::Load { said, .. } if said.contains("parameter mismatch") => XdpError::OtherLayout(pins.to_owned()),
        error => error,
    })
}

/// Says to the program where it looks up, and gives it the tables of the lookup `fib`.
fn prepare_tables(open: &mut OpenObject, pins: &Path, tables: Tables<'_>) -> Result<(), XdpError> {
    let is_standing = matches!(tables, Tables::Standing) && pins.join(fib::STATUS).exists();
    for name in fib::MAPS {
        let Some(mut map) = open.maps_mut().find(|map| map.name() == name) else { continue };
        if is_standing {
            let path = pins.join(name);
            map.reuse_pinned_map(&path).map_err(asked(format!("open {}", path.display())))?;
        } else if let Tables::New(sizes) = tables {
            map.set_max_entries(sizes.entries(name)).map_err(asked(format!("size the map {name}")))?;
        }
    }
    if is_standing || matches!(tables, Tables::New(_)) {
        let mut constants = open.maps_mut().find(|map| map.name() == ".rodata.fib").ok_or(XdpError::NoProgram)?;
        let value = constants.initial_value_mut().ok_or(XdpError::NoProgram)?;
        value.copy_from_slice(&1_u32.to_ne_bytes());
    }
    Ok(())
}

/// Loads opened programs into the kernel.
pub(crate) fn load_program(open: OpenObject) -> Result<Object, XdpError> {
    forget_words();
    open.load().map_err(|source| match last_words() {
        // A program that is wrong gets another answer: EACCES.
        said if said.contains("-EPERM") => XdpError::NotCapable,
        said => XdpError::Load { source, said },
    })
}
