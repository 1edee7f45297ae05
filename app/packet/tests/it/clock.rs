//! The clock of the programs cannot be moved, so the times that their tables keep are moved back.

use std::{path::Path, time::Duration};

use libbpf_rs::{MapCore as _, MapFlags, MapHandle};

/// A pinned table, and the places of its times in a value.
type Times<'t> = (&'t str, &'t [usize]);

/// The tables of the NAT. Mappings come first: the clock of the NAT does not touch them before a session is over.
pub(crate) const NAT: [Times<'static>; 3] =
    [("fragments", &[0]), ("nat_mappings", &[8]), ("nat_sessions", &[8, 16, 24])];
/// The tables of the firewall.
pub(crate) const POLICY: [Times<'static>; 2] = [("policy_flows", &[0]), ("policy_openings", &[0])];

fn table(pins: &Path, name: &str) -> MapHandle {
    MapHandle::from_pinned_path(pins.join(name)).unwrap()
}

/// The entries of a table.
pub(crate) fn entries(pins: &Path, name: &str) -> usize {
    table(pins, name).keys().count()
}

/// Ages all entries of these tables, as if so much time had passed.
pub(crate) fn pass(pins: &Path, tables: &[Times<'_>], time: Duration) {
    for (name, places) in tables {
        let table = table(pins, name);
        let keys: Vec<_> = table.keys().collect();
        for key in keys {
            let Some(mut value) = table.lookup(&key, MapFlags::ANY).unwrap() else { continue };
            for place in *places {
                let field = &mut value[*place..place + 8];
                let kept = u64::from_ne_bytes(field.try_into().unwrap());
                field.copy_from_slice(&kept.saturating_sub(time.as_nanos() as u64).to_ne_bytes());
            }
            table.update(&key, &value, MapFlags::EXIST).unwrap();
        }
    }
}
