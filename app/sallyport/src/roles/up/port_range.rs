//! A warning if the system may assign ports of sockets to other programs.

use std::ops::RangeInclusive;

use tracing::warn;

/// The ephemeral port range (`ip_local_port_range` of ip-sysctl), and the reserved ports in it.
const SYSTEM_RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";
const RESERVED: &str = "/proc/sys/net/ipv4/ip_local_reserved_ports";

/// Warns if any of these ports may be taken by a program when a socket needs it.
pub(super) fn warn_of_overlap(range: &RangeInclusive<u16>) {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    if let Some(system) = overlap(range, &read(SYSTEM_RANGE), &read(RESERVED)) {
        warn!(
            ports = format!("{}-{}", range.start(), range.end()),
            system = format!("{}-{}", system.start(), system.end()),
            "the system gives out some of the ports of --port-range by itself, so sockets may find theirs taken: \
             choose others, or put them into net.ipv4.ip_local_reserved_ports"
        );
    }
}

/// The ephemeral range, if it overlaps these ports.
fn overlap(range: &RangeInclusive<u16>, system: &str, reserved: &str) -> Option<RangeInclusive<u16>> {
    let mut ends = system.split_whitespace().map_while(|end| end.parse::<u16>().ok());
    let system = ends.next()?..=ends.next()?;
    let reserved: Vec<_> = reserved.trim().split(',').filter_map(ports).collect();
    let is_given = |port: &u16| system.contains(port) && !reserved.iter().any(|ports| ports.contains(port));
    range.clone().any(|port| is_given(&port)).then_some(system)
}

/// `1024` or `1024-2048`.
fn ports(text: &str) -> Option<RangeInclusive<u16>> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    Some(from.parse().ok()?..=to.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_that_the_system_gives_out_and_does_not_reserve_are_seen() {
        let system = "32768\t60999\n";
        for (range, reserved, is_seen) in [
            (20_000..=20_999, "\n", false),
            (32_000..=33_000, "\n", true),
            (60_999..=61_000, "", true),
            (61_000..=62_000, "", false),
            (32_000..=33_000, "32768-33000\n", false),
            (32_000..=33_000, "8080,32768-32998,33000\n", true),
            (40_000..=40_000, "39999,40000\n", false),
        ] {
            assert_eq!(overlap(&range, system, reserved).is_some(), is_seen, "{range:?} {reserved:?}");
        }
        for unknown in ["", "x y", "32768", "99999 100000"] {
            assert_eq!(overlap(&(1_024..=u16::MAX), unknown, ""), None, "{unknown}");
        }
    }
}
